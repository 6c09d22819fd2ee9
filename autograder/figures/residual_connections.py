"""Lesson 1: how gain changes with depth, shares of paths, blocks that start at zero, a training run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from autograder.exercises.layer_norm import layer_norm
from autograder.exercises.residual_connections import path_length_share, stack_backward
from autograder.figures import figure_data

D_MODEL, TOKENS, HEADS, D_FF = 64, 12, 8, 256
BLOCKS = 24
SEEDS = range(5)
PROBES = 8
KINDS = ("plain", "plain_norm", "residual", "post_norm", "pre_norm")
Tangent = tuple[np.ndarray, np.ndarray]  # the stream (T, d) and small changes of it (probes, T, d)


def rounded(values: np.ndarray) -> np.ndarray:
    """Four significant digits: what a figure shows, and the same on every machine."""
    return np.array([float(f"{value:.4g}") for value in np.ravel(values)]).reshape(np.shape(values))


# ---------------------------------------------------------------- sub-layers and how they pass on small changes


def norm(stream: Tangent) -> Tangent:
    """Layer norm with gamma = 1, beta = 0, and its Jacobian applied to the changes."""
    x, dx = stream
    ones, zeros = np.ones(x.shape[-1]), np.zeros(x.shape[-1])
    y = layer_norm(x, ones, zeros)
    sigma = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    centred = dx - dx.mean(axis=-1, keepdims=True)
    return y, (centred - y * (y * dx).mean(axis=-1, keepdims=True)) / sigma


def attention(rng: np.random.Generator) -> Callable[[Tangent], Tangent]:
    """Self-attention with random weights."""
    W_q, W_k, W_v, W_o = (weights(rng, D_MODEL, D_MODEL) for _ in range(4))
    d_k = D_MODEL // HEADS

    def heads(x: np.ndarray) -> np.ndarray:
        return np.swapaxes(x.reshape(*x.shape[:-1], HEADS, d_k), -3, -2)  # (..., heads, T, d_k)

    def merged(x: np.ndarray) -> np.ndarray:
        return np.swapaxes(x, -3, -2).reshape(*x.shape[:-3], TOKENS, D_MODEL)

    def apply(stream: Tangent) -> Tangent:
        x, dx = stream
        q, k, v = (heads(x @ W) for W in (W_q, W_k, W_v))
        dq, dk, dv = (heads(dx @ W) for W in (W_q, W_k, W_v))
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(d_k)
        dscores = (dq @ np.swapaxes(k, -1, -2) + q @ np.swapaxes(dk, -1, -2)) / np.sqrt(d_k)
        A = np.exp(scores - scores.max(axis=-1, keepdims=True))
        A = A / A.sum(axis=-1, keepdims=True)
        dA = A * (dscores - (A * dscores).sum(axis=-1, keepdims=True))
        return merged(A @ v) @ W_o, merged(dA @ v + A @ dv) @ W_o

    return apply


def feed_forward(rng: np.random.Generator) -> Callable[[Tangent], Tangent]:
    """The FFN with random weights and no biases."""
    W1, W2 = weights(rng, D_MODEL, D_FF), weights(rng, D_FF, D_MODEL)

    def apply(stream: Tangent) -> Tangent:
        x, dx = stream
        z = x @ W1
        return np.maximum(z, 0) @ W2, ((dx @ W1) * (z > 0)) @ W2

    return apply


def weights(rng: np.random.Generator, fan_in: int, fan_out: int) -> np.ndarray:
    return rng.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)


def plus(a: Tangent, b: Tangent, scale: float = 1.0) -> Tangent:
    return a[0] + scale * b[0], a[1] + scale * b[1]


def step(kind: str, f: Callable[[Tangent], Tangent], stream: Tangent, scale: float = 1.0) -> Tangent:
    """One sub-layer in one of the five kinds of stack; scale weakens its branch."""
    if kind == "plain":
        return f(stream)
    if kind == "plain_norm":
        return norm(f(stream))
    if kind == "residual":
        return plus(stream, f(stream), scale)
    if kind == "post_norm":
        return norm(plus(stream, f(stream), scale))
    return plus(stream, f(norm(stream)), scale)


def begin(rng: np.random.Generator) -> Tangent:
    """A layer-normed normal input, and random directions in which it is changed."""
    x = rng.normal(size=(TOKENS, D_MODEL))
    return norm((x, rng.normal(size=(PROBES, TOKENS, D_MODEL))))[0], rng.normal(
        size=(PROBES, TOKENS, D_MODEL)
    )


def gain(changes: np.ndarray, start: np.ndarray) -> float:
    """How much longer small changes have become: the Jacobian's size per input number."""
    return np.sqrt((changes**2).sum() / (start**2).sum())


# ---------------------------------------------------------------- the figures


