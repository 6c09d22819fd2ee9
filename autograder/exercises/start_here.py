"""Lesson 0: start here."""

from __future__ import annotations

import numpy as np

from autograder.exercise import Call, Exercise, ask, steps

TOKEN_MEANS = Exercise(
    number="0.1",
    title="One mean per token",
    level="easy",
    difficulty=1,
    minutes=4,
    core=True,
    why="Almost every function of this course works on the last axis and leaves all others alone. This is the habit.",
    budget="One line is enough.",
    hints=(
        "One token is one row. Which axis runs along the numbers of a token, however many axes stand before it?",
        "x is (..., d_model). The means are (..., 1): the last axis is still there, with one number in it.",
        "average over the last axis (axis -1), and tell NumPy to keep that axis",
    ),
)


@TOKEN_MEANS.reference
def token_means(x: np.ndarray) -> np.ndarray:
    """Mean of every token's numbers, kept as a last axis of length 1.

    x : (..., d_model)   returns : (..., 1)

    >>> token_means(np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]]))
    array([[2.],
           [6.]])
    """
    return x.mean(axis=-1, keepdims=True)


@TOKEN_MEANS.worked("two tokens of three numbers", 0.25)
def _():
    yield ask(np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]]))


@TOKEN_MEANS.must("right for one token and for a sentence", 0.75)
def sentences(rng):
    yield ask(rng.normal(size=4))
    yield ask(rng.normal(size=(2, 3)))
    yield ask(rng.normal(size=(3, 3)))


@TOKEN_MEANS.must("right for a batch, and for more leading axes", 0.5)
def _(rng):
    yield ask(rng.normal(size=(2, 3, 4)))
    yield ask(x=rng.normal(size=(2, 1, 3, 2)))


@TOKEN_MEANS.must("whole numbers work like floats", 0.25, needs_values=True, chaotic=True)
def _(rng):
    x = rng.integers(-9, 10, size=(3, 4))
    x[:, 0] += (x.sum(axis=1) % 4 == 0).astype(int)  # no mean is whole
    yield ask(x)
    yield steps(Call((x,)), Call((x.astype(float),)))


TOKEN_MEANS.leaves_inputs_alone(0.25, sentences)


def wrong_means(axis=-1, keepdims=True, function=np.mean):
    return lambda x: function(x, axis=axis, keepdims=keepdims)


def first_axis(x):
    return 0 if np.ndim(x) < 2 else np.ndim(x) - 2


TOKEN_MEANS.mistake(
    "axis-not-kept",
    "The means are right, but the last axis is gone: the answer is (...), not (..., 1). Taking it from x would then fail, or subtract the wrong numbers.",
    wrong_means(keepdims=False),
)
TOKEN_MEANS.mistake(
    "axis-0",
    "You average along the first axis: one mean per feature, over all tokens. One per token is asked for.",
    wrong_means(axis=0),
)
TOKEN_MEANS.mistake(
    "axis-0-not-kept",
    "You average along the first axis: one mean per feature, over all tokens. One per token is asked for, kept as a last axis.",
    wrong_means(axis=0, keepdims=False),
)
TOKEN_MEANS.mistake(
    "axis-1",
    "You average along axis 1. For a sentence that is the last axis, for a batch it is the tokens. Count from the end.",
    wrong_means(axis=1),
)
TOKEN_MEANS.mistake(
    "axis-1-not-kept",
    "You average along axis 1, which is not the last one in a batch, and the axis is gone afterwards. Count from the end, and keep it.",
    wrong_means(axis=1, keepdims=False),
)
TOKEN_MEANS.mistake(
    "axis-2",
    "You average along axis 2, which exists in a batch only. Count from the end, and it works for any number of axes.",
    wrong_means(axis=2),
)
TOKEN_MEANS.mistake(
    "axis-of-tokens",
    "You average over the tokens of a sentence: one mean per feature. One per token is asked for.",
    lambda x: np.mean(x, axis=first_axis(x), keepdims=True),
)
TOKEN_MEANS.mistake(
    "one-mean-for-all",
    "You return one mean over all numbers. Every token has its own.",
    wrong_means(axis=None, keepdims=False),
)
TOKEN_MEANS.mistake(
    "one-mean-for-all-kept",
    "You return one mean over all numbers, with every axis kept. Every token has its own mean.",
    wrong_means(axis=None),
)
TOKEN_MEANS.mistake(
    "sum", "You return sums. A mean divides by how many numbers there are.", wrong_means(function=np.sum)
)
TOKEN_MEANS.mistake(
    "median",
    "You return the middle number of each token. The mean is the sum divided by the count.",
    wrong_means(function=np.median),
)
TOKEN_MEANS.mistake(
    "divided-by-d-1",
    "You divide by one less than d_model.",
    lambda x: x.sum(axis=-1, keepdims=True) / max(x.shape[-1] - 1, 1),
)
TOKEN_MEANS.mistake(
    "divided-by-tokens",
    "You divide by the length of the first axis. A token has d_model numbers, which is the length of the last one.",
    lambda x: x.sum(axis=-1, keepdims=True) / len(x),
)
TOKEN_MEANS.mistake(
    "whole-number-division",
    "You divide with // and lose the decimals.",
    lambda x: x.sum(axis=-1, keepdims=True) // x.shape[-1],
)
TOKEN_MEANS.mistake(
    "spread-over-the-token",
    "You repeat the mean for every feature. One number per token is enough: NumPy repeats it when it is needed.",
    lambda x: np.zeros(x.shape) + x.mean(axis=-1, keepdims=True),
)
TOKEN_MEANS.mistake(
    "subtracted",
    "You return x with the mean taken away. The means themselves are asked for.",
    lambda x: x - x.mean(axis=-1, keepdims=True),
)


@TOKEN_MEANS.mistake(
    "integer-result", "For whole numbers your result holds whole numbers too, and the decimals are lost."
)
def _(x):
    out = np.zeros_like(x[..., :1])
    out[...] = x.mean(axis=-1, keepdims=True)
    return out


@TOKEN_MEANS.mistake(
    "changes-input",
    "You compute inside x itself, so the caller's numbers are gone afterwards. Make a new array.",
)
def _(x):
    x[..., 0] = x.mean(axis=-1)
    return x[..., :1]


TOKEN_MEANS.pair("sum", "axis-not-kept", wrong_means(keepdims=False, function=np.sum))
TOKEN_MEANS.pair("sum", "axis-0", wrong_means(axis=0, function=np.sum))
TOKEN_MEANS.pair("sum", "one-mean-for-all", wrong_means(axis=None, keepdims=False, function=np.sum))


@TOKEN_MEANS.variant
def _(x):
    """The mean loses the axis, None puts a new one in its place."""
    return np.mean(x, -1)[..., None]


@TOKEN_MEANS.variant
def _(x):
    """A matrix product with a column of equal shares: the row convention at work."""
    d_model = x.shape[-1]
    return x @ np.full((d_model, 1), 1 / d_model)


@TOKEN_MEANS.variant
def _(x):
    """One token after the other."""
    out = np.zeros((*x.shape[:-1], 1))
    for token in np.ndindex(x.shape[:-1]):
        print(token)
        out[token] = sum(x[token]) / len(x[token])
    return out


@TOKEN_MEANS.variant
def _(x):
    """einsum, with a warning on the way."""
    np.log(np.zeros(1))
    return np.einsum("...i->...", x)[..., np.newaxis] / x.shape[-1]
