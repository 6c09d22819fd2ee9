"""Compare an answer with what was expected: the one place that knows tolerances.

|answer - expected| <= tolerance * max(1, |expected|), entry by entry; with `relative`, the size of
the whole array takes the place of the 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from course.questions import Failure, Raises

TOLERANCE = 1e-9
SINGLE_PRECISION = 1e-5  # what float32 arithmetic may lose on inputs of order one
SINGLE_INSIDE = 2e-6  # closer than this everywhere: float32 somewhere inside, or rounding


@dataclass(frozen=True)
class Tolerance:
    """How close is close enough for one property."""

    value: float = TOLERANCE
    relative: bool = False

    def allowed(self, expected: np.ndarray) -> np.ndarray:
        size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
        floor = (size.max() if size.size else 0.0) if self.relative else 1.0
        return self.value * np.maximum(floor, size)


@dataclass(frozen=True)
class Difference:
    """Where and how an answer differs first.

    kind   : "failure", "no failure", "type", "length", "keys", "shape" or "value".
    path   : where inside nested answers, in words ("" for the answer itself).
    index  : the first entry that differs, for arrays.
    single : the entries agree as closely as float32 arithmetic allows.
    """

    kind: str
    path: str = ""
    given: Any = None
    expected: Any = None
    index: tuple[int, ...] | None = None
    single: bool = False


def difference(
    given: Any, expected: Any, tolerance: Tolerance = Tolerance(), path: str = ""
) -> Difference | None:
    """The first difference between two answers, or None where they agree."""
    if isinstance(expected, Raises | Failure) or isinstance(given, Failure):
        return _failure_difference(given, expected, path)
    if isinstance(expected, str) or expected is None:
        return None if _same_plain(given, expected) else Difference("value", path, given, expected)
    if isinstance(expected, Mapping):
        return _mapping_difference(given, expected, tolerance, path)
    if isinstance(expected, tuple | list):
        return _sequence_difference(given, expected, tolerance, path)
    return _array_difference(given, expected, tolerance, path)


def _failure_difference(given: Any, expected: Any, path: str) -> Difference | None:
    if isinstance(expected, Raises):
        raised = isinstance(given, Failure) and expected.error in given.error.split(" < ")
        return None if raised else Difference("no failure", path, given, expected)
    if isinstance(expected, Failure):
        return None if isinstance(given, Failure) else Difference("no failure", path, given, expected)
    return Difference("failure", path, given, expected)


def _same_plain(given: Any, expected: Any) -> bool:
    return given is None if expected is None else isinstance(given, str) and given == expected


def _mapping_difference(given: Any, expected: Mapping, tolerance: Tolerance, path: str) -> Difference | None:
    if not isinstance(given, Mapping):
        return Difference("type", path, given, expected)
    if set(given) != set(expected):
        return Difference("keys", path, given, expected)
    parts = (difference(given[k], expected[k], tolerance, f"{path}[{k!r}]") for k in expected)
    return _worst_first(parts)


def _sequence_difference(
    given: Any, expected: tuple | list, tolerance: Tolerance, path: str
) -> Difference | None:
    if isinstance(given, np.ndarray) and given.ndim:
        given = list(given)
    if not isinstance(given, tuple | list):
        return Difference("type", path, given, expected)
    if len(given) != len(expected):
        return Difference("length", path, given, expected)
    parts = (difference(g, e, tolerance, f"{path}[{i}]") for i, (g, e) in enumerate(zip(given, expected)))
    return _worst_first(parts)


def _worst_first(parts) -> Difference | None:
    """The first real difference; a difference of float32 size only where there is no other."""
    found = [part for part in parts if part is not None]
    return next((part for part in found if not part.single), found[0] if found else None)


def _array_difference(given: Any, expected: Any, tolerance: Tolerance, path: str) -> Difference | None:
    wanted = np.asarray(expected)
    if not _is_numeric(given):
        return Difference("type", path, given, expected)
    got = np.asarray(given)
    if got.shape != wanted.shape:
        return Difference("shape", path, got, wanted)
    close = _close(got, wanted, tolerance)
    if close.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~close)[0])
    return Difference("value", path, got, wanted, index, _is_single(got, wanted, tolerance))


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    if isinstance(value, Number):
        return not isinstance(value, int) or abs(value) < 2**1023  # a larger one is no float
    # a list of numbers where an array is due: the numbers count, not the container
    if isinstance(value, list | tuple):
        try:
            return np.asarray(value).dtype.kind in "biufc"
        except (ValueError, TypeError):
            return False
    return False


def _close(got: np.ndarray, wanted: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    kind = complex if "c" in (got.dtype.kind, wanted.dtype.kind) else float
    a, b = got.astype(kind), wanted.astype(kind)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= tolerance.allowed(b)
    finite = np.isfinite(a) & np.isfinite(b)
    return np.where(finite, near, (a == b) | (np.isnan(a) & np.isnan(b)))


def _is_single(got: np.ndarray, wanted: np.ndarray, tolerance: Tolerance) -> bool:
    if wanted.dtype.kind != "f" or got.dtype.kind != "f":
        return False
    loosest = Tolerance(max(SINGLE_PRECISION, tolerance.value), tolerance.relative)
    inside = Tolerance(max(SINGLE_INSIDE, tolerance.value), tolerance.relative)
    with np.errstate(all="ignore"):
        stored_single = got.dtype.itemsize < 8 or np.array_equal(got, got.astype(np.float32).astype(float))
    return bool(_close(got, wanted, loosest if stored_single else inside).all())
