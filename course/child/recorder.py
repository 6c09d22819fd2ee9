"""Collect what a cell puts out, in order, and send it to the grader piece by piece."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

CELL_TEXT = 200_000  # characters of printed text that a cell keeps
CELL_OUTPUTS = 500
CELL_BYTES = 16_000_000  # characters of everything that a cell puts out, pictures included
PIECE = 8_000  # characters of text that are sent at once
CUT = "\n[The rest of this cell's output was left out: it is too long.]\n"


class Recorder:
    """The outputs of the cell that runs now, as nbformat v4 dicts.

    Text is gathered and sent before the next picture, at the end of the cell, or when it gets
    long: so what a cell showed survives even if the process is ended. What goes beyond the caps
    is dropped, with a note.
    """

    def __init__(self, send: Callable[[dict], None]):
        self.send = send
        self.live = False
        self.process = os.getpid()
        self._lock = threading.RLock()
        self.descriptors = Descriptors()
        self._stream = ""
        self._text: list[str] = []
        self._waiting = 0
        self._start_counting()

    def begin(self) -> None:
        """A cell begins."""
        self.process = os.getpid()
        self._start_counting()
        self.live = True

    def end(self) -> None:
        """A cell has ended: send what is left."""
        self._take_descriptors()
        self._send_text()
        self.descriptors.forget()
        self.live = False

    def text(self, stream: str, text: str) -> None:
        """Printed text. stream: "stdout" or "stderr"."""
        with self._lock:
            self._take_descriptors()
            self._add_text(stream, text)

    def output(self, output: dict, display_id: str | None = None) -> None:
        """A picture, a result or an error."""
        with self._lock:
            self._take_descriptors()
            self._send_text()
            if self._room_for(output):
                self._pass_on({"output": output | {"display_id": display_id}})

    def update(self, display_id: str, data: dict, metadata: dict) -> None:
        """New content for the displays with this id."""
        if self._room_for(data):
            self._pass_on({"update": {"display_id": display_id, "data": data, "metadata": metadata}})

    def clear(self, wait: bool) -> None:
        """The cell wants its outputs removed (with wait: as soon as there is a new one)."""
        self._take_descriptors()
        self._send_text()
        self._pass_on({"clear": bool(wait)})

    # ------------------------------------------------------------ inside

    def _start_counting(self) -> None:
        self._texts = self._outputs = self._bytes = 0
        self._cut = False

    def _take_descriptors(self) -> None:
        for stream, text in self.descriptors.new_text():
            self._add_text(stream, text)

    def _add_text(self, stream: str, text: str) -> None:
        room = CELL_TEXT - self._texts
        if room <= 0:
            return self._say_cut()
        kept = text[:room]
        self._texts += len(kept)
        if stream != self._stream:
            self._send_text()
            self._stream = stream
        self._text.append(kept)
        self._waiting += len(kept)
        if len(kept) < len(text):
            self._say_cut()
        elif self._waiting > PIECE and self.live:
            self._send_text()

    def _send_text(self) -> None:
        text = "".join(self._text)
        self._text, self._waiting = [], 0
        if text:
            self._pass_on({"output": {"output_type": "stream", "name": self._stream, "text": text}})

    def _room_for(self, content: Any) -> bool:
        self._outputs += 1
        self._bytes += _size(content)
        if self._outputs <= CELL_OUTPUTS and self._bytes <= CELL_BYTES:
            return True
        self._say_cut()
        return False

    def _say_cut(self) -> None:
        if not self._cut:
            self._cut = True
            self._send_text()
            self._pass_on({"output": {"output_type": "stream", "name": "stdout", "text": CUT}})

    def _pass_on(self, message: dict) -> None:
        if self.live:  # what a thread puts out between cells belongs to nobody
            self.send(message)


def _size(content: Any) -> int:
    if isinstance(content, str | bytes):
        return len(content)
    if isinstance(content, dict):
        return sum(len(str(key)) + _size(value) for key, value in content.items())
    if isinstance(content, list | tuple):
        return sum(map(_size, content))
    return 8


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of a graded notebook."""

    encoding = "UTF-8"
    errors = "replace"

    def __init__(self, recorder: Recorder, name: str, descriptor: int):
        self._recorder = recorder
        self._descriptor = descriptor
        self.name = name

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() == self._recorder.process:
            self._recorder.text(self.name, text)
        else:  # a fork of the student's prints to the same place by another way
            os.write(self._descriptor, text.encode("utf-8", "replace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor


class Descriptors:
    """What is written past Python to the file descriptors 1 and 2 (os.write, os.system, C code)."""

    def __init__(self):
        self._files: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def capture(self) -> None:
        """Point the descriptors 1 and 2 to files of our own (not on Windows, where they cannot be read this way)."""
        if not hasattr(os, "pread"):
            return
        for stream, number in (("stdout", 1), ("stderr", 2)):
            file = _nameless_file()
            os.dup2(file, number, inheritable=True)
            self._files[stream], self._read[stream] = file, 0

    def new_text(self) -> list[tuple[str, str]]:
        """(stream, text) for each descriptor that was written to since the last look."""
        found = []
        for stream, file in self._files.items():
            with contextlib.suppress(OSError):  # the student may have closed it
                size = os.fstat(file).st_size
                start = self._read[stream]
                if size > start:
                    self._read[stream] = size
                    data = os.pread(file, min(size - start, 4 * CELL_TEXT), start)
                    found.append((stream, data.decode("utf-8", "replace")))
        return found

    def forget(self) -> None:
        """Empty the files; what they held was read."""
        for stream, file in self._files.items():
            if self._read[stream]:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, 0)
                    os.lseek(file, 0, os.SEEK_SET)
                self._read[stream] = 0


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("output")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
