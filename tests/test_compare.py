"""Tolerances: what counts as the same answer, and what the first difference is."""

import numpy as np
import pytest

from course.compare import Tolerance, difference
from course.questions import Failure, Raises

A = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (A + 5e-10, A),
        (A * 1e6 * (1 + 5e-10), A * 1e6),
        (A.tolist(), A),
        (np.int64(3), 3.0),
        (np.array(3.0), 3.0),
        ([1.0, A], (1.0, A)),
        (np.array([True, False]), np.array([True, False])),
        (np.array([1, 0]), np.array([True, False])),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf])),
        ({"a": np.int64(1), "b": 2.0}, {"a": 1, "b": 2}),
        (Failure("exception", "no", "MyError < ValueError < Exception"), Raises("ValueError")),
        ("right", "right"),
        (None, None),
    ],
)
def test_equal_answers(given, expected):
    assert difference(given, expected) is None


@pytest.mark.parametrize(
    ("given", "expected", "kind"),
    [
        (A + 5e-9, A, "value"),
        (A[:1], A, "shape"),
        (A[..., None], A, "shape"),
        (np.array([3.0]), 3.0, "shape"),
        (None, A, "type"),
        ("text", A, "type"),
        ([1.0], (1.0, 2.0), "length"),
        ({"a": 1}, {"a": 1, "b": 2}, "keys"),
        (np.where(A > 3, np.nan, A), A, "value"),
        (np.where(A > 3, np.inf, A), A, "value"),
        (A * (1 + 0.1j), A, "value"),
        (3.0, Raises("ValueError"), "no failure"),
        (Failure("exception", "no", "TypeError < Exception"), Raises("ValueError"), "no failure"),
        (Failure("time-out", "late"), A, "failure"),
        (True, "right", "value"),
        (0.0, None, "value"),
    ],
)
def test_different_answers(given, expected, kind):
    assert difference(given, expected).kind == kind


def test_the_first_entry_that_differs_is_named():
    wrong = A.copy()
    wrong[1, 0] += 1
    assert difference(wrong, A).index == (1, 0)


def test_float32_is_told_apart_from_wrong():
    expected = np.array([0.1, 0.2, 0.3])
    assert difference(expected.astype(np.float32), expected).single
    assert difference(expected.astype(np.float32).astype(float), expected).single
    assert not difference(expected + 1e-4, expected).single
    assert not difference(expected + 5e-6, expected).single


def test_a_real_difference_is_reported_before_one_of_float32_size():
    found = difference([np.float32(0.1), 2.0], [0.1, 1.0])
    assert found.path == "[1]" and not found.single


def test_relative_tolerance_follows_the_size_of_the_array():
    tiny = np.array([1e-12, 2e-12])
    assert difference(2 * tiny, tiny) is None
    assert difference(2 * tiny, tiny, Tolerance(1e-9, relative=True)) is not None
