"""Grade submissions without a gradebook, one after the other or several at once."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autograder import lessons, results
from autograder.clean import clean
from autograder.finding import Found, lesson_of_file
from autograder.grading import grade
from autograder.processes import in_processes
from autograder.reading import Refused, read

Entry = dict[str, Any]


def grade_one(found: Found, seed: int) -> Entry:
    """The entry of one submission. Never raises: what goes wrong here is a fault of the grader, and says so."""
    lesson = None
    try:
        if found.reason:
            raise Refused(found.reason)
        tree = read(found.path)
        lesson = lesson_of_file(tree, found.path)
        if lesson is None:
            known = ", ".join(lessons.names())
            raise Refused(
                f"This is no notebook of this course, by its cells or by its name. The lessons are: {known}."
            )
        notebook = clean(tree, lesson.release)
        graded = grade(notebook, lesson.explorations, seed, _folder(found.path))
        return results.graded(str(found.path), found.student, lesson.name, graded)
    except Refused as refusal:
        return _ungraded("refused", found, lesson, str(refusal))
    except Exception as error:
        return fault(found, f"{type(error).__name__}: {error}", traceback.format_exc())


def fault(found: Found, reason: str, details: str = "") -> Entry:
    """The entry of a submission at which the grader itself failed."""
    said = f"The grader failed here, which is no fault of the submission. {reason}"
    return _ungraded("fault", found, None, said) | ({"details": details} if details else {})


def _ungraded(status: str, found: Found, lesson: Any, reason: str) -> Entry:
    name, exercises = (lesson.name, lesson.exercises) if lesson else (None, ())
    return results.ungraded(status, str(found.path), found.student, name, reason, exercises)


def _folder(path: Path) -> Path | None:
    """The folder whose files belong to the submission: the lesson's, or one with no other notebook in it."""
    folder = path.absolute().parent
    alone = len(list(folder.glob("*.ipynb"))) <= 1
    return folder if alone or folder.name in lessons.names() else None


def grade_all(found: Sequence[Found], seed: int, jobs: int) -> Iterator[Entry]:
    """The entries of all submissions, each as soon as it is there."""
    if jobs <= 1 or len(found) == 1:
        yield from (grade_one(each, seed) for each in found)
    else:
        yield from in_processes(
            grade_one, [(each, seed) for each in found], jobs, lambda task, why: fault(task[0], why)
        )
