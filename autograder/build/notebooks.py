"""Whole notebooks: the instructor's from a lesson, the student's from the instructor's."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence

import nbformat
import nbformat.v4
from nbformat import NotebookNode

from autograder.build import explorations
from autograder.build.cells import cells_of
from autograder.build.faults import BuildError
from autograder.build.lesson_text import Chunk

ABOUT = "Built from lessons/{0}.py by `python -m autograder build`. Bring an edit back with `python -m autograder pull {0}`."
LANGUAGE = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def source_notebook(
    lesson: str, chunks: Sequence[Chunk], definitions: dict[str, str] | None = None
) -> NotebookNode:
    """The instructor's notebook of a lesson. Raises BuildError where two cells share a name."""
    groups = cell_groups(chunks, definitions)
    notebook = nbformat.v4.new_notebook(cells=[cell for group in groups for cell in group], metadata=LANGUAGE)
    notebook.metadata["course"] = {
        "lesson": lesson,
        "about": ABOUT.format(lesson),
        "built": fingerprints(notebook),
    }
    return notebook


def cell_groups(
    chunks: Sequence[Chunk], definitions: dict[str, str] | None = None
) -> list[list[NotebookNode]]:
    """For each chunk its cells; definitions replace the texts of declared references."""
    explorations.expect_no_loose_ends(chunks)
    groups = [cells_of(chunk, chunks, definitions) for chunk in chunks]
    cells = [cell for group in groups for cell in group]
    _expect_unique_names(cells)
    _number_equal_ids(cells)
    return groups


def as_text(notebook: NotebookNode) -> str:
    """The notebook as the text of its file."""
    return nbformat.writes(notebook) + "\n"


def release_text(notebook: NotebookNode) -> str:
    """The student's notebook as nbgrader makes it from the instructor's, without writing to a gradebook."""
    from nbconvert.exporters import NotebookExporter
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import SaveCells
    from traitlets.config import Config

    exporter = NotebookExporter(config=Config({"Exporter": {"default_preprocessors": []}}))
    for step in GenerateAssignment.class_traits()["preprocessors"].default():
        if step is not SaveCells:
            exporter.register_preprocessor(step, enabled=True)
    text, _ = exporter.from_notebook_node(nbformat.from_dict(notebook))
    return text


def cleared(source: str) -> str:
    """The text of a solution cell as a student gets it."""
    from nbgrader.preprocessors import ClearSolutions

    metadata = {"nbgrader": {"solution": True}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, metadata=metadata)])
    ClearSolutions().preprocess(notebook, {})
    return notebook.cells[0].source


# ---------------------------------------------------------------- what an edit changes


def fingerprints(notebook: NotebookNode) -> list[str]:
    """One line for each cell: its id, and a hash of what an author may have edited in it."""
    return [f"{cell.get('id', '')} {fingerprint(cell)}" for cell in notebook.cells]


def fingerprint(cell: NotebookNode) -> str:
    """A hash of the text, the tags and nbgrader's settings of a cell; not of its outputs."""
    settings = cell.metadata.get("nbgrader", {})
    parts = [
        cell.cell_type,
        _as_asked(cell),
        sorted(cell.metadata.get("tags", [])),
        {key: value for key, value in settings.items() if key not in ("checksum", "cell_type")},
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def is_edited(notebook: NotebookNode) -> bool:
    """Whether a notebook differs from what the build wrote, outputs aside."""
    return as_built(notebook) != fingerprints(notebook)


def as_built(notebook: NotebookNode) -> list[str]:
    """The fingerprints that the build wrote into a notebook; none where it did not write it."""
    return list(notebook.metadata.get("course", {}).get("built", []))


def _as_asked(cell: NotebookNode) -> str:
    """The text of a cell; in a quiz, without the letter that somebody tried."""
    if cell.cell_type == "code" and cell.metadata.get("course", {}).get("role") == "quiz":
        return re.sub(r', "\w?"\)$', ', "")', cell.source)
    return cell.source


# ---------------------------------------------------------------- names


def _expect_unique_names(cells: Sequence[NotebookNode]) -> None:
    ids = [cell.id for cell in cells if not cell.id.startswith(("prose-", "code-"))]
    twice = [id for id, count in Counter(ids).items() if count > 1]
    if twice:
        raise BuildError(f"two cells of the lesson have the name {', '.join(twice)}")


def _number_equal_ids(cells: Sequence[NotebookNode]) -> None:
    """Tell cells of the same text apart."""
    seen: Counter[str] = Counter()
    for cell in cells:
        seen[cell.id] += 1
        if seen[cell.id] > 1:
            cell.id = f"{cell.id}-{seen[cell.id]}"
