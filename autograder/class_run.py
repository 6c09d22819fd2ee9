"""Grade a whole class into the gradebook: every submission of a lesson, several at once.

Ordinary submissions go the short way (autograder.direct), all others through nbgrader.

Can be stopped at any moment: the next run does what is left, and what changed meanwhile.
"""

from __future__ import annotations

import glob
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nbgrader.api import Assignment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from nbgrader.apps import NbGraderAPI
from nbgrader.apps.baseapp import NbGrader
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log, temp_attrs
from rich.console import Console
from sqlalchemy import func

from autograder import class_table, regrading, results
from autograder.direct import grade_directly
from autograder.lessons import Lesson, find
from autograder.nbgrader_steps import is_up_to_date, register, state_in
from autograder.processes import in_processes
from autograder.seeds import class_secret, seed_for
from autograder.versions import engine

Entry = dict[str, Any]
EXPORTER = "autograder.nbgrader_steps.CourseExporter"  # as nbgrader_config.py names it
BAD_NAME = "nbgrader cannot work with the name of this student's folder. Give it a name of one line, in UTF-8, without blanks at its ends."


class OneSubmission(Autograde):
    """nbgrader's autograde for one student's folder, also where there is no notebook in it."""

    def init_notebooks(self) -> None:
        """Name the folder; which notebook there is in it is found out when it is read."""
        folder = self._format_source(self.coursedir.assignment_id, self.coursedir.student_id)
        self.assignments = {path: [] for path in glob.glob(folder)}


@cache
def api_of(root: Path) -> NbGraderAPI:
    """nbgrader for the course folder `root`, with all configuration that its commands would read."""
    app = NbGrader(log_level=logging.CRITICAL)
    app.load_cwd_config = False
    app.initialize([], root=str(root))
    return NbGraderAPI(coursedir=app.coursedir, parent=app)


def students(root: Path, lesson: str) -> list[str]:
    """Who handed in something for this lesson."""
    coursedir = api_of(root).coursedir
    folders = coursedir.format_path(coursedir.submitted_directory, "*", lesson)
    return sorted(Path(folder).parent.name for folder in glob.glob(folders))


def sorted_out(root: Path, lesson: Lesson, names: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """Results that are known without grading, and the students that are to be graded.

    What stood before of those that are graded again is kept, see autograder.regrading.
    """
    coursedir = api_of(root).coursedir
    register(lesson, coursedir)
    known, waiting, before = [], [], {}
    recorded = recorded_points(coursedir, lesson.name)
    for student in names:
        state = standing(root, lesson, student)
        if state and still_holds(root, lesson, student, state, recorded.get(student)):
            known.append(state["result"])
        elif not _is_usable(student):
            path = submitted(root, lesson, student)
            known.append(results.ungraded("refused", path, student, lesson.name, BAD_NAME, lesson.exercises))
        else:
            waiting.append(student)
            if state:
                before[student] = state
    if before:
        regrading.keep(_kept_in(root, lesson), before)
    return known, waiting


def grade_students(root: Path, lesson: Lesson, jobs: int, names: Sequence[str]) -> Iterator[Entry]:
    """Grade these students' submissions; each result as soon as it is there."""
    tasks = [(root, lesson.name, student) for student in names]
    if jobs <= 1:
        yield from (grade_student(*task) for task in tasks)
    else:
        yield from in_processes(grade_student, tasks, jobs, lambda task, why: _fault(*task, why))


def grade_and_show(root: Path, lesson: Lesson, jobs: int) -> int:
    """Grade the class with a progress bar, a line for each problem, and the table at the end; the exit status."""
    console = class_table.console()
    if api_of(root).config.Autograde.get("exporter_class") != EXPORTER:
        console.print(
            f"This is no course folder: no nbgrader_config.py in {root} loads the one of the repository."
        )
        return 2
    names = students(root, lesson.name)
    if not names:
        console.print(
            f"Nobody handed in {lesson.name}: there is no submitted/<student>/{lesson.name} below {root}."
        )
        return 2
    known, waiting = sorted_out(root, lesson, names)
    entries = []
    with class_table.progress(console) as progress:
        task = progress.add_task(lesson.name, total=len(names), states="")
        for entry in itertools.chain(known, grade_students(root, lesson, jobs, waiting)):
            entries.append(entry)
            done, states = len(entries), class_table.counts(entries)
            progress.update(task, completed=done, states=states, refresh=done >= len(known))
            if entry["status"] != "graded":
                console.print(class_table.problem(entry), markup=False, highlight=False, soft_wrap=True)
    for part in class_table.shown(entries, lesson, console):
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
    console.print(class_table.summary(entries), highlight=False, soft_wrap=True)
    if known:
        console.print(
            f"{len(known)} not graded again: nothing changed since the run before.", highlight=False
        )
    show_regraded(console, root, lesson, names)
    return 1 if any(entry["status"] == "fault" for entry in entries) else 0


def show_regraded(console: Console, root: Path, lesson: Lesson, names: Sequence[str]) -> None:
    """Say whose points changed because they were graded again; what has no new result yet waits for the next run."""
    path = _kept_in(root, lesson)
    before = regrading.kept(path)
    states = {s: state_in(graded_folder(root, lesson.name, s), lesson.name) for s in names if s in before}
    now = {
        s: state if state and state["engine"] == engine(lesson.name) else None for s, state in states.items()
    }
    pairs = regrading.pairs(before, now)
    if pairs:
        for part in class_table.regraded(pairs, lesson):
            console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    regrading.settle(path, [student for student, state in now.items() if state is None])


def _is_usable(student: str) -> bool:
    """Whether nbgrader and its gradebook can work with a folder of this name."""
    is_text = student == student.encode("utf-8", "replace").decode("utf-8")  # a gradebook holds text only
    return is_text and student == student.strip() and "\n" not in student


def _kept_in(root: Path, lesson: Lesson) -> Path:
    return regrading.path_in(Path(api_of(root).coursedir.root), lesson.name)


def grade_student(root: Path, lesson: str, student: str) -> Entry:
    """Grade one student's submission, the short way or through nbgrader, and say what became of it."""
    try:
        entry = grade_directly(api_of(root), find(lesson), student)
    except Exception:  # nbgrader takes it up from the start, and its log names what is wrong
        entry = None
    return entry or grade_through_nbgrader(root, lesson, student)


def grade_through_nbgrader(root: Path, lesson: str, student: str) -> Entry:
    """Grade one student's submission by nbgrader's own autograde."""
    api = api_of(root)
    with temp_attrs(api.coursedir, assignment_id=lesson, student_id=glob.escape(student)):
        said = capture_log(OneSubmission(coursedir=api.coursedir, parent=api, force=True))
    state = state_in(graded_folder(root, lesson, student), lesson)
    if state is None:
        return _fault(root, lesson, student, _cause(said.get("log", "")))
    return state["result"]


def _cause(log: str) -> str:
    """The last error that nbgrader's log tells of."""
    errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|NotStarted)\b.*$", log, re.MULTILINE)
    return errors[-1] if errors else "nbgrader left no graded notebook and named no error."


