"""Lesson 3: the FFN as a key-value memory."""

from __future__ import annotations

import math

import numpy as np

from autograder.exercise import Call, Exercise, Question, View, ask, steps
from autograder.exercises.layer_norm import layer_norm
from course import worked_example
from course.views import (
    as_ffn,
    dict_entries,
    first_row_of_first_part,
    hidden_units,
    parts,
    silent_named,
    truth_table,
    with_inputs,
)

CLEAR = 1e-2  # how far the cases keep from ReLU's kink and from ties in a ranking

TINY_X = np.array([1.0, 2.0])
TINY = (
    np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0]]),
    np.array([0.0, -3.0, 0.0]),
    np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    np.zeros(2),
)

# the worked example: its four memories (key, threshold, value), and what the first norm hands to the FFN
MEMORIES = tuple(zip(worked_example.W1.T[::2], -worked_example.B1[::2], worked_example.MEMORIES))
X_PRIME = layer_norm(worked_example.PUBLISHED["X + MHA(X)"], worked_example.GAMMA, worked_example.BETA)


def relu(z):
    return np.maximum(z, 0)


def weights(rng: np.random.Generator, d: int, f: int) -> tuple[np.ndarray, ...]:
    """Random W1 (d, f), b1 (f,), W2 (f, d), b2 (d,)."""
    return rng.normal(size=(d, f)), rng.normal(size=f), rng.normal(size=(f, d)), rng.normal(size=d)


def empty_network(d: int, b2: np.ndarray) -> tuple[np.ndarray, ...]:
    """An FFN without hidden units: it answers b2 to everything."""
    return np.zeros((d, 0)), np.zeros(0), np.zeros((0, d)), b2


# ================================================================ 3.1 ffn

FFN = Exercise(
    number="3.1",
    title="Two matrices and a ReLU",
    level="easy",
    difficulty=1,
    minutes=8,
    core=True,
    why="Two thirds of the numbers of a block sit in this one function, and lesson 5 calls it as it stands.",
    budget="Two lines are enough.",
    hints=(
        "Between which two steps does the ReLU stand: before the first bias, between the matrices, or at the end?",
        "x is (..., d_model); the hidden layer is (..., d_ff), before and after the ReLU; the result is (..., d_model) again.",
        "hidden = x times W1 plus b1; replace its negative numbers by 0; the result is hidden times W2 plus b2",
    ),
)


@FFN.reference
def ffn(x: np.ndarray, W1: np.ndarray, b1: np.ndarray, W2: np.ndarray, b2: np.ndarray) -> np.ndarray:
    """Feed-forward network of the block, applied to every token on its own: ReLU(x W1 + b1) W2 + b2.

    x  : (..., d_model), any number of leading axes, also none
    W1 : (d_model, d_ff)   b1 : (d_ff,)
    W2 : (d_ff, d_model)   b2 : (d_model,)
    returns : (..., d_model)

    >>> W1, b1 = np.array([[1, 0, -1], [0, 1, 1]]), np.array([0, -3, 0])
    >>> W2, b2 = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 0])
    >>> ffn(np.array([1, 2]), W1, b1, W2, b2)
    array([2, 1])
    """
    hidden = np.maximum(x @ W1 + b1, 0)  # (..., d_ff)
    return hidden @ W2 + b2  # (..., d_model)


@FFN.worked("the tiny FFN turns (1, 2) into (2, 1)", 0.2)
def _():
    yield ask(TINY_X, *TINY)


@FFN.must("right values for one token, a sentence and a batch", 0.75)
def ffn_shapes(rng):
    for shape, f in [((3,), 4), ((2, 3), 5), ((2, 3, 4), 2), ((2, 1, 2, 3), 6)]:
        yield ask(rng.normal(size=shape), *weights(rng, shape[-1], f))


@FFN.must("right values where d_model, d_ff and the number of tokens are equal", 0.3)
def ffn_square(rng):
    yield ask(rng.normal(size=(4, 4)), *weights(rng, 4, 4))


@FFN.must("permuting the tokens permutes the outputs", 0.25)
def ffn_permuted(rng):
    x, network = rng.normal(size=(3, 4)), weights(rng, 4, 5)
    yield steps(Call((x, *network)), Call((x[[2, 0, 1]], *network)))


@FFN.must("with every hidden unit off, the output is b2", 0.2, needs_values=True)
def ffn_all_off(rng):
    W1, b1, W2, b2 = weights(rng, 3, 4)
    yield ask(rng.uniform(-1, 1, size=(2, 3)), W1, -20 - abs(b1), W2, b2)


@FFN.must("arguments by name, and integers that work like floats", 0.1)
def ffn_integers(rng):
    names = ("x", "W1", "b1", "W2", "b2")
    yield ask(**dict(zip(names, (rng.integers(-3, 4, size=(2, 3)), *weights(rng, 3, 4)))))


FFN.leaves_inputs_alone(0.2, lambda rng: [ask(rng.normal(size=(2, 3)), *weights(rng, 3, 4))])


def plain_first(x, W1, b1):
    return x @ W1 + b1


def plain_second(h, W2, b2):
    return h @ W2 + b2


def ffn_slip(first=plain_first, activation=relu, second=plain_second, after=lambda y, x: y):
    """An FFN with one or more of its steps replaced."""

    def wrong(x, W1, b1, W2, b2):
        return after(second(activation(first(x, W1, b1)), W2, b2), x)

    return wrong


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def phi(z):
    return 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


def gelu(z):
    return z * phi(z)


def tanh_gelu(z):
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def share_of_sum(z):
    fired = relu(z)
    return fired / np.maximum(fired.sum(axis=-1, keepdims=True), 1e-12)


def no_b1(x, W1, b1):
    return x @ W1


def no_b2(h, W2, b2):
    return h @ W2


def mean_over_tokens(z):
    return z.mean(axis=-2, keepdims=True) + 0 * z if z.ndim > 1 else z


FFN.mistake(
    "relu-forgotten",
    "The ReLU is missing. Without it a negative number in the hidden layer takes part in the output.",
    ffn_slip(activation=lambda z: z),
)
FFN.mistake(
    "relu-on-output",
    "The ReLU works on the output instead of on the hidden layer, so the output can never be negative.",
    ffn_slip(activation=lambda z: z, after=lambda y, x: relu(y)),
)
FFN.mistake(
    "relu-twice",
    "A second ReLU works on the output. The output of the FFN may be negative; only the hidden layer is cut off.",
    ffn_slip(after=lambda y, x: relu(y)),
)


@FFN.mistake(
    "relu-before-b1",
    "The ReLU comes too early: b1 is added after it. The bias must be able to switch a unit off.",
)
def _(x, W1, b1, W2, b2):
    return (relu(x @ W1) + b1) @ W2 + b2


@FFN.mistake("relu-on-input", "The ReLU cuts the input x. It belongs to the hidden layer.")
def _(x, W1, b1, W2, b2):
    return (relu(x) @ W1 + b1) @ W2 + b2


FFN.mistake("b1-forgotten", "The first bias is missing.", ffn_slip(first=no_b1))
FFN.mistake("b2-forgotten", "The second bias is missing.", ffn_slip(second=no_b2))
FFN.mistake(
    "b1-subtracted",
    "The first bias is subtracted. A threshold t is stored as the bias -t, so the bias itself is added.",
    ffn_slip(first=lambda x, W1, b1: x @ W1 - b1),
)
FFN.mistake(
    "b2-inside",
    "The second bias is added before the second matrix, or multiplied with it. It belongs to the output.",
    ffn_slip(second=lambda h, W2, b2: (h + b2) @ W2),
)
FFN.mistake(
    "linear-layout",
    "Your weights are transposed, as a library's linear layer stores them. Here rows multiply from the left: x @ W.",
    ffn_slip(lambda x, W1, b1: x @ W1.T + b1, relu, lambda h, W2, b2: h @ W2.T + b2),
)
FFN.mistake("w1-transposed", "W1 is transposed.", ffn_slip(first=lambda x, W1, b1: x @ W1.T + b1))
FFN.mistake("w2-transposed", "W2 is transposed.", ffn_slip(second=lambda h, W2, b2: h @ W2.T + b2))


@FFN.mistake(
    "matrices-swapped", "W1 and W2 are used in the other order; that runs only where d_model equals d_ff."
)
def _(x, W1, b1, W2, b2):
    return relu(x @ W2 + b1) @ W1 + b2


@FFN.mistake("biases-swapped", "b1 and b2 are swapped; that runs only where d_model equals d_ff.")
def _(x, W1, b1, W2, b2):
    return relu(x @ W1 + b2) @ W2 + b1


FFN.mistake(
    "softmax",
    "The hidden numbers go through a softmax. That is attention's rule: in the FFN several units may fire fully.",
    ffn_slip(activation=softmax),
)
FFN.mistake(
    "normalised",
    "The hidden numbers are divided by their sum. They are not weights of an average: they may add up to anything.",
    ffn_slip(activation=share_of_sum),
)
FFN.mistake(
    "softmax-after-relu",
    "A softmax follows the ReLU. The hidden numbers are used as they are.",
    ffn_slip(activation=lambda z: softmax(relu(z))),
)
FFN.mistake(
    "hard-gate",
    "Each unit counts as 0 or 1. It counts with how far it is above zero.",
    ffn_slip(activation=lambda z: (z > 0) * 1.0),
)
FFN.mistake(
    "absolute-value",
    "Negative hidden numbers are made positive. They must become 0.",
    ffn_slip(activation=np.abs),
)
FFN.mistake(
    "minimum",
    "You keep the negative hidden numbers and drop the positive ones: minimum in place of maximum.",
    ffn_slip(activation=lambda z: np.minimum(z, 0)),
)
FFN.mistake(
    "np-max",
    "np.max(h, 0) takes the largest number along axis 0. The element-wise one has another name.",
    ffn_slip(activation=lambda z: np.max(z, 0)),
)
FFN.mistake("sigmoid", "The hidden layer uses a sigmoid, not the ReLU.", ffn_slip(activation=sigmoid))
FFN.mistake("tanh", "The hidden layer uses tanh, not the ReLU.", ffn_slip(activation=np.tanh))
FFN.mistake(
    "gelu", "The hidden layer uses GELU. This lesson's FFN has a plain ReLU.", ffn_slip(activation=gelu)
)
FFN.mistake(
    "gelu-tanh",
    "The hidden layer uses GELU in its tanh form. This lesson's FFN has a plain ReLU.",
    ffn_slip(activation=tanh_gelu),
)
FFN.mistake(
    "swish",
    "The hidden layer uses swish (SiLU). This lesson's FFN has a plain ReLU.",
    ffn_slip(activation=lambda z: z * sigmoid(z)),
)
FFN.mistake(
    "leaky-relu",
    "A part of the negative numbers leaks through. Below zero the ReLU is exactly zero.",
    ffn_slip(activation=lambda z: np.where(z > 0, z, 0.01 * z)),
)
FFN.mistake(
    "mixes-tokens",
    "The hidden numbers are averaged over the tokens. The FFN never mixes tokens: each row goes its own way.",
    ffn_slip(activation=lambda z: mean_over_tokens(relu(z))),
)
FFN.mistake(
    "mixes-tokens-first",
    "The tokens are averaged before the first matrix. The FFN never mixes tokens: each row goes its own way.",
    ffn_slip(first=lambda x, W1, b1: mean_over_tokens(x) @ W1 + b1),
)
FFN.mistake(
    "one-per-sentence",
    "One vector comes out for the whole sentence: an average over tokens. There must be one output per token.",
    ffn_slip(first=lambda x, W1, b1: (x.mean(axis=-2) if x.ndim > 1 else x) @ W1 + b1),
)
FFN.mistake(
    "residual-inside",
    "x is added to the result. The residual belongs to the block, not to the FFN: it only returns a change.",
    ffn_slip(after=lambda y, x: y + x),
)
FFN.mistake(
    "norm-inside",
    "The result is layer-normed. The norm belongs to the block, not to the FFN.",
    ffn_slip(after=lambda y, x: (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)),
)
FFN.mistake(
    "one-layer",
    "Only the first half is there: the hidden layer comes out, the second matrix is missing.",
    ffn_slip(second=lambda h, W2, b2: h),
)


@FFN.mistake(
    "sentences-only",
    "It works for one sentence (seq, d_model) only. Use an operation that keeps all leading axes.",
)
def _(x, W1, b1, W2, b2):
    hidden = relu(np.einsum("td,df->tf", x, W1) + b1)
    return np.einsum("tf,fd->td", hidden, W2) + b2


@FFN.mistake(
    "batches-only",
    "It works for a batch (batch, seq, d_model) only. Use an operation that keeps all leading axes.",
)
def _(x, W1, b1, W2, b2):
    batch, seq, d = x.shape
    return (relu(x.reshape(-1, d) @ W1 + b1) @ W2 + b2).reshape(batch, seq, d)


@FFN.mistake(
    "one-token-only", "It works for a single token only: with the weights in front, x must be one column."
)
def _(x, W1, b1, W2, b2):
    return W2.T @ relu(W1.T @ x + b1) + b2


@FFN.mistake(
    "no-single-token", "It loops over the first axis, so a single token (d_model,) falls into single numbers."
)
def _(x, W1, b1, W2, b2):
    return np.array([relu(row @ W1 + b1) @ W2 + b2 for row in x])


@FFN.mistake(
    "every-axis-turned",
    "x.T turns round every axis, so it works up to one sentence only. Rows multiply from the left: no transpose is needed.",
)
def _(x, W1, b1, W2, b2):
    hidden = relu(np.dot(W1.T, x.T).T + b1)
    return np.dot(W2.T, hidden.T).T + b2


@FFN.mistake("changes-input", "The result is written into x itself. Whoever passed x finds it changed.")
def _(x, W1, b1, W2, b2):
    y = relu(x @ W1 + b1) @ W2 + b2
    if x.dtype.kind == "f":
        x[...] = y
    return y


@FFN.mistake(
    "truncates-integers",
    "The result is stored in an array like x. Where x holds integers, that cuts off all decimals.",
)
def _(x, W1, b1, W2, b2):
    y = np.zeros_like(x)
    y[...] = relu(x @ W1 + b1) @ W2 + b2
    return y


@FFN.mistake("rounded", "The result is rounded. Return it with all its digits.")
def _(x, W1, b1, W2, b2):
    return np.round(relu(x @ W1 + b1) @ W2 + b2, 4)


