"""Small public functions that exercises hand to a student's function.

Each takes its parameters and returns the function: given.linear(W)(x) is x @ W.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def linear(W: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> x @ W, for rows x of shape (..., d)."""
    return lambda x: np.asarray(x) @ W


def constant(change: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map that returns the same array whatever it is given."""
    return lambda x: np.array(change)
