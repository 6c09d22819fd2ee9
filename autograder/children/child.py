"""The grader's side of a child: start it, give it cells and questions, end it in time."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from autograder.children.channel import Channel
from autograder.children.received import Outputs, count, read_answers
from autograder.children.remote import Remote
from autograder.children.surroundings import (
    COURSE,
    PROGRAM,
    Folders,
    environment,
    libraries,
    processes_allowed,
)
from course.child.limits import wall_seconds
from course.questions import Answer, Failure, Question
from course.wire import Closed, Malformed, TooLate

GRACE = 2.0  # seconds after a soft time-out until the process is ended
START = 60.0  # seconds until a child must be ready
NOTEBOOK = 900.0  # seconds of real time for all the cells and questions of one notebook
PASSED_OVER = 100  # messages out of place (an answer that comes too late) until the process is ended


@dataclass
class Ran:
    """What one cell did.

    outputs : nbformat v4 output dicts, in order. A later cell may change the content of a display.
    state   : "ok", "error", "time-out" (stopped; later cells still run unless the process had to be
              ended) or "died" (the process is gone).
    """

    outputs: list[dict] = field(default_factory=list)
    execution_count: int | None = None
    state: str = "ok"


class Child:
    """A process in which the cells of one notebook run. Use as a context manager, or call close()."""

    def __init__(self, process: subprocess.Popen, sock: socket.socket, folders: Folders):
        self._process = process
        self._folders = folders
        self._channel = Channel(sock, self._still_good)
        self._outputs = Outputs()
        self._asked = 0
        self._clock = _Clock(process.pid, START, START)
        self._last_moment = time.monotonic() + NOTEBOOK
        self.gone = ""  # why there is no process any more
        self._passed_over = 0

    @classmethod
    def start(cls, folder: Path | None = None) -> Child:
        """A child whose current folder is a private copy of `folder`. Raises RuntimeError if none can be started."""
        folders = Folders(folder)
        ours, theirs = socket.socketpair()
        process = _start_interpreter(theirs, folders)
        theirs.close()
        child = cls(process, ours, folders)
        if child._expect("ready") is None:
            reason = child.gone
            child.close()
            raise RuntimeError(f"the process for the notebook does not start: {reason}")
        return child

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ what can be asked

    def run_cell(self, source: str, seconds: float) -> Ran:
        """Run one cell for at most `seconds` of processor time."""
        self._outputs.begin()
        outputs = self._outputs.cell
        if self.gone:
            return Ran(outputs, None, "died")
        body = self._exchange({"run": {"source": source, "seconds": seconds}}, "ran", seconds)
        if body is None:
            return Ran(outputs, None, "time-out" if self.gone == TIME_OUT else "died")
        try:
            state, number = body["state"], count(body["count"])
            if state not in ("ok", "error", "time-out"):
                raise Malformed("not a state")
        except (Malformed, KeyError, TypeError):
            return Ran(outputs, None, "error")
        return Ran(outputs, number, state)

    def defines(self, name: str) -> bool:
        """Whether the cells so far defined this name."""
        return not self.gone and self._exchange({"defines": name}, "defined", 2.0) is True

    def ask(self, name: str, parameters: tuple[str, ...], question: Question) -> list[Answer]:
        """The answers of the student's function, one for each call of the question. Never raises for what the child does."""
        calls = len(question.calls)
        if self.gone:
            return [self._no_answer()] * calls
        self._asked += 1
        remote = Remote(question)
        body = self._exchange(
            {"ask": remote.asking(self._asked, name, parameters)},
            "answer",
            question.seconds * max(1, calls),
            remote,
        )
        if body is None:
            return [self._no_answer()] * calls
        try:
            return read_answers(body.get("answers"), calls, remote.seen())
        except Malformed as error:
            return [
                Answer(failure=Failure("malformed", f"the answer does not follow the rules: {error}"))
            ] * calls

    def close(self) -> None:
        """End the process and everything it started, and remove its folder."""
        self._end("closed")
        self._folders.close()

    # ------------------------------------------------------------ messages

    def _exchange(self, message: dict, kind: str, seconds: float, remote: Remote | None = None) -> Any:
        """Send a message; the body of the reply of this kind, or None (then `gone` says why, or the reply is late)."""
        wall = min(wall_seconds(seconds) + GRACE, self._last_moment - time.monotonic())
        self._clock = _Clock(self._process.pid, seconds + GRACE, wall)
        try:
            self._channel.send(message)
        except (Closed, TooLate) as error:
            self._end(TIME_OUT if isinstance(error, TooLate) else DIED)
            return None
        return self._expect(kind, remote)

    def _expect(self, kind: str, remote: Remote | None = None) -> Any:
        """The body of the next message of this kind; on the way, outputs are kept and calls are answered."""
        while True:
            try:
                got, body = _single(self._channel.receive())
                if got == kind and (kind != "answer" or self._is_asked(body)):
                    return body
                if got == "late" and body == _REPLIED_BY.get(kind):
                    return {}
                if got == "call" and remote is not None and self._is_asked(body):
                    self._channel.send(remote.reply(body))
                elif kind == "ran" and got in ("output", "update", "clear"):
                    self._outputs.take(got, body)
                else:
                    self._passed_over += 1
                    if self._passed_over > PASSED_OVER:
                        self._end(NONSENSE)
                        return None
            except Malformed:
                if kind == "answer":
                    return {}
                self._end(NONSENSE)
                return None
            except TooLate:
                self._end(TIME_OUT)
                return None
            except Closed:
                self._end(DIED)
                return None

    def _is_asked(self, body: Any) -> bool:
        return isinstance(body, dict) and body.get("id") == self._asked

    def _no_answer(self) -> Answer:
        kind = "time-out" if self.gone == TIME_OUT else "no answer"
        return Answer(failure=Failure(kind, f"there is no answer: {self.gone}"))

    # ------------------------------------------------------------ time and end

    def _still_good(self) -> None:
        self._clock.check()

    def _end(self, why: str) -> None:
        self.gone = self.gone or why
        self._channel.close()
        end_tree(self._process)