FFN.pair("relu-forgotten", "b1-forgotten", ffn_slip(no_b1, lambda z: z))
FFN.pair("relu-forgotten", "b2-forgotten", ffn_slip(activation=lambda z: z, second=no_b2))
FFN.pair("b1-forgotten", "b2-forgotten", ffn_slip(first=no_b1, second=no_b2))
FFN.pair("softmax", "b1-forgotten", ffn_slip(first=no_b1, activation=softmax))
FFN.pair("softmax", "b2-forgotten", ffn_slip(activation=softmax, second=no_b2))
FFN.pair("relu-on-output", "b1-forgotten", ffn_slip(no_b1, lambda z: z, after=lambda y, x: relu(y)))
FFN.pair("residual-inside", "relu-forgotten", ffn_slip(activation=lambda z: z, after=lambda y, x: y + x))
FFN.pair("residual-inside", "b2-forgotten", ffn_slip(second=no_b2, after=lambda y, x: y + x))
FFN.pair("gelu", "b1-forgotten", ffn_slip(first=no_b1, activation=gelu))
FFN.pair(
    "linear-layout",
    "relu-forgotten",
    ffn_slip(lambda x, W1, b1: x @ W1.T + b1, lambda z: z, lambda h, W2, b2: h @ W2.T + b2),
)


@FFN.variant
def _(x, W1, b1, W2, b2):
    x = np.asarray(x, dtype=float)
    flat = x.reshape(-1, x.shape[-1])
    out = np.empty((len(flat), len(b2)))
    for t, token in enumerate(flat):
        out[t] = b2
        for unit in range(len(b1)):
            z = float(token @ W1[:, unit]) + b1[unit]
            if z > 0:
                out[t] += z * W2[unit]
    return out.reshape(x.shape)


@FFN.variant
def _(x, W1, b1, W2, b2):
    pre = np.einsum("...d,df->...f", x, W1) + b1
    return np.einsum("...f,fd->...d", np.where(pre > 0, pre, 0.0), W2) + b2


@FFN.variant
def _(x, W1, b1, W2, b2):
    print("shape of x:", x.shape)
    np.log(np.array(-1.0))  # a warning costs nothing
    h = np.dot(x, W1) + b1
    return np.dot(h * (h > 0), W2) + b2


@FFN.variant
def _(x, W1, b1, W2, b2):
    h = np.matmul(x, W1)
    h = h + b1
    h[h < 0] = 0
    return np.add(h @ W2, b2).tolist()


# ================================================================ 3.2 count_parameters

COUNT = Exercise(
    number="3.2",
    title="Where the numbers of a block are",
    level="easy",
    difficulty=1,
    minutes=8,
    core=True,
    why="Whoever knows which matrix holds what can tell where memory, time and a later edit go.",
    budget="Six lines are enough.",
    hints=(
        "How many square matrices does attention need, counting the one that mixes the heads at the end?",
        "attention: four (d_model, d_model) matrices; ffn: one (d_model, d_ff), one (d_ff, d_model); each with a bias as long as its output; norms: gamma and beta, twice.",
        "attention = 4 squares, and with bias 4 vectors; ffn = 2 rectangles, and with bias one long and one short vector; norms = 4 vectors or 0; total = their sum",
    ),
)


@COUNT.reference
def count_parameters(d_model: int, d_ff: int, bias: bool = True, norms: bool = True) -> dict:
    """Count the learned numbers of one encoder block.

    d_model : width of the stream; the number of heads does not matter
    d_ff    : width of the hidden layer
    bias    : whether the linear maps of attention and FFN have biases. Norms keep gamma and beta.
    norms   : whether the block's two layer norms are counted (0 otherwise)
    returns : dict of ints with the keys "attention", "ffn", "norms" and "total" (their sum)

    >>> count_parameters(9, 36, bias=False, norms=False)
    {'attention': 324, 'ffn': 648, 'norms': 0, 'total': 972}
    """
    attention = 4 * d_model * d_model  # W_Q, W_K, W_V, W_O
    ffn = 2 * d_model * d_ff  # W1, W2
    if bias:
        attention += 4 * d_model
        ffn += d_ff + d_model
    in_norms = 4 * d_model if norms else 0  # two norms, each with gamma and beta
    return {"attention": attention, "ffn": ffn, "norms": in_norms, "total": attention + ffn + in_norms}


def two_widths(rng, factor=None):
    """A random (d_model, d_ff); d_ff is a multiple where a factor is given, and 1, 2 or 4 times d_model never otherwise."""
    d = int(rng.integers(5, 40))
    if factor:
        return d, factor * d
    return d, int(rng.choice([f for f in range(3, 120) if f not in (d, 2 * d, 4 * d)]))


@COUNT.worked("the paper's block, and d_model = 9 without biases and norms", 0.25)
def _():
    yield ask(9, 36, bias=False, norms=False)
    yield ask(512, 2048)


def counts_of(only):
    def cases(rng):
        for widths in (two_widths(rng), two_widths(rng, 2), two_widths(rng)):
            yield Question((Call(widths),), about={"only": (only,)})

    return cases


for part, points in (("attention", 0.4), ("ffn", 0.5), ("norms", 0.2), ("total", 0.25)):
    COUNT.must(f"{part}: right for any two widths", points, view=View(dict_entries))(counts_of(part))


@COUNT.must("bias=False drops the biases of attention and FFN, and nothing else", 0.2)
def _(rng):
    yield ask(*two_widths(rng), False)
    yield ask(*two_widths(rng), bias=False, norms=False)


@COUNT.must("norms=False leaves the norms out", 0.2)
def _(rng):
    yield ask(*two_widths(rng), norms=False)
    yield ask(*two_widths(rng), True, False)


def count_slip(**slips):
    """A count with some parts replaced; each part is a function (d, f, bias, norms) -> number, total one of the parts."""
    right = {
        "attention": lambda d, f, bias, norms: 4 * d * d + (4 * d if bias else 0),
        "ffn": lambda d, f, bias, norms: 2 * d * f + (d + f if bias else 0),
        "norms": lambda d, f, bias, norms: 4 * d if norms else 0,
    }
    total = slips.pop("total", lambda attention, ffn, norms: attention + ffn + norms)
    rules = right | slips

    def wrong(d_model, d_ff, bias=True, norms=True):
        found = {name: rule(d_model, d_ff, bias, norms) for name, rule in rules.items()}
        return found | {"total": total(**found)}

    return wrong


def attention_count(matrices=4, vectors=4, always=False):
    return lambda d, f, bias, norms: matrices * d * d + (vectors * d if bias or always else 0)


def ffn_count(matrices=2, short=1, long=1, always=False):
    return lambda d, f, bias, norms: matrices * d * f + (short * d + long * f if bias or always else 0)


def norm_count(vectors=4):
    return lambda d, f, bias, norms: vectors * d if norms else 0


ATTENTION_SLIPS = {
    "wo-forgotten": (
        attention_count(3, 3),
        "Attention has a fourth matrix, W_O, which mixes the heads at the end; it and its bias are missing.",
    ),
    "wo-without-bias": (attention_count(4, 3), "W_O has a bias too; attention has four of them."),
    "only-the-bias-of-wo": (
        attention_count(3, 4),
        "Three matrices are counted, but four biases. W_O is missing.",
    ),
    "attention-bias-forgotten": (attention_count(4, 0), "The biases of attention are missing."),
    "attention-one-bias": (
        attention_count(4, 1),
        "Attention is counted with a single bias. Each of its four matrices has one.",
    ),
    "bias-ignored-in-attention": (
        attention_count(4, 4, True),
        "The biases of attention are counted although bias is False.",
    ),
    "attention-has-d-ff": (
        lambda d, f, bias, norms: 4 * d * f + (4 * d if bias else 0),
        "The matrices of attention are square: d_ff has no place in them.",
    ),
    "one-matrix-attention": (
        attention_count(1, 1),
        "One matrix is counted for attention. Queries, keys, values and the output have one each.",
    ),
}
FFN_SLIPS = {
    "bias-ignored-in-ffn": (
        ffn_count(always=True),
        "The biases of the FFN are counted although bias is False.",
    ),
    "ffn-bias-forgotten": (ffn_count(2, 0, 0), "The biases of the FFN are missing."),
    "ffn-b1-forgotten": (
        ffn_count(2, 1, 0),
        "The first bias of the FFN is missing. It has one number per hidden unit.",
    ),
    "ffn-b2-forgotten": (
        ffn_count(2, 0, 1),
        "The second bias of the FFN is missing. It is as long as the output.",
    ),
    "ffn-biases-d-model": (
        ffn_count(2, 2, 0),
        "Both biases of the FFN are counted as d_model numbers. A bias is as long as the output of its own map.",
    ),
    "ffn-biases-d-ff": (
        ffn_count(2, 0, 2),
        "Both biases of the FFN are counted as d_ff numbers. A bias is as long as the output of its own map.",
    ),
    "one-ffn-matrix": (ffn_count(1), "The FFN has two matrices: one up, one down."),
    "gated-ffn": (
        ffn_count(3, 1, 2),
        "Three FFN matrices are counted, as in a gated variant. This block has two.",
    ),
    "always-4d": (
        lambda d, f, bias, norms: 8 * d * d + (5 * d if bias else 0),
        "d_ff is taken as 4 times d_model. That is the paper's choice, not a law: use d_ff.",
    ),
    "ffn-squares": (
        lambda d, f, bias, norms: d * d + f * f + (d + f if bias else 0),
        "The FFN's matrices are counted as squares. Each goes from one width to the other.",
    ),
}
NORM_SLIPS = {
    "one-norm": (
        norm_count(2),
        "Half of the norms is missing: one of the two norms, or every beta. Each sub-layer has a norm, each norm two vectors.",
    ),
    "three-norms": (
        norm_count(6),
        "Three norms are counted, as in a decoder layer. An encoder block has two.",
    ),
    "one-number-per-norm": (
        lambda d, f, bias, norms: 4 if norms else 0,
        "gamma and beta are counted as single numbers. Each holds one number per feature.",
    ),
    "norms-flag-ignored": (lambda d, f, bias, norms: 4 * d, "The norms are counted although norms is False."),
    "bias-drops-beta": (
        lambda d, f, bias, norms: (4 * d if bias else 2 * d) if norms else 0,
        "bias=False also drops beta. It is about the linear maps only; the norms keep gamma and beta.",
    ),
    "bias-drops-norms": (
        lambda d, f, bias, norms: 4 * d if norms and bias else 0,
        "bias=False also drops the norms. It is about the linear maps only.",
    ),
    "norm-over-d-ff": (
        lambda d, f, bias, norms: 2 * d + 2 * f if norms else 0,
        "One norm is counted with d_ff features. Both norms work on the stream, which is d_model wide.",
    ),
}

for part, slips in (("attention", ATTENTION_SLIPS), ("ffn", FFN_SLIPS), ("norms", NORM_SLIPS)):
    for name, (rule, cause) in slips.items():
        COUNT.mistake(name, cause, count_slip(**{part: rule}))

COUNT.mistake(
    "total-without-norms",
    "The total leaves the norms out although they are counted.",
    count_slip(total=lambda attention, ffn, norms: attention + ffn),
)


@COUNT.mistake(
    "total-always-with-norms", "With norms=False the entry is 0, but the total still holds the norms."
)
def _(d_model, d_ff, bias=True, norms=True):
    found = count_parameters(d_model, d_ff, bias, norms)
    return found | {"total": found["attention"] + found["ffn"] + 4 * d_model}


@COUNT.mistake(
    "flags-off-by-default",
    "The flags are False unless given. The signature says that both are True by default.",
)
def _(d_model, d_ff, bias=False, norms=False):
    return count_parameters(d_model, d_ff, bias, norms)


@COUNT.mistake(
    "flags-swapped", "The two flags are swapped: bias switches the norms, norms switches the biases."
)
def _(d_model, d_ff, bias=True, norms=True):
    return count_parameters(d_model, d_ff, norms, bias)


@COUNT.mistake("flags-ignored", "Neither flag is read: biases and norms are counted in every case.")
def _(d_model, d_ff, bias=True, norms=True):
    return count_parameters(d_model, d_ff)


@COUNT.mistake("widths-swapped", "d_model and d_ff are swapped.")
def _(d_model, d_ff, bias=True, norms=True):
    return count_parameters(d_ff, d_model, bias, norms)


@COUNT.mistake("norms-key-missing", "With norms=False the key is left out. It stays, with the value 0.")
def _(d_model, d_ff, bias=True, norms=True):
    found = count_parameters(d_model, d_ff, bias, norms)
    return found if norms else {key: value for key, value in found.items() if key != "norms"}


@COUNT.mistake(
    "a-tuple", "You return the four numbers without their names. Return a dict with the four keys."
)
def _(d_model, d_ff, bias=True, norms=True):
    return tuple(count_parameters(d_model, d_ff, bias, norms).values())


@COUNT.mistake("shares", "You return shares of the total. The counts themselves are asked for.")
def _(d_model, d_ff, bias=True, norms=True):
    found = count_parameters(d_model, d_ff, bias, norms)
    return {key: value / found["total"] for key, value in found.items()}


def pair_of_counts(first, second, **rules):
    COUNT.pair(first, second, count_slip(**rules))


W_O, ONE_NORM = ATTENTION_SLIPS["wo-forgotten"][0], NORM_SLIPS["one-norm"][0]
FFN_BIAS_STAYS = FFN_SLIPS["bias-ignored-in-ffn"][0]
pair_of_counts("wo-forgotten", "one-norm", attention=W_O, norms=ONE_NORM)
pair_of_counts("wo-forgotten", "bias-ignored-in-ffn", attention=W_O, ffn=FFN_BIAS_STAYS)
pair_of_counts("one-norm", "bias-ignored-in-ffn", ffn=FFN_BIAS_STAYS, norms=ONE_NORM)
pair_of_counts("wo-forgotten", "ffn-bias-forgotten", attention=W_O, ffn=ffn_count(2, 0, 0))
pair_of_counts(
    "attention-bias-forgotten", "ffn-bias-forgotten", attention=attention_count(4, 0), ffn=ffn_count(2, 0, 0)
)
pair_of_counts(
    "bias-ignored-in-attention",
    "bias-ignored-in-ffn",
    attention=attention_count(always=True),
    ffn=FFN_BIAS_STAYS,
)
pair_of_counts("one-norm", "norms-flag-ignored", norms=lambda d, f, bias, norms: 2 * d)


@COUNT.variant
def _(d_model, d_ff, bias=True, norms=True):
    shapes = {
        "attention": [(d_model, d_model)] * 4,
        "ffn": [(d_model, d_ff), (d_ff, d_model)],
    }
    counts = {"attention": 0, "ffn": 0, "norms": 0}
    for part, matrices in shapes.items():
        for rows, columns in matrices:
            counts[part] += rows * columns
            counts[part] += columns if bias else 0
    for _ in range(2):
        counts["norms"] += (d_model + d_model) * norms
    counts["total"] = sum(counts.values())
    return counts


