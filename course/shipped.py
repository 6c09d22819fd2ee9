"""What the build ships with the course as numbers and text: sheets, hints, quiz explanations, figure data.

numbers/<exercise>.json holds what is needed to mark one exercise in a student's own notebook; no code,
only questions, expected numbers and what each named mistake gives. data/<lesson>.json holds a
lesson's quizzes and the numbers that its figures show. autograder.build writes both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from course import views
from course.compare import Tolerance
from course.marking import Item, Property, Sheet
from course.questions import Call, Question, View, plain_view
from course.wire import decode

HOME = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """One exercise as the course ships it.

    sheet : drawn from the public seed; an item is open where only a judge can ask it.
    wrong : mistake id -> for each item of the sheet, what that mistake answers; read when looked at.
    hints : a question, a plan, pseudocode.
    stub  : the text of the exercise's cell before the student writes in it.
    """

    name: str
    number: str
    title: str
    sheet: Sheet
    wrong: Mapping[str, Sequence[Any]]
    hints: tuple[str, ...]
    stub: str


def names() -> tuple[str, ...]:
    """The names of all exercises that the course ships, sorted."""
    return tuple(sorted(path.stem for path in (HOME / "numbers").glob("*.json")))


@cache
def load(name: str) -> Shipped:
    """What the course ships for one exercise. Raises LookupError where there is no such exercise."""
    path = HOME / "numbers" / f"{name}.json"
    if not path.is_file():
        raise LookupError(f"there is no exercise called {name!r}")
    tree = json.loads(path.read_text(encoding="utf-8"))
    properties = tuple(
        Property(p["name"], p["points"], p["needs_values"], p["chaotic"], Tolerance(*p["tolerance"]))
        for p in tree["properties"]
    )
    items = tuple(_item(item, properties) for item in tree["items"])
    sheet = Sheet(name, tuple(tree["parameters"]), properties, items, tree["mistakes"])
    wrong = _Fingerprints(items, tree["wrong"])
    return Shipped(name, tree["number"], tree["title"], sheet, wrong, tuple(tree["hints"]), tree["stub"])


def quiz(name: str) -> dict[str, tuple[bool, str]]:
    """Letter -> whether it is right, and why. Raises LookupError where there is no such quiz."""
    for lesson in _lessons():
        if name in lesson["quizzes"]:
            return {letter: (right, why) for letter, (right, why) in lesson["quizzes"][name].items()}
    raise LookupError(f"there is no quiz called {name!r}")


def data(name: str) -> dict[str, Any]:
    """The precomputed numbers of one figure, as a dict of arrays and numbers.

    Raises LookupError where there is no such figure.
    """
    for lesson in _lessons():
        if name in lesson["figures"]:
            return decode(lesson["figures"][name])
    raise LookupError(f"there is no figure data called {name!r}")


def view_of(name: str) -> Any:
    """The function that a view's name stands for."""
    return plain_view if name == plain_view.__name__ else getattr(views, name)


# ---------------------------------------------------------------- reading


@cache
def _lessons() -> tuple[dict[str, Any], ...]:
    paths = sorted((HOME / "data").glob("*.json"))
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in paths)


def _item(tree: Mapping[str, Any], properties: Sequence[Property]) -> Item:
    name = properties[tree["property"]].name
    if tree.get("open"):
        return Item(name, Question((Call(),)), open=True)
    calls = _calls(tree["calls"])
    question = Question(
        calls,
        tree.get("same_arrays", Question.same_arrays),
        tree.get("budget", Question.budget),
        tree.get("seconds", Question.seconds),
        decode(tree["about"], placeholders=True) if "about" in tree else {},
    )
    view = View(view_of(tree["view"]), tuple(tree["own"])) if "view" in tree else View()
    return Item(name, question, decode(tree["expected"], placeholders=True), view)


def _calls(trees: Sequence[Any]) -> tuple[Call, ...]:
    """The calls of a question; equal ones are one object, as they were when drawn, so that they can share arrays."""
    made: list[Call] = []
    for index, tree in enumerate(trees):
        first = trees.index(tree)
        made.append(made[first] if first < index else Call(*decode(tree, placeholders=True)))
    return tuple(made)


class _Fingerprints(Mapping):
    """Mistake id -> its views of all items. Only those that differ from the expected ones are stored."""

    def __init__(self, items: Sequence[Item], stored: Mapping[str, Mapping[str, Any]]):
        self._stored = stored
        self._same = [item.expected for item in items]

    def __getitem__(self, mistake: str) -> list[Any]:
        views_of_items = list(self._same)
        for index, tree in self._stored[mistake].items():
            views_of_items[int(index)] = decode(tree, placeholders=True)
        return views_of_items

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)
