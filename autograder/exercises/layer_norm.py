"""Lesson 2: layer norm vs batch norm."""

from __future__ import annotations

import numpy as np

from autograder.exercise import Exercise, ask

LAYER_NORM = Exercise(
    number="2.1",
    title="One token, its own statistics",
    level="easy",
    difficulty=1,
    minutes=8,
    core=True,
    why="Every sub-layer of the encoder ends in this function.",
    budget="Four lines are enough.",
    hints=(
        "Over which axis do the numbers of one token lie?",
        "x is (..., d_model); mean and variance are (..., 1); the result is (..., d_model).",
        "mean and variance of the last axis, kept as an axis; subtract; divide by the root of variance plus eps; scale; shift",
    ),
)


@LAYER_NORM.reference
def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Normalise every token by its own mean and variance, then scale and shift.

    x : (..., d_model)   gamma, beta : (d_model,)   returns : (..., d_model)

    >>> layer_norm(np.array([2.0, 0.0, -1.0, 3.0]), np.ones(4), np.zeros(4), eps=0.0).round(3)
    array([ 0.632, -0.632, -1.265,  1.265])
    """
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + eps) + beta


@LAYER_NORM.worked("the row (2, 0, -1, 3)", 0.25, decimals=3)
def _():
    yield ask(np.array([2.0, 0.0, -1.0, 3.0]), np.ones(4), np.zeros(4), eps=0.0)


@LAYER_NORM.must("right values for one token and for batches", 1.0)
def shapes(rng):
    for shape in [(3,), (2, 5), (2, 3, 4), (2, 2, 3, 5), (4, 4)]:
        d = shape[-1]
        yield ask(rng.normal(size=shape), rng.normal(size=d), rng.normal(size=d))


@LAYER_NORM.must("another eps counts", 0.5)
def other_eps(rng):
    yield ask(rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=3), eps=1e-2)


LAYER_NORM.leaves_inputs_alone(0.25, shapes)


@LAYER_NORM.mistake("variance-d-1", "The variance divides by d - 1.")
def _(x, gamma, beta, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True, ddof=1) + eps) + beta


@LAYER_NORM.mistake("changes-input", "You subtract the mean inside the input.")
def _(x, gamma, beta, eps=1e-5):
    x -= x.mean(axis=-1, keepdims=True)
    return gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) + beta


@LAYER_NORM.variant
def _(x, gamma, beta, eps=1e-5):
    print("hello")
    m, v = np.mean(x, -1), np.var(x, -1)
    return (x - m[..., None]) / np.sqrt(v[..., None] + eps) * gamma + beta
