"""Drawings of the encoder block: where the stream runs, where the branches leave and come back, where the norms stand."""

from __future__ import annotations

from matplotlib.axes import Axes

from course import figures

_ON_STREAM, _ON_BRANCH = 1.0, 0.0


def draw_block(ax: Axes, order: str) -> None:
    """Draw one block from left to right: order is "post" or "pre"."""
    ax.plot([0, 12], [_ON_STREAM] * 2, color=figures.BLUE, lw=3, zorder=1)
    ax.annotate(
        "",
        (12.6, _ON_STREAM),
        (11.9, _ON_STREAM),
        arrowprops={"arrowstyle": "-|>", "color": figures.BLUE, "lw": 2.5},
    )
    ax.text(-0.2, _ON_STREAM, "x", ha="right", va="center", style="italic")
    ax.text(12.7, _ON_STREAM, "output", ha="left", va="center")
    for start, number, work in ((0.6, 1, "attention"), (6.4, 2, "FFN")):
        plus = start + 3.7
        boxes = [(start + 1.8, work, figures.ORANGE)]
        if order == "pre":
            boxes = [(start + 1.0, f"norm {number}", figures.SKY), (start + 2.6, work, figures.ORANGE)]
        path = [(start, _ON_STREAM), (start, _ON_BRANCH), (plus, _ON_BRANCH), (plus, _ON_STREAM)]
        ax.plot(*zip(*path), color=figures.BLACK, lw=1.3, zorder=1)
        for centre, words, colour in boxes:
            _box(ax, centre, _ON_BRANCH, words, colour)
        ax.plot(plus, _ON_STREAM, "o", ms=17, mfc="white", mec=figures.BLACK, zorder=2)
        ax.text(plus, _ON_STREAM, "+", ha="center", va="center", zorder=3)
        if order == "post":
            _box(ax, plus + 1.25, _ON_STREAM, f"norm {number}", figures.SKY)
    ax.set(xlim=(-0.8, 14.2), ylim=(-0.5, 1.6), title=f"{order}-norm")
    ax.axis("off")


def _box(ax: Axes, x: float, y: float, words: str, colour: str) -> None:
    style = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": figures.BLACK}
    ax.text(x, y, words, ha="center", va="center", fontsize=9.5, bbox=style, zorder=3)
