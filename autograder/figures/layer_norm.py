"""Numbers for the figures of lesson 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder.exercises.layer_norm import PUBLISHED, batch_norm, layer_norm, layer_norm_jacobian, sharpen
from autograder.figures import figure_data

ROW = np.array([2.0, 0.0, -1.0, 3.0])
ATTENTION_ROW = np.array([0.6, 0.18, 0.12, 0.06, 0.04])


def _plain(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Layer norm with gamma = 1, beta = 0."""
    d = x.shape[-1]
    return layer_norm(x, np.ones(d), np.zeros(d), eps)


def _plain_batch_norm(x: np.ndarray) -> np.ndarray:
    """Batch norm in training, with gamma = 1, beta = 0."""
    d = x.shape[-1]
    return batch_norm(x, np.ones(d), np.zeros(d), np.zeros(d), np.ones(d), True)[0]


@figure_data
def number_line() -> dict[str, Any]:
    """A row, its normalised form, and the same with one feature's gamma at 0.2."""
    gamma = np.array([1.0, 1.0, 1.0, 0.2])
    normalised = _plain(ROW, 0.0)
    return {"row": ROW, "normalised": normalised, "gamma": gamma, "scaled": gamma * normalised}


@figure_data
def running_mean() -> dict[str, Any]:
    """Means of one feature over 60 training batches of 8 rows, and the running mean that follows them."""
    rng = np.random.default_rng(22)
    running, batch_means, running_means = np.zeros(1), [], []
    for _ in range(60):
        x = rng.normal(3.0, 2.0, size=(8, 1))
        running = batch_norm(x, np.ones(1), np.zeros(1), running, np.ones(1), True)[1]
        batch_means.append(x.mean())
        running_means.append(running[0])
    return {"true": 3.0, "batch": np.array(batch_means), "running": np.array(running_means)}


@figure_data
def batch_size_gap() -> dict[str, Any]:
    """How far the same row's output in training is from its output in use, by batch size."""
    rng = np.random.default_rng(23)
    sizes = 2 ** np.arange(9)
    gaps = []
    for size in sizes:
        x = rng.normal(size=(size, 20_000))  # 20,000 features with true mean 0 and variance 1
        in_use = x / np.sqrt(1 + 1e-5)
        gaps.append(np.sqrt(((_plain_batch_norm(x) - in_use) ** 2).mean()))
    return {"size": sizes, "gap": np.array(gaps)}


@figure_data
def padding_drift() -> dict[str, Any]:
    """The mean of one feature over the same 64 real tokens while more and more zeros stand beside them."""
    rng = np.random.default_rng(24)
    real = rng.normal(2.0, 1.0, size=64)
    real += 2.0 - real.mean()  # so that the figure starts at 2
    share = np.arange(0.0, 0.91, 0.1)
    return {"share": share, "counted": real.mean() * (1 - share), "masked": np.full(len(share), real.mean())}


@figure_data
def norm_singular_values() -> dict[str, Any]:
    """Singular values of the Jacobians of layer norm and RMSNorm at the row (2, 0, -1, 3), eps = 0."""
    rms = np.sqrt((ROW**2).mean())
    rms_jacobian = (np.eye(4) - np.outer(ROW, ROW) / (4 * rms**2)) / rms
    return {
        "layer_norm": _singular_values(layer_norm_jacobian(ROW, 0.0)),
        "rms_norm": _singular_values(rms_jacobian),
    }


def _singular_values(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix, compute_uv=False).round(9)


@figure_data
def leak_maps() -> dict[str, Any]:
    """Largest change of every token when sentence 2 of 4 is replaced, for layer norm and batch norm."""
    rng = np.random.default_rng(25)
    before = rng.normal(size=(4, 6, 8))
    after = before.copy()
    after[1] = rng.normal(1.5, 2.0, size=(6, 8))
    norms = {"layer_norm": _plain, "batch_norm": _plain_batch_norm}
    return {name: np.abs(norm(after) - norm(before)).max(axis=-1) for name, norm in norms.items()}


# ---------------------------------------------------------------- stacks of blocks with random weights

D_MODEL, D_FF, HEADS, TOKENS, BLOCKS = 64, 256, 8, 12, 24


def _block_weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One block's weights, each entry of variance 1 / fan-in."""
    shapes = {name: (D_MODEL, D_MODEL) for name in ("q", "k", "v", "o")}
    shapes |= {"up": (D_MODEL, D_FF), "down": (D_FF, D_MODEL)}
    return {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}


