"""Bring what an instructor edited in a source notebook back into the lesson's text and the declarations.

The cells are matched with the lesson's chunks by id, by name, or by being the same. What the lesson
text can say is written there: prose, code, explorations, quizzes, written questions; cells added,
removed and moved. An edited solution goes into the reference function. Whatever would come out
differently when it is built again (a heading, a check cell) was not brought back: it stays as it is
in the notebook, and the place to edit instead is named.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.build import lesson_text, notebooks, solutions
from autograder.build.cells import exercise_named, written_note
from autograder.build.faults import BuildError
from autograder.build.files import ROOT, Say, lesson_path, read_lesson, source_path, write
from autograder.build.lesson_text import LETTERS, Chunk
from autograder.build.notebooks import fingerprint

OPTION_SHOWN = re.compile(r"- \*\*([A-H])\*\* (.*)")
FREE = ("prose", "code", "explore")  # one cell each, all of whose text is the author's
EDIT_INSTEAD = {  # role of a cell -> what to do
    "exercise-heading": "the heading of {name} is made from its declaration (title, why, budget, minutes, ...) in {module}",
    "solution": "the cell of {name} must hold that one function, its whole body between the two SOLUTION lines; or edit {module}",
    "check": "the check cell of {name} is made from its declaration; its points are those of the properties in {module}",
    "overview": "the table of the exercises is made from their declarations in autograder/exercises",
    "toolbox": "the toolbox of {name} is made from the references: edit them where they are solved",
    "quiz": "in the quiz {name}, options are added and removed in the lesson's text, where their explanations stand",
    "written": "the written question {name} ends in a line about its points, and its rubric stands between the SOLUTION lines",
}


@dataclass(frozen=True)
class Unit:
    """A chunk and the cells of the edited notebook that belong to it.

    before : the chunk as it stands in the lesson; None for an added cell.
    after  : as it will stand there.
    """

    before: Chunk | None
    after: Chunk
    cells: tuple[NotebookNode, ...]


def pull(lesson: str, root: Path = ROOT, say: Say = print) -> int:
    """Bring the edits of source/<lesson>/ back. Returns the exit status: 1 where something was not brought back."""
    try:
        return _pull(lesson, root, say)
    except BuildError as error:
        say(f"pull: {error}. Nothing was changed.")
        return 1


def _pull(lesson: str, root: Path, say: Say) -> int:
    note, chunks = read_lesson(lesson, root)
    groups = notebooks.cell_groups(chunks)
    expected = [cell for group in groups for cell in group]
    path = source_path(lesson, root)
    notebook = _read(path)
    match(notebook.cells, expected)
    base = dict(line.split(" ") for line in notebooks.as_built(notebook))
    if not notebooks.is_edited(notebook):
        say(f"source/{lesson}/{lesson}.ipynb was not edited: there is nothing to bring back.")
        return 0
    edited = {cell.id for cell in notebook.cells if base.get(cell.id) != fingerprint(cell)}
    _expect_one_side(lesson, base, expected, edited)
    units = [_brought_back(unit, edited) for unit in _units(notebook.cells, chunks, groups)]
    definitions = _definitions(units, edited)
    text = _text(note, units)
    rebuilt = notebooks.source_notebook(lesson, lesson_text.parse(text)[1], definitions)
    left = _keep_what_is_left(rebuilt, [cell for unit in units for cell in unit.cells], edited)
    for name, definition in definitions.items():
        _write_reference(name, definition)
    write(lesson_path(lesson, root), text)
    write(path, notebooks.as_text(rebuilt))
    for sentence in [*_changes(units, chunks, definitions), *(f"Not brought back: {what}." for what in left)]:
        say(sentence)
    say(f"Now run: python -m autograder build {lesson}")
    return 1 if left else 0


def _read(path: Path) -> NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # no file, no JSON, no notebook
        raise BuildError(f"{path.name} cannot be read: {error}") from error


# ---------------------------------------------------------------- which cell is which


def match(cells: Sequence[NotebookNode], expected: Sequence[NotebookNode]) -> None:
    """Give each cell that is one of the expected ones its id: by id, else by name, else by being the same."""
    taken = {cell.get("id") for cell in cells}
    missing = [cell for cell in expected if cell.id not in taken]
    known = {cell.id for cell in expected}
    for same in (_label, lambda cell: (cell.cell_type, cell.source)):
        for cell in cells:
            if cell.get("id") in known:
                continue
            twin = next((other for other in missing if same(other) and same(other) == same(cell)), None)
            if twin is not None:
                cell.id = twin.id
                missing.remove(twin)


def _label(cell: NotebookNode) -> tuple | None:
    """What tells a cell with a name from all others."""
    course, graded = cell.metadata.get("course", {}), cell.metadata.get("nbgrader", {})
    if "name" not in course or course.get("role") == "toolbox":
        return None
    return course["role"], course["name"], cell.cell_type, graded.get("grade_id")


def _expect_one_side(
    lesson: str, base: dict[str, str], expected: Sequence[NotebookNode], edited: set[str]
) -> None:
    """Raises BuildError where the lesson was changed as well since the notebook was built."""
    if not base:
        raise BuildError("the notebook was not written by the build")
    changed = {cell.id for cell in expected if base.get(cell.id) != fingerprint(cell)}
    if list(base) != [cell.id for cell in expected] or edited & changed:
        raise BuildError(
            f"both the notebook and lessons/{lesson}.py (or a declaration) were changed since the last build; put "
            "the change of the text aside (git stash push lessons autograder), pull, and bring it back (git stash pop)"
        )


def _units(
    cells: Sequence[NotebookNode], chunks: Sequence[Chunk], groups: Sequence[Sequence[NotebookNode]]
) -> Iterator[Unit]:
    """The chunks in the order of the notebook. Raises BuildError where cells that belong together were torn apart."""
    place = {cell.id: index for index, group in enumerate(groups) for cell in group}
    names = {chunk.name for chunk in chunks}
    left = list(cells)
    while left:
        cell = left[0]
        index = place.get(cell.id)
        size = 1 if index is None else len(groups[index])
        mine, left = tuple(left[:size]), left[size:]
        if index is None:
            if cell.source.strip():
                chunk = _added(cell, names)
                names.add(chunk.name)
                yield Unit(None, chunk, mine)
        elif [c.id for c in mine] != [c.id for c in groups[index]]:
            together = ", ".join(c.id for c in groups[index])
            raise BuildError(
                f"these cells belong together, in this order, with nothing between them: {together}"
            )
        elif cell.source.strip() or chunks[index].kind not in FREE:
            yield Unit(chunks[index], chunks[index], mine)


def _added(cell: NotebookNode, names: set[str]) -> Chunk:
    """The chunk of a cell that the lesson does not have yet."""
    first = cell.source.strip().splitlines()[0]
    if cell.cell_type == "raw" or cell.metadata.get("nbgrader"):
        raise BuildError(f"a raw or a graded cell cannot be added here (graded ones are declared): {first}")
    tags = tuple(sorted(cell.metadata.get("tags", [])))
    if cell.cell_type == "markdown":
        return Chunk("prose", "", cell.source, tags=tags)
    course = cell.metadata.get("course", {})
    if course.get("role") != "exploration":
        return Chunk("code", "", cell.source, tags=tags)
    name, number = course["name"], 2
    while name in names:
        name, number = f"{course['name']}_{number}", number + 1
    return Chunk("explore", name, cell.source, tags=tags)


# ---------------------------------------------------------------- what comes back


def _brought_back(unit: Unit, edited: set[str]) -> Unit:
    """The unit with the edits of its cells in the chunk, as far as a chunk can say them."""
    before, cells = unit.before, unit.cells
    if before is None or not any(cell.id in edited for cell in cells):
        return unit
    if before.kind in FREE:
        kind, name = (before.kind, before.name) if before.kind == "explore" else ("code", "")
        if cells[0].cell_type == "markdown":
            kind, name = "prose", ""
        tags = tuple(sorted(cells[0].metadata.get("tags", [])))
        return dataclasses.replace(unit, after=Chunk(kind, name, cells[0].source, tags=tags))
    if before.kind == "quiz":
        return dataclasses.replace(unit, after=_quiz(before, cells[0].source))
    if before.kind == "written":
        return dataclasses.replace(unit, after=_written(before, *cells))
    return unit


def _quiz(chunk: Chunk, source: str) -> Chunk:
    """The quiz with question and options as the cell shows them; its explanations stay."""
    shown = [m.groups() for m in map(OPTION_SHOWN.fullmatch, source.splitlines()) if m]
    _, options = lesson_text.quiz_parts(chunk)
    if [letter for letter, _ in shown] != list(LETTERS[: len(options)]):
        return chunk
    question = source[: source.index("- **A**")].strip()
    renewed = [dataclasses.replace(o, text=text.strip()) for o, (_, text) in zip(options, shown)]
    return dataclasses.replace(chunk, source=lesson_text.quiz_source(question, renewed))


def _written(chunk: Chunk, question: NotebookNode, answer: NotebookNode) -> Chunk:
    """The written question with its text, rubric and points as the cells say."""
    note = written_note(chunk.points)
    first, *rubric, last = answer.source.splitlines() or [""]
    if not question.source.endswith(note) or (first, last) != (solutions.BEGIN, solutions.END):
        return chunk
    asked = question.source.removesuffix(note).strip()
    points = answer.metadata.get("nbgrader", {}).get("points", chunk.points)
    question.source = asked + written_note(points)  # this line follows from the points
    source = lesson_text.written_source(asked, "\n".join(rubric).strip())
    return dataclasses.replace(chunk, source=source, points=points)


def _definitions(units: Sequence[Unit], edited: set[str]) -> dict[str, str]:
    """Name of an exercise -> the reference as its edited solution cell has it, where it can be taken."""
    found = {}
    for unit in units:
        for cell in unit.cells:
            name = unit.after.name
            if unit.after.kind == "exercise" and cell.id == name and cell.id in edited:
                try:
                    text = solutions.from_cell(cell.source)
                    taken = solutions.function_name(text) == name and solutions.as_cell(text) == cell.source
                except BuildError:
                    taken = False
                if taken:
                    found[name] = text
    return found


def _keep_what_is_left(rebuilt: NotebookNode, cells: Sequence[NotebookNode], edited: set[str]) -> list[str]:
    """Put edited cells that come out differently into the rebuilt notebook as they are; say where to edit instead."""
    left = []
    for index, (mine, new) in enumerate(zip(cells, rebuilt.cells, strict=True)):
        if mine.id in edited and fingerprint(mine) != fingerprint(new):
            left.append(_edit_instead(new))
            rebuilt.cells[index] = nbformat.from_dict({**mine, "id": new.id})
            rebuilt.cells[index].metadata["course"] = new.metadata["course"]
    return left


def _edit_instead(cell: NotebookNode) -> str:
    course = cell.metadata["course"]
    name = course.get("name", "")
    module = ""
    if course["role"] in ("exercise-heading", "solution", "check"):
        module = _module(name)
    words = EDIT_INSTEAD.get(
        course["role"], "the settings of the cell {name} have no place in the lesson's text"
    )
    return words.format(name=name or cell.id, module=module and f"autograder/exercises/{module.name}")


# ---------------------------------------------------------------- writing


def _text(note: str, units: Sequence[Unit]) -> str:
    """The text of the lesson; chunks that did not change keep theirs to the letter."""
    parts = [
        unit.after.text if unit.after == unit.before else lesson_text.render(unit.after) for unit in units
    ]
    spaced = [part if part.endswith("\n\n") else part.rstrip("\n") + "\n\n" for part in parts]
    return (note + "".join(spaced)).rstrip("\n") + "\n"


def _module(name: str) -> Path:
    return Path(inspect.getsourcefile(exercise_named(name).reference_function))


def _write_reference(name: str, definition: str) -> None:
    path = _module(name)
    write(path, solutions.replaced(path.read_text(encoding="utf-8"), name, definition))


def _changes(units: Sequence[Unit], chunks: Sequence[Chunk], definitions: dict[str, str]) -> Iterator[str]:
    """One sentence for each thing that was brought back."""
    stayed = [unit.before for unit in units if unit.before is not None]
    for unit in units:
        if unit.before is None:
            yield f"Added: {_called(unit.after)}."
        elif unit.after != unit.before:
            yield f"Changed: {_called(unit.after)}."
    places = [next(i for i, chunk in enumerate(chunks) if chunk is before) for before in stayed]
    for index, chunk in enumerate(chunks):
        if index not in places:
            yield f"Removed: {_called(chunk)}."
    if places != sorted(places):
        yield "Moved: the cells stand in the notebook's order."
    for name in definitions:
        yield f"Changed: the reference of {name} in autograder/exercises/{_module(name).name}."


def _called(chunk: Chunk) -> str:
    first = chunk.source.strip().splitlines()[0][:60] if chunk.source.strip() else ""
    return " ".join(part for part in (chunk.kind, chunk.name or repr(first)) if part)