@COUNT.variant
def _(d_model, d_ff, bias=True, norms=True):
    print("counting")
    d, f = np.int64(d_model), np.int64(d_ff)
    attention = np.zeros((4, d, d)).size + int(bias) * np.zeros((4, d)).size
    ffn = np.prod([2, d, f]) + bias * (d + f)
    norm = np.sum(np.ones((2, 2, d)), dtype=int) * norms
    return dict(total=attention + ffn + norm, attention=attention, ffn=ffn, norms=norm)


@COUNT.variant
def _(d_model, d_ff, bias=True, norms=True):
    np.float64(1) / np.float64(0)
    return {
        "norms": 4.0 * d_model * norms,
        "ffn": float(2 * d_model * d_ff + (d_model + d_ff) * bias),
        "attention": 4.0 * d_model * (d_model + bias),
        "total": 4.0 * d_model * (d_model + bias + norms) + 2 * d_model * d_ff + (d_model + d_ff) * bias,
    }


# ================================================================ 3.3 recall

RECALLED = ("coefficients", "y")


def recalled(question: Question, *only: str) -> Question:
    """The same question, looked at for some of its two parts."""
    return Question(question.calls, about={"parts": RECALLED, "only": only or RECALLED})


RECALL = Exercise(
    number="3.3",
    title="The same numbers, read as a memory",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="Read this way, the FFN can be looked into, and written by hand.",
    budget="Three lines are enough.",
    hints=(
        "How does one number say how well a token matches one key, and which axis do token and key share?",
        "matches are (T, d_ff): one number per token and memory; coefficients have the same shape; y is (T, d): each token's sum of values plus b2.",
        "coefficients = match of every token with every key plus that memory's bias, cut off below 0; y = coefficients times the table of values, plus b2; return both",
    ),
    view=View(parts),
)


@RECALL.reference
def recall(
    x: np.ndarray, keys: np.ndarray, bias: np.ndarray, values: np.ndarray, b2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ask a memory of d_ff entries: how strongly each one fires for each token, and what comes back.

    x       : (T, d_model), one row per token
    keys    : (d_ff, d_model), one row per memory: the columns of W1
    bias    : (d_ff,), minus the threshold of each memory: b1
    values  : (d_ff, d_model), one row per memory: the rows of W2
    b2      : (d_model,)
    returns : coefficients (T, d_ff) = ReLU(match + bias), and y (T, d_model) = the sum of
              coefficient times value over the memories, plus b2

    >>> keys, bias = np.array([[1, 0], [0, 1], [-1, 1]]), np.array([0, -3, 0])
    >>> values, b2 = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 0])
    >>> recall(np.array([[1, 2]]), keys, bias, values, b2)
    (array([[1, 0, 1]]), array([[2, 1]]))
    """
    coefficients = np.maximum(x @ keys.T + bias, 0)  # (T, d_ff)
    return coefficients, coefficients @ values + b2


def memory(rng, d, f):
    """Random keys (f, d), bias (f,), values (f, d), b2 (d,)."""
    W1, b1, W2, b2 = weights(rng, d, f)
    return W1.T.copy(), b1, W2, b2


@RECALL.worked("the tiny FFN as a memory: coefficients (1, 0, 1), answer (2, 1)", 0.4)
def _():
    W1, b1, W2, b2 = TINY
    yield recalled(ask(TINY_X[None], W1.T.copy(), b1, W2, b2))


def recall_cases(rng):
    for tokens, d, f in [(1, 2, 3), (2, 4, 3), (3, 2, 5)]:
        yield ask(rng.normal(size=(tokens, d)), *memory(rng, d, f))


@RECALL.must("the coefficients are right, and not made to sum to 1", 1.2)
def _(rng):
    for question in recall_cases(rng):
        yield recalled(question, "coefficients")


@RECALL.must("the answer y is right", 1.0)
def _(rng):
    for question in recall_cases(rng):
        yield recalled(question, "y")


@RECALL.must("right where the numbers of tokens, memories and features are equal", 0.6)
def _(rng):
    yield recalled(ask(rng.normal(size=(4, 4)), *memory(rng, 4, 4)))


@RECALL.must("a token that matches nothing gets b2", 0.3, needs_values=True)
def _(rng):
    keys, bias, values, b2 = memory(rng, 3, 4)
    yield recalled(ask(rng.uniform(-1, 1, size=(2, 3)), keys, -20 - abs(bias), values, b2))


@RECALL.must("arguments by name, and integers that work like floats", 0.2)
def _(rng):
    names = ("x", "keys", "bias", "values", "b2")
    yield recalled(ask(**dict(zip(names, (rng.integers(-3, 4, size=(2, 3)), *memory(rng, 3, 4))))))


@RECALL.must("leaves its inputs unchanged", 0.3, needs_values=True, view=View(with_inputs))
def _(rng):
    (question, *_) = recall_cases(rng)
    yield Question(question.calls * 2, same_arrays=True)


def recall_slip(match=lambda x, keys, bias: x @ keys.T + bias, gate=relu, read=None, seen=None, kept=None):
    """A recall with some steps replaced.

    read : (coefficients, values, b2) -> y; seen : (match, coefficients) -> what is returned first;
    kept : (coefficients, y) -> the answer.
    """
    read = read or (lambda c, values, b2: c @ values + b2)
    seen = seen or (lambda z, c: c)
    kept = kept or (lambda c, y: (c, y))

    def wrong(x, keys, bias, values, b2):
        z = match(x, keys, bias)
        c = gate(z)
        return kept(seen(z, c), read(c, values, b2))

    return wrong


def best_only(c):
    return np.where(c == c.max(axis=-1, keepdims=True), c, 0.0)


def rows_of_w1(x, keys, bias):
    return x @ keys + bias


RECALL.mistake(
    "keys-not-turned",
    "The table of keys is used as if it were W1. Its rows are the columns of W1, so x and keys meet on their last axes.",
    recall_slip(match=rows_of_w1),
)
RECALL.mistake(
    "values-turned",
    "The values are transposed. A value is a row, as long as the output: one row per memory.",
    recall_slip(read=lambda c, values, b2: c @ values.T + b2),
)
RECALL.mistake(
    "coefficients-sum-to-1",
    "The coefficients are divided by their sum. That is an average, as in attention; a memory's coefficient stays as it is.",
    recall_slip(gate=share_of_sum),
)
RECALL.mistake(
    "coefficients-shown-as-shares",
    "y is right, but the coefficients that you return are divided by their sum.",
    recall_slip(seen=lambda z, c: share_of_sum(c)),
)
RECALL.mistake(
    "softmax",
    "The coefficients come from a softmax. That is attention's rule: here a memory that does not match gives exactly 0.",
    recall_slip(gate=softmax),
)
RECALL.mistake(
    "softmax-after-relu",
    "A softmax follows the ReLU: silent memories get a share again.",
    recall_slip(gate=lambda z: softmax(relu(z))),
)
RECALL.mistake(
    "bias-subtracted",
    "The bias is subtracted as if it were the threshold. It is minus the threshold already: add it.",
    recall_slip(match=lambda x, keys, bias: x @ keys.T - bias),
)
RECALL.mistake(
    "best-memory-only",
    "Only the best memory of a token answers. All that fire take part in the sum.",
    recall_slip(read=lambda c, values, b2: best_only(c) @ values + b2),
)
RECALL.mistake(
    "best-memory-only-everywhere",
    "Only the best memory of a token keeps its coefficient. All that are above 0 keep theirs.",
    recall_slip(gate=lambda z: best_only(relu(z))),
)
RECALL.mistake(
    "best-value-returned",
    "You return the value of the best memory itself. It counts with its coefficient, and so do the others.",
    lambda x, keys, bias, values, b2: (
        relu(x @ keys.T + bias),
        values[np.argmax(x @ keys.T + bias, axis=-1)] + b2,
    ),
)
RECALL.mistake(
    "relu-forgotten",
    "The ReLU is missing: memories below their threshold answer with a negative coefficient.",
    recall_slip(gate=lambda z: z),
)
RECALL.mistake(
    "matches-shown",
    "y is right, but the first part holds the matches before the ReLU. Coefficients are never negative.",
    recall_slip(seen=lambda z, c: z),
)
RECALL.mistake(
    "relu-only-shown",
    "The coefficients that you return are right, but y is summed with the matches before the ReLU.",
    lambda x, keys, bias, values, b2: (relu(x @ keys.T + bias), (x @ keys.T + bias) @ values + b2),
)


@RECALL.mistake("relu-before-bias", "The bias is added after the ReLU, so it cannot silence a memory.")
def _(x, keys, bias, values, b2):
    c = relu(x @ keys.T) + bias
    return c, c @ values + b2


@RECALL.mistake(
    "relu-on-y", "y is cut off below 0 as well. Only coefficients are; values may point anywhere."
)
def _(x, keys, bias, values, b2):
    c = relu(x @ keys.T + bias)
    return c, relu(c @ values + b2)


RECALL.mistake(
    "bias-forgotten",
    "The bias of the memories is missing.",
    recall_slip(match=lambda x, keys, bias: x @ keys.T),
)
RECALL.mistake("b2-forgotten", "b2 is missing in y.", recall_slip(read=lambda c, values, b2: c @ values))
RECALL.mistake(
    "hard-gate",
    "A memory counts as 0 or 1. It counts with how far its match is above the threshold.",
    recall_slip(gate=lambda z: (z > 0) * 1.0),
)
RECALL.mistake(
    "hard-gate-in-y",
    "The coefficients are right, but y adds the values of the firing memories without them.",
    recall_slip(read=lambda c, values, b2: (c > 0) @ values + b2),
)
RECALL.mistake(
    "coefficients-unbent-by-threshold",
    "The threshold decides who answers, but the coefficient is the match without the bias.",
    lambda x, keys, bias, values, b2: (
        np.where(x @ keys.T + bias > 0, x @ keys.T, 0.0),
        np.where(x @ keys.T + bias > 0, x @ keys.T, 0.0) @ values + b2,
    ),
)
RECALL.mistake(
    "cosine",
    "The match is a cosine: you divide by the lengths. The plain dot product is asked for.",
    recall_slip(
        match=lambda x, keys, bias: (
            x @ keys.T / np.linalg.norm(x, axis=-1, keepdims=True) / np.linalg.norm(keys, axis=-1) + bias
        )
    ),
)
RECALL.mistake(
    "scaled-match",
    "The match is divided by the root of d_model, as in attention. The FFN does not scale.",
    recall_slip(match=lambda x, keys, bias: x @ keys.T / np.sqrt(x.shape[-1]) + bias),
)
RECALL.mistake(
    "keys-read-back",
    "The sum is taken over the keys instead of the values.",
    lambda x, keys, bias, values, b2: (relu(x @ keys.T + bias), relu(x @ keys.T + bias) @ keys + b2),
)
RECALL.mistake(
    "parts-swapped",
    "The two parts are swapped: coefficients first, then y.",
    recall_slip(kept=lambda c, y: (y, c)),
)
RECALL.mistake("only-y", "You return y alone. The coefficients come first.", recall_slip(kept=lambda c, y: y))
RECALL.mistake(
    "only-coefficients",
    "You return the coefficients alone. y comes second.",
    recall_slip(kept=lambda c, y: c),
)
RECALL.mistake(
    "memories-first",
    "The coefficients are (d_ff, T). One row per token is asked for.",
    recall_slip(kept=lambda c, y: (c.T, y)),
)
RECALL.mistake(
    "one-token",
    "Only the first token is asked. There is one row per token.",
    lambda x, keys, bias, values, b2: (
        relu(keys @ x[0] + bias),
        relu(keys @ x[0] + bias) @ values + b2,
    ),
)


@RECALL.mistake(
    "changes-input",
    "The values are scaled inside the table that was passed in. Whoever passed it finds it changed.",
)
def _(x, keys, bias, values, b2):
    c = relu(x @ keys.T + bias)
    y = c @ values + b2
    values *= c.max(axis=0)[:, None]
    return c, y


@RECALL.mistake(
    "truncates-integers",
    "The answer is stored in an array like x. Where x holds integers, that cuts off all decimals.",
)
def _(x, keys, bias, values, b2):
    c = relu(x @ keys.T + bias)
    y = np.zeros_like(x)
    y[...] = c @ values + b2
    return c, y


RECALL.pair(
    "relu-forgotten", "bias-forgotten", recall_slip(match=lambda x, keys, bias: x @ keys.T, gate=lambda z: z)
)
RECALL.pair(
    "relu-forgotten", "b2-forgotten", recall_slip(gate=lambda z: z, read=lambda c, values, b2: c @ values)
)
RECALL.pair("softmax", "bias-forgotten", recall_slip(match=lambda x, keys, bias: x @ keys.T, gate=softmax))
RECALL.pair("softmax", "b2-forgotten", recall_slip(gate=softmax, read=lambda c, values, b2: c @ values))
RECALL.pair(
    "bias-forgotten",
    "b2-forgotten",
    recall_slip(match=lambda x, keys, bias: x @ keys.T, read=lambda c, values, b2: c @ values),
)
RECALL.pair(
    "coefficients-sum-to-1",
    "b2-forgotten",
    recall_slip(gate=share_of_sum, read=lambda c, values, b2: c @ values),
)
RECALL.pair(
    "keys-not-turned",
    "values-turned",
    recall_slip(match=rows_of_w1, read=lambda c, values, b2: c @ values.T + b2),
)
RECALL.pair(
    "bias-subtracted",
    "relu-forgotten",
    recall_slip(match=lambda x, keys, bias: x @ keys.T - bias, gate=lambda z: z),
)


@RECALL.variant
def _(x, keys, bias, values, b2):
    T, f = len(x), len(keys)
    c = np.zeros((T, f))
    y = np.zeros((T, len(b2)))
    for t in range(T):
        for m in range(f):
            c[t, m] = max(0.0, sum(a * b for a, b in zip(x[t], keys[m])) + bias[m])
            y[t] += c[t, m] * values[m]
        y[t] += b2
    return c, y


@RECALL.variant
def _(x, keys, bias, values, b2):
    return np.clip(np.einsum("td,fd->tf", x, keys) + bias, 0, None), ffn(x, keys.T, bias, values, b2)


@RECALL.variant
def _(x, keys, bias, values, b2):
    print(x.shape, keys.shape)
    match = (x[:, None, :] * keys[None]).sum(-1) + bias
    match[match < 0] = 0
    np.zeros(1) / 0
    return [match, (match[..., None] * values).sum(1) + b2]


# ================================================================ 3.4 top_memories

TOP = Exercise(
    number="3.4",
    title="What a token recalls",
    level="medium",
    difficulty=3,
    minutes=12,
    core=True,
    why="This is the first thing one does with a released model: see which memories speak for a token.",
    budget="Six lines are enough.",
    hints=(
        "What does one memory add to the output, and how long is that vector?",
        "coefficients are (T, d_ff); the lengths of the values are (d_ff,); strengths are their product (T, d_ff); each token then gets its own list.",
        "strength = coefficient times length of the value row; for each token: order the memories by falling strength, keep those above 0, cut after k, turn into a list of ints",
    ),
    view=View(silent_named),
)


@TOP.reference
def top_memories(x: np.ndarray, W1: np.ndarray, b1: np.ndarray, W2: np.ndarray, k: int) -> list[list[int]]:
    """Name, for each token, the k memories that add the longest vectors to the output.

    A memory adds coefficient times value; its strength is the length of that vector (Euclidean).
    A memory whose coefficient is 0 is silent and never listed, so a list may be shorter than k, or empty.

    x : (T, d_model)   W1 : (d_model, d_ff)   b1 : (d_ff,)   k : int >= 1
    W2 : (d_ff, d_model), no row of it all zeros
    returns : a list of T lists of ints, strongest first; at equal strength the lower index first

    >>> W1, b1 = np.array([[1, 0, -1], [0, 1, 1]]), np.array([0, -3, 0])
    >>> W2 = np.array([[1, 0], [0, 1], [1, 1]])
    >>> top_memories(np.array([[1, 2]]), W1, b1, W2, k=2)
    [[2, 0]]
    """
    coefficients = np.maximum(x @ W1 + b1, 0)  # (T, d_ff)
    strengths = coefficients * np.linalg.norm(W2, axis=1)  # (T, d_ff)
    order = np.argsort(-strengths, axis=1, kind="stable")
    return [[int(m) for m in row if s[m] > 0][:k] for row, s in zip(order, strengths)]


def clear_memories(rng, tokens, d, f, spread=1.0, integers=False):
    """x, W1, b1, W2 with value lengths spread over a factor; no unit near its kink, no two strengths alike.

    Every token has firing and silent memories.
    """
    while True:
        x = rng.integers(-3, 4, size=(tokens, d)) if integers else rng.normal(size=(tokens, d))
        W1, b1, W2, _ = weights(rng, d, f)
        W2 = W2 * rng.permutation(np.geomspace(1, spread, f))[:, None]
        z = x @ W1 + b1
        strengths = np.sort(relu(z) * np.linalg.norm(W2, axis=1), axis=1)
        firing = strengths[strengths > 0]
        gaps = np.diff(strengths, axis=1)
        near = gaps[(strengths[:, 1:] > 0) & (gaps < CLEAR * strengths[:, 1:])]
        both = ((z > 0).sum(axis=1) >= min(2, f - 1)).all() and (z < 0).any(axis=1).all()
        if abs(z).min() > CLEAR and not near.size and firing.size and both:
            return x, W1, b1, W2


def telling_memories(rng, tokens, d, f, k, spread=1.0):
    """As clear_memories, where other measures of a value's length, or the k largest coefficients, name other memories."""
    while True:
        x, W1, b1, W2 = clear_memories(rng, tokens, d, f, spread)
        c = relu(x @ W1 + b1)
        right = ranked(c * np.linalg.norm(W2, axis=1), k)
        others = [c, c * abs(W2).sum(axis=1), c * abs(W2).max(axis=1), c * (W2**2).sum(axis=1)]
        best = np.where(c >= np.sort(c, axis=1)[:, -k][:, None], c, 0.0)
        others.append(best * np.linalg.norm(W2, axis=1))
        if all(ranked(strengths, k) != right for strengths in others):
            return x, W1, b1, W2


