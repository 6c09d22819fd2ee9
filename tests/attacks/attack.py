"""What an attack is, and the notebook that carries it.

Three exercises of the notebook are answered honestly; the attack is after the points of the others.
So what the notebook is worth is known: those three exercises, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from autograder.demo import lesson_solution
from autograder.lessons import find

LESSON = find("02_layer_norm")
NAMES = tuple(exercise.name for exercise in LESSON.exercises)
HONEST, OTHERS = NAMES[:3], NAMES[3:]
ANSWERS = {name: lesson_solution(LESSON, name) for name in HONEST}
WRONG = "def NAME(*args, **kwargs):\n    return 100.0"


@dataclass(frozen=True)
class Attack:
    """One hostile submission.

    kind    : the row of docs/threats.md that it belongs to.
    cell    : code that is added; $names in it are places of the world around the submission.
    every   : the answer to each exercise that has no honest one; NAME stands for its name.
    answers : single answers that replace those.
    first   : the cell comes before every answer; else after the honest ones.
    edit    : changes the notebook's JSON tree.
    files   : what lies beside the notebook.
    needs   : the weakest level that stops it; below it only the state of the grading is looked at.
    shows   : words that the graded notebook holds.
    hides   : words that it may not hold.
    short   : runs with short time limits, for cells and for waiting.
    kills   : at the level process it could end any process of the user, so it is left out there.
    """

    name: str
    kind: str
    cell: str = ""
    every: str = WRONG
    answers: Mapping[str, str] = field(default_factory=dict)
    first: bool = False
    edit: Callable[[dict], None] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    needs: str = "process"
    shows: str = ""
    hides: tuple[str, ...] = ()
    short: bool = False
    kills: bool = False

    def tree(self, places: Mapping[str, Any]) -> dict:
        """The submitted notebook as JSON data."""
        dishonest = {name: self.every.replace("NAME", name) for name in OTHERS}
        tree = notebook(ANSWERS | dishonest | dict(self.answers))
        if self.cell:
            source = Template(self.cell).safe_substitute(places)
            tree["cells"].insert(2 if self.first else place_of(tree, OTHERS[0]), code(source))
        if self.edit:
            self.edit(tree)
        return tree


def notebook(answers: Mapping[str, str]) -> dict:
    """The JSON tree of the students' notebook with these answers."""
    tree = json.loads(json.dumps(LESSON.release))
    for cell in tree["cells"]:
        cell["source"] = answers.get(grade_id(cell), cell["source"])
    return tree


def honest() -> dict:
    """The notebook without an attack: three right answers, the other cells as they were handed out."""
    return notebook(ANSWERS)


def code(source: str) -> dict:
    """A code cell as a student adds it."""
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}


def grade_id(cell: Mapping[str, Any]) -> str:
    """nbgrader's name of a cell; empty for those it does not know."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def place_of(tree: Mapping[str, Any], name: str) -> int:
    """The index of the cell with this grade_id."""
    return next(i for i, cell in enumerate(tree["cells"]) if grade_id(cell) == name)


def checks(tree: Mapping[str, Any]) -> list[dict]:
    """The check cells, as they stand in the tree."""
    return [cell for cell in tree["cells"] if grade_id(cell).startswith("check_")]
