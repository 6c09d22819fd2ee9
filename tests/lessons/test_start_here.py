"""The numbers that lesson 0 prints, and what its quizzes claim about NumPy."""

import numpy as np
import pytest

from autograder.exercises.start_here import token_means
from tests.lessons import says, text_of

TEXT = text_of("00_start_here")


def tells(fragment):
    assert says(TEXT, fragment), fragment


def test_the_two_means():
    x = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    tells(
        "The sums are {:.0f} and {:.0f}, so the means are {:.0f} and {:.0f}.".format(
            *x.sum(axis=1), *token_means(x)[:, 0]
        )
    )
    assert (x - token_means(x)).mean(axis=1).tolist() == [0, 0]


def test_the_mixture_by_hand():
    mixed = 0.75 * np.array([1, 0]) + 0.25 * np.array([0, 2])
    tells(f"= ({mixed[0]:.2f}, {mixed[1]:.1f})")


def test_the_shares_of_the_picture_add_up():
    shares = [0.60, 0.12, 0.04, 0.18, 0.06]
    tells("shares = [0.60, 0.12, 0.04, 0.18, 0.06]")
    tells("cat 0.60, it 0.18, sat 0.12, was 0.06, because 0.04")
    assert sum(shares) == pytest.approx(1)


def test_what_the_self_test_says_about_shapes():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert x.mean(axis=-1).shape == (2, 3)
    square = np.arange(9.0).reshape(3, 3)
    means = square.mean(axis=-1)
    assert np.array_equal((square - means)[:, 1], square[:, 1] - means[1])
    with pytest.raises(ValueError):
        x[0, :2, :3] - x[0, :2, :3].mean(axis=-1)


def test_what_the_self_test_says_about_changes():
    a = np.zeros(3)
    b = a
    b += 1
    assert a.tolist() == [1, 1, 1]
    assert pytest.approx(0.06, abs=2e-4) == (3.01**2 - 3**2)
