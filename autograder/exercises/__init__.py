"""The exercises, one file per lesson, one declaration per exercise."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from autograder.exercise import Exercise


@cache
def all_exercises() -> dict[str, Exercise]:
    """Every exercise by the name of its function, in the order of their numbers."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        found += [value for value in contents if isinstance(value, Exercise)]
    found.sort(key=lambda exercise: [int(part) for part in exercise.number.split(".")])
    return {exercise.name: exercise for exercise in found}


def find(name: str) -> Exercise:
    """The exercise whose function has this name. Raises KeyError where there is none."""
    return all_exercises()[name]


def of_lesson(lesson: str) -> list[Exercise]:
    """The exercises of a lesson folder such as "02_layer_norm"."""
    return [e for e in all_exercises().values() if e.number.split(".")[0] == str(int(lesson[:2]))]
