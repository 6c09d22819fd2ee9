"""Check what a child sends. Nothing here trusts the child, and nothing here raises anything but Malformed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course.child.recorder import CELL_BYTES, CELL_OUTPUTS, CUT
from course.questions import Answer, Failure
from course.wire import Malformed, decode

FAILURES = {"missing", "not attempted", "exception", "time-out", "malformed"}
NOTEBOOK_BYTES = 48_000_000
NOTEBOOK_OUTPUTS = 3_000
MIME_TYPES = 20  # in one output
DEPTH = 20  # of JSON inside an output


def plain_text(value: Any, limit: int) -> str:
    """A text of at most `limit` characters that can be written to a file. Raises Malformed."""
    if not isinstance(value, str):
        raise Malformed("not a text")
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------- answers


def read_answers(body: Any, count: int, calls: Sequence[tuple]) -> list[Answer]:
    """The answers to `count` calls. calls: for each, what its functions were called with, as far as the grader saw it."""
    if not isinstance(body, list) or len(body) != count:
        raise Malformed("the number of answers is wrong")
    return [_answer(part, seen) for part, seen in zip(body, calls)]


def _answer(part: Any, calls: tuple) -> Answer:
    if not isinstance(part, dict) or set(part) != {
        "value",
        "failure",
        "changed",
        "printed",
        "seconds",
        "calls",
    }:
        raise Malformed("not an answer")
    failure = _failure(part["failure"])
    changed = part["changed"]
    if not isinstance(changed, list) or len(changed) > 50:
        raise Malformed("not an answer")
    seconds = part["seconds"]
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e6:
        raise Malformed("not an answer")
    return Answer(
        None if failure else cleaned(decode(part["value"])),
        failure,
        tuple(plain_text(name, 100) for name in changed),
        plain_text(part["printed"], 2000),
        _calls(part["calls"], calls),
        float(seconds),
    )


def _calls(body: Any, seen: tuple) -> tuple:
    """What each function was called with: as seen here, and as the child says for those that run there."""
    if all(calls is not None for calls in seen):
        return seen
    said = decode(body)
    if not isinstance(said, list) or len(said) != len(seen):
        return tuple(calls or () for calls in seen)
    return tuple(
        calls if calls is not None else tuple(one for one in theirs if isinstance(one, tuple))
        for calls, theirs in zip(seen, (part if isinstance(part, list) else [] for part in said))
    )


def _failure(body: Any) -> Failure | None:
    if body is None:
        return None
    if not isinstance(body, list) or len(body) != 4:
        raise Malformed("not a failure")
    kind, message, error, line = (plain_text(part, 300) for part in body)
    if kind not in FAILURES:
        raise Malformed("not a failure")
    return Failure(kind, message, error, line)


def cleaned(value: Any) -> Any:
    """The same value, its texts such that they can be written to a file."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return type(value)(cleaned(item) for item in value)
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------- outputs


