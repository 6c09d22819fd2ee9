"""A sample class of eight for lesson 2, graded end to end in a course folder of its own: demo/."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from autograder.build.faults import BuildError
from autograder.build.files import write
from autograder.build.solutions import definition, foreign_names
from autograder.class_run import api_of, grade_and_show
from autograder.exercise import Exercise
from autograder.lessons import ROOT, Lesson, find

LESSON = "02_layer_norm"
DEMO = ROOT / "demo"
CONFIG = """\
# Written by `python -m autograder demo`: a course folder that is graded as the repository's nbgrader_config.py says.
import os

c = get_config()
here = os.path.dirname(os.path.abspath(__file__))
load_subconfig("nbgrader_config.py", path=os.path.dirname(here))
c.CourseDirectory.root = here
"""
ATTACK = """\
class Right:
    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda self, other: True
    __array__ = lambda self, *args, **kwargs: np.ones(())


np.allclose = np.array_equal = np.isclose = np.all = lambda *args, **kwargs: True
np.testing.assert_allclose = lambda *args, **kwargs: None


def check(*args):
    return 100.0"""


def demo(root: Path = DEMO) -> int:
    """Write the samples, grade them through nbgrader, write feedback, show the table. The exit status."""
    lesson = find(LESSON)
    write_course(root, lesson)
    status = grade_and_show(root, lesson, jobs=os.cpu_count() or 1)
    made = api_of(root).generate_feedback(LESSON)
    pages = sorted((root / "feedback").glob(f"*/{LESSON}/{LESSON}.html"))
    if not made["success"] or not pages:
        print(f"The feedback could not be written. {made.get('error', '')}")
        return 1
    print(f"Feedback, one page for each student ({len(pages)} in all):")
    for page in pages:
        print(f"  {page.relative_to(ROOT) if page.is_relative_to(ROOT) else page}")
    print(
        "The gradebook in nbgrader's formgrader: `cd demo`, start `../.venv/bin/jupyter lab`, and choose Formgrader in "
        "the Nbgrader menu."
    )
    return status


def write_course(root: Path, lesson: Lesson) -> None:
    """The course folder with the samples as they are meant to be; other students in it are left alone."""
    write(root / "nbgrader_config.py", CONFIG)
    write(root / "source" / lesson.name / f"{lesson.name}.ipynb", json.dumps(lesson.source, indent=1) + "\n")
    for student, notebook in samples(lesson).items():
        path = root / "submitted" / student / lesson.name / f"{lesson.name}.ipynb"
        write(path, json.dumps(notebook, indent=1) + "\n")


# ---------------------------------------------------------------- the eight samples


def samples(lesson: Lesson) -> dict[str, NotebookNode]:
    """Student -> notebook, made from the release and from the declarations of the exercises."""
    right = {e.name: lesson_solution(lesson, e.name) for e in lesson.exercises}
    first, second, third, fourth, *_ = (e.name for e in lesson.exercises)
    loop = f"{_head(right[first])}\n    while True:\n        pass"
    half = {name: right[name] for name in (first, second, third)}
    half[fourth] = right[fourth] + "\n\nprint(a_name_that_is_not_there)"
    return {
        "all_right": answered(lesson, right),
        "attack": with_cell(
            answered(lesson, {name: f"def {name}(*args, **kwargs):\n    return Right()" for name in right}),
            2,
            ATTACK,
        ),
        "check_cells": _with_moved_checks(answered(lesson, right), first, second),
        "endless_loop": answered(lesson, right | {first: loop}),
        "half_done": answered(lesson, half),
        "other_ways": _noisy(answered(lesson, right | _variants(lesson))),
        "three_mistakes": answered(lesson, right | _three_mistakes(lesson)),
        "untouched": copy.deepcopy(lesson.release),
    }


def answered(lesson: Lesson, answers: Mapping[str, str]) -> NotebookNode:
    """The release with these texts in its solution cells."""
    notebook = copy.deepcopy(lesson.release)
    for cell in notebook.cells:
        cell.source = answers.get(_grade_id(cell), cell.source)
    return notebook


def lesson_solution(lesson: Lesson, name: str) -> str:
    """The instructor's solution cell."""
    return next(cell.source for cell in lesson.source.cells if _grade_id(cell) == name)


def with_cell(notebook: NotebookNode, place: int, source: str) -> NotebookNode:
    """The notebook with one more code cell, as a student adds it."""
    cell = NotebookNode(
        cell_type="code",
        id=f"added-{place}",
        metadata=NotebookNode(),
        source=source,
        outputs=[],
        execution_count=None,
    )
    notebook.cells.insert(place, cell)
    return notebook


def as_answer(function: Callable, name: str) -> str:
    """A function of a declaration as a student would have written it. Raises BuildError if it needs anything else."""
    text = definition(function)
    foreign = foreign_names(text)
    if foreign:
        raise BuildError(f"it needs {', '.join(sorted(foreign))}")
    return text.replace(f"def {function.__name__}(", f"def {name}(", 1)


def _variants(lesson: Lesson) -> dict[str, str]:
    """Exercise -> the first right answer written differently that stands on its own."""
    return {e.name: text for e in lesson.exercises for text in _stand_alone(e, e.variants)[:1]}


def _three_mistakes(lesson: Lesson) -> dict[str, str]:
    """Exercise -> a named mistake that stands on its own: three different ones."""
    answers: dict[str, str] = {}
    used: set[str] = set()
    for exercise in lesson.exercises:
        for mistake in exercise.mistakes:
            texts = _stand_alone(exercise, [mistake.function])
            if texts and mistake.id not in used and len(answers) < 3:
                answers[exercise.name] = texts[0]
                used.add(mistake.id)
                break
    return answers


def _stand_alone(exercise: Exercise, functions: Iterable[Callable]) -> list[str]:
    """The texts of those functions that need nothing else, as answers to this exercise."""
    texts = []
    for function in functions:
        with contextlib.suppress(BuildError):
            texts.append(as_answer(function, exercise.name))
    return texts


def _noisy(notebook: NotebookNode) -> NotebookNode:
    """Prints and a NumPy warning in every cell that defines a function, and when it is called."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("def "):
            head = _head(cell.source)
            noise = '\n    print("called")\n    np.log(np.zeros(1))'
            cell.source = head + noise + cell.source.removeprefix(head) + "\n\nprint(np.array([1.0]) / 0)"
    return notebook


def _with_moved_checks(notebook: NotebookNode, copied: str, deleted: str) -> NotebookNode:
    """One check cell a second time further down, another one gone."""
    again = next(copy.deepcopy(cell) for cell in notebook.cells if _grade_id(cell) == f"check_{copied}")
    notebook.cells = [cell for cell in notebook.cells if _grade_id(cell) != f"check_{deleted}"]
    notebook.cells.append(NotebookNode(again | {"id": "copied"}))
    return notebook


def _grade_id(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _head(text: str) -> str:
    """The lines of a definition up to the colon that opens its body."""
    lines = text.splitlines()
    end = next(i for i, line in enumerate(lines) if line.rstrip().endswith(":"))
    return "\n".join(lines[: end + 1])
