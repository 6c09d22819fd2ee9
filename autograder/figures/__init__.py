"""Numbers that the lessons' figures need before a student has written the function: computed here, shipped as data."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

_DECLARED: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {}


def figure_data(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Declare a function without arguments whose dict of arrays and numbers the course ships under its name."""
    if function.__name__ in _DECLARED:
        raise ValueError(f"two figures share the name {function.__name__}")
    _DECLARED[function.__name__] = (function.__module__.rsplit(".", 1)[-1], function)
    return function


def single(array: Any) -> np.ndarray:
    """The numbers in float32: a picture needs few digits."""
    return np.asarray(array, dtype=np.float32)


def by_lesson() -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    """Module name of a lesson -> figure name -> its function."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    lessons: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {}
    for name, (lesson, function) in sorted(_DECLARED.items()):
        lessons.setdefault(lesson, {})[name] = function
    return lessons
