"""nbgrader's autograde with this course's steps. nbgrader_config.py plugs them in by name.

nbgrader goes over a notebook twice: from submitted/ to autograded/ (here: read it as data and clean
it), and then over the one in autograded/ (here: grade it). What nbgrader cannot do with a submission
that is broken, or not an ordinary file, is prepared before it starts.
"""

from __future__ import annotations

import copy
import glob
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode, from_dict
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor, SaveCells
from nbgrader.utils import parse_utc, rmtree

from autograder import lessons, results
from autograder.clean import clean, is_check
from autograder.finding import is_linked, notebook_in, unsafe_files
from autograder.grading import grade, write_score
from autograder.lessons import Lesson
from autograder.reading import Refused, parse, read_bytes
from autograder.sanitize import raw_as_markdown
from autograder.seeds import class_secret, seed_for
from autograder.versions import engine

# said by nbgrader's own code at each new submission since SQLAlchemy 2; it changes nothing
warnings.filterwarnings("ignore", "Object of type <Submitted.*> not in session", module="nbgrader")

STATE = "autograder"  # the key in a notebook's metadata under which the state of its grading stands
_at_work: list[CourseExporter] = []  # the exporter whose submissions are being copied; one at most


class CourseExporter(NotebookExporter):
    """Reads submissions in nbgrader's place: whatever is handed in, there is a notebook to go on with."""

    def __init__(self, config: Any = None, parent: Any = None, **more: Any):
        super().__init__(config=config, parent=parent, **more)
        if isinstance(parent, Autograde):
            prepare(parent)
            self.usually_ignored = tuple(parent.coursedir.ignore)
            _at_work[:] = [self]

    def from_filename(self, filename: str, resources: Any = None, **more: Any) -> tuple[str, Any]:
        """The notebook after the steps of this pass."""
        about = resources["nbgrader"]
        lesson = lessons.find(about["assignment"])
        resources["metadata"] = {"name": about["notebook"], "path": os.path.dirname(filename)}
        if self.parent._sanitizing:
            reset_scores(about, self.parent.coursedir.course_id)
            notebook = cleaned(Path(filename), lesson)
        else:
            notebook = nbformat.read(filename, as_version=4)
        return self.from_notebook_node(notebook, resources, **more)


class Grade(NbGraderPreprocessor):
    """Grades a clean notebook in a child process and writes the verdicts into its check cells."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The graded notebook; its metadata say what became of it."""
        about = resources["nbgrader"]
        lesson, coursedir = lessons.find(about["assignment"]), self.parent.parent.coursedir
        return graded(nb, coursedir, lesson, about["student"], Path(resources["metadata"]["path"])), resources


def graded(
    notebook: NotebookNode, coursedir: CourseDirectory, lesson: Lesson, student: str, folder: Path
) -> NotebookNode:
    """A clean notebook with its verdicts; its metadata say what became of it. folder : what lies beside it."""
    submitted = coursedir.format_path(coursedir.submitted_directory, student, lesson.name)
    path = os.path.relpath(os.path.join(submitted, f"{lesson.name}.ipynb"), coursedir.root)
    state = notebook.metadata[STATE]
    if "refused" in state:
        entry = results.ungraded("refused", path, student, lesson.name, state["refused"], lesson.exercises)
    else:
        seed = seed_for(class_secret(Path(coursedir.root)), lesson.name, student, state["digest"])
        result = grade(notebook, lesson.explorations, seed, folder)
        notebook = result.notebook
        entry = results.graded(path, student, lesson.name, result)
    notebook.metadata[STATE] = from_dict({**state, "result": entry})
    return notebook


# ---------------------------------------------------------------- the first pass


def cleaned(path: Path, lesson: Lesson) -> NotebookNode:
    """The clean notebook of this submission or, where it is refused, the release's graded cells with the reason."""
    state = {"digest": "", "engine": engine(lesson.name)}
    try:
        data = read_bytes(notebook_in(path.parent, lesson))
        state["digest"] = hashlib.sha256(data).hexdigest()
        tree = parse(data)
        other = lessons.lesson_of(tree)
        if other not in (None, lesson):
            raise Refused(
                f"This notebook is of {other.name}, but it was handed in for {lesson.name}. "
                f"Hand in the notebook {lesson.name}.ipynb here."
            )
        notebook = clean(tree, lesson.release)
    except Refused as refusal:
        notebook = refused(lesson, str(refusal))
        state["refused"] = str(refusal)
    notebook.metadata[STATE] = from_dict(state)
    return notebook


def refused(lesson: Lesson, reason: str) -> NotebookNode:
    """A notebook in the place of one that cannot be graded: the reason, and every graded cell at 0 points."""
    notebook = clean({"cells": []}, lesson.release)
    text = f"Not graded. {reason}"
    for cell in notebook.cells:
        if is_check(cell):
            write_score(cell, text, f"<p><strong>Not graded.</strong> {escape(reason)}</p>", 0.0)
    heading = f"**This submission was not graded.**\n\n{raw_as_markdown(reason)}"
    notebook.cells.insert(0, from_dict({"cell_type": "markdown", "metadata": {}, "source": heading}))
    return notebook


