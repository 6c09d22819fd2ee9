"""The worked example on one page: its weights and every matrix, with names and shapes, as text and as a figure.

The matrices come from `data("worked_trace")`; this module only lays them out.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.worked_example import WEIGHTS_H

# symbol -> what it is, in the order of computation
STEPS = {
    "X": "the two tokens",
    "Q": "queries, X W_q",
    "K": "keys, X W_k",
    "V": "values, X W_v",
    "S": "scores, Q K^T / sqrt(4)",
    "A": "shares, softmax of S",
    "A V": "mixtures of values",
    "MHA(X)": "attention, A V W_o",
    "X + MHA(X)": "sum 1",
    "mu_1": "means of sum 1",
    "sigma_1": "deviations of sum 1",
    "X'": "norm 1 of sum 1",
    "X' W1 + b1": "before the ReLU",
    "ReLU(X' W1 + b1)": "hidden units",
    "FFN(X')": "hidden units times W2, plus b2",
    "X' + FFN(X')": "sum 2",
    "mu_2": "means of sum 2",
    "sigma_2": "deviations of sum 2",
    "output": "norm 2 of sum 2",
}
# a weight -> the decimals that show it without loss (ln 3 excepted)
_DECIMALS = {"W_q": 0, "W_k": 4, "W_v": 0, "W_o": 1, "W1": 0, "W2": 2, "b1": 1, "b2": 2}
_PAGE = 100  # characters in a line


def weights() -> dict[str, np.ndarray]:
    """The weights H by their names, the norms' excepted: gamma is 1 and beta is 0 in both."""
    names = ("W_q", "W_k", "W_v", "W_o", "W1", "b1", "W2", "b2")
    return dict(zip(names, WEIGHTS_H))


def as_text(trace: dict[str, np.ndarray]) -> str:
    """The weights and every matrix of the trace as text for one page, with names and shapes."""
    head = "Worked example, post-norm: d_model = 4, one head, d_ff = 8, eps = 1e-5, gamma = 1, beta = 0"
    blocks = [_block(name, weights()[name], decimals) for name, decimals in _DECIMALS.items()]
    blocks += [_block(symbol, trace[symbol], 6, words) for symbol, words in STEPS.items()]
    return "\n".join([head, *_packed(blocks)])


def _block(name: str, matrix: np.ndarray, decimals: int, words: str = "") -> list[str]:
    """A name, a shape, what it is, and the rows."""
    cells = [[f"{value:.{decimals}f}" for value in row] for row in np.atleast_2d(matrix)]
    width = max(len(cell) for row in cells for cell in row)
    rows = [" " + "  ".join(cell.rjust(width) for cell in row) for row in cells]
    return [f"{name} {matrix.shape}{': ' + words if words else ''}", *rows]


def _packed(blocks: list[list[str]]) -> list[str]:
    """Blocks side by side, as many as fit into a line of the page, in reading order."""
    lines: list[str] = []
    shelf: list[list[str]] = []
    for block in [*blocks, None]:
        if shelf and (block is None or sum(_width(b) + 4 for b in [*shelf, block]) > _PAGE + 4):
            lines += ["", *_side_by_side(shelf)]
            shelf = []
        if block is not None:
            shelf.append(block)
    return lines


def _width(block: list[str]) -> int:
    return max(map(len, block))


def _side_by_side(blocks: list[list[str]]) -> list[str]:
    height = max(map(len, blocks))
    columns = [
        [line.ljust(_width(block)) for line in block + [""] * (height - len(block))] for block in blocks
    ]
    return ["    ".join(line).rstrip() for line in zip(*columns)]


def as_figure(trace: dict[str, np.ndarray]) -> Figure:
    """Every matrix of the trace as a table of coloured cells, with names and shapes, for one page."""
    rows = [
        ["X", "Q", "K", "V"],
        ["S", "A", "A V", "MHA(X)"],
        ["X + MHA(X)", "mu_1", "sigma_1", "X'"],
        ["X' W1 + b1", "ReLU(X' W1 + b1)"],
        ["FFN(X')", "X' + FFN(X')", "mu_2", "sigma_2", "output"],
    ]
    fig = plt.figure(figsize=(11.5, 7.5))
    for panel, symbols in zip(fig.subfigures(len(rows), 1), rows):
        widths = [max(trace[symbol].shape[1], 3) for symbol in symbols]
        missing = 18 - sum(widths)
        axes = panel.subplots(
            1, len(symbols) + (missing > 0), width_ratios=widths + [missing] * (missing > 0), squeeze=False
        )[0]
        for ax, symbol in zip(axes, symbols):
            _draw(ax, symbol, trace[symbol])
        for ax in axes[len(symbols) :]:
            ax.axis("off")
    return fig


def _draw(ax: Axes, symbol: str, matrix: np.ndarray) -> None:
    ax.imshow(matrix, cmap="PuOr", vmin=-3, vmax=3, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        ax.text(
            column,
            row,
            f"{value:.4f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if abs(value) > 2 else "black",
        )
    ax.set_title(f"{symbol}  {matrix.shape}\n{STEPS[symbol]}", fontsize=8.5)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
