"""Make a clean notebook of a submitted one: the student's text in cells whose metadata are ours.

Graded cells are known by their grade_id or, where that is lost, by the function they define. Check
cells are always those of the release: where they were changed, copied, deleted or turned into text,
the release's stands in their place. Everything else that a student wrote stays, as plain cells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from nbformat import NotebookNode, from_dict

from autograder.reading import Refused
from autograder.sanitize import raw_as_markdown, safe_attachments, safe_markdown, safe_text

MAX_CELLS = 2000
MAX_TEXT = 5_000_000  # characters in all cells together
CHECK = "check_"  # a check cell's grade_id is this and the function's name
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Piece:
    """One cell as the student handed it in. kind : "code", "markdown" or "raw"."""

    kind: str
    source: str
    grade_id: str | None = None
    attachments: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def plain(self) -> str:
        """Its text as plain() gives it."""
        return plain(self.source)

    def defines(self, name: str) -> bool:
        """Whether its text binds this name: by def, class, an assignment or an import."""
        if self.kind != "code" or name not in self.source:
            return False
        defined = rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b"
        assigned = rf"^[ \t]*{re.escape(name)}[ \t]*(?::[^=\n]+)?=(?!=)"
        bound = re.search(f"{defined}|{assigned}", self.source, re.MULTILINE)
        return bound is not None or any(_imports(line, name) for line in self.source.splitlines())


def _imports(line: str, name: str) -> bool:
    """Whether a line imports this name. Takes time in proportion to its length, whatever stands in it."""
    if "import" not in line or name not in line:
        return False
    statement = line.partition("#")[0]
    found = re.search(r"\bimport\b", statement)
    return found is not None and re.search(rf"\b{re.escape(name)}\b", statement[found.end() :]) is not None


def clean(tree: Mapping[str, Any], release: NotebookNode) -> NotebookNode:
    """The clean notebook (format 4.4, so without cell ids, outputs dropped) of a submitted one. Raises Refused.

    tree    : the JSON object that autograder.reading gives.
    release : the students' notebook of the lesson as it was handed out.
    """
    pieces = pieces_of(tree)
    graded = graded_cells(release)
    places = _places(pieces, graded, release)
    untouched = {plain(cell.source) for cell in release.cells if cell.cell_type == "markdown"}
    by_index = {index: grade_id for grade_id, index in places.items()}
    put_back = _put_back(pieces, graded, places)
    cells = [_graded_cell(graded[grade_id]) for grade_id in put_back.get(-1, ())]
    for index, piece in enumerate(pieces):
        if index not in by_index:
            cells.append(_plain_cell(piece, untouched))
        elif is_check(graded[by_index[index]]):
            template = graded[by_index[index]]
            if piece.kind == "code" and piece.plain != plain(template.source):
                cells.append(_plain_cell(piece, untouched))  # what was written into it still runs
            cells.append(_graded_cell(template))
        else:
            cells.append(_graded_cell(graded[by_index[index]], piece, untouched))
        cells += [_graded_cell(graded[grade_id]) for grade_id in put_back.get(index, ())]
    return notebook(cells)


def notebook(cells: Sequence[NotebookNode]) -> NotebookNode:
    """A notebook of format 4.4 for the kernel python3."""
    return from_dict({"nbformat": 4, "nbformat_minor": 4, "metadata": KERNEL, "cells": list(cells)})


def plain(source: str) -> str:
    """A cell's text without what editors change by themselves: spaces at line ends, blank lines around it."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()


# ---------------------------------------------------------------- the cells of the release


def graded_cells(release: NotebookNode) -> dict[str, NotebookNode]:
    """grade_id -> cell, in order, of all cells of the release that nbgrader knows."""
    return {cell.metadata.nbgrader.grade_id: cell for cell in release.cells if "nbgrader" in cell.metadata}


def is_check(cell: NotebookNode) -> bool:
    """Whether this is the check cell of an exercise."""
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade")) and not about.get("solution")


def checked_name(cell: NotebookNode) -> str:
    """The function that a check cell is about."""
    return cell.metadata.nbgrader.grade_id.removeprefix(CHECK)


# ---------------------------------------------------------------- the cells of the student


def pieces_of(tree: Mapping[str, Any]) -> list[Piece]:
    """The cells of a notebook of format 3 or 4. What is no cell is left out. Raises Refused."""
    if tree.get("nbformat", 4) == 3:
        sheets = [sheet.get("cells") for sheet in tree["worksheets"] if isinstance(sheet, dict)]
        found = [cell for cells in sheets if isinstance(cells, list) for cell in cells]
    else:
        found = tree["cells"]
    if len(found) > MAX_CELLS:
        raise Refused(
            f"The notebook has {len(found)} cells; {MAX_CELLS} are the most. Delete those that are not needed."
        )
    pieces = [_piece(cell) for cell in found if isinstance(cell, dict)]
    if sum(len(piece.source) for piece in pieces) > MAX_TEXT:
        raise Refused(
            "The text of the cells is longer than 5 MB. Delete what is not needed, and hand it in again."
        )
    return pieces


