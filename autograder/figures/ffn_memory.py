"""Numbers for the figures of lesson 3."""

from __future__ import annotations

import math

import numpy as np

from autograder.exercises.ffn_memory import (
    MEMORIES,
    TINY,
    TINY_X,
    X_PRIME,
    collapse,
    count_parameters,
    empty_network,
    ffn,
    ffn_backward,
    recall,
    write_memory,
)
from autograder.exercises.layer_norm import layer_norm
from autograder.figures import figure_data
from course import worked_example

WIDTHS = ((8, 16), (9, 36), (4, 8), (512, 2048))


@figure_data
def hidden_matrix():
    """The hidden layer of 12 random tokens, 24 units, before and after the ReLU."""
    rng = np.random.default_rng(31)
    x = layer_norm(rng.normal(size=(12, 16)), np.ones(16), np.zeros(16))
    before = x @ rng.normal(size=(16, 24)) / 4
    return {"before": before.round(3), "after": np.maximum(before, 0).round(3), "silent": (before < 0).mean()}


@figure_data
def convex_hull():
    """Three value vectors, 150 averages of them with random weights, and a small random FFN (d_ff = 8) of each."""
    rng = np.random.default_rng(34)
    values = np.array([[-2.0, -1.0], [2.0, -0.5], [0.0, 2.0]])
    averages = rng.dirichlet([0.7, 0.7, 0.7], size=150) @ values
    W1, b1, W2, b2 = rng.normal(size=(2, 8)), rng.normal(size=8), rng.normal(size=(8, 2)), rng.normal(size=2)
    return {"values": values, "averages": averages.round(4), "after": ffn(averages, W1, b1, W2, b2).round(4)}


