"""What became of a submission, as plain JSON data: the same for the command line, the gradebook and the class table."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autograder import isolation
from autograder.exercise import Exercise
from autograder.grading import Graded
from course import report
from course.marking import Verdict

VERSION = 1


def graded(path: str, student: str, lesson: str, result: Graded) -> dict[str, Any]:
    """The entry of a submission that was graded."""
    exercises = [_exercise(verdict) for verdict in result.verdicts]
    return {
        "path": path,
        "student": student,
        "lesson": lesson,
        "status": "graded",
        "reason": "",
        "isolation": result.isolation,
        "seed": result.seed,
        "seconds": round(result.seconds, 3),
        "points": _sum(exercise["points"] for exercise in exercises),
        "max_points": _sum(exercise["max_points"] for exercise in exercises),
        "exercises": exercises,
    }


def ungraded(
    status: str, path: str, student: str, lesson: str | None, reason: str, exercises: Sequence[Exercise] = ()
) -> dict[str, Any]:
    """The entry of a submission that was not graded. status : "refused" or "fault"; exercises : those of its lesson."""
    return {
        "path": path,
        "student": student,
        "lesson": lesson,
        "status": status,
        "reason": reason,
        "isolation": isolation.level(),
        "seed": None,
        "seconds": 0.0,
        "points": 0.0,
        "max_points": _sum(exercise.points for exercise in exercises),
        "exercises": [],
    }


def _exercise(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "points": verdict.points,
        "max_points": verdict.max_points,
        "outcome": verdict.outcome,
        "mistake": verdict.mistake,
        "message": report.message(verdict),
        "properties": [
            {"name": p.name, "passed": bool(p.passed), "points": p.points, "max_points": p.max_points}
            for p in verdict.properties
        ],
    }


def _sum(points: Iterable[float]) -> float:
    return round(sum(points), 6)


def document(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries as one JSON object."""
    return {"version": VERSION, "submissions": list(entries)}


def write(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write the entries as JSON, all or nothing."""
    write_json(path, document(entries))


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a JSON object, all or nothing."""
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    descriptor, made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.chmod(made, 0o644)
    os.replace(made, path)
