"""A lesson as text: lessons/*.py in py:percent form, cell by cell.

Each cell opens with a marker line. Beside jupytext's own two forms (prose and code) the markers
name what is derived (overview, exercise, toolbox) and what is special (explore, quiz, written).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import jupytext
import nbformat.v4
from nbformat import NotebookNode

from autograder.build.faults import BuildError

# what a cell with this key in its marker is, and whether it is prose
NAMED = {"exercise": False, "explore": False, "toolbox": False, "quiz": True, "written": True}
DERIVED = ("overview", "exercise", "toolbox")
LETTERS = "ABCDEFGH"
OPTION = re.compile(r"- \[( |x)\] (.*)")


@dataclass(frozen=True)
class Chunk:
    """One cell of a lesson.

    kind   : "prose", "code", "overview", or a key of NAMED.
    name   : what the marker gives the key; "" for prose, code and overview.
    source : the text of the cell without comment marks; empty for derived cells.
    points : of a written question.
    text   : the chunk as it stands in the lesson, its marker line and the blank lines after it included.
    """

    kind: str
    name: str = ""
    source: str = ""
    points: float | None = None
    tags: tuple[str, ...] = ()
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Option:
    """One answer of a quiz."""

    right: bool
    text: str
    why: str


def parse(text: str) -> tuple[str, list[Chunk]]:
    """The note before the first cell (comments only) and the cells of a lesson."""
    note, *bodies = re.split(r"^(?=# ?%%)", text, flags=re.MULTILINE)
    if any(line.strip() and not line.startswith("#") for line in note.splitlines()):
        raise BuildError("only comments may stand before the first cell marker")
    return note, [_chunk(body) for body in bodies]


def render(chunk: Chunk) -> str:
    """The text of a chunk as it stands in a lesson, a blank line after it."""
    metadata: dict = {}
    if chunk.kind in NAMED:
        metadata[chunk.kind] = chunk.name
    elif chunk.kind == "overview":
        metadata["title"] = "overview"
    if chunk.points is not None:
        metadata["points"] = int(chunk.points) if chunk.points == int(chunk.points) else chunk.points
    if chunk.tags:
        metadata["tags"] = list(chunk.tags)
    make = nbformat.v4.new_markdown_cell if _is_prose(chunk.kind) else nbformat.v4.new_code_cell
    notebook = nbformat.v4.new_notebook(cells=[make(chunk.source, metadata=metadata)])
    notebook.metadata["jupytext"] = {"notebook_metadata_filter": "-all"}
    text = jupytext.writes(notebook, fmt="py:percent").rstrip("\n") + "\n\n"
    if _chunk(text) != chunk:
        raise BuildError(f"this cell cannot be written as lesson text:\n{chunk.source[:200]}")
    return text


def _is_prose(kind: str) -> bool:
    return kind == "prose" or NAMED.get(kind, False)


def _chunk(text: str) -> Chunk:
    marker = text.splitlines()[0]
    cells = jupytext.reads(text.rstrip("\n") + "\n", fmt="py:percent").cells
    if len(cells) != 1:
        raise BuildError(f"jupytext sees {len(cells)} cells here: {marker}")
    (cell,) = cells
    metadata = dict(cell.metadata)
    points, tags = metadata.pop("points", None), tuple(metadata.pop("tags", ()))
    kind, name = _kind(cell, metadata, marker)
    if _is_prose(kind) != (cell.cell_type == "markdown"):
        raise BuildError(f"{'[markdown] is missing' if _is_prose(kind) else 'this is no prose'}: {marker}")
    if bool(cell.source.strip()) == (kind in DERIVED):
        raise BuildError(
            f"{'a derived cell has no body' if kind in DERIVED else 'the cell is empty'}: {marker}"
        )
    if (points is not None) != (kind == "written"):
        raise BuildError(f"a written question, and nothing else, has points: {marker}")
    return Chunk(kind, name, cell.source, points, tags, text)


def _kind(cell: NotebookNode, metadata: dict, marker: str) -> tuple[str, str]:
    if metadata == {"title": "overview"}:
        return "overview", ""
    if not metadata:
        return ("prose" if cell.cell_type == "markdown" else "code"), ""
    if len(metadata) == 1:
        ((key, value),) = metadata.items()
        if key in NAMED and isinstance(value, str) and re.fullmatch(r"[\w, -]+", value):
            return key, value
    raise BuildError(f"the marker is not understood: {marker}")


# ---------------------------------------------------------------- the parts of special cells


def toolbox_names(chunk: Chunk) -> list[str]:
    """The functions that a toolbox asks for."""
    return [name.strip() for name in chunk.name.split(",")]


def quiz_parts(chunk: Chunk) -> tuple[str, list[Option]]:
    """The question of a quiz and its options."""
    question: list[str] = []
    options: list[list[str]] = []
    for line in chunk.source.splitlines():
        if OPTION.match(line):
            options.append([line])
        elif options and line.strip():
            options[-1].append(line.strip())
        elif not options:
            question.append(line)
    found = [_option(" ".join(lines), chunk) for lines in options]
    if not 2 <= len(found) <= len(LETTERS) or sum(option.right for option in found) != 1:
        raise BuildError(f"the quiz {chunk.name} needs two to {len(LETTERS)} options, and one [x]")
    return "\n".join(question).strip(), found


def _option(line: str, chunk: Chunk) -> Option:
    mark, rest = OPTION.fullmatch(line).groups()
    text, separator, why = rest.partition(" :: ")
    if not separator or not why.strip():
        raise BuildError(f"in the quiz {chunk.name} an option has no ` :: explanation`: {line}")
    return Option(mark == "x", text.strip(), why.strip())


def quiz_source(question: str, options: Sequence[Option]) -> str:
    """The body of a quiz cell, the opposite of quiz_parts."""
    lines = [f"- [{'x' if o.right else ' '}] {o.text} :: {o.why}" for o in options]
    return question + "\n\n" + "\n".join(lines)


def written_parts(chunk: Chunk) -> tuple[str, str]:
    """The question of a written exercise, and the rubric with a model answer."""
    question, rule, rubric = chunk.source.partition("\n---\n")
    if not rule or not rubric.strip():
        raise BuildError(f"the written question {chunk.name} needs a line ---, then the rubric")
    return question.strip(), rubric.strip()


def written_source(question: str, rubric: str) -> str:
    """The body of a written question's cell, the opposite of written_parts."""
    return f"{question}\n\n---\n\n{rubric}"
