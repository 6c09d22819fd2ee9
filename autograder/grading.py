"""Grade one clean notebook: run its cells, ask each exercise at its check cell's place, write the verdicts.

The student's cells run in a child process, which may die: then a fresh one takes over, without the
cell that ended the first. No exercise costs another its points.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode, from_dict

from autograder import isolation
from autograder.children import Child, Ran
from autograder.clean import Piece, checked_name, is_check, plain
from autograder.exercise import Exercise
from autograder.exercises import find
from autograder.following import AskTool
from autograder.judge import Ask, judge
from autograder.sanitize import safe_formulas, safe_outputs
from course import report
from course.marking import Verdict
from course.questions import Answer, Failure, Question

CELL_SECONDS = 12.0  # of processor time, for one cell
NOTEBOOK_SECONDS = 120.0  # of real time in which its children are at work, for the whole notebook
RESTARTS = 3
NOT_RUN = "Not run when grading: this cell is as it was handed out, it earns nothing and defines nothing that is needed."


@dataclass(frozen=True)
class Graded:
    """A graded notebook, and the verdict of each exercise in the order of its check cells."""

    notebook: NotebookNode
    verdicts: tuple[Verdict, ...]
    seed: int
    seconds: float
    isolation: str


def grade(
    notebook: NotebookNode,
    explorations: Collection[str],
    seed: int,
    folder: Path | None = None,
    level: str = "",
) -> Graded:
    """Grade a clean notebook; the one that is given stays as it is.

    explorations : the code of the release's exploration cells. They are run only where the student changed them
                   or uses a name from one.
    folder       : the files beside the notebook; the child works on a copy.
    level        : of isolation; else the strongest that works here.
    """
    started = time.monotonic()
    level = level or isolation.level()
    skipped = {plain(source) for source in explorations}
    time_left = TimeLeft()
    graded, verdicts = _graded(notebook, skipped, seed, folder, level, time_left)
    missed = _missed(graded, verdicts, skipped)
    if missed and time_left.seconds > NOTEBOOK_SECONDS / 2:
        graded, verdicts = _graded(notebook, skipped - missed, seed, folder, level, time_left)
    return Graded(graded, verdicts, seed, time.monotonic() - started, level)


def _graded(
    notebook: NotebookNode, skipped: set[str], seed: int, folder: Path | None, level: str, time_left: TimeLeft
) -> tuple[NotebookNode, tuple[Verdict, ...]]:
    """A copy of the notebook with outputs and verdicts, and the verdicts in the order of their check cells."""
    graded = from_dict(notebook)
    verdicts: dict[str, Verdict] = {}
    sources = [cell.source for cell in graded.cells if _runs(cell, skipped)]
    with (
        Session(folder, level, time_left) as session,
        Tools(Session(folder, level, time_left), sources) as tools,
    ):
        for place, cell in enumerate(graded.cells):
            if _runs(cell, skipped):
                _run_cell(cell, session)
            elif is_check(cell):
                name = checked_name(cell)
                verdict = _verdict(name, seed, session, tools.ask) if session.defines(name) else None
                later = (
                    verdict and verdict.outcome == "not attempted" and _defined_in(graded.cells[place:], name)
                )
                if verdict and not later:
                    verdicts[name] = verdict
            elif cell.cell_type == "code" and cell.source.strip():
                cell.outputs = [_stream(NOT_RUN)]
        checks = [cell for cell in graded.cells if is_check(cell)]
        for name in map(checked_name, checks):
            if name not in verdicts:  # defined only further down, or not at all
                tool = tools.ask if session.defines(name) else None
                verdicts[name] = _verdict(name, seed, session, tool)
    for cell in checks:
        write(cell, verdicts[checked_name(cell)], seed, level)
    return graded, tuple(verdicts[checked_name(cell)] for cell in checks)


def _verdict(name: str, seed: int, session: Session, ask_tool: AskTool | None) -> Verdict:
    exercise = find(name)
    return judge(exercise, seed, session.asking(exercise), ask_tool)


def _runs(cell: NotebookNode, skipped: set[str]) -> bool:
    return (
        cell.cell_type == "code"
        and bool(cell.source.strip())
        and not is_check(cell)
        and plain(cell.source) not in skipped
    )


def _run_cell(cell: NotebookNode, session: Session) -> None:
    ran = session.run(cell.source)
    cell.outputs = [from_dict(output) for output in safe_outputs(ran.outputs)]
    cell.execution_count = ran.execution_count


def _defined_in(cells: Sequence[NotebookNode], name: str) -> bool:
    """Whether one of these cells defines the function, so that what stands so far is only the stub."""
    return any(Piece(cell.cell_type, cell.source).defines(name) for cell in cells)


# ---------------------------------------------------------------- the child, and what happens when it dies


@dataclass
class TimeLeft:
    """What all children of one notebook may still take together."""

    seconds: float = field(default_factory=lambda: NOTEBOOK_SECONDS)


class Session:
    """The child that runs one notebook, replaced by a fresh one where it died. Use as a context manager."""

    def __init__(self, folder: Path | None, level: str, time_left: TimeLeft):
        self._folder = folder
        self._level = level
        self._child: Child | None = None
        self._sources: list[str] = []  # what a fresh child has to run first
        self._starts = 0
        self._time_left = time_left

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, source: str) -> Ran:
        """Run one cell. Where it cannot run, or ends the process, its outputs say so."""
        child = self._alive()
        if child is None:
            return Ran([_stream(f"Not run: {self._why_none()}.")], None, "died")
        ran = self._run_in(child, source)
        if child.gone:
            ran.outputs.append(
                _stream(f"This cell was ended: {child.gone}. The cells after it run without it.")
            )
        else:
            self._sources.append(source)
        return ran

    def defines(self, name: str) -> bool:
        """Whether the cells so far defined this name."""
        child = self._alive()
        return child is not None and child.defines(name)

    def asking(self, exercise: Exercise) -> Ask:
        """What judge asks: sends questions about this exercise to the child, as long as it lives."""
        child = self._alive()

        def ask(questions: Sequence[Question]) -> Iterator[Sequence[Answer]]:
            asked = child and child.ask_all(exercise.name, exercise.parameters, questions)
            while asked and self._time_left.seconds > 0:
                with self._working():
                    answers = next(asked, None)
                if answers is None:
                    return
                yield answers
            yield [Answer(failure=Failure("no answer", self._why_none()))]

        return ask

    def _alive(self) -> Child | None:
        """A child in which all cells so far were run; None where there were too many deaths or no time is left."""
        while (
            (self._child is None or self._child.gone)
            and self._starts <= RESTARTS
            and self._time_left.seconds > 0
        ):
            self.close()
            self._starts += 1
            with self._working():
                self._child = Child.start(self._folder, self._level)
            for source in list(self._sources):
                self._run_in(self._child, source)
                if self._child.gone:
                    self._sources.remove(source)
                    break
        alive = self._child is not None and not self._child.gone and self._time_left.seconds > 0
        return self._child if alive else None

    def _run_in(self, child: Child, source: str) -> Ran:
        with self._working():
            return child.run_cell(source, max(0.1, min(CELL_SECONDS, self._time_left.seconds)))

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._time_left.seconds -= time.monotonic() - started

    def _why_none(self) -> str:
        if self._time_left.seconds <= 0:
            return f"the notebook as a whole took longer than {NOTEBOOK_SECONDS:.0f} s"
        return f"the notebook ended its process {RESTARTS + 1} times"

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
        self._child = None


class Tools:
    """The student's earlier functions, in a child in which no exercise is asked: started only where one is needed."""

    def __init__(self, session: Session, sources: Sequence[str]):
        self._session = session
        self._sources = list(sources)

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def ask(self, name: str, question: Question) -> Sequence[Answer]:
        """The answers of the earlier function of this name."""
        while self._sources:
            self._session.run(self._sources.pop(0))
        return next(self._session.asking(find(name))([question]))


