"""The table of a class can be read on every screen."""

import io
import re

import pytest
from rich.console import Console

from autograder import class_table
from tests.test_grading import LESSON


def entry(student, points=2.0, mistake=None):
    """A result as the table reads it; the points and the named mistake are those of the first exercise."""
    exercises = [{"name": e.name, "points": 0.0, "mistake": None} for e in LESSON.exercises]
    exercises[0] |= {"points": points, "mistake": mistake}
    return {"student": student, "status": "graded", "points": 40.575, "exercises": exercises}


NAMED = "exposes-another-eps_outside-mean_of_squares"  # the longest there is
REFUSED = {"student": "[bold]", "status": "refused", "points": 0.0, "exercises": []}
CLASS = [entry("o'neill,anna", 5.075), entry("ada", mistake=NAMED), REFUSED]


@pytest.mark.parametrize("width", (80, 100, 120, 150))
def test_nothing_of_the_table_is_cut_off(width):
    console = Console(width=width, file=io.StringIO())
    for part in class_table.shown(CLASS, LESSON, console):
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
    words = re.findall(r"[^\s│┃]+", console.file.getvalue())
    numbers = [exercise.number for exercise in LESSON.exercises]
    assert {"o'neill,anna", "ada", "[bold]", "refused", "5.075", "40.575", NAMED, *numbers} <= set(words)


def test_a_narrow_screen_gets_the_named_mistakes_as_lines():
    narrow, wide = (
        class_table.shown(CLASS, LESSON, Console(width=width, file=io.StringIO())) for width in (80, 150)
    )
    assert narrow[1:] == ["Named mistakes:", f"ada: {LESSON.exercises[0].number} {NAMED}"]
    assert len(wide) == 1
