"""The cells of an instructor's notebook, made from the chunks of a lesson and the declarations.

Every cell says in `metadata["course"]` what it is (its role and name); `metadata["nbgrader"]` holds
only what nbgrader's schema 3 knows. A chunk becomes one or more cells that belong together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import nbformat.v4
from nbformat import NotebookNode

from autograder.build import solutions
from autograder.build.faults import BuildError
from autograder.build.lesson_text import LETTERS, Chunk, quiz_parts, toolbox_names, written_parts
from autograder.exercise import Exercise
from autograder.exercises import all_exercises

GO_ON = "raises-exception"  # Run All goes on past a cell with this tag


def cells_of(
    chunk: Chunk, lesson: Sequence[Chunk], definitions: dict[str, str] | None = None
) -> list[NotebookNode]:
    """The cells that a chunk becomes.

    lesson      : all chunks, for the overview.
    definitions : texts of reference functions that replace those of the declarations.
    """
    made = _MAKERS[chunk.kind](chunk, lesson, definitions or {})
    for cell in made:
        if chunk.tags:
            cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), *chunk.tags})
    return made


def definition_of(name: str, definitions: dict[str, str]) -> str:
    """The text of a reference function, checked for names that a student's notebook does not have."""
    exercise = exercise_named(name)
    text = definitions.get(name) or solutions.definition(exercise.reference_function)
    foreign = solutions.foreign_names(text) - _may_call(exercise)
    if foreign:
        raise BuildError(
            f"the reference of {name} uses {', '.join(sorted(foreign))}, which a student's notebook does not have; "
            "an earlier function of the course belongs into builds_on"
        )
    return text


def exercise_named(name: str) -> Exercise:
    if name not in all_exercises():
        raise BuildError(f"no exercise of this name is declared: {name}")
    return all_exercises()[name]


def _may_call(exercise: Exercise) -> set[str]:
    """The student's earlier functions that stand in the same notebook, or are pasted there."""
    lesson = exercise.number.split(".")[0]
    return {name for name, e in all_exercises().items() if e.number.split(".")[0] == lesson}.union(
        exercise.builds_on
    )


# ---------------------------------------------------------------- one maker for each kind of chunk


def _prose(chunk: Chunk, *_: Any) -> list[NotebookNode]:
    return [_markdown(_hashed("prose", chunk.source), "prose", "", chunk.source)]


def _code(chunk: Chunk, *_: Any) -> list[NotebookNode]:
    return [_python(_hashed("code", chunk.source), "code", "", chunk.source)]


def _exploration(chunk: Chunk, *_: Any) -> list[NotebookNode]:
    return [_python(f"explore-{chunk.name}", "exploration", chunk.name, chunk.source)]


def _overview(chunk: Chunk, lesson: Sequence[Chunk], *_: Any) -> list[NotebookNode]:
    exercises = [exercise_named(c.name) for c in lesson if c.kind == "exercise"]
    core = [e for e in exercises if e.core]
    rows = [
        "| exercise | what you write | kind | difficulty | minutes | points |",
        "|---|---|---|---|--:|--:|",
        *(
            f"| {e.number} | `{e.name}`: {e.title} | {_core(e)} | {e.difficulty} of 5 | {e.minutes} | {e.points} |"
            for e in exercises
        ),
        _sum_row("core exercises together", core),
        _sum_row("all exercises together", exercises),
    ]
    written = [c for c in lesson if c.kind == "written"]
    after = [
        f"One written question, read by a person, is worth {points_in_words(c.points)} more." for c in written
    ]
    return [_markdown("overview", "overview", "", "\n".join([*rows, *([""] if after else []), *after]))]


def _exercise(chunk: Chunk, _lesson: Sequence[Chunk], definitions: dict[str, str]) -> list[NotebookNode]:
    exercise = exercise_named(chunk.name)
    name = exercise.name
    heading = _markdown(f"heading-{name}", "exercise-heading", name, _heading(exercise))
    solution = _python(name, "solution", name, solutions.as_cell(definition_of(name, definitions)))
    solution.metadata["nbgrader"] = _nbgrader(name, solution=True)
    check = _python(f"check_{name}", "check", name, f'check("{name}")')
    check.metadata["nbgrader"] = _nbgrader(f"check_{name}", locked=True, points=exercise.points)
    check.metadata["tags"] = [GO_ON]
    return [heading, solution, check]


