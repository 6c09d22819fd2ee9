"""The worked example as a handout for pencil and paper, and its solution: `python -m autograder.handout`.

Variant R of the weights (1.1 in place of ln 3) keeps all numbers short. The student's sheet has
empty cells where the solution, for instructors, has numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

import numpy as np

from autograder.figures.encoder_block import trace
from course.worked_example import WEIGHTS_R, X

HOME = Path(__file__).parents[1] / "docs" / "handout"
SHEET, SOLUTION = HOME / "encoder_block_on_paper.html", HOME / "encoder_block_on_paper_solution.html"
DECIMALS = 4

STYLE = """
@page { size: A4; margin: 11mm 13mm }
body { font: 10pt/1.25 Georgia, serif; max-width: 184mm; margin: auto; color: black }
h1 { font-size: 16pt; margin: 0 0 2mm } h2 { font-size: 11pt; margin: 2.5mm 0 0.5mm }
p, ol, ul { margin: 1mm 0 } li { margin: 0.6mm 0 }
figure { display: inline-block; margin: 1mm 5mm 1mm 0; vertical-align: top; break-inside: avoid }
figcaption { font-style: italic; font-size: 9.5pt }
table { border-collapse: collapse } td { border: 0.3mm solid black; text-align: right; padding: 0.6mm 1.6mm; font: 9.5pt monospace }
.blank td { min-width: 13mm; height: 5.8mm } section { break-inside: avoid }
"""

# the order in which they fill a page best
GIVEN = ("W_q", "W_k", "W_v", "W1", "W_o", "W2", "b1", "b2")

# step -> what to do, and the matrices of the trace that it fills in
STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Queries, keys, values",
        "Multiply X with W_q, W_k and W_v. Rows are tokens; vectors multiply from the left.",
        ("Q", "K", "V"),
    ),
    (
        "Scores",
        "Each query with each key, divided by 2, the root of d_k = 4. Row 1 belongs to token 1, which reads.",
        ("S",),
    ),
    ("Shares", "e to the power of each score, divided by the sum of its row. Each row sums to 1.", ("A",)),
    ("Attention", "Mix the values by the shares, then multiply with W_o.", ("A V", "MHA(X)")),
    (
        "First sum and its norm",
        "Add X. Then, row by row: mean, deviation (the variance divides by 4), and (entry - mean) / deviation. eps is too small to matter here.",
        ("X + MHA(X)", "mu_1", "sigma_1", "X'"),
    ),
    (
        "Hidden units",
        "Multiply with W1, add b1, and set what is negative to 0.",
        ("X' W1 + b1", "ReLU(X' W1 + b1)"),
    ),
    (
        "Second sum and its norm",
        "Multiply the hidden units with W2, add b2, add X', normalise as before.",
        ("FFN(X')", "X' + FFN(X')", "mu_2", "sigma_2", "output"),
    ),
)

QUESTIONS = (
    (
        "Add up each row of your output. What must come out, and why?",
        "0, up to rounding: with gamma = 1 and beta = 0 a layer norm returns rows with the mean 0.",
    ),
    (
        "Which of the four pairs of hidden units (1 and 2, 3 and 4, ...) is silent for both tokens?",
        "The fourth: both of its units are 0 for both tokens. The first fires for token 1 only, the second for token 2 only, the third for both.",
    ),
    (
        "Someone's X' starts with 1.54 instead of your number, and every later step is right. Which single number went wrong?",
        "The deviation of the first row: 0.78 / 0.507 = 1.54. The right one is 0.5291. (With d_model - 1 it would be 0.6110.)",
    ),
    (
        "In a pre-norm block, which of your seven steps would read other numbers, and which sum would never be normed?",
        "Step 1 would read the norm of X instead of X, step 6 the norm of the first sum; so all later numbers differ. Neither sum would be normed: both stay on the stream as they are.",
    ),
)


def sheet(solved: bool) -> str:
    """The handout as one HTML page; with numbers and answers where `solved`."""
    found = trace(WEIGHTS_R)
    given = dict(zip(("W_q", "W_k", "W_v", "W_o", "W1", "b1", "W2", "b2"), WEIGHTS_R))
    title = "An encoder block on paper" + (": solution for instructors" if solved else "")
    parts = [
        f"<h1>{title}</h1>",
        "<p>Post-norm, d_model = 4, two tokens, one head, d_ff = 8, gamma = 1, beta = 0. You need a pocket calculator with "
        f"e<sup>x</sup> and the square root. Carry {DECIMALS} decimals. About 40 minutes.</p>",
        "<h2>Given</h2>",
        _matrix("X, the two tokens", X, _short(X)),
        *(_matrix(name, given[name], _short(given[name])) for name in GIVEN),
    ]
    for number, (title, task, symbols) in enumerate(STEPS, 1):
        tables = (_matrix(symbol, found[symbol], DECIMALS, blank=not solved) for symbol in symbols)
        parts.append(
            f"<section><h2>{number}. {escape(title)}</h2><p>{escape(task)}</p>{''.join(tables)}</section>"
        )
    parts.append(
        f"<section><h2>Questions</h2><ol>{''.join(_question(q, a, solved) for q, a in QUESTIONS)}</ol></section>"
    )
    if solved:
        parts.append(_notes(found))
    note = "<!-- Built by `python -m autograder.handout`. Do not edit. -->"
    return (
        f'<!doctype html>\n{note}\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _matrix(name: str, matrix: np.ndarray, decimals: int, blank: bool = False) -> str:
    rows = "".join(f"<tr>{''.join(_cells(row, decimals, blank))}</tr>" for row in np.atleast_2d(matrix))
    shape = " × ".join(map(str, matrix.shape))
    return f"<figure><figcaption>{escape(name)} ({shape})</figcaption><table{' class=blank' if blank else ''}>{rows}</table></figure>"


def _cells(row: np.ndarray, decimals: int, blank: bool) -> Iterable[str]:
    return ("<td></td>" if blank else f"<td>{value + 0.0:.{decimals}f}</td>" for value in row.round(decimals))


def _short(matrix: np.ndarray) -> int:
    """How many decimals show these numbers without loss."""
    return next(n for n in range(5) if np.allclose(matrix, matrix.round(n), rtol=0, atol=1e-12))


def _question(question: str, answer: str, solved: bool) -> str:
    return f"<li>{escape(question)}{f'<br><b>{escape(answer)}</b>' if solved else '<br><br>'}</li>"


def _notes(found: dict[str, np.ndarray]) -> str:
    exact = trace()
    gap = max(float(np.abs(found[name] - exact[name]).max()) for name in ("X'", "output"))
    return (
        "<section><h2>Notes for instructors</h2><ul>"
        f"<li>W_k holds 1.1 in place of ln 3 = 1.0986. That moves X' and the output by up to about {gap:.5f}; the course's own numbers (weights H) "
        "are those of lesson 5. Accept what lies within 0.002 of this sheet: rounding on the way adds up.</li>"
        "<li>Frequent slips: the score not divided by 2; shares summed by column; the deviation with d_model - 1; "
        "x added in the second sum instead of X'; ReLU forgotten (negative entries in step 6).</li>"
        "<li>A carried-on error costs one step only: check later steps against the student's own numbers.</li>"
        "</ul></section>"
    )


def write() -> None:
    """Write both pages."""
    HOME.mkdir(parents=True, exist_ok=True)
    SHEET.write_text(sheet(solved=False), encoding="utf-8")
    SOLUTION.write_text(sheet(solved=True), encoding="utf-8")


if __name__ == "__main__":
    write()