def ranked(strengths, k):
    """For each row the places of its k largest entries above 0, largest first."""
    order = np.argsort(-strengths, axis=1, kind="stable")
    return [[int(m) for m in row if s[m] > 0][:k] for row, s in zip(order, strengths)]


def heard(question):
    """The same question, with the silent memories of each token for the view."""
    (call,) = question.calls
    x, W1, b1, *_ = [*call.args, *call.kwargs.values()]
    silent = [np.flatnonzero(z <= 0).tolist() for z in x @ W1 + b1]
    return Question(question.calls, about={"silent": silent})


@TOP.worked("the tiny FFN, k = 2: memory 2, then memory 0", 0.4)
def _():
    W1, b1, W2, _ = TINY
    yield heard(ask(TINY_X[None], W1, b1, W2, 2))


@TOP.must("the strongest memory of each token (k = 1)", 0.8)
def _(rng):
    for tokens, d, f in [(1, 2, 4), (3, 3, 6)]:
        yield heard(ask(*clear_memories(rng, tokens, d, f), 1))


@TOP.must("the k strongest, strongest first", 0.8)
def top_cases(rng):
    for tokens, d, f in [(2, 3, 8), (3, 5, 7)]:
        yield heard(ask(*clear_memories(rng, tokens, d, f), 3))


@TOP.must("values of very different lengths", 0.4)
def _(rng):
    yield heard(ask(*telling_memories(rng, 2, 3, 6, 2), 2))
    yield heard(ask(*telling_memories(rng, 3, 4, 8, 2, spread=5.0), 2))
    yield heard(ask(*clear_memories(rng, 3, 4, 6, spread=0.01), 6))


@TOP.must("at equal strength the lower index comes first", 0.2)
def _(rng):
    # values of length 5 and whole coefficients: the strengths are equal to the last digit
    values = rng.permutation([[3.0, 4.0], [4.0, 3.0], [5.0, 0.0], [-3.0, 4.0], [0.0, -5.0], [4.0, -3.0]])
    wanted = rng.permutation([2.0, 2.0, 2.0, 1.0, 1.0, -1.0])
    second, b1 = rng.integers(-3, 4, size=(2, 6)).astype(float)
    W1 = np.array([wanted - second - b1, second])
    yield heard(ask(np.ones((1, 2)), W1, b1, values, 6))


@TOP.must("as many memories as features (d_ff = d_model = T)", 0.4)
def _(rng):
    square = clear_memories(rng, 5, 5, 5)
    yield heard(ask(*square, 2))
    yield heard(ask(*square, 5))


@TOP.must("silent memories are never listed, also with k = d_ff", 0.4)
def _(rng):
    yield heard(ask(*clear_memories(rng, 3, 3, 6), 6))


@TOP.must("a token for which all are silent gets an empty list", 0.2, needs_values=True)
def _(rng):
    x, W1, b1, W2 = clear_memories(rng, 2, 3, 4)
    yield heard(ask(x / 10, W1, -20 - abs(b1), W2, 2))


@TOP.must("arguments by name, and integers that work like floats", 0.2)
def _(rng):
    names = ("x", "W1", "b1", "W2", "k")
    yield heard(ask(**dict(zip(names, (*clear_memories(rng, 2, 3, 5, integers=True), 2)))))


TOP.leaves_inputs_alone(0.2, lambda rng: [ask(*clear_memories(rng, 2, 3, 6), 2)])


def lengths(W2):
    return np.linalg.norm(W2, axis=1)


def top_slip(
    match=lambda x, W1, b1: x @ W1 + b1,
    strength=lambda z, W2: relu(z) * lengths(W2),
    keep=lambda s, z: z > 0,
    listed=lambda row, kept, k: [int(m) for m in row if kept[m]][:k],
    falling=True,
):
    """A ranking with some steps replaced; listed makes one token's list from the order and the mask of those kept."""

    def wrong(x, W1, b1, W2, k):
        z = match(x, W1, b1)
        s = strength(z, W2)
        kept = np.broadcast_to(keep(s, z), s.shape)
        order = np.argsort(-s if falling else s, axis=1, kind="stable")
        return [listed(row, mask, k) for row, mask in zip(order, kept)]

    return wrong


def cut(row, kept, k):
    return [int(m) for m in row[:k]]


TOP.mistake(
    "coefficient-only",
    "The ranking follows the coefficient alone. At the same coefficient, a memory with a longer value adds more: each row of W2 has its own length.",
    top_slip(strength=lambda z, W2: relu(z)),
)
TOP.mistake(
    "silent-listed",
    "Silent memories fill the list up to k. A memory with coefficient 0 adds nothing: leave it out, however large k is.",
    top_slip(listed=cut),
)
TOP.mistake(
    "columns-of-w2",
    "The lengths are those of the columns of W2. A value is a row: one per memory.",
    top_slip(strength=lambda z, W2: relu(z) * np.linalg.norm(W2, axis=0)),
)
TOP.mistake(
    "value-length-only",
    "The ranking uses the length of the value alone. How strongly the memory fires counts as well.",
    top_slip(strength=lambda z, W2: (z > 0) * lengths(W2)),
)
TOP.mistake(
    "b1-forgotten", "The bias is missing in the coefficients.", top_slip(match=lambda x, W1, b1: x @ W1)
)
TOP.mistake(
    "bias-subtracted",
    "The bias is subtracted. It is minus the threshold already: add it.",
    top_slip(match=lambda x, W1, b1: x @ W1 - b1),
)
TOP.mistake(
    "ties-turned",
    "At equal strength the higher index comes first. An upward order that is read backwards turns ties round as well.",
    lambda x, W1, b1, W2, k: [
        [int(m) for m in np.argsort(row, kind="stable")[::-1] if row[m] > 0][:k]
        for row in relu(x @ W1 + b1) * lengths(W2)
    ],
)
TOP.mistake(
    "weakest-first",
    "The order is upside down: the weakest comes first. argsort sorts upwards.",
    top_slip(falling=False),
)
TOP.mistake(
    "weakest-of-the-strongest-first",
    "The right memories are listed, but the weakest of them first.",
    top_slip(listed=lambda row, kept, k: [int(m) for m in row if kept[m]][:k][::-1]),
)
TOP.mistake(
    "sorted-by-index",
    "The right memories are listed, but in the order of their index. The strongest comes first.",
    top_slip(listed=lambda row, kept, k: sorted([int(m) for m in row if kept[m]][:k])),
)
TOP.mistake(
    "absolute-value",
    "Memories far below their threshold are listed: the size of the match counts without its sign. They are silent.",
    top_slip(strength=lambda z, W2: abs(z) * lengths(W2), keep=lambda s, z: s > 0),
)
TOP.mistake(
    "squared-length",
    "The value counts with its squared length: the root is missing.",
    top_slip(strength=lambda z, W2: relu(z) * (W2**2).sum(axis=1)),
)
TOP.mistake(
    "absolute-sum",
    "The value counts with the sum of its absolute entries. Its length is the Euclidean one.",
    top_slip(strength=lambda z, W2: relu(z) * abs(W2).sum(axis=1)),
)
TOP.mistake(
    "largest-entry",
    "The value counts with its largest entry. Its length is the Euclidean one.",
    top_slip(strength=lambda z, W2: relu(z) * abs(W2).max(axis=1)),
)
TOP.mistake(
    "signed-sum",
    "The value counts with the sum of its entries, so plus and minus cancel. Its length is the Euclidean one.",
    top_slip(strength=lambda z, W2: relu(z) * W2.sum(axis=1)),
)


@TOP.mistake(
    "lengths-of-the-keys",
    "The lengths are those of the keys, the columns of W1. A memory adds its value, a row of W2.",
)
def _(x, W1, b1, W2, k):
    by_keys = top_slip(strength=lambda z, W2: relu(z) * np.linalg.norm(W1, axis=0))
    return by_keys(x, W1, b1, W2, k)


@TOP.mistake(
    "top-k-of-each",
    "The k largest coefficients are picked first, and only then ranked by strength. The strongest may be left out.",
)
def _(x, W1, b1, W2, k):
    c = relu(x @ W1 + b1)
    answer = []
    for row in c:
        first = [int(m) for m in np.argsort(-row, kind="stable")[:k] if row[m] > 0]
        answer.append(sorted(first, key=lambda m: -row[m] * lengths(W2)[m]))
    return answer


@TOP.mistake(
    "position-in-the-filtered-list",
    "The numbers are places in the list of firing memories. Once the silent ones are taken out, a place is no longer the memory's index.",
)
def _(x, W1, b1, W2, k):
    strengths = relu(x @ W1 + b1) * lengths(W2)
    return [np.argsort(-s[s > 0], kind="stable")[:k].tolist() for s in strengths]


TOP.mistake(
    "one-too-few",
    "The list stops one too early: k memories are asked for.",
    top_slip(listed=lambda row, kept, k: [int(m) for m in row if kept[m]][: k - 1]),
)
TOP.mistake(
    "k-ignored",
    "All firing memories are listed. At most k are asked for.",
    top_slip(listed=lambda row, kept, k: [int(m) for m in row if kept[m]]),
)
TOP.mistake(
    "counts-from-1",
    "The memories are counted from 1. Here the first one is 0.",
    top_slip(listed=lambda row, kept, k: [int(m) + 1 for m in row if kept[m]][:k]),
)
TOP.mistake(
    "padded",
    "Lists are filled up with -1. They may simply be shorter.",
    top_slip(listed=lambda row, kept, k: ([int(m) for m in row if kept[m]] + [-1] * k)[:k]),
)
TOP.mistake(
    "over-all-tokens",
    "The ranking is made once for all tokens together. Each token has its own.",
    top_slip(
        strength=lambda z, W2: np.broadcast_to((relu(z) * lengths(W2)).sum(axis=0), z.shape),
        keep=lambda s, z: s > 0,
    ),
)


@TOP.mistake("strengths-returned", "You return the strengths. The indices of the memories are asked for.")
def _(x, W1, b1, W2, k):
    strengths = relu(x @ W1 + b1) * lengths(W2)
    return [[float(s) for s in sorted(row, reverse=True) if s > 0][:k] for row in strengths]


@TOP.mistake("one-list", "One flat list comes out. A list per token is asked for, also for a single token.")
def _(x, W1, b1, W2, k):
    return [m for row in top_memories(x, W1, b1, W2, k) for m in row]


@TOP.mistake("tokens-per-memory", "For each memory you list tokens. For each token, memories are asked for.")
def _(x, W1, b1, W2, k):
    strengths = (relu(x @ W1 + b1) * lengths(W2)).T
    order = np.argsort(-strengths, axis=1, kind="stable")
    return [[int(t) for t in row if s[t] > 0][:k] for row, s in zip(order, strengths)]


@TOP.mistake("changes-input", "The bias or a weight is changed inside the array that was passed in.")
def _(x, W1, b1, W2, k):
    answer = top_memories(x, W1, b1, W2, k)
    W2 *= W2
    return answer


TOP.pair("coefficient-only", "silent-listed", top_slip(strength=lambda z, W2: relu(z), listed=cut))
TOP.pair("coefficient-only", "b1-forgotten", top_slip(lambda x, W1, b1: x @ W1, lambda z, W2: relu(z)))
TOP.pair("coefficient-only", "weakest-first", top_slip(strength=lambda z, W2: relu(z), falling=False))
TOP.pair(
    "columns-of-w2",
    "silent-listed",
    top_slip(strength=lambda z, W2: relu(z) * np.linalg.norm(W2, axis=0), listed=cut),
)
TOP.pair("silent-listed", "b1-forgotten", top_slip(match=lambda x, W1, b1: x @ W1, listed=cut))
TOP.pair("silent-listed", "weakest-first", top_slip(listed=cut, falling=False))


