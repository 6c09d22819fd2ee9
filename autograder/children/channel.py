"""The grader's end of the socket to a child: patient while the child may still be at work, never for ever."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Callable

from course.wire import MAX_BYTES, Closed, Connection, Malformed, TooLate

LOOK = 0.1  # seconds between two looks at the child's clock
MAX_PARTS = 2_000_000  # commas and brackets in one message: each may become an object in memory


class Channel(Connection):
    """A Connection whose waiting asks `still_good` every tenth of a second; it raises to end the waiting."""

    def __init__(self, sock: socket.socket, still_good: Callable[[], None]):
        super().__init__(sock)
        self._still_good = still_good

    def receive(self, deadline: float | None = None) -> dict:
        """The next message. Raises Closed, TooLate or Malformed; after Malformed the next one can be read
        unless the message was too long."""
        (length,) = struct.unpack(">I", self._exactly(4, deadline))
        if length > MAX_BYTES:
            raise Closed("the message is too long")
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

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll() if hasattr(select, "poll") else None
        if poll:
            poll.register(self.sock, event)
        while True:
            if poll:
                ready = bool(poll.poll(LOOK * 1000))
            else:  # Windows
                reading = [self.sock] if event == select.POLLIN else []
                writing = [] if reading else [self.sock]
                ready = any(select.select(reading, writing, [], LOOK))
            if ready:
                return
            self._still_good()
            if deadline is not None and time.monotonic() > deadline:
                raise TooLate("no answer in time")
