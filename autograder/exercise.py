"""The words an exercise is declared with.

One Exercise says everything about one graded function: what it is for, the reference, the worked
value that the student sees, the properties that must hold with their points, the mistakes that
have a name, right answers written differently, and hints. All else is derived from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from course.compare import Tolerance
from course.marking import Property
from course.questions import Call, Question, View, ask
from course.views import with_inputs

POINTS = {"easy": 2, "medium": 4, "hard": 6, "demanding": 8}
Cases = Callable[[np.random.Generator], Iterable[Question]]


@dataclass(frozen=True)
class Declared:
    """A property as declared: what must hold, and where its cases come from.

    judge_only : its cases need functions of the judge, so a student's bundle cannot ask them.
    """

    property: Property
    cases: Cases
    view: View | None = None
    judge_only: bool = False


@dataclass(frozen=True)
class Mistake:
    """A wrong version that students write, and the sentence that tells them the cause.

    id    : stable for ever, it is counted over years; two mistakes at once are "first+second".
    noisy : its wrong numbers near the right ones are rounding noise, other numbers on another machine. It is known
            by where it is wrong, so it comes after the mistakes that are known by their numbers.
    """

    id: str
    cause: str
    function: Callable
    noisy: bool = False


@dataclass
class Exercise:
    """One graded function.

    number      : "2.1"; the first digit is the lesson.
    title       : the heading, in words.
    level       : "easy", "medium", "hard" or "demanding"; it decides the points.
    difficulty  : 1 to 5, as shown to the student.
    minutes     : time an average student needs.
    core        : False for a stretch exercise.
    why         : one sentence on why it matters.
    budget      : the size of a good answer, such as "Four lines are enough."
    hints       : a question, a plan in shapes, pseudocode.
    view        : how to look at answers where many are right.
    builds_on   : earlier functions of the student that the answer may call.
    """

    number: str
    title: str
    level: str
    difficulty: int
    minutes: int
    core: bool
    why: str
    budget: str
    hints: tuple[str, str, str]
    view: View = View()
    builds_on: tuple[str, ...] = ()
    reference_function: Callable | None = None
    properties: list[Declared] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    variants: list[Callable] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the function that the student writes."""
        return self.reference_function.__name__

    @property
    def points(self) -> int:
        return POINTS[self.level]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.reference_function).parameters)

    # ------------------------------------------------------------ decorators

    def reference(self, function: Callable) -> Callable:
        """The right answer. Its signature and docstring are what the student sees."""
        self.reference_function = function
        return function

    def worked(
        self, name: str, points: float, *, decimals: int | None = None, view: View | None = None
    ) -> Callable:
        """Public cases with numbers that the lesson prints to `decimals` places; they count only with fresh values.

        Decorates a function without arguments that yields the questions.
        """
        tolerance = Tolerance() if decimals is None else Tolerance(0.5000001 * 10.0**-decimals)

        def declare(cases: Callable[[], Iterable[Question]]) -> Callable:
            self._add(Property(name, points, True, False, tolerance), lambda rng: cases(), view, False)
            return cases

        return declare

    def must(
        self,
        name: str,
        points: float,
        *,
        needs_values: bool = False,
        chaotic: bool = False,
        tolerance: float = 1e-9,
        relative: bool = False,
        view: View | None = None,
        judge_only: bool = False,
    ) -> Callable[[Cases], Cases]:
        """A property that must hold on cases drawn fresh for each grading, smallest first."""
        declared = Property(name, points, needs_values, chaotic, Tolerance(tolerance, relative))

        def declare(cases: Cases) -> Cases:
            self._add(declared, cases, view, judge_only)
            return cases

        return declare

    def leaves_inputs_alone(self, points: float, cases: Cases) -> None:
        """Each case is asked twice on the same arrays: the second answer must be the first, the arrays untouched."""

        def twice(rng: np.random.Generator) -> Iterable[Question]:
            for question in cases(rng):
                yield Question(question.calls * 2, True, question.budget, question.seconds, question.about)

        name = "leaves its inputs unchanged"
        self._add(Property(name, points, needs_values=True), twice, View(with_inputs), False)

    def mistake(
        self, id: str, cause: str, function: Callable | None = None, *, noisy: bool = False
    ) -> Callable:
        """A wrong version with a name. Use as a decorator, or pass the function."""

        def declare(wrong: Callable) -> Callable:
            self.mistakes.append(Mistake(id, cause, wrong, noisy))
            return wrong

        return declare(function) if function else declare

    def pair(self, first: str, second: str, function: Callable) -> None:
        """Two named mistakes at once; the cause is both sentences."""
        causes = {mistake.id: mistake.cause for mistake in self.mistakes}
        self.mistake(f"{first}+{second}", f"Two things. {causes[first]} {causes[second]}", function)

    def variant(self, function: Callable) -> Callable:
        """Another right answer; it must score full for any seed."""
        self.variants.append(function)
        return function

    def _add(self, declared: Property, cases: Cases, view: View | None, judge_only: bool) -> None:
        self.properties.append(Declared(declared, cases, view, judge_only))


def steps(*calls: Call, **options: Any) -> Question:
    """Several calls as one question, such as two calls that share a random generator."""
    return Question(tuple(calls), **options)


__all__ = ["Call", "Exercise", "Question", "View", "ask", "steps"]
