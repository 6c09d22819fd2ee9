"""Lesson 2: layer norm vs batch norm.

The wrong versions of one exercise mostly come from one function with switches: each switch is a slip
that students make, and two switches are two slips at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autograder.exercise import Call, Exercise, Question, View, ask, steps
from course.questions import Given, Own
from course.views import exposed, parts


def only(question: Question, names: tuple[str, ...], *counted: str) -> Question:
    """The question, looked at for some parts of the answer; `names` are all of them, in order."""
    return replace(question, about={"parts": names, "only": counted})


def far_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows of four whole numbers around 1e8 whose means are whole, so that every right program is exact."""
    small = rng.integers(-9, 10, size=(n, 4))
    small[:, 0] += 20  # no constant row
    small[:, 3] -= small.sum(axis=1) % 4
    return 1e8 + small


def root(variance: np.ndarray, eps: float) -> np.ndarray:
    """The divisor of a layer norm."""
    return np.sqrt(variance + eps)


# ------------------------------------------------------------------------------------------ 2.1

LAYER_NORM = Exercise(
    number="2.1",
    title="One token, its own statistics",
    level="easy",
    difficulty=1,
    minutes=8,
    core=True,
    why="In the post-norm encoder every sub-layer ends in this function, and you will call it in lessons 5 and 6.",
    budget="Four lines are enough.",
    hints=(
        "One token is one row. Which axis of x runs along the numbers of one token, whatever stands in front of it?",
        "x is (..., d_model). Mean and variance are (..., 1): one number per token, kept as an axis so that it "
        "lines up with x again. gamma and beta are (d_model,) and meet the last axis by themselves.",
        "mean: average over the last axis, axis kept. centred: x minus mean. variance: average of centred squared "
        "over the last axis, axis kept. result: centred divided by the root of (variance plus eps), times gamma, plus beta.",
    ),
)


@LAYER_NORM.reference
def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Normalise every token by its own mean and variance, then scale and shift every feature.

    x           : (..., d_model), any number of leading axes
    gamma, beta : (d_model,)
    eps         : added to the variance, under the root
    returns     : (..., d_model)

    The variance divides by d_model. x is not changed. It is the same function in post-norm and in
    pre-norm blocks; only the place where it is called differs.

    >>> layer_norm(np.array([2.0, 0.0, -1.0, 3.0]), np.ones(4), np.zeros(4), eps=0.0).round(3)
    array([ 0.632, -0.632, -1.265,  1.265])
    """
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt(variance + eps) + beta


@LAYER_NORM.worked("the row (2, 0, -1, 3)", 0.1, decimals=3)
def _():
    yield ask(np.array([2.0, 0.0, -1.0, 3.0]), np.ones(4), np.zeros(4), eps=0.0)


@LAYER_NORM.worked("the two rows of the d_model = 4 example", 0.1, decimals=6)
def _():
    rows = np.array([[1.12, 0.42, -0.35, 0.17], [0.39, -0.15, 0.91, -0.42]])
    yield ask(rows, np.ones(4), np.zeros(4))


@LAYER_NORM.must("right values for one token, a sentence and a batch", 0.7)
def shapes(rng):
    for shape in [(3,), (4, 4), (2, 5), (2, 3, 4), (2, 2, 3, 5)]:
        d = shape[-1]
        yield ask(rng.normal(size=shape), rng.normal(size=d), rng.normal(size=d))


@LAYER_NORM.must("another eps counts, also none at all", 0.3)
def other_eps(rng):
    for eps in (1e-2, 0.0):
        yield ask(rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=3), eps=eps)
    yield ask(1e-3 * rng.normal(size=(2, 4)), rng.normal(size=4), rng.normal(size=4), eps=1e-6)


@LAYER_NORM.must("a token alone gives the same as in its batch", 0.2)
def alone(rng):
    x, gamma, beta = 3 * rng.normal(size=(2, 3, 4)) + 1, rng.normal(size=4), rng.normal(size=4)
    yield steps(Call((x[1, 2], gamma, beta)), Call((x[1:], gamma, beta)), Call((x, gamma, beta)))


@LAYER_NORM.must("rows of numbers around 100,000,000 keep their accuracy", 0.2, chaotic=True)
def far_from_zero(rng):
    yield ask(far_rows(rng, 6), rng.normal(size=4), rng.normal(size=4))


@LAYER_NORM.must("a constant row gives beta", 0.1, needs_values=True)
def constant_row(rng):
    yield ask(np.full(4, float(rng.integers(1, 9))), rng.normal(size=4), rng.normal(size=4))


@LAYER_NORM.must("integers work like floats", 0.1)
def integers(rng):
    yield ask(rng.permutation(9)[:6].reshape(2, 3), rng.integers(2, 5, size=3), rng.integers(1, 5, size=3))


@LAYER_NORM.must("arguments by name", 0.1)
def by_name(rng):
    yield ask(x=rng.normal(size=(2, 3)), gamma=rng.normal(size=3), beta=rng.normal(size=3))
    yield ask(rng.normal(size=(2, 3)), beta=rng.normal(size=3), eps=0.1, gamma=rng.normal(size=3))


LAYER_NORM.leaves_inputs_alone(0.1, shapes)


def scaled(xhat: np.ndarray, gamma: np.ndarray, beta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The last step of a layer norm."""
    return gamma * xhat + beta


def wrong_layer_norm(
    *,
    axis: int | tuple[int, ...] | None = -1,
    ddof: int = 0,
    divisor: Callable = root,
    last: Callable = scaled,
    default_eps: float = 1e-5,
    centre: bool = True,
    keepdims: bool = True,
) -> Callable:
    """A layer norm with slips. With no switch set it is right."""

    def wrong(x, gamma, beta, eps=default_eps):
        mean = x.mean(axis=axis, keepdims=keepdims)
        variance = x.var(axis=axis, keepdims=keepdims, ddof=ddof)
        centred = x - mean if centre else x
        return last(centred / divisor(variance, eps), gamma, beta, x)

    return wrong


def eps_outside(variance, eps):
    return np.sqrt(variance) + eps


def no_root(variance, eps):
    return variance + eps


def forget_beta(xhat, gamma, beta, x):
    return gamma * xhat


LAYER_NORM.mistake(
    "variance-d-1",
    "Your variance divides by d_model - 1. The norm describes exactly these d_model numbers; it does not estimate "
    "anything from a sample.",
    wrong_layer_norm(ddof=1),
)
LAYER_NORM.mistake(
    "eps-outside-root",
    "You add eps after taking the root. Look at where eps stands in the formula: it joins the variance, not the "
    "standard deviation.",
    wrong_layer_norm(divisor=eps_outside),
)
LAYER_NORM.mistake(
    "eps-on-the-deviation",
    "You take the root twice: eps is added to the standard deviation, and the root of that sum is the divisor.",
    wrong_layer_norm(divisor=lambda v, eps: np.sqrt(np.sqrt(v) + eps)),
)
LAYER_NORM.mistake(
    "no-square-root",
    "You divide by the variance. Its unit is the square of the unit of x, so the result still depends on the "
    "scale of x.",
    wrong_layer_norm(divisor=no_root),
)
LAYER_NORM.mistake(
    "all-axes",
    "All tokens share one mean and one variance. Each token must be normalised by its own numbers only.",
    wrong_layer_norm(axis=None),
)


@LAYER_NORM.mistake(
    "per-sentence",
    "The tokens of a sentence share one mean and one variance. Each token must be normalised by its own numbers only.",
)
def _(x, gamma, beta, eps=1e-5):
    axes = tuple(range(-min(2, x.ndim), 0))
    return wrong_layer_norm(axis=axes)(x, gamma, beta, eps)


LAYER_NORM.mistake(
    "per-sentence-3d-only",
    "You average over two fixed axes: the tokens of a sentence share their statistics, and inputs with fewer axes fail.",
    wrong_layer_norm(axis=(1, 2)),
)
LAYER_NORM.mistake(
    "axis-0",
    "You average along the first axis: over tokens or sentences, as batch norm does, not over the numbers of one token.",
    wrong_layer_norm(axis=0),
)
LAYER_NORM.mistake(
    "axis-1",
    "You average along axis 1. That is the last axis only if x has two axes; a single token and a batch need "
    "another count.",
    wrong_layer_norm(axis=1),
)
LAYER_NORM.mistake(
    "axis-2",
    "You average along axis 2. That is the last axis only if x has three axes; a single token and a sentence fail.",
    wrong_layer_norm(axis=2),
)
LAYER_NORM.mistake(
    "keepdims-forgotten",
    "Mean and variance lose their axis, so NumPy lines them up with the features, not with the tokens. For a square "
    "input nothing even fails.",
    wrong_layer_norm(keepdims=False),
)


@LAYER_NORM.mistake(
    "mean-of-squares",
    "You compute the variance as mean of squares minus square of mean. Around 100,000,000 both are 10^16, and their "
    "difference loses all its digits.",
)
def _(x, gamma, beta, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    variance = (x * x).mean(axis=-1, keepdims=True) - mean**2
    return gamma * (x - mean) / np.sqrt(np.maximum(variance, 0) + eps) + beta


LAYER_NORM.mistake(
    "beta-forgotten",
    "The shift is missing: nothing is added after the scaling.",
    wrong_layer_norm(last=forget_beta),
)
LAYER_NORM.mistake(
    "gamma-forgotten",
    "The scale is missing: the normalised numbers are never multiplied.",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: xhat + beta),
)
LAYER_NORM.mistake(
    "scale-and-shift-forgotten",
    "You return the normalised numbers. The learned scale and shift are not used.",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: xhat),
)
LAYER_NORM.mistake(
    "gamma-and-beta-swapped",
    "gamma and beta have changed places: one must multiply, the other must be added.",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: beta * xhat + gamma),
)
LAYER_NORM.mistake(
    "gamma-on-x",
    "You scale and shift x itself. The normalised numbers are computed, but the last line does not use them.",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: gamma * x + beta),
)


@LAYER_NORM.mistake(
    "gamma-before-norm",
    "You multiply by gamma first and normalise after. The norm then measures the scaled numbers and undoes part of the scaling.",
)
def _(x, gamma, beta, eps=1e-5):
    return wrong_layer_norm()(gamma * x, np.ones_like(gamma), beta, eps)


@LAYER_NORM.mistake(
    "gamma-before-centring",
    "gamma multiplies x before the mean is taken away. It belongs on the centred and divided numbers.",
)
def _(x, gamma, beta, eps=1e-5):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (gamma * x - mean) / np.sqrt(variance + eps) + beta


LAYER_NORM.mistake(
    "gamma-on-the-shift-too",
    "gamma multiplies beta as well. Read the formula again: what is scaled first, and what is added last?",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: gamma * (xhat + beta)),
)
LAYER_NORM.mistake(
    "beta-subtracted",
    "beta is taken away. It is added.",
    wrong_layer_norm(last=lambda xhat, gamma, beta, x: gamma * xhat - beta),
)


@LAYER_NORM.mistake(
    "changes-input",
    "You subtract the mean inside the caller's array (-= works in place). The residual path still needs the old x.",
)
def _(x, gamma, beta, eps=1e-5):
    x -= x.mean(axis=-1, keepdims=True)
    return gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) + beta


@LAYER_NORM.mistake(
    "all-in-place",
    "You compute the whole result inside the caller's array (-=, /=, *=, +=). The residual path still needs the old x.",
)
def _(x, gamma, beta, eps=1e-5):
    x -= x.mean(axis=-1, keepdims=True)
    x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x *= gamma
    x += beta
    return x


LAYER_NORM.mistake(
    "eps-fixed",
    "You always use 0.00001. The caller may pass another eps.",
    wrong_layer_norm(divisor=lambda v, eps: np.sqrt(v + 1e-5)),
)
LAYER_NORM.mistake(
    "eps-forgotten",
    "eps is not used. A constant row then divides zero by zero.",
    wrong_layer_norm(divisor=lambda v, eps: np.sqrt(v)),
)
LAYER_NORM.mistake(
    "eps-1e-6",
    "Your default eps is 0.000001. Here it is 0.00001; keep the signature as it is given.",
    wrong_layer_norm(default_eps=1e-6),
)
LAYER_NORM.mistake(
    "not-centred",
    "The mean is never taken away from the numbers that you divide.",
    wrong_layer_norm(centre=False),
)


@LAYER_NORM.mistake(
    "root-mean-square",
    "You divide by the root of the mean square and leave the mean in. That is RMSNorm, a relative of this norm.",
)
def _(x, gamma, beta, eps=1e-5):
    return gamma * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) + beta


@LAYER_NORM.mistake(
    "sum-of-squares",
    "You add the squared distances up and never divide by how many there are. The result has length 1, not variance 1.",
)
def _(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).sum(axis=-1, keepdims=True) + eps) + beta


