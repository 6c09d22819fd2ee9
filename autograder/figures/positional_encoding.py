"""Numbers for the figures of lesson 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder.exercises.positional_encoding import (
    EXPONENTS,
    blurred,
    equivariance_gap,
    pe_dot,
    positional_encoding,
    rope,
    wavelengths,
)
from autograder.figures import figure_data, single


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def one_head(seed: int, d: int, causal: bool = False):
    """Self-attention with one head and random weights, for rows of width d."""
    rng = np.random.default_rng(seed)
    W_q, W_k, W_v = (rng.normal(size=(d, d)) for _ in range(3))

    def attention(x: np.ndarray) -> np.ndarray:
        scores = (x @ W_q) @ (x @ W_k).T / np.sqrt(d)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape, dtype=bool)), scores, -np.inf)
        return softmax_rows(scores) @ (x @ W_v)

    return attention


@figure_data
def bag_of_words() -> dict[str, Any]:
    """Outputs of one head, without positions, for three words and for the same words in reverse order."""
    x = np.random.default_rng(4).normal(size=(3, 4))
    attention = one_head(5, 4)
    return {"before": single(attention(x)), "after": single(attention(x[::-1]))}


@figure_data
def swap_test() -> dict[str, Any]:
    """The equivariance gap of five functions, for six tokens of width 8 and one shuffle."""
    rng = np.random.default_rng(6)
    x, perm = rng.normal(size=(6, 8)), np.array([2, 4, 1, 5, 0, 3])
    table, W = positional_encoding(6, 8), rng.normal(size=(8, 8))
    attention, masked = one_head(7, 8), one_head(7, 8, causal=True)
    functions = {
        "each row alone": lambda x: np.maximum(x @ W, 0),
        "attention": attention,
        "attention, positions added": lambda x: attention(x + table),
        "attention, causal mask": masked,
        "running sum": lambda x: x.cumsum(axis=0),
    }
    gaps = [equivariance_gap(f, x, perm) for f in functions.values()]
    return {"names": list(functions), "gaps": np.round(gaps, 9)}


@figure_data
def clock_hands() -> dict[str, Any]:
    """The 256 hands of d_model = 512 at four positions: how far right and how far up each points."""
    positions = np.array([0, 1, 10, 100])
    rows = positional_encoding(101, 512)[positions]
    return {"positions": positions, "right": single(rows[:, 0::2]), "up": single(rows[:, 1::2])}


@figure_data
def all_wavelengths() -> dict[str, Any]:
    return {"wavelength": single(wavelengths(512))}


@figure_data
def table_picture() -> dict[str, Any]:
    return {"table": single(positional_encoding(40, 32))}


@figure_data
def likeness() -> dict[str, Any]:
    """Dot product of two rows, as a share of its value at distance 0, near and far."""
    near, far = np.arange(-60, 61), np.arange(0, 20001, 40)
    share = {f"d{d}": single(pe_dot(near, d) / (d / 2)) for d in (8, 64, 512)}
    return {"near": near, "far": far, "far512": single(pe_dot(far, 512) / 256), **share}


@figure_data
def score_terms() -> dict[str, Any]:
    """The four parts of (word + place) W_Q W_K^T (word + place)^T, before the division by sqrt(d_model)."""
    rng = np.random.default_rng(8)
    n, d = 12, 16
    word, place = rng.normal(size=(n, d)), positional_encoding(n, d)
    W_q, W_k = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(2))
    parts = {
        f"{q}-{k}": single((a @ W_q) @ (b @ W_k).T)
        for q, a in (("word", word), ("place", place))
        for k, b in (("word", word), ("place", place))
    }
    return {**parts, "plain": single(place @ place.T)}


@figure_data
def added_or_turned() -> dict[str, Any]:
    """Scores of one word with itself at 12 places: places added before W_Q and W_K, and RoPE after them."""
    rng = np.random.default_rng(9)
    n, d = 12, 16
    word, place = np.tile(rng.normal(size=d), (n, 1)), positional_encoding(n, d)
    W_q, W_k = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(2))
    at = np.arange(n)
    added = ((word + place) @ W_q) @ ((word + place) @ W_k).T
    turned = rope(word @ W_q, at) @ rope(word @ W_k, at).T
    return {"added": single(added), "turned": single(turned)}


@figure_data
def four_tables() -> dict[str, Any]:
    """Four layouts in use, each right for the weights trained with it."""
    tables = layouts(40, 32)
    return {name: single(table) for name, table in tables.items()}


def layouts(n: int, d: int) -> dict[str, np.ndarray]:
    paper = positional_encoding(n, d)
    pos, i = np.arange(n)[:, None], np.arange(d // 2)
    other = pos * 10000.0 ** -np.array([EXPONENTS["tensor2tensor-exponent"][1](pair, d) for pair in i])
    return {
        "paper": paper,
        "marian": np.concatenate([paper[:, 0::2], paper[:, 1::2]], axis=1),
        "tensor2tensor": np.concatenate([np.sin(other), np.cos(other)], axis=1),
        "half_split": np.concatenate([paper[:, 1::2], paper[:, 0::2]], axis=1),
    }


@figure_data
def blurred_hands() -> dict[str, Any]:
    """Where four hands of one noisy row (d_model = 32, position 44) say that it can be, give or take 0.2 radians."""
    v = blurred(np.random.default_rng(10), 44).calls[0].args[0]
    hands = np.array([0, 2, 4, 6])
    angle, wavelength = np.arctan2(v[0::2], v[1::2])[hands], wavelengths(32)[hands]
    turns = np.arange(-1, 25)[:, None]
    centre = (angle / (2 * np.pi) + turns) * wavelength  # (turn, hand)
    half_width = 0.2 / (2 * np.pi) * wavelength
    return {"wavelength": wavelength, "begin": single(centre - half_width), "width": single(2 * half_width)}