@TOP.variant
def _(x, W1, b1, W2, k):
    answer = []
    for token in x:
        found = []
        for m in range(len(b1)):
            z = float(np.dot(token, W1[:, m])) + b1[m]
            if z > 0:
                found.append((-z * math.sqrt(sum(v * v for v in W2[m])), m))
        answer.append([m for _, m in sorted(found)[:k]])
    return answer


@TOP.variant
def _(x, W1, b1, W2, k):
    added = np.maximum(x @ W1 + b1, 0)[:, :, None] * W2[None]  # (T, d_ff, d_model)
    squares = np.einsum("tfd,tfd->tf", added, added)
    rows = []
    for s in squares:
        order = np.lexsort((np.arange(len(s)), -s))
        rows.append(tuple(order[: min(k, np.count_nonzero(s))]))
    return tuple(rows)


@TOP.variant
def _(x, W1, b1, W2, k):
    print("k =", k)
    s = np.where(x @ W1 + b1 > 0, x @ W1 + b1, -np.inf) * np.sqrt((W2 * W2).sum(1))
    np.log(np.zeros(1))
    return [[np.int64(m) for m in np.argsort(-row, kind="stable")[:k] if np.isfinite(row[m])] for row in s]


# ================================================================ 3.5 collapse

MAP = ("W", "b")


def map_of(question: Question, *only: str) -> Question:
    return Question(question.calls, about={"parts": MAP, "only": only or MAP})


COLLAPSE = Exercise(
    number="3.5",
    title="Without the ReLU, two products are one",
    level="medium",
    difficulty=2,
    minutes=10,
    core=False,
    why="It shows what the ReLU is for: all that the second matrix adds would be lost without it.",
    budget="Two lines are enough.",
    hints=(
        "Write (x W1 + b1) W2 + b2 and multiply out. Which terms still hold x?",
        "W is (d_model, d_model), from (d_model, d_ff) and (d_ff, d_model); b is (d_model,), and b1 is only d_ff long.",
        "W = W1 times W2; b = b1 taken through W2, plus b2; return both",
    ),
    view=View(parts),
)