@LAYER_NORM.mistake(
    "absolute-distances",
    "You average the absolute distances from the mean. The variance averages their squares.",
)
def _(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    return gamma * centred / (np.abs(centred).mean(axis=-1, keepdims=True) + eps) + beta


@LAYER_NORM.mistake(
    "integer-result",
    "Your result has the type of x (zeros_like, empty_like). With whole numbers in, every fraction is cut off.",
)
def _(x, gamma, beta, eps=1e-5):
    result = np.zeros_like(x)
    result[...] = wrong_layer_norm()(x, gamma, beta, eps)
    return result


for places in (2, 3, 4):
    LAYER_NORM.mistake(
        f"rounded-to-{places}",
        f"You round the result to {places} places. Rounding is for printing; later functions need the full numbers.",
        lambda x, gamma, beta, eps=1e-5, places=places: wrong_layer_norm()(x, gamma, beta, eps).round(places),
    )

LAYER_NORM.pair("variance-d-1", "eps-outside-root", wrong_layer_norm(ddof=1, divisor=eps_outside))
LAYER_NORM.pair(
    "variance-d-1", "eps-fixed", wrong_layer_norm(ddof=1, divisor=lambda v, eps: np.sqrt(v + 1e-5))
)
LAYER_NORM.pair("variance-d-1", "eps-forgotten", wrong_layer_norm(ddof=1, divisor=lambda v, eps: np.sqrt(v)))
LAYER_NORM.pair("variance-d-1", "no-square-root", wrong_layer_norm(ddof=1, divisor=no_root))
LAYER_NORM.pair("variance-d-1", "beta-forgotten", wrong_layer_norm(ddof=1, last=forget_beta))
LAYER_NORM.pair("all-axes", "variance-d-1", wrong_layer_norm(axis=None, ddof=1))
LAYER_NORM.pair("all-axes", "eps-outside-root", wrong_layer_norm(axis=None, divisor=eps_outside))
LAYER_NORM.pair("axis-0", "eps-outside-root", wrong_layer_norm(axis=0, divisor=eps_outside))
LAYER_NORM.pair("no-square-root", "beta-forgotten", wrong_layer_norm(divisor=no_root, last=forget_beta))
LAYER_NORM.pair("keepdims-forgotten", "variance-d-1", wrong_layer_norm(keepdims=False, ddof=1))
LAYER_NORM.pair("eps-outside-root", "eps-1e-6", wrong_layer_norm(divisor=eps_outside, default_eps=1e-6))
LAYER_NORM.mistake(
    "variance-d-1+eps-outside-root+eps-1e-6",
    "Three things. Your variance divides by d_model - 1, eps is added after the root, and its default is 0.000001. "
    "This version is copied a lot; its numbers are not those of the formula.",
    wrong_layer_norm(ddof=1, divisor=eps_outside, default_eps=1e-6),
)


@LAYER_NORM.variant
def _(x, gamma, beta, eps=1e-5):
    """NumPy's own mean and variance, and a new last axis where keepdims would have kept one."""
    print("normalising", np.shape(x))
    mean, variance = np.mean(x, -1), np.var(x, -1)
    return (x - mean[..., None]) / np.sqrt(variance[..., None] + eps) * gamma + beta


@LAYER_NORM.variant
def _(x, gamma, beta, eps=1e-5):
    """A loop over tokens: slower, but every line is about one row."""
    x = np.array(x, dtype=float)
    rows = x.reshape(-1, x.shape[-1])
    result = np.empty_like(rows)
    for i, row in enumerate(rows):
        centred = row - sum(row) / len(row)
        variance = sum(c * c for c in centred) / len(row)
        result[i] = gamma * centred / (variance + eps) ** 0.5 + beta
    return result.reshape(x.shape)


@LAYER_NORM.variant
def _(x, gamma, beta, eps=1e-5):
    """einsum: the sums are written as index patterns."""
    d = x.shape[-1]
    centred = x - np.einsum("...i->...", x)[..., np.newaxis] / d
    variance = np.einsum("...i,...i->...", centred, centred)[..., np.newaxis] / d
    np.log(np.zeros(1))  # a warning costs nothing
    return np.einsum("i,...i->...i", gamma, centred / np.sqrt(variance + eps)) + beta


# ------------------------------------------------------------------------------------------ 2.2

BATCH_NORM = Exercise(
    number="2.2",
    title="Two functions in one: training and use",
    level="medium",
    difficulty=3,
    minutes=14,
    core=True,
    why="You cannot say why text models use layer norm before you have seen what batch norm does twice: once in training, once in use.",
    budget="About ten lines.",
    hints=(
        "Which axes go away when you average one feature over everything there is in the batch, for (batch, d_model) "
        "and for (batch, seq, d_model)? And which of the two means normalises when training is False?",
        "Statistics are (d_model,): all axes but the last are averaged away. n is the number of rows that were "
        "averaged. y is like x. The two running arrays are (d_model,), new ones, not the old ones changed.",
        "training: mean and biased variance over all axes but the last normalise x; running mean: (1 - momentum) old "
        "plus momentum batch mean; running variance: the same with the variance times n / (n - 1), skipped when n is 1. "
        "in use: the running values normalise x and come back as they are. Always scale and shift.",
    ),
)
BATCH_PARTS = ("y", "mean", "var")


@BATCH_NORM.reference
def batch_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    training: bool,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalise every feature over the batch (training) or by the running values (in use), then scale and shift.

    x           : (batch, d_model) or (batch, seq, d_model)
    gamma, beta : (d_model,)
    mean, var   : (d_model,), the running mean and the running variance so far
    training    : True: statistics over all axes of x but the last normalise x, and the running
                  values move. False: the running values normalise x and stay as they are.
    momentum    : weight of the batch: new = (1 - momentum) * old + momentum * batch
    eps         : added to the variance, under the root
    returns     : (y, mean, var); y is like x, the other two are the running values afterwards

    The biased variance (divided by n, the number of rows averaged) normalises; the unbiased one
    (divided by n - 1) goes into the running variance. With n = 1 there is no unbiased one: the
    running variance stays. No array that was passed in is changed.

    >>> y, mean, var = batch_norm(np.array([[1.0, 2.0], [3.0, 6.0]]), np.ones(2), np.zeros(2),
    ...                           np.zeros(2), np.ones(2), True, eps=0.0)
    >>> y.tolist(), mean.round(3).tolist(), var.round(3).tolist()
    ([[-1.0, -1.0], [1.0, 1.0]], [0.2, 0.4], [1.1, 1.7])
    """
    if training:
        axes = tuple(range(x.ndim - 1))
        n = x.size // x.shape[-1]
        batch_mean, batch_var = x.mean(axis=axes), x.var(axis=axes)
        new_mean = (1 - momentum) * mean + momentum * batch_mean
        new_var = (1 - momentum) * var + momentum * batch_var * n / (n - 1) if n > 1 else var
    else:
        batch_mean, batch_var = new_mean, new_var = mean, var
    y = gamma * (x - batch_mean) / np.sqrt(batch_var + eps) + beta
    return y, new_mean, new_var


def batch_case(
    rng: np.random.Generator, shape: tuple[int, ...], training: bool, **options: float
) -> Question:
    d = shape[-1]
    x = 2 * rng.normal(size=shape) + rng.normal(size=d)
    scale_and_shift = rng.normal(size=d), rng.normal(size=d)
    running = rng.normal(size=d), rng.uniform(0.5, 2.0, size=d)
    return ask(x, *scale_and_shift, *running, training, **options)


@BATCH_NORM.worked("the rows (1, 2) and (3, 6)", 0.3, decimals=3)
def _():
    x = np.array([[1.0, 2.0], [3.0, 6.0]])
    yield ask(x, np.ones(2), np.zeros(2), np.zeros(2), np.ones(2), True, eps=0.0)


@BATCH_NORM.must("in training, y of (batch, d_model)", 0.5, view=View(parts))
def training_flat(rng):
    for shape in [(3, 2), (4, 4)]:
        yield only(batch_case(rng, shape, True), BATCH_PARTS, "y")


@BATCH_NORM.must("in training, y of (batch, seq, d_model)", 0.5, view=View(parts))
def training_sentences(rng):
    for shape in [(2, 3, 2), (3, 3, 3)]:
        yield only(batch_case(rng, shape, True), BATCH_PARTS, "y")


@BATCH_NORM.must("in training, the running values of (batch, d_model)", 0.5, view=View(parts))
def running_flat(rng):
    for shape in [(3, 2), (4, 4)]:
        yield only(batch_case(rng, shape, True), BATCH_PARTS, "mean", "var")


@BATCH_NORM.must("in training, the running values of (batch, seq, d_model)", 0.4, view=View(parts))
def running_sentences(rng):
    for shape in [(2, 3, 2), (3, 3, 3)]:
        yield only(batch_case(rng, shape, True), BATCH_PARTS, "mean", "var")


@BATCH_NORM.must("in use, y from the running values", 0.6, view=View(parts))
def in_use(rng):
    for shape in [(3, 2), (2, 3, 2)]:
        yield only(batch_case(rng, shape, False), BATCH_PARTS, "y")


@BATCH_NORM.must("in use, the running values stay", 0.2, needs_values=True, view=View(parts))
def in_use_running(rng):
    for shape in [(3, 2), (2, 3, 2)]:
        yield only(batch_case(rng, shape, False), BATCH_PARTS, "mean", "var")


@BATCH_NORM.must("in use, one row alone gives that row of the batch", 0.2)
def in_use_alone(rng):
    (call,) = batch_case(rng, (3, 2), False).calls
    yield steps(Call((call.args[0][:1], *call.args[1:])), call)


@BATCH_NORM.must("another momentum and another eps count", 0.3)
def other_options(rng):
    yield batch_case(rng, (3, 2), True, momentum=0.4, eps=0.1)
    yield batch_case(rng, (3, 2), False, momentum=0.4, eps=0.1)
    (call,) = batch_case(rng, (3, 2), True).calls
    names = ("x", "gamma", "beta", "mean", "var", "training")
    yield ask(**dict(zip(names, call.args)), eps=0.0, momentum=1.0)


@BATCH_NORM.must("a training batch of one row gives beta, and the running variance stays", 0.3)
def single_row(rng):
    yield batch_case(rng, (1, 2), True)
    yield batch_case(rng, (1, 1, 3), True)


@BATCH_NORM.must("integers work like floats", 0.1)
def batch_integers(rng):
    for training in (True, False):
        x = rng.permutation(9)[:6].reshape(3, 2)
        yield ask(x, *rng.integers(1, 5, size=(4, 2)), training)


BATCH_NORM.leaves_inputs_alone(
    0.1, lambda rng: [batch_case(rng, (3, 2), True), batch_case(rng, (2, 3, 2), False)]
)


def leading(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(x.ndim - 1))


def all_rows(x: np.ndarray) -> int:
    return x.size // x.shape[-1]


def blend(old: np.ndarray, new: np.ndarray, momentum: float) -> np.ndarray:
    return (1 - momentum) * old + momentum * new


def wrong_batch_norm(
    *,
    axes: Callable = leading,
    rows: Callable = all_rows,
    blend: Callable = blend,
    divisor: Callable = root,
    normalise_unbiased: bool = False,
    store_biased: bool = False,
    store: Callable = lambda variance: variance,
    training_uses: str = "batch",
    use_uses: str = "running",
    moves_in_use: bool = False,
    moves_in_training: bool = True,
    plain_in_use: bool = False,
    single_row: str = "stays",
    answer: Callable = lambda y, mean, var: (y, mean, var),
    options: dict | None = None,
) -> Callable:
    """A batch norm with slips. With no switch set it is right."""

    def wrong(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
        momentum = (options or {}).get("momentum", momentum)
        eps = (options or {}).get("eps", eps)
        over, n = axes(x), rows(x)
        batch_mean, biased = x.mean(axis=over), x.var(axis=over)
        unbiased = biased * n / (n - 1) if n > 1 else biased * np.nan
        stored = biased if store_biased or (n == 1 and single_row == "biased") else unbiased
        new_mean, new_var = blend(mean, batch_mean, momentum), blend(var, store(stored), momentum)
        if n == 1 and single_row == "stays" and not store_biased:
            new_var = var
        uses = {
            "batch": (batch_mean, unbiased if normalise_unbiased else biased),
            "running": (mean, var),
            "moved": (new_mean, new_var),
        }[training_uses if training else use_uses]
        y = (x - uses[0]) / divisor(uses[1], eps)
        if training or not plain_in_use:
            y = gamma * y + beta
        moves = moves_in_training if training else moves_in_use
        return answer(y, *((new_mean, new_var) if moves else (mean, var)))

    return wrong


@BATCH_NORM.mistake(
    "layer-norm-instead",
    "You average over the features of each row. That is layer norm; batch norm averages each feature over the rows.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    row_mean, row_var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    d = x.shape[-1]
    if training:
        y = gamma * (x - row_mean) / np.sqrt(row_var + eps) + beta
        return y, blend(mean, row_mean, momentum), blend(var, row_var * d / (d - 1), momentum)
    return gamma * (x - mean) / np.sqrt(var + eps) + beta, mean, var


@BATCH_NORM.mistake(
    "layer-norm-for-y",
    "The running values are right, but y is a layer norm: it is normalised along each row.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    row_mean, row_var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    y = gamma * (x - row_mean) / np.sqrt(row_var + eps) + beta
    return y, *wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)[1:]


BATCH_NORM.mistake(
    "batch-statistics-in-use",
    "With training=False you still normalise by this batch. In use the running values take the place of the batch's.",
    wrong_batch_norm(use_uses="batch"),
)
BATCH_NORM.mistake(
    "training-flag-ignored",
    "You do the same for training=True and False: batch statistics, and running values that move.",
    wrong_batch_norm(use_uses="batch", moves_in_use=True),
)
BATCH_NORM.mistake(
    "running-values-move-in-use",
    "The running values move although training is False. In use they come back as they were.",
    wrong_batch_norm(moves_in_use=True),
)
BATCH_NORM.mistake(
    "axis-0-only",
    "You average over axis 0 only. A (batch, seq, d_model) input has tokens as well: each feature has one mean over "
    "all of them.",
    wrong_batch_norm(axes=lambda x: 0, rows=len),
)
BATCH_NORM.mistake(
    "counts-sentences",
    "For the unbiased variance you count sentences. Count what was averaged: batch times seq rows.",
    wrong_batch_norm(rows=len, single_row="stays"),
)


@BATCH_NORM.mistake(
    "per-sentence",
    "Each sentence gets its own statistics over its tokens. That is instance norm; batch norm averages over the "
    "sentences as well.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    own = (x.mean(axis=-2, keepdims=True), x.var(axis=-2, keepdims=True)) if training else (mean, var)
    y = gamma * (x - own[0]) / np.sqrt(own[1] + eps) + beta
    return y, *wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)[1:]


BATCH_NORM.mistake(
    "one-mean-for-all",
    "All features share one mean and one variance. Every feature needs its own.",
    wrong_batch_norm(axes=lambda x: None),
)
BATCH_NORM.mistake(
    "normalises-unbiased",
    "You normalise by the variance that divides by n - 1. That one goes into the running variance only.",
    wrong_batch_norm(normalise_unbiased=True, single_row="stays"),
)
BATCH_NORM.mistake(
    "running-variance-biased",
    "The variance that goes into the running value divides by n. It should be the unbiased one.",
    wrong_batch_norm(store_biased=True),
)
BATCH_NORM.mistake(
    "training-uses-running-values",
    "In training you normalise by the running values. There the batch's own mean and variance count.",
    wrong_batch_norm(training_uses="running"),
)
BATCH_NORM.mistake(
    "normalises-by-the-new-running-values",
    "In training you update the running values first and normalise by them. The batch's own mean and variance should "
    "normalise.",
    wrong_batch_norm(training_uses="moved"),
)
BATCH_NORM.mistake(
    "running-values-never-move",
    "The running values come back unchanged from training. Nothing is learned for later use.",
    wrong_batch_norm(moves_in_training=False),
)
BATCH_NORM.mistake(
    "momentum-on-the-old-value",
    "momentum weighs the old running value. Here it weighs the batch: with 0.1 the running value moves a tenth of "
    "the way.",
    wrong_batch_norm(blend=lambda old, new, m: m * old + (1 - m) * new),
)
BATCH_NORM.mistake(
    "running-values-replaced",
    "The running values become those of this batch. momentum is not used.",
    wrong_batch_norm(blend=lambda old, new, m: new),
)
BATCH_NORM.mistake(
    "momentum-added-on-top",
    "You add momentum times the batch to the whole old value. The old value must shrink first.",
    wrong_batch_norm(blend=lambda old, new, m: old + m * new),
)
BATCH_NORM.mistake(
    "momentum-fixed",
    "You always use 0.1. The caller may pass another momentum.",
    wrong_batch_norm(options={"momentum": 0.1}),
)
BATCH_NORM.mistake(
    "eps-fixed",
    "You always use 0.00001. The caller may pass another eps.",
    wrong_batch_norm(options={"eps": 1e-5}),
)
BATCH_NORM.mistake(
    "eps-outside-root",
    "You add eps after taking the root. It joins the variance, under the root.",
    wrong_batch_norm(divisor=eps_outside),
)
BATCH_NORM.mistake(
    "no-square-root",
    "You divide by the variance. The root is missing.",
    wrong_batch_norm(divisor=no_root),
)
BATCH_NORM.mistake(
    "running-deviation",
    "You keep a running standard deviation. The array is a running variance: no root before it is stored.",
    wrong_batch_norm(store=np.sqrt),
)
BATCH_NORM.mistake(
    "no-scale-in-use",
    "With training=False you return the normalised numbers. gamma and beta count in use as well.",
    wrong_batch_norm(plain_in_use=True),
)
BATCH_NORM.mistake(
    "single-row-nan",
    "One row has no variance that divides by n - 1: you divide zero by zero, and the running variance becomes nan.",
    wrong_batch_norm(single_row="nan"),
)
BATCH_NORM.mistake(
    "single-row-zero",
    "With one row you put a variance of zero into the running value. It should stay as it was.",
    wrong_batch_norm(single_row="biased"),
)
BATCH_NORM.mistake(
    "mean-and-variance-swapped",
    "You return y, variance, mean. The order is y, mean, variance.",
    wrong_batch_norm(answer=lambda y, mean, var: (y, var, mean)),
)
BATCH_NORM.mistake(
    "only-y-returned",
    "You return y alone. The caller also needs the two running values, as a tuple of three.",
    wrong_batch_norm(answer=lambda y, mean, var: y),
)


@BATCH_NORM.mistake(
    "running-values-in-place",
    "You change the caller's running arrays (*= or += works in place). Return new ones and leave theirs alone.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    y, *_ = wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)
    if training:
        axes, n = leading(x), all_rows(x)
        mean *= 1 - momentum
        mean += momentum * x.mean(axis=axes)
        if n > 1:
            var *= 1 - momentum
            var += momentum * x.var(axis=axes) * n / (n - 1)
    return y, mean, var


@BATCH_NORM.mistake(
    "running-values-written-over",
    "You write the new running values into the caller's arrays (mean[:] = ...). Return new ones and leave theirs alone.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    y, new_mean, new_var = wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)
    mean[:], var[:] = new_mean, new_var
    return y, mean, var


@BATCH_NORM.mistake(
    "x-in-place",
    "You normalise inside the caller's x (-= and /= work in place). Whoever still holds x finds it changed.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    centre, spread = (x.mean(axis=leading(x)), x.var(axis=leading(x))) if training else (mean, var)
    _, *running = wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)
    x -= centre
    x /= np.sqrt(spread + eps)
    x *= gamma
    x += beta
    return x, *running


@BATCH_NORM.mistake(
    "x-centred-in-place",
    "You take the mean away inside the caller's x (-= works in place). Whoever still holds x finds it changed.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    centre, spread = (x.mean(axis=leading(x)), x.var(axis=leading(x))) if training else (mean, var)
    _, *running = wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)
    x -= centre
    return gamma * x / np.sqrt(spread + eps) + beta, *running


@BATCH_NORM.mistake(
    "running-values-rounded-down",
    "You write the new running values into a copy of the old array. If that holds whole numbers, every fraction is cut off.",
)
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    y, new_mean, new_var = wrong_batch_norm()(x, gamma, beta, mean, var, training, momentum, eps)
    return y, new_mean.astype(mean.dtype), new_var.astype(var.dtype)


BATCH_NORM.pair(
    "normalises-unbiased",
    "running-variance-biased",
    wrong_batch_norm(normalise_unbiased=True, store_biased=True),
)
BATCH_NORM.pair(
    "running-variance-biased",
    "momentum-on-the-old-value",
    wrong_batch_norm(store_biased=True, blend=lambda old, new, m: m * old + (1 - m) * new),
)
BATCH_NORM.pair(
    "axis-0-only", "running-variance-biased", wrong_batch_norm(axes=lambda x: 0, rows=len, store_biased=True)
)
BATCH_NORM.pair(
    "batch-statistics-in-use",
    "running-variance-biased",
    wrong_batch_norm(use_uses="batch", store_biased=True),
)
BATCH_NORM.pair(
    "running-variance-biased", "no-scale-in-use", wrong_batch_norm(store_biased=True, plain_in_use=True)
)
BATCH_NORM.pair(
    "momentum-on-the-old-value",
    "single-row-nan",
    wrong_batch_norm(blend=lambda old, new, m: m * old + (1 - m) * new, single_row="nan"),
)
BATCH_NORM.pair(
    "normalises-unbiased", "single-row-nan", wrong_batch_norm(normalise_unbiased=True, single_row="nan")
)


@BATCH_NORM.variant
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    """The leading axes are flattened first, so that one axis is left to average over."""
    rows = np.reshape(x, (-1, np.shape(x)[-1])).astype(float)
    if not training:
        y = (rows - mean) / np.sqrt(var + eps) * gamma + beta
        return y.reshape(np.shape(x)), mean.copy(), var.copy()
    m, v = rows.mean(0), rows.var(0)
    y = (rows - m) / np.sqrt(v + eps) * gamma + beta
    new_var = var + momentum * (rows.var(0, ddof=1) - var) if len(rows) > 1 else var.copy()
    return y.reshape(np.shape(x)), mean + momentum * (m - mean), new_var


@BATCH_NORM.variant
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    """One feature after the other: a loop over the columns."""
    print("training" if training else "in use")
    y, new_mean, new_var = np.empty(x.shape), np.array(mean, dtype=float), np.array(var, dtype=float)
    for j in range(x.shape[-1]):
        column = x[..., j]
        m, v = (np.mean(column), np.var(column)) if training else (mean[j], var[j])
        y[..., j] = gamma[j] * (column - m) / np.sqrt(v + eps) + beta[j]
        if training:
            new_mean[j] = (1 - momentum) * mean[j] + momentum * m
            if column.size > 1:
                new_var[j] = (1 - momentum) * var[j] + momentum * np.var(column, ddof=1)
    return [y, new_mean, new_var]


@BATCH_NORM.variant
def _(x, gamma, beta, mean, var, training, momentum=0.1, eps=1e-5):
    """einsum for the sums; the unbiased variance comes from the sum of squares that is there anyway."""
    rows = x.reshape(-1, x.shape[-1]) * 1.0
    n = len(rows)
    centre = np.einsum("nd->d", rows) / n if training else mean
    squares = np.einsum("nd,nd->d", rows - centre, rows - centre)
    spread = squares / n if training else var
    y = np.einsum("...d,d->...d", (x - centre) / np.sqrt(spread + eps), gamma) + beta
    if training:
        mean = (1 - momentum) * mean + momentum * centre
        var = (1 - momentum) * var + momentum * squares / (n - 1) if n > 1 else var
    return y, mean, var


# ------------------------------------------------------------------------------------------ 2.3

MASKED_FEATURE_STATS = Exercise(
    number="2.3",
    title="Statistics of the real tokens only",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="A batch norm for text would need this function; that it needs one at all is half of the case against it.",
    budget="Three lines are enough.",
    hints=(
        "How many real tokens are there, and can you get hold of just these, so that whatever stands in the padding "
        "never enters a sum?",
        "x is (batch, seq, d_model), mask is (batch, seq). The real tokens alone are (number of real tokens, d_model). "
        "Mean and variance over that first axis are (d_model,).",
        "pick the tokens where the mask is True; mean over the picked tokens, feature by feature; variance: average of "
        "the squared distances from that mean, over the picked tokens; return both.",
    ),
)
STATS_PARTS = ("mean", "var")


@MASKED_FEATURE_STATS.reference
def masked_feature_stats(x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance of every feature over the real tokens of a batch.

    x       : (batch, seq, d_model); what stands at padded places is arbitrary, it may be nan
    mask    : (batch, seq), bool, True at real tokens; at least one is True
    returns : (mean, var), each (d_model,); every real token counts the same

    >>> x = np.array([[[1.0], [3.0]], [[5.0], [0.0]]])
    >>> mean, var = masked_feature_stats(x, np.array([[True, True], [True, False]]))
    >>> mean.round(3).tolist(), var.round(3).tolist()
    ([3.0], [2.667])
    """
    real = x[mask]  # (number of real tokens, d_model)
    return real.mean(axis=0), real.var(axis=0)


def padded_batch(rng: np.random.Generator, shape: tuple[int, int, int], filling: float = 0.0) -> tuple:
    """A batch whose sentences have different lengths, and its mask."""
    batch, seq, d = shape
    lengths = rng.permutation(np.linspace(1, seq, batch).round().astype(int))
    mask = np.arange(seq) < lengths[:, np.newaxis]
    if not mask.all():  # padding may stand anywhere
        mask = rng.permuted(mask, axis=1)
    x = rng.normal(size=shape) + 2 * rng.normal(size=d) + rng.normal(size=(batch, 1, 1))
    x[~mask] = filling
    return x, mask


def stats_cases(
    *shapes: tuple[int, int, int], filling: float = 0.0, counted: tuple[str, ...] = STATS_PARTS
) -> Callable:
    def cases(rng):
        for shape in shapes:
            yield only(ask(*padded_batch(rng, shape, filling)), STATS_PARTS, *counted)

    return cases


@MASKED_FEATURE_STATS.worked("two sentences, one padded token", 0.3, decimals=6)
def _():
    yield ask(np.array([[[1.0], [3.0]], [[5.0], [0.0]]]), np.array([[True, True], [True, False]]))


THREE_BATCHES = (2, 3, 1), (2, 3, 2), (3, 5, 4)
MASKED_FEATURE_STATS.must("the mean of the real tokens", 0.8, view=View(parts))(
    stats_cases(*THREE_BATCHES, counted=("mean",))
)
MASKED_FEATURE_STATS.must("the variance of the real tokens", 0.9, view=View(parts))(
    stats_cases(*THREE_BATCHES, counted=("var",))
)
MASKED_FEATURE_STATS.must("huge numbers in the padding do not matter", 0.6, view=View(parts))(
    stats_cases((2, 3, 2), filling=1e6)
)
MASKED_FEATURE_STATS.must("nan in the padding does not matter", 0.4, view=View(parts))(
    stats_cases((2, 3, 2), filling=np.nan)
)
MASKED_FEATURE_STATS.must("batch, seq and d_model may be equal", 0.4, view=View(parts))(
    stats_cases((3, 3, 3))
)


@MASKED_FEATURE_STATS.must("without padding, all tokens count", 0.1, needs_values=True)
def no_padding(rng):
    yield ask(rng.normal(size=(2, 3, 2)), np.ones((2, 3), dtype=bool))


@MASKED_FEATURE_STATS.must("integers work like floats", 0.2)
def stats_integers(rng):
    yield ask(rng.permutation(20)[:12].reshape(2, 3, 2), np.array([[True, True, False], [False, True, True]]))


MASKED_FEATURE_STATS.leaves_inputs_alone(0.3, lambda rng: [ask(*padded_batch(rng, (2, 3, 2), np.nan))])


def zeroed(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """x with zeros in the padding."""
    return np.where(mask[..., np.newaxis], x, 0.0)


def sentence_means(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.array([sentence[real].mean(axis=0) for sentence, real in zip(x, mask)])


@MASKED_FEATURE_STATS.mistake(
    "divides-by-all-places",
    "Your sums leave the padding out, but you divide by batch times seq. Divide by the number of real tokens.",
)
def _(x, mask):
    mean = zeroed(x, mask).sum(axis=(0, 1)) / mask.size
    return mean, (zeroed(x - mean, mask) ** 2).sum(axis=(0, 1)) / mask.size


@MASKED_FEATURE_STATS.mistake(
    "variance-divides-by-all-places",
    "The mean is right, but the variance divides by batch times seq. Divide by the number of real tokens.",
)
def _(x, mask):
    mean = x[mask].mean(axis=0)
    return mean, (zeroed(x - mean, mask) ** 2).sum(axis=(0, 1)) / mask.size


@MASKED_FEATURE_STATS.mistake(
    "padding-counted",
    "The mask is not used: padded places enter the mean and the variance.",
)
def _(x, mask):
    return x.mean(axis=(0, 1)), x.var(axis=(0, 1))


@MASKED_FEATURE_STATS.mistake(
    "padding-as-zero",
    "You set the padding to zero and then average over all places. The zeros count as tokens.",
)
def _(x, mask):
    return zeroed(x, mask).mean(axis=(0, 1)), zeroed(x, mask).var(axis=(0, 1))


@MASKED_FEATURE_STATS.mistake(
    "zeros-in-the-variance",
    "The mean is right, but in the variance every padded place enters as a zero, with its distance from the mean.",
)
def _(x, mask):
    mean = x[mask].mean(axis=0)
    return mean, ((zeroed(x, mask) - mean) ** 2).sum(axis=(0, 1)) / mask.sum()


@MASKED_FEATURE_STATS.mistake(
    "multiplies-by-the-mask",
    "You multiply by the mask to silence the padding. That works for numbers; nan times 0 is nan.",
)
def _(x, mask):
    weight = mask[..., np.newaxis]
    mean = (x * weight).sum(axis=(0, 1)) / mask.sum()
    return mean, ((x - mean) ** 2 * weight).sum(axis=(0, 1)) / mask.sum()


@MASKED_FEATURE_STATS.mistake(
    "mean-of-sentence-means",
    "You average each sentence first and then the sentences. A token of a short sentence then weighs more than one of "
    "a long sentence.",
)
def _(x, mask):
    variances = np.array([sentence[real].var(axis=0) for sentence, real in zip(x, mask)])
    return sentence_means(x, mask).mean(axis=0), variances.mean(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "mean-of-sentence-means-2",
    "Your mean is the mean of the sentences' means: a token of a short sentence weighs more than one of a long sentence.",
)
def _(x, mask):
    mean = sentence_means(x, mask).mean(axis=0)
    return mean, ((x[mask] - mean) ** 2).mean(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "mean-of-sentence-means-3",
    "The variance is right, but the mean is the mean of the sentences' means: tokens of short sentences weigh more.",
)
def _(x, mask):
    return sentence_means(x, mask).mean(axis=0), x[mask].var(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "mean-of-sentence-variances",
    "The mean is right, but the variance is the mean of the sentences' variances. What lies between the sentences is lost.",
)
def _(x, mask):
    variances = np.array([sentence[real].var(axis=0) for sentence, real in zip(x, mask)])
    return x[mask].mean(axis=0), variances.mean(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "per-token",
    "You average over the features of each token, as layer norm does. Here each feature is averaged over the tokens.",
)
def _(x, mask):
    return x.mean(axis=-1), x.var(axis=-1)


@MASKED_FEATURE_STATS.mistake(
    "per-real-token",
    "You average over the features of each real token. Here each feature is averaged over the real tokens.",
)
def _(x, mask):
    return x[mask].mean(axis=-1), x[mask].var(axis=-1)


@MASKED_FEATURE_STATS.mistake(
    "per-sentence",
    "You return one mean per sentence. All real tokens of the batch share one mean per feature.",
)
def _(x, mask):
    return sentence_means(x, mask), np.array([sentence[real].var(axis=0) for sentence, real in zip(x, mask)])


@MASKED_FEATURE_STATS.mistake(
    "one-number-for-all-features",
    "You return one number. Each feature needs its own mean and variance.",
)
def _(x, mask):
    return x[mask].mean(), x[mask].var()


@MASKED_FEATURE_STATS.mistake(
    "axes-kept",
    "Your results keep the averaged axes, (1, 1, d_model). They should be (d_model,).",
)
def _(x, mask):
    return x[mask].mean(axis=0)[None, None], x[mask].var(axis=0)[None, None]


@MASKED_FEATURE_STATS.mistake(
    "unbiased",
    "Your variance divides by the number of real tokens minus one. The biased variance is asked for.",
)
def _(x, mask):
    return x[mask].mean(axis=0), x[mask].var(axis=0, ddof=1)


@MASKED_FEATURE_STATS.mistake(
    "standard-deviation",
    "You return the standard deviation. The variance is its square.",
)
def _(x, mask):
    return x[mask].mean(axis=0), x[mask].std(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "mask-inverted",
    "You average the padding. The mask is True at real tokens.",
)
def _(x, mask):
    return x[~mask].mean(axis=0), x[~mask].var(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "variance-first",
    "You return the variance first. The order is mean, variance.",
)
def _(x, mask):
    return x[mask].var(axis=0), x[mask].mean(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "changes-padding",
    "You overwrite the padding inside the caller's array. Work on a copy, or pick the real tokens out.",
)
def _(x, mask):
    x[~mask] = 0
    return x[mask].mean(axis=0), x[mask].var(axis=0)


@MASKED_FEATURE_STATS.mistake(
    "skips-nan-only",
    "You leave out nan, not padding. Padding that holds numbers still counts; the mask says what is real.",
)
def _(x, mask):
    return np.nanmean(x, axis=(0, 1)), np.nanvar(x, axis=(0, 1))


@MASKED_FEATURE_STATS.mistake(
    "skips-zero-entries",
    "You leave out entries that are zero. A real token may hold a zero, and padding need not: the mask says what is real.",
)
def _(x, mask):
    kept = np.where(x == 0, np.nan, x)
    return np.nanmean(kept, axis=(0, 1)), np.nanvar(kept, axis=(0, 1))


@MASKED_FEATURE_STATS.mistake(
    "divides-by-all-places+unbiased",
    "Two things. You divide the sum by batch times seq, and the variance by one less. Divide both by the number of real tokens.",
)
def _(x, mask):
    mean = zeroed(x, mask).sum(axis=(0, 1)) / mask.size
    return mean, (zeroed(x - mean, mask) ** 2).sum(axis=(0, 1)) / (mask.size - 1)


MASKED_FEATURE_STATS.pair(
    "padding-counted", "unbiased", lambda x, mask: (x.mean(axis=(0, 1)), x.var(axis=(0, 1), ddof=1))
)
MASKED_FEATURE_STATS.pair(
    "unbiased", "axes-kept", lambda x, mask: (x[mask].mean(0)[None, None], x[mask].var(0, ddof=1)[None, None])
)
MASKED_FEATURE_STATS.pair(
    "padding-counted",
    "standard-deviation",
    lambda x, mask: (x.mean(axis=(0, 1)), x.std(axis=(0, 1))),
)


@MASKED_FEATURE_STATS.variant
def _(x, mask):
    """np.where, and a sum divided by the number of real tokens."""
    real = np.asarray(mask)[..., None]
    n = np.count_nonzero(mask)
    mean = np.where(real, x, 0).sum((0, 1)) / n
    return mean, np.where(real, (x - mean) ** 2, 0).sum((0, 1)) / n


@MASKED_FEATURE_STATS.variant
def _(x, mask):
    """nan in the padding, and NumPy's functions that skip nan."""
    print("padding becomes nan")
    kept = np.where(mask[:, :, None], x, np.nan)
    return np.nanmean(kept, axis=(0, 1)), np.nanvar(kept, axis=(0, 1))


@MASKED_FEATURE_STATS.variant
def _(x, mask):
    """A loop that collects the real tokens."""
    tokens = [x[b][t] for b in range(len(x)) for t in range(len(x[b])) if mask[b, t]]
    mean = sum(tokens) / len(tokens)
    np.sqrt(np.array([-1.0]))
    return [list(mean), list(sum((token - mean) ** 2 for token in tokens) / len(tokens))]


# ------------------------------------------------------------------------------------------ 2.4

LAYER_NORM_JACOBIAN = Exercise(
    number="2.4",
    title="The Jacobian of layer norm",
    level="hard",
    difficulty=4,
    minutes=18,
    core=False,
    why="In post-norm every correction, forwards or backwards, passes through this matrix in every layer.",
    budget="Five lines are enough.",
    hints=(
        "The formula has a bracket of three terms and a divisor. Which of the three are matrices from the start, and "
        "which becomes one by multiplying a column with a row?",
        "x is (d_model,). mean and sigma are numbers, x-hat is (d_model,). The unit matrix, the matrix of ones and the "
        "product of x-hat with itself are (d_model, d_model).",
        "centre x; sigma: root of (variance plus eps); x-hat: centred over sigma; bracket: unit matrix, minus ones over "
        "d_model, minus every entry of x-hat times every entry of x-hat over d_model; divide by sigma.",
    ),
)


@LAYER_NORM_JACOBIAN.reference
def layer_norm_jacobian(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The Jacobian of layer norm (gamma = 1, beta = 0) at one token.

    x       : (d_model,)
    eps     : added to the variance, under the root
    returns : (d_model, d_model); entry [i, j] says how output i moves when input j moves

    (I - 1 1^T / d - xhat xhat^T / d) / sigma, with sigma = sqrt(variance + eps).

    >>> layer_norm_jacobian(np.array([2.0, 0.0, -1.0, 3.0]), eps=0.0)[0].round(6)
    array([ 0.411096, -0.094868, -0.031623, -0.284605])
    """
    d = x.size
    centred = x - x.mean()
    sigma = np.sqrt((centred**2).mean() + eps)
    xhat = centred / sigma
    return (np.eye(d) - 1 / d - np.outer(xhat, xhat) / d) / sigma


@LAYER_NORM_JACOBIAN.worked("the row (2, 0, -1, 3)", 0.4, decimals=6)
def _():
    yield ask(np.array([2.0, 0.0, -1.0, 3.0]), eps=0.0)


@LAYER_NORM_JACOBIAN.must("right values with the usual eps", 1.8)
def jacobians(rng):
    for d in (3, 5, 8):
        yield ask(rng.normal(size=d) + 1)


@LAYER_NORM_JACOBIAN.must("right values with a large eps", 1.0)
def large_eps(rng):
    yield ask(rng.normal(size=3) + 1, 0.1)
    yield ask(eps=0.1, x=rng.normal(size=4))


@LAYER_NORM_JACOBIAN.must("at eps = 0 it removes two directions", 0.6)
def no_eps(rng):
    yield ask(rng.normal(size=4) - 1, eps=0.0)


@LAYER_NORM_JACOBIAN.must("right values for very small numbers", 0.8, relative=True)
def tiny(rng):
    for size in (1e-2, 1e-4):
        yield ask(size * rng.normal(size=4))


@LAYER_NORM_JACOBIAN.must("right values for very large numbers", 0.4, relative=True)
def huge(rng):
    yield ask(1e6 * rng.normal(size=4))


@LAYER_NORM_JACOBIAN.must("numbers around 100,000,000 keep their accuracy", 0.4, chaotic=True)
def far_jacobian(rng):
    for row in far_rows(rng, 2):
        yield ask(row)


@LAYER_NORM_JACOBIAN.must("integers work like floats", 0.2)
def jacobian_integers(rng):
    yield ask(rng.permutation(9)[:4])


LAYER_NORM_JACOBIAN.leaves_inputs_alone(0.4, jacobians)


def bracket(unit: np.ndarray, ones: np.ndarray, product: np.ndarray) -> np.ndarray:
    return unit - ones - product


def divide(matrix: np.ndarray, sigma: float) -> np.ndarray:
    return matrix / sigma


def wrong_jacobian(
    *,
    ddof: int = 0,
    divisor: Callable = root,
    bracket: Callable = bracket,
    direction: Callable = lambda x, centred, xhat, sigma: xhat,
    product: Callable = np.outer,
    divide: Callable = divide,
) -> Callable:
    """A layer norm Jacobian with slips. With no switch set it is right."""

    def wrong(x, eps=1e-5):
        d = x.size
        centred = x - x.mean()
        sigma = divisor(x.var(ddof=ddof), eps)
        chosen = direction(x, centred, centred / sigma, sigma)
        return divide(bracket(np.eye(d), np.full((d, d), 1 / d), product(chosen, chosen) / d), sigma)

    return wrong


LAYER_NORM_JACOBIAN.mistake(
    "sigma-constant",
    "You treat sigma as a constant. It depends on every entry of x, and that is where the last term comes from.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones),
)
LAYER_NORM_JACOBIAN.mistake(
    "mu-and-sigma-constant",
    "You treat the mean and sigma as constants, so that every output depends on its own input only.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit),
)
LAYER_NORM_JACOBIAN.mistake(
    "mu-constant",
    "You treat the mean as a constant. It moves with every entry of x, by one d_model-th of the step.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - product),
)
LAYER_NORM_JACOBIAN.mistake(
    "one-over-sigma-forgotten",
    "The bracket is right; it is never divided by sigma.",
    wrong_jacobian(divide=lambda matrix, sigma: matrix),
)
LAYER_NORM_JACOBIAN.mistake(
    "divided-by-the-variance",
    "You divide by sigma squared. One factor 1/sigma is enough: the other two are inside x-hat.",
    wrong_jacobian(divide=lambda matrix, sigma: matrix / sigma**2),
)
LAYER_NORM_JACOBIAN.mistake(
    "multiplied-by-sigma",
    "You multiply by sigma. The larger the numbers, the less the output moves: divide.",
    wrong_jacobian(divide=lambda matrix, sigma: matrix * sigma),
)
LAYER_NORM_JACOBIAN.mistake(
    "projector-normalised",
    "You make x-hat a vector of length 1 before you take its product. With eps above zero its length is a little "
    "below sqrt(d_model), and that counts.",
    wrong_jacobian(direction=lambda x, c, xhat, s: xhat * np.sqrt(x.size) / np.linalg.norm(xhat)),
)
LAYER_NORM_JACOBIAN.mistake(
    "x-not-x-hat",
    "The last term multiplies x with itself. It needs the normalised numbers.",
    wrong_jacobian(direction=lambda x, c, xhat, s: x),
)
LAYER_NORM_JACOBIAN.mistake(
    "centred-not-x-hat",
    "The last term multiplies the centred numbers. They still have to be divided by sigma.",
    wrong_jacobian(direction=lambda x, c, xhat, s: c),
)
LAYER_NORM_JACOBIAN.mistake(
    "not-centred-in-x-hat",
    "Your x-hat is x over sigma. The mean must go first.",
    wrong_jacobian(direction=lambda x, c, xhat, s: x / s),
)
LAYER_NORM_JACOBIAN.mistake(
    "variance-d-1",
    "Your sigma comes from a variance that divides by d_model - 1.",
    wrong_jacobian(ddof=1),
)
LAYER_NORM_JACOBIAN.mistake(
    "last-term-d-1",
    "The last term divides by d_model - 1. All three divisions here are by d_model or by sigma.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones - product * len(unit) / (len(unit) - 1)),
)
LAYER_NORM_JACOBIAN.mistake(
    "last-term-added",
    "The last term is added. All directions are taken away from the unit matrix.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones + product),
)
LAYER_NORM_JACOBIAN.mistake(
    "last-term-not-divided",
    "The product of x-hat with itself is not divided by d_model.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones - product * len(unit)),
)
LAYER_NORM_JACOBIAN.mistake(
    "ones-not-divided",
    "You take away a full 1 from every entry. The matrix of ones is divided by d_model.",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones * len(unit) - product),
)
LAYER_NORM_JACOBIAN.mistake(
    "ones-for-the-unit-matrix",
    "Your first term is a matrix of ones. The unit matrix has ones on its diagonal only.",
    wrong_jacobian(bracket=lambda unit, ones, product: 1 - ones - product),
)
LAYER_NORM_JACOBIAN.mistake(
    "not-an-outer-product",
    "x-hat times x-hat, entry by entry, is a vector, and NumPy spreads it over the rows. Every entry must meet every other.",
    wrong_jacobian(product=lambda a, b: a * b),
)
LAYER_NORM_JACOBIAN.mistake(
    "inner-product",
    "x-hat with itself gives you one number (a dot product). Every entry must meet every other: a matrix.",
    wrong_jacobian(product=lambda a, b: a @ b),
)
LAYER_NORM_JACOBIAN.mistake(
    "eps-fixed",
    "You always use 0.00001. The caller may pass another eps.",
    wrong_jacobian(divisor=lambda v, eps: np.sqrt(v + 1e-5)),
)
LAYER_NORM_JACOBIAN.mistake(
    "eps-forgotten",
    "eps is not used.",
    wrong_jacobian(divisor=lambda v, eps: np.sqrt(v)),
)
LAYER_NORM_JACOBIAN.mistake(
    "eps-outside-root",
    "You add eps after taking the root. It joins the variance, under the root.",
    wrong_jacobian(divisor=eps_outside),
)
LAYER_NORM_JACOBIAN.mistake(
    "no-square-root",
    "Your sigma is the variance. The root is missing.",
    wrong_jacobian(divisor=no_root),
)


@LAYER_NORM_JACOBIAN.mistake(
    "mean-of-squares",
    "You compute the variance as mean of squares minus square of mean. Around 100,000,000 the difference loses all its digits.",
)
def _(x, eps=1e-5):
    d = x.size
    sigma = np.sqrt(np.maximum((x * x).mean() - x.mean() ** 2, 0) + eps)
    xhat = (x - x.mean()) / sigma
    return (np.eye(d) - 1 / d - np.outer(xhat, xhat) / d) / sigma


@LAYER_NORM_JACOBIAN.mistake(
    "diagonal-only",
    "Off the diagonal you return zeros. Through the mean and sigma every input moves every output.",
)
def _(x, eps=1e-5):
    return np.diag(np.diag(wrong_jacobian()(x, eps)))


LAYER_NORM_JACOBIAN.pair(
    "sigma-constant",
    "one-over-sigma-forgotten",
    wrong_jacobian(bracket=lambda unit, ones, product: unit - ones, divide=lambda matrix, sigma: matrix),
)
LAYER_NORM_JACOBIAN.pair(
    "variance-d-1",
    "one-over-sigma-forgotten",
    wrong_jacobian(ddof=1, divide=lambda matrix, sigma: matrix),
)
LAYER_NORM_JACOBIAN.pair(
    "sigma-constant", "variance-d-1", wrong_jacobian(ddof=1, bracket=lambda unit, ones, product: unit - ones)
)
LAYER_NORM_JACOBIAN.pair(
    "centred-not-x-hat",
    "one-over-sigma-forgotten",
    wrong_jacobian(direction=lambda x, c, xhat, s: c, divide=lambda matrix, sigma: matrix),
)


@LAYER_NORM_JACOBIAN.variant
def _(x, eps=1e-5):
    """The chain rule: first the centring matrix, then the division by a sigma that depends on x."""
    d = len(x)
    centring = np.eye(d) - np.ones((d, d)) / d
    c = x - np.mean(x)
    sigma = (c @ c / d + eps) ** 0.5
    return (centring - np.outer(c, centring @ c) / (d * sigma**2)) / sigma


@LAYER_NORM_JACOBIAN.variant
def _(x, eps=1e-5):
    """Two loops, one entry at a time."""
    d = len(x)
    c = [entry - np.mean(x) for entry in x]
    sigma = np.sqrt(sum(entry**2 for entry in c) / d + eps)
    h = [entry / sigma for entry in c]
    print("entries:", d * d)
    return [[((i == j) - 1 / d - h[i] * h[j] / d) / sigma for j in range(d)] for i in range(d)]


@LAYER_NORM_JACOBIAN.variant
def _(x, eps=1e-5):
    """A complex step: layer norm itself, at x + i h; the imaginary part over h is the derivative, without rounding."""
    h = 1e-30
    steps = x + 1j * h * np.eye(len(x))  # row j has a step in entry j
    c = steps - steps.mean(axis=1, keepdims=True)
    return (c / np.sqrt((c * c).mean(axis=1, keepdims=True) + eps)).imag.T / h


# ------------------------------------------------------------------------------------------ 2.5

LEAK = Exercise(
    number="2.5",
    title="The experiment as code",
    level="hard",
    difficulty=4,
    minutes=14,
    core=True,
    why="You will trust a function because an experiment of your own says so, not because a page does.",
    budget="Five lines are enough.",
    hints=(
        "An experiment compares two runs that differ in one thing. What are the two inputs here, and which part of the "
        "two outputs must not be compared?",
        "X and its changed copy are (batch, seq, d_model); so are the two outputs and their difference. Leave sentence j "
        "out: (batch - 1, seq, d_model). Then one number.",
        "run norm on X; copy X, as floats; put the new sentence at place j of the copy; run norm on the copy; absolute "
        "difference of the two outputs; take sentence j out; the largest entry, as a float.",
    ),
)


@LEAK.reference
def leak(norm, X: np.ndarray, j: int, new: np.ndarray) -> float:
    """How far the other sentences move when sentence j is replaced: the largest absolute change in their output.

    norm    : function (batch, seq, d_model) -> (batch, seq, d_model), called with the whole batch
    X       : (batch, seq, d_model), at least two sentences; it is not changed
    j       : which sentence is replaced
    new     : (seq, d_model), the sentence that takes its place
    returns : float, 0.0 where nothing leaks

    >>> double = lambda X: 2 * X
    >>> shifted = lambda X: X - X.mean(axis=0)
    >>> X = np.array([[[1.0, 2.0]], [[3.0, 6.0]]])
    >>> leak(double, X, 0, np.zeros((1, 2))), leak(shifted, X, 0, np.zeros((1, 2)))
    (0.0, 1.0)
    """
    changed = X.astype(float)  # a copy
    changed[j] = new
    change = np.abs(norm(changed) - norm(X))
    return float(np.delete(change, j, axis=0).max())


YOUR_LAYER_NORM = Given("plain_layer_norm", (Own("layer_norm"),))
YOUR_BATCH_NORM = Given("training_batch_norm", (Own("batch_norm"),))


def standardised(X: np.ndarray, axes: int | tuple[int, ...]) -> np.ndarray:
    return (X - X.mean(axis=axes, keepdims=True)) / np.sqrt(X.var(axis=axes, keepdims=True) + 1e-5)


def hidden_layer_norm(X: np.ndarray) -> np.ndarray:
    return standardised(X, -1)


def hidden_instance_norm(X: np.ndarray) -> np.ndarray:
    return standardised(X, 1)


def last_sentence_hears_all(X: np.ndarray) -> np.ndarray:
    """A norm that leaks into the last sentence, into one entry only."""
    Y = standardised(X, -1)
    Y[-1, 0, 0] += 0.3 * X[:-1].sum()
    return Y


def first_sentence_hears_all(X: np.ndarray) -> np.ndarray:
    """A norm that leaks into the first sentence, into one entry of the last token, less than a new sentence itself changes."""
    Y = standardised(X, -1)
    Y[0, -1, -1] -= 0.03 * X[1:].sum()
    return Y


def one_entry_falls(X: np.ndarray) -> np.ndarray:
    """A norm whose leak only lowers, the more, the larger the other sentences are, and less than a new one itself changes."""
    Y = standardised(X, -1)
    return Y - np.abs(X).sum() * np.linspace(0.005, 0.01, Y.size).reshape(Y.shape)


def swap(rng: np.random.Generator, norm, shape: tuple[int, int, int], j: int, size: float = 1.0) -> Question:
    return ask(norm, rng.normal(size=shape), j, size * (rng.normal(size=shape[1:]) + 0.5))


@LEAK.worked("three sentences of one token, layer norm and batch norm", 0.5, decimals=6)
def _():
    X = np.array([[[1.0, 2.0]], [[3.0, 6.0]], [[2.0, 4.0]]])
    for norm in (YOUR_LAYER_NORM, YOUR_BATCH_NORM):
        yield ask(norm, X, 2, np.array([[8.0, 4.0]]))


@LEAK.must("the right size of the leak of a batch norm", 1.7)
def batch_norm_leaks(rng):
    yield swap(rng, YOUR_BATCH_NORM, (2, 1, 2), 0)
    yield swap(rng, YOUR_BATCH_NORM, (3, 2, 3), 1)
    yield swap(rng, YOUR_BATCH_NORM, (4, 4, 4), 3)
    X = rng.normal(size=(3, 2, 3))
    X[1] = X[::2].mean(axis=(0, 1))
    yield ask(YOUR_BATCH_NORM, X, 1, X[1] + 0.5)  # every other output falls


@LEAK.must("a norm that leaks into the last sentence only", 1.0, judge_only=True)
def leaks_into_last(rng):
    yield swap(rng, last_sentence_hears_all, (3, 2, 3), 0)
    yield swap(rng, last_sentence_hears_all, (4, 2, 3), 1)


@LEAK.must("a norm that leaks into the first sentence only", 0.6, judge_only=True)
def leaks_into_first(rng):
    yield swap(rng, first_sentence_hears_all, (3, 2, 3), 2)


@LEAK.must("a leak that lowers the others", 0.6, judge_only=True)
def leak_lowers(rng):
    yield swap(rng, one_entry_falls, (3, 2, 3), 1, size=5.0)


@LEAK.must("layer norm and instance norm do not leak: 0", 0.8, needs_values=True, judge_only=True)
def nothing_leaks(rng):
    for norm in (hidden_layer_norm, hidden_instance_norm):
        yield swap(rng, norm, (3, 2, 4), 1)


@LEAK.must("integers work like floats", 0.4)
def leak_integers(rng):
    X = rng.permutation(20)[:12].reshape(3, 2, 2)
    yield ask(YOUR_BATCH_NORM, X, 1, X[1] + rng.uniform(3.1, 3.9, size=(2, 2)))


LEAK.leaves_inputs_alone(0.4, lambda rng: [swap(rng, YOUR_BATCH_NORM, (3, 2, 3), 0)])


def wrong_leak(
    *,
    measure: Callable = lambda change, j: np.delete(np.abs(change), j, axis=0).max(),
    copy: Callable = lambda X: X.astype(float),
) -> Callable:
    """The experiment with slips. With no switch set it is right."""

    def wrong(norm, X, j, new):
        changed = copy(X)
        changed[j] = new
        return float(measure(norm(changed) - norm(X), j))

    return wrong


def others(change: np.ndarray, j: int) -> np.ndarray:
    return np.delete(change, j, axis=0)


LEAK.mistake(
    "sentence-itself-counted",
    "Sentence j itself is counted. It was replaced, so of course its output moves; only the others are evidence.",
    wrong_leak(measure=lambda change, j: np.abs(change).max()),
)
LEAK.mistake(
    "only-sentence-itself",
    "You measure the change of sentence j. The question is what happens to the others.",
    wrong_leak(measure=lambda change, j: np.abs(change[j]).max()),
)
LEAK.mistake(
    "first-other-only",
    "You look at one other sentence, the first. A leak may reach any of them.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)[0]).max()),
)
LEAK.mistake(
    "last-other-only",
    "You look at one other sentence, the last. A leak may reach any of them.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)[-1]).max()),
)
LEAK.mistake(
    "next-sentence-only",
    "You look at the next sentence only. A leak may reach any of them.",
    wrong_leak(measure=lambda change, j: np.abs(change[(j + 1) % len(change)]).max()),
)
LEAK.mistake(
    "only-after-j",
    "You look at the sentences after j only. A leak may reach those before it too.",
    wrong_leak(measure=lambda change, j: np.abs(change[j + 1 :]).max(initial=0.0)),
)
LEAK.mistake(
    "only-after-j-fails-at-the-end",
    "You look at the sentences after j only, and where j is the last one, none is left. A leak may reach those before it too.",
    wrong_leak(measure=lambda change, j: np.abs(change[j + 1 :]).max()),
)
LEAK.mistake(
    "only-before-j",
    "You look at the sentences before j only. A leak may reach those after it too.",
    wrong_leak(measure=lambda change, j: np.abs(change[:j]).max(initial=0.0)),
)
LEAK.mistake(
    "only-before-j-fails-at-the-start",
    "You look at the sentences before j only, and where j is 0, none is left. A leak may reach those after it too.",
    wrong_leak(measure=lambda change, j: np.abs(change[:j]).max()),
)
LEAK.mistake(
    "first-token-only",
    "You look at the first token of each sentence only. A leak may reach any token.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)[:, 0]).max()),
)
LEAK.mistake(
    "mean-change",
    "You average the absolute changes. One entry that moves is enough for a leak: take the largest.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)).mean()),
)
LEAK.mistake(
    "sum-of-changes",
    "You add the absolute changes up. The largest one is asked for.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)).sum()),
)
LEAK.mistake(
    "length-of-the-change",
    "You return the length of the change as one long vector. The largest single entry is asked for.",
    wrong_leak(measure=lambda change, j: np.linalg.norm(others(change, j))),
)
LEAK.mistake(
    "sign-counts",
    "You take the largest change without its absolute value. An output that falls has changed as well.",
    wrong_leak(measure=lambda change, j: others(change, j).max()),
)
LEAK.mistake(
    "absolute-value-last",
    "You take the largest change first and its absolute value after. A large fall is then overlooked.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j).max())),
)
LEAK.mistake(
    "squared-change",
    "You return the square of the change.",
    wrong_leak(measure=lambda change, j: (others(change, j) ** 2).max()),
)
LEAK.mistake(
    "yes-or-no",
    "You return whether something leaks. How much is asked for: the largest absolute change.",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)).max() > 1e-12),
)


@LEAK.mistake(
    "one-number-per-sentence",
    "You return one number per sentence. The largest of the others, one float, is asked for.",
)
def _(norm, X, j, new):
    changed = X.astype(float)
    changed[j] = new
    return np.abs(norm(changed) - norm(X)).max(axis=(1, 2))


@LEAK.mistake(
    "each-sentence-alone",
    "You get 0 for every norm. Do you hand it one sentence at a time? Alone, no sentence has neighbours to leak from. "
    "norm needs the whole batch, both times.",
)
def _(norm, X, j, new):
    def alone(X):
        return np.concatenate([norm(X[i : i + 1]) for i in range(len(X))])

    return wrong_leak()(alone, X, j, new)


@LEAK.mistake(
    "same-array-twice",
    "You get 0 for every norm: both runs see the same array. A second name for X is not a copy of it.",
)
def _(norm, X, j, new):
    changed = X
    changed[j] = new
    return float(others(np.abs(norm(changed) - norm(X)), j).max())


@LEAK.mistake(
    "changes-input",
    "The number is right, but you replace the sentence inside the caller's X. Make the change in a copy.",
)
def _(norm, X, j, new):
    before = norm(X)
    X[j] = np.asarray(new)
    return float(others(np.abs(norm(X) - before), j).max())


@LEAK.mistake(
    "compared-with-the-input",
    "You compare the output with X. Compare two outputs: with the old sentence and with the new one.",
)
def _(norm, X, j, new):
    changed = X.astype(float)
    changed[j] = new
    return float(others(np.abs(norm(changed) - X), j).max())


@LEAK.mistake(
    "sentence-taken-out",
    "You take sentence j out of the batch. It should be replaced: the batch keeps its size.",
)
def _(norm, X, j, new):
    return float(np.abs(norm(np.delete(X, j, axis=0)) - others(norm(X), j)).max())


@LEAK.mistake(
    "feature-replaced",
    "You replace along the wrong axis. Sentences are counted by the first axis of X.",
)
def _(norm, X, j, new):
    changed = X.astype(float)
    changed[:, j] = new[j]
    return float(others(np.abs(norm(changed) - norm(X)), j).max())


LEAK.mistake(
    "new-sentence-cut-off",
    "Your copy of X holds whole numbers when X does, so the new sentence loses its fractions on the way in.",
    wrong_leak(copy=lambda X: X.copy()),
)
LEAK.pair(
    "sentence-itself-counted", "mean-change", wrong_leak(measure=lambda change, j: np.abs(change).mean())
)
LEAK.pair("sentence-itself-counted", "sign-counts", wrong_leak(measure=lambda change, j: change.max()))
LEAK.pair(
    "first-other-only",
    "mean-change",
    wrong_leak(measure=lambda change, j: np.abs(others(change, j)[0]).mean()),
)


@LEAK.mistake(
    "changes-input+sentence-itself-counted",
    "Two things. You replace the sentence inside the caller's X, and sentence j itself is counted.",
)
def _(norm, X, j, new):
    before = norm(X)
    X[j] = np.asarray(new)
    return float(np.abs(norm(X) - before).max())


@LEAK.variant
def _(norm, X, j, new):
    """A loop over the other sentences, keeping the largest change so far."""
    changed = [new if i == j else X[i] for i in range(len(X))]
    before, after = norm(X), norm(np.array(changed, dtype=float))
    largest = 0.0
    for i in range(len(X)):
        if i != j:
            print("sentence", i)
            largest = max(largest, float(np.max(np.abs(after[i] - before[i]))))
    return largest


@LEAK.variant
def _(norm, X, j, new):
    """A yes-or-no array picks the other sentences."""
    keep = np.arange(len(X)) != j
    changed = np.where(keep[:, None, None], X, new)
    return np.max(np.abs(norm(changed) - norm(X))[keep])


@LEAK.variant
def _(norm, X, j, new):
    """The change of sentence j is set to zero; nothing needs to be taken out."""
    changed = np.concatenate([X[:j], [new], X[j + 1 :]])
    change = norm(changed) - norm(X)
    change[j] = 0
    return np.linalg.norm(change.ravel(), np.inf)


# ------------------------------------------------------------------------------------------ 2.6

SHARPEN = Exercise(
    number="2.6",
    title="All scores times f",
    level="hard",
    difficulty=4,
    minutes=14,
    core=False,
    why="It settles, with your own code, how large a growth of the scores turns 0.60 into 0.96, and which growth of the stream that is.",
    budget="Five lines are enough.",
    hints=(
        "Weights come from exp(score). What happens to exp(score) when the score is multiplied by f? And what can you do "
        "to a whole row before that, without changing the weights, so that nothing becomes too small to be a number?",
        "p is (..., n). The largest entry of each row is (..., 1), and so is the sum of the new entries. The result is "
        "(..., n). Zeros of p need a place of their own: 0 to the power 0 is not what you want.",
        "divide each row by its largest entry; raise to the power f; where p was zero, put zero; divide each row by its sum.",
    ),
)


@SHARPEN.reference
def sharpen(p: np.ndarray, f: float) -> np.ndarray:
    """The attention weights after all scores have been multiplied by f: proportional to p ** f.

    p       : (..., n), weights that sum to 1 along the last axis; entries may be 0
    f       : factor on the scores, f >= 0
    returns : (..., n), weights that sum to 1 again; an entry that was 0 stays 0, also for f = 0

    >>> sharpen(np.array([0.6, 0.18, 0.12, 0.06, 0.04]), 3).round(3).tolist()
    [0.965, 0.026, 0.008, 0.001, 0.0]
    """
    ratio = p / p.max(axis=-1, keepdims=True)  # the largest entry is 1, so no power of it is too small
    weights = np.where(p > 0, ratio**f, 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def weights(rng: np.random.Generator, shape: tuple[int, ...], spread: float = 1.0) -> np.ndarray:
    """Attention weights of random scores."""
    p = np.exp(spread * rng.normal(size=shape))
    return p / p.sum(axis=-1, keepdims=True)


@SHARPEN.worked("the row with 0.60 and the factors 3 and 4", 0.6, decimals=6)
def _():
    for f in (3.0, 4.0):
        yield ask(np.array([0.6, 0.18, 0.12, 0.06, 0.04]), f)


@SHARPEN.must("right values for rows, matrices and heads", 1.4)
def sharper(rng):
    for shape in [(3,), (2, 4), (3, 3), (2, 2, 5)]:
        yield ask(weights(rng, shape), float(rng.uniform(1.5, 4)))


@SHARPEN.must("a factor below 1 makes the row flatter", 0.6)
def flatter(rng):
    yield ask(weights(rng, (3,)), 0.5)
    yield ask(p=weights(rng, (2, 4), 3.0), f=float(rng.uniform(0.1, 0.9)))


@SHARPEN.must("the same as softmax of f times the scores, also for scores far apart", 0.5)
def far_apart(rng):
    scores = rng.permutation(np.array([0.0, -0.7, -15.0, -40.0]) + rng.uniform(-0.2, 0.2, size=4))
    yield ask(to_one(np.exp(scores)), 2.5)


@SHARPEN.must("sharpening twice multiplies the factors", 0.3)
def twice(rng):
    p = weights(rng, (4,))
    yield steps(Call((sharpen(p, 2.0), 1.5)), Call((p, 3.0)))


@SHARPEN.must("an entry that was 0 stays 0", 0.7)
def with_zeros(rng):
    p = weights(rng, (2, 3))
    p = np.insert(p, 1, 0.0, axis=-1)
    for f in (2.5, 0.5):
        yield ask(p, f)


@SHARPEN.must(
    "f = 1 changes nothing, f = 0 shares equally among the entries that are not 0", 0.7, needs_values=True
)
def one_and_zero(rng):
    p = np.insert(weights(rng, (3,)), 2, 0.0)
    for f in (1.0, 0.0):
        yield ask(p, f)


@SHARPEN.must("f = 5000 gives numbers, not nan", 0.8)
def extreme(rng):
    p = weights(rng, (2, 4), 0.05)
    yield ask(p, 5000.0)


@SHARPEN.must("integers work like floats", 0.2, needs_values=True)
def sharpen_integers(rng):
    yield ask(np.eye(3, dtype=int), 2)


SHARPEN.leaves_inputs_alone(0.2, sharper)


def from_ratio(p: np.ndarray, f: float) -> np.ndarray:
    return np.where(p > 0, (p / p.max(axis=-1, keepdims=True)) ** f, 0.0)


def to_one(w: np.ndarray) -> np.ndarray:
    return w / w.sum(axis=-1, keepdims=True)


def softmax(s: np.ndarray) -> np.ndarray:
    return to_one(np.exp(s - s.max(axis=-1, keepdims=True)))


def wrong_sharpen(power: Callable = from_ratio, share: Callable = to_one) -> Callable:
    """sharpen with slips. With no switch set it is right."""
    return lambda p, f: share(power(p, f))


SHARPEN.mistake(
    "softmax-of-the-weights",
    "You multiply the weights by f and take a softmax of them. The weights are no scores: the scores are their logarithms.",
    lambda p, f: softmax(f * p),
)
SHARPEN.mistake(
    "weights-times-f",
    "You multiply the weights by f and make them sum to 1: that takes f out again.",
    wrong_sharpen(lambda p, f: p * f),
)
SHARPEN.mistake(
    "one-over-f",
    "You raise to the power 1 / f: the row gets flatter where it should get sharper.",
    wrong_sharpen(lambda p, f: np.where(p > 0, p ** (1 / f), 0.0)),
)
SHARPEN.mistake(
    "f-squared",
    "You use f twice. f is already the factor on the scores; the growth of the stream is another number.",
    wrong_sharpen(lambda p, f: from_ratio(p, f * f)),
)
SHARPEN.mistake(
    "f-plus-one",
    "You multiply the old weight in once more: that is the power f + 1.",
    wrong_sharpen(lambda p, f: from_ratio(p, f + 1)),
)
SHARPEN.mistake(
    "not-renormalised",
    "The powers do not sum to 1. Weights must.",
    wrong_sharpen(lambda p, f: np.where(p > 0, p**f, 0.0), lambda w: w),
)
SHARPEN.mistake(
    "largest-is-one",
    "Your largest entry is 1: you divide by the largest entry and stop there. Weights must sum to 1.",
    wrong_sharpen(share=lambda w: w),
)
SHARPEN.mistake(
    "one-sum-for-all-rows",
    "You divide by one sum over the whole array. Each row must sum to 1 by itself.",
    wrong_sharpen(share=lambda w: w / w.sum()),
)
SHARPEN.mistake(
    "sums-over-axis-0",
    "You divide by the sums along the first axis. Each row, along the last axis, must sum to 1.",
    wrong_sharpen(share=lambda w: w / w.sum(axis=0)),
)
SHARPEN.mistake(
    "keepdims-forgotten",
    "The sums lose their axis, so NumPy lines them up with the wrong entries. For a square matrix nothing even fails.",
    wrong_sharpen(share=lambda w: w / w.sum(axis=-1)),
)
SHARPEN.mistake(
    "underflow",
    "For a large f every power is 0, and 0 / 0 is nan: the largest entry must survive.",
    wrong_sharpen(lambda p, f: np.where(p > 0, p**f, 0.0)),
)
SHARPEN.mistake(
    "zero-to-the-power-zero",
    "For f = 0 an entry that was 0 gets a share: 0 to the power 0 is 1. It must stay 0.",
    wrong_sharpen(lambda p, f: (p / p.max(axis=-1, keepdims=True)) ** f),
)
SHARPEN.pair("underflow", "zero-to-the-power-zero", wrong_sharpen(lambda p, f: p**f))


def by_logarithm(p: np.ndarray, f: float) -> np.ndarray:
    scores = f * np.log(p)
    return np.exp(scores - scores.max(axis=-1, keepdims=True))


SHARPEN.mistake(
    "log-of-zero",
    "The logarithm of 0 is minus infinity, and 0 times that is nan. The entries that are 0 need a way of their own.",
    wrong_sharpen(by_logarithm),
)
SHARPEN.pair("underflow", "log-of-zero", wrong_sharpen(lambda p, f: np.exp(f * np.log(p))))
for exponent in (8, 9, 10, 12):
    SHARPEN.mistake(
        f"small-number-added-1e-{exponent}",
        "You add a small number to avoid the logarithm or the power of 0. An entry that was 0 then gets a share.",
        wrong_sharpen(lambda p, f, tiny=10.0**-exponent: by_logarithm(p + tiny, f)),
    )
SHARPEN.mistake(
    "softmax-of-the-power",
    "You take a softmax of the powers. They only have to be divided by their sum.",
    lambda p, f: softmax(np.where(p > 0, p**f, 0.0)),
)


@SHARPEN.mistake(
    "all-to-the-largest",
    "You give everything to the largest entry. That is where the row goes for a huge f, not for this one.",
)
def _(p, f):
    return (p == p.max(axis=-1, keepdims=True)).astype(float)


@SHARPEN.mistake(
    "changes-input",
    "You work inside the caller's array (/= or **= works in place). Use a new one.",
)
def _(p, f):
    zero = p == 0
    p /= p.max(axis=-1, keepdims=True)
    p **= f
    p[zero] = 0
    p /= p.sum(axis=-1, keepdims=True)
    return p


SHARPEN.pair("underflow", "one-sum-for-all-rows", lambda p, f: np.where(p > 0, p**f, 0.0) / (p**f).sum())
SHARPEN.pair("underflow", "not-renormalised", lambda p, f: p**f)
SHARPEN.pair("f-squared", "underflow", wrong_sharpen(lambda p, f: p ** (f * f)))


@SHARPEN.variant
def _(p, f):
    """Through the scores: logarithm, times f, softmax; zeros are kept out of the logarithm."""
    logs = np.log(np.where(p > 0, p, 1.0))
    scores = np.where(p > 0, f * logs, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@SHARPEN.variant
def _(p, f):
    """Row by row, entry by entry."""
    p = np.asarray(p)
    rows = []
    for row in p.reshape(-1, p.shape[-1]):
        top = max(row)
        new = [(entry / top) ** f if entry else 0.0 for entry in row]
        rows.append([entry / sum(new) for entry in new])
    print(len(rows), "rows")
    return np.array(rows).reshape(p.shape)


@SHARPEN.variant
def _(p, f):
    """A copy of the row, and the power only where there is something to raise."""
    w = np.array(p, dtype=float)
    w = w / np.max(w, axis=-1)[..., None]
    np.power(w, f, out=w, where=w > 0)
    return np.einsum("...n,...->...n", w, 1 / w.sum(-1))


# ------------------------------------------------------------------------------------------ 2.7

LAYER_NORM_BACKWARD = Exercise(
    number="2.7",
    title="Three gradients by hand",
    level="demanding",
    difficulty=5,
    minutes=25,
    core=False,
    why="It is the longest gradient of the whole block, and the one that most often goes wrong in code written by hand.",
    budget="About eight lines.",
    hints=(
        "gamma and beta are shared by all tokens: which axes must their gradients be summed over? And what does the "
        "symmetric matrix of 2.4 do to one row vector, without ever being built?",
        "dy, x, x-hat and dx are (..., d_model). The two means in dx are (..., 1). dgamma and dbeta are (d_model,): every "
        "leading axis is summed away.",
        "x-hat and sigma as in the forward pass; g: dy times gamma; dx: (g minus its mean minus x-hat times the mean of "
        "g times x-hat) over sigma, means over the last axis; dgamma: sum of dy times x-hat over all leading axes; dbeta: "
        "sum of dy over all leading axes.",
    ),
    builds_on=(),
)
GRADIENTS = ("dx", "dgamma", "dbeta")


@LAYER_NORM_BACKWARD.reference
def layer_norm_backward(
    dy: np.ndarray, x: np.ndarray, gamma: np.ndarray, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of layer norm, given the gradient dy of the loss with respect to its output.

    dy, x   : (..., d_model), any number of leading axes
    gamma   : (d_model,)
    eps     : added to the variance, under the root
    returns : (dx, dgamma, dbeta); dx is like x, the other two are (d_model,)

    >>> dx, dgamma, dbeta = layer_norm_backward(np.array([1.0, 0.0, 0.0, 0.0]),
    ...                                         np.array([2.0, 0.0, -1.0, 3.0]), np.ones(4), eps=0.0)
    >>> dx.round(6)
    array([ 0.411096, -0.094868, -0.031623, -0.284605])
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    sigma = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    xhat = centred / sigma
    g = dy * gamma
    dx = (g - g.mean(axis=-1, keepdims=True) - xhat * (g * xhat).mean(axis=-1, keepdims=True)) / sigma
    leading = tuple(range(x.ndim - 1))
    return dx, (dy * xhat).sum(axis=leading), dy.sum(axis=leading)


def backward_case(
    rng: np.random.Generator, shape: tuple[int, ...], *counted: str, **options: float
) -> Question:
    """One backward pass with a random upstream gradient and a random gamma."""
    question = ask(
        rng.normal(size=shape), rng.normal(size=shape) + 0.5, rng.normal(size=shape[-1]), **options
    )
    return only(question, GRADIENTS, *counted)


@LAYER_NORM_BACKWARD.worked("dy = (1, 0, 0, 0) at (2, 0, -1, 3)", 0.4, decimals=6)
def _():
    dy, x = np.array([1.0, 0.0, 0.0, 0.0]), np.array([2.0, 0.0, -1.0, 3.0])
    yield ask(dy, x, np.ones(4), eps=0.0)


@LAYER_NORM_BACKWARD.must("dx of one token", 1.6, view=View(parts))
def dx_of_one_token(rng):
    for d in (3, 6):
        yield backward_case(rng, (d,), "dx")


@LAYER_NORM_BACKWARD.must("dx of sentences and batches", 1.3, view=View(parts))
def dx_of_batches(rng):
    for shape in [(2, 3), (2, 3, 4)]:
        yield backward_case(rng, shape, "dx")


@LAYER_NORM_BACKWARD.must("dx with another eps", 0.8, view=View(parts))
def dx_other_eps(rng):
    yield backward_case(rng, (3,), "dx", eps=1e-2)
    yield backward_case(rng, (2, 3), "dx", eps=0.1)


@LAYER_NORM_BACKWARD.must("dgamma, summed over all leading axes", 1.1, view=View(parts))
def dgammas(rng):
    for shape in [(3,), (2, 3), (2, 3, 4)]:
        yield backward_case(rng, shape, "dgamma")


@LAYER_NORM_BACKWARD.must("dbeta, summed over all leading axes", 0.7, view=View(parts))
def dbetas(rng):
    for shape in [(3,), (2, 3), (2, 3, 4)]:
        yield backward_case(rng, shape, "dbeta")


@LAYER_NORM_BACKWARD.must("at eps = 0: dx has mean 0 and no part along x-hat", 0.6, view=View(parts))
def dx_no_eps(rng):
    yield backward_case(rng, (4,), "dx", eps=0.0)


@LAYER_NORM_BACKWARD.must("seq and d_model may be equal", 0.5)
def backward_square(rng):
    yield backward_case(rng, (3, 3), *GRADIENTS)


@LAYER_NORM_BACKWARD.must("rows of numbers around 100,000,000 keep their accuracy", 0.3, chaotic=True)
def backward_far(rng):
    yield ask(rng.normal(size=(4, 4)), far_rows(rng, 4), rng.normal(size=4))


@LAYER_NORM_BACKWARD.must("integers work like floats", 0.3)
def backward_integers(rng):
    yield ask(
        dy=rng.permutation(9)[:6].reshape(2, 3) - 4,
        x=rng.permutation(9)[:6].reshape(2, 3),
        gamma=rng.permutation(4)[:3] + 1,
    )


LAYER_NORM_BACKWARD.leaves_inputs_alone(
    0.4, lambda rng: [backward_case(rng, (3,)), backward_case(rng, (2, 3))]
)


def three_terms(g, xhat, sigma, mean):
    """dx of a layer norm; mean averages over the last axis."""
    return (g - mean(g) - xhat * mean(g * xhat)) / sigma


def wrong_backward(
    *,
    dx: Callable = three_terms,
    over: Callable = lambda x: tuple(range(x.ndim - 1)),
    collect: Callable = np.sum,
    ddof: int = 0,
    divisor: Callable = root,
    factor: Callable = lambda x, centred, xhat: xhat,
    incoming: Callable = lambda dy, gamma: dy * gamma,
    mean: Callable = lambda a: a.mean(axis=-1, keepdims=True),
    answer: Callable = lambda dx, dgamma, dbeta: (dx, dgamma, dbeta),
) -> Callable:
    """A layer norm backward pass with slips. With no switch set it is right."""

    def wrong(dy, x, gamma, eps=1e-5):
        centred = x - x.mean(axis=-1, keepdims=True)
        sigma = divisor(x.var(axis=-1, keepdims=True, ddof=ddof), eps)
        xhat = centred / sigma
        dgamma = collect(dy * factor(x, centred, xhat), axis=over(x))
        return answer(dx(incoming(dy, gamma), xhat, sigma, mean), dgamma, collect(dy * 1.0, axis=over(x)))

    return wrong


def sigma_constant(g, xhat, sigma, mean):
    return (g - mean(g)) / sigma


LAYER_NORM_BACKWARD.mistake(
    "mu-and-sigma-constant",
    "You treat the mean and sigma as constants: dx is the incoming gradient over sigma. Both depend on every entry of x.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: g / sigma),
)
LAYER_NORM_BACKWARD.mistake(
    "sigma-constant",
    "You treat sigma as a constant. It depends on every entry of x; a third term is missing in dx.",
    wrong_backward(dx=sigma_constant),
)
LAYER_NORM_BACKWARD.mistake(
    "mu-constant",
    "You treat the mean as a constant. It depends on every entry of x; the term with the mean of the gradient is missing.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: (g - xhat * mean(g * xhat)) / sigma),
)
LAYER_NORM_BACKWARD.mistake(
    "one-over-sigma-forgotten",
    "The three terms of dx are never divided by sigma.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: three_terms(g, xhat, 1.0, mean)),
)
LAYER_NORM_BACKWARD.mistake(
    "divided-by-the-variance",
    "You divide dx by sigma squared. One factor is enough.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: three_terms(g, xhat, sigma**2, mean)),
)
LAYER_NORM_BACKWARD.mistake(
    "last-term-added",
    "The third term of dx is added. Both terms are taken away.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: (g - mean(g) + xhat * mean(g * xhat)) / sigma),
)
LAYER_NORM_BACKWARD.mistake(
    "x-hat-once",
    "In the third term x-hat stands only once: the mean of gradient times x-hat must be multiplied by x-hat again.",
    wrong_backward(dx=lambda g, xhat, sigma, mean: (g - mean(g) - mean(g * xhat)) / sigma),
)
LAYER_NORM_BACKWARD.mistake(
    "sums-in-dx",
    "In dx you add up over the features. The two inner terms are means: divide by d_model.",
    wrong_backward(mean=lambda a: a.sum(axis=-1, keepdims=True)),
)
LAYER_NORM_BACKWARD.mistake(
    "means-over-all-tokens",
    "The means inside dx run over the whole array. Each token needs its own.",
    wrong_backward(mean=np.mean),
)
LAYER_NORM_BACKWARD.mistake(
    "means-over-axis-0",
    "The means inside dx run along the first axis. They belong to one token: the last axis.",
    wrong_backward(mean=lambda a: a.mean(axis=0)),
)
LAYER_NORM_BACKWARD.mistake(
    "gamma-forgotten",
    "gamma is missing in dx: the gradient passes the scaling first, on its way back.",
    wrong_backward(incoming=lambda dy, gamma: dy),
)


@LAYER_NORM_BACKWARD.mistake(
    "gamma-last",
    "You multiply dx by gamma at the end. On the way back the scaling comes first, before the means are taken.",
)
def _(dy, x, gamma, eps=1e-5):
    dx, dgamma, dbeta = wrong_backward(incoming=lambda dy, gamma: dy)(dy, x, gamma, eps)
    return gamma * dx, dgamma, dbeta


LAYER_NORM_BACKWARD.mistake(
    "divided-by-gamma",
    "You divide by gamma. Backwards through a multiplication one multiplies again.",
    wrong_backward(incoming=lambda dy, gamma: dy / gamma),
)
LAYER_NORM_BACKWARD.mistake(
    "dgamma-dbeta-averaged",
    "dgamma and dbeta are averages over the tokens. Each token adds its share: sums.",
    wrong_backward(collect=np.mean),
)
LAYER_NORM_BACKWARD.mistake(
    "summed-over-axis-0-only",
    "You sum dgamma and dbeta over axis 0 only. That is enough for one sentence; a batch has one axis more.",
    wrong_backward(over=lambda x: 0),
)
LAYER_NORM_BACKWARD.mistake(
    "summed-over-features",
    "You sum dgamma and dbeta along the features: one number per token. Each feature needs one number, summed over tokens.",
    wrong_backward(over=lambda x: -1),
)
LAYER_NORM_BACKWARD.mistake(
    "summed-to-one-number",
    "You sum dgamma and dbeta to one number each. They are (d_model,), like gamma and beta.",
    wrong_backward(over=lambda x: None),
)
LAYER_NORM_BACKWARD.mistake(
    "not-summed",
    "dgamma and dbeta still have the shape of x. gamma and beta are shared by all tokens, so their shares are added up.",
    wrong_backward(over=lambda x: ()),
)


@LAYER_NORM_BACKWARD.mistake(
    "dgamma-not-summed",
    "dgamma still has the shape of x. gamma is shared by all tokens, so their shares are added up.",
)
def _(dy, x, gamma, eps=1e-5):
    dx, dgamma, _ = wrong_backward(over=lambda x: ())(dy, x, gamma, eps)
    return dx, dgamma, dy.reshape(-1, dy.shape[-1]).sum(axis=0)


LAYER_NORM_BACKWARD.mistake(
    "dgamma-from-x",
    "dgamma multiplies dy with x. gamma scaled the normalised numbers, so these belong there.",
    wrong_backward(factor=lambda x, centred, xhat: x),
)
LAYER_NORM_BACKWARD.mistake(
    "dgamma-from-centred",
    "dgamma multiplies dy with the centred numbers. gamma scaled them after the division by sigma.",
    wrong_backward(factor=lambda x, centred, xhat: centred),
)


@LAYER_NORM_BACKWARD.mistake(
    "dgamma-scaled-by-gamma",
    "gamma enters dgamma. The gradient of gamma times x-hat with respect to gamma does not hold gamma.",
)
def _(dy, x, gamma, eps=1e-5):
    dx, dgamma, dbeta = wrong_backward()(dy, x, gamma, eps)
    return dx, dgamma * gamma, dbeta


@LAYER_NORM_BACKWARD.mistake(
    "gamma-in-both",
    "dgamma and dbeta are built from dy times gamma. They need dy as it comes in.",
)
def _(dy, x, gamma, eps=1e-5):
    dx, dgamma, dbeta = wrong_backward()(dy, x, gamma, eps)
    return dx, dgamma * gamma, dbeta * gamma


LAYER_NORM_BACKWARD.mistake(
    "dgamma-dbeta-swapped",
    "dgamma and dbeta have changed places.",
    wrong_backward(answer=lambda dx, dgamma, dbeta: (dx, dbeta, dgamma)),
)
LAYER_NORM_BACKWARD.mistake(
    "dx-last",
    "You return dgamma, dbeta, dx. The order is dx, dgamma, dbeta.",
    wrong_backward(answer=lambda dx, dgamma, dbeta: (dgamma, dbeta, dx)),
)
LAYER_NORM_BACKWARD.mistake(
    "only-dx-returned",
    "You return dx alone. dgamma and dbeta are due as well, as a tuple of three.",
    wrong_backward(answer=lambda dx, dgamma, dbeta: dx),
)
LAYER_NORM_BACKWARD.mistake(
    "variance-d-1",
    "Your variance divides by d_model - 1.",
    wrong_backward(ddof=1),
)
LAYER_NORM_BACKWARD.mistake(
    "eps-fixed",
    "You always use 0.00001. The caller may pass another eps.",
    wrong_backward(divisor=lambda v, eps: np.sqrt(v + 1e-5)),
)
LAYER_NORM_BACKWARD.mistake(
    "eps-forgotten",
    "eps is not used.",
    wrong_backward(divisor=lambda v, eps: np.sqrt(v)),
)
LAYER_NORM_BACKWARD.mistake(
    "eps-outside-root",
    "You add eps after taking the root. It joins the variance, under the root.",
    wrong_backward(divisor=eps_outside),
)
LAYER_NORM_BACKWARD.mistake(
    "no-square-root",
    "Your sigma is the variance. The root is missing.",
    wrong_backward(divisor=no_root),
)


@LAYER_NORM_BACKWARD.mistake(
    "mean-of-squares",
    "You compute the variance as mean of squares minus square of mean. Around 100,000,000 the difference loses all its digits.",
)
def _(dy, x, gamma, eps=1e-5):
    variance = (x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2
    sigma = np.sqrt(np.maximum(variance, 0) + eps)
    xhat = (x - x.mean(axis=-1, keepdims=True)) / sigma
    leading = tuple(range(x.ndim - 1))
    dx = three_terms(dy * gamma, xhat, sigma, lambda a: a.mean(axis=-1, keepdims=True))
    return dx, (dy * xhat).sum(axis=leading), dy.sum(axis=leading)


@LAYER_NORM_BACKWARD.mistake(
    "changes-dy",
    "You multiply the caller's dy by gamma in place. Use a new array.",
)
def _(dy, x, gamma, eps=1e-5):
    answer = wrong_backward()(dy, x, gamma, eps)
    dy *= gamma
    return answer


@LAYER_NORM_BACKWARD.mistake(
    "changes-dy+gamma-in-both",
    "Two things. You multiply the caller's dy by gamma in place, and dgamma and dbeta are then built from the changed array.",
)
def _(dy, x, gamma, eps=1e-5):
    dx, dgamma, dbeta = wrong_backward()(dy, x, gamma, eps)
    dy *= gamma
    return dx, dgamma * gamma, dbeta * gamma


LAYER_NORM_BACKWARD.pair(
    "sigma-constant", "gamma-forgotten", wrong_backward(dx=sigma_constant, incoming=lambda dy, gamma: dy)
)
LAYER_NORM_BACKWARD.pair(
    "sigma-constant", "dgamma-dbeta-averaged", wrong_backward(dx=sigma_constant, collect=np.mean)
)
LAYER_NORM_BACKWARD.pair(
    "sigma-constant", "summed-over-axis-0-only", wrong_backward(dx=sigma_constant, over=lambda x: 0)
)
LAYER_NORM_BACKWARD.pair(
    "mu-and-sigma-constant",
    "summed-over-axis-0-only",
    wrong_backward(dx=lambda g, xhat, sigma, mean: g / sigma, over=lambda x: 0),
)
LAYER_NORM_BACKWARD.pair(
    "gamma-forgotten",
    "summed-over-axis-0-only",
    wrong_backward(incoming=lambda dy, gamma: dy, over=lambda x: 0),
)
LAYER_NORM_BACKWARD.pair(
    "dgamma-from-x",
    "summed-over-axis-0-only",
    wrong_backward(factor=lambda x, centred, xhat: x, over=lambda x: 0),
)
LAYER_NORM_BACKWARD.pair("variance-d-1", "summed-over-axis-0-only", wrong_backward(ddof=1, over=lambda x: 0))


@LAYER_NORM_BACKWARD.variant
def _(dy, x, gamma, eps=1e-5):
    """The formula in sums: one bracket, divided by d_model times sigma."""
    d = x.shape[-1]
    c = x - np.mean(x, -1)[..., None]
    sigma = np.sqrt(np.var(x, -1)[..., None] + eps)
    h = c / sigma
    g = gamma * dy
    dx = (d * g - g.sum(-1)[..., None] - h * (g * h).sum(-1)[..., None]) / (d * sigma)
    return dx, (dy * h).reshape(-1, d).sum(0), dy.reshape(-1, d).sum(0)


@LAYER_NORM_BACKWARD.variant
def _(dy, x, gamma, eps=1e-5):
    """Token by token, with the Jacobian matrix of 2.4."""
    d = x.shape[-1]
    rows, gradients = x.reshape(-1, d), dy.reshape(-1, d)
    dx, dgamma, dbeta = np.zeros(rows.shape), np.zeros(d), np.zeros(d)
    for i, (row, gradient) in enumerate(zip(rows, gradients)):
        c = row - row.mean()
        sigma = np.sqrt(c @ c / d + eps)
        h = c / sigma
        J = (np.eye(d) - np.ones((d, d)) / d - np.outer(h, h) / d) / sigma
        dx[i] = (gradient * gamma) @ J
        dgamma += gradient * h
        dbeta += gradient
    print("tokens:", len(rows))
    return dx.reshape(x.shape), dgamma, dbeta


@LAYER_NORM_BACKWARD.variant
def _(dy, x, gamma, eps=1e-5):
    """The computation graph, step by step backwards: scale, divide, variance, centre."""
    d = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    inverse = (np.square(centred).mean(-1, keepdims=True) + eps) ** -0.5
    g = dy * gamma
    d_inverse = np.einsum("...i,...i->...", g, centred)[..., None]
    d_variance = -0.5 * inverse**3 * d_inverse
    d_centred = g * inverse + d_variance * 2 * centred / d
    dx = d_centred - d_centred.mean(-1, keepdims=True)
    return dx, (dy * centred * inverse).reshape(-1, d).sum(0), dy.reshape(-1, d).sum(0)


# ------------------------------------------------------------------------------------------ 2.8

COULD_BE_LAYER_NORM = Exercise(
    number="2.8",
    title="A detector for numbers that cannot be true",
    level="hard",
    difficulty=4,
    minutes=16,
    core=True,
    why="You can prove from its printed numbers alone that the published example is wrong, and test any other page in the same way.",
    budget="Five lines are enough.",
    hints=(
        "A printed entry stands for an interval. If every entry may move by half a unit of its last place, how far can "
        "their mean move? And how far can the mean of their squares move?",
        "rows is (n, d). Mean, smallest and largest possible mean of squares are (n,). The two answers, mean possible and "
        "variance possible, are (n,) of True and False, and so is the result.",
        "half: 0.5 times ten to the power minus decimals. mean possible: absolute mean at most half. smallest: mean of "
        "(absolute entry minus half, never below 0) squared; largest: mean of (absolute entry plus half) squared. variance "
        "possible: smallest at most 1 and largest at least 1. Both must hold.",
    ),
)


@COULD_BE_LAYER_NORM.reference
def could_be_layer_norm(rows: np.ndarray, decimals: int) -> np.ndarray:
    """Which printed rows can be the output of a layer norm with gamma = 1, beta = 0 and a tiny eps.

    rows     : (n, d), each entry rounded to `decimals` places
    decimals : int, so every entry may be off by half a unit of its last place
    returns  : (n,) bool; True where numbers within that reach have mean 0 and variance 1

    It is enough to test the mean and the variance one after the other: no single set of numbers
    needs to be found.

    >>> rows = np.array([[1.0, -1.0], [1.2, -0.8], [1.1, -1.1]])
    >>> could_be_layer_norm(rows, 1)
    array([ True, False, False])
    """
    half = 0.5 * 10.0**-decimals
    mean_fits = np.abs(rows.mean(axis=-1)) <= half
    smallest = (np.maximum(np.abs(rows) - half, 0) ** 2).mean(axis=-1)
    largest = ((np.abs(rows) + half) ** 2).mean(axis=-1)
    return mean_fits & (smallest <= 1) & (largest >= 1)


def reach(rows: np.ndarray, decimals: int) -> tuple[np.ndarray, np.ndarray]:
    """How far the mean of each row is from 0 and the variance from 1, in units of what rounding can explain."""
    half = 0.5 * 10.0**-decimals
    mean = rows.mean(axis=-1)
    from_mean = rows - mean[..., None]
    variance = (from_mean**2).mean(axis=-1)
    variance_reach = 2 * half * np.abs(from_mean).mean(axis=-1) + half**2
    return np.abs(mean) / half, np.abs(variance - 1) / variance_reach


def normalised(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows that a layer norm with eps = 0 gives. shape : (..., d)"""
    x = rng.normal(size=shape)
    x -= x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True))


def drawn_until(make: Callable[[], np.ndarray], fits: Callable[[np.ndarray], bool]) -> np.ndarray:
    """The first row made that fits. Far from every border, so that any right test says the same."""
    while True:
        row = make()
        if fits(row):
            return row


def are_possible(rows: np.ndarray, decimals: int) -> np.ndarray:
    """Which rows rounding can explain with room to spare. rows : (..., d)"""
    mean, variance = reach(rows, decimals)
    return (mean < 0.9) & (variance < 0.9)


def possible(rng: np.random.Generator, d: int, decimals: int) -> np.ndarray:
    return drawn_until(lambda: normalised(rng, d).round(decimals), lambda row: are_possible(row, decimals))


def one_entry_moved(rng: np.random.Generator, d: int, decimals: int) -> np.ndarray:
    """A possible row with one entry moved by max(5, d) units of its last place."""

    def make():
        row = possible(rng, d, decimals)
        row[rng.integers(d)] += rng.choice([-1, 1]) * max(5, d) * 10.0**-decimals
        return row.round(decimals)

    return drawn_until(make, lambda row: reach(row, decimals)[0] > 1.25)


def wrong_variance(rng: np.random.Generator, d: int, decimals: int, scale: float | None = None) -> np.ndarray:
    """A row whose mean is possible and whose variance is not."""

    def make():
        factor = scale or rng.choice([rng.uniform(0.7, 0.9), rng.uniform(1.1, 1.3)])
        return (factor * normalised(rng, d)).round(decimals)

    def fits(row):
        mean, variance = reach(row, decimals)
        return mean < 0.9 and variance > 2

    return drawn_until(make, fits)


def wrong_mean(rng: np.random.Generator, d: int, decimals: int, least: int = 3, most: int = 40) -> np.ndarray:
    """A row whose variance is possible and whose mean is not, by about `least` up to `most` units of the last place."""

    def make():
        units = rng.choice([-1, 1]) * rng.integers(least, most)
        return (normalised(rng, d) + units * 10.0**-decimals).round(decimals)

    def fits(row):
        mean, variance = reach(row, decimals)
        return mean > 2 and variance < 0.9

    return drawn_until(make, fits)


def mean_just_outside(rng: np.random.Generator, d: int, decimals: int) -> np.ndarray:
    """A row whose mean a whole unit of the last place would explain, but half a unit does not."""

    def make():
        row = possible(rng, d, decimals)
        row[rng.integers(d)] += round(0.75 * d) * 10.0**-decimals
        return row.round(decimals)

    def fits(row):
        mean, variance = reach(row, decimals)
        return 1.25 < mean < 1.75 and variance < 0.9

    return drawn_until(make, fits)


def variance_far_but_inside(rng: np.random.Generator, d: int, decimals: int) -> np.ndarray:
    """A possible row whose variance is off by more than half a unit: squares move further than entries."""
    half = 0.5 * 10.0**-decimals
    while True:  # they are rare, so many rows are tried at once
        rows = normalised(rng, 256, d).round(decimals)
        fitting = are_possible(rows, decimals) & (np.abs(rows.var(axis=-1) - 1) > 1.05 * half)
        if fitting.any():
            return rows[fitting.argmax()]


def variance_just_outside(rng: np.random.Generator, d: int, decimals: int) -> np.ndarray:
    """A row whose variance a whole unit of the last place in every entry would explain, but half a unit does not."""
    unit = 10.0**-decimals

    def make():
        variance = 1 + rng.choice([-1, 1]) * 1.3 * unit
        return (np.sqrt(variance) * normalised(rng, d)).round(decimals)

    def fits(row):
        mean, variance = reach(row, decimals)
        return mean < 0.9 and variance < 1.8 and abs(row.var() - 1) > 1.1 * unit

    return drawn_until(make, fits)


def mixed(rng: np.random.Generator, rows: list[np.ndarray], decimals: int) -> Question:
    """The rows in random order, as one case."""
    return ask(rng.permutation(np.array(rows)), decimals)


PUBLISHED = [
    [1.54, 0.16, -1.36, -0.34],
    [0.40, -0.52, 1.38, -1.26],
    [1.56, 0.10, -1.21, -0.18],
    [0.38, -0.46, 1.40, -1.22],
]
CORRECTED = [
    [1.47, 0.15, -1.30, -0.32],
    [0.41, -0.65, 1.42, -1.18],
    [1.52, 0.00, -1.28, -0.25],
    [0.35, -0.61, 1.45, -1.19],
]


@COULD_BE_LAYER_NORM.worked("the published rows are impossible, the right ones are not", 0.6)
def _():
    yield ask(np.array(PUBLISHED), 2)
    yield ask(np.array(CORRECTED), 2)


@COULD_BE_LAYER_NORM.must("normalised rows, and rows with one entry moved", 1.6)
def moved_rows(rng):
    yield mixed(rng, [possible(rng, 4, 2), possible(rng, 4, 2)], 2)
    for d, decimals in [(4, 2), (6, 3), (8, 4), (5, 2)]:
        rows = [make(rng, d, decimals) for make in (possible, one_entry_moved) for _ in range(3)]
        yield mixed(rng, rows, decimals)


@COULD_BE_LAYER_NORM.must("rows whose mean is right and whose variance is not", 1.0)
def wrong_variances(rng):
    for d, decimals in [(4, 2), (6, 3)]:
        rows = [make(rng, d, decimals) for make in (possible, wrong_variance) for _ in range(2)]
        rows += [wrong_variance(rng, d, decimals, scale) for scale in (np.sqrt((d - 1) / d), np.sqrt(1 / d))]
        yield mixed(rng, rows, decimals)


@COULD_BE_LAYER_NORM.must("rows whose variance is right and whose mean is not", 1.0)
def wrong_means(rng):
    for d, decimals in [(4, 2), (6, 3)]:
        rows = [possible(rng, d, decimals) for _ in range(3)]
        # off by little too, so that an allowance that forgets the decimals is always seen
        rows += [wrong_mean(rng, d, decimals, *span) for span in ((3, 6), (7, 15), (16, 40))]
        rows.append(wrong_variance(rng, d, decimals, np.sqrt((d - 1) / d)) + 20 * 10.0**-decimals)
        yield mixed(rng, rows, decimals)


@COULD_BE_LAYER_NORM.must("rows of 2 up to 64 numbers", 0.8)
def widths(rng):
    for d in (2, 3, 16, 64):
        decimals = int(rng.integers(2, 5))
        rows = [possible(rng, d, decimals), possible(rng, d, decimals)]
        rows += [make(rng, d, decimals) for make in (one_entry_moved, wrong_mean, wrong_variance)]
        yield mixed(rng, rows, decimals)


@COULD_BE_LAYER_NORM.must("half a unit of the last place is the allowance, in every entry", 0.6)
def near_the_allowance(rng):
    for decimals in (2, 3):
        rows = [mean_just_outside(rng, 8, decimals) for _ in range(2)]
        rows += [variance_far_but_inside(rng, 8, decimals) for _ in range(2)]
        rows += [variance_just_outside(rng, 8, decimals) for _ in range(2)]
        rows.append(wrong_variance(rng, 8, decimals))
        yield mixed(rng, rows, decimals)
    # whole numbers: an entry printed as 0 cannot be closer to 0 than 0
    yield mixed(rng, [np.array([2.0, -2.0, 0.0, 0.0, 0.0]), np.array([5.0, -5.0, 0.0, 0.0, 0.0])], 0)


@COULD_BE_LAYER_NORM.must("integers work like floats", 0.2)
def whole_rows(rng):
    yield ask(
        rng.permutation(
            np.array([[1, -1, 1, -1], [-1, -1, 1, 1], [2, -2, 0, 0], [1, 1, 1, -3], [2, 0, 2, 0]])
        ),
        2,
    )


COULD_BE_LAYER_NORM.leaves_inputs_alone(0.2, lambda rng: [next(iter(moved_rows(rng)))])


def mean_fits(rows: np.ndarray, half: float) -> np.ndarray:
    return np.abs(rows.mean(axis=-1)) <= half


def variance_fits(rows: np.ndarray, half: float, ddof: int = 0) -> np.ndarray:
    """Whether the standard deviation can be 1: it moves by no more than every entry does."""
    return np.abs(rows.std(axis=-1, ddof=ddof) - 1) <= half


def squares_fit(rows: np.ndarray, allowed: float) -> np.ndarray:
    """Whether the mean of squares can be 1 where every entry may move by `allowed`."""
    smallest = np.maximum(np.abs(rows) - allowed, 0) ** 2
    largest = (np.abs(rows) + allowed) ** 2
    return (smallest.mean(axis=-1) <= 1) & (largest.mean(axis=-1) >= 1)


def wrong_detector(
    *,
    mean: Callable = mean_fits,
    variance: Callable = variance_fits,
    half: Callable = lambda decimals: 0.5 * 10.0**-decimals,
    join: Callable = np.logical_and,
) -> Callable:
    """The detector with slips. With no switch set it is right."""

    def wrong(rows, decimals):
        return join(mean(rows, half(decimals)), variance(rows, half(decimals)))

    return wrong


def always(rows: np.ndarray, half: float) -> np.ndarray:
    return np.ones(len(rows), dtype=bool)


COULD_BE_LAYER_NORM.mistake(
    "mean-only",
    "You test the mean only. The variance must be possible as well.",
    wrong_detector(variance=always),
)
COULD_BE_LAYER_NORM.mistake(
    "variance-only",
    "You test the variance only. The mean must be possible as well.",
    wrong_detector(mean=always),
)
COULD_BE_LAYER_NORM.mistake(
    "one-test-is-enough",
    "You accept a row as soon as one of the two tests holds. Both must.",
    wrong_detector(join=np.logical_or),
)
COULD_BE_LAYER_NORM.mistake(
    "past-zero",
    "An entry closer to 0 than half a unit moves past 0, and its square grows again. The smallest square is then 0.",
    wrong_detector(
        variance=lambda rows, half: (
            (((np.abs(rows) - half) ** 2).mean(axis=-1) <= 1)
            & (((np.abs(rows) + half) ** 2).mean(axis=-1) >= 1)
        )
    ),
)
COULD_BE_LAYER_NORM.mistake(
    "no-allowance",
    "You ask for a mean of 0 and a variance of 1 as if the numbers had not been rounded. Almost every printed row fails that.",
    wrong_detector(half=lambda decimals: 1e-8),
)
COULD_BE_LAYER_NORM.mistake(
    "variance-d-1",
    "Your variance divides by d - 1. A layer norm makes the other one equal to 1.",
    wrong_detector(variance=lambda rows, half: variance_fits(rows, half, ddof=1)),
)
COULD_BE_LAYER_NORM.mistake(
    "whole-unit",
    "You allow a whole unit of the last place. Rounding moves an entry by at most half a unit.",
    wrong_detector(half=lambda decimals: 10.0**-decimals),
)
COULD_BE_LAYER_NORM.mistake(
    "whole-unit-for-the-variance",
    "In the test of the variance every entry may move by a whole unit of the last place. Rounding moves it by at most half a unit.",
    wrong_detector(variance=lambda rows, half: squares_fit(rows, 2 * half)),
)
COULD_BE_LAYER_NORM.mistake(
    "whole-unit-for-the-deviation",
    "You allow the standard deviation a whole unit of the last place. It moves no further than an entry: half a unit.",
    wrong_detector(variance=lambda rows, half: variance_fits(rows, 2 * half)),
)
COULD_BE_LAYER_NORM.mistake(
    "allowance-of-0.01",
    "You always allow 0.01. How much rounding can move depends on decimals.",
    wrong_detector(half=lambda decimals: 0.01),
)
COULD_BE_LAYER_NORM.mistake(
    "allowance-for-two-decimals",
    "You always allow half a unit of the second place. How much rounding can move depends on decimals.",
    wrong_detector(half=lambda decimals: 0.005),
)
COULD_BE_LAYER_NORM.mistake(
    "allowance-of-0.001",
    "You always allow 0.001. How much rounding can move depends on decimals.",
    wrong_detector(half=lambda decimals: 0.001),
)
COULD_BE_LAYER_NORM.mistake(
    "sum-within-half-a-unit",
    "You ask the sum of a row to be within half a unit of 0. d entries can move d times as far together.",
    wrong_detector(mean=lambda rows, half: np.abs(rows.sum(axis=-1)) <= half),
)
COULD_BE_LAYER_NORM.mistake(
    "sum-not-mean-of-squares",
    "You compare the sum of the squared distances with 1. The variance is their mean.",
    wrong_detector(
        variance=lambda rows, half: np.abs(np.sqrt(rows.shape[-1]) * rows.std(axis=-1) - 1) <= half
    ),
)
COULD_BE_LAYER_NORM.mistake(
    "variance-within-half-a-unit",
    "You allow the variance half a unit. Squares move further than the entries themselves: a distance of 1 that grows "
    "by h has a square that grows by about 2 h.",
    wrong_detector(variance=lambda rows, half: np.abs(rows.var(axis=-1) - 1) <= half),
)
COULD_BE_LAYER_NORM.mistake(
    "answers-the-opposite",
    "You answer True where a row is impossible. True means that it can be a layer norm's output.",
    wrong_detector(join=lambda mean, variance: ~(mean & variance)),
)
COULD_BE_LAYER_NORM.mistake(
    "one-answer-for-all",
    "You return one answer for the whole array. Each row needs its own.",
    wrong_detector(join=lambda mean, variance: np.all(mean & variance)),
)
COULD_BE_LAYER_NORM.mistake(
    "one-answer-repeated",
    "All rows get the same answer: the tests are joined over the rows. Each row needs its own.",
    wrong_detector(join=lambda mean, variance: np.full(len(mean), np.all(mean & variance))),
)


@COULD_BE_LAYER_NORM.mistake(
    "statistics-of-all-rows",
    "You take one mean and one variance of the whole array. Each row has its own.",
)
def _(rows, decimals):
    half = 0.5 * 10.0**-decimals
    return np.full(len(rows), abs(rows.mean()) <= half and abs(rows.std() - 1) <= half)


@COULD_BE_LAYER_NORM.mistake(
    "columns",
    "You test the columns. Each row is one output of the norm.",
)
def _(rows, decimals):
    return wrong_detector()(rows.T, decimals)


COULD_BE_LAYER_NORM.pair(
    "mean-only", "no-allowance", wrong_detector(variance=always, half=lambda decimals: 1e-8)
)
COULD_BE_LAYER_NORM.pair(
    "variance-d-1",
    "no-allowance",
    wrong_detector(variance=lambda rows, half: variance_fits(rows, half, ddof=1), half=lambda decimals: 1e-8),
)
COULD_BE_LAYER_NORM.pair(
    "mean-only", "whole-unit", wrong_detector(variance=always, half=lambda decimals: 10.0**-decimals)
)
COULD_BE_LAYER_NORM.pair(
    "variance-only",
    "variance-d-1",
    wrong_detector(mean=always, variance=lambda r, h: variance_fits(r, h, ddof=1)),
)


@COULD_BE_LAYER_NORM.variant
def _(rows, decimals):
    """Mean and standard deviation: neither can move further than the entries do."""
    h = 0.5 * 10.0**-decimals
    print("allowance", h)
    return (abs(rows.mean(1)) <= h) & (abs(rows.std(1) - 1) <= h)


@COULD_BE_LAYER_NORM.variant
def _(rows, decimals):
    """Row by row; the variance may move by twice the mean distance times half a unit."""
    h = 0.5 / 10**decimals
    answers = []
    for row in rows:
        mean = sum(row) / len(row)
        distances = [abs(entry - mean) for entry in row]
        variance = sum(distance**2 for distance in distances) / len(row)
        allowed = 2 * h * sum(distances) / len(row) + h * h
        answers.append(bool(abs(mean) <= h and abs(variance - 1) <= allowed))
    return answers


@COULD_BE_LAYER_NORM.variant
def _(rows, decimals):
    """The exact test: among all numbers in reach with mean 0, the smallest and the largest mean of squares must enclose 1."""
    h = 0.5 * 10.0**-decimals
    answers = np.zeros(len(rows), dtype=bool)
    for i, row in enumerate(np.asarray(rows, dtype=float)):
        if abs(row.mean()) > h:
            continue
        # smallest: every entry moves towards 0 by one common pull, cut off at h
        low, high = -10.0, 10.0
        for _ in range(200):
            pull = (low + high) / 2
            if np.clip(pull, row - h, row + h).sum() > 0:
                high = pull
            else:
                low = pull
        smallest = (np.clip(pull, row - h, row + h) ** 2).mean()
        # largest: all but one entry at an end of its interval, the largest entries upwards
        ordered = np.sort(row)
        largest = 0.0
        for ups in range(len(row)):
            point = ordered - h
            point[len(row) - ups :] += 2 * h
            k = len(row) - ups - 1
            point[k] -= point.sum()
            if abs(point[k] - ordered[k]) <= h + 1e-12:
                largest = max(largest, (point**2).mean())
        answers[i] = smallest <= 1 + 1e-12 and largest >= 1 - 1e-12
    return answers


# ------------------------------------------------------------------------------------------ 2.9

BREAKING_INPUTS = Exercise(
    number="2.9",
    title="Four inputs that expose four wrong norms",
    level="hard",
    difficulty=4,
    minutes=18,
    core=False,
    why="A wrong norm gives reasonable numbers on most inputs; whoever knows which inputs expose it can test any code.",
    budget="One dict of four small arrays.",
    hints=(
        "For each wrong norm: what does it divide by, and what should it divide by? When are the two far apart: for few or "
        "many numbers, small or large ones, one token or several, close to 0 or far from it?",
        "d_minus_1: (2,) is enough. eps_outside: (2,). all_tokens: at least two tokens, so (2, 2). mean_of_squares: (4,). "
        "Every array needs a row that is not constant.",
        "d_minus_1: as few numbers as possible. eps_outside: a standard deviation of the size of eps or of its root. "
        "all_tokens: tokens whose means lie far apart. mean_of_squares: numbers so large that their squares cannot show "
        "the small distances between them.",
    ),
    view=View(exposed, own=("layer_norm",)),
)
WRONG_NORMS = ("d_minus_1", "eps_outside", "all_tokens", "mean_of_squares")


@BREAKING_INPUTS.reference
def breaking_inputs() -> dict[str, np.ndarray]:
    """For each of four wrong layer norms an input that exposes it.

    returns : dict with the keys below; each value is an array (..., d_model) of at most 1000
              finite numbers, on which the wrong norm's answer differs from the right one by
              more than 0.1 somewhere (gamma = 1, beta = 0, eps = 1e-5)

    d_minus_1       : its variance divides by d_model - 1
    eps_outside     : it divides by (root of the variance) + eps
    all_tokens      : all tokens share one mean and one variance
    mean_of_squares : its variance is mean of x^2 minus square of the mean, in float64, never below 0

    >>> sorted(breaking_inputs())
    ['all_tokens', 'd_minus_1', 'eps_outside', 'mean_of_squares']
    """
    return {
        "d_minus_1": np.array([1.0, -1.0]),  # with two numbers the divisor is off by the root of 2
        "eps_outside": np.array([0.001, -0.001]),  # eps is far smaller than its root
        "all_tokens": np.array([[0.0, 1.0], [10.0, 11.0]]),  # the tokens' means lie far apart
        "mean_of_squares": 1e9 + np.array([0.0, 1.0, 2.0, 3.0]),  # the squares are multiples of 128
    }


for norm in WRONG_NORMS:
    BREAKING_INPUTS.must(f"the input for {norm} exposes it", 1.5)(
        lambda rng, norm=norm: [replace(ask(), about={"wrong norm": norm})]
    )

BREAKING = breaking_inputs()
ORDINARY = np.linspace(-1.0, 1.0, 64)  # exposes none of the four
FAR_MEANS = np.array([np.linspace(0.0, 1.0, 16), np.linspace(10.0, 11.0, 16)])  # exposes all_tokens only
CONSTANT = np.full((2, 3), 3.0)


def breaking_inputs_but(changed: dict[str, np.ndarray]) -> Callable:
    """Right inputs, except for some wrong norms."""
    return lambda: BREAKING | changed


for count in range(1, len(WRONG_NORMS) + 1):
    for missed in itertools.combinations(WRONG_NORMS, count):
        BREAKING_INPUTS.mistake(
            "-".join(("exposes-another", *missed))
            if count < len(WRONG_NORMS)
            else "exposes-another-everywhere",
            f"Your input for {', '.join(missed)} exposes another wrong norm, but not the one it is for. "
            "One input for all is not enough; ask for each one when its divisor goes astray.",
            breaking_inputs_but(
                {n: FAR_MEANS if n != "all_tokens" else BREAKING["d_minus_1"] for n in missed}
            ),
        )

for norms in [*((norm,) for norm in WRONG_NORMS), WRONG_NORMS]:
    place = norms[0] if len(norms) == 1 else "everywhere"
    where = f"the input for {place}" if len(norms) == 1 else "every input"
    BREAKING_INPUTS.mistake(
        f"ordinary-{place}",
        f"To {where} the right norm and the wrong ones give almost the same. Ordinary numbers hide these mistakes: go to an "
        "extreme, of width, size, offset or spread.",
        breaking_inputs_but(dict.fromkeys(norms, ORDINARY)),
    )
    BREAKING_INPUTS.mistake(
        f"constant-{place}",
        f"In {where} every row is constant. Then nothing is left after centring, and every norm gives zeros.",
        breaking_inputs_but(dict.fromkeys(norms, CONSTANT)),
    )
    BREAKING_INPUTS.mistake(
        f"not-finite-{place}",
        f"There is nan or infinity in {where}. Any norm fails on that, the right one too; it shows nothing.",
        breaking_inputs_but(dict.fromkeys(norms, np.array([1.0, np.nan, np.inf]))),
    )
    BREAKING_INPUTS.mistake(
        f"too-many-numbers-{place}",
        f"There are more than 1000 numbers in {where}. Small inputs expose these mistakes just as well.",
        breaking_inputs_but(dict.fromkeys(norms, np.zeros((40, 40)))),
    )

BREAKING_INPUTS.mistake(
    "keys",
    "The four inputs were not found. Return a dict with exactly the four keys of the docstring.",
    lambda: dict(zip(("d-1", "eps", "all", "squares"), BREAKING.values())),
)


@BREAKING_INPUTS.variant
def _():
    """Other extremes: a wide spread, tiny numbers, tokens on two scales, a large offset."""
    rng = np.random.default_rng(2)
    print("looking for extremes")
    return {
        "d_minus_1": 1e3 * rng.normal(size=(5, 3)),
        "eps_outside": 1e-4 * rng.normal(size=(2, 6)),
        "all_tokens": np.array([[1.0, -1.0, 0.0], [100.0, -100.0, 0.0]]),
        "mean_of_squares": 1e10 + rng.normal(size=(3, 7)),
    }


@BREAKING_INPUTS.variant
def _():
    """Whole numbers and nested lists."""
    return {
        "mean_of_squares": [10**10, 10**10 + 1, 10**10 + 5],
        "all_tokens": [[0, 1, 2], [7, 8, 9]],
        "eps_outside": [[0.002, 0.0, 0.001], [0.0, 0.0, 0.0]],
        "d_minus_1": [3, 5],
    }


@BREAKING_INPUTS.variant
def _():
    """One array for the first three: two tiny tokens of two numbers, far apart for their size."""
    tiny = np.array([[0.0, 0.02], [1.0, 1.02]])
    return dict(
        d_minus_1=tiny,
        eps_outside=tiny / 50,
        all_tokens=tiny,
        mean_of_squares=np.linspace(3e9, 3e9 + 10, 11).reshape(1, 1, 11),
    )
