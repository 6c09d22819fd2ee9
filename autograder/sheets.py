"""Draw a sheet of questions for one exercise from a seed, and let the reference answer it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from autograder.exercise import Exercise, Mistake
from course.answering import answer_question
from course.compare import difference
from course.marking import NEAR, NOISE, Item, Sheet, tolerance_of, viewed
from course.questions import Failure, Raises

PUBLIC_SEED = 0


class Drawn:
    """A sheet drawn from a seed, with what the reference answers and, when asked for, what each mistake answers."""

    def __init__(self, exercise: Exercise, seed: int):
        self.exercise = exercise
        self.seed = seed

    @cached_property
    def sheet(self) -> Sheet:
        """The questions with the reference's answers."""
        exercise = self.exercise
        items = []
        for declared in exercise.properties:
            view = declared.view or exercise.view
            for question in declared.cases(_rng(self.seed, exercise.name, declared.property.name)):
                expected = self._view_of(exercise.reference_function, question, view)
                if isinstance(expected, Failure):
                    if expected.kind != "exception":
                        raise AssertionError(f"{exercise.name}: the reference fails: {expected.message}")
                    expected = Raises(expected.error.split(" < ")[0])
                items.append(Item(declared.property.name, question, expected, view))
        properties = tuple(declared.property for declared in exercise.properties)
        causes = {mistake.id: mistake.cause for mistake in exercise.mistakes}
        return Sheet(exercise.name, exercise.parameters, properties, tuple(items), causes)

    @cached_property
    def wrong(self) -> dict[str, Iterable[Any]]:
        """Mistake id -> its view of every item."""
        return {mistake.id: self._views_of_mistake(mistake) for mistake in self.exercise.mistakes}

    def _views_of_mistake(self, mistake: Mistake) -> Iterable[Any]:
        views = self.views_of(mistake.function)
        if not mistake.noisy:
            return views
        return _Once(self._without_noise(item, view) for item, view in zip(self.sheet.items, views))

    def _without_noise(self, item: Item, view: Any) -> Any:
        """NOISE in the place of a view that is wrong and yet near the right one."""
        exactly = difference(view, item.expected, tolerance_of(self.sheet, item)) is None
        return view if exactly or difference(view, item.expected, NEAR) else NOISE

    def views_of(self, function: Callable) -> Iterable[Any]:
        """What a function that runs here gives on every item of the sheet, each computed when it is first looked at."""
        return _Once(self._view_of(function, item.question, item.view) for item in self.sheet.items)

    def _view_of(self, function: Callable, question: Any, view: Any) -> Any:
        answers = answer_question(function, question, own_function, self.exercise.parameters)
        return viewed(view.look, answers, question, {name: own_function(name) for name in view.own})


def own_function(name: str) -> Callable:
    """What Own(name) stands for on the judge's side: the reference of that exercise."""
    from autograder.exercises import find

    return find(name).reference_function


def _rng(seed: int, *names: str) -> np.random.Generator:
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


class _Once:
    """The values of an iterator, for any number of passes."""

    def __init__(self, values: Iterator[Any]):
        self._coming = values
        self._seen: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while place < len(self._seen) or self._see_another():
            yield self._seen[place]
            place += 1

    def _see_another(self) -> bool:
        for value in self._coming:
            self._seen.append(value)
            return True
        return False


__all__ = ["PUBLIC_SEED", "Drawn", "own_function"]