# ---------------------------------------------------------------- names from explorations


def _missed(notebook: NotebookNode, verdicts: Sequence[Verdict], skipped: set[str]) -> set[str]:
    """The explorations that were not run, but define a name for want of which some cell or answer failed."""
    texts = " ".join(_errors(notebook, verdicts))
    names = re.findall(r"name '(\w+)' is not defined", texts)
    return {source for source in skipped if any(Piece("code", source).defines(name) for name in names)}


def _errors(notebook: NotebookNode, verdicts: Sequence[Verdict]) -> Iterator[str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                yield output.evalue
    for verdict in verdicts:
        given = verdict.finding.difference.given if verdict.finding else None
        if isinstance(given, Failure):
            yield given.message


# ---------------------------------------------------------------- the verdict in the notebook


def write(cell: NotebookNode, verdict: Verdict, seed: int, level: str) -> None:
    """Make the verdict the output of its check cell: the report, then one Python float, which nbgrader reads."""
    about = f"Judged on the cases of seed {seed}; {isolation.described(level)}."
    html = f"{report.html(verdict)}<p><small>{about}</small></p>"
    write_score(cell, f"{report.text(verdict)}\n\n{about}", html, verdict.points)


def write_score(cell: NotebookNode, text: str, html: str, points: float) -> None:
    """Give a check cell its two outputs: something to read, and the points within 0 and the cell's maximum."""
    most = float(cell.metadata.nbgrader.points)
    score = min(max(float(points), 0.0), most) if math.isfinite(points) else 0.0
    cell.execution_count = None
    cell.outputs = [
        from_dict(
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {"text/html": safe_formulas(html), "text/plain": text},
            }
        ),
        from_dict(
            {
                "output_type": "execute_result",
                "metadata": {},
                "execution_count": None,
                "data": {"text/plain": repr(score)},
            }
        ),
    ]


def _stream(text: str) -> NotebookNode:
    return from_dict({"output_type": "stream", "name": "stdout", "text": text + "\n"})
