"""The numbers that `course/` ships: sheets with the fingerprints of mistakes, quiz explanations, figure data.

No code and no name of a wrong version's parts goes in: questions, what is expected, and what each
named mistake gives, all drawn from the public seed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autograder.build import solutions
from autograder.build.cells import definition_of
from autograder.build.lesson_text import LETTERS, Chunk, quiz_parts
from autograder.build.notebooks import cleared
from autograder.exercise import Exercise
from autograder.sheets import PUBLIC_SEED, Drawn
from course import shipped
from course.compare import Tolerance, difference
from course.marking import Item
from course.questions import Failure, Question, View, plain_view
from course.wire import Malformed, decode, encode

ABOUT = "Built by `python -m autograder build` from {}. Do not edit."
AGREE = (
    Tolerance()
)  # numbers that marking takes for the same come from one declaration, whatever the processor
DIGITS = 12


def exercise_tree(exercise: Exercise) -> dict[str, Any]:
    """What course/numbers holds for one exercise, as a JSON tree."""
    drawn = Drawn(exercise, PUBLIC_SEED)
    judge_only = {d.property.name for d in exercise.properties if d.judge_only}
    items = [_item(item, exercise, item.property in judge_only) for item in drawn.sheet.items]
    return {
        "about": ABOUT.format(_module(exercise)),
        "number": exercise.number,
        "title": exercise.title,
        "parameters": exercise.parameters,
        "hints": exercise.hints,
        "stub": cleared(solutions.as_cell(definition_of(exercise.name, {}))),
        "properties": [
            {
                "name": p.name,
                "points": p.points,
                "needs_values": p.needs_values,
                "chaotic": p.chaotic,
                "tolerance": [p.tolerance.value, p.tolerance.relative],
            }
            for p in drawn.sheet.properties
        ],
        "mistakes": dict(drawn.sheet.mistakes),
        "items": items,
        "wrong": {mistake: _fingerprint(drawn, items, views) for mistake, views in drawn.wrong.items()},
    }


def lesson_tree(
    lesson: str, chunks: Sequence[Chunk], figures: Mapping[str, Callable[[], dict[str, Any]]]
) -> dict[str, Any]:
    """What course/data holds for one lesson, as a JSON tree."""
    quizzes = {}
    for chunk in chunks:
        if chunk.kind == "quiz":
            _, options = quiz_parts(chunk)
            quizzes[chunk.name] = {letter: [o.right, o.why] for letter, o in zip(LETTERS, options)}
    return {
        "about": ABOUT.format(f"lessons/{lesson}.py and autograder/figures"),
        "quizzes": quizzes,
        "figures": {name: encode(_rounded(function(), Tolerance())) for name, function in figures.items()},
    }


def as_text(tree: dict[str, Any]) -> str:
    """One line for each entry and, inside the long ones, for each part: small, and readable in a diff."""
    lines = []
    for key, value in tree.items():
        if key in ("items", "properties") and value:
            parts = ",\n".join(_compact(part) for part in value)
            lines.append(f"{_compact(key)}:[\n{parts}]")
        elif key in ("wrong", "figures", "quizzes", "mistakes") and value:
            parts = ",\n".join(f"{_compact(name)}:{_compact(part)}" for name, part in value.items())
            lines.append(f"{_compact(key)}:{{\n{parts}}}")
        else:
            lines.append(f"{_compact(key)}:{_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def agree(old: str, new: str) -> bool:
    """Whether two texts of numbers say the same, as closely as different processors compute."""
    try:
        return _agree(json.loads(old), json.loads(new))
    except ValueError:
        return False


# ---------------------------------------------------------------- items


def _item(item: Item, exercise: Exercise, judge_only: bool) -> dict[str, Any]:
    index = [d.property.name for d in exercise.properties].index(item.property)
    view, tolerance = item.view, exercise.properties[index].property.tolerance
    if judge_only or not _is_public(view):
        return {"property": index, "open": True}
    question = item.question
    try:
        tree: dict[str, Any] = {
            "property": index,
            "calls": [encode((call.args, dict(call.kwargs))) for call in question.calls],
            "expected": encode(_rounded(item.expected, tolerance)),
        }
        if question.about:
            tree["about"] = encode(dict(question.about))
    except Malformed:  # a function of the judge's among the arguments
        return {"property": index, "open": True}
    for key in ("same_arrays", "budget", "seconds"):
        if getattr(question, key) != getattr(Question, key):
            tree[key] = getattr(question, key)
    if view != View():
        tree |= {"view": view.look.__name__, "own": view.own}
    return tree


def _is_public(view: View) -> bool:
    """Whether a student's bundle has this view."""
    try:
        return view.look is plain_view or shipped.view_of(view.look.__name__) is view.look
    except AttributeError:
        return False


def _fingerprint(drawn: Drawn, items: Sequence[Mapping], views: Iterable[Any]) -> dict[str, Any]:
    """Index of an item -> what a wrong version gives there, where it differs from what is expected."""
    properties = {p.name: p for p in drawn.sheet.properties}
    stored = {}
    for index, (item, view) in enumerate(zip(drawn.sheet.items, views)):
        p = properties[item.property]
        as_expected = difference(view, item.expected, p.tolerance) is None
        if items[index].get("open") or (as_expected and not isinstance(view, Failure)):
            continue
        if p.chaotic and not as_expected:  # the numbers are rounding noise: only that it is wrong here counts
            view = Failure("no answer", "")
        if isinstance(view, Failure):
            view = dataclasses.replace(view, line="")
        stored[str(index)] = encode(_rounded(view, p.tolerance))
    return stored


def _module(exercise: Exercise) -> str:
    return exercise.reference_function.__module__.replace(".", "/") + ".py"


# ---------------------------------------------------------------- numbers


def _rounded(value: Any, tolerance: Tolerance) -> Any:
    """The value with its numbers rounded to 12 significant digits, so that every machine writes the same.

    Where a property is about exact numbers (tolerance 0) they stay as they are.
    """
    if tolerance.value == 0:
        return value
    if isinstance(value, dict):
        return {key: _rounded(item, tolerance) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_rounded(item, tolerance) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        return _rounded(value.real, tolerance) + 1j * _rounded(value.imag, tolerance)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        return np.vectorize(_round_number, otypes=[value.dtype])(value)
    if isinstance(value, float):
        return _round_number(value)
    return value


def _round_number(number: float) -> float:
    return float(f"{number:.{DIGITS - 1}e}")


def _agree(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        if list(old) == list(new) == ["array"]:
            return _arrays_agree(decode(old), decode(new))
        if list(old) == list(new) == ["Failure"]:  # its words depend on the versions of Python and NumPy
            return (old["Failure"][0], old["Failure"][2]) == (new["Failure"][0], new["Failure"][2])
        return list(old) == list(new) and all(_agree(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_agree, old, new))
    if type(old) is float and type(new) is float:
        return difference(old, new, AGREE) is None
    return type(old) is type(new) and old == new


def _arrays_agree(old: np.ndarray, new: np.ndarray) -> bool:
    return old.dtype == new.dtype and difference(old, new, AGREE) is None


def _compact(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
