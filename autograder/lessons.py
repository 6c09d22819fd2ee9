"""The built lessons, as the grader reads them: a view of source/ and release/ that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.clean import checked_name, graded_cells, is_check, pieces_of
from autograder.exercise import Exercise
from autograder.exercises import find as find_exercise

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Lesson:
    """One lesson: the instructor's notebook and the students' one. Two are equal if they have the same name.

    What is read from them is shared: copy a cell before changing it.
    """

    name: str
    source: NotebookNode = field(compare=False, repr=False)
    release: NotebookNode = field(compare=False, repr=False)

    @cached_property
    def cells(self) -> dict[str, NotebookNode]:
        """grade_id -> cell of the release, in order, of all cells that nbgrader knows."""
        return graded_cells(self.release)

    @cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        """The exercises in the order of their check cells."""
        return tuple(find_exercise(checked_name(cell)) for cell in self.cells.values() if is_check(cell))

    @cached_property
    def points(self) -> dict[str, float]:
        """Name of an exercise -> the points that its check cell can give."""
        return {
            checked_name(c): float(c.metadata.nbgrader.points) for c in self.cells.values() if is_check(c)
        }

    @cached_property
    def written(self) -> dict[str, float]:
        """grade_id of a written question -> the points that a person can give."""
        found = [c.metadata.nbgrader for c in self.cells.values() if not is_check(c)]
        return {about.grade_id: float(about.points) for about in found if about.grade}

    @cached_property
    def explorations(self) -> frozenset[str]:
        """The code of the exploration cells as handed out."""
        cells = self.release.cells
        return frozenset(c.source for c in cells if c.metadata.get("course", {}).get("role") == "exploration")

    @property
    def max_points(self) -> float:
        """What the exercises can give; written questions do not count."""
        return sum(self.points.values())


def names(root: Path = ROOT) -> tuple[str, ...]:
    """The names of the lessons that are built, in order."""
    found = (
        path.parent.name for path in (root / "release").glob("*/*.ipynb") if path.stem == path.parent.name
    )
    return tuple(sorted(found))


@cache
def find(name: str, root: Path = ROOT) -> Lesson:
    """The lesson of this name. Raises LookupError where it is not there, or not built."""
    if name not in names(root):
        raise LookupError(f"there is no lesson {name!r}; built are: {', '.join(names(root)) or 'none yet'}")
    return Lesson(name, _read(root / "source" / name), _read(root / "release" / name))


def lesson_of(notebook: Mapping[str, Any], name: str = "", root: Path = ROOT) -> Lesson | None:
    """The lesson that a submitted notebook is of: by its grade_ids, else by its name; None for neither.

    notebook : the JSON object of its file.
    Raises Refused where its cells are too many to be looked at.
    """
    ids = {piece.grade_id for piece in pieces_of(notebook)}
    lessons = [find(lesson, root) for lesson in names(root)]
    best = max(lessons, key=lambda lesson: len(ids & lesson.cells.keys()), default=None)
    if best is not None and ids & best.cells.keys():
        return best
    return next((lesson for lesson in lessons if lesson.name == name), None)


def _read(folder: Path) -> NotebookNode:
    return nbformat.read(folder / f"{folder.name}.ipynb", as_version=4)
