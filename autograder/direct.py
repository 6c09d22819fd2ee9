"""The short way of one submission into the gradebook: what nbgrader's own steps leave there, in one transaction.

It is for ordinary submissions in a course folder whose steps are those of nbgrader_config.py. Everything
else goes the long way, through nbgrader. Both leave the same rows and the same files.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4.rwbase import split_lines, strip_transient
from nbgrader.api import Comment, Grade, Gradebook, Student, SubmittedAssignment, SubmittedNotebook
from nbgrader.apps import NbGraderAPI
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, OverwriteCells, SaveAutoGrades
from nbgrader.utils import compute_checksum, determine_grade, find_all_files, is_locked, parse_utc, rmtree
from traitlets.config import Config, PyFileConfigLoader

from autograder import nbgrader_steps
from autograder.lessons import ROOT, Lesson
from autograder.reading import read_bytes

TIMESTAMP = "timestamp.txt"
READ_ONLY = 0o444  # as nbgrader leaves what it graded
_STEPS = (
    nbgrader_steps.CourseExporter,
    nbgrader_steps.Grade,
    OverwriteCells,
    CheckCellMetadata,
    SaveAutoGrades,
)


def grade_directly(api: NbGraderAPI, lesson: Lesson, student: str) -> dict[str, Any] | None:
    """Grade one student's submission; its entry, or None where it is none for the short way.

    The notebook with the result is written last: what was interrupted before has no result, and is done again.
    """
    coursedir = api.coursedir
    submitted = Path(coursedir.format_path(coursedir.submitted_directory, student, lesson.name))
    if not (_has_our_steps(api.config) and _is_ordinary(coursedir, lesson, submitted)):
        return None
    gradebook = _gradebook(coursedir.db_url, coursedir.course_id)
    try:
        if not _knows(gradebook, lesson):
            return None
        stamp = _stamp(submitted)
        timestamp = _time(stamp)
        graded = Path(coursedir.format_path(coursedir.autograded_directory, student, lesson.name))
        if graded.exists():
            rmtree(graded)
        graded.mkdir(parents=True)
        if stamp is not None:
            (graded / TIMESTAMP).write_bytes(stamp)
            (graded / TIMESTAMP).chmod(READ_ONLY)
        path = graded / f"{lesson.name}.ipynb"
        notebook = nbgrader_steps.cleaned(submitted / path.name, lesson)
        path.write_text(json.dumps(notebook), encoding="utf-8")
        notebook = nbgrader_steps.graded(notebook, coursedir, lesson, student, graded)
        _record(gradebook, api, lesson, student, timestamp, notebook)
        made = graded / f".{path.name}"
        made.write_text(_text(notebook), encoding="utf-8")
        made.chmod(READ_ONLY)
        os.replace(made, path)
        return notebook.metadata[nbgrader_steps.STATE]["result"]
    finally:
        gradebook.db.remove()


# ---------------------------------------------------------------- what may go the short way


def _has_our_steps(config: Config) -> bool:
    """Whether autograding is configured as the repository does it, and no step of it in another way."""
    classes = {kind.__name__ for step in _STEPS for kind in step.__mro__}
    return (
        config.Autograde == _our_config()
        and not classes & set(config)
        and "enabled" not in config.AssignLatePenalties
    )


@cache
def _our_config() -> Config:
    return PyFileConfigLoader("nbgrader_config.py", path=str(ROOT)).load_config().Autograde


def _is_ordinary(coursedir, lesson: Lesson, submitted: Path) -> bool:
    """Whether there is nothing to copy but the notebook and its time, and no link, pipe or other name among them."""
    if coursedir.groupshared or coursedir.student_id_exclude or coursedir.notebook_id != "*":
        return False
    source = coursedir.format_path(coursedir.source_directory, ".", lesson.name)
    if find_all_files(source, [*coursedir.ignore, "*.ipynb"]):
        return False
    if any(os.path.islink(folder) for folder in (submitted, submitted.parent)):
        return False
    notebook = f"{lesson.name}.ipynb"
    files = {entry.name: entry for entry in os.scandir(submitted)}
    handed_in = {
        name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in coursedir.ignore)
    }
    plain = all(stat.S_ISREG(files[name].stat(follow_symlinks=False).st_mode) for name in handed_in)
    return plain and notebook in handed_in <= {notebook, TIMESTAMP}


@cache
def _knows(gradebook: Gradebook, lesson: Lesson) -> bool:
    """Whether the gradebook's cells are those of the lesson as it is handed out, so that none needs to be overwritten.

    Asked once a run, as nothing changes these cells meanwhile.
    """
    (notebook, *others) = gradebook.find_assignment(lesson.name).notebooks
    if others or notebook.name != lesson.name or notebook.task_cells:
        return False
    known = {c.name: (c.cell_type, bool(c.locked), c.checksum) for c in notebook.source_cells}
    points = {cell.name: float(cell.max_score) for cell in notebook.grade_cells}
    ours = {name: (c.cell_type, bool(is_locked(c)), compute_checksum(c)) for name, c in lesson.cells.items()}
    worth = {
        name: float(c.metadata.nbgrader.points)
        for name, c in lesson.cells.items()
        if c.metadata.nbgrader.grade
    }
    return known == ours and points == worth


def _stamp(submitted: Path) -> bytes | None:
    """The content of timestamp.txt, if there is one. Raises Refused where it cannot be read."""
    path = submitted / TIMESTAMP
    return read_bytes(path, 200) if os.path.lexists(path) else None


def _time(stamp: bytes | None) -> datetime | None:
    """When it was handed in. Raises ValueError or ArithmeticError where that is no time."""
    text = (stamp or b"").decode("utf-8").strip()
    return parse_utc(text) if text else None


# ---------------------------------------------------------------- rows and text


@cache
def _gradebook(db_url: str, course: str) -> Gradebook:
    """One gradebook for all submissions of this process: to open it costs more than to write to it."""
    return Gradebook(db_url, course)


def _record(
    gradebook: Gradebook,
    api: NbGraderAPI,
    lesson: Lesson,
    student: str,
    timestamp: datetime | None,
    notebook: NotebookNode,
) -> None:
    """Write the submission's rows in one transaction. Manual scores, comments and extra credit stay."""
    db = gradebook.db
    try:
        assignment = gradebook.find_assignment(lesson.name)
        (asked,) = assignment.notebooks
        graded = {cell.id: cell.name for cell in asked.grade_cells}
        solved = {cell.id: cell.name for cell in asked.solution_cells}
        about = {"assignment_id": assignment.id, "student_id": student}
        submission = db.query(SubmittedAssignment).filter_by(**about).one_or_none()
        if submission is None:
            if db.get(Student, student) is None:
                db.add(Student(id=student))
            # what has a value from the start is not read back from the database
            theirs = SubmittedNotebook(notebook_id=asked.id, late_submission_penalty=None)
            theirs.grades = [Grade(cell_id=cell) for cell in graded]
            theirs.comments = [Comment(cell_id=cell) for cell in solved]
            submission = SubmittedAssignment(**about, notebooks=[theirs])
            db.add(submission)
        (theirs,) = submission.notebooks
        if timestamp is not None:
            submission.timestamp = timestamp
        cells = {c.metadata.nbgrader.grade_id: c for c in notebook.cells if "nbgrader" in c.metadata}
        names = graded | solved
        if {row.cell_id for row in (*theirs.grades, *theirs.comments)} != set(names):
            raise LookupError("the submission has rows for other cells than the lesson")
        for grade in theirs.grades:
            grade.auto_score, _ = determine_grade(cells[names[grade.cell_id]])
            grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
        for comment in theirs.comments:
            cell = cells.get(names[comment.cell_id])
            if cell is not None:  # a student may have deleted a solution cell
                unchanged = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
                comment.auto_comment = "No response." if unchanged else None
        db.flush()
        theirs.late_submission_penalty = _penalty(api, submission, theirs, student)
        db.commit()
    except BaseException:
        db.rollback()
        raise


def _penalty(
    api: NbGraderAPI, submission: SubmittedAssignment, theirs: SubmittedNotebook, student: str
) -> float | None:
    """What nbgrader takes off for being late: nothing, unless the class has a plug-in of its own."""
    late = submission.total_seconds_late
    if not late > 0:
        return None
    step = AssignLatePenalties(parent=api)
    step.init_plugin()
    penalty = step.plugin_inst.late_submission_penalty(student, theirs.score, late)
    return None if penalty is None else step._check_late_penalty(theirs, penalty)


def _text(notebook: NotebookNode) -> str:
    """The notebook as nbgrader writes it; its lists of lines stand in the notebook afterwards.

    It is made here from checked parts, so it is neither validated nor copied once more.
    """
    tree = strip_transient(split_lines(notebook))
    return json.dumps(tree, indent=1, sort_keys=True, separators=(",", ": "), ensure_ascii=False) + "\n"
