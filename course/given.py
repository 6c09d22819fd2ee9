"""Small public functions that exercises hand to a student's function.

Each takes its parameters and returns the function: given.linear(W)(x) is x @ W.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np


def linear(W: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> x @ W, for rows x of shape (..., d)."""
    return lambda x: np.asarray(x) @ W


def constant(change: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map that returns the same array whatever it is given."""
    return lambda x: np.array(change)


# ---------------------------------------------------------------- lesson 1: branches and their pullbacks


def itself() -> Callable[[np.ndarray], np.ndarray]:
    """The map that hands back its argument: the very array, not a copy."""
    return lambda x: x


def first_entries(count: int) -> Callable[[np.ndarray], np.ndarray]:
    """The map that hands back the first entries of one vector, as a view of it."""
    return lambda x: x[:count]


def in_turns(changes: list[np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A map that answers every call differently, as dropout does: the arrays of the list, in turn."""
    turns = itertools.cycle(changes)
    return lambda x: np.array(next(turns))


def squashed(W: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> tanh(x W + b), for rows x of shape (..., n)."""
    return lambda x: np.tanh(np.asarray(x) @ W + b)


def squares(W: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> x^2 W, for rows x of shape (..., n)."""
    return lambda x: np.asarray(x) ** 2 @ W


def cubes() -> Callable[[np.ndarray], np.ndarray]:
    """The map that takes every entry to its third power."""
    return lambda x: np.asarray(x) ** 3


def tiny_ffn(skip: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """The course's smallest feed-forward network, two numbers in and two out, plus `skip` times its input."""

    def network(x: np.ndarray) -> np.ndarray:
        a, b = np.asarray(x, dtype=float)
        shared = max(b - a, 0.0)
        return np.array([max(a, 0.0) + shared + skip * a, max(b - 3.0, 0.0) + shared + skip * b])

    return network


def pulls_back(J: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(x, g) -> J^T g: the backward pass of a branch whose Jacobian is J everywhere."""
    return lambda x, g: np.asarray(J).T @ g


def squares_pull_back(W: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(x, g) -> J(x)^T g for the branch x^2 W, whose Jacobian depends on x."""
    return lambda x, g: 2 * np.asarray(x) * (np.asarray(W) @ g)


def gradient_itself() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(x, g) -> g: the very array that came in, as the backward pass of the branch f(x) = x may return it."""
    return lambda x, g: g


def plain_layer_norm(layer_norm: Callable) -> Callable[[np.ndarray], np.ndarray]:
    """A layer norm of one argument, from one that takes gamma and beta: they are 1 and 0."""
    return lambda x: layer_norm(x, np.ones(np.shape(x)[-1]), np.zeros(np.shape(x)[-1]))


def training_batch_norm(batch_norm: Callable) -> Callable[[np.ndarray], np.ndarray]:
    """A batch norm of one argument as it works in training: gamma is 1, beta is 0, the running values are dropped."""

    def norm(x: np.ndarray) -> np.ndarray:
        ones, zeros = np.ones(np.shape(x)[-1]), np.zeros(np.shape(x)[-1])
        return batch_norm(x, ones, zeros, zeros, ones, True)[0]

    return norm


# ---------------------------------------------------------------- lesson 4: does the order of the rows matter?


def running_sum() -> Callable[[np.ndarray], np.ndarray]:
    """The map whose row t is the sum of the rows 0 to t."""
    return lambda X: np.cumsum(X, axis=0)


def mixing(M: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map X -> M @ X: every row of the result is a fixed mixture of the rows of X."""
    return lambda X: M @ np.asarray(X)


def mean_of_rows() -> Callable[[np.ndarray], np.ndarray]:
    """The map whose every row is the mean of all rows."""
    return lambda X: np.zeros(np.shape(X)) + np.mean(X, axis=0)


def plus_table(table_of: Callable[[int, int], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The map that adds a table of places to its rows: X + table_of(seq, width)."""
    return lambda X: X + table_of(*np.shape(X))


def constant_pull_back(back: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(x, g) -> the same array, whatever came in."""
    return lambda x, g: np.array(back)


# ---------------------------------------------------------------- lesson 5: a block as a function of x alone


def block(function: Callable, params: tuple, num_heads: int) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> function(x, W_q, ..., beta2, num_heads): a block whose weights are fixed."""
    return lambda x: function(np.asarray(x), *params, num_heads)
