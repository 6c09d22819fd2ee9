"""What the judge asks: the data classes that travel between a judge and a student's function.

A Question is one or more calls of the same function. Its arguments come from a closed set:
arrays, numbers, text, None, lists, tuples and dicts of these, and four placeholders that become
something callable or random only where the student's function runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rng:
    """A NumPy Generator, sent as its seed.

    Inside one question, the same (seed, key) is the same generator, so a second call continues
    where the first one stopped. Another key with the same seed starts afresh.
    """

    seed: int
    key: str = ""


@dataclass(frozen=True)
class Given:
    """A function that `course.given` makes public, with its parameters: Given("linear", (W,)).

    In a graded run it stays with the judge like every other function; in a student's own notebook
    it runs where the student is. A parameter may be an Own or a Given.
    """

    name: str
    params: tuple = ()


@dataclass(frozen=True)
class Own:
    """An earlier function of the course: the reference when the judge asks, the student's own in a bundle."""

    name: str


@dataclass(frozen=True)
class Raises:
    """The expected outcome of a call that must raise this kind of error."""

    error: str


@dataclass(frozen=True)
class Call:
    """One call: positional and named arguments."""

    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """One case of one property: the calls to make, and what only the judge needs to know about them.

    same_arrays : the calls share their arrays, so that a change made by the first is seen by the second.
    budget      : how often the functions among the arguments may be called in all.
    seconds     : processor time that the answer may take.
    about       : facts for the view (a probe, a dropout rate); they never travel to the student.
    """

    calls: tuple[Call, ...]
    same_arrays: bool = False
    budget: int = 2000
    seconds: float = 5.0
    about: Mapping[str, Any] = field(default_factory=dict)


def ask(*args: Any, **kwargs: Any) -> Question:
    """One plain call as a question."""
    return Question((Call(args, kwargs),))


@dataclass(frozen=True)
class Failure:
    """Why a call gave no value.

    kind : "missing", "not attempted", "exception", "time-out", "malformed", "no answer" or "unavailable".
    """

    kind: str
    message: str
    error: str = ""
    line: str = ""


NO_ANSWER = ("time-out", "no answer")  # kinds of failures


@dataclass(frozen=True)
class Answer:
    """What one call gave: a value from the closed set or a failure, and what was seen on the way.

    changed : names or positions of the arguments that the call changed.
    calls   : for each function among the arguments, the arguments of every call it received.
    """

    value: Any = None
    failure: Failure | None = None
    changed: tuple[str, ...] = ()
    printed: str = ""
    calls: tuple[tuple[tuple, ...], ...] = ()
    seconds: float = 0.0


def is_unanswered(answers: Sequence[Answer]) -> bool:
    """Whether a question had no answer in time; then nothing more is asked."""
    return any(answer.failure and answer.failure.kind in NO_ANSWER for answer in answers)


def plain_view(answers: Sequence[Answer], question: Question) -> Any:
    """The values as they are: one for a single call, a list for several."""
    values = [answer.value for answer in answers]
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class View:
    """How to look at an answer where many different answers are right.

    look : called as look(answers, question, **own); what it returns is compared with what it
           returns for the reference.
    own  : earlier functions of the course that it needs, passed by name.
    """

    look: Callable[..., Any] = plain_view
    own: tuple[str, ...] = ()
