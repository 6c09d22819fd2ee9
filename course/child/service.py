"""Do what the grader asks: run a cell, say whether a name exists, call a function."""

from __future__ import annotations

import base64
import builtins
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from course.answering import OutOfTime, answer_question
from course.child.limits import CellOutOfTime, Clock
from course.child.recorder import CUT, Recorder
from course.questions import Answer, Call, Failure, Question, is_unanswered
from course.wire import Closed, Connection, TooLong, decode, encode, tree_of

LEFT_OUT = {"output": {"output_type": "stream", "name": "stdout", "text": CUT}}  # in the place of an output
HANDLE = "function "  # an Own with such a name stands for a function that stays with the grader


class Service:
    """Answers the grader's messages, one after the other, until the grader is gone."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.connection: Connection | None = None
        self.recorder: Recorder | None = None
        self.shell: Any = None
        self.asked = 0
        self._process = os.getpid()
        self._lock = threading.RLock()  # the student's threads print, too

    def connect(self, connection: Connection) -> None:
        """This process talks to the grader on this connection from now on."""
        self.connection = connection
        self._process = os.getpid()

    def serve(self) -> None:
        """Answer until the other side is gone."""
        replies = {"files": self._write_files, "run": self._run, "defines": self._defines, "ask": self.ask}
        while True:
            self.clock.off()
            try:
                with self._talking():
                    ((kind, body),) = self.connection.receive().items()
            except Closed:
                return
            try:
                for reply in replies[kind](body):
                    self.send(reply)
            except OutOfTime:  # rang just outside what it was meant to interrupt
                self.send({"late": kind})

    def send(self, message: dict) -> None:
        """Send one message as a whole, whatever clock rings meanwhile."""
        with self._talking():
            try:
                self.connection.send(message)
            except TooLong:
                self.connection.send(_without_values(message) if "answer" in message else LEFT_OUT)

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        """The connection for one thread, without an interrupt. A fork that the student made has no part in it."""
        if os.getpid() != self._process:
            os._exit(0)
        with self._lock:
            talked, self.clock.talking = self.clock.talking, True
            try:
                yield
            finally:
                self.clock.talking = talked

    # ------------------------------------------------------------ files

    def _write_files(self, files: list[list[str]]) -> Iterator[dict]:
        """Put the submission's files, each [relative path, content as base64], into the current folder."""
        for name, content in files:
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        yield {"written": len(files)}

    # ------------------------------------------------------------ cells

    def _run(self, body: dict) -> Iterator[dict]:
        sentence = f"this cell took longer than {body['seconds']:g} s and was stopped"
        self.recorder.begin()
        failed: BaseException | None = None
        try:
            with self.clock.limit(body["seconds"], CellOutOfTime, sentence):
                result = self.shell.run_cell(body["source"], store_history=True)
            failed = result.error_before_exec or result.error_in_exec
        except CellOutOfTime as error:  # rang while IPython itself was at work
            failed = error
            self.recorder.output(
                {
                    "output_type": "error",
                    "ename": type(error).__name__,
                    "evalue": str(error),
                    "traceback": error._render_traceback_(),
                }
            )
        self.recorder.end()
        state = "time-out" if self.clock.rang else "error" if failed is not None else "ok"
        yield {"ran": {"state": state, "count": self.shell.execution_count - 1}}

    def _defines(self, name: str) -> Iterator[dict]:
        yield {"defined": name in self.shell.user_ns}

    # ------------------------------------------------------------ questions

    def ask(self, body: dict) -> Iterator[dict]:
        """Make the calls of some questions; a reply for each, until one takes too long."""
        for number, asked in enumerate(body["questions"], body["id"]):
            self.asked = number
            answers = self._in_time(body["name"], _question(asked), tuple(body["parameters"]))
            self.asked = 0
            yield {"answer": {"id": number, "answers": [_packed(answer) for answer in answers]}}
            if is_unanswered(answers):
                return

    def _in_time(self, name: str, question: Question, parameters: tuple[str, ...]) -> list[Answer]:
        seconds = question.seconds * max(1, len(question.calls))
        try:
            with self.clock.limit(seconds, OutOfTime, ""):
                return self._answers(name, question, parameters)
        except OutOfTime:
            failure = Failure("time-out", f"no answer after {question.seconds:g} s")
            return [Answer(failure=failure)] * len(question.calls)

    def _answers(self, name: str, question: Question, parameters: tuple[str, ...]) -> list[Answer]:
        if name not in self.shell.user_ns:
            failure = Failure("missing", f"there is no function {name}")
        elif not callable(self.shell.user_ns[name]):
            kind = type(self.shell.user_ns[name]).__name__
            failure = Failure("missing", f"{name} is no function but a value of type {kind}")
        else:
            # the clock above interrupts by processor time, so the answer needs no limit of its own
            return answer_question(self.shell.user_ns[name], question, self._remote, parameters)
        return [Answer(failure=failure)] * len(question.calls)

    def _remote(self, name: str) -> Callable:
        """The function that stays with the grader, as something to call here."""
        asked = self.asked
        if not name.startswith(HANDLE):
            raise LookupError(f"{name} is not at hand")

        def function(*args: Any, **kwargs: Any) -> Any:
            if self.asked != asked:
                raise RuntimeError("this function belonged to an earlier question and is gone")
            message = {"call": {"id": asked, "handle": name, "args": encode(args), "kwargs": encode(kwargs)}}
            with self._talking():
                self.connection.send(message)
                ((kind, body),) = self.connection.receive().items()
            if kind == "value":
                return decode(body)
            raise _error(*body)

        return function


def _without_values(message: dict) -> dict:
    """The message with failures in the place of answers that are too long."""
    answer = message["answer"]
    failure = _packed(Answer(failure=Failure("malformed", "the answer is too large")))
    return {"answer": {"id": answer["id"], "answers": [failure] * len(answer["answers"])}}


def _question(asked: dict) -> Question:
    same = _Same(asked["identities"])
    calls = tuple(
        Call(same.arrays(decode(call["args"], True)), same.arrays(decode(call["kwargs"], True)))
        for call in asked["calls"]
    )
    return Question(calls, asked["same_arrays"], asked["budget"], asked["seconds"])


class _Same:
    """Makes arrays that were one array at the grader's one array here.

    identities : a number for each array, in the order in which they are met.
    """

    def __init__(self, identities: list[int]):
        self._numbers = iter(identities)
        self._first: dict[int, np.ndarray] = {}

    def arrays(self, value: Any) -> Any:
        """The value with the first array of each identity in the place of the later ones."""
        if isinstance(value, np.ndarray):
            return self._first.setdefault(next(self._numbers), value)
        if isinstance(value, list | tuple):
            return type(value)(self.arrays(item) for item in value)
        if isinstance(value, dict):
            return {key: self.arrays(item) for key, item in value.items()}
        return value


def _packed(answer: Answer) -> dict:
    failure = answer.failure
    return {
        "value": tree_of(answer.value),
        "failure": [failure.kind, failure.message, failure.error, failure.line] if failure else None,
        "changed": list(answer.changed),
        "printed": answer.printed,
        "seconds": answer.seconds,
        "calls": tree_of([list(received) for received in answer.calls]),
    }


def _error(name: str, text: str) -> Exception:
    """The exception that a function raised at the grader's."""
    cls = getattr(builtins, name, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        try:
            return cls(text)
        except TypeError:  # some need more than a text
            pass
    return RuntimeError(text)
