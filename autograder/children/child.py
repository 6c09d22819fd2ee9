"""The grader's side of a child: start it, give it cells and questions, end it in time."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.children.channel import Channel
from autograder.children.processes import (
    Clock,
    Forked,
    Fresh,
    resident_bytes,
    seconds_of_descendants,
    tree,
    written_bytes,
)
from autograder.children.received import Outputs, count, plain_text, read_answers
from autograder.children.remote import Remote, asking
from autograder.children.surroundings import (
    COURSE,
    INTERPRETER,
    PROCESSES,
    PROGRAM,
    SPARE_PROCESSES,
    Folders,
    environment,
    font_list,
    libraries,
    packed_files,
    processes_of_the_user,
    spare_user,
)
from autograder.children.warm import NotStarted, warm_process
from course.child.confine import BUBBLEWRAP, PROCESS
from course.child.confine import NOTEBOOK as NOTEBOOK_FOLDER
from course.child.limits import wall_seconds
from course.questions import Answer, Failure, Question, is_unanswered
from course.wire import Closed, Malformed, TooLate

GRACE = 2.0  # seconds after a soft time-out until the process is ended
START = 60.0  # seconds until a child must be ready
DISK = 256 * 1024 * 1024  # bytes that a child's folder may hold
WRITTEN = 1024 * 1024 * 1024  # bytes that a child and its descendants may write, removed files included
TREE_MEMORY = 3 * 1024**3  # bytes that a child and its descendants may hold
DESCENDANTS = 20.0  # seconds of processor time for all that a notebook starts: a neighbour waits meanwhile
NOTEBOOK = 900.0  # seconds of real time for all the cells and questions of one notebook
PASSED_OVER = 100  # messages out of place (an answer that comes too late) until the process is ended


class Unbearable(Exception):
    """A child must be ended; the text says why."""


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
    """A process in which the cells of one notebook run. Use as a context manager, or call close().

    level : of isolation, see autograder.children.isolation.
    gone  : why there is no process any more; empty while there is one.
    """

    def __init__(self, process: Fresh | Forked, sock: socket.socket, level: str, folders: Folders | None):
        self.level = level
        self.gone = ""
        self._process = process
        self._folders = folders
        self._channel = Channel(sock, self._still_good)
        self._outputs = Outputs()
        self._asked = 0
        self._passed_over = 0
        self._clock = Clock(process.psutil, START, START)
        self._last_moment = time.monotonic() + NOTEBOOK

    @classmethod
    def start(cls, folder: Path | None = None, level: str = PROCESS) -> Child:
        """A child whose current folder is a private copy of `folder`. Raises NotStarted.

        On Linux it is forked from a warm process; elsewhere, where only the level "process" exists,
        it is a fresh interpreter.
        """
        if sys.platform == "linux":
            try:
                return cls._ready(folder, level, *_fork(level))
            except NotStarted:
                if level != PROCESS:
                    raise
        if level != PROCESS:
            raise NotStarted(f"{level} needs Linux")
        return cls.start_fresh(folder)

    @classmethod
    def start_fresh(cls, folder: Path | None = None) -> Child:
        """A child that is a fresh interpreter, at the level "process". Raises NotStarted."""
        return cls._ready(folder, PROCESS, *_start_interpreter())

    @classmethod
    def _ready(
        cls,
        folder: Path | None,
        level: str,
        process: Fresh | Forked,
        sock: socket.socket,
        folders: Folders | None,
    ) -> Child:
        child = cls(process, sock, level, folders)
        files = {"files": packed_files(folder)}
        if child._exchange(None, "ready", START) is None or child._exchange(files, "written", START) is None:
            reason = child.gone
            child.close()
            raise NotStarted(f"the process for the notebook does not start: {reason}")
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
        return next(self.ask_all(name, parameters, [question]))

    def ask_all(
        self, name: str, parameters: tuple[str, ...], questions: Sequence[Question]
    ) -> Iterator[list[Answer]]:
        """The same for several questions, in order. The last is the first that has no answer in time."""
        remotes = [Remote(question) for question in questions]
        message = asking(self._asked + 1, name, parameters, remotes)
        for remote in remotes:
            self._asked += 1
            answers = self._answers(message, remote)
            yield answers
            if is_unanswered(answers):
                return
            message = None  # all are sent with the first

    def _answers(self, message: dict | None, remote: Remote) -> list[Answer]:
        calls = len(remote.question.calls)
        seconds = remote.question.seconds * max(1, calls)
        body = None if self.gone else self._exchange(message, "answer", seconds, remote)
        try:
            if body not in (None, LATE):
                return read_answers(body.get("answers"), calls, remote.seen())
            failure = Failure("time-out", f"no answer after {seconds:g} s") if body else self._no_answer()
        except Malformed as error:
            failure = Failure("malformed", f"the answer does not follow the rules: {error}")
        return [Answer(failure=failure)] * calls

    def close(self) -> None:
        """End the process and everything it started, and remove its folder."""
        self._end("closed")
        if self._folders:
            self._folders.close()

    # ------------------------------------------------------------ messages

    def _exchange(self, message: dict | None, kind: str, seconds: float, remote: Remote | None = None) -> Any:
        """Send a message (or None); the body of the reply of this kind, or None, and then `gone` says why."""
        wall = min(wall_seconds(seconds) + GRACE, self._last_moment - time.monotonic())
        self._clock = Clock(self._process.psutil, seconds + GRACE, wall)
        try:
            if message is not None:
                self._channel.send(message)
            return self._reply(kind, remote)
        except (Closed, TooLate, Malformed, Unbearable) as error:
            if kind == "answer" and type(error) is Malformed:
                return {}  # costs this answer; the next message can be read
            self._end(_why(error))
            return None

    def _reply(self, kind: str, remote: Remote | None) -> Any:
        """The body of the next message of this kind; on the way, outputs are kept and calls are answered."""
        while True:
            got, body = _single(self._channel.receive())
            if got == kind and (kind != "answer" or self._is_asked(body)):
                return body
            if got == "late" and body == _REPLIED_BY.get(kind):
                return LATE
            if got == "call" and remote is not None and self._is_asked(body):
                self._channel.send(remote.reply(body))
            elif kind == "ran" and got in ("output", "update", "clear"):
                self._outputs.take(got, body)
            elif kind == "ready" and got == "refused":
                raise Unbearable(plain_text(body, 300))
            else:
                self._passed_over += 1
                if self._passed_over > PASSED_OVER:
                    raise Unbearable(NONSENSE)

    def _is_asked(self, body: Any) -> bool:
        return isinstance(body, dict) and body.get("id") == self._asked

    def _no_answer(self) -> Failure:
        kind = "time-out" if self.gone == TIME_OUT else "no answer"
        return Failure(kind, f"there is no answer: {self.gone}")

    # ------------------------------------------------------------ time and end

    def _still_good(self) -> None:
        if self._clock.check():
            self._check_greed()

    def _check_greed(self) -> None:
        """Raises Unbearable if the child and its descendants hold too much of the machine."""
        if self._folders and self._folders.hold_too_much(DISK):
            raise Unbearable(f"its folder holds more than {DISK >> 20} MB or too many files")
        members = tree(self._process.psutil)
        if len(members) > PROCESSES:
            raise Unbearable(f"it started more than {PROCESSES} processes")
        if seconds_of_descendants(members) > DESCENDANTS:
            raise Unbearable(f"what it started took more than {DESCENDANTS:g} s of processor time")
        if sum(map(written_bytes, members)) > WRITTEN:
            raise Unbearable(f"its processes wrote more than {WRITTEN >> 20} MB")
        if sum(map(resident_bytes, members)) > TREE_MEMORY:
            raise Unbearable(f"its processes took more than {TREE_MEMORY >> 30} GB of memory")

    def _end(self, why: str) -> None:
        if not self.gone:
            self.gone = why
            self._channel.close()
            self._process.end()


TIME_OUT = "the time was up and the process had to be ended"
DIED = "the process that ran the notebook ended"
NONSENSE = "the process that ran the notebook sent what is no message"
LATE = {"late": True}  # in the place of a reply: the time was up just when it was ready
_REPLIED_BY = {"ran": "run", "defined": "defines", "answer": "ask"}


def _why(error: Exception) -> str:
    """Why a child was ended, for the report."""
    reasons = {TooLate: TIME_OUT, Closed: DIED, Unbearable: str(error)}
    return reasons.get(type(error), NONSENSE)


def _single(message: dict) -> tuple[str, Any]:
    """The kind and the body of a message."""
    if len(message) != 1:
        raise Malformed("not a message")
    return next(iter(message.items()))


def _fork(level: str) -> tuple[Forked, socket.socket, Folders | None]:
    """A child forked from this grader's warm process. Raises NotStarted."""
    warm = warm_process(level)
    boxed = level == BUBBLEWRAP
    user = None if boxed else spare_user()
    folders = None if boxed else Folders(user)
    alone = boxed or user is not None
    settings = {
        "work": f"{NOTEBOOK_FOLDER}/work" if boxed else str(folders.work),
        "home": f"{NOTEBOOK_FOLDER}/home" if boxed else str(folders.home),
        "uid": user,
        "processes": PROCESSES if alone else processes_of_the_user() + SPARE_PROCESSES,
    }
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # see processes.sender
    try:
        with theirs:
            number = warm.fork(theirs, settings)
        return Forked(warm, number, ours), ours, folders
    except NotStarted:
        ours.close()
        if folders:
            folders.close()
        raise


def _start_interpreter() -> tuple[Fresh, socket.socket, Folders]:
    """A child that is a fresh interpreter."""
    folders = Folders()
    for path in font_list().glob("fontlist-*.json"):
        shutil.copy(path, folders.home)
    ours, theirs = socket.socketpair()
    windows = sys.platform == "win32"
    process = subprocess.Popen(
        [INTERPRETER, "-I", "-S", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folders.work,
        env=environment(folders.home),
        start_new_session=not windows,
        **({} if windows else {"pass_fds": [theirs.fileno()]}),
    )
    settings = {
        "zygote": False,
        "root": str(COURSE.parent),
        "libraries": libraries(),
        "work": str(folders.work),
        "home": str(folders.home),
        "processes": processes_of_the_user() + SPARE_PROCESSES,
        # Windows hands a socket over by a description of it
        "socket": base64.b64encode(theirs.share(process.pid)).decode("ascii") if windows else theirs.fileno(),
    }
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.close()
    theirs.close()
    return Fresh(process), ours, folders
