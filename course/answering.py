"""Call a student's function and say what happened, in values that may travel.

Used wherever a student's function runs: in the grader's child process, in the learner's own kernel,
and for the references on the judge's side. Nothing that the function does (raise, print, warn,
plot, change its inputs, return something odd) escapes: it ends in an Answer.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course import given
from course.questions import Answer, Call, Failure, Given, Own, Question, Rng
from course.wire import Malformed, canonical

PRINTED = 2000  # characters of output that are kept


class OutOfTime(BaseException):
    """The answer took too long. Not an Exception, so that `except Exception` does not swallow it."""


def answer_question(
    function: Callable,
    question: Question,
    own: Callable[[str], Callable],
    parameters: tuple[str, ...] = (),
    limited: bool = False,
) -> list[Answer]:
    """Make the calls of a question, in order; after a time-out the rest is not tried.

    own        : finds the function that an Own stands for; may raise LookupError.
    parameters : names for the positional arguments, to say which one was changed.
    limited    : interrupt a call that takes longer than the question allows.
    """
    room = _Room(question, own)
    answers: list[Answer] = []
    for call in question.calls:
        if answers and answers[-1].failure and answers[-1].failure.kind == "time-out":
            answers.append(answers[-1])
            continue
        answers.append(_answer_call(function, call, room, parameters, question.seconds if limited else None))
    return answers


class _Room:
    """What the calls of one question share: arrays, generators, and the record of function calls."""

    def __init__(self, question: Question, own: Callable[[str], Callable]):
        self.question = question
        self.own = own
        self.generators: dict[Rng, np.random.Generator] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.calls_left = question.budget

    def enter(self, value: Any, record: list) -> Any:
        """The value as the function gets it: fresh copies, real generators, counted functions."""
        if isinstance(value, np.ndarray):
            if not self.question.same_arrays:
                return value.copy()
            return self.arrays.setdefault(id(value), value.copy())
        if isinstance(value, Rng):
            return self.generators.setdefault(value, np.random.default_rng(value.seed))
        if isinstance(value, Own | Given) or callable(value):
            return self.counted(resolved(value, self.own), record)
        if isinstance(value, tuple):
            return tuple(self.enter(item, record) for item in value)
        if isinstance(value, list):
            return [self.enter(item, record) for item in value]
        if isinstance(value, dict):
            return {key: self.enter(item, record) for key, item in value.items()}
        return value

    def counted(self, function: Callable, record: list) -> Callable:
        received: list[tuple] = []
        record.append(received)

        def counted_function(*args: Any, **kwargs: Any) -> Any:
            if self.calls_left <= 0:
                raise RuntimeError(f"a function was called more than {self.question.budget} times")
            self.calls_left -= 1
            received.append(tuple(canonical(arg) for arg in (*args, *kwargs.values())))
            return function(*args, **kwargs)

        return counted_function


def resolved(value: Any, own: Callable[[str], Callable]) -> Any:
    """The function that an Own or a Given stands for; anything else as it is."""
    if isinstance(value, Own):
        return own(value.name)
    if isinstance(value, Given):
        return getattr(given, value.name)(*(resolved(param, own) for param in value.params))
    return value


def _answer_call(
    function: Callable, call: Call, room: _Room, parameters: tuple[str, ...], seconds: float | None
) -> Answer:
    record: list[list[tuple]] = []
    started = time.process_time()
    try:
        args = [room.enter(value, record) for value in call.args]
        kwargs = {name: room.enter(value, record) for name, value in call.kwargs.items()}
    except LookupError as error:
        return Answer(failure=Failure("unavailable", str(error.args[0])))
    before = (_snapshot(args), _snapshot(kwargs))
    value, failure, printed = None, None, ""
    with _quiet() as output:
        try:
            with time_limit(seconds):
                value = function(*args, **kwargs)
                value = canonical(value)
        except Malformed as error:
            failure = Failure("malformed", _what_came(value, error))
        except RecursionError as error:
            failure = _exception(error, "the calls never end: a function calls itself without stopping")
        except OutOfTime:
            failure = Failure("time-out", f"no answer after {room.question.seconds:g} s")
        except BaseException as error:  # SystemExit too: nothing of the student's ends the asking
            failure = _exception(error)
        printed = output.getvalue()[:PRINTED]
    changed = _changed(before, (args, kwargs), parameters)
    calls = tuple(tuple(received) for received in record)
    return Answer(None if failure else value, failure, changed, printed, calls, time.process_time() - started)


# ---------------------------------------------------------------- what a failure says


def _exception(error: BaseException, message: str = "") -> Failure:
    if isinstance(error, NotImplementedError):
        return Failure("not attempted", "the function is still the stub", "NotImplementedError")
    names = " < ".join(cls.__name__ for cls in type(error).__mro__[:6])
    try:
        text = message or str(error)
    except BaseException:  # an exception of the student's own may fail to print
        text = ""
    return Failure("exception", text[:300], names, _student_line(error))


def _student_line(error: BaseException) -> str:
    """The innermost line of a notebook cell in the traceback, as text."""
    frames = traceback.extract_tb(error.__traceback__)
    cells = [f for f in frames if "ipykernel_" in f.filename or f.filename.startswith(("<ipython", "<cell"))]
    for frame in reversed(cells):
        line = frame.line or linecache.getline(frame.filename, frame.lineno or 0)
        if line.strip():
            return line.strip()[:160]
    return ""


def _what_came(value: Any, error: Malformed) -> str:
    kind = type(value).__name__
    return f"it returned {'an' if kind[:1] in 'aeiou' else 'a'} {kind}: {error}"[:300]


# ---------------------------------------------------------------- what happened to the inputs


def _snapshot(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, list | tuple):
        return [_snapshot(item) for item in value]
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in value.items()}
    return None


def _changed(before: tuple, after: tuple, parameters: tuple[str, ...]) -> tuple[str, ...]:
    old_args, old_kwargs = before
    new_args, new_kwargs = _snapshot(after[0]), _snapshot(after[1])
    names = [
        parameters[i] if i < len(parameters) else f"argument {i + 1}"
        for i, (old, new) in enumerate(zip(old_args, new_args))
        if old != new
    ]
    return tuple(names + [name for name in old_kwargs if old_kwargs[name] != new_kwargs[name]])


# ---------------------------------------------------------------- surroundings


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Collect prints; let warnings pass unseen."""
    output = _Bounded()
    streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = output
    try:
        with warnings.catch_warnings(action="ignore"):
            yield output
    finally:
        sys.stdout, sys.stderr = streams


class _Bounded(io.StringIO):
    """A text buffer that forgets what goes beyond a bound."""

    def write(self, text: str) -> int:
        if self.tell() < PRINTED:
            super().write(str(text)[:PRINTED])
        return len(text)


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime in the main thread after `seconds` of real time, where the system can."""
    can = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not can:
        yield
        return

    def stop(signum, frame):
        raise OutOfTime

    previous = signal.signal(signal.SIGALRM, stop)
    # again and again, for code that swallows even BaseException in a loop
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