TIME_OUT = "the time was up and the process had to be ended"
DIED = "the process that ran the notebook ended"
NONSENSE = "the process that ran the notebook sent what is no message"
_REPLIED_BY = {"ran": "run", "defined": "defines", "answer": "ask"}


def _single(message: dict) -> tuple[str, Any]:
    """The kind and the body of a message."""
    if len(message) != 1:
        raise Malformed("not a message")
    return next(iter(message.items()))


class _Clock:
    """Raises TooLate when a process has used its processor time, or a good deal more real time."""

    def __init__(self, pid: int, processor: float, wall: float):
        self._pid = pid
        self._wall_end = time.monotonic() + wall
        self._processor_end = _processor_seconds(pid) + processor

    def check(self) -> None:
        if time.monotonic() > self._wall_end or _processor_seconds(self._pid) > self._processor_end:
            raise TooLate("the time is up")


def _processor_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def _start_interpreter(theirs: socket.socket, folders: Folders) -> subprocess.Popen:
    settings = {
        "root": str(COURSE.parent),
        "libraries": list(libraries()),
        "work": str(folders.work),
        "home": str(folders.home),
        "processes": processes_allowed(),
        "socket": theirs.fileno(),
    }
    windows = sys.platform == "win32"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folders.work,
        env=environment(folders.home),
        start_new_session=not windows,
        **({} if windows else {"pass_fds": [theirs.fileno()]}),
    )
    if windows:  # there a socket is handed over by a description of it
        settings["socket"] = base64.b64encode(theirs.share(process.pid)).decode("ascii")
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.close()
    return process


def end_tree(process: subprocess.Popen) -> None:
    """End a process, its group and its descendants."""
    if process.poll() is not None and not hasattr(os, "killpg"):
        return
    descendants: Sequence[psutil.Process] = ()
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(process.pid).children(recursive=True)
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        process.kill()
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    process.wait()
