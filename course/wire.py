"""The closed set of values that may travel, as JSON text, and the frames that carry it.

No pickle, no code: arrays travel as dtype, shape and bytes. Decoding trusts nothing: every size is
checked before memory is taken, and whatever does not fit raises Malformed.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import select
import socket
import struct
import time
from typing import Any

import numpy as np

from course.questions import Failure, Given, Own, Raises, Rng

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 12
MAX_ITEMS = 200_000
MAX_TEXT = 20_000
PIECE = 1 << 16  # bytes that are read at once
MAX_PARTS = 2_000_000  # commas and brackets of one message: each may become an object in memory
DTYPES = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}


class Malformed(ValueError):
    """A value outside the closed set, or a message that does not follow the rules."""


# ---------------------------------------------------------------- values to JSON


def encode(value: Any) -> Any:
    """A value of the closed set as a JSON tree. Raises Malformed for anything else."""
    return tree_of(canonical(value))


def canonical(value: Any, depth: int = 0) -> Any:
    """A value of the closed set as the other side will get it: plain types, arrays copied. Raises Malformed."""
    if depth > MAX_DEPTH:
        raise Malformed("the value is nested too deeply")
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return _checked_plain(value)
    if isinstance(value, str):
        return _checked_plain(str.__str__(value))
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.generic | np.ndarray):
        return _canonical_array(value)
    if isinstance(value, int):
        return _checked_plain(int.__int__(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, complex):
        return _canonical_array(np.asarray(value))
    if isinstance(value, tuple | list):
        if len(value) > MAX_ITEMS:
            raise Malformed("the list is too long")
        items = [canonical(item, depth + 1) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        if len(value) > MAX_ITEMS:
            raise Malformed("the dict is too long")
        return {_key(canonical(k, depth + 1)): canonical(v, depth + 1) for k, v in value.items()}
    if kind in _PLACEHOLDERS:
        return kind(*(canonical(part, depth + 1) for part in vars(value).values()))
    if hasattr(value, "__array__"):
        return _canonical_array(value)
    raise Malformed(f"a value of type {kind.__name__} cannot be compared")


_PLACEHOLDERS = {cls: cls.__name__ for cls in (Rng, Given, Own, Raises, Failure)}


def _checked_plain(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise Malformed("the text is too long")
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 2000:
        raise Malformed("the whole number is too large")
    return value


def _key(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool | None):
        raise Malformed("a key of a dict must be text or a number")
    return value


def _canonical_array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if type(array) is not np.ndarray:
        array = np.array(array, subok=False)
    dtype = array.dtype.newbyteorder("<").str.lstrip("<|=>")
    if dtype not in DTYPES and array.dtype.kind in "fc":  # long double has no portable size
        dtype = "c16" if array.dtype.kind == "c" else "f8"
    if dtype not in DTYPES:
        raise Malformed(f"an array of dtype {array.dtype} cannot be compared")
    if array.nbytes > MAX_BYTES // 2:
        raise Malformed("the array is too large")
    return np.array(array, dtype="<" + dtype, order="C")


def tree_of(value: Any) -> Any:
    """The JSON tree of a canonical value."""
    kind = type(value)
    if kind is np.ndarray:
        text = base64.b64encode(value).decode("ascii")
        return {"array": [value.dtype.str.lstrip("<|"), list(value.shape), text]}
    if kind is list:
        return [tree_of(item) for item in value]
    if kind is tuple:
        return {"tuple": [tree_of(item) for item in value]}
    if kind is dict:
        return {"dict": [[tree_of(key), tree_of(item)] for key, item in value.items()]}
    if kind in _PLACEHOLDERS:
        return {kind.__name__: [tree_of(part) for part in vars(value).values()]}
    return value


# ---------------------------------------------------------------- JSON to values


def decode(tree: Any, placeholders: bool = False, depth: int = 0) -> Any:
    """The value of a JSON tree. Placeholders are accepted only from the judge's side."""
    if depth > MAX_DEPTH:
        raise Malformed("the value is nested too deeply")
    if tree is None or isinstance(tree, bool | int | float | str):
        return _checked_plain(tree)
    if isinstance(tree, list):
        return [decode(item, placeholders, depth + 1) for item in tree]
    if not isinstance(tree, dict) or len(tree) != 1:
        raise Malformed("not a value")
    ((kind, body),) = tree.items()
    if not isinstance(body, list):
        raise Malformed("not a value")
    if kind == "array":
        return _decode_array(body)
    if kind == "tuple":
        return tuple(decode(item, placeholders, depth + 1) for item in body)
    if kind == "dict":
        return _decode_dict(body, placeholders, depth)
    if placeholders:
        for cls, name in _PLACEHOLDERS.items():
            if kind == name:
                return cls(*(decode(part, True, depth + 1) for part in body))
    raise Malformed("not a value")