def attention_round(x, rng, heads=8):
    """One round of attention with fresh random weights N(0, 1/d): x (T, d) -> (T, d)."""
    tokens, d = x.shape
    q, k, v, out = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(4))

    def cut(a):
        return a.reshape(tokens, heads, d // heads).swapaxes(0, 1)

    scores = cut(x @ q) @ cut(x @ k).swapaxes(1, 2) / np.sqrt(d // heads)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ cut(x @ v)).swapaxes(0, 1).reshape(tokens, d) @ out


def difference_share(x):
    """Length of what differs between the tokens, as a share of everything: 0 where all tokens are alike."""
    return np.linalg.norm(x - x.mean(axis=0)) / np.linalg.norm(x)


@figure_data
def rank_collapse():
    """How much the tokens differ after each round: attention alone (3 rounds), and with residual and post-norm (12)."""
    rng = np.random.default_rng(33)
    start = layer_norm(rng.normal(size=(12, 64)), np.ones(64), np.zeros(64))
    alone, block = [start], [start]
    for _ in range(3):  # a fourth round would show rounding noise
        alone.append(attention_round(alone[-1], rng))
    for _ in range(12):
        block.append(layer_norm(block[-1] + attention_round(block[-1], rng), np.ones(64), np.zeros(64)))
    return {
        "alone": np.array([difference_share(x) for x in alone]),
        "with_skip_and_norm": np.array([difference_share(x) for x in block]),
    }


@figure_data
def block_shares():
    """Numbers in attention, FFN and norms for four pairs of widths, and the FFN's share of the arithmetic."""
    counts = [count_parameters(*pair) for pair in WIDTHS]
    d = 512
    seq = np.unique(np.geomspace(1, 65536, 60).round())
    return {
        "widths": np.array(WIDTHS),
        "counts": np.array([[c["attention"], c["ffn"], c["norms"]] for c in counts]),
        "seq": seq,
        "arithmetic": 8 * d**2 / (4 * d**2 + 2 * seq * d + 8 * d**2),
    }


@figure_data
def half_planes():
    """Where in the plane each memory of the tiny FFN fires: its coefficient on a grid of tokens (a, b)."""
    side = np.linspace(-4, 6, 101)
    a, b = np.meshgrid(side, side)
    W1, b1, W2, b2 = TINY
    coefficients, _ = recall(np.stack([a.ravel(), b.ravel()], axis=1), W1.T, b1, W2, b2)
    return {"side": side, "coefficients": coefficients.T.reshape(3, 101, 101).round(3)}


@figure_data
def recalled_arrows():
    """What each memory of the tiny FFN adds for the token (1, 2)."""
    W1, b1, W2, b2 = TINY
    coefficients, y = recall(TINY_X[None], W1.T, b1, W2, b2)
    return {"coefficients": coefficients[0], "added": coefficients[0][:, None] * W2, "y": y[0]}


def swish(z):
    return z / (1 + np.exp(-z))


def gelu(z):
    return z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


ACTIVATIONS = {"ReLU": lambda z: np.maximum(z, 0), "swish": swish, "GELU": gelu}


@figure_data
def silent_share():
    """Share of hidden numbers closer to 0 than 0.01, for random weights and for a memory written by hand.

    The tokens are layer-normed, d_model = 64. The memory holds 128 facts, keyed to random directions of
    length 1, threshold 4; every token is one of the keys at the length of a layer-normed token, 8.
    """
    rng = np.random.default_rng(34)
    d, tokens, facts = 64, 200, 128
    x = layer_norm(rng.normal(size=(tokens, d)), np.ones(d), np.zeros(d))
    random_pre = x @ rng.normal(size=(d, 256)) / np.sqrt(d)
    params, keys = stored_facts(rng, d, facts, threshold=4.0)
    written_pre = 8 * keys @ params[0] + params[1]
    shares = {
        name: [(abs(f(z)) < 0.01).mean() for z in (random_pre, written_pre)]
        for name, f in ACTIVATIONS.items()
    }
    return {"names": list(shares), "near_zero": np.array(list(shares.values())).round(4)}


@figure_data
def bent_line():
    """The first output of the tiny FFN along the tokens (s, 2), with its ReLU and without."""
    s = np.linspace(-3, 5, 81)
    tokens = np.stack([s, np.full_like(s, 2.0)], axis=1)
    W, b = collapse(*TINY)
    return {"s": s, "with_relu": ffn(tokens, *TINY)[:, 0], "without": (tokens @ W + b)[:, 0]}


@figure_data
def one_memory():
    """What a memory with threshold 2 adds against its match: one ReLU, two ReLUs, and a softmax against a rival."""
    z = np.linspace(0, 6, 61)
    written = write_memory(empty_network(1, np.zeros(1)), np.ones(1), 2.0, np.ones(1))
    return {
        "match": z,
        "one": np.maximum(z - 2, 0),
        "two": ffn(z[:, None], *written)[:, 0],
        "softmax": np.exp(z) / (np.exp(z) + np.exp(2.5)),
    }


def written_example(memories=MEMORIES):
    """The FFN of the worked example, written memory by memory."""
    params = empty_network(4, worked_example.B2)
    for key, threshold, value in memories:
        params = write_memory(params, key, threshold, value)
    return params


@figure_data
def four_memories():
    """For each memory of the worked example and each token: the match, the share of its value that is added."""
    keys = np.array([key for key, _, _ in MEMORIES])
    thresholds = np.array([threshold for _, threshold, _ in MEMORIES])
    matches = X_PRIME @ keys.T
    shares = np.clip(matches - thresholds, 0, 1)
    return {
        "x": X_PRIME,
        "matches": matches,
        "thresholds": thresholds,
        "shares": shares,
        "y": ffn(X_PRIME, *written_example()),
    }


@figure_data
def edited_fact():
    """How far the output of each token moves when 0.1 is added to every entry of one memory's value."""
    before = ffn(X_PRIME, *written_example())
    moved = []
    for edited in range(4):
        memories = [(k, t, v + 0.1 * (m == edited)) for m, (k, t, v) in enumerate(MEMORIES)]
        after = ffn(X_PRIME, *written_example(memories))
        moved.append(np.linalg.norm(after - before, axis=1))
    return {"moved": np.array(moved)}


def stored_facts(rng, d, facts, threshold):
    """An FFN with one written memory per fact, for random keys of length 1 and random values of length 1."""
    keys, values = rng.normal(size=(2, facts, d))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    params = empty_network(d, np.zeros(d))
    for key, value in zip(keys, values):
        params = write_memory(params, key, threshold, value)
    return params, keys


@figure_data
def overloaded():
    """Mean read-out error against the number of stored facts, d_model = 16, with ReLUs and without.

    A token is one of the keys at the length of a layer-normed token, 4; the threshold is 2. Without
    ReLUs the store is the matrix of all key-value products, read by the same match.
    """
    rng = np.random.default_rng(35)
    d, length = 16, 4.0
    counts = [2, 4, 8, 16, 32, 64, 128, 256, 512]
    with_relu, without = [], []
    for facts in counts:
        draws = [read_out_errors(rng, d, facts, length) for _ in range(max(6, 600 // facts))]
        errors = np.mean(draws, axis=0)
        with_relu.append(errors[0])
        without.append(errors[1])
    return {"facts": np.array(counts), "with_relu": np.round(with_relu, 4), "without": np.round(without, 4)}


def read_out_errors(rng, d, facts, length):
    """Mean length of (read - stored) over all facts, for the written memories and for the plain matrix."""
    params, keys = stored_facts(rng, d, facts, threshold=2.0)
    values = params[2][::2]
    read = ffn(length * keys, *params)
    plain = keys @ (keys.T @ values)
    return [np.linalg.norm(answer - values, axis=1).mean() for answer in (read, plain)]


@figure_data
def who_learns():
    """The gradient of W1 for one token: columns of silent units are zero."""
    rng = np.random.default_rng(37)
    d, f = 4, 10
    while True:
        x, dy = rng.normal(size=(2, 1, d))
        W1, b1, W2, b2 = (
            rng.normal(size=(d, f)),
            rng.normal(size=f),
            rng.normal(size=(f, d)),
            rng.normal(size=d),
        )
        pre = x @ W1 + b1
        _, dW1, *_ = ffn_backward(dy, x, W1, b1, W2, b2)
        learnt = np.linalg.norm(dW1, axis=0)[pre[0] > 0]
        if abs(pre).min() > 0.3 and len(learnt) == 3 and learnt.min() > 2 and abs(dW1).max() < 5:
            return {"pre": pre[0].round(3), "dW1": dW1.round(3)}