@figure_data
def depth_gain() -> dict:
    """Gain of random stacks after 0 to 24 blocks, for five kinds, and of post-norm's straight path alone.

    Geometric means over five seeds. The pre-norm stack is read through its final norm, as it is in use.
    """
    gains = {kind: np.ones((len(SEEDS), BLOCKS + 1)) for kind in (*KINDS, "post_norm_straight_path")}
    size = {kind: np.ones((len(SEEDS), BLOCKS + 1)) for kind in ("post_norm", "pre_norm")}
    for i, seed in enumerate(SEEDS):
        for kind in KINDS:
            rng = np.random.default_rng([seed, KINDS.index(kind)])
            stream = begin(rng)
            start = straight = stream[1]
            for block in range(1, BLOCKS + 1):
                for f in (attention(rng), feed_forward(rng)):
                    added = plus(stream, f(stream)) if kind == "post_norm" else stream
                    straight = norm((added[0], straight))[1]
                    stream = step(kind, f, stream)
                read = norm(stream) if kind == "pre_norm" else stream
                gains[kind][i, block] = gain(read[1], start)
                if kind == "post_norm":
                    gains["post_norm_straight_path"][i, block] = gain(straight, start)
                if kind in size:
                    size[kind][i, block] = np.sqrt((stream[0] ** 2).mean())
    means = {kind: rounded(np.exp(np.log(values).mean(axis=0))) for kind, values in gains.items()}
    sizes = {f"{kind}_size": rounded(values.mean(axis=0)) for kind, values in size.items()}
    return {"blocks": np.arange(BLOCKS + 1), **means, **sizes}


@figure_data
def small_branches() -> dict:
    """How far a stack moves its input when every branch is multiplied by a number: relative change by depth.

    Rows are the scales. A post-norm stack is compared with its input too, which is already normalised but
    stretched by two here, so that LayerNorm(x) differs from x.
    """
    scales = (0.0, 0.1, 1.0)
    changes = {kind: np.zeros((len(scales), BLOCKS + 1)) for kind in ("post_norm", "pre_norm")}
    for kind, row in changes.items():
        for i, scale in enumerate(scales):
            rng = np.random.default_rng(3)
            x, dx = begin(rng)
            stream = first = (2 * x, dx)
            for block in range(1, BLOCKS + 1):
                for f in (attention(rng), feed_forward(rng)):
                    stream = step(kind, f, stream, scale)
                row[i, block] = np.linalg.norm(stream[0] - first[0]) / np.linalg.norm(first[0])
    return {"blocks": np.arange(BLOCKS + 1), "scales": np.array(scales)} | {
        k: rounded(v) for k, v in changes.items()
    }


@figure_data
def path_lengths() -> dict:
    """Shares of the paths of each length in 54 residual blocks, one row for each gain."""
    gains = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    return {"gains": np.array(gains), "shares": rounded(np.array([path_length_share(54, r) for r in gains]))}


TRAINED_LAYERS = (2, 4, 8, 16, 32)
STEPS, RATE = 300, 0.003


@figure_data
def training_run() -> dict:
    """Loss of plain and residual stacks that learn the parity of four signs, every fifth step."""
    losses = {
        name: np.array([train(n, residual)[::5] for n in TRAINED_LAYERS])
        for name, residual in (("plain", False), ("residual", True))
    }
    return {"layers": np.array(TRAINED_LAYERS), "steps": np.arange(0, STEPS, 5)} | {
        name: rounded(np.maximum(values, 1e-6)) for name, values in losses.items()
    }


def train(n: int, residual: bool, d: int = 16, seed: int = 0) -> np.ndarray:
    """Train a stack on the parity of four signs by Adam; the mean squared error before each step.

    The weights are drawn small, so that a plain layer about halves what goes through it.
    """
    rng = np.random.default_rng(seed)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    x = np.zeros((16, d))
    x[:, :4], x[:, 4] = signs, 1.0
    target = signs.prod(axis=1)
    params = [rng.normal(size=(d, d)) / (2 * np.sqrt(d)) for _ in range(n)] + [
        rng.normal(size=d) / np.sqrt(d)
    ]
    first, second = [[np.zeros_like(p) for p in params] for _ in range(2)]
    losses = []
    for t in range(1, STEPS + 1):
        *Ws, readout = params
        y = x
        for W in Ws:
            y = np.tanh(y @ W) + (y if residual else 0)
        error = y @ readout - target
        losses.append((error**2).mean())
        slope = 2 * error / len(error)
        _, dWs = stack_backward(x, Ws, np.outer(slope, readout), residual)
        for i, gradient in enumerate([*dWs, y.T @ slope]):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            size = np.sqrt(second[i] / (1 - 0.999**t)) + 1e-8
            params[i] = params[i] - RATE * first[i] / (1 - 0.9**t) / size
    return np.array(losses)