def _attention(x: np.ndarray, w: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """Self-attention's output and the mean entropy of its weights, in nats."""

    def heads(name: str) -> np.ndarray:
        return (x @ w[name]).reshape(TOKENS, HEADS, -1).swapaxes(0, 1)

    q, k, v = heads("q"), heads("k"), heads("v")
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=-1).mean()
    return (weights @ v).swapaxes(0, 1).reshape(TOKENS, D_MODEL) @ w["o"], entropy


def _ffn(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum(x @ w["up"], 0) @ w["down"]


def _stack(kind: str, x: np.ndarray, blocks: list[dict], norm=_plain) -> tuple[list, list, list]:
    """The streams after every block, their root mean squares, and every block's attention entropy.

    kind : "no norm", "pre-norm" (x + f(norm(x))) or "post-norm" (norm(x + f(x))).
    """
    before = norm if kind == "pre-norm" else lambda x: x
    after = norm if kind == "post-norm" else lambda x: x
    streams, sizes, entropies = [x], [np.sqrt((x**2).mean())], []
    for w in blocks:
        change, entropy = _attention(before(x), w)
        x = after(x + change)
        x = after(x + _ffn(before(x), w))
        streams.append(x)
        sizes.append(np.sqrt((x**2).mean()))
        entropies.append(entropy)
    return streams, sizes, entropies


@figure_data
def stream_growth() -> dict[str, Any]:
    """Size of the stream and entropy of attention against depth, in three stacks with the same random weights."""
    rng = np.random.default_rng(26)
    x = _plain(rng.normal(size=(TOKENS, D_MODEL)))
    blocks = [_block_weights(rng) for _ in range(BLOCKS)]
    result: dict[str, Any] = {"even": np.log(TOKENS)}
    for kind in ("no norm", "pre-norm", "post-norm"):
        _, sizes, entropies = _stack(kind, x, blocks)
        result[f"{kind}: size"], result[f"{kind}: entropy"] = _short(sizes), _short(entropies)
    return result


def _short(values: list[float]) -> np.ndarray:
    """Four digits of each: a stack amplifies what processors round differently, and a figure shows no more."""
    return np.array([float(f"{value:.4g}") if value > 1e-6 else 0.0 for value in values])


@figure_data
def sharpened_row() -> dict[str, Any]:
    """The five weights of the lesson's row as all scores are multiplied by f."""
    f = np.round(np.arange(0.0, 6.01, 0.1), 1)
    return {"f": f, "weights": np.array([sharpen(ATTENTION_ROW, factor) for factor in f])}


@figure_data
def backward_terms() -> dict[str, Any]:
    """dx at (2, 0, -1, 3) for dy = (1, 0, 0, 0), built up term by term (gamma = 1, eps = 0)."""
    g, xhat, sigma = np.eye(4)[0], _plain(ROW, 0.0), ROW.std()
    without_mean = g - g.mean()
    without_both = without_mean - xhat * (g * xhat).mean()
    return {"g": g, "without_mean": without_mean, "without_both": without_both, "dx": without_both / sigma}


@figure_data
def printed_rows() -> dict[str, Any]:
    """Mean and variance of the four published rows, and how far the rounding to two places can move them."""
    rows, half = np.array(PUBLISHED), 0.005
    centred = np.abs(rows - rows.mean(axis=1, keepdims=True))
    return {
        "mean": rows.mean(axis=1).round(6),
        "variance": rows.var(axis=1),
        "mean_reach": half,
        "variance_reach": 2 * half * centred.mean(axis=1) + half**2,
    }


@figure_data
def d_minus_1_error() -> dict[str, Any]:
    """What dividing by d - 1 costs: by width, and by depth in a post-norm stack."""
    widths = 2 ** np.arange(1, 11)

    def wrong(x: np.ndarray) -> np.ndarray:
        right, unbiased = (x.var(axis=-1, keepdims=True, ddof=ddof) + 1e-5 for ddof in (0, 1))
        return _plain(x) * np.sqrt(right / unbiased)

    rng = np.random.default_rng(27)
    x = _plain(rng.normal(size=(TOKENS, D_MODEL)))
    blocks = [_block_weights(rng) for _ in range(BLOCKS)]
    right, off = _stack("post-norm", x, blocks)[0], _stack("post-norm", x, blocks, wrong)[0]
    error = [np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in zip(right, off)]
    return {"width": widths, "by_width": 1 - np.sqrt((widths - 1) / widths), "by_depth": _short(error[1:])}