@COLLAPSE.reference
def collapse(W1: np.ndarray, b1: np.ndarray, W2: np.ndarray, b2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace two linear layers without a ReLU between them by one: x W + b = (x W1 + b1) W2 + b2 for every x.

    W1 : (d_model, d_ff)   b1 : (d_ff,)   W2 : (d_ff, d_model)   b2 : (d_model,)
    returns : W (d_model, d_model) and b (d_model,)

    >>> W1, b1 = np.array([[1, 0, -1], [0, 1, 1]]), np.array([0, -3, 0])
    >>> W2, b2 = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 0])
    >>> W, b = collapse(W1, b1, W2, b2)
    >>> np.array([1, 2]) @ W + b
    array([2, 0])
    """
    return W1 @ W2, b1 @ W2 + b2


@COLLAPSE.worked("the tiny FFN without its ReLU", 0.4)
def _():
    yield map_of(ask(*TINY))


def collapse_cases(rng):
    for d, f in [(2, 3), (3, 8), (5, 2)]:
        yield ask(*weights(rng, d, f))


@COLLAPSE.must("W is right for wide and narrow hidden layers", 1.0)
def _(rng):
    for question in collapse_cases(rng):
        yield map_of(question, "W")


@COLLAPSE.must("b is right for wide and narrow hidden layers", 1.4)
def _(rng):
    for question in collapse_cases(rng):
        yield map_of(question, "b")


@COLLAPSE.must("right for a square hidden layer (d_ff = d_model)", 0.7)
def _(rng):
    yield map_of(ask(*weights(rng, 3, 3)))


@COLLAPSE.must("arguments by name, and integers that work like floats", 0.2)
def _(rng):
    integers = {"W1": rng.integers(-3, 4, size=(2, 3)), "b1": rng.integers(1, 5, size=3)}
    yield map_of(ask(**integers, W2=rng.normal(size=(3, 2)), b2=rng.normal(size=2)))


@COLLAPSE.must("leaves its inputs unchanged", 0.3, needs_values=True, view=View(with_inputs))
def _(rng):
    yield Question(ask(*weights(rng, 2, 3)).calls * 2, same_arrays=True)


def right_w(W1, b1, W2, b2):
    return W1 @ W2


def right_b(W1, b1, W2, b2):
    return b1 @ W2 + b2


def collapse_slip(w=right_w, b=right_b):
    return lambda W1, b1, W2, b2: (w(W1, b1, W2, b2), b(W1, b1, W2, b2))


COLLAPSE.mistake(
    "b1-lost",
    "The first bias is lost. It goes through the second matrix like everything before it.",
    collapse_slip(b=lambda W1, b1, W2, b2: b2),
)
COLLAPSE.mistake(
    "biases-added",
    "The two biases are added as they are. b1 lives in the hidden layer: it is d_ff long and must go through W2.",
    collapse_slip(b=lambda W1, b1, W2, b2: b1 + b2),
)
COLLAPSE.mistake("b2-lost", "The second bias is lost.", collapse_slip(b=lambda W1, b1, W2, b2: b1 @ W2))
COLLAPSE.mistake(
    "no-bias",
    "Both biases are lost: b is zero.",
    collapse_slip(b=lambda W1, b1, W2, b2: np.zeros_like(b2, dtype=float)),
)
COLLAPSE.mistake(
    "b2-through-w2",
    "b2 goes through the second matrix too. It is added after it.",
    collapse_slip(b=lambda W1, b1, W2, b2: (b1 + b2) @ W2),
)
COLLAPSE.mistake(
    "b1-through-w1",
    "b1 goes through the first matrix. It is added after W1, so only W2 still lies before it.",
    collapse_slip(b=lambda W1, b1, W2, b2: W1 @ b1 + b2),
)
COLLAPSE.mistake(
    "b1-through-turned-w2",
    "b1 goes through W2 transposed. Rows multiply from the left.",
    collapse_slip(b=lambda W1, b1, W2, b2: b1 @ W2.T + b2),
)
COLLAPSE.mistake(
    "order-reversed",
    "The product is in the wrong order: it acts on the hidden layer, (d_ff, d_ff). The data meet W1 first.",
    collapse_slip(w=lambda W1, b1, W2, b2: W2 @ W1),
)
COLLAPSE.mistake(
    "product-turned",
    "W is transposed. Here rows multiply from the left: x @ W.",
    collapse_slip(w=lambda W1, b1, W2, b2: (W1 @ W2).T),
)
COLLAPSE.mistake(
    "element-wise",
    "The matrices are multiplied entry by entry. One map after the other is the matrix product.",
    collapse_slip(w=lambda W1, b1, W2, b2: W1 * W2),
)
COLLAPSE.mistake(
    "matrices-added",
    "The matrices are added. One map after the other is their product.",
    collapse_slip(w=lambda W1, b1, W2, b2: W1 + W2),
)
COLLAPSE.mistake(
    "relu-kept",
    "A ReLU is still there: you asked the FFN for its answers to 0 and to the unit vectors. Without the ReLU nothing is cut off.",
    lambda W1, b1, W2, b2: (
        relu(W1 + b1) @ W2 + b2 - (relu(b1) @ W2 + b2),
        relu(b1) @ W2 + b2,
    ),
)
COLLAPSE.mistake(
    "relu-on-b1",
    "b1 is cut off at 0. Without the ReLU its negative entries pass as well.",
    collapse_slip(b=lambda W1, b1, W2, b2: relu(b1) @ W2 + b2),
)
COLLAPSE.mistake(
    "relu-on-w1",
    "The negative entries of W1 are cut off. The ReLU is taken out altogether.",
    collapse_slip(w=lambda W1, b1, W2, b2: relu(W1) @ W2),
)
COLLAPSE.mistake(
    "b1-in-the-matrix",
    "b1 is inside W, added to every row of W1. A bias is added once, whatever x is: it belongs into b alone.",
    collapse_slip(w=lambda W1, b1, W2, b2: (W1 + b1) @ W2),
)
COLLAPSE.mistake("only-w", "You return W alone. b comes second.", lambda W1, b1, W2, b2: W1 @ W2)
COLLAPSE.mistake(
    "parts-swapped",
    "The two parts are swapped: W first, then b.",
    lambda W1, b1, W2, b2: (b1 @ W2 + b2, W1 @ W2),
)
COLLAPSE.mistake(
    "bias-as-row",
    "b has an extra axis. It is one vector of d_model numbers.",
    collapse_slip(b=lambda W1, b1, W2, b2: (b1 @ W2 + b2)[None]),
)


@COLLAPSE.mistake("changes-input", "b2 is added up in place. Whoever passed it finds it changed.")
def _(W1, b1, W2, b2):
    b2 += b1 @ W2
    return W1 @ W2, b2


COLLAPSE.pair(
    "order-reversed", "b1-lost", collapse_slip(lambda W1, b1, W2, b2: W2 @ W1, lambda W1, b1, W2, b2: b2)
)
COLLAPSE.pair(
    "product-turned", "b1-lost", collapse_slip(lambda W1, b1, W2, b2: (W1 @ W2).T, lambda W1, b1, W2, b2: b2)
)
COLLAPSE.pair(
    "product-turned",
    "b2-lost",
    collapse_slip(lambda W1, b1, W2, b2: (W1 @ W2).T, lambda W1, b1, W2, b2: b1 @ W2),
)
COLLAPSE.pair(
    "order-reversed",
    "biases-added",
    collapse_slip(lambda W1, b1, W2, b2: W2 @ W1, lambda W1, b1, W2, b2: b1 + b2),
)


@COLLAPSE.variant
def _(W1, b1, W2, b2):
    def two_layers(x):
        return (x @ W1 + b1) @ W2 + b2

    zero = np.zeros(W1.shape[0])
    b = two_layers(zero)
    return np.array([two_layers(e) - b for e in np.eye(W1.shape[0])]), b


@COLLAPSE.variant
def _(W1, b1, W2, b2):
    d, f = W1.shape
    W = [[sum(W1[i, j] * W2[j, k] for j in range(f)) for k in range(d)] for i in range(d)]
    b = [sum(b1[j] * W2[j, k] for j in range(f)) + b2[k] for k in range(d)]
    return W, b


@COLLAPSE.variant
def _(W1, b1, W2, b2):
    print("one matrix")
    both = np.vstack([W1, b1]) @ W2  # the bias as one more row
    np.sqrt(np.array(-1.0))
    return [both[:-1], np.einsum("f,fd->d", b1, W2) + b2]


# ================================================================ 3.6 and_unit

AND = Exercise(
    number="3.6",
    title="A unit that fires only on both",
    level="hard",
    difficulty=4,
    minutes=15,
    core=False,
    why="A key that asks for several things at once is what lets a memory store a fact about two of them.",
    budget="Three lines are enough.",
    hints=(
        "For orthonormal directions, what is w · x when all n are present, and when one is missing? What must b take away?",
        "w is (d,), b one number. Ask first for w · v_i = 1 for every i: n equations for the d numbers of w.",
        "w = the shortest vector whose product with every direction is 1 (the pseudo-inverse of the matrix of directions, times ones); b = 1 minus the number of directions",
    ),
    view=View(truth_table),
)


@AND.reference
def and_unit(directions: np.ndarray) -> tuple[np.ndarray, float]:
    """Build one ReLU unit that fires only when all features are present.

    The token is x = the sum of the directions that are present. ReLU(w · x + b) must be exactly 1
    when all are present, and 0 when one or more is missing. There are many right answers: any that
    does this counts.

    directions : (n, d), one feature per row, linearly independent (so n <= d); of any length, and
                 not at right angles in general
    returns    : w (d,) and b (one number)

    >>> w, b = and_unit(np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> both, one = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    >>> [round(float(max(0, w @ x + b)), 6) for x in (both, one)]
    [1.0, 0.0]
    """
    n = len(directions)
    w = np.linalg.pinv(directions) @ np.ones(n)  # w · v_i = 1 for every direction
    return w, 1.0 - n


def orthonormal(rng, n, d):
    """n random orthonormal rows of length d."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0][:n]


def leaning(rng, n, d):
    """n rows of length about one at 50 to 75 or 105 to 130 degrees to each other, none close to the span of the rest."""
    while True:
        v = rng.normal(size=(n, d))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        overlaps = abs(v @ v.T)[np.triu_indices(n, 1)]
        smallest = np.linalg.svd(v, compute_uv=False)[-1]
        if overlaps.min() > 0.25 and overlaps.max() < 0.65 and smallest > 0.4:
            return v


@AND.worked("two orthonormal features: 1 for both, 0 otherwise", 0.5)
def _():
    yield ask(np.eye(2))


@AND.must("two orthonormal features in any position", 1.0)
def _(rng):
    yield ask(orthonormal(rng, 2, 2))
    yield ask(orthonormal(rng, 2, 4))


@AND.must("three and four orthonormal features", 1.0)
def _(rng):
    yield ask(orthonormal(rng, 3, 3))
    yield ask(orthonormal(rng, 4, 6))


@AND.must("features of unequal lengths, at right angles", 1.25)
def _(rng):
    yield ask(orthonormal(rng, 2, 3) * np.array([[0.5], [2.0]]))
    yield ask(orthonormal(rng, 3, 5) * rng.permutation([[0.4], [1.0], [2.5]]))


@AND.must("features that are not at right angles, of any length", 1.75)
def _(rng):
    yield ask(leaning(rng, 2, 3))
    yield ask(leaning(rng, 3, 4) * rng.uniform(0.4, 0.8, size=(3, 1)))
    yield ask(leaning(rng, 3, 3) * rng.uniform(0.4, 2.5, size=(3, 1)))


@AND.must("directions given by name and as integers", 0.25)
def _(rng):
    yield ask(directions=rng.permutation([[2, 0, 0], [1, 1, 0]]))


@AND.must("leaves its inputs unchanged", 0.25, needs_values=True, view=View(truth_table))
def _(rng):
    yield Question(ask(orthonormal(rng, 2, 3) * 2.0).calls * 2, same_arrays=True)


def shortest(directions):
    return np.linalg.pinv(directions) @ np.ones(len(directions))


def and_slip(w=shortest, b=lambda v, w: 1.0 - len(v)):
    def wrong(directions):
        found = w(directions)
        return found, b(directions, found)

    return wrong


def squares(v):
    return (v**2).sum(axis=1, keepdims=True)


def plain_sum(v):
    return v.sum(axis=0)


def by_lengths(v):
    return (v / np.sqrt(squares(v))).sum(axis=0)


def by_squared_lengths(v):
    return (v / squares(v)).sum(axis=0)


AND.mistake(
    "or-unit",
    "b is 0, so one feature is enough: the unit says OR. The bias must take away what an incomplete set gives.",
    and_slip(b=lambda v, w: 0.0),
)
AND.mistake(
    "sum-of-directions",
    "w is the sum of the directions. Other lengths and angles than those of orthonormal ones change the products w · v.",
    and_slip(w=plain_sum),
)
AND.mistake(
    "threshold-one-half",
    "The bias is one half above the last incomplete sum, so the full set gives 1/2 and not 1.",
    and_slip(b=lambda v, w: 0.5 - len(v)),
)
AND.mistake(
    "threshold-one-half-too-low",
    "The bias takes half too little away: the full set gives 1.5, and one missing feature still gives 1/2.",
    and_slip(b=lambda v, w: 1.5 - len(v)),
)
AND.mistake(
    "never-fires",
    "The bias takes away all of the full sum, so the unit never fires.",
    and_slip(b=lambda v, w: -1.0 * len(v)),
)
AND.mistake(
    "bias-minus-one",
    "The bias is -1 whatever the number of features. That is right for two only.",
    and_slip(b=lambda v, w: -1.0),
)
AND.mistake(
    "bias-sign",
    "The sign of the bias is wrong: it adds to the match instead of taking away, so the unit always fires.",
    and_slip(b=lambda v, w: len(v) - 1.0),
)
AND.mistake(
    "sum-of-unit-vectors",
    "w is the sum of the directions scaled to length 1. Then w · v is the length of v, not 1.",
    and_slip(w=by_lengths),
)
AND.mistake(
    "ignores-overlap",
    "Each direction is divided by its squared length. Where directions lean on each other, one feature still counts for the other.",
    and_slip(w=by_squared_lengths),
)
AND.mistake(
    "overlap-in-bias-only",
    "The bias makes the full set give 1, but w is still the sum of the directions: a short or a leaning feature is not missed when it is absent.",
    and_slip(w=plain_sum, b=lambda v, w: 1.0 - float(w @ v.sum(axis=0))),
)
AND.mistake(
    "mean-of-directions",
    "w is the mean of the directions, so the match of the full set is n times too small.",
    and_slip(w=lambda v: v.mean(axis=0)),
)
AND.mistake(
    "mean-that-is-one",
    "w · x is scaled so that the full set gives 1 with b = 0, but an incomplete set then gives a fraction and not 0.",
    and_slip(w=lambda v: shortest(v) / len(v), b=lambda v, w: 0.0),
)
AND.mistake(
    "doubled",
    "w is doubled and the bias is not: the full set gives n + 1.",
    and_slip(w=lambda v: 2 * shortest(v)),
)
AND.mistake(
    "first-only",
    "Only the first feature is asked for.",
    and_slip(w=lambda v: v[0] / (v[0] @ v[0]), b=lambda v, w: 0.0),
)
AND.mistake(
    "wrong-side-of-the-inverse",
    "The pseudo-inverse is summed over the wrong axis. Its columns belong to the directions.",
    and_slip(w=lambda v: np.linalg.pinv(v).sum(axis=0)),
)
AND.mistake(
    "inverse-of-a-square-only",
    "A matrix has an inverse (inv, solve) only where it is square. With fewer directions than numbers you need another way to w.",
    and_slip(w=lambda v: np.linalg.inv(v) @ np.ones(len(v))),
)
AND.mistake(
    "parts-swapped",
    "The two parts are swapped: w first, then b.",
    lambda directions: and_unit(directions)[::-1],
)
AND.mistake("only-w", "You return w alone. The bias comes second.", lambda directions: shortest(directions))
AND.mistake(
    "one-w-per-direction",
    "You return a w for every direction. One unit has one w.",
    and_slip(w=lambda v: np.linalg.pinv(v).T),
)


@AND.mistake("changes-input", "The directions are scaled in place. Whoever passed them finds them changed.")
def _(directions):
    answer = and_unit(directions)
    if directions.dtype.kind == "f":
        directions /= 2.0
    return answer


AND.pair(
    "inverse-of-a-square-only",
    "wrong-side-of-the-inverse",
    and_slip(w=lambda v: np.linalg.inv(v).sum(axis=0)),
)
AND.pair("or-unit", "sum-of-directions", and_slip(plain_sum, lambda v, w: 0.0))
AND.pair("sum-of-directions", "threshold-one-half", and_slip(plain_sum, lambda v, w: 0.5 - len(v)))
AND.pair("sum-of-directions", "never-fires", and_slip(plain_sum, lambda v, w: -1.0 * len(v)))
AND.pair("or-unit", "sum-of-unit-vectors", and_slip(by_lengths, lambda v, w: 0.0))
AND.pair("ignores-overlap", "or-unit", and_slip(by_squared_lengths, lambda v, w: 0.0))
AND.pair("ignores-overlap", "threshold-one-half", and_slip(by_squared_lengths, lambda v, w: 0.5 - len(v)))


@AND.variant
def _(directions):
    v = np.asarray(directions, dtype=float)
    w = np.linalg.solve(v @ v.T, np.full(len(v), 3.0)) @ v  # w · v_i = 3
    return w, np.float64(1 - 3 * len(v))


@AND.variant
def _(directions):
    c = np.arange(1, len(directions) + 1.0)  # another weight for every feature
    w = np.linalg.lstsq(directions, c, rcond=None)[0]
    return [w.tolist(), 1 - sum(c)]


@AND.variant
def _(directions):
    print(directions)
    q, r = np.linalg.qr(np.asarray(directions, dtype=float).T)
    np.ones(1) / 0
    y = np.zeros(len(r))
    for i in range(len(r)):  # solve r^T y = 1
        y[i] = (1 - r[:i, i] @ y[:i]) / r[i, i]
    return q @ y, np.array([1.0 - len(directions)])


# ================================================================ 3.7 write_memory

WRITE = Exercise(
    number="3.7",
    title="Write a fact by hand",
    level="demanding",
    difficulty=5,
    minutes=20,
    core=True,
    why="Nobody trains anything here: you store a fact in the weights yourself, and know where it lies.",
    budget="Five lines are enough.",
    hints=(
        "One ReLU grows for ever with the match. What must a second one, a little further on, take away so that the sum stays flat?",
        "W1 gets two columns, (d, d_ff + 2); b1 two numbers; W2 two rows, (d_ff + 2, d); b2 stays.",
        "both new columns are the key; their biases are minus the threshold, and minus the threshold minus 1; their value rows are the value, and minus the value; join them to the old arrays, without changing those",
    ),
    view=View(as_ffn, own=("ffn",)),
)


@WRITE.reference
def write_memory(
    params: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    key: np.ndarray,
    threshold: float,
    value: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Add one memory to an FFN: ReLU(z - threshold) - ReLU(z - threshold - 1) times value, where z = key · x.

    Below the threshold the memory adds nothing, from threshold + 1 on exactly value, and in between
    a share that grows in a straight line. It needs two hidden units; where they stand does not matter.

    params  : (W1, b1, W2, b2), shapes (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,);
              d_ff may be 0. The arrays given are not changed.
    key     : (d_model,), of any length   value : (d_model,)
    returns : (W1, b1, W2, b2) with d_ff + 2 hidden units

    >>> empty = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 2)), np.zeros(2)
    >>> new = write_memory(empty, key=np.array([1.0, 0.0]), threshold=2.0, value=np.array([0.0, 5.0]))
    >>> x = np.array([[2.0, 9.0], [2.5, 9.0], [7.0, 9.0]])  # matches 2, 2.5 and 7
    >>> ffn(x, *new).tolist()
    [[0.0, 0.0], [0.0, 2.5], [0.0, 5.0]]
    """
    W1, b1, W2, b2 = params
    W1 = np.column_stack([W1, key, key])
    b1 = np.append(b1, [-threshold, -threshold - 1])
    W2 = np.vstack([W2, value, -value])
    return W1, b1, W2, b2


def at_matches(rng, key, matches):
    """Probes x (n, d) with key · x = the matches given, otherwise random."""
    noise = rng.normal(size=(len(matches), len(key)))
    noise -= np.outer(noise @ key, key) / (key @ key)
    return noise + np.outer(matches, key) / (key @ key)


def write_case(rng, d, f, steps_above, threshold=None, same_arrays=False):
    """A question whose probes match the key at threshold + each of steps_above."""
    key, value = rng.normal(size=d) * rng.uniform(1, 2), rng.normal(size=d)
    if threshold is None:
        threshold = float(rng.choice([-1, 1]) * rng.uniform(0.3, 0.8) + rng.choice([0, 2]))
    probes = at_matches(rng, key, threshold + np.asarray(steps_above))
    call = Call((weights(rng, d, f), key, threshold, value))
    return Question((call,) * (1 + same_arrays), same_arrays, about={"probes": probes})


@WRITE.worked("four writes rebuild the FFN of the worked example", 0.75)
def _():
    params = empty_network(4, worked_example.B2)
    for key, threshold, value in MEMORIES:
        yield Question((Call((params, key, float(threshold), value)),), about={"probes": X_PRIME})
        params = write_memory(params, key, threshold, value)


@WRITE.must("from threshold + 1 on, exactly the value is added", 1.75)
def _(rng):
    yield write_case(rng, 2, 1, [1.0, 1.5])
    yield write_case(rng, 3, 4, [1.0, 2.0, 10.0])
    yield write_case(rng, 3, 3, [1.0, 30.0])


@WRITE.must("between threshold and threshold + 1, a share that grows in a straight line", 1.75)
def _(rng):
    yield write_case(rng, 2, 1, [0.5])
    yield write_case(rng, 3, 4, [0.0, 0.1, 0.4, 0.9])


@WRITE.must("below the threshold nothing is added", 0.5, needs_values=True)
def _(rng):
    yield write_case(rng, 2, 1, [-0.5])
    yield write_case(rng, 3, 4, [-5.0, -0.9, -0.1])


@WRITE.must("the old memories still answer as before", 1.25)
def _(rng):
    yield write_case(rng, 3, 2, [-3.0, -0.5, 0.5, 2.0])
    yield write_case(rng, 4, 4, [-3.0, -0.5, 0.5, 2.0])


@WRITE.must("the first memory of an FFN without hidden units", 0.75)
def _(rng):
    key, value = rng.normal(size=3), rng.normal(size=3)
    threshold = float(rng.uniform(1.2, 3))
    probes = at_matches(rng, key, threshold + np.array([-1.0, 0.5, 3.0]))
    params = empty_network(3, rng.normal(size=3))
    yield Question((Call((params, key, threshold, value)),), about={"probes": probes})


@WRITE.must("two hidden units more than before", 0.5, needs_values=True, view=View(hidden_units))
def _(rng):
    for d, f in [(2, 0), (3, 4)]:
        call = Call((weights(rng, d, f), rng.normal(size=d), 1.5, rng.normal(size=d)))
        yield Question((call,), about={"d_model": d})


@WRITE.must("arguments by name, and old weights that are integers", 0.25)
def _(rng):
    params = tuple(rng.integers(-3, 4, size=shape) for shape in ((3, 2), (2,), (2, 3), (3,)))
    key, value, threshold = rng.normal(size=3), rng.normal(size=3), float(rng.uniform(0.2, 0.8))
    probes = at_matches(rng, key, threshold + np.array([-1.0, 0.5, 3.0]))
    call = Call((), dict(params=params, key=key, threshold=threshold, value=value))
    yield Question((call,), about={"probes": probes})


@WRITE.must("leaves its inputs unchanged", 0.5, needs_values=True)
def _(rng):
    yield write_case(rng, 3, 2, [-1.0, 0.5, 2.0], same_arrays=True)


def write_slip(
    keys=lambda key: [key, key],
    biases=lambda t: [-t, -t - 1],
    values=lambda value: [value, -value],
    b2=lambda b2, value: b2,
):
    """A write with the new columns, biases, rows or the output bias replaced."""

    def wrong(params, key, threshold, value):
        W1, old_b1, W2, old_b2 = params
        return (
            np.column_stack([W1, *keys(key)]),
            np.append(old_b1, biases(threshold)),
            np.vstack([W2, *values(value)]),
            b2(old_b2, value),
        )

    return wrong


WRITE.mistake(
    "one-relu",
    "There is one unit only, so the answer grows with the match for ever. A second one must hold it at the value.",
    write_slip(lambda key: [key], lambda t: [-t], lambda value: [value]),
)
WRITE.mistake(
    "second-unit-empty",
    "The second unit takes nothing away: its value is 0, so the answer grows with the match for ever.",
    write_slip(values=lambda value: [value, 0 * value]),
)
WRITE.mistake(
    "second-unit-added",
    "The second unit is added, not subtracted: above the threshold the answer grows twice as fast.",
    write_slip(values=lambda value: [value, value]),
)
WRITE.mistake(
    "threshold-sign",
    "The sign of the threshold is wrong. A unit should start where the match equals the threshold.",
    write_slip(biases=lambda t: [t, t - 1]),
)
WRITE.mistake(
    "threshold-sign-both",
    "Both biases carry the wrong sign: the units start at minus the threshold, and in the wrong order.",
    write_slip(biases=lambda t: [t, t + 1]),
)
WRITE.mistake(
    "same-bias-twice",
    "Both units have the same bias, so one cancels the other: the memory always adds 0.",
    write_slip(biases=lambda t: [-t, -t]),
)
WRITE.mistake(
    "step-of-width-t",
    "The second unit starts at twice the threshold. The step is 1 wide, whatever the threshold is.",
    write_slip(biases=lambda t: [-t, -2 * t]),
)
WRITE.mistake(
    "step-the-wrong-way",
    "The second unit starts 1 below the threshold, not 1 above it.",
    write_slip(biases=lambda t: [-t, -t + 1]),
)
WRITE.mistake(
    "value-negative",
    "The two units have changed places: the one that starts first is subtracted, so minus the value comes out.",
    write_slip(biases=lambda t: [-t - 1, -t]),
)
WRITE.mistake(
    "second-bias-one",
    "The second bias is -1. It starts 1 above the threshold, not at 1.",
    write_slip(biases=lambda t: [-t, -1.0]),
)
WRITE.mistake(
    "no-threshold",
    "The threshold is missing: the memory starts at a match of 0.",
    write_slip(biases=lambda t: [0.0, -1.0]),
)
WRITE.mistake(
    "step-of-one-half",
    "The step is only half as wide as it should be.",
    write_slip(biases=lambda t: [-t, -t - 0.5]),
)
WRITE.mistake(
    "second-key-negative",
    "The second unit reads minus the key, so it watches the other side.",
    write_slip(keys=lambda key: [key, -key]),
)
WRITE.mistake(
    "key-negated-instead-of-the-value",
    "The minus sign of the second unit stands in its key. It belongs to its value: what that unit finds is taken away.",
    write_slip(keys=lambda key: [key, -key], values=lambda value: [value, value]),
)
WRITE.mistake(
    "minus-inside-the-relu",
    "The minus sign stands inside the second ReLU, on its key and its bias. It stands in front of the ReLU: on the value.",
    write_slip(
        keys=lambda key: [key, -key], biases=lambda t: [-t, t + 1], values=lambda value: [value, value]
    ),
)
WRITE.mistake(
    "second-unit-mirrored",
    "The second unit has minus the key and minus the bias, so it fires below threshold + 1. It should fire above.",
    write_slip(keys=lambda key: [key, -key], biases=lambda t: [-t, t + 1]),
)
WRITE.mistake(
    "both-keys-negative",
    "Both units read minus the key, so they fire where the match is far below. The key goes in as it is.",
    write_slip(keys=lambda key: [-key, -key]),
)
WRITE.mistake(
    "key-and-value-swapped",
    "Key and value are swapped: the key belongs into W1, the value into W2.",
    lambda params, key, threshold, value: write_memory(params, value, threshold, key),
)
WRITE.mistake(
    "key-scaled",
    "The key is scaled to length 1. The match is the plain dot product with the key as it is.",
    write_slip(keys=lambda key: [key / np.linalg.norm(key)] * 2),
)
WRITE.mistake(
    "key-divided-by-square",
    "The key is divided by its squared length. The match is the plain dot product with the key as it is.",
    write_slip(keys=lambda key: [key / (key @ key)] * 2),
)
WRITE.mistake(
    "value-scaled",
    "The value is scaled to length 1. It is added as it is.",
    write_slip(values=lambda value: [value / np.linalg.norm(value), -value / np.linalg.norm(value)]),
)
WRITE.mistake(
    "value-halved",
    "The value is shared between the two units. Each carries all of it, one with the other sign.",
    write_slip(values=lambda value: [value / 2, -value / 2]),
)
WRITE.mistake(
    "value-in-b2",
    "The value also goes into b2, so every token gets it.",
    write_slip(b2=lambda b2, value: b2 + value),
)
WRITE.mistake(
    "value-missing-everywhere",
    "Every answer is one value too low: it was taken from b2, or both units read minus the key and minus their bias.",
    write_slip(b2=lambda b2, value: b2 - value),
)
WRITE.mistake("b2-lost", "b2 is set to 0. It stays as it was.", write_slip(b2=lambda b2, value: 0.0 * b2))
WRITE.mistake(
    "b2-forgotten",
    "Three arrays come back. b2 is part of the network too.",
    lambda *a, **k: write_memory(*a, **k)[:3],
)
WRITE.mistake(
    "old-memories-lost",
    "The old memories are gone: only the new one is left.",
    lambda params, key, threshold, value: write_memory(
        empty_network(len(key), params[3]), key, threshold, value
    ),
)


@WRITE.mistake("overwrites", "The new memory is written over the last two units instead of behind them.")
def _(params, key, threshold, value):
    W1, b1, W2, b2 = (np.array(p, dtype=float) for p in params)
    W1[:, -2:] = key[:, None]
    b1[-2:] = [-threshold, -threshold - 1]
    W2[-2:] = [value, -value]
    return W1, b1, W2, b2


@WRITE.mistake(
    "front-and-back",
    "The new units stand in front in one array and behind in another: keys meet the wrong values.",
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    return (
        np.column_stack([key, key, W1]),
        np.append(b1, [-threshold, -threshold - 1]),
        np.vstack([W2, value, -value]),
        b2,
    )


@WRITE.mistake(
    "key-as-row", "The keys are stacked as rows of W1. A key is a column: one column per hidden unit."
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    return (
        np.vstack([W1, key, key]),
        np.append(b1, [-threshold, -threshold - 1]),
        np.vstack([W2, value, -value]),
        b2,
    )


@WRITE.mistake(
    "value-as-column", "The values are stacked as columns of W2. A value is a row: one row per hidden unit."
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    return (
        np.column_stack([W1, key, key]),
        np.append(b1, [-threshold, -threshold - 1]),
        np.column_stack([W2, value, -value]),
        b2,
    )


@WRITE.mistake(
    "truncates-integers", "The new columns are put into an array of integers, which cuts off all decimals."
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    end = len(b1)
    W1 = np.insert(np.insert(W1, end, key, axis=1), end + 1, key, axis=1)
    b1 = np.insert(b1, end, [-threshold, -threshold - 1])
    W2 = np.insert(np.insert(W2, end, value, axis=0), end + 1, -value, axis=0)
    return W1, b1, W2, b2


@WRITE.mistake("needs-old-units", "It fails for an FFN without hidden units: it looks at the last old one.")
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    b1[-1]
    return write_memory((W1, b1, W2, b2), key, threshold, value)


@WRITE.mistake(
    "value-added-into-b2",
    "The value is added into the b2 that was passed in (+= works in place). b2 stays as it was.",
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = write_memory(params, key, threshold, value)
    b2 += value
    return W1, b1, W2, b2


@WRITE.mistake(
    "b2-emptied",
    "The b2 that was passed in is set to 0 in place. It stays as it was.",
)
def _(params, key, threshold, value):
    W1, b1, W2, b2 = write_memory(params, key, threshold, value)
    b2[:] = 0
    return W1, b1, W2, b2


@WRITE.mistake("changes-input", "An array that was passed in is changed. Whoever passed it finds it changed.")
def _(params, key, threshold, value):
    new = write_memory(params, key, threshold, value)
    value *= -1
    return new


@WRITE.mistake(
    "nothing-returned", "Nothing comes back. The new network must be returned: the old one does not change."
)
def _(params, key, threshold, value):
    write_memory(params, key, threshold, value)


WRITE.pair("one-relu", "threshold-sign", write_slip(lambda key: [key], lambda t: [t], lambda value: [value]))
WRITE.pair(
    "second-unit-added", "threshold-sign", write_slip(biases=lambda t: [t, t - 1], values=lambda v: [v, v])
)
WRITE.pair(
    "second-unit-added", "same-bias-twice", write_slip(biases=lambda t: [-t, -t], values=lambda v: [v, v])
)
WRITE.pair(
    "second-unit-added",
    "threshold-sign-both",
    write_slip(biases=lambda t: [t, t + 1], values=lambda v: [v, v]),
)
WRITE.pair("step-of-width-t", "threshold-sign", write_slip(biases=lambda t: [t, 2 * t]))
WRITE.pair(
    "key-and-value-swapped",
    "threshold-sign",
    lambda params, key, threshold, value: write_slip(biases=lambda t: [t, t - 1])(
        params, value, threshold, key
    ),
)


@WRITE.variant
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    d, f = W1.shape
    new_W1, new_b1, new_W2 = np.zeros((d, f + 2)), np.zeros(f + 2), np.zeros((f + 2, d))
    new_W1[:, 2:], new_b1[2:], new_W2[2:] = W1, b1, W2  # the new units in front
    for unit, (start, sign) in enumerate([(threshold + 1, -1), (threshold, 1)]):
        new_W1[:, unit] = key
        new_b1[unit] = -start
        new_W2[unit] = sign * value
    return new_W1, new_b1, new_W2, b2.copy()


@WRITE.variant
def _(params, key, threshold, value):
    W1, b1, W2, b2 = params
    scale = 4.0  # a unit of another scale does the same
    return [
        np.hstack([W1, scale * np.stack([key, key], axis=1)]),
        np.concatenate([b1, [-scale * threshold, -scale * (threshold + 1)]]),
        np.concatenate([W2, np.outer([1, -1], value) / scale]),
        b2,
    ]


@WRITE.variant
def _(params, key, threshold, value):
    print("writing", key, value)
    np.arange(3) / 0
    W1, b1, W2, b2 = (np.asarray(p, dtype=float) for p in params)
    W1 = np.concatenate([key[:, None], W1, key[:, None]], axis=1)
    b1 = np.array([-threshold, *b1, -1 - threshold])
    W2 = np.array([value, *W2, -value])
    return tuple([W1, b1, W2, b2])


# ================================================================ 3.8 ffn_backward

GRADIENTS = ("dx", "dW1", "db1", "dW2", "db2")


def gradients(question: Question, *only: str) -> Question:
    return Question(question.calls, about={"parts": GRADIENTS, "only": only or GRADIENTS})


BACKWARD = Exercise(
    number="3.8",
    title="The way back through the ReLU",
    level="demanding",
    difficulty=5,
    minutes=25,
    core=False,
    why="It is the other half of what a framework does for this layer: which memories learn from a token, and which do not.",
    budget="Eight lines are enough.",
    hints=(
        "Which hidden units let a small change of x through, and what decides that: the number before the ReLU, or the gradient?",
        "dh = (..., d_ff) from dy and W2; dpre has the same shape, gated; dx is (..., d_model). For the weights, flatten all leading axes into one axis of tokens.",
        "dh = dy taken back through W2; dpre = dh where the pre-activation is positive, else 0; dx = dpre taken back through W1; each dW = its layer's input, turned, times its layer's gradient; each db = that gradient, summed over all tokens",
    ),
    view=View(parts),
)


@BACKWARD.reference
def ffn_backward(
    dy: np.ndarray, x: np.ndarray, W1: np.ndarray, b1: np.ndarray, W2: np.ndarray, b2: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of L, given dy = dL/dy for y = ReLU(x W1 + b1) W2 + b2.

    dy, x : (..., d_model), any number of leading axes, also none
    W1 : (d_model, d_ff)   b1 : (d_ff,)   W2 : (d_ff, d_model)   b2 : (d_model,)
    returns : dx, dW1, db1, dW2, db2, each of the shape of what it belongs to; those of the weights
              and biases are sums over all tokens

    >>> W1, b1 = np.array([[1, 0, -1], [0, 1, 1]]), np.array([0, -3, 0])
    >>> W2, b2 = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 0])
    >>> dx, dW1, db1, dW2, db2 = ffn_backward(np.array([1, 1]), np.array([1, 2]), W1, b1, W2, b2)
    >>> dx
    array([-1,  2])
    """
    pre = x @ W1 + b1  # (..., d_ff)
    hidden = np.maximum(pre, 0)
    dpre = (dy @ W2.T) * (pre > 0)  # (..., d_ff)
    dx = dpre @ W1.T  # (..., d_model)

    d_model, d_ff = W1.shape
    tokens, dy_tokens = x.reshape(-1, d_model), dy.reshape(-1, d_model)
    hidden, dpre = hidden.reshape(-1, d_ff), dpre.reshape(-1, d_ff)
    return dx, tokens.T @ dpre, dpre.sum(axis=0), hidden.T @ dy_tokens, dy_tokens.sum(axis=0)


