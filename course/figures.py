"""The look of the lessons' figures: colour-blind safe, labelled, with a text alternative."""

from __future__ import annotations

from html import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with every common kind of colour vision
BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)


def style() -> None:
    """Set the style of every later figure in the notebook."""
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.6),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, PURPLE, SKY, RED, BLACK]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "image.cmap": "cividis",
            "font.size": 11,
        }
    )


class Described:
    """A figure with a sentence for readers who do not see it."""

    def __init__(self, fig: Figure, sentence: str):
        self.fig, self.sentence = fig, sentence

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        import base64
        import io

        buffer = io.BytesIO()
        self.fig.savefig(buffer, format="png", bbox_inches="tight")
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        alt = escape(self.sentence, quote=True)
        html = f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{alt}</figcaption></figure>'
        return {"text/html": html, "text/plain": f"Figure: {self.sentence}"}


def describe(fig: Figure, sentence: str) -> Described:
    """The figure, shown with a one-sentence text alternative. Make it the last line of a cell."""
    plt.close(fig)
    return Described(fig, sentence)
