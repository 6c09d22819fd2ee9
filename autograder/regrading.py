"""Grading again after the grader or a lesson changed: whose points changed, and why.

The results that stood before are kept in a file of the course folder, from before the first submission
is graded again until a run has come to its end and told the changes. So a run that is killed loses none
of them, also where the checks change once more before the next run: all are compared with what stood
before the first of these runs. What was handed in anew is another file and is not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autograder import results
from course.report import number

Entry = Mapping[str, Any]
State = Mapping[str, Any]  # a graded notebook's: "digest" of the submitted file, "result" with its entry


# ---------------------------------------------------------------- what stood before


def path_in(root: Path, lesson: str) -> Path:
    """The file that keeps the results of this lesson while it is graded again."""
    return root / f"before_regrading_{lesson}.json"


def kept(path: Path) -> dict[str, State]:
    """Student -> the state that stood before; empty where nothing is being graded again."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def keep(path: Path, states: Mapping[str, State]) -> None:
    """Keep these states, whole or not at all. Where one of the same submitted file is kept already, that one stays."""
    before = kept(path)
    older = {
        student: before[student]
        for student in before.keys() & states.keys()
        if before[student]["digest"] == states[student]["digest"]
    }
    results.write_json(path, {**before, **states, **older})


def settle(path: Path, unfinished: Sequence[str]) -> None:
    """Forget what stood before, but for these students: they have no new result yet."""
    left = {student: state for student, state in kept(path).items() if student in unfinished}
    if left:
        results.write_json(path, left)
    else:
        path.unlink(missing_ok=True)


# ---------------------------------------------------------------- before and after


def pairs(before: Mapping[str, State], now: Mapping[str, State | None]) -> list[tuple[Entry, Entry]]:
    """The results before and now of every student whose submitted file is the same one."""
    both = [(before[student], now[student]) for student in sorted(before) if now.get(student)]
    return [(old["result"], new["result"]) for old, new in both if old["digest"] == new["digest"]]


def reasons(before: Entry, after: Entry) -> list[tuple[str, str]]:
    """Why points changed: (name of the exercise, what changed there). Empty where no points of any exercise did.

    The name is empty where the reason is about the submission as a whole.
    """
    if before["status"] != after["status"]:
        why = f"{before['status']} before, {after['status']} now. {after['reason']}".strip()
        return [("", why)] if before["points"] != after["points"] else []
    old, new = ({e["name"]: e for e in entry["exercises"]} for entry in (before, after))
    return [
        (name, text)
        for name in {**new, **old}
        if _points(old.get(name)) != _points(new.get(name))
        for text in _of_exercise(old.get(name), new.get(name))
    ]


def _of_exercise(was: Entry | None, now: Entry | None) -> Iterator[str]:
    if was is None:
        yield f"a new exercise, {_given(now)}"
    elif now is None:
        yield f"the exercise is gone; it gave {_given(was)}"
    else:
        old, new = ({p["name"]: p for p in exercise["properties"]} for exercise in (was, now))
        for name in {**new, **old}:
            yield from _of_property(name, old.get(name), new.get(name))


def _of_property(name: str, was: Entry | None, now: Entry | None) -> Iterator[str]:
    if was is None:
        yield f"“{name}” is new and {'holds' if now['passed'] else 'does not hold'}, {_given(now)}"
    elif now is None:
        yield f"“{name}” is gone; it gave {_given(was)}"
    elif was["passed"] != now["passed"]:
        yield f"“{name}” {'holds now' if now['passed'] else 'no longer holds'}, {_given(was)} → {_given(now)}"
    elif was["points"] != now["points"]:
        yield f"“{name}” counts differently, {_given(was)} → {_given(now)}"


def _points(given: Entry | None) -> float:
    return given["points"] if given else 0.0


def _given(given: Entry) -> str:
    return f"{number(given['points'])} of {number(given['max_points'])}"