def _toolbox(chunk: Chunk, _lesson: Sequence[Chunk], definitions: dict[str, str]) -> list[NotebookNode]:
    names = toolbox_names(chunk)
    bodies = "\n\n\n".join(definition_of(name, definitions) for name in names)
    where = " and ".join(f"{name} (exercise {exercise_named(name).number})" for name in names)
    source = f"# Paste your own {where} here, in place of the lines below.\n{solutions.BEGIN}\n{bodies}\n{solutions.END}"
    id = f"toolbox-{'-'.join(names)}"
    paste = _python(id if len(id) <= 64 else _hashed("toolbox", chunk.name), "toolbox", chunk.name, source)
    paste.metadata["nbgrader"] = _nbgrader(paste.id, solution=True)
    checks = [
        _python(f"{_hashed('toolbox', chunk.name)}-{i}", "toolbox", chunk.name, f'check("{name}")')
        for i, name in enumerate(names)
    ]
    for cell in [paste, *checks]:
        cell.metadata["tags"] = [GO_ON]
    return [paste, *checks]


def _quiz(chunk: Chunk, *_: Any) -> list[NotebookNode]:
    question, options = quiz_parts(chunk)
    lines = [f"- **{letter}** {option.text}" for letter, option in zip(LETTERS, options)]
    text = question + "\n\n" + "\n".join(lines)
    return [
        _markdown(f"quiz-{chunk.name}", "quiz", chunk.name, text),
        _python(f"quiz-{chunk.name}-answer", "quiz", chunk.name, f'quiz("{chunk.name}", "")'),
    ]


def _written(chunk: Chunk, *_: Any) -> list[NotebookNode]:
    question, rubric = written_parts(chunk)
    answer = _markdown(chunk.name, "written", chunk.name, f"{solutions.BEGIN}\n{rubric}\n{solutions.END}")
    answer.metadata["nbgrader"] = _nbgrader(chunk.name, solution=True, points=chunk.points)
    text = question + written_note(chunk.points)
    return [_markdown(f"written-{chunk.name}", "written", chunk.name, text), answer]


_MAKERS = {
    "prose": _prose,
    "code": _code,
    "explore": _exploration,
    "overview": _overview,
    "exercise": _exercise,
    "toolbox": _toolbox,
    "quiz": _quiz,
    "written": _written,
}


# ---------------------------------------------------------------- words


def _heading(exercise: Exercise) -> str:
    facts = [
        f"**{_core(exercise).capitalize()}**",
        f"difficulty {exercise.difficulty} of 5",
        f"about {exercise.minutes} minutes",
        points_in_words(exercise.points),
    ]
    lines = [
        f"### {exercise.number} `{exercise.name}`: {exercise.title}",
        " · ".join(facts),
        f"{exercise.why} {exercise.budget}",
    ]
    if exercise.builds_on:
        earlier = " and ".join(f"`{name}`" for name in exercise.builds_on)
        lines.append(f"It builds on your own {earlier}.")
    lines.append(f'Stuck? Run `hint("{exercise.name}")` in a cell of your own.')
    return "\n\n".join(lines)


def _core(exercise: Exercise) -> str:
    return "core" if exercise.core else "stretch"


def _sum_row(what: str, exercises: Sequence[Exercise]) -> str:
    minutes, points = sum(e.minutes for e in exercises), sum(e.points for e in exercises)
    return f"| | **{what}** | | | **{minutes}** | **{points}** |"


def written_note(points: float | None) -> str:
    """What stands under a written question."""
    return f"\n\n*A person reads your answer: {points_in_words(points)}. Write it in the next cell.*"


def points_in_words(points: float | None) -> str:
    return f"{points:g} point{'' if points == 1 else 's'}"


# ---------------------------------------------------------------- cells


def _markdown(id: str, role: str, name: str, source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source, id=id, metadata={"course": _course(role, name)})


def _python(id: str, role: str, name: str, source: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(source, id=id, metadata={"course": _course(role, name)})


def _course(role: str, name: str) -> dict[str, str]:
    return {"role": role, "name": name} if name else {"role": role}


def _nbgrader(
    grade_id: str, *, solution: bool = False, locked: bool = False, points: float | None = None
) -> dict:
    """The metadata of nbgrader's schema 3; a cell with points is graded."""
    metadata = {
        "grade": points is not None,
        "grade_id": grade_id,
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return metadata if points is None else {**metadata, "points": points}


def _hashed(role: str, source: str) -> str:
    """An id that the text of the cell decides."""
    return f"{role}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
