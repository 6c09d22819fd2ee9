"""Lesson 5: assembling the block.

The wrong blocks of 5.5, 5.6 and 5.8 come from one table of forms (which box stands where) and from
slipped tools (a norm, an FFN, an attention with a flaw); so do many pairs of mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from autograder.exercise import Call, Exercise, Question, View, ask, steps
from autograder.exercises.ffn_memory import ffn
from autograder.exercises.layer_norm import layer_norm
from course.questions import Given, Own, Rng
from course.views import added_to_input, drawn_from_generator, dropout_pattern
from course.worked_example import WEIGHTS_H, X

Array = np.ndarray

# ------------------------------------------------------------------------------------------ 5.1

SOFTMAX = Exercise(
    number="5.1",
    title="Softmax, so that large scores survive",
    level="easy",
    difficulty=1,
    minutes=6,
    core=True,
    why="It turns a row of scores into shares that sum to 1; every head of every block calls it.",
    budget="Two lines are enough.",
    hints=(
        "exp(1000) is too large for any float. Adding the same number to all scores of a row does not change "
        "their shares. Which number would you add so that the largest exponent becomes 0?",
        "s is (..., n). The largest score along `axis` is kept as an axis of length 1, so is the sum of the "
        "exponentials. The result has the shape of s.",
        "shifted: s minus its maximum along axis, axis kept. weights: exp of shifted. result: weights divided by "
        "their sum along axis, axis kept.",
    ),
)


@SOFTMAX.reference
def softmax(s: np.ndarray, axis: int = -1) -> np.ndarray:
    """Turn scores into shares: positive numbers that sum to 1 along one axis.

    s       : (...), scores of any size; -inf means "never", and its share is exactly 0
    axis    : the axis along which the shares sum to 1
    returns : the shape of s

    Scores such as 10000 or -10000 must not overflow. s is not changed. A row of only -inf does not occur.

    >>> softmax(np.array([[np.log(3), 0.0], [0.0, 0.0]]))
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """
    weights = np.exp(s - s.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


@SOFTMAX.worked("the scores ((ln 3, 0), (0, 0)) of the worked example", 0.1, decimals=6)
def _():
    yield ask(np.array([[np.log(3), 0.0], [0.0, 0.0]]))


@SOFTMAX.must("right shares along the last axis", 0.7)
def last_axis(rng):
    for shape in [(3,), (4, 4), (2, 5), (2, 3, 4), (2, 2, 3, 3)]:
        yield ask(2 * rng.normal(size=shape))


@SOFTMAX.must("right shares along another axis", 0.3)
def other_axis(rng):
    yield ask(rng.normal(size=(3, 2)), 0)
    yield ask(rng.normal(size=(4, 4)), axis=0)
    yield ask(rng.normal(size=(2, 3, 4)), axis=1)
    yield ask(rng.normal(size=(3, 3, 3)), axis=-2)


@SOFTMAX.must("scores around 10,000 and around -10,000", 0.3)
def far_scores(rng):
    for size in (1e4, -1e4):
        yield ask(size + rng.integers(-3, 4, size=3).astype(float))
    yield ask(np.array([1e4, -1e4, 1e4 - 1.0]))


@SOFTMAX.must("rows whose scores lie far from each other's", 0.2)
def far_rows(rng):
    yield ask(rng.integers(-3, 4, size=(3, 2)) + np.array([[2000.0], [0.0], [-2000.0]]))


@SOFTMAX.must("a score of -inf gets the share 0", 0.1)
def minus_infinity(rng):
    s = rng.normal(size=(3, 4))
    s[[0, 1, 2], [1, 3, 0]] = -np.inf
    yield ask(s)


@SOFTMAX.must("integers work like floats", 0.1)
def integer_scores(rng):
    yield ask(rng.integers(-3, 4, size=(2, 3)))


SOFTMAX.leaves_inputs_alone(0.2, last_axis)


def row_max(s: Array, axis: int) -> Array:
    return s.max(axis=axis, keepdims=True)


def row_sum(weights: Array, axis: int) -> Array:
    return weights.sum(axis=axis, keepdims=True)


def wrong_softmax(
    *, shift=row_max, power=np.exp, total=row_sum, along=lambda axis, s: axis, end=lambda y: y
) -> Callable:
    """A softmax with slips: another shift, another power, another total, another axis, something done at the end."""

    def wrong(s, axis=-1):
        axis = along(axis, s)
        weights = power(s - shift(s, axis))
        return end(weights / total(weights, axis))

    return wrong


def no_shift(s: Array, axis: int) -> Array:
    return np.zeros(())


def whole_sum(weights: Array, axis: int) -> Array:
    return weights.sum()


def always_last(axis: int, s: Array) -> int:
    return -1


SOFTMAX.mistake(
    "no-max",
    "The exponential is taken of the scores as they are. exp(1000) is infinite, and infinity divided by infinity is nan.",
    wrong_softmax(shift=no_shift),
)
SOFTMAX.mistake(
    "global-max",
    "You subtract one maximum for the whole array. A row that lies far below it becomes all zeros, and 0/0 is nan. "
    "Each row needs its own.",
    wrong_softmax(shift=lambda s, axis: s.max()),
)
SOFTMAX.mistake(
    "mean-shift",
    "You subtract the mean, which leaves exponents that may still be large. Which shift makes sure that no exponent is above 0?",
    wrong_softmax(shift=lambda s, axis: s.mean(axis=axis, keepdims=True)),
)
SOFTMAX.mistake(
    "absolute-max",
    "You subtract the largest absolute value. For a row of large negative scores every exponential becomes 0, and 0/0 is nan.",
    wrong_softmax(shift=lambda s, axis: np.abs(np.where(np.isinf(s), 0, s)).max(axis=axis, keepdims=True)),
)
SOFTMAX.mistake(
    "minimum-shift",
    "You subtract the smallest score of the row, so the largest exponent grows instead of becoming 0.",
    wrong_softmax(shift=lambda s, axis: np.where(np.isinf(s), np.inf, s).min(axis=axis, keepdims=True)),
)
SOFTMAX.mistake(
    "clipped-scores",
    "Scores are clipped, so two different large scores get the same share. Shift the row instead of cutting it.",
    lambda s, axis=-1: wrong_softmax(shift=no_shift)(np.clip(s, -500, 500), axis),
)
SOFTMAX.mistake(
    "global-sum",
    "You divide by the sum over the whole array. The shares of each row must sum to 1 by themselves.",
    wrong_softmax(total=whole_sum),
)
SOFTMAX.mistake(
    "axis-ignored",
    "The argument axis is not used: you always work along the last axis.",
    wrong_softmax(along=always_last),
)
SOFTMAX.mistake(
    "axis-0",
    "You always work along axis 0, the first one, whatever axis says.",
    wrong_softmax(along=lambda axis, s: 0),
)
SOFTMAX.mistake(
    "axis-1",
    "Axis 1 is written into the function. That is the last axis of a 2-D array only; use the argument axis.",
    wrong_softmax(along=lambda axis, s: 1),
)
SOFTMAX.mistake(
    "keepdims-forgotten",
    "The sum has lost its axis, so on a square array it lines up with the wrong one, and elsewhere the shapes clash.",
    wrong_softmax(total=lambda weights, axis: weights.sum(axis=axis)),
)
SOFTMAX.mistake(
    "max-without-keepdims",
    "The maximum has lost its axis, so on a square array it lines up with the wrong one, and elsewhere the shapes clash.",
    wrong_softmax(shift=lambda s, axis: s.max(axis=axis)),
)
SOFTMAX.mistake(
    "not-divided",
    "You return the exponentials themselves. They are not divided by their sum yet.",
    wrong_softmax(shift=no_shift, total=lambda weights, axis: 1.0),
)
SOFTMAX.mistake(
    "divided-by-the-largest",
    "The largest share of each row is 1: the division by the sum is missing, or it divides by the largest.",
    wrong_softmax(total=row_max),
)
SOFTMAX.mistake(
    "divided-by-the-count",
    "You divide by the number of scores, as for an average. Divide by the sum of the exponentials.",
    wrong_softmax(total=lambda weights, axis: weights.shape[axis]),
)
SOFTMAX.mistake(
    "no-exponential",
    "Each score is divided by the sum of scores. Scores can be negative and shares cannot: the exponential is missing.",
    wrong_softmax(shift=no_shift, power=lambda z: z),
)
SOFTMAX.mistake(
    "base-two",
    "You use powers of 2 in place of powers of e.",
    wrong_softmax(power=np.exp2),
)
SOFTMAX.mistake(
    "sigmoid",
    "This is the sigmoid: each score by itself. In a softmax the scores of a row compete for one sum of 1.",
    lambda s, axis=-1: 1 / (1 + np.exp(-s)),
)
SOFTMAX.mistake(
    "logarithm",
    "You return the logarithm of the shares (log-softmax).",
    wrong_softmax(end=np.log),
)
SOFTMAX.mistake(
    "softmin",
    "The smallest score gets the largest share: a sign is the wrong way round.",
    lambda s, axis=-1: wrong_softmax(shift=lambda s, axis: s.max(axis=axis, keepdims=True))(-s, axis),
)
SOFTMAX.mistake(
    "eps-in-the-sum",
    "A small number is added to the sum, so the shares no longer sum to 1. After the shift the sum is at least 1 and needs no guard.",
    wrong_softmax(total=lambda weights, axis: row_sum(weights, axis) + 1e-6),
)
SOFTMAX.mistake(
    "minus-inf-as-zero",
    "A score of -inf is replaced by 0, which is an ordinary score. exp(-inf) is 0 already: leave it as it is.",
    lambda s, axis=-1: wrong_softmax()(np.where(np.isneginf(s), 0.0, s), axis),
)
SOFTMAX.mistake(
    "truncated-integers",
    "The result is written into an array of whole numbers, made like s, so every share is cut to 0 or 1.",
    lambda s, axis=-1: softmax(s, axis).astype(s.dtype),
)


@SOFTMAX.mistake(
    "changes-input",
    "Your function writes into s: the caller's scores are changed. Make a new array instead of using -= or out=.",
)
def _(s, axis=-1):
    s -= s.max(axis=axis, keepdims=True)
    return softmax(s, axis)


@SOFTMAX.mistake(
    "powers-in-place", "Your function overwrites s with its exponentials. The caller still needs the scores."
)
def _(s, axis=-1):
    shares = softmax(s, axis)
    s[...] = np.exp(s - s.max(axis=axis, keepdims=True))
    return shares


SOFTMAX.pair("no-max", "global-sum", wrong_softmax(shift=no_shift, total=whole_sum))
SOFTMAX.pair("no-max", "axis-ignored", wrong_softmax(shift=no_shift, along=always_last))
SOFTMAX.pair("no-max", "axis-0", wrong_softmax(shift=no_shift, along=lambda axis, s: 0))
SOFTMAX.pair("global-max", "axis-ignored", wrong_softmax(shift=lambda s, axis: s.max(), along=always_last))
SOFTMAX.pair("global-max", "global-sum", wrong_softmax(shift=lambda s, axis: s.max(), total=whole_sum))


@SOFTMAX.variant
def _(s, axis=-1):
    rows = np.moveaxis(np.asarray(s, dtype=float), axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    out = np.empty_like(flat)
    for i, row in enumerate(flat):
        powers = [np.exp(score - max(row)) for score in row]
        out[i] = [power / sum(powers) for power in powers]
    print("rows:", len(flat))
    return np.moveaxis(out.reshape(rows.shape), -1, axis)


@SOFTMAX.variant
def _(s, axis=-1):
    return np.exp(s - np.logaddexp.reduce(s, axis=axis, keepdims=True))


@SOFTMAX.variant
def _(s, axis=-1):
    top = np.expand_dims(np.amax(s, axis), axis)
    e = np.exp(np.subtract(s, top))
    return np.true_divide(e, np.expand_dims(np.add.reduce(e, axis), axis))


@SOFTMAX.variant
def _(s, axis=-1):
    # share i is 1 / sum_j exp(s_j - s_i): overflows to infinity, with a warning, where the share is 0
    rows = np.moveaxis(np.where(np.isneginf(s), -1e9, s), axis, -1)
    gaps = rows[..., None, :] - rows[..., :, None]
    return np.moveaxis(1 / np.exp(gaps).sum(axis=-1), -1, axis)


def add_rounded(exercise: Exercise) -> None:
    """Name an answer that is rounded to a few decimals. (To six or more it counts as single precision.)"""
    cause = "The result is rounded. Rounding is for printing; whoever calls your function needs all digits."
    for decimals in (2, 3, 4, 5):

        def rounded(*args, decimals=decimals, **kwargs):
            return np.round(exercise.reference_function(*args, **kwargs), decimals)

        exercise.mistake(f"rounded-to-{decimals}", cause, rounded)


add_rounded(SOFTMAX)

# ------------------------------------------------------------------------------------------ 5.2

SPLIT_HEADS = Exercise(
    number="5.2",
    title="Cut the features into heads",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="One reshape too many here mixes the tokens of a sentence, and no error message ever tells.",
    budget="Four lines are enough.",
    hints=(
        "In memory the numbers of one token lie next to each other. Which axis can a reshape cut without moving any number?",
        "(batch, seq, d_model) is reshaped to (batch, seq, num_heads, d_k), where d_k = d_model / num_heads. "
        "Then two axes change places: (batch, num_heads, seq, d_k).",
        "take batch, seq, d_model from the shape; if num_heads does not divide d_model, raise ValueError; reshape so "
        "that only the last axis is cut; swap the axes of tokens and heads.",
    ),
)


@SPLIT_HEADS.reference
def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Cut the features of every token into num_heads slices, one per head.

    x         : (batch, seq, d_model)
    num_heads : how many heads; it must divide d_model
    returns   : (batch, num_heads, seq, d_k) with d_k = d_model / num_heads

    Head j holds the j-th slice of features, d_k neighbours, of every token in order. x is not changed.

    Raises ValueError where num_heads does not divide d_model.

    >>> split_heads(np.arange(8).reshape(1, 2, 4), 2)
    array([[[[0, 1],
             [4, 5]],
    <BLANKLINE>
            [[2, 3],
             [6, 7]]]])
    """
    batch, seq, d_model = x.shape
    if d_model % num_heads:
        raise ValueError(f"{num_heads} heads cannot share d_model = {d_model} features evenly")
    return x.reshape(batch, seq, num_heads, d_model // num_heads).swapaxes(1, 2)


@SPLIT_HEADS.worked("the numbers 0 to 7 as two tokens of four, two heads", 0.25)
def _():
    yield ask(np.arange(8).reshape(1, 2, 4), 2)


@SPLIT_HEADS.must("right slices for one sentence", 1.0)
def one_sentence(rng):
    yield ask(rng.normal(size=(1, 2, 4)), 2)
    yield ask(rng.normal(size=(1, 3, 8)), 2)
    yield ask(rng.normal(size=(1, 5, 6)), 3)


@SPLIT_HEADS.must("right slices for several sentences", 1.0)
def several_sentences(rng):
    for batch, seq, d_model, heads in [(2, 3, 8, 2), (3, 2, 6, 3), (2, 5, 12, 4), (2, 3, 12, 6)]:
        yield ask(rng.normal(size=(batch, seq, d_model)), heads)


@SPLIT_HEADS.must("right slices where lengths agree (as many tokens as heads, or as features)", 0.75)
def equal_lengths(rng):
    for batch, seq, d_model, heads in [(1, 4, 8, 4), (2, 2, 4, 2), (2, 4, 4, 2), (4, 4, 8, 4)]:
        yield ask(rng.normal(size=(batch, seq, d_model)), heads)


@SPLIT_HEADS.must("one head, and as many heads as features", 0.25)
def extremes(rng):
    yield ask(rng.normal(size=(2, 3, 4)), 1)
    yield ask(rng.normal(size=(2, 3, 4)), 4)


@SPLIT_HEADS.must("ValueError where num_heads does not divide d_model", 0.5, needs_values=True)
def uneven(rng):
    yield ask(rng.normal(size=(1, 2, 4)), 3)
    yield ask(rng.normal(size=(2, 3, 6)), 4)
    yield ask(rng.normal(size=(2, 4, 6)), 12)


SPLIT_HEADS.leaves_inputs_alone(0.25, several_sentences)


def check_width(x: Array, num_heads: int) -> tuple[int, int, int, int]:
    """batch, seq, num_heads, d_k; raises as the right function does."""
    batch, seq, d_model = x.shape
    if d_model % num_heads:
        raise ValueError("uneven")
    return batch, seq, num_heads, d_model // num_heads


def split_by_reshape(x: Array, num_heads: int) -> Array:
    """Heads by one reshape, which mixes tokens."""
    batch, seq, heads, d_k = check_width(x, num_heads)
    return x.reshape(batch, heads, seq, d_k)


def split_interleaved(x: Array, num_heads: int) -> Array:
    """Head j holds the features j, j + num_heads, ..."""
    batch, seq, heads, d_k = check_width(x, num_heads)
    return x.reshape(batch, seq, d_k, heads).transpose(0, 3, 1, 2)


def split_transposed(*order: int) -> Callable:
    """The right reshape, then the axes in another order."""

    def wrong(x, num_heads):
        return x.reshape(check_width(x, num_heads)).transpose(order)

    return wrong


SPLIT_HEADS.mistake(
    "reshape-only",
    "One reshape straight to (batch, num_heads, seq, d_k) keeps the numbers in memory order, so a head gets pieces of "
    "different tokens. First cut the last axis, then swap axes.",
    split_by_reshape,
)
SPLIT_HEADS.mistake(
    "interleaved",
    "Head j holds every num_heads-th feature. It should hold a slice of neighbours: the two new axes are in the wrong order.",
    split_interleaved,
)
SPLIT_HEADS.mistake(
    "not-swapped",
    "The features are cut, but the axes are still (batch, seq, num_heads, d_k). The heads must come before the tokens.",
    split_transposed(0, 1, 2, 3),
)
SPLIT_HEADS.mistake(
    "features-before-tokens",
    "Inside each head the axes are (d_k, seq). Tokens are rows here: (seq, d_k).",
    split_transposed(0, 2, 3, 1),
)
SPLIT_HEADS.mistake(
    "heads-before-batch",
    "The heads come before the sentences. The batch stays the first axis.",
    split_transposed(2, 0, 1, 3),
)
SPLIT_HEADS.mistake(
    "all-axes-reversed",
    "All axes are turned round, as .T does with more than two of them. Only two axes change places.",
    split_transposed(3, 2, 1, 0),
)
SPLIT_HEADS.mistake(
    "heads-and-width-confused",
    "num_heads is used as the width of a head. There are num_heads heads, and each is d_model / num_heads wide.",
    lambda x, num_heads: x.reshape(x.shape[0], x.shape[1], check_width(x, num_heads)[3], num_heads).swapaxes(
        1, 2
    ),
)
SPLIT_HEADS.mistake(
    "batch-merged",
    "Sentences and heads are merged into one axis. The answer has four axes: (batch, num_heads, seq, d_k).",
    lambda x, num_heads: split_heads(x, num_heads).reshape(-1, x.shape[1], x.shape[2] // num_heads),
)
SPLIT_HEADS.mistake(
    "sequence-cut",
    "The tokens are shared out among the heads. Each head gets all tokens and a slice of their features.",
    lambda x, num_heads: np.stack(np.split(x, num_heads, axis=1), axis=1),
)
SPLIT_HEADS.mistake(
    "whole-copies",
    "Every head gets all features. Each gets its own slice, so that the heads together hold each feature once.",
    lambda x, num_heads: np.stack([x] * check_width(x, num_heads)[2], axis=1),
)
SPLIT_HEADS.mistake(
    "first-sentence-only",
    "Only the first sentence of the batch is used.",
    lambda x, num_heads: split_heads(x[:1], num_heads),
)
SPLIT_HEADS.mistake(
    "heads-in-reverse",
    "The slices come in reverse order: head 0 must hold the first features.",
    lambda x, num_heads: split_heads(x, num_heads)[:, ::-1],
)
SPLIT_HEADS.mistake(
    "drops-features",
    "Where num_heads does not divide d_model, the last features are silently left out. Raise ValueError there.",
    lambda x, num_heads: (
        split_heads(x[..., : x.shape[2] // num_heads * num_heads], num_heads)
        if num_heads <= x.shape[2]
        else split_heads(x[..., :0], num_heads)
    ),
)


@SPLIT_HEADS.mistake(
    "uneven-heads", "Where num_heads does not divide d_model you fill up with zeros. Raise ValueError there."
)
def _(x, num_heads):
    width = -(-x.shape[2] // num_heads) * num_heads
    padded = np.concatenate([x, np.zeros((*x.shape[:2], width - x.shape[2]), dtype=x.dtype)], axis=-1)
    return split_heads(padded, num_heads)


@SPLIT_HEADS.mistake(
    "assert",
    "An uneven cut must raise ValueError. assert raises AssertionError, and Python may be told to skip it.",
)
def _(x, num_heads):
    assert x.shape[2] % num_heads == 0
    return split_heads(x, num_heads)


@SPLIT_HEADS.mistake(
    "checks-seq", "You check whether num_heads divides the number of tokens. It has to divide d_model."
)
def _(x, num_heads):
    if x.shape[1] % num_heads:
        raise ValueError("uneven")
    return split_heads(x, num_heads)


@SPLIT_HEADS.mistake(
    "returns-none",
    "Where num_heads does not divide d_model you return None, perhaps after a print. Raise ValueError there.",
)
def _(x, num_heads):
    return None if x.shape[2] % num_heads else split_heads(x, num_heads)


SPLIT_HEADS.pair(
    "interleaved",
    "not-swapped",
    lambda x, num_heads: x.reshape(x.shape[0], x.shape[1], check_width(x, num_heads)[3], num_heads).swapaxes(
        2, 3
    ),
)
SPLIT_HEADS.pair(
    "reshape-only",
    "first-sentence-only",
    lambda x, num_heads: split_by_reshape(x[:1], num_heads),
)


@SPLIT_HEADS.variant
def _(x, num_heads):
    return np.stack(np.split(x, num_heads, axis=-1), axis=1)


@SPLIT_HEADS.variant
def _(x, num_heads):
    B, T, d = x.shape
    if d % num_heads != 0:
        raise ValueError("no")
    width = int(d / num_heads)
    out = np.empty((B, num_heads, T, width), dtype=x.dtype)
    for j in range(num_heads):
        out[:, j] = x[:, :, j * width : (j + 1) * width]
    print(out.shape)
    return out


@SPLIT_HEADS.variant
def _(x, num_heads):
    return np.einsum("bthk->bhtk", x.reshape(*x.shape[:-1], num_heads, -1))


@SPLIT_HEADS.variant
def _(x, num_heads):
    d_k, rest = divmod(x.shape[-1], num_heads)
    if rest:
        raise UnicodeError("a subclass of ValueError")
    features = np.arange(num_heads)[:, None, None] * d_k + np.arange(d_k)
    return x[:, np.arange(x.shape[1])[:, None], features]


# ------------------------------------------------------------------------------------------ 5.3

DROPOUT_SUBLAYER = Exercise(
    number="5.3",
    title="A sub-layer with dropout (post-norm)",
    level="medium",
    difficulty=3,
    minutes=12,
    core=False,
    why="It is the paper's rule for every sub-layer: LayerNorm(x + Dropout(f(x))).",
    budget="Six lines are enough.",
    hints=(
        "Three things could be dropped: x, the branch f(x), or their sum. Which one does the formula drop? And what "
        "happens to all of it when training is False?",
        "branch has the shape of x; so has the mask: one draw per entry, kept with probability 1 - p. The kept entries "
        "are divided by 1 - p. Then the sum and the norm, both of the shape of x.",
        "branch: f(x). If training: draw one number from 0 to 1 per entry with rng; keep where it is at least p; "
        "branch: branch times keep, divided by (1 - p). Return the norm of x plus branch.",
    ),
)


@DROPOUT_SUBLAYER.reference
def dropout_sublayer(
    x: np.ndarray, f: Callable, norm: Callable, p: float, rng: np.random.Generator, training: bool
) -> np.ndarray:
    """One post-norm sub-layer: norm(x + dropout(f(x))).

    x        : (..., d_model)
    f        : the sub-layer, (..., d_model) -> (..., d_model)
    norm     : the layer norm as a function of one argument
    p        : the probability that an entry of the branch f(x) is set to 0, 0 <= p < 1
    rng      : the NumPy Generator from which all chance comes
    training : False switches dropout off
    returns  : (..., d_model)

    Each entry of the branch is dropped on its own; those that stay are divided by 1 - p. x itself is
    never dropped, and it is not changed.

    >>> half = lambda x: np.array([0.5, -1.0])
    >>> dropout_sublayer(np.array([2.0, 0.0]), half, lambda y: y, 0.1, np.random.default_rng(0), False)
    array([ 2.5, -1. ])
    """
    branch = f(x)
    if training:
        kept = rng.random(branch.shape) >= p
        branch = branch * kept / (1 - p)
    return norm(x + branch)


SAME = Given("itself")


def squash(d: int) -> Given:
    """A norm of one argument for the cases: tanh. It is not linear, so its place in the formula shows."""
    return Given("squashed", (np.eye(d), np.zeros(d)))


def sublayer_case(rng: np.random.Generator, shape: tuple[int, ...], p: float, training: bool) -> Question:
    d = shape[-1]
    x, W, seed = rng.normal(size=shape), rng.normal(size=(d, d)) / np.sqrt(d), int(rng.integers(2**31))
    return ask(x, Given("linear", (W,)), squash(d), p, Rng(seed), training)


def mask_case(rng: np.random.Generator, p: float) -> tuple:
    """A case large enough for its mask to be judged: 2 sentences, 32 tokens, 32 features; the norm is the identity."""
    x, W = rng.normal(size=(2, 32, 32)), rng.normal(size=(32, 32)) / np.sqrt(32)
    return x, Given("linear", (W,)), SAME, p, Rng(int(rng.integers(2**31))), True


@DROPOUT_SUBLAYER.worked("in use, (2, 0) and the change (0.5, -1) give (2.5, -1)", 0.25, decimals=6)
def _():
    change = Given("constant", (np.array([0.5, -1.0]),))
    yield ask(np.array([2.0, 0.0]), change, SAME, 0.1, Rng(0), False)


@DROPOUT_SUBLAYER.must("in use (training is False) nothing is dropped or scaled", 1.0)
def in_use(rng):
    for shape, p in [((2, 3), 0.5), ((2, 3, 4), 0.1), ((4,), 0.9)]:
        yield sublayer_case(rng, shape, p, training=False)


@DROPOUT_SUBLAYER.must("in training with p = 0 nothing is dropped", 0.75)
def nothing_to_drop(rng):
    for shape in [(2, 3), (2, 3, 4)]:
        yield sublayer_case(rng, shape, 0.0, training=True)


@DROPOUT_SUBLAYER.must(
    "in training each entry of the branch is dropped on its own, the rest is scaled",
    1.25,
    view=View(dropout_pattern),
)
def in_training(rng):
    yield ask(*mask_case(rng, 0.4))


@DROPOUT_SUBLAYER.must("all chance comes from rng", 0.5, needs_values=True, view=View(drawn_from_generator))
def given_generator(rng):
    x, f, norm, p, state, training = sublayer_case(rng, (4, 12), 0.5, training=True).calls[0].args
    again = Rng(state.seed, "again")
    yield steps(*(Call((x, f, norm, p, generator, training)) for generator in (state, state, again)))


DROPOUT_SUBLAYER.leaves_inputs_alone(0.25, in_use)


def mask_of_entries(branch: Array, p: float, rng: np.random.Generator) -> Array:
    """1 where an entry stays, 0 where it is dropped."""
    return (rng.random(branch.shape) >= p).astype(float)


def mask_of_tokens(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return (rng.random((*branch.shape[:-1], 1)) >= p).astype(float)


def mask_of_features(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return (rng.random(branch.shape[-1]) >= p).astype(float)


def mask_of_a_sentence(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return (rng.random(branch.shape[1:] if branch.ndim > 2 else branch.shape) >= p).astype(float)


def mask_upside_down(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return (rng.random(branch.shape) < p).astype(float)


def mask_from_global_state(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return (np.random.rand(*branch.shape) >= p).astype(float)


def mask_from_fresh_seed(branch: Array, p: float, rng: np.random.Generator) -> Array:
    return mask_of_entries(branch, p, np.random.default_rng(0))


def divide(p: float) -> float:
    return 1 / (1 - p)


def wrong_sublayer(
    *,
    mask=mask_of_entries,
    scale=divide,
    scale_in_use=lambda p: 1.0,
    place=lambda x, f, norm, drop: norm(x + drop(f(x))),
    when=lambda training: training,
) -> Callable:
    """A sub-layer with slips: another mask, another scale, dropout at another place or at another time."""

    def wrong(x, f, norm, p, rng, training):
        def drop(z):
            if when(training):
                return z * mask(z, p, rng) * scale(p)
            return z * scale_in_use(p)

        return place(x, f, norm, drop)

    return wrong


def on_the_sum(x, f, norm, drop):
    return norm(drop(x + f(x)))


DROPOUT_SUBLAYER.mistake(
    "dropout-on-the-sum",
    "Entries of the sum x + f(x), or of its norm, are dropped, so the stream itself gets holes. Only the branch f(x) is dropped.",
    wrong_sublayer(place=on_the_sum),
)
DROPOUT_SUBLAYER.mistake(
    "dropout-on-x",
    "You drop x and keep the branch. It is the other way round: x always passes.",
    wrong_sublayer(place=lambda x, f, norm, drop: norm(drop(x) + f(x))),
)
DROPOUT_SUBLAYER.mistake(
    "dropout-before-f",
    "The sub-layer's input is dropped. Dropout comes after f: its output is dropped.",
    wrong_sublayer(place=lambda x, f, norm, drop: norm(x + f(drop(x)))),
)
DROPOUT_SUBLAYER.mistake(
    "not-rescaled",
    "The entries that stay are not divided by 1 - p, so in training the branch is smaller on average than in use.",
    wrong_sublayer(scale=lambda p: 1.0),
)
DROPOUT_SUBLAYER.mistake(
    "multiplied-by-keep",
    "The entries that stay are multiplied by 1 - p. That makes the branch smaller still; its average must stay the same.",
    wrong_sublayer(scale=lambda p: 1 - p),
)
DROPOUT_SUBLAYER.mistake(
    "divided-by-p",
    "The entries that stay are divided by p, the share that goes. Which share stays?",
    wrong_sublayer(scale=lambda p: 1 / p if p else np.inf),
)
DROPOUT_SUBLAYER.mistake(
    "p-is-keep-rate",
    "You keep entries with probability p. Here p is the share that is dropped.",
    wrong_sublayer(mask=mask_upside_down),
)
DROPOUT_SUBLAYER.mistake(
    "p-is-keep-rate-throughout",
    "p is used as the share that stays, for the mask and for the scale. Here p is the share that is dropped.",
    wrong_sublayer(mask=mask_upside_down, scale=lambda p: 1 / p if p else np.inf),
)
DROPOUT_SUBLAYER.mistake(
    "whole-tokens",
    "One draw decides about a whole token. Each entry is dropped on its own: the mask needs the shape of the branch.",
    wrong_sublayer(mask=mask_of_tokens),
)
DROPOUT_SUBLAYER.mistake(
    "whole-features",
    "One mask is shared by all tokens, so whole features vanish. Each entry is dropped on its own.",
    wrong_sublayer(mask=mask_of_features),
)
DROPOUT_SUBLAYER.mistake(
    "shared-by-sentences",
    "All sentences of the batch share one mask. Each entry is dropped on its own.",
    wrong_sublayer(mask=mask_of_a_sentence),
)
DROPOUT_SUBLAYER.mistake(
    "dropout-in-use",
    "Entries are dropped also when training is False. In use the answer must not depend on chance.",
    wrong_sublayer(when=lambda training: True),
)
DROPOUT_SUBLAYER.mistake(
    "never-drops",
    "Nothing is dropped when training is True: never, or no longer after a call in use has switched dropout off for good.",
    wrong_sublayer(when=lambda training: False),
)
DROPOUT_SUBLAYER.mistake(
    "training-upside-down",
    "Dropout is on when training is False and off when it is True.",
    wrong_sublayer(when=lambda training: not training),
)
DROPOUT_SUBLAYER.mistake(
    "scaled-in-use-too",
    "In use you multiply the branch by 1 - p although the division in training has already made up for it. One of the two is enough.",
    wrong_sublayer(scale_in_use=lambda p: 1 - p),
)
DROPOUT_SUBLAYER.mistake(
    "scaled-in-use-only",
    "This is the older form: nothing scaled in training, everything times 1 - p in use. Here the kept entries are divided in training.",
    wrong_sublayer(scale=lambda p: 1.0, scale_in_use=lambda p: 1 - p),
)
DROPOUT_SUBLAYER.mistake(
    "divided-in-use",
    "In use the branch is still divided by 1 - p. With nothing dropped there is nothing to make up for.",
    wrong_sublayer(scale_in_use=divide),
)
DROPOUT_SUBLAYER.mistake(
    "global-random-state",
    "Your mask does not come from rng but from NumPy's global state, so the same generator does not give the same answer.",
    wrong_sublayer(mask=mask_from_global_state),
)
DROPOUT_SUBLAYER.mistake(
    "fresh-seed-inside",
    "Every call makes its own generator from a fixed seed and drops the same entries again. Draw from the rng you are given.",
    wrong_sublayer(mask=mask_from_fresh_seed),
)
DROPOUT_SUBLAYER.mistake(
    "pre-norm",
    "This is the pre-norm form: the branch reads the normed input and the sum stays as it is. Here the norm takes the sum.",
    wrong_sublayer(place=lambda x, f, norm, drop: x + drop(f(norm(x)))),
)
DROPOUT_SUBLAYER.mistake(
    "norm-on-the-branch",
    "The norm is taken of the branch alone. It takes the sum of x and the branch.",
    wrong_sublayer(place=lambda x, f, norm, drop: x + norm(drop(f(x)))),
)
DROPOUT_SUBLAYER.mistake(
    "no-norm",
    "The norm is never called.",
    wrong_sublayer(place=lambda x, f, norm, drop: x + drop(f(x))),
)
DROPOUT_SUBLAYER.mistake(
    "no-residual",
    "x is not added: only the branch is normed.",
    wrong_sublayer(place=lambda x, f, norm, drop: norm(drop(f(x)))),
)
DROPOUT_SUBLAYER.mistake(
    "norm-before-and-after",
    "The norm is called twice: before the sub-layer and after the sum. Post-norm has one, after the sum.",
    wrong_sublayer(place=lambda x, f, norm, drop: norm(x + drop(f(norm(x))))),
)


@DROPOUT_SUBLAYER.mistake(
    "no-norm-in-training",
    "Where training is True the sum is returned without its norm. Only dropout depends on training.",
)
def _(x, f, norm, p, rng, training):
    if not training:
        return norm(x + f(x))
    branch = f(x)
    return x + branch * mask_of_entries(branch, p, rng) / (1 - p)


@DROPOUT_SUBLAYER.mistake(
    "changes-input", "x += ... writes into the caller's array. Make a new one: x = x + ..."
)
def _(x, f, norm, p, rng, training):
    branch = f(x)
    if training:
        branch = branch * (rng.random(branch.shape) >= p) / (1 - p)
    x += branch
    return norm(x)


DROPOUT_SUBLAYER.pair(
    "dropout-on-the-sum", "not-rescaled", wrong_sublayer(place=on_the_sum, scale=lambda p: 1.0)
)
DROPOUT_SUBLAYER.pair(
    "dropout-in-use", "not-rescaled", wrong_sublayer(when=lambda training: True, scale=lambda p: 1.0)
)
DROPOUT_SUBLAYER.pair(
    "not-rescaled", "global-random-state", wrong_sublayer(scale=lambda p: 1.0, mask=mask_from_global_state)
)
DROPOUT_SUBLAYER.pair(
    "dropout-on-the-sum", "dropout-in-use", wrong_sublayer(place=on_the_sum, when=lambda training: True)
)


@DROPOUT_SUBLAYER.variant
def _(x, f, norm, p, rng, training):
    change = f(x)
    if not training:
        return norm(np.add(x, change))
    kept = rng.binomial(1, 1 - p, size=np.shape(change))
    return norm(np.where(kept, change / (1 - p), 0.0) + x)


@DROPOUT_SUBLAYER.variant
def _(x, f, norm, p, rng, training):
    y = f(x)
    factors = np.ones_like(y)
    if training:
        factors = rng.choice([0.0, 1 / (1 - p)], size=y.shape, p=[p, 1 - p])
    return norm(x + factors * y)


@DROPOUT_SUBLAYER.variant
def _(x, f, norm, p, rng, training):
    branch = np.array(f(x), dtype=float)
    if training:
        print("dropping about", p * branch.size)
        for index in np.ndindex(branch.shape):
            branch[index] = branch[index] / (1 - p) if rng.random() < 1 - p else 0
    return norm(x + branch)


@DROPOUT_SUBLAYER.variant
def _(x, f, norm, p, rng, training):
    # exactly the share p, rounded, of all entries
    branch = f(x)
    if training:
        mask = np.ones(branch.size)
        mask[: round(p * branch.size)] = 0
        branch = rng.permutation(mask).reshape(branch.shape) * branch / (1 - p)
    return norm(x + branch)


# ------------------------------------------------------------------------------------------ 5.4

MULTI_HEAD_ATTENTION = Exercise(
    number="5.4",
    title="Self-attention with several heads",
    level="hard",
    difficulty=4,
    minutes=20,
    core=True,
    why="It is the only place of the block where a token can read another one.",
    budget="Seven lines are enough.",
    hints=(
        "For one head you need three things in order: the scores of every token with every token, shares, a mixture of "
        "values. Along which axis do the shares of one reading token lie?",
        "x @ W_q, x @ W_k, x @ W_v are (batch, seq, d_model); after split_heads (batch, num_heads, seq, d_k). Scores and "
        "shares are (batch, num_heads, seq, seq): one row per reading token. Mixtures are (batch, num_heads, seq, d_k); "
        "merged, (batch, seq, d_model).",
        "q, k, v: project x, split into heads. scores: q times k with its last two axes swapped, divided by the root of "
        "d_k. shares: softmax along the last axis. mixtures: shares times v. merge: undo the swap of split_heads first, "
        "then reshape. Last, times W_o.",
    ),
)


@MULTI_HEAD_ATTENTION.reference
def multi_head_attention(
    x: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray, W_o: np.ndarray, num_heads: int
) -> np.ndarray:
    """Let every token of a sentence read all tokens of it, with num_heads heads; no mask, no biases.

    x                  : (batch, seq, d_model)
    W_q, W_k, W_v, W_o : (d_model, d_model); vectors multiply from the left: x @ W_q
    num_heads          : it divides d_model; each head is d_k = d_model / num_heads wide
    returns            : (batch, seq, d_model)

    Each head takes shares softmax(q k^T / sqrt(d_k)) of the value vectors; the heads are joined in
    order and multiplied by W_o. No input is changed. You may call softmax and split_heads.

    >>> x = np.array([[[2.0, 0.0], [0.0, 4.0]]])
    >>> zero, one = np.zeros((2, 2)), np.eye(2)
    >>> multi_head_attention(x, zero, zero, one, one, num_heads=1)
    array([[[1., 2.],
            [1., 2.]]])
    """
    q, k, v = (split_heads(x @ W, num_heads) for W in (W_q, W_k, W_v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])  # (batch, num_heads, seq, seq)
    mixtures = softmax(scores) @ v  # (batch, num_heads, seq, d_k)
    return mixtures.swapaxes(1, 2).reshape(x.shape) @ W_o


def attention_case(rng: np.random.Generator, batch: int, seq: int, d: int, heads: int) -> tuple:
    """x, four weights that make scores of order one, and the number of heads."""
    weights = (rng.normal(size=(d, d)) * 1.3 / np.sqrt(d) for _ in range(4))
    return (rng.normal(size=(batch, seq, d)), *weights, heads)


@MULTI_HEAD_ATTENTION.worked("the worked example, weights H", 0.25, decimals=6)
def _():
    yield ask(X[None], *WEIGHTS_H[:4], 1)


@MULTI_HEAD_ATTENTION.must("right values with one head", 1.25)
def one_head(rng):
    yield ask(*attention_case(rng, 1, 2, 3, 1))
    yield ask(*attention_case(rng, 2, 3, 4, 1))


@MULTI_HEAD_ATTENTION.must("right values with several heads", 2.0)
def several_heads(rng):
    yield ask(*attention_case(rng, 1, 3, 4, 2))
    yield ask(*attention_case(rng, 2, 5, 8, 2))
    yield ask(*attention_case(rng, 3, 2, 8, 4))
    yield ask(*attention_case(rng, 2, 3, 6, 6))


@MULTI_HEAD_ATTENTION.must("right values where lengths agree (seq = d_model = heads, batch = heads)", 0.75)
def lengths_agree(rng):
    yield ask(*attention_case(rng, 2, 4, 4, 2))
    yield ask(*attention_case(rng, 2, 8, 8, 8))
    yield ask(*attention_case(rng, 4, 4, 8, 4))


@MULTI_HEAD_ATTENTION.must("a sentence alone gives the same as in its batch", 0.5)
def sentence_alone(rng):
    x, *rest = attention_case(rng, 3, 2, 4, 2)
    yield steps(*(Call((part, *rest)) for part in (x[2:], x[1:], x)))


@MULTI_HEAD_ATTENTION.must("tokens in another order give the same rows in that order", 0.25)
def tokens_reordered(rng):
    x, *rest = attention_case(rng, 1, 4, 4, 2)
    yield steps(Call((x, *rest)), Call((x[:, [2, 0, 3, 1]], *rest)))


@MULTI_HEAD_ATTENTION.must("one token alone reads itself", 0.25)
def one_token(rng):
    yield ask(*attention_case(rng, 2, 1, 4, 2))


@MULTI_HEAD_ATTENTION.must("scores of a thousand and more", 0.25)
def large_scores(rng):
    x, *rest = attention_case(rng, 1, 3, 4, 2)
    yield ask(60 * x, *rest)


@MULTI_HEAD_ATTENTION.must("integers work like floats", 0.25)
def integer_tokens(rng):
    yield ask(rng.integers(-2, 3, size=(1, 3, 4)), *(rng.integers(-1, 2, size=(4, 4)) for _ in range(4)), 2)


MULTI_HEAD_ATTENTION.leaves_inputs_alone(0.25, one_head)


def merge_heads(heads: Array, shape: tuple[int, ...]) -> Array:
    return heads.swapaxes(1, 2).reshape(shape)


def merge_by_reshape(heads: Array, shape: tuple[int, ...]) -> Array:
    return heads.reshape(shape)


def merge_interleaved(heads: Array, shape: tuple[int, ...]) -> Array:
    return heads.transpose(0, 2, 3, 1).reshape(shape)


def merge_heads_and_sentences_swapped(heads: Array, shape: tuple[int, ...]) -> Array:
    return heads.transpose(1, 2, 0, 3).reshape(shape)


def merge_averaged(heads: Array, shape: tuple[int, ...]) -> Array:
    return np.concatenate([heads.mean(axis=1)] * heads.shape[1], axis=-1)


def merge_summed(heads: Array, shape: tuple[int, ...]) -> Array:
    return np.concatenate([heads.sum(axis=1)] * heads.shape[1], axis=-1)


def root_of_width(q: Array, shape: tuple[int, ...]) -> float:
    return np.sqrt(q.shape[-1])


def undivided(q: Array, shape: tuple[int, ...]) -> float:
    return 1.0


def over_queries(scores: Array) -> Array:
    return softmax(scores, axis=-2)


def wrong_attention(
    *,
    use=("q", "k", "v"),
    project=lambda x, W: x @ W,
    split=split_heads,
    divisor=root_of_width,
    change_scores=lambda scores: scores,
    share=softmax,
    turn=lambda shares: shares,
    merge=merge_heads,
    output=lambda y, W_o: y @ W_o,
    heads=lambda num_heads: num_heads,
) -> Callable:
    """An attention with slips; each argument is one step of the right one, in order."""

    def wrong(x, W_q, W_k, W_v, W_o, num_heads):
        named = {"q": W_q, "k": W_k, "v": W_v, "none": np.eye(len(W_q))}
        q, k, v = (split(project(x, named[name]), heads(num_heads)) for name in use)
        scores = change_scores(q @ k.swapaxes(-1, -2) / divisor(q, x.shape))
        return output(merge(turn(share(scores)) @ v, x.shape), W_o)

    return wrong


def transposed_last(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def later_tokens_hidden(scores: Array) -> Array:
    return np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)


def itself_hidden(scores: Array) -> Array:
    n = scores.shape[-1]
    return np.where(np.eye(n, dtype=bool), -1e9, scores)


def sharing_everything(scores: Array) -> Array:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def no_max(scores: Array) -> Array:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def as_one_sentence(attention: Callable) -> Callable:
    """An attention over all sentences of the batch as if they were one long sentence."""

    def wrong(x, W_q, W_k, W_v, W_o, num_heads):
        joined = x.reshape(1, -1, x.shape[-1])
        return attention(joined, W_q, W_k, W_v, W_o, num_heads).reshape(x.shape)

    return wrong


def scaled_after_softmax(x, W_q, W_k, W_v, W_o, num_heads):
    unscaled = wrong_attention(divisor=undivided)(x, W_q, W_k, W_v, W_o, num_heads)
    return unscaled / np.sqrt(x.shape[-1] // num_heads)


def slices_before_projection(x, W_q, W_k, W_v, W_o, num_heads):
    """Each head reads only its slice of x, with its diagonal block of each matrix."""
    d_k = x.shape[-1] // num_heads
    blocks = np.kron(np.eye(num_heads), np.ones((d_k, d_k)))
    return multi_head_attention(x, W_q * blocks, W_k * blocks, W_v * blocks, W_o, num_heads)


MULTI_HEAD_ATTENTION.mistake(
    "not-scaled",
    "The scores are not divided by the root of the width of a head, so the shares are too sharp.",
    wrong_attention(divisor=undivided),
)
MULTI_HEAD_ATTENTION.mistake(
    "divided-by-d_k",
    "The scores are divided by d_k itself. The root is missing.",
    wrong_attention(divisor=lambda q, shape: q.shape[-1]),
)
MULTI_HEAD_ATTENTION.mistake(
    "scaled-by-d_model",
    "The scores are divided by the root of d_model. With one head that is the same; how wide is one of several heads?",
    wrong_attention(divisor=lambda q, shape: np.sqrt(shape[-1])),
)
MULTI_HEAD_ATTENTION.mistake(
    "scaled-by-num_heads",
    "The scores are divided by the root of the number of heads. It is the width of one head that counts.",
    wrong_attention(divisor=lambda q, shape: np.sqrt(shape[-1] // q.shape[-1])),
)
MULTI_HEAD_ATTENTION.mistake(
    "scaled-by-seq",
    "The scores are divided by the root of the number of tokens. It is the width of one head that counts.",
    wrong_attention(divisor=lambda q, shape: np.sqrt(q.shape[-2])),
)
MULTI_HEAD_ATTENTION.mistake(
    "scale-upside-down",
    "The scores are multiplied by the root of d_k. They are divided by it.",
    wrong_attention(divisor=lambda q, shape: 1 / np.sqrt(q.shape[-1])),
)
MULTI_HEAD_ATTENTION.mistake(
    "scaled-after-softmax",
    "The division by the root of d_k comes after the softmax, so the shares no longer sum to 1. Scale the scores.",
    scaled_after_softmax,
)
MULTI_HEAD_ATTENTION.mistake(
    "softmax-over-queries",
    "The shares sum to 1 over the tokens that read. They must sum to 1 over the tokens that are read.",
    wrong_attention(share=over_queries),
)
MULTI_HEAD_ATTENTION.mistake(
    "softmax-over-heads",
    "The shares sum to 1 over the heads. Each head has its own softmax, over the tokens that are read.",
    wrong_attention(share=lambda scores: softmax(scores, axis=1)),
)
MULTI_HEAD_ATTENTION.mistake(
    "softmax-over-everything",
    "One sum serves all scores. Each reading token, in each head, has shares that sum to 1 by themselves.",
    wrong_attention(share=sharing_everything),
)
MULTI_HEAD_ATTENTION.mistake(
    "no-softmax",
    "The scores themselves weigh the values. The softmax is missing.",
    wrong_attention(share=lambda scores: scores),
)
MULTI_HEAD_ATTENTION.mistake(
    "not-normalised",
    "The exponentials are not divided by their sum, so the shares do not sum to 1.",
    wrong_attention(share=np.exp),
)
MULTI_HEAD_ATTENTION.mistake(
    "softmax-overflows",
    "For large scores the exponential overflows and the answer is nan. Use your softmax of 5.1.",
    wrong_attention(share=no_max),
)
MULTI_HEAD_ATTENTION.mistake(
    "shares-transposed",
    "The shares are transposed before they meet the values: each token hands out where it should read.",
    wrong_attention(turn=transposed_last),
)
MULTI_HEAD_ATTENTION.mistake(
    "queries-and-keys-swapped",
    "The scores are transposed: keys ask and queries answer. Row i must hold the scores of query i.",
    wrong_attention(change_scores=transposed_last),
)
MULTI_HEAD_ATTENTION.mistake(
    "merged-by-reshape",
    "The heads are merged by one reshape, which mixes tokens. With one head nobody sees it. First undo the swap of split_heads.",
    wrong_attention(merge=merge_by_reshape),
)
MULTI_HEAD_ATTENTION.mistake(
    "split-by-reshape",
    "The heads are cut by one reshape, which mixes tokens. Use split_heads of 5.2.",
    wrong_attention(split=split_by_reshape),
)
MULTI_HEAD_ATTENTION.mistake(
    "interleaved-heads",
    "Head j takes every num_heads-th feature, on the way in and on the way out. Heads are slices of neighbours.",
    wrong_attention(split=split_interleaved, merge=merge_interleaved),
)
MULTI_HEAD_ATTENTION.mistake(
    "merged-interleaved",
    "The heads are woven together feature by feature. They are joined one after the other.",
    wrong_attention(merge=merge_interleaved),
)
MULTI_HEAD_ATTENTION.mistake(
    "heads-and-sentences-swapped",
    "On merging, the axes of heads and sentences have changed places, so sentences are mixed.",
    wrong_attention(merge=merge_heads_and_sentences_swapped),
)
MULTI_HEAD_ATTENTION.mistake(
    "heads-averaged",
    "The heads are averaged. They are joined side by side, so that W_o sees each of them.",
    wrong_attention(merge=merge_averaged),
)
MULTI_HEAD_ATTENTION.mistake(
    "heads-added",
    "The heads are added up. They are joined side by side, so that W_o sees each of them.",
    wrong_attention(merge=merge_summed),
)
MULTI_HEAD_ATTENTION.mistake(
    "one-head-only",
    "num_heads is not used: you compute one head as wide as the model.",
    wrong_attention(heads=lambda num_heads: 1),
)
MULTI_HEAD_ATTENTION.mistake(
    "slices-before-projection",
    "The features are cut into heads before the projection, so a head sees only its slice of x. Project first: each head reads all of x.",
    slices_before_projection,
)
MULTI_HEAD_ATTENTION.mistake(
    "no-W_o",
    "The joined heads are not multiplied by W_o.",
    wrong_attention(output=lambda y, W_o: y),
)
MULTI_HEAD_ATTENTION.mistake(
    "W_o-transposed",
    "W_o is transposed. Vectors multiply from the left here: y @ W_o.",
    wrong_attention(output=lambda y, W_o: y @ W_o.T),
)
MULTI_HEAD_ATTENTION.mistake(
    "weights-transposed",
    "W_q, W_k and W_v are transposed, as for a library's linear layer. Vectors multiply from the left here: x @ W_q.",
    wrong_attention(project=lambda x, W: x @ W.T),
)
MULTI_HEAD_ATTENTION.mistake(
    "all-weights-transposed",
    "All four matrices are transposed, as for a library's linear layer. Vectors multiply from the left here: x @ W.",
    wrong_attention(project=lambda x, W: x @ W.T, output=lambda y, W_o: y @ W_o.T),
)
MULTI_HEAD_ATTENTION.mistake(
    "keys-from-W_q",
    "The keys are computed with W_q. They have a matrix of their own, W_k.",
    wrong_attention(use=("q", "q", "v")),
)
MULTI_HEAD_ATTENTION.mistake(
    "values-from-W_k",
    "The values are computed with W_k: the mixture is one of keys.",
    wrong_attention(use=("q", "k", "k")),
)
MULTI_HEAD_ATTENTION.mistake(
    "W_k-and-W_v-swapped",
    "W_k and W_v have changed places.",
    wrong_attention(use=("q", "v", "k")),
)
MULTI_HEAD_ATTENTION.mistake(
    "one-matrix-for-all",
    "Queries, keys and values are all computed with W_q.",
    wrong_attention(use=("q", "q", "q")),
)
MULTI_HEAD_ATTENTION.mistake(
    "values-not-projected",
    "The mixture is one of the tokens themselves. The values are x @ W_v.",
    wrong_attention(use=("q", "k", "none")),
)
MULTI_HEAD_ATTENTION.mistake(
    "causal-mask",
    "A token cannot read the tokens after it. That mask belongs to a decoder; an encoder's token reads all.",
    wrong_attention(change_scores=later_tokens_hidden),
)
MULTI_HEAD_ATTENTION.mistake(
    "itself-hidden",
    "A token cannot read itself. Here it can.",
    wrong_attention(change_scores=itself_hidden),
)
MULTI_HEAD_ATTENTION.mistake(
    "sentences-mixed",
    "Tokens read tokens of other sentences: batch and seq are one axis. Each sentence attends to itself only.",
    as_one_sentence(multi_head_attention),
)
MULTI_HEAD_ATTENTION.mistake(
    "adds-x",
    "x is added to the result. The residual belongs to the block, not to this function.",
    lambda x, W_q, W_k, W_v, W_o, num_heads: x + multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads),
)
MULTI_HEAD_ATTENTION.mistake(
    "first-sentence-for-all",
    "All sentences get the answer of the first one.",
    lambda x, W_q, W_k, W_v, W_o, num_heads: np.repeat(
        multi_head_attention(x[:1], W_q, W_k, W_v, W_o, num_heads), len(x), axis=0
    ),
)


@MULTI_HEAD_ATTENTION.mistake(
    "changes-weights",
    "Your function scales or overwrites one of its weight matrices in place; the next call gets other weights.",
)
def _(x, W_q, W_k, W_v, W_o, num_heads):
    W_q /= np.sqrt(x.shape[-1] // num_heads)
    return wrong_attention(divisor=undivided)(x, W_q, W_k, W_v, W_o, num_heads)


@MULTI_HEAD_ATTENTION.mistake(
    "changes-x", "Your function writes its result into x. The block still needs x for the residual."
)
def _(x, W_q, W_k, W_v, W_o, num_heads):
    x[...] = multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads)
    return x


add_rounded(MULTI_HEAD_ATTENTION)

for first, second, slips in [
    ("not-scaled", "no-W_o", {"divisor": undivided, "output": lambda y, W_o: y}),
    ("not-scaled", "softmax-over-queries", {"divisor": undivided, "share": over_queries}),
    ("not-scaled", "merged-by-reshape", {"divisor": undivided, "merge": merge_by_reshape}),
    ("merged-by-reshape", "split-by-reshape", {"merge": merge_by_reshape, "split": split_by_reshape}),
    ("merged-by-reshape", "no-W_o", {"merge": merge_by_reshape, "output": lambda y, W_o: y}),
    ("merged-by-reshape", "softmax-over-queries", {"merge": merge_by_reshape, "share": over_queries}),
    (
        "scaled-by-d_model",
        "merged-by-reshape",
        {"divisor": lambda q, shape: np.sqrt(shape[-1]), "merge": merge_by_reshape},
    ),
    ("softmax-over-queries", "no-W_o", {"share": over_queries, "output": lambda y, W_o: y}),
    (
        "not-scaled",
        "all-weights-transposed",
        {"divisor": undivided, "project": lambda x, W: x @ W.T, "output": lambda y, W_o: y @ W_o.T},
    ),
]:
    MULTI_HEAD_ATTENTION.pair(first, second, wrong_attention(**slips))


@MULTI_HEAD_ATTENTION.variant
def _(x, W_q, W_k, W_v, W_o, num_heads):
    batch, seq, d_model = x.shape
    d_k = d_model // num_heads
    out = np.zeros((batch, seq, d_model))
    for b in range(batch):
        for h in range(num_heads):
            mine = slice(h * d_k, (h + 1) * d_k)
            q, k, v = x[b] @ W_q[:, mine], x[b] @ W_k[:, mine], x[b] @ W_v[:, mine]
            for t in range(seq):
                scores = np.array([q[t] @ k[u] for u in range(seq)]) / d_k**0.5
                shares = np.exp(scores - scores.max())
                shares /= shares.sum()
                # W_o one head at a time: the joined heads never exist
                out[b, t] += (shares @ v) @ W_o[mine]
    print("done")
    return out


@MULTI_HEAD_ATTENTION.variant
def _(x, W_q, W_k, W_v, W_o, num_heads):
    d = x.shape[-1]
    cut = (d, num_heads, d // num_heads)
    q, k, v = (np.einsum("btd,dhk->bhtk", x, W.reshape(cut)) for W in (W_q, W_k, W_v))
    s = np.einsum("bhqk,bhtk->bhqt", q, k) * (d // num_heads) ** -0.5
    e = np.exp(s - s.max(axis=3, keepdims=True))
    a = e / np.einsum("bhqt->bhq", e)[..., None]
    return np.einsum("bhqt,bhtk,hkd->bqd", a, v, W_o.reshape(num_heads, d // num_heads, d))


@MULTI_HEAD_ATTENTION.variant
def _(x, W_q, W_k, W_v, W_o, num_heads):
    np.log(np.zeros(1))  # a NumPy warning that costs nothing
    heads = []
    for w_q, w_k, w_v in zip(*(np.split(W, num_heads, axis=1) for W in (W_q, W_k, W_v))):
        scores = (x @ w_q) @ np.transpose(x @ w_k, (0, 2, 1)) / np.sqrt(w_q.shape[1])
        heads.append(softmax(scores) @ (x @ w_v))
    return np.concatenate(heads, axis=-1) @ W_o


# ------------------------------------------------------------------------------- the forms of a block


def right(x, A, F, L1, L2):
    """Post-norm: L2(y + F(y)) with y = L1(x + A(x))."""
    y = L1(x + A(x))
    return L2(y + F(y))


def pre_norm(x, A, F, L1, L2):
    u = x + A(L1(x))
    return u + F(L2(u))


def ffn_first(x, A, F, L1, L2):
    v = L1(x + F(x))
    return L2(v + A(v))


def block_input_twice(x, A, F, L1, L2):
    y = L1(x + A(x))
    return L2(x + F(y))


def norm_1_twice(x, A, F, L1, L2):
    return right(x, A, F, L1, L1)


def norm_2_twice(x, A, F, L1, L2):
    return right(x, A, F, L2, L2)


def norms_swapped(x, A, F, L1, L2):
    return right(x, A, F, L2, L1)


def no_residual_1(x, A, F, L1, L2):
    q = L1(A(x))
    return L2(q + F(q))


def no_residual_2(x, A, F, L1, L2):
    return L2(F(L1(x + A(x))))


def no_residuals(x, A, F, L1, L2):
    return L2(F(L1(A(x))))


def ffn_reads_input(x, A, F, L1, L2):
    y = L1(x + A(x))
    return L2(y + F(x))


def no_first_norm(x, A, F, L1, L2):
    z = x + A(x)
    return L2(z + F(z))


def no_second_norm(x, A, F, L1, L2):
    y = L1(x + A(x))
    return y + F(y)


def no_norms(x, A, F, L1, L2):
    z = x + A(x)
    return z + F(z)


def parallel(x, A, F, L1, L2):
    return L2(x + A(x) + F(x))


def parallel_pre_norm(x, A, F, L1, L2):
    return x + A(L1(x)) + F(L1(x))


def parallel_pre_norm_two_norms(x, A, F, L1, L2):
    return x + A(L1(x)) + F(L2(x))


def pre_norm_and_last_norm(x, A, F, L1, L2):
    return L2(pre_norm(x, A, F, L1, L2))


def norm_on_the_branch(x, A, F, L1, L2):
    y = x + L1(A(x))
    return y + L2(F(y))


def norm_before_the_sum(x, A, F, L1, L2):
    """Post-norm read as 'norm, then add': the branch and the stream are normed, not the sum."""
    y = L1(x) + A(x)
    return L2(y) + F(y)


def no_ffn(x, A, F, L1, L2):
    return L1(x + A(x))


def no_attention(x, A, F, L1, L2):
    return L2(x + F(x))


def input_added_again(x, A, F, L1, L2):
    y = L1(x + A(x))
    return L2(x + y + F(y))


def sandwich(x, A, F, L1, L2):
    y = L1(x + A(L1(x)))
    return L2(y + F(L2(y)))


def residual_doubled(x, A, F, L1, L2):
    y = L1(2 * x + A(x))
    return L2(2 * y + F(y))


def pre_norm_then_post_norm(x, A, F, L1, L2):
    u = x + A(L1(x))
    return L2(u + F(u))


def post_norm_then_pre_norm(x, A, F, L1, L2):
    y = L1(x + A(x))
    return y + F(L2(y))


def normed_copy_twice(x, A, F, L1, L2):
    """Pre-norm whose stream is the normed copy, in both sub-layers."""
    a = L1(x)
    u = a + A(a)
    b = L2(u)
    return b + F(b)


def normed_copy_first(x, A, F, L1, L2):
    a = L1(x)
    u = a + A(a)
    return u + F(L2(u))


def normed_copy_second(x, A, F, L1, L2):
    u = x + A(L1(x))
    b = L2(u)
    return b + F(b)


def pre_norm_second_norm_reads_first(x, A, F, L1, L2):
    a = L1(x)
    return x + A(a) + F(L2(a))


def pre_norm_second_norm_reads_branch(x, A, F, L1, L2):
    branch = A(L1(x))
    return x + branch + F(L2(branch))


def pre_norm_block_input_twice(x, A, F, L1, L2):
    u = x + A(L1(x))
    return x + F(L2(u))


def pre_norm_no_first_norm(x, A, F, L1, L2):
    u = x + A(x)
    return u + F(L2(u))


def pre_norm_no_second_norm(x, A, F, L1, L2):
    u = x + A(L1(x))
    return u + F(u)


def pre_norm_no_residual_1(x, A, F, L1, L2):
    u = A(L1(x))
    return u + F(L2(u))


def pre_norm_no_residual_2(x, A, F, L1, L2):
    return F(L2(x + A(L1(x))))


def pre_norm_ffn_first(x, A, F, L1, L2):
    u = x + F(L1(x))
    return u + A(L2(u))


def pre_norm_norm_1_twice(x, A, F, L1, L2):
    return pre_norm(x, A, F, L1, L1)


def pre_norm_norms_swapped(x, A, F, L1, L2):
    return pre_norm(x, A, F, L2, L1)


def pre_norm_no_ffn(x, A, F, L1, L2):
    return x + A(L1(x))


def norm_with_d_minus_1(x: Array, gamma: Array, beta: Array) -> Array:
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-5) + beta


def norm_with_eps_outside(x: Array, gamma: Array, beta: Array) -> Array:
    return gamma * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5) + beta


def norm_without_root(x: Array, gamma: Array, beta: Array) -> Array:
    return gamma * (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1e-5) + beta


def norm_over_the_sentence(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean((-2, -1), keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean((-2, -1), keepdims=True) + 1e-5) + beta


def norm_over_the_batch(x: Array, gamma: Array, beta: Array) -> Array:
    axes = tuple(range(x.ndim - 1))
    return gamma * (x - x.mean(axes)) / np.sqrt(x.var(axes) + 1e-5) + beta


def norm_of_root_mean_square(x: Array, gamma: Array, beta: Array) -> Array:
    return gamma * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) + beta


def norm_without_beta(x: Array, gamma: Array, beta: Array) -> Array:
    return layer_norm(x, gamma, 0 * beta)


def norm_without_gamma(x: Array, gamma: Array, beta: Array) -> Array:
    return layer_norm(x, np.ones(len(gamma)), beta)


def norm_without_gamma_and_beta(x: Array, gamma: Array, beta: Array) -> Array:
    return layer_norm(x, np.ones(len(gamma)), 0 * beta)


def norm_with_gamma_and_beta_swapped(x: Array, gamma: Array, beta: Array) -> Array:
    return layer_norm(x, beta, gamma)


def ffn_without_relu(x, W1, b1, W2, b2):
    return (x @ W1 + b1) @ W2 + b2


def ffn_with_relu_on_the_output(x, W1, b1, W2, b2):
    return np.maximum((x @ W1 + b1) @ W2 + b2, 0)


def ffn_with_two_relus(x, W1, b1, W2, b2):
    return np.maximum(ffn(x, W1, b1, W2, b2), 0)


def ffn_without_biases(x, W1, b1, W2, b2):
    return ffn(x, W1, 0 * b1, W2, 0 * b2)


def ffn_without_b1(x, W1, b1, W2, b2):
    return ffn(x, W1, 0 * b1, W2, b2)


def ffn_without_b2(x, W1, b1, W2, b2):
    return ffn(x, W1, b1, W2, 0 * b2)


def block_of(
    form: Callable,
    *,
    norm=layer_norm,
    network=ffn,
    attention=multi_head_attention,
    heads=lambda num_heads: num_heads,
) -> Callable:
    """A function of the block's fourteen arguments: a form, made with these tools."""

    def block(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
        return form(
            x,
            lambda z: attention(z, W_q, W_k, W_v, W_o, heads(num_heads)),
            lambda z: network(z, W1, b1, W2, b2),
            lambda z: norm(z, gamma1, beta1),
            lambda z: norm(z, gamma2, beta2),
        )

    return block


def block_weights(rng: np.random.Generator, d: int, f: int) -> tuple[Array, ...]:
    """Twelve random arrays in the order of the block's arguments; gamma1, gamma2 and the betas all differ."""
    attention = (rng.normal(size=(d, d)) * 1.3 / np.sqrt(d) for _ in range(4))
    network = (
        rng.normal(size=(d, f)) * 1.3 / np.sqrt(d),
        rng.normal(size=f) / 2,
        rng.normal(size=(f, d)) * 1.3 / np.sqrt(f),
        rng.normal(size=d) / 2,
    )
    norms = (
        1 + rng.normal(size=d) / 2,
        rng.normal(size=d) / 2,
        1 + rng.normal(size=d) / 2,
        rng.normal(size=d) / 2,
    )
    return (*attention, *network, *norms)


def block_case(rng: np.random.Generator, batch: int, seq: int, d: int, f: int, heads: int) -> tuple:
    """The block's fourteen arguments, random."""
    return (rng.normal(size=(batch, seq, d)), *block_weights(rng, d, f), heads)


def integer_block_case(rng: np.random.Generator) -> tuple:
    """The block's fourteen arguments in whole numbers."""
    d, f = 4, 3
    shapes = [(d, d)] * 4 + [(d, f), (f,), (f, d), (d,)] + [(d,)] * 4
    x = rng.permutation(17)[:8].reshape(1, 2, d) - 8
    return (x, *(rng.integers(-2, 3, size=shape) for shape in shapes), 2)


# slips of the tools, which post-norm and pre-norm blocks share: what the block uses, and the cause
TOOL_SLIPS = {
    "variance-d-1": (
        {"norm": norm_with_d_minus_1},
        'Your block is right for a layer_norm whose variance divides by d_model - 1. Look at your layer_norm: check("layer_norm").',
    ),
    "eps-1e-6": (
        {"norm": partial(layer_norm, eps=1e-6)},
        "Your block is right for eps = 1e-6. This course uses 1e-5, the default of layer_norm.",
    ),
    "eps-1e-12": (
        {"norm": partial(layer_norm, eps=1e-12)},
        "Your block is right for an eps of almost nothing, or none. This course uses 1e-5, the default of layer_norm.",
    ),
    "eps-outside": (
        {"norm": norm_with_eps_outside},
        'Your block is right for a layer_norm that adds eps outside the root. Look at your layer_norm: check("layer_norm").',
    ),
    "norm-without-root": (
        {"norm": norm_without_root},
        'Your block is right for a layer_norm that divides by the variance, not by its root. Look at your layer_norm: check("layer_norm").',
    ),
    "norm-over-the-sentence": (
        {"norm": norm_over_the_sentence},
        'Your block is right for a layer_norm with one mean and variance per sentence. Each token has its own: check("layer_norm").',
    ),
    "batch-norm": (
        {"norm": norm_over_the_batch},
        'Your block is right for a batch norm: its mean and variance run over the tokens. Each token has its own: check("layer_norm").',
    ),
    "root-mean-square-norm": (
        {"norm": norm_of_root_mean_square},
        'Your block is right for a norm that does not subtract the mean (RMSNorm). Look at your layer_norm: check("layer_norm").',
    ),
    "no-beta": (
        {"norm": norm_without_beta},
        "beta1 and beta2 are not used, by your block or by your layer_norm.",
    ),
    "no-gamma": (
        {"norm": norm_without_gamma},
        "gamma1 and gamma2 are not used, by your block or by your layer_norm.",
    ),
    "no-gamma-and-beta": (
        {"norm": norm_without_gamma_and_beta},
        "gamma and beta of both norms are not used: the block behaves as if they were 1 and 0.",
    ),
    "gamma-and-beta-swapped": (
        {"norm": norm_with_gamma_and_beta_swapped},
        "gamma and beta have changed places in both norms: layer_norm takes gamma first, then beta.",
    ),
    "no-relu": (
        {"network": ffn_without_relu},
        'Your block is right for an FFN without its ReLU. Look at your ffn: check("ffn").',
    ),
    "relu-on-the-output": (
        {"network": ffn_with_relu_on_the_output},
        'Your block is right for an FFN whose ReLU sits on its output, not on the hidden layer. Look at your ffn: check("ffn").',
    ),
    "relu-twice": (
        {"network": ffn_with_two_relus},
        'Your block is right for an FFN with a second ReLU, on its output. Look at your ffn: check("ffn").',
    ),
    "no-b1": ({"network": ffn_without_b1}, "b1 is not used, by your block or by your ffn."),
    "no-b2": ({"network": ffn_without_b2}, "b2 is not used, by your block or by your ffn."),
    "no-ffn-biases": (
        {"network": ffn_without_biases},
        "b1 and b2 are not used, by your block or by your ffn.",
    ),
    "one-head-only": (
        {"heads": lambda num_heads: 1},
        "num_heads does not reach the attention: the block computes one head.",
    ),
    "attention-not-scaled": (
        {"attention": wrong_attention(divisor=undivided)},
        'Your block is right for an attention whose scores are not divided by the root of d_k: check("multi_head_attention").',
    ),
    "attention-over-queries": (
        {"attention": wrong_attention(share=over_queries)},
        'Your block is right for an attention whose softmax runs along the wrong axis: check("multi_head_attention").',
    ),
    "heads-merged-by-reshape": (
        {"attention": wrong_attention(merge=merge_by_reshape)},
        'Your block is right for an attention that merges its heads by one reshape: check("multi_head_attention").',
    ),
    "no-W_o": (
        {"attention": wrong_attention(output=lambda y, W_o: y)},
        'Your block is right for an attention that leaves out W_o: check("multi_head_attention").',
    ),
    "batch-mixing": (
        {"attention": as_one_sentence(multi_head_attention)},
        "Tokens read tokens of other sentences. Each sentence of the batch attends to itself only.",
    ),
    "W_q-and-W_k-swapped": (
        {"attention": wrong_attention(use=("k", "q", "v"))},
        "W_q and W_k have changed places on the way to the attention.",
    ),
    "W_k-and-W_v-swapped": (
        {"attention": wrong_attention(use=("q", "v", "k"))},
        "W_k and W_v have changed places on the way to the attention.",
    ),
}


def add_tool_slips(exercise: Exercise, form: Callable) -> None:
    """Name the slips of the tools for one form of the block."""
    for id, (tools, cause) in TOOL_SLIPS.items():
        exercise.mistake(id, cause, block_of(form, **tools))


# ------------------------------------------------------------------------------------------ 5.5

ENCODER_BLOCK = Exercise(
    number="5.5",
    title="The whole block (post-norm)",
    level="hard",
    difficulty=4,
    minutes=15,
    core=True,
    why="This is the encoder block of the paper: two sub-layers, two residuals, two norms.",
    budget="Two lines are enough: one per sub-layer.",
    hints=(
        "What does the second sub-layer read: x, the attention's output, or what the first norm returned? And what is "
        "added to its output?",
        "Everything is (batch, seq, d_model). Sub-layer 1: x and its attention, added, then the first norm. Sub-layer 2: "
        "the result and its FFN, added, then the second norm.",
        "y: norm 1 of (x plus attention of x), with gamma1 and beta1. Return norm 2 of (y plus ffn of y), with gamma2 and beta2.",
    ),
    builds_on=("layer_norm", "ffn", "multi_head_attention"),
)


@ENCODER_BLOCK.reference
def encoder_block(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    W1: np.ndarray,
    b1: np.ndarray,
    W2: np.ndarray,
    b2: np.ndarray,
    gamma1: np.ndarray,
    beta1: np.ndarray,
    gamma2: np.ndarray,
    beta2: np.ndarray,
    num_heads: int,
) -> np.ndarray:
    """One encoder block, post-norm: y = LayerNorm(x + attention(x)), then LayerNorm(y + FFN(y)).

    x                    : (batch, seq, d_model)
    W_q, W_k, W_v, W_o   : (d_model, d_model), no biases
    W1, b1, W2, b2       : (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)
    gamma1, beta1        : (d_model,), of the norm after the attention
    gamma2, beta2        : (d_model,), of the norm after the FFN
    num_heads            : it divides d_model
    returns              : (batch, seq, d_model)

    eps is 1e-5, there is no mask and no dropout. No input is changed. You may call
    multi_head_attention, layer_norm and ffn.

    >>> z, zero, one = np.zeros((2, 2)), np.zeros(2), np.ones(2)
    >>> encoder_block(np.array([[[3.0, 1.0]]]), z, z, z, z, z, zero, z, zero, one, zero, one, zero, 1).round(3)
    array([[[ 1., -1.]]])
    """
    y = layer_norm(x + multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads), gamma1, beta1)
    return layer_norm(y + ffn(y, W1, b1, W2, b2), gamma2, beta2)


@ENCODER_BLOCK.worked("the worked example, weights H", 0.25, decimals=6)
def _():
    yield ask(X[None], *WEIGHTS_H, 1)


@ENCODER_BLOCK.must("right values with one head", 1.0)
def block_one_head(rng):
    yield ask(*block_case(rng, 1, 2, 3, 4, 1))
    yield ask(*block_case(rng, 2, 3, 4, 5, 1))


@ENCODER_BLOCK.must("right values with several heads", 2.0)
def block_several_heads(rng):
    yield ask(*block_case(rng, 1, 3, 4, 5, 2))
    yield ask(*block_case(rng, 2, 3, 6, 4, 3))
    yield ask(*block_case(rng, 3, 2, 8, 6, 4))


@ENCODER_BLOCK.must("right values where lengths agree (batch = seq = d_model = d_ff)", 0.5)
def block_lengths_agree(rng):
    yield ask(*block_case(rng, 4, 4, 4, 4, 2))


@ENCODER_BLOCK.must("a sentence alone gives the same as in its batch", 0.5)
def block_sentence_alone(rng):
    x, *rest = block_case(rng, 2, 3, 4, 3, 2)
    yield steps(Call((x[1:], *rest)), Call((x, *rest)))


@ENCODER_BLOCK.must("tokens of size 0.01, where eps counts", 0.5)
def block_small_tokens(rng):
    x, *rest = block_case(rng, 1, 3, 4, 3, 2)
    yield ask(0.01 * x, *rest)


@ENCODER_BLOCK.must("one sentence of one token", 0.25)
def block_one_token(rng):
    yield ask(*block_case(rng, 1, 1, 4, 3, 2))


@ENCODER_BLOCK.must("integers work like floats", 0.25)
def block_integers(rng):
    yield ask(*integer_block_case(rng))


@ENCODER_BLOCK.must("arguments by name", 0.25)
def block_by_name(rng):
    yield ask(**dict(zip(ENCODER_BLOCK.parameters, block_case(rng, 1, 2, 4, 3, 2))))


ENCODER_BLOCK.leaves_inputs_alone(0.5, block_one_head)

for id, cause, form in [
    (
        "pre-norm",
        "This is the pre-norm block: each norm stands in front of its sub-layer. In post-norm it takes the sum.",
        pre_norm,
    ),
    (
        "pre-norm-final-norm",
        "This is the pre-norm block with a norm at the end. In post-norm each norm takes the sum of its own sub-layer.",
        pre_norm_and_last_norm,
    ),
    (
        "sandwich",
        "Each norm is used twice, before its sub-layer and after the sum. In post-norm it takes the sum only.",
        sandwich,
    ),
    (
        "pre-norm-first-half",
        "The attention's sub-layer is pre-norm: its norm stands in front. In post-norm it takes the sum.",
        lambda x, A, F, L1, L2: L2(x + A(L1(x)) + F(x + A(L1(x)))),
    ),
    (
        "pre-norm-second-half",
        "The FFN's sub-layer is pre-norm: its norm stands in front. In post-norm it takes the sum.",
        post_norm_then_pre_norm,
    ),
    (
        "norm-on-the-branch",
        "The norms take the branches alone, before they are added. In post-norm they take the sums.",
        norm_on_the_branch,
    ),
    (
        "norm-before-the-sum",
        "You norm the stream and then add the branch. In post-norm the branch is added first, then the sum is normed.",
        norm_before_the_sum,
    ),
    (
        "norm-1-twice",
        "gamma1 and beta1 serve both norms. The second norm has its own: gamma2 and beta2.",
        norm_1_twice,
    ),
    (
        "norm-2-twice",
        "gamma2 and beta2 serve both norms. The first norm has its own: gamma1 and beta1.",
        norm_2_twice,
    ),
    (
        "norms-swapped",
        "The two norms have changed places: gamma1 and beta1 belong to the one after the attention.",
        norms_swapped,
    ),
    ("no-residual-1", "The attention's output is normed alone: x is not added to it.", no_residual_1),
    (
        "no-residual-2",
        "The FFN's output is normed alone: what the FFN read is not added to it.",
        no_residual_2,
    ),
    ("no-residuals", "Nothing is added in either sub-layer: both residuals are missing.", no_residuals),
    (
        "block-input-twice",
        "The second residual adds the block's input x. It adds what the FFN read, the output of the first norm.",
        block_input_twice,
    ),
    (
        "input-added-again",
        "The second sum holds the block's input x as well. It has two parts: what the FFN read and what it returned.",
        input_added_again,
    ),
    (
        "residual-doubled",
        "The stream is added twice in each sub-layer. Perhaps a tool of yours adds its input already.",
        residual_doubled,
    ),
    (
        "ffn-reads-input",
        "The FFN reads the block's input x. It reads the output of the first norm.",
        ffn_reads_input,
    ),
    (
        "ffn-first",
        "The FFN comes before the attention. In the paper's block the attention comes first.",
        ffn_first,
    ),
    ("no-first-norm", "The norm after the attention is missing.", no_first_norm),
    ("no-second-norm", "The norm after the FFN is missing.", no_second_norm),
    ("no-norms", "Both norms are missing.", no_norms),
    (
        "parallel",
        "Attention and FFN both read x and are added in one step. Here the FFN reads the normed sum of the first sub-layer.",
        parallel,
    ),
    (
        "parallel-pre-norm",
        "Attention and FFN run side by side on one normed input, as in GPT-J. Here they come one after the other, post-norm.",
        parallel_pre_norm,
    ),
    ("no-ffn", "The second sub-layer is missing: you return the output of the first norm.", no_ffn),
    ("no-attention", "The first sub-layer is missing: only the FFN is computed.", no_attention),
]:
    ENCODER_BLOCK.mistake(id, cause, block_of(form))

add_tool_slips(ENCODER_BLOCK, right)
add_rounded(ENCODER_BLOCK)


@ENCODER_BLOCK.mistake(
    "changes-input",
    "x += ... writes into the caller's array: after the call x is another one. Make a new array instead.",
)
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    x += multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads).astype(x.dtype)
    y = layer_norm(x, gamma1, beta1)
    return layer_norm(y + ffn(y, W1, b1, W2, b2), gamma2, beta2)


@ENCODER_BLOCK.mistake(
    "writes-result-into-x", "Your function writes its results into x. The caller's array must stay as it was."
)
def _(x, *weights_and_heads):
    result = encoder_block(x, *weights_and_heads)
    x[...] = result
    return result


@ENCODER_BLOCK.mistake(
    "rounded-output", "The result is rounded. Rounding is for printing; the next block needs all digits."
)
def _(*arguments):
    return encoder_block(*arguments).round(6)


@ENCODER_BLOCK.mistake(
    "rounded-in-between",
    "What the first norm returns is rounded to two decimals and carried on, as on the published page. Keep all digits.",
)
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    y = layer_norm(x + multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads), gamma1, beta1).round(2)
    return layer_norm(y + ffn(y, W1, b1, W2, b2), gamma2, beta2)


for first, second, wrong_block in [
    ("pre-norm", "norm-1-twice", block_of(pre_norm_norm_1_twice)),
    ("pre-norm", "variance-d-1", block_of(pre_norm, norm=norm_with_d_minus_1)),
    ("pre-norm", "eps-1e-6", block_of(pre_norm, norm=partial(layer_norm, eps=1e-6))),
    ("norm-1-twice", "no-residual-2", block_of(lambda x, A, F, L1, L2: no_residual_2(x, A, F, L1, L1))),
    ("norm-1-twice", "variance-d-1", block_of(norm_1_twice, norm=norm_with_d_minus_1)),
    ("no-residual-2", "ffn-reads-input", block_of(lambda x, A, F, L1, L2: L2(F(x)))),
    ("no-second-norm", "no-residual-2", block_of(lambda x, A, F, L1, L2: F(L1(x + A(x))))),
    ("no-second-norm", "ffn-reads-input", block_of(lambda x, A, F, L1, L2: L1(x + A(x)) + F(x))),
    (
        "variance-d-1",
        "eps-outside",
        block_of(
            right,
            norm=lambda x, g, b: (
                g * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True, ddof=1) + 1e-5) + b
            ),
        ),
    ),
    (
        "variance-d-1",
        "eps-1e-6",
        block_of(
            right,
            norm=lambda x, g, b: (
                g * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-6) + b
            ),
        ),
    ),
    (
        "variance-d-1",
        "attention-not-scaled",
        block_of(right, norm=norm_with_d_minus_1, attention=wrong_attention(divisor=undivided)),
    ),
]:
    ENCODER_BLOCK.pair(first, second, wrong_block)


@ENCODER_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    # everything written out, one sentence, one token, one head at a time
    def norm(row, gamma, beta):
        mu = sum(row) / len(row)
        return gamma * (row - mu) / (sum((row - mu) ** 2) / len(row) + 1e-5) ** 0.5 + beta

    d_k = x.shape[2] // num_heads
    sentences = []
    for sentence in x:
        rows = []
        for token in sentence:
            mixtures = []
            for h in range(num_heads):
                cut = np.s_[:, h * d_k : (h + 1) * d_k]
                scores = (sentence @ W_k[cut]) @ (token @ W_q[cut]) / np.sqrt(d_k)
                shares = np.exp(scores - max(scores)) / sum(np.exp(scores - max(scores)))
                mixtures.append(shares @ (sentence @ W_v[cut]))
            y = norm(token + np.concatenate(mixtures) @ W_o, gamma1, beta1)
            hidden = np.array([max(z, 0.0) for z in y @ W1 + b1])
            rows.append(norm(y + hidden @ W2 + b2, gamma2, beta2))
        sentences.append(rows)
    print("sentences:", len(sentences))
    return np.array(sentences)


@ENCODER_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    def norm(z, gamma, beta):
        return (z - np.mean(z, -1)[..., None]) / np.sqrt(np.var(z, -1) + 1e-5)[..., None] * gamma + beta

    d = x.shape[-1]
    cut = (d, num_heads, d // num_heads)
    q, k, v = (np.einsum("btd,dhk->bhtk", x, W.reshape(cut)) for W in (W_q, W_k, W_v))
    shares = softmax(np.einsum("bhqk,bhtk->bhqt", q, k) / np.sqrt(d / num_heads))
    attended = np.einsum("bhqt,bhtk,hkd->bqd", shares, v, W_o.reshape(num_heads, -1, d))
    stream = norm(attended + x, gamma1, beta1)
    pre = stream @ W1 + b1
    return norm(np.where(pre > 0, pre, 0) @ W2 + (b2 + stream), gamma2, beta2)


@ENCODER_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    np.sqrt(np.array([-1.0]))  # a NumPy warning that costs nothing
    stream = x.astype(float).copy()
    for sub_layer, gamma, beta in [
        (lambda z: multi_head_attention(z, W_q, W_k, W_v, W_o, num_heads), gamma1, beta1),
        (lambda z: ffn(z, W1, b1, W2, b2), gamma2, beta2),
    ]:
        stream += sub_layer(stream)
        stream = layer_norm(stream, gamma, beta)
    return stream


# ------------------------------------------------------------------------------------------ 5.6

PRENORM_BLOCK = Exercise(
    number="5.6",
    title="One box moved (pre-norm)",
    level="hard",
    difficulty=4,
    minutes=12,
    core=True,
    why="Most large models of today use this order, and it is the one most often mistaken for the other.",
    budget="Two lines are enough.",
    hints=(
        "In pre-norm the stream itself is never normed. What does a sub-layer read, and to what is its output added?",
        "Everything is (batch, seq, d_model). Sub-layer 1 reads norm 1 of x; its output is added to x. Sub-layer 2 reads "
        "norm 2 of that sum; its output is added to that sum.",
        "u: x plus attention of (norm 1 of x). Return u plus ffn of (norm 2 of u).",
    ),
    builds_on=("layer_norm", "ffn", "multi_head_attention"),
)


@PRENORM_BLOCK.reference
def prenorm_block(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    W1: np.ndarray,
    b1: np.ndarray,
    W2: np.ndarray,
    b2: np.ndarray,
    gamma1: np.ndarray,
    beta1: np.ndarray,
    gamma2: np.ndarray,
    beta2: np.ndarray,
    num_heads: int,
) -> np.ndarray:
    """One encoder block, pre-norm: u = x + attention(LayerNorm(x)), then u + FFN(LayerNorm(u)).

    The arguments are those of encoder_block: x is (batch, seq, d_model), gamma1 and beta1 belong to
    the norm in front of the attention, gamma2 and beta2 to the norm in front of the FFN.
    returns : (batch, seq, d_model)

    eps is 1e-5, there is no mask, no dropout and no norm at the end. No input is changed.

    >>> z, zero, one = np.zeros((2, 2)), np.zeros(2), np.ones(2)
    >>> prenorm_block(np.array([[[3.0, 1.0]]]), z, z, z, z, z, zero, z, zero, one, zero, one, zero, 1)
    array([[[3., 1.]]])
    """
    u = x + multi_head_attention(layer_norm(x, gamma1, beta1), W_q, W_k, W_v, W_o, num_heads)
    return u + ffn(layer_norm(u, gamma2, beta2), W1, b1, W2, b2)


@PRENORM_BLOCK.worked("the worked example's weights H, in pre-norm order", 0.25, decimals=6)
def _():
    yield ask(X[None], *WEIGHTS_H, 1)


PRENORM_BLOCK.must("right values with one head", 1.0)(block_one_head)
PRENORM_BLOCK.must("right values with several heads", 1.75)(block_several_heads)
PRENORM_BLOCK.must("right values where lengths agree (batch = seq = d_model = d_ff)", 0.5)(
    block_lengths_agree
)


@PRENORM_BLOCK.must(
    "what the attention adds does not depend on the size of the stream",
    0.75,
    tolerance=1e-6,
    view=View(added_to_input),
)
def branch_does_not_grow(rng):
    x, *rest = block_case(rng, 1, 2, 4, 3, 2)
    rest[6], rest[7] = np.zeros_like(rest[6]), np.zeros_like(rest[7])  # W2 and b2: a silent FFN
    yield steps(Call((1e4 * x, *rest)), Call((2e4 * x, *rest)))


@PRENORM_BLOCK.must(
    "silent branches (W_o, W2, b2 all zero) give x back exactly", 0.5, needs_values=True, tolerance=0.0
)
def silent_branches(rng):
    x, *rest = block_case(rng, 2, 3, 4, 3, 2)
    for i in (3, 6, 7):
        rest[i] = np.zeros_like(rest[i])
    yield ask(x, *rest)


PRENORM_BLOCK.must("tokens of size 0.01, where eps counts", 0.25)(block_small_tokens)
PRENORM_BLOCK.must("a sentence alone gives the same as in its batch", 0.25)(block_sentence_alone)
PRENORM_BLOCK.must("integers work like floats", 0.25)(block_integers)
PRENORM_BLOCK.leaves_inputs_alone(0.5, block_one_head)

for id, cause, form in [
    (
        "post-norm",
        "This is the post-norm block of 5.5: its norms take the sums. In pre-norm they stand in front of the sub-layers.",
        right,
    ),
    (
        "final-norm",
        "A norm is added at the end of the block. In pre-norm the stream leaves the block as it is; one norm follows the whole stack.",
        pre_norm_and_last_norm,
    ),
    (
        "sandwich",
        "Each norm is used twice, before its sub-layer and after the sum. In pre-norm the sum stays as it is.",
        sandwich,
    ),
    (
        "pre-norm-first-half",
        "The FFN's sub-layer is post-norm: its norm takes the sum. In pre-norm it stands in front.",
        pre_norm_then_post_norm,
    ),
    (
        "pre-norm-second-half",
        "The attention's sub-layer is post-norm: its norm takes the sum. In pre-norm it stands in front.",
        post_norm_then_pre_norm,
    ),
    (
        "normed-copy-added-back",
        "The branches are added to the normed copy, not to the stream, in both sub-layers. The norm is only for what the branch reads.",
        normed_copy_twice,
    ),
    (
        "normed-copy-added-back-1",
        "The attention's output is added to the normed copy of x. It is added to x itself.",
        normed_copy_first,
    ),
    (
        "normed-copy-added-back-2",
        "The FFN's output is added to the normed copy of the stream. It is added to the stream itself.",
        normed_copy_second,
    ),
    (
        "second-norm-reads-normed-x",
        "The second norm reads what the first one returned. It reads the stream after the attention has been added.",
        pre_norm_second_norm_reads_first,
    ),
    (
        "second-norm-reads-branch",
        "The second norm reads the attention's output alone. It reads the stream, x plus that output.",
        pre_norm_second_norm_reads_branch,
    ),
    (
        "parallel",
        "Attention and FFN both read norm 1 of x, side by side, as in GPT-J. Here the FFN reads the stream after the attention.",
        parallel_pre_norm,
    ),
    (
        "second-norm-reads-x",
        "The second norm reads the block's input x. It reads the stream after the attention has been added.",
        parallel_pre_norm_two_norms,
    ),
    (
        "norm-on-the-branch",
        "The norms take the outputs of the sub-layers. In pre-norm they take what the sub-layers read.",
        norm_on_the_branch,
    ),
    (
        "block-input-twice",
        "The FFN's output is added to the block's input x, so the attention's change is lost. It is added to the stream.",
        pre_norm_block_input_twice,
    ),
    ("no-residual-1", "x is not added to the attention's output.", pre_norm_no_residual_1),
    ("no-residual-2", "The stream is not added to the FFN's output.", pre_norm_no_residual_2),
    (
        "no-residuals",
        "Nothing is added in either sub-layer: both residuals are missing.",
        lambda x, A, F, L1, L2: F(L2(A(L1(x)))),
    ),
    ("no-first-norm", "The attention reads x as it is: the first norm is missing.", pre_norm_no_first_norm),
    (
        "no-second-norm",
        "The FFN reads the stream as it is: the second norm is missing.",
        pre_norm_no_second_norm,
    ),
    ("no-norms", "Both norms are missing.", no_norms),
    ("ffn-first", "The FFN comes before the attention. The attention comes first.", pre_norm_ffn_first),
    (
        "norm-1-twice",
        "gamma1 and beta1 serve both norms. The second norm has its own: gamma2 and beta2.",
        pre_norm_norm_1_twice,
    ),
    (
        "norm-2-twice",
        "gamma2 and beta2 serve both norms. The first norm has its own: gamma1 and beta1.",
        lambda x, A, F, L1, L2: pre_norm(x, A, F, L2, L2),
    ),
    (
        "norms-swapped",
        "The two norms have changed places: gamma1 and beta1 belong to the one in front of the attention.",
        pre_norm_norms_swapped,
    ),
    (
        "no-ffn",
        "The second sub-layer is missing: you return the stream after the attention.",
        pre_norm_no_ffn,
    ),
    (
        "no-attention",
        "The first sub-layer is missing: only the FFN is computed.",
        lambda x, A, F, L1, L2: x + F(L2(x)),
    ),
]:
    PRENORM_BLOCK.mistake(id, cause, block_of(form))

add_tool_slips(PRENORM_BLOCK, pre_norm)
add_rounded(PRENORM_BLOCK)


@PRENORM_BLOCK.mistake(
    "changes-input",
    "x += ... writes into the caller's array: after the call x is another one. Make a new array instead.",
)
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    x += multi_head_attention(layer_norm(x, gamma1, beta1), W_q, W_k, W_v, W_o, num_heads).astype(x.dtype)
    return x + ffn(layer_norm(x, gamma2, beta2), W1, b1, W2, b2)


@PRENORM_BLOCK.mistake(
    "writes-result-into-x", "Your function writes its results into x. The caller's array must stay as it was."
)
def _(x, *weights_and_heads):
    result = prenorm_block(x, *weights_and_heads)
    x[...] = result
    return result


@PRENORM_BLOCK.mistake(
    "rounded-output", "The result is rounded. Rounding is for printing; the next block needs all digits."
)
def _(*arguments):
    return prenorm_block(*arguments).round(6)


for first, second, wrong_block in [
    (
        "normed-copy-added-back",
        "no-second-norm",
        block_of(lambda x, A, F, L1, L2: L1(x) + A(L1(x)) + F(L1(x) + A(L1(x)))),
    ),
    (
        "norm-1-twice",
        "normed-copy-added-back",
        block_of(lambda x, A, F, L1, L2: normed_copy_twice(x, A, F, L1, L1)),
    ),
    ("norm-1-twice", "variance-d-1", block_of(pre_norm_norm_1_twice, norm=norm_with_d_minus_1)),
    ("norm-1-twice", "final-norm", block_of(lambda x, A, F, L1, L2: pre_norm_and_last_norm(x, A, F, L1, L1))),
    ("no-residual-2", "second-norm-reads-x", block_of(lambda x, A, F, L1, L2: F(L2(x)))),
    ("post-norm", "norm-1-twice", block_of(norm_1_twice)),
    ("post-norm", "variance-d-1", block_of(right, norm=norm_with_d_minus_1)),
]:
    PRENORM_BLOCK.pair(first, second, wrong_block)


@PRENORM_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    stream = np.array(x, dtype=float)
    stream += multi_head_attention(layer_norm(stream, gamma1, beta1), W_q, W_k, W_v, W_o, num_heads)
    stream += ffn(layer_norm(stream, gamma2, beta2), W1, b1, W2, b2)
    print(stream.shape)
    return stream


@PRENORM_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    # a norm folded into the next matrix: gamma scales its rows, beta becomes a bias
    def centred(z):
        return (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 1e-5)

    d = x.shape[-1]
    cut = (d, num_heads, d // num_heads)
    z = centred(x)
    q, k, v = (
        np.einsum("btd,dhk->bhtk", z, (gamma1[:, None] * W).reshape(cut))
        + (beta1 @ W).reshape(1, num_heads, 1, -1)
        for W in (W_q, W_k, W_v)
    )
    mixed = softmax(q @ np.swapaxes(k, 2, 3) / np.sqrt(d // num_heads)) @ v
    u = x + np.concatenate([mixed[:, h] for h in range(num_heads)], axis=-1) @ W_o
    return u + np.maximum(0, centred(u) @ (gamma2[:, None] * W1) + (beta2 @ W1 + b1)) @ W2 + b2


@PRENORM_BLOCK.variant
def _(x, W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2, num_heads):
    np.divide(np.ones(1), np.zeros(1))  # a NumPy warning that costs nothing
    out = []
    for sentence in x:
        a = multi_head_attention(layer_norm(sentence[None], gamma1, beta1), W_q, W_k, W_v, W_o, num_heads)[0]
        rows = [row + ffn(layer_norm(row, gamma2, beta2), W1, b1, W2, b2) for row in sentence + a]
        out.append(rows)
    return np.asarray(out)


# ------------------------------------------------------------------------------------------ 5.7

ENCODER = Exercise(
    number="5.7",
    title="The stack, post-norm or pre-norm",
    level="hard",
    difficulty=4,
    minutes=12,
    core=False,
    why="An encoder is nothing but blocks in a row, each with weights of its own.",
    budget="Five lines are enough.",
    hints=(
        "What does the second block read? And which of the two kinds of block leaves a stream that nobody has normed at the end?",
        "x stays (batch, seq, d_model) from block to block. A layer is a tuple of twelve arrays in the order of the block's "
        "arguments, so *layer puts them in place.",
        "choose the block by norm. for each layer: x becomes block of (x, the layer's twelve arrays, num_heads). If norm is "
        "pre and final is given: x becomes layer_norm of x with final's gamma and beta. Return x.",
    ),
    builds_on=("encoder_block", "prenorm_block", "layer_norm"),
)


@ENCODER.reference
def encoder(
    x: np.ndarray, layers: list[tuple], num_heads: int, norm: str = "post", final: tuple | None = None
) -> np.ndarray:
    """A stack of encoder blocks, all post-norm or all pre-norm; each block reads what the one before returned.

    x         : (batch, seq, d_model)
    layers    : a list of tuples (W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2), first block first
    num_heads : the same for all blocks
    norm      : "post" or "pre"
    final     : (gamma, beta) of a last layer norm; used with "pre" only, ignored with "post"; None: no last norm
    returns   : (batch, seq, d_model); without layers and without a last norm, x

    Neither x nor the list is changed. You may call encoder_block, prenorm_block and layer_norm.

    >>> encoder(np.array([[[3.0, 1.0]]]), [], num_heads=1)
    array([[[3., 1.]]])
    """
    block = encoder_block if norm == "post" else prenorm_block
    for weights in layers:
        x = block(x, *weights, num_heads)
    if norm == "pre" and final is not None:
        x = layer_norm(x, *final)
    return x


def stack_case(rng: np.random.Generator, n: int, batch: int = 1, d: int = 4, heads: int = 2) -> tuple:
    """x, n layers and the number of heads."""
    return rng.normal(size=(batch, 2, d)), [block_weights(rng, d, 3) for _ in range(n)], heads


def last_norm(rng: np.random.Generator, d: int = 4) -> tuple[Array, Array]:
    return 1 + rng.normal(size=d) / 2, rng.normal(size=d) / 2


@ENCODER.worked("two layers of weights H, post-norm and pre-norm", 0.25, decimals=6)
def _():
    yield ask(X[None], [WEIGHTS_H, WEIGHTS_H], 1)
    yield ask(X[None], [WEIGHTS_H, WEIGHTS_H], 1, norm="pre", final=(np.ones(4), np.zeros(4)))


@ENCODER.must("right values of a post-norm stack", 1.75)
def post_norm_stack(rng):
    yield ask(*stack_case(rng, 1), "post")
    yield ask(*stack_case(rng, 3, batch=2), "post")


@ENCODER.must("right values of a pre-norm stack without a last norm", 1.25)
def pre_norm_stack(rng):
    yield ask(*stack_case(rng, 1), "pre")
    yield ask(*stack_case(rng, 3, batch=2), "pre", None)


@ENCODER.must("the last norm of a pre-norm stack", 1.0)
def pre_norm_stack_and_final(rng):
    yield ask(*stack_case(rng, 2), "pre", last_norm(rng))
    yield ask(*stack_case(rng, 3, d=6, heads=3), "pre", final=last_norm(rng, 6))


@ENCODER.must('a post-norm stack ignores final, and norm is "post" when left out', 0.75)
def final_ignored(rng):
    yield ask(*stack_case(rng, 2), "post", last_norm(rng))
    yield ask(*stack_case(rng, 2), final=last_norm(rng))
    x, layers, num_heads = stack_case(rng, 2)
    yield ask(x=x, layers=layers, num_heads=num_heads)


@ENCODER.must("no layers: x, or its last norm in pre-norm", 0.25, needs_values=True)
def no_layers(rng):
    x = stack_case(rng, 0)[0]
    yield ask(x, [], 2)
    yield ask(x, [], 2, "pre", last_norm(rng))


ENCODER.leaves_inputs_alone(
    0.75, lambda rng: [ask(*stack_case(rng, 2), "post"), ask(*stack_case(rng, 2), "pre", last_norm(rng))]
)


def wrong_encoder(
    *,
    chosen=lambda layers: layers,
    pick=lambda norm: encoder_block if norm == "post" else prenorm_block,
    step=lambda block, x, start: block(x),
    has_final=lambda norm, final: norm == "pre" and final is not None,
    end=lambda x, final, layers: layer_norm(x, *final),
    after_each=False,
    heads=lambda num_heads: num_heads,
) -> Callable:
    """A stack with slips: other layers, another block, another way from block to block, another end."""

    def wrong(x, layers, num_heads, norm="post", final=None):
        start = x
        for weights in chosen(layers):
            block = pick(norm)
            x = step(lambda z, block=block, weights=weights: block(z, *weights, heads(num_heads)), x, start)
            if after_each and has_final(norm, final):
                x = end(x, final, layers)
        if not after_each and has_final(norm, final):
            x = end(x, final, layers)
        return x

    return wrong


def shared(*indices: int) -> Callable:
    """Layers whose arrays at these places are those of the first layer."""

    def chosen(layers):
        return [
            tuple(layers[0][i] if i in indices else part for i, part in enumerate(layer)) for layer in layers
        ]

    return chosen


def never_final(norm: str, final: tuple | None) -> bool:
    return False


def always_final(norm: str, final: tuple | None) -> bool:
    return final is not None


def plain_end(x, final, layers):
    return layer_norm(x, np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


for id, cause, slips in [
    (
        "first-weights-throughout",
        "Every block uses the weights of the first layer. Each layer has its own.",
        {"chosen": lambda layers: [layers[0]] * len(layers) if layers else []},
    ),
    (
        "last-weights-throughout",
        "Every block uses the weights of the last layer. Each layer has its own.",
        {"chosen": lambda layers: [layers[-1]] * len(layers) if layers else []},
    ),
    (
        "attention-shared",
        "All blocks use the attention weights of the first layer. Each layer has its own.",
        {"chosen": shared(0, 1, 2, 3)},
    ),
    (
        "ffn-shared",
        "All blocks use the FFN weights of the first layer. They are shared over tokens and sentences, not over layers.",
        {"chosen": shared(4, 5, 6, 7)},
    ),
    (
        "norms-shared",
        "All blocks use the gammas and betas of the first layer. Each layer has its own.",
        {"chosen": shared(8, 9, 10, 11)},
    ),
    (
        "layers-in-reverse",
        "The last layer comes first. The list starts with the block that reads x.",
        {"chosen": lambda layers: layers[::-1]},
    ),
    ("one-layer-too-few", "The last layer is left out.", {"chosen": lambda layers: layers[:-1]}),
    ("first-layer-left-out", "The first layer is left out.", {"chosen": lambda layers: layers[1:]}),
    (
        "first-layer-only",
        "Only the first layer is used: perhaps a return stands inside the loop.",
        {"chosen": lambda layers: layers[:1]},
    ),
    (
        "last-layer-twice",
        "One block too many: the last layer is used twice.",
        {"chosen": lambda layers: layers + layers[-1:]},
    ),
    (
        "all-read-x",
        "Every block reads the original x, so only the last one counts. A block reads what the one before returned.",
        {"step": lambda block, x, start: block(start)},
    ),
    (
        "blocks-added-up",
        "The outputs of the blocks are added to the stream. A block's output already holds its input.",
        {"step": lambda block, x, start: x + block(x)},
    ),
    (
        "x-added-again",
        "The original x is added after every block. The residuals are inside the blocks.",
        {"step": lambda block, x, start: start + block(x)},
    ),
    (
        "final-forgotten",
        "The last norm of the pre-norm stack is missing. Nobody else norms its stream.",
        {"has_final": never_final},
    ),
    (
        "final-for-post-norm-too",
        "The last norm is used with post-norm as well. There the last block has just normed the stream: final is ignored.",
        {"has_final": always_final},
    ),
    (
        "final-for-post-norm-only",
        "The last norm is used with post-norm and left out with pre-norm. It is the other way round.",
        {"has_final": lambda norm, final: norm == "post" and final is not None},
    ),
    (
        "final-after-every-block",
        "The last norm is used after every block. It comes once, after the last one.",
        {"after_each": True},
    ),
    (
        "final-without-gamma-and-beta",
        "The last norm uses gamma = 1 and beta = 0. Its gamma and beta are in final.",
        {"end": plain_end},
    ),
    (
        "final-norm-always",
        "A last norm with gamma = 1 and beta = 0 is added to every pre-norm stack, also where final is None.",
        {"has_final": lambda norm, final: norm == "pre", "end": plain_end},
    ),
    (
        "final-swapped",
        "final is (gamma, beta), in this order. You use them the other way round.",
        {"end": lambda x, final, layers: layer_norm(x, final[1], final[0])},
    ),
    (
        "final-eps-1e-6",
        "The last norm uses eps = 1e-6. This course uses 1e-5, the default of layer_norm.",
        {"end": lambda x, final, layers: layer_norm(x, *final, eps=1e-6)},
    ),
    (
        "final-from-the-last-layer",
        "The last norm uses gamma2 and beta2 of the last layer. Its own are in final.",
        {"end": lambda x, final, layers: layer_norm(x, *(layers[-1][10:] if layers else final))},
    ),
    ("always-post-norm", "norm is not used: every block is post-norm.", {"pick": lambda norm: encoder_block}),
    ("always-pre-norm", "norm is not used: every block is pre-norm.", {"pick": lambda norm: prenorm_block}),
    (
        "post-and-pre-swapped",
        '"post" gives pre-norm blocks and "pre" gives post-norm blocks.',
        {"pick": lambda norm: prenorm_block if norm == "post" else encoder_block},
    ),
    (
        "one-head-only",
        "num_heads does not reach the blocks: each computes one head.",
        {"heads": lambda num_heads: 1},
    ),
]:
    ENCODER.mistake(id, cause, wrong_encoder(**slips))


add_rounded(ENCODER)


@ENCODER.mistake("default-pre", 'Where norm is left out you build a pre-norm stack. The default is "post".')
def _(x, layers, num_heads, norm="pre", final=None):
    return encoder(x, layers, num_heads, norm, final)


@ENCODER.mistake(
    "changes-the-list",
    "The call changes the list of layers (pop, reverse, append): the caller's weights are gone. Loop over it instead.",
)
def _(x, layers, num_heads, norm="post", final=None):
    while layers:
        x = encoder(x, [layers.pop(0)], num_heads, norm)
    return encoder(x, [], num_heads, norm, final)


@ENCODER.mistake("changes-input", "Your function writes into x. The caller's array must stay as it was.")
def _(x, layers, num_heads, norm="post", final=None):
    x[...] = encoder(x, layers, num_heads, norm, final)
    return x


for first, second, slips in [
    (
        "first-weights-throughout",
        "final-forgotten",
        {"chosen": lambda layers: [layers[0]] * len(layers) if layers else [], "has_final": never_final},
    ),
    (
        "layers-in-reverse",
        "final-forgotten",
        {"chosen": lambda layers: layers[::-1], "has_final": never_final},
    ),
    (
        "all-read-x",
        "final-forgotten",
        {"step": lambda block, x, start: block(start), "has_final": never_final},
    ),
    ("always-post-norm", "final-forgotten", {"pick": lambda norm: encoder_block, "has_final": never_final}),
    (
        "one-layer-too-few",
        "final-forgotten",
        {"chosen": lambda layers: layers[:-1], "has_final": never_final},
    ),
]:
    ENCODER.pair(first, second, wrong_encoder(**slips))


@ENCODER.variant
def _(x, layers, num_heads, norm="post", final=None):
    def rest(stream, left):
        print("layers left:", len(left))
        if left:
            block = {"post": encoder_block, "pre": prenorm_block}[norm]
            return rest(block(stream, *left[0], num_heads=num_heads), left[1:])
        return layer_norm(stream, final[0], final[1]) if norm == "pre" and final else stream

    return rest(x, layers)


@ENCODER.variant
def _(x, layers, num_heads, norm="post", final=None):
    stream = np.array(x, dtype=float)
    for i in range(len(layers)):
        W_q, W_k, W_v, W_o, W1, b1, W2, b2, g1, be1, g2, be2 = layers[i]
        if norm == "pre":
            stream = stream + multi_head_attention(layer_norm(stream, g1, be1), W_q, W_k, W_v, W_o, num_heads)
            stream = stream + ffn(layer_norm(stream, g2, be2), W1, b1, W2, b2)
        else:
            stream = layer_norm(stream + multi_head_attention(stream, W_q, W_k, W_v, W_o, num_heads), g1, be1)
            stream = layer_norm(stream + ffn(stream, W1, b1, W2, b2), g2, be2)
    if norm == "pre" and final:
        gamma, beta = final
        stream = (
            gamma * (stream - stream.mean(-1, keepdims=True)) / np.sqrt(stream.var(-1, keepdims=True) + 1e-5)
            + beta
        )
    return stream


@ENCODER.variant
def _(x, layers, num_heads, norm="post", final=None):
    from functools import reduce

    np.log(np.zeros(2))  # a NumPy warning that costs nothing
    block = prenorm_block if norm == "pre" else encoder_block
    out = reduce(lambda stream, weights: block(stream, *weights, num_heads), layers, x)
    return out if norm == "post" or final is None else layer_norm(out, *final)


# ------------------------------------------------------------------------------------------ 5.8

DIAGNOSE = Exercise(
    number="5.8",
    title="Name the bug",
    level="demanding",
    difficulty=5,
    minutes=30,
    core=False,
    why="None of these bugs gives an error message, so the only way to find one is an input that shows it.",
    budget="About thirty lines: fourteen candidates, one probe, one comparison.",
    hints=(
        "You know the weights, so you can compute what each of the fourteen blocks would answer. On which input do all "
        "fourteen answers differ? Think of eps: when is 0.00001 not small beside a variance?",
        "probe: (batch, seq, d_model) with at least two sentences of two or more tokens, entries around 0.01. For each label, "
        "an array of the same shape: what such a block would answer. One number per label: the largest difference.",
        "make the pieces A, F, L1, L2 from params. write the fourteen formulas of the table with them, in a dict from label "
        "to function. ask the block once with the probe. return the label whose own answer lies nearest.",
    ),
    builds_on=("layer_norm", "ffn", "multi_head_attention"),
)


@DIAGNOSE.reference
def diagnose(block: Callable, params: tuple, num_heads: int) -> str:
    """Say which of fourteen blocks this is, from what it answers.

    block     : block(x) returns its output, (batch, seq, d_model); it may be called 50 times
    params    : (W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2), the block's weights
    num_heads : how many heads it has
    returns   : "right" for a right post-norm block, else one of the labels "pre-norm", "ffn-first",
                "block-input-twice", "norm-1-twice", "norms-swapped", "no-residual-1", "no-residual-2",
                "ffn-reads-input", "no-second-norm", "parallel", "variance-d-1", "eps-1e-6", "batch-mixing"

    The table above says what each label means. You may call your own functions.

    >>> z, zero, one = np.zeros((2, 2)), np.zeros(2), np.ones(2)
    >>> weights = (z, z, z, z, z, zero, z, zero, one, zero, one, zero)
    >>> diagnose(lambda x: prenorm_block(x, *weights, 1), weights, 1)
    'pre-norm'
    """
    W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2 = params

    def A(x):
        return multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads)

    def A_mixed(x):  # all sentences as one
        return A(x.reshape(1, -1, x.shape[-1])).reshape(x.shape)

    def F(x):
        return ffn(x, W1, b1, W2, b2)

    def L1(x, eps=1e-5):
        return layer_norm(x, gamma1, beta1, eps)

    def L2(x, eps=1e-5):
        return layer_norm(x, gamma2, beta2, eps)

    def L_d_minus_1(x, gamma, beta):
        return (
            gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + 1e-5) + beta
        )

    def post(x, A=A, L1=L1, L2=L2):
        y = L1(x + A(x))
        return L2(y + F(y))

    def pre(x):
        u = x + A(L1(x))
        return u + F(L2(u))

    def ffn_first(x):
        v = L1(x + F(x))
        return L2(v + A(v))

    def no_residual_1(x):
        q = L1(A(x))
        return L2(q + F(q))

    candidates = {
        "right": post,
        "pre-norm": pre,
        "ffn-first": ffn_first,
        "block-input-twice": lambda x: L2(x + F(L1(x + A(x)))),
        "norm-1-twice": lambda x: post(x, L2=L1),
        "norms-swapped": lambda x: post(x, L1=L2, L2=L1),
        "no-residual-1": no_residual_1,
        "no-residual-2": lambda x: L2(F(L1(x + A(x)))),
        "ffn-reads-input": lambda x: L2(L1(x + A(x)) + F(x)),
        "no-second-norm": lambda x: L1(x + A(x)) + F(L1(x + A(x))),
        "parallel": lambda x: L2(x + A(x) + F(x)),
        "variance-d-1": lambda x: post(
            x, L1=lambda z: L_d_minus_1(z, gamma1, beta1), L2=lambda z: L_d_minus_1(z, gamma2, beta2)
        ),
        "eps-1e-6": lambda x: post(x, L1=lambda z: L1(z, 1e-6), L2=lambda z: L2(z, 1e-6)),
        "batch-mixing": lambda x: post(x, A=A_mixed),
    }
    # small, so that eps shows; two sentences, so that mixing shows
    probe = 0.01 * np.random.default_rng(0).normal(size=(2, 3, len(gamma1)))
    seen = block(probe)
    return min(candidates, key=lambda label: np.abs(candidates[label](probe) - seen).max())


SUSPECTS = {
    "right": block_of(right),
    "pre-norm": block_of(pre_norm),
    "ffn-first": block_of(ffn_first),
    "block-input-twice": block_of(block_input_twice),
    "norm-1-twice": block_of(norm_1_twice),
    "norms-swapped": block_of(norms_swapped),
    "no-residual-1": block_of(no_residual_1),
    "no-residual-2": block_of(no_residual_2),
    "ffn-reads-input": block_of(ffn_reads_input),
    "no-second-norm": block_of(no_second_norm),
    "parallel": block_of(parallel),
    "variance-d-1": block_of(right, norm=norm_with_d_minus_1),
    "eps-1e-6": block_of(right, norm=partial(layer_norm, eps=1e-6)),
    "batch-mixing": block_of(right, attention=as_one_sentence(multi_head_attention)),
}
CALLS = 50  # of the block, in one question


def suspect(label: str, params: tuple, num_heads: int) -> Callable:
    """A block with this bug and these weights, as a function of x alone."""
    return lambda x: SUSPECTS[label](np.asarray(x, dtype=float), *params, num_heads)


def line_up(rng: np.random.Generator, *labels: str):
    """One question per label, in random order, each with weights of its own."""
    for label in rng.permutation(labels):
        d, heads = [(4, 2), (6, 3), (8, 2)][rng.integers(3)]
        params = block_weights(rng, d, d + 2)
        yield Question((Call((suspect(label, params, heads), params, heads)),), budget=CALLS)


@DIAGNOSE.worked("finds the pre-norm block, and says right for the right one", 0.5)
def _():
    params = block_weights(np.random.default_rng(5), 4, 3)
    for name in ("prenorm_block", "encoder_block"):
        block = Given("block", (Own(name), params, 2))
        yield Question((Call((block, params, 2)),), budget=CALLS)


@DIAGNOSE.must("the order of norms and sub-layers", 2.0, judge_only=True)
def order(rng):
    return line_up(rng, "right", "pre-norm", "ffn-first", "no-second-norm", "parallel")


@DIAGNOSE.must("what is added and what is read", 2.0, judge_only=True)
def residual_paths(rng):
    return line_up(rng, "right", "no-residual-1", "no-residual-2", "block-input-twice", "ffn-reads-input")


@DIAGNOSE.must("whose gamma and beta", 1.25, judge_only=True)
def whose_norm(rng):
    return line_up(rng, "right", "norm-1-twice", "norms-swapped")


@DIAGNOSE.must("the numbers inside the norm", 1.25, judge_only=True)
def inside_the_norm(rng):
    return line_up(rng, "right", "variance-d-1", "eps-1e-6")


@DIAGNOSE.must("one sentence or all", 1.0, judge_only=True)
def sentences(rng):
    return line_up(rng, "right", "batch-mixing", "pre-norm")


def small_probe(d: int) -> Array:
    return 0.01 * np.random.default_rng(1).normal(size=(2, 3, d))


def large_probe(d: int) -> Array:
    return 3 * np.random.default_rng(1).normal(size=(2, 3, d))


def nearest(differences: dict[str, float]) -> str:
    return min(differences, key=differences.get)


def first_below(tolerance: float) -> Callable:
    """The first label within the tolerance; "right" where there is none."""

    def choose(differences):
        return next((label for label, size in differences.items() if size <= tolerance), "right")

    return choose


def wrong_diagnose(
    *, probe=small_probe, labels=tuple(SUSPECTS), choose=nearest, say=lambda label: label
) -> Callable:
    """A detective with slips: another probe, fewer suspects, another choice, another name."""

    def wrong(block, params, num_heads):
        x = probe(len(params[-1]))
        seen = block(x)
        differences = {
            label: float(np.abs(suspect(label, params, num_heads)(x) - seen).max()) for label in labels
        }
        return say(choose(differences))

    return wrong


def without(*missing: str) -> tuple[str, ...]:
    return tuple(label for label in SUSPECTS if label not in missing)


def renamed(**names: str) -> Callable:
    """Names for labels; the keys have _ in place of -."""
    table = {old.replace("_", "-"): new for old, new in names.items()}
    return lambda label: table.get(label, label)


DIAGNOSE.mistake(
    "misses-eps",
    "A wrong eps goes unseen: a large probe hides it below your tolerance. Make the probe small or the tolerance tight.",
    wrong_diagnose(probe=large_probe, choose=first_below(1e-4)),
)
DIAGNOSE.mistake(
    "one-sentence-probe",
    "A block that mixes sentences goes unseen: in a probe of one sentence it looks right. Use two or more.",
    wrong_diagnose(probe=lambda d: small_probe(d)[:1]),
)
DIAGNOSE.mistake(
    "one-sentence-blames-the-right",
    "Your probe holds one sentence, so the right block and one that mixes sentences look the same, and you call both batch-mixing.",
    wrong_diagnose(
        probe=lambda d: small_probe(d)[:1], say=lambda label: "batch-mixing" if label == "right" else label
    ),
)
DIAGNOSE.mistake(
    "probe-of-zeros",
    "Your probe is all zeros: the attention answers 0 to it, so several bugs look alike. Use random numbers.",
    wrong_diagnose(probe=lambda d: np.zeros((2, 3, d)), choose=first_below(1e-12)),
)
DIAGNOSE.mistake(
    "misses-d-1",
    "A variance that divides by d_model - 1 is not found. Give it a candidate of its own.",
    wrong_diagnose(labels=without("variance-d-1"), choose=first_below(1e-9)),
)
DIAGNOSE.mistake(
    "misses-both-norm-numbers",
    "A variance divided by d_model - 1 and a wrong eps are called right. Both need a candidate of their own.",
    wrong_diagnose(labels=without("variance-d-1", "eps-1e-6"), choose=first_below(1e-9)),
)
DIAGNOSE.mistake(
    "knows-two",
    "Only the right block and the pre-norm block are told apart. There are twelve more labels.",
    wrong_diagnose(labels=("right", "pre-norm"), choose=first_below(1e-9)),
)
DIAGNOSE.mistake(
    "all-bugs-are-pre-norm",
    "Every block that is not right is called pre-norm. Compare with each candidate, not only with the right block.",
    wrong_diagnose(choose=first_below(1e-9), say=lambda label: label if label == "right" else "pre-norm"),
)
DIAGNOSE.mistake(
    "right-called-pre-norm",
    "Right and pre-norm have changed places: the right block of this course is post-norm.",
    wrong_diagnose(say=renamed(right="pre-norm", pre_norm="right")),
)
DIAGNOSE.mistake(
    "residuals-mixed-up",
    "no-residual-1 and no-residual-2 have changed places: 1 belongs to the attention.",
    wrong_diagnose(say=renamed(no_residual_1="no-residual-2", no_residual_2="no-residual-1")),
)
DIAGNOSE.mistake(
    "inputs-mixed-up",
    "block-input-twice and ffn-reads-input have changed places: one is about what is added, the other about what is read.",
    wrong_diagnose(say=renamed(block_input_twice="ffn-reads-input", ffn_reads_input="block-input-twice")),
)
DIAGNOSE.mistake(
    "norms-mixed-up",
    "norm-1-twice and norms-swapped have changed places.",
    wrong_diagnose(say=renamed(norm_1_twice="norms-swapped", norms_swapped="norm-1-twice")),
)
DIAGNOSE.mistake(
    "labels-spelled-otherwise",
    "Your labels have underscores. They are spelled with hyphens, as in the docstring.",
    wrong_diagnose(say=lambda label: label.replace("-", "_")),
)
DIAGNOSE.pair(
    "misses-eps",
    "one-sentence-probe",
    wrong_diagnose(probe=lambda d: large_probe(d)[:1], choose=first_below(1e-4)),
)


def pieces(params: tuple, num_heads: int) -> tuple[Callable, Callable, Callable, Callable]:
    """A, F, L1, L2 of the right block; the norms take an eps."""
    W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2 = params
    return (
        lambda x: multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads),
        lambda x: ffn(x, W1, b1, W2, b2),
        lambda x, eps=1e-5: layer_norm(x, gamma1, beta1, eps),
        lambda x, eps=1e-5: layer_norm(x, gamma2, beta2, eps),
    )


@DIAGNOSE.variant
def _(block, params, num_heads):
    # one label at a time, each with probes of its own: small ones first, then one of order one
    d = len(params[-1])
    rng = np.random.default_rng(7)
    print("fourteen suspects")
    for label in reversed(SUSPECTS):
        mine = suspect(label, params, num_heads)
        probes = [
            0.02 * rng.standard_normal((3, 2, d)),
            0.02 * rng.standard_normal((2, 4, d)),
            rng.random((2, 2, d)),
        ]
        if all(np.allclose(block(probe), mine(probe), rtol=1e-9, atol=1e-9) for probe in probes):
            return label
    return "right"


@DIAGNOSE.variant
def _(block, params, num_heads):
    # strike out suspects until one is left
    left = dict(SUSPECTS)
    for size in (1.0, 0.1, 0.003):
        probe = size * np.random.default_rng(3).normal(size=(2, 5, len(params[-1])))
        seen = np.asarray(block(probe))
        left = {k: f for k, f in left.items() if np.max(np.abs(f(probe, *params, num_heads) - seen)) < 1e-8}
    (label,) = left
    return np.str_(label)


@DIAGNOSE.variant
def _(block, params, num_heads):
    # the root mean square difference over two probes
    A, F, L1, L2 = pieces(params, num_heads)
    probes = [0.01 * np.random.default_rng(i).uniform(-1, 1, size=(2, 2, len(params[-1]))) for i in (1, 2)]
    answers = [block(probe) for probe in probes]
    scores = {}
    for label, form in SUSPECTS.items():
        if label == "eps-1e-6":
            mine = [right(x, A, F, partial(L1, eps=1e-6), partial(L2, eps=1e-6)) for x in probes]
        else:
            mine = [form(x, *params, num_heads) for x in probes]
        scores[label] = np.sqrt(np.mean([(a - b) ** 2 for a, b in zip(mine, answers)]))
    return sorted(scores, key=scores.get)[0]