def _piece(cell: Mapping[str, Any]) -> Piece:
    kind = cell.get("cell_type")
    source = _joined(cell.get("input") if kind == "code" and "input" in cell else cell.get("source"))
    if kind == "heading":  # format 3
        level = cell.get("level")
        source, kind = "#" * (level if level in range(1, 7) else 1) + " " + source, "markdown"
    if kind not in ("code", "markdown"):
        kind = "raw"
    about = cell.get("metadata")
    about = about.get("nbgrader") if isinstance(about, dict) else None
    grade_id = about.get("grade_id") if isinstance(about, dict) else None
    attachments = cell.get("attachments")
    return Piece(
        kind,
        source,
        grade_id if isinstance(grade_id, str) else None,
        attachments if isinstance(attachments, dict) else {},
    )


def _joined(source: Any) -> str:
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return safe_text(source) if isinstance(source, str) else ""


# ---------------------------------------------------------------- which cell is which


def _places(
    pieces: Sequence[Piece], graded: Mapping[str, NotebookNode], release: NotebookNode
) -> dict[str, int]:
    """grade_id -> index of the piece that is taken for this cell; those that are missing are left out."""
    places: dict[str, int | None] = {}
    for grade_id, cell in graded.items():
        labelled = [i for i, piece in enumerate(pieces) if piece.grade_id == grade_id]
        if is_check(cell):
            places[grade_id] = _check_place(pieces, cell, labelled)
        elif cell.cell_type == "code" and cell.metadata.nbgrader.get("solution"):
            places[grade_id] = _solution_place(pieces, grade_id, labelled, graded)
        else:
            places[grade_id] = _text_place(pieces, cell, labelled, release)
    return {grade_id: index for grade_id, index in places.items() if index is not None}


def _solution_place(
    pieces: Sequence[Piece], name: str, labelled: Sequence[int], graded: Mapping[str, NotebookNode]
) -> int | None:
    """The first cell with the label that defines the function; else an unlabelled one that does; else the first labelled."""
    defining = [i for i in labelled if pieces[i].defines(name)]
    elsewhere = [i for i, piece in enumerate(pieces) if piece.grade_id not in graded and piece.defines(name)]
    return next(iter([*defining, *elsewhere, *labelled]), None)


def _text_place(
    pieces: Sequence[Piece], cell: NotebookNode, labelled: Sequence[int], release: NotebookNode
) -> int | None:
    """The first labelled cell that was changed; else the first labelled one; else the unlabelled text after the question."""
    ours = plain(cell.source)
    changed = [i for i in labelled if pieces[i].plain != ours]
    question = plain(release.cells[release.cells.index(cell) - 1].source)
    following = [
        i
        for i, (before, piece) in enumerate(pairwise(pieces), 1)
        if before.plain == question and piece.kind == "markdown" and piece.grade_id is None
    ]
    return next(iter([*changed, *labelled, *following]), None)


def _check_place(pieces: Sequence[Piece], cell: NotebookNode, labelled: Sequence[int]) -> int | None:
    """The first check cell after the function is defined; else the first one."""
    ours = plain(cell.source)
    same = [i for i, piece in enumerate(pieces) if piece.grade_id is None and piece.plain == ours]
    candidates = labelled or same
    first = next((i for i, piece in enumerate(pieces) if piece.defines(checked_name(cell))), -1)
    return next(iter([*(i for i in candidates if i > first), *candidates]), None)


def _put_back(
    pieces: Sequence[Piece], graded: Mapping[str, NotebookNode], places: Mapping[str, int]
) -> dict[int, list[str]]:
    """Index of a piece -> the graded cells that are missing and come right after it (-1: at the start).

    A check cell comes after the cell that defines its function, everything else after the graded cell
    before it in the release. A missing solution cell stays away: its stub would hide a function that
    was written elsewhere.
    """
    missing: dict[int, list[str]] = {}
    last = -1
    for grade_id, cell in graded.items():
        if grade_id in places:
            last = places[grade_id]
        elif cell.metadata.nbgrader.get("grade"):
            name = checked_name(cell)
            defining = [i for i, piece in enumerate(pieces) if is_check(cell) and piece.defines(name)]
            last = places.get(name, defining[0] if defining else last)
            missing.setdefault(last, []).append(grade_id)
    return missing


# ---------------------------------------------------------------- building cells


def _plain_cell(piece: Piece, untouched: set[str]) -> NotebookNode:
    if piece.kind == "code":
        return _code(piece.source, {})
    if piece.kind == "raw":
        return from_dict({"cell_type": "markdown", "metadata": {}, "source": raw_as_markdown(piece.source)})
    return _markdown(piece, {}, untouched)


def _graded_cell(
    template: NotebookNode, piece: Piece | None = None, untouched: set[str] = frozenset()
) -> NotebookNode:
    """A cell with the release's metadata and kind, and the student's text where it is theirs to write."""
    theirs = piece is not None and bool(template.metadata.nbgrader.get("solution"))
    if not theirs:
        piece = Piece(template.cell_type, template.source)
    if template.cell_type == "code":
        return _code(piece.source, template.metadata)
    return _markdown(piece, template.metadata, untouched | {plain(template.source)})


def _code(source: str, metadata: Mapping[str, Any]) -> NotebookNode:
    return from_dict(
        {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}
    )


def _markdown(piece: Piece, metadata: Mapping[str, Any], untouched: set[str]) -> NotebookNode:
    attachments = safe_attachments(piece.attachments)
    ours = piece.plain in untouched
    source = piece.source if ours else safe_markdown(piece.source, attachments)
    cell = {"cell_type": "markdown", "metadata": metadata, "source": source}
    return from_dict(cell | ({"attachments": attachments} if attachments else {}))