def _decode_dict(body: list, placeholders: bool, depth: int) -> dict:
    result = {}
    for pair in body:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Malformed("not a dict")
        result[_key(decode(pair[0], placeholders, depth + 1))] = decode(pair[1], placeholders, depth + 1)
    return result


def _decode_array(body: list) -> np.ndarray:
    if len(body) != 3:
        raise Malformed("not an array")
    dtype, shape, text = body
    if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(text, str):
        raise Malformed("not an array")
    if not isinstance(shape, list) or len(shape) > 16:
        raise Malformed("not an array")
    if not all(type(n) is int and 0 <= n <= MAX_BYTES for n in shape):
        raise Malformed("not an array")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed("not an array") from error
    if len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise Malformed("the array's size and shape disagree")
    return np.frombuffer(data, dtype="<" + dtype).reshape(shape).copy()


# ---------------------------------------------------------------- frames on a socket


class TooLong(Malformed):
    """A message longer than allowed. Where one is received, nothing after it can be read."""


class Closed(ConnectionError):
    """The other side is gone."""


class TooLate(TimeoutError):
    """The other side did not answer in time."""


class Connection:
    """JSON messages over a stream socket: four bytes of length, then the text."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._received = bytearray()

    def send(self, message: dict, deadline: float | None = None) -> None:
        """Send one message. Raises Closed, TooLate, or TooLong, and then nothing was sent."""
        data = json.dumps(message).encode("utf-8")
        if len(data) > MAX_BYTES:
            raise TooLong("the message is too long")
        self._send_all(struct.pack(">I", len(data)) + data, deadline)

    def receive(self, deadline: float | None = None) -> dict:
        """The next message, before `deadline` (time.monotonic). Raises Closed, TooLate, TooLong or Malformed."""
        (length,) = struct.unpack(">I", self._exactly(4, deadline))
        if length > MAX_BYTES:
            raise TooLong("the message is too long")
        data = self._exactly(length, deadline)
        if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_PARTS:
            raise Malformed("the message has too many parts")
        try:
            message = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise Malformed("the message is not JSON") from error
        if not isinstance(message, dict):
            raise Malformed("the message is not an object")
        return message

    def close(self) -> None:
        self.sock.close()

    def _send_all(self, data: bytes, deadline: float | None) -> None:
        view = memoryview(data)
        while view:
            self._wait(False, deadline)
            try:
                sent = self.sock.send(view[: 1 << 20], getattr(socket, "MSG_DONTWAIT", 0))
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise Closed("the other side is gone") from error
            view = view[sent:]

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        while len(self._received) < count:
            self._wait(True, deadline)
            try:
                part = self.sock.recv(PIECE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise Closed("the other side is gone") from error
            if not part:
                raise Closed("the other side is gone")
            self._received += part
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _wait(self, reading: bool, deadline: float | None) -> None:
        """Wait until the socket can be read (or written). Raises TooLate, or Closed for a socket closed here."""
        left = None if deadline is None else deadline - time.monotonic()
        if (left is not None and left <= 0) or not self._ready(reading, left):
            raise TooLate("no answer in time")

    def _ready(self, reading: bool, seconds: float | None) -> bool:
        """Whether the socket can be read (or written) within some seconds."""
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self.sock, select.POLLIN if reading else select.POLLOUT)
                return bool(poll.poll(None if seconds is None else seconds * 1000))
            ready = select.select([self.sock] if reading else [], [] if reading else [self.sock], [], seconds)
        except ValueError as error:
            raise Closed("the socket was closed") from error
        return any(ready)