def reset_scores(about: Mapping[str, str], course: str) -> None:
    """Forget the automatic scores of an earlier run; manual scores and comments stay."""
    with Gradebook(about["db_url"], course) as gradebook:
        try:
            submitted = gradebook.find_submission_notebook(
                about["notebook"], about["assignment"], about["student"]
            )
        except MissingEntry:
            return
        for score in submitted.grades:
            score.auto_score = None
            score.needs_manual_grade = True
        gradebook.db.commit()


# ---------------------------------------------------------------- before nbgrader starts


def prepare(converter: Autograde) -> None:
    """Make every submission of the assignment one that nbgrader can go through without stopping.

    A folder without the lesson's notebook gets it into nbgrader's list all the same, so that it ends
    in a state. What an interrupted run left half done, or what was handed in anew since, is done again.
    """
    converter.coursedir = copy.copy(converter.coursedir)  # `ignore` changes below, for this run only
    assignment = converter.coursedir.assignment_id
    if assignment not in lessons.names():
        return
    lesson = lessons.find(assignment)
    register(lesson, converter.coursedir)
    pattern = converter._format_source("(?P<assignment_id>.*)", "(?P<student_id>.*)", escape=True)
    for folder in glob.glob(converter._format_source(assignment, converter.coursedir.student_id)):
        match = re.match(pattern, folder)
        try:
            if match is None or not os.path.isdir(folder):
                raise OSError("a folder with a name of one line is needed here")
            set_aside_unusable_timestamp(Path(folder), converter.log)
            graded = converter._format_dest(assignment, match["student_id"])
            if os.path.isdir(graded) and not is_up_to_date(Path(graded), Path(folder), lesson):
                rmtree(graded)
        except OSError as error:
            converter.log.error("Not graded: %r: %s", folder, error)
            converter.assignments.pop(folder, None)
            continue
        if converter.coursedir.notebook_id == "*":
            notebooks = converter.assignments.setdefault(folder, [])
            expected = os.path.join(folder, f"{assignment}.ipynb")
            notebooks += [expected] if expected not in notebooks else []


def register(lesson: Lesson, coursedir: CourseDirectory) -> None:
    """Make sure that the gradebook knows the lesson's cells, as `nbgrader generate_assignment` would have done.

    Where a killed run left only some of them there, all are written anew.
    """
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        try:
            known = gradebook.find_notebook(lesson.name, lesson.name)
            if known.submissions or {cell.name for cell in known.source_cells} == set(lesson.cells):
                return
        except MissingEntry:
            gradebook.update_or_create_assignment(lesson.name)
    about = {"notebook": lesson.name, "assignment": lesson.name, "db_url": coursedir.db_url}
    SaveCells().preprocess(copy.deepcopy(lesson.release), {"nbgrader": about})


def state_in(folder: Path, lesson: str) -> dict[str, Any] | None:
    """What the graded notebook in this folder says about its grading; None where that was not finished."""
    try:
        tree = json.loads((folder / f"{lesson}.ipynb").read_text(encoding="utf-8"))
        state = tree["metadata"][STATE]
        return state if "result" in state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_up_to_date(graded: Path, submitted: Path, lesson: Lesson) -> bool:
    """Whether a graded folder is whole, and of the notebook that stands in the submitted folder now."""
    state = state_in(graded, lesson.name)
    if state is None:
        return False
    try:
        data = read_bytes(notebook_in(submitted, lesson))
    except Refused as refusal:
        return state.get("refused") == str(refusal)
    return state["digest"] == hashlib.sha256(data).hexdigest()


def set_aside_unusable_timestamp(folder: Path, log: Any) -> None:
    """Rename a timestamp.txt that nbgrader could not read, or would wait for without end.

    Raises OSError where that cannot be done; in a folder that is a link to another place nothing is touched.
    """
    path = folder / "timestamp.txt"
    if not os.path.lexists(path):
        return
    try:
        parse_utc(read_bytes(path, 200).decode("utf-8").strip() or None)
    except (Refused, ValueError, ArithmeticError):  # a number that is too large is one of the last kind
        if is_linked(folder):
            raise OSError("a link to a folder without a usable timestamp.txt") from None
        log.warning("Not a time, so it is now called timestamp.txt.unreadable: %s", path)
        os.replace(path, f"{path}.unreadable")


def before_copy(assignment: str, student: str, notebooks: Sequence[str]) -> None:
    """nbgrader's hook before it copies what lies beside a notebook: links, pipes and what is too large stay out."""
    (exporter,) = _at_work
    coursedir = exporter.parent.coursedir
    coursedir.ignore = ["*", ".*"]  # if the next line fails, nothing is copied
    coursedir.ignore = [*exporter.usually_ignored, *unsafe_files(Path(notebooks[0]).parent)]
