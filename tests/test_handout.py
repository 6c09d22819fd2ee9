"""The handout for pencil and paper: as built, and its numbers right."""

import re

import numpy as np

from autograder.exercises.encoder_block import encoder_block, layer_norm, multi_head_attention
from autograder.handout import SHEET, SOLUTION, sheet
from course.worked_example import WEIGHTS_R, X


def test_the_pages_in_docs_are_those_that_are_built():
    assert SHEET.read_text(encoding="utf-8") == sheet(solved=False)
    assert SOLUTION.read_text(encoding="utf-8") == sheet(solved=True)


def test_the_students_page_holds_no_result():
    page = sheet(solved=False)
    given = page.split("1. Queries")[0]
    assert "<b>" not in page and "Notes for instructors" not in page
    assert not re.search(r"<td>[^<]", page.removeprefix(given))


def test_the_solution_holds_the_numbers_of_variant_r():
    page = sheet(solved=True)
    attention = multi_head_attention(X[None], *WEIGHTS_R[:4], 1)
    first = layer_norm(X + attention, *WEIGHTS_R[8:10])[0]
    for matrix in (attention[0], first, encoder_block(X[None], *WEIGHTS_R, 1)[0]):
        for row in matrix:
            cells = "".join(f"<td>{value + 0.0:.4f}</td>" for value in np.round(row, 4))
            assert f"<tr>{cells}</tr>" in page


def test_the_answers_to_the_questions():
    deviation = np.array([1.12, 0.42, -0.35, 0.17]).std()
    assert f"{deviation:.4f}" == "0.5291" and round(0.78 / 0.507, 2) == 1.54
    assert f"{np.array([1.12, 0.42, -0.35, 0.17]).std(ddof=1):.4f}" in sheet(solved=True)