def _fault(root: Path, lesson: str, student: str, why: str) -> Entry:
    reason = f"The grader failed here, which is no fault of the submission. {why}"
    found = find(lesson)
    return results.ungraded(
        "fault", submitted(root, found, student), student, lesson, reason, found.exercises
    )


def standing(root: Path, lesson: Lesson, student: str) -> dict[str, Any] | None:
    """The state that an earlier run left, if the submission did not change since; the grader may have."""
    coursedir = api_of(root).coursedir
    graded = graded_folder(root, lesson.name, student)
    folder = Path(coursedir.format_path(coursedir.submitted_directory, student, lesson.name))
    return state_in(graded, lesson.name) if is_up_to_date(graded, folder, lesson) else None


def still_holds(
    root: Path, lesson: Lesson, student: str, state: dict[str, Any], recorded: float | None
) -> bool:
    """Whether grading again would give the same: the grader, the seed and the points in the gradebook are those of this state."""
    result = state["result"]
    if state["engine"] != engine(lesson.name) or recorded is None:
        return False
    seed = seed_for(class_secret(root), lesson.name, student, state["digest"])
    return result["seed"] in (seed, None) and abs(recorded - result["points"]) < 1e-6


def recorded_points(coursedir: CourseDirectory, lesson: str) -> dict[str, float]:
    """Student -> the automatic points in the gradebook, of everybody who has rows for this lesson there."""
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        query = (
            gradebook.db.query(SubmittedAssignment.student_id, func.coalesce(func.sum(Grade.auto_score), 0.0))
            .join(SubmittedAssignment.assignment)
            .join(SubmittedAssignment.notebooks)
            .join(SubmittedNotebook.grades)
            .filter(Assignment.name == lesson)
            .group_by(SubmittedAssignment.student_id)
        )
        return dict(map(tuple, query))


def graded_folder(root: Path, lesson: str, student: str) -> Path:
    coursedir = api_of(root).coursedir
    return Path(coursedir.format_path(coursedir.autograded_directory, student, lesson))


def submitted(root: Path, lesson: Lesson, student: str) -> str:
    """The path of a submission, as reports name it."""
    coursedir = api_of(root).coursedir
    return os.path.relpath(coursedir.format_path(coursedir.submitted_directory, student, lesson.name), root)