def backward_case(rng, shape, f, integers=False):
    """dy, x and weights; no unit near its kink, and units that fire as well as silent ones."""
    while True:
        x = rng.integers(-3, 4, size=shape) if integers else rng.normal(size=shape)
        network = weights(rng, shape[-1], f)
        z = x @ network[0] + network[1]
        if abs(z).min() > CLEAR and (z > 0).any() and (z < 0).any():
            dy = rng.integers(-3, 4, size=shape) if integers else rng.normal(size=shape)
            return ask(dy, x, *network)


def backward_cases(rng):
    for shape, f in [((2, 3), 4), ((4, 3), 2)]:
        yield backward_case(rng, shape, f)


@BACKWARD.worked("the tiny FFN with dy = (1, 1): dx = (-1, 2)", 0.5)
def _():
    yield gradients(ask(np.array([1.0, 1.0]), TINY_X, *TINY), "dx")


@BACKWARD.must("dx is right", 1.5)
def _(rng):
    for question in backward_cases(rng):
        yield gradients(question, "dx")


@BACKWARD.must("dW1 and db1 are right", 1.25)
def _(rng):
    for question in backward_cases(rng):
        yield gradients(question, "dW1", "db1")


@BACKWARD.must("dW2 and db2 are right", 1.25)
def _(rng):
    for question in backward_cases(rng):
        yield gradients(question, "dW2", "db2")


@BACKWARD.must("all five for a single token (1-D)", 0.75)
def _(rng):
    yield gradients(backward_case(rng, (2,), 4))


@BACKWARD.must("all five for a batch of sentences (3-D)", 1.0)
def _(rng):
    yield gradients(backward_case(rng, (2, 3, 4), 5))


@BACKWARD.must("all five where d_model, d_ff and the number of tokens are equal", 0.75)
def _(rng):
    yield gradients(backward_case(rng, (4, 4), 4))


@BACKWARD.must("dx of a token depends on that token only", 0.5, view=View(first_row_of_first_part))
def _(rng):
    (dy, x, *network), more = backward_case(rng, (1, 3), 4).calls[0].args, rng.normal(size=(2, 2, 3))
    longer = Call((np.vstack([dy, more[0]]), np.vstack([x, more[1]]), *network))
    yield steps(Call((dy, x, *network)), longer)


@BACKWARD.must("arguments by name, and integers that work like floats", 0.25)
def _(rng):
    names = ("dy", "x", "W1", "b1", "W2", "b2")
    (call,) = backward_case(rng, (2, 3), 4, integers=True).calls
    yield gradients(ask(**dict(zip(names, call.args))))


@BACKWARD.must("leaves its inputs unchanged", 0.25, needs_values=True, view=View(with_inputs))
def _(rng):
    yield Question(backward_case(rng, (2, 3), 4).calls * 2, same_arrays=True)


def backward_slip(
    gate=lambda dh, pre, h: dh * (pre > 0),
    pre_of=lambda x, W1, b1: x @ W1 + b1,
    dx=lambda p: p["dpre"] @ p["W1"].T,
    dW1=lambda p: p["x2"].T @ p["dpre2"],
    db1=lambda p: p["dpre2"].sum(axis=0),
    dW2=lambda p: p["h2"].T @ p["dy2"],
    db2=lambda p: p["dy2"].sum(axis=0),
    kept=lambda *five: five,
):
    """A backward pass with some of its steps replaced; p holds all that was computed, "...2" with tokens on one axis."""

    def wrong(dy, x, W1, b1, W2, b2):
        pre = pre_of(x, W1, b1)
        h, dh = relu(pre), dy @ W2.T
        p = dict(dy=dy, x=x, W1=W1, b1=b1, W2=W2, pre=pre, h=h, dh=dh, dpre=gate(dh, pre, h))
        p |= {
            f"{name}2": p[name].reshape(-1, p[name].shape[-1])
            for name in ("dy", "x", "pre", "h", "dh", "dpre")
        }
        return kept(*(rule(p) for rule in (dx, dW1, db1, dW2, db2)))

    return wrong