class Outputs:
    """The outputs of one notebook's cells as nbformat v4 dicts, checked and bounded."""

    def __init__(self):
        self._left = NOTEBOOK_BYTES
        self._count = 0
        self._displays: dict[str, list[dict]] = {}
        self.cell: list[dict] = []
        self._cell_left = CELL_BYTES
        self._clear_next = False
        self._cut = False

    def begin(self) -> None:
        """A new cell: its outputs are collected in `cell`."""
        self.cell = []
        self._cell_left = CELL_BYTES
        self._clear_next = False
        self._cut = False

    def take(self, kind: str, body: Any) -> None:
        """One message of kind "output", "update" or "clear". Raises Malformed."""
        if kind == "clear":
            self._clear_next = body is True
            if body is not True:
                self._clear()
        elif kind == "update":
            self._update(body)
        else:
            self._output(body)

    def _output(self, output: Any) -> None:
        if not isinstance(output, dict) or not isinstance(output.get("output_type"), str):
            raise Malformed("not an output")
        display_id = output.pop("display_id", None)
        made = _OUTPUTS.get(output["output_type"], _unknown)(output)
        if self._clear_next:
            self._clear()
        if not self._room(made):
            return
        last = self.cell[-1] if self.cell else {}
        if made["output_type"] == "stream" and last.get("name") == made["name"]:
            last["text"] += made["text"]
            return
        self.cell.append(made)
        if isinstance(display_id, str):
            self._displays.setdefault(display_id[:200], []).append(made)

    def _update(self, body: Any) -> None:
        if not isinstance(body, dict) or not isinstance(body.get("display_id"), str):
            raise Malformed("not an update")
        data, metadata = _bundle(body.get("data")), _object(body.get("metadata"))
        if self._room(data):
            for output in self._displays.get(body["display_id"][:200], ()):
                output["data"], output["metadata"] = data, metadata

    def _clear(self) -> None:
        self.cell.clear()
        self._clear_next = False

    def _room(self, content: dict) -> bool:
        size = _size(content)
        self._count += 1
        self._left -= size
        self._cell_left -= size
        # the child leaves out what is too much and says so; twice its bound means that it does not
        if (
            self._left > 0
            and self._cell_left > -CELL_BYTES
            and self._count <= NOTEBOOK_OUTPUTS
            and len(self.cell) <= 2 * CELL_OUTPUTS
        ):
            return True
        if not self._cut:
            self._cut = True
            self.cell.append({"output_type": "stream", "name": "stdout", "text": CUT})
        return False


def _stream(output: dict) -> dict:
    if output.get("name") not in ("stdout", "stderr"):
        raise Malformed("not a stream")
    return {
        "output_type": "stream",
        "name": output["name"],
        "text": plain_text(output.get("text"), CELL_BYTES),
    }


def _display(output: dict) -> dict:
    return {
        "output_type": "display_data",
        "data": _bundle(output.get("data")),
        "metadata": _object(output.get("metadata")),
    }


def _result(output: dict) -> dict:
    return _display(output) | {
        "output_type": "execute_result",
        "execution_count": count(output.get("execution_count")),
    }


def _error(output: dict) -> dict:
    lines = output.get("traceback")
    if not isinstance(lines, list):
        raise Malformed("not a traceback")
    return {
        "output_type": "error",
        "ename": plain_text(output.get("ename"), 200),
        "evalue": plain_text(output.get("evalue"), 20_000),
        "traceback": [plain_text(line, 50_000) for line in lines[:200]],
    }


def _unknown(output: Any) -> dict:
    raise Malformed("not an output")


_OUTPUTS = {"stream": _stream, "display_data": _display, "execute_result": _result, "error": _error}


def count(value: Any) -> int | None:
    """An execution count. Raises Malformed."""
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 10**6:
        raise Malformed("not an execution count")
    return value


def _bundle(data: Any) -> dict:
    """Mime type -> content, as nbformat wants it: text, or JSON where the type says so."""
    if not isinstance(data, dict) or len(data) > MIME_TYPES:
        raise Malformed("not a mime bundle")
    made = {}
    for mime, content in data.items():
        if not isinstance(content, str) and not (mime == "application/json" or mime.endswith("+json")):
            raise Malformed("content of a type that is text must be text")
        made[plain_text(mime, 100)] = _json(content, DEPTH)
    return made


def _object(value: Any) -> dict:
    if not isinstance(value, dict):
        raise Malformed("not an object")
    return _json(value, DEPTH)


def _json(value: Any, depth: int) -> Any:
    if depth <= 0:
        raise Malformed("nested too deeply")
    if isinstance(value, str):
        return plain_text(value, CELL_BYTES)
    if isinstance(value, list):
        return [_json(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {plain_text(key, 1000): _json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None  # nan and infinity are no JSON
    return value


def _size(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return sum(len(key) + _size(value) for key, value in content.items()) + 16
    if isinstance(content, list):
        return sum(map(_size, content)) + 16
    return 8