def tokens_in(p):
    return len(p["dy2"])


BACKWARD.mistake(
    "gate-forgotten",
    "The ReLU is missing on the way back: the gradient passes silent units as well.",
    backward_slip(gate=lambda dh, pre, h: dh),
)
BACKWARD.mistake(
    "gate-from-gradient",
    "The gate looks at the sign of the gradient. It must be open where the unit fired on the way forward.",
    backward_slip(gate=lambda dh, pre, h: relu(dh)),
)
BACKWARD.mistake(
    "gate-from-both",
    "The gate asks for a firing unit and a positive gradient. A negative gradient passes a firing unit too.",
    backward_slip(gate=lambda dh, pre, h: relu(dh) * (pre > 0)),
)
BACKWARD.mistake(
    "times-hidden",
    "The gradient is multiplied by the hidden numbers. The gate is 0 or 1: the slope of the ReLU.",
    backward_slip(gate=lambda dh, pre, h: dh * h),
)
BACKWARD.mistake(
    "times-pre",
    "The gradient is multiplied by the pre-activation. The gate is 0 or 1: the slope of the ReLU.",
    backward_slip(gate=lambda dh, pre, h: dh * pre),
)
BACKWARD.mistake(
    "gate-turned",
    "The gate is the wrong way round: silent units let the gradient pass, firing ones stop it.",
    backward_slip(gate=lambda dh, pre, h: dh * (pre < 0)),
)
BACKWARD.mistake(
    "gate-by-sign",
    "The gate is the sign of the pre-activation, so silent units pass the gradient negatively. Below 0 the slope is 0.",
    backward_slip(gate=lambda dh, pre, h: dh * np.sign(pre)),
)
BACKWARD.mistake(
    "b1-forgotten",
    "The first bias is missing when the hidden layer is computed again, so the wrong units are open.",
    backward_slip(pre_of=lambda x, W1, b1: x @ W1),
)
BACKWARD.mistake(
    "dw2-from-pre",
    "dW2 uses the numbers before the ReLU. The second matrix was multiplied with those after it.",
    backward_slip(dW2=lambda p: p["pre2"].T @ p["dy2"]),
)
BACKWARD.mistake(
    "dw2-from-gate",
    "dW2 uses the gate (0 or 1) in place of the hidden numbers. Was the hidden array overwritten on the way?",
    backward_slip(dW2=lambda p: (p["pre2"] > 0).T @ p["dy2"]),
)
BACKWARD.mistake(
    "dw2-from-dpre",
    "dW2 uses the gradient of the hidden layer. It needs the hidden numbers themselves.",
    backward_slip(dW2=lambda p: p["dpre2"].T @ p["dy2"]),
)
BACKWARD.mistake(
    "dw1-ungated",
    "dW1 uses the gradient before the gate. A silent unit learns nothing from this token.",
    backward_slip(dW1=lambda p: p["x2"].T @ p["dh2"]),
)
BACKWARD.mistake(
    "db1-ungated",
    "db1 uses the gradient before the gate. A silent unit learns nothing from this token.",
    backward_slip(db1=lambda p: p["dh2"].sum(axis=0)),
)
BACKWARD.mistake(
    "weights-ungated",
    "dW1 and db1 use the gradient before the gate; dx has it right.",
    backward_slip(dW1=lambda p: p["x2"].T @ p["dh2"], db1=lambda p: p["dh2"].sum(axis=0)),
)
BACKWARD.mistake(
    "dx-ungated",
    "dx uses the gradient before the gate; the weights have it right.",
    backward_slip(dx=lambda p: p["dh"] @ p["W1"].T),
)
BACKWARD.mistake(
    "w1-not-turned",
    "dx uses W1 as it stands. On the way back each matrix is transposed.",
    backward_slip(dx=lambda p: p["dpre"] @ p["W1"]),
)


@BACKWARD.mistake(
    "w2-not-turned",
    "The gradient of the hidden layer uses W2 as it stands. On the way back each matrix is transposed.",
)
def _(dy, x, W1, b1, W2, b2):
    return ffn_backward_with(dy @ W2, dy, x, W1, b1)


def ffn_backward_with(dh, dy, x, W1, b1):
    """The backward pass from another gradient of the hidden layer."""
    pre = x @ W1 + b1
    dpre = dh * (pre > 0)
    x2, dy2 = (a.reshape(-1, a.shape[-1]) for a in (x, dy))
    h2, dpre2 = (a.reshape(-1, a.shape[-1]) for a in (relu(pre), dpre))
    return dpre @ W1.T, x2.T @ dpre2, dpre2.sum(axis=0), h2.T @ dy2, dy2.sum(axis=0)


@BACKWARD.mistake("no-matrix-turned", "Neither matrix is transposed on the way back.")
def _(dy, x, W1, b1, W2, b2):
    _, *others = ffn_backward_with(dy @ W2, dy, x, W1, b1)
    return ((dy @ W2) * (x @ W1 + b1 > 0)) @ W1, *others


BACKWARD.mistake(
    "weights-averaged",
    "The gradients of weights and biases are averages over the tokens. They are sums: each token adds its part.",
    backward_slip(
        dW1=lambda p: p["x2"].T @ p["dpre2"] / tokens_in(p),
        db1=lambda p: p["dpre2"].mean(axis=0),
        dW2=lambda p: p["h2"].T @ p["dy2"] / tokens_in(p),
        db2=lambda p: p["dy2"].mean(axis=0),
    ),
)
BACKWARD.mistake(
    "biases-averaged",
    "db1 and db2 are averages over the tokens. They are sums.",
    backward_slip(db1=lambda p: p["dpre2"].mean(axis=0), db2=lambda p: p["dy2"].mean(axis=0)),
)
BACKWARD.mistake(
    "biases-not-summed",
    "db1 and db2 still have one row per token. The same bias served every token, so the rows are summed.",
    backward_slip(db1=lambda p: p["dpre"], db2=lambda p: p["dy"]),
)
BACKWARD.mistake(
    "biases-over-axis-0",
    "db1 and db2 are summed over the first axis only. Every leading axis counts, also none.",
    backward_slip(db1=lambda p: p["dpre"].sum(axis=0), db2=lambda p: p["dy"].sum(axis=0)),
)
BACKWARD.mistake(
    "weights-per-sentence",
    "The gradients of the weights still have one matrix per sentence. All sentences share them, so they are summed.",
    backward_slip(
        dW1=lambda p: np.swapaxes(np.atleast_2d(p["x"]), -1, -2) @ np.atleast_2d(p["dpre"]),
        dW2=lambda p: np.swapaxes(np.atleast_2d(p["h"]), -1, -2) @ np.atleast_2d(p["dy"]),
    ),
)
BACKWARD.mistake(
    "dw1-turned",
    "dW1 is transposed: it must have the shape of W1.",
    backward_slip(dW1=lambda p: p["dpre2"].T @ p["x2"]),
)
BACKWARD.mistake(
    "dw2-turned",
    "dW2 is transposed: it must have the shape of W2.",
    backward_slip(dW2=lambda p: p["dy2"].T @ p["h2"]),
)
BACKWARD.mistake(
    "both-dw-turned",
    "dW1 and dW2 are transposed: each must have the shape of its matrix.",
    backward_slip(dW1=lambda p: p["dpre2"].T @ p["x2"], dW2=lambda p: p["dy2"].T @ p["h2"]),
)
BACKWARD.mistake(
    "db2-gated",
    "db2 is made from the hidden layer's side. b2 is added to the output: its gradient is dy, summed.",
    backward_slip(db2=lambda p: (p["dpre2"] @ p["W1"].T).sum(axis=0)),
)
BACKWARD.mistake(
    "residual-added",
    "dx holds dy as well, the way of the residual. It belongs to the block; here only the FFN is asked for.",
    backward_slip(dx=lambda p: p["dpre"] @ p["W1"].T + p["dy"]),
)
BACKWARD.mistake(
    "matrices-swapped",
    "dW1 and dW2 are swapped: dW1 belongs to the first matrix.",
    backward_slip(kept=lambda dx, dW1, db1, dW2, db2: (dx, dW2, db1, dW1, db2)),
)
BACKWARD.mistake(
    "biases-swapped",
    "db1 and db2 are swapped.",
    backward_slip(kept=lambda dx, dW1, db1, dW2, db2: (dx, dW1, db2, dW2, db1)),
)
BACKWARD.mistake(
    "layers-swapped",
    "The two layers are swapped in what you return: first dW1 and db1, then dW2 and db2.",
    backward_slip(kept=lambda dx, dW1, db1, dW2, db2: (dx, dW2, db2, dW1, db1)),
)
BACKWARD.mistake(
    "biases-last",
    "Both matrices come first, then both biases. The order asked for is dx, dW1, db1, dW2, db2.",
    backward_slip(kept=lambda dx, dW1, db1, dW2, db2: (dx, dW1, dW2, db1, db2)),
)
BACKWARD.mistake(
    "dx-last", "dx comes last. It is asked for first.", backward_slip(kept=lambda dx, *rest: (*rest, dx))
)
BACKWARD.mistake(
    "only-dx", "You return dx alone. Five arrays are asked for.", backward_slip(kept=lambda dx, *rest: dx)
)
BACKWARD.mistake(
    "dx-mixes-tokens",
    "dx of a token holds parts of the others. The FFN treats tokens one by one, and so does its gradient.",
    backward_slip(dx=lambda p: mean_over_tokens(p["dpre"] @ p["W1"].T)),
)


@BACKWARD.mistake("dy-ignored", "dy is ignored: these are the gradients for dy = 1 everywhere.")
def _(dy, x, W1, b1, W2, b2):
    return ffn_backward(np.ones_like(dy), x, W1, b1, W2, b2)


@BACKWARD.mistake(
    "two-dimensions-only",
    "It works for one sentence (seq, d_model) only. Flatten all leading axes into one axis of tokens.",
)
def _(dy, x, W1, b1, W2, b2):
    pre = x @ W1 + b1
    dpre = (dy @ W2.T) * (pre > 0)
    dW1, dW2 = np.einsum("td,tf->df", x, dpre), np.einsum("tf,td->fd", relu(pre), dy)
    return dpre @ W1.T, dW1, dpre.sum(axis=0), dW2, dy.sum(axis=0)


@BACKWARD.mistake(
    "transpose-of-a-batch",
    "x.T turns round every axis, so it fits one sentence (seq, d_model) only. Flatten all leading axes into one axis of tokens.",
)
def _(dy, x, W1, b1, W2, b2):
    pre = x @ W1 + b1
    dpre = (dy @ W2.T) * (pre > 0)
    dW1, dW2 = x.T @ dpre, relu(pre).T @ dy
    return dpre @ W1.T, dW1, dpre.sum(axis=0), dW2, dy.sum(axis=0)


@BACKWARD.mistake("changes-input", "dy is changed in place. Whoever passed it finds it changed.")
def _(dy, x, W1, b1, W2, b2):
    answer = ffn_backward(dy, x, W1, b1, W2, b2)
    dy *= 0
    return answer


BACKWARD.pair(
    "gate-forgotten",
    "dw2-from-pre",
    backward_slip(gate=lambda dh, pre, h: dh, dW2=lambda p: p["pre2"].T @ p["dy2"]),
)
BACKWARD.pair(
    "gate-forgotten",
    "biases-not-summed",
    backward_slip(gate=lambda dh, pre, h: dh, db1=lambda p: p["dpre"], db2=lambda p: p["dy"]),
)
BACKWARD.pair(
    "gate-forgotten", "b1-forgotten", backward_slip(lambda dh, pre, h: dh, lambda x, W1, b1: x @ W1)
)
BACKWARD.pair(
    "times-hidden",
    "dw2-from-pre",
    backward_slip(gate=lambda dh, pre, h: dh * h, dW2=lambda p: p["pre2"].T @ p["dy2"]),
)
BACKWARD.pair(
    "gate-from-gradient",
    "dw2-from-pre",
    backward_slip(gate=lambda dh, pre, h: relu(dh), dW2=lambda p: p["pre2"].T @ p["dy2"]),
)
BACKWARD.pair(
    "gate-forgotten",
    "both-dw-turned",
    backward_slip(
        gate=lambda dh, pre, h: dh, dW1=lambda p: p["dpre2"].T @ p["x2"], dW2=lambda p: p["dy2"].T @ p["h2"]
    ),
)
BACKWARD.pair(
    "dw2-from-pre",
    "biases-not-summed",
    backward_slip(dW2=lambda p: p["pre2"].T @ p["dy2"], db1=lambda p: p["dpre"], db2=lambda p: p["dy"]),
)


@BACKWARD.variant
def _(dy, x, W1, b1, W2, b2):
    d, f = W1.shape
    dx = np.zeros(np.shape(x))
    dW1, db1, dW2, db2 = np.zeros((d, f)), np.zeros(f), np.zeros((f, d)), np.zeros(d)
    for place in np.ndindex(*np.shape(x)[:-1]):
        token, g = x[place], dy[place]
        for unit in range(f):
            z = token @ W1[:, unit] + b1[unit]
            if z > 0:
                back = g @ W2[unit]
                dx[place] += back * W1[:, unit]
                dW1[:, unit] += back * token
                db1[unit] += back
                dW2[unit] += z * g
        db2 += g
    return dx, dW1, db1, dW2, db2


@BACKWARD.variant
def _(dy, x, W1, b1, W2, b2):
    pre = np.einsum("...d,df->...f", x, W1) + b1
    dpre = np.where(pre > 0, np.einsum("...d,fd->...f", dy, W2), 0.0)
    axes = tuple(range(dy.ndim - 1))
    flat = [a.reshape(-1, a.shape[-1]) for a in (x, dpre, np.maximum(pre, 0), dy)]
    return [
        np.einsum("...f,df->...d", dpre, W1),
        np.einsum("td,tf->df", flat[0], flat[1]),
        np.sum(dpre, axis=axes),
        np.einsum("tf,td->fd", flat[2], flat[3]),
        np.sum(dy, axis=axes),
    ]


@BACKWARD.variant
def _(dy, x, W1, b1, W2, b2):
    print("backward", dy.shape)
    np.log(np.zeros(2))
    h = np.maximum(x @ W1 + b1, 0)
    dpre = dy @ W2.T
    dpre[h == 0] = 0
    axes = list(range(x.ndim - 1))
    dW1 = np.tensordot(x, dpre, (axes, axes))
    dW2 = np.tensordot(h, dy, (axes, axes))
    ones = np.ones(x.shape[:-1])
    return dpre @ W1.T, dW1, np.tensordot(ones, dpre, (axes, axes)), dW2, np.tensordot(ones, dy, (axes, axes))
