"""The table of a class, and the line that is said about each problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from autograder import isolation, regrading
from autograder.lessons import Lesson
from autograder.sanitize import one_line
from course.report import number

WIDTH = 150  # of the table where the output is no terminal


def console() -> Console:
    """Where progress and tables go."""
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)


def progress(console: Console) -> Progress:
    """A bar with the number of submissions done, the states so far, the rate and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[states]}"),
        Rate(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, auto_refresh=False)  # no thread beside the workers' forks


class Rate(ProgressColumn):
    """How many submissions a minute, of late."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{60 * speed:.0f} a minute" if speed else "")


def shown(entries: Sequence[Mapping[str, Any]], lesson: Lesson, console: Console) -> list[Table | str]:
    """The table of a class as it fits the screen; on a narrow one the named mistakes follow as lines."""
    entries = sorted(entries, key=lambda entry: entry["student"])
    wide = table(entries, lesson)
    needed = Measurement.get(console, console.options.update(max_width=1000), wide).minimum
    if needed <= console.width:
        return [wide]
    lines = [
        f"{one_line(entry['student'], 40)}: {', '.join(mistakes(entry, lesson))}"
        for entry in entries
        if mistakes(entry, lesson)
    ]
    return [table(entries, lesson, narrow=True), *(["Named mistakes:", *lines] if lines else [])]


def table(entries: Sequence[Mapping[str, Any]], lesson: Lesson, narrow: bool = False) -> Table:
    """Points for each exercise, the sum, the state and the named mistakes, one row a student.

    narrow : without rules between the columns, and without the named mistakes.
    """
    layout = {"box": SIMPLE_HEAD, "padding": 0, "pad_edge": False} if narrow else {}
    made = Table(title=f"{lesson.name}: {len(entries)} submissions", **layout)
    made.add_column("student", overflow="fold", min_width=8)
    for exercise in lesson.exercises:
        made.add_column(f"{exercise.number}\nof {exercise.points}", justify="right", no_wrap=True)
    made.add_column(f"sum\nof {number(lesson.max_points)}", justify="right", no_wrap=True)
    made.add_column("state", no_wrap=True)
    if not narrow:
        made.add_column("named mistakes", overflow="fold", min_width=20)
    for entry in entries:
        points = {exercise["name"]: exercise["points"] for exercise in entry["exercises"]}
        cells = [number(points[e.name]) if e.name in points else "–" for e in lesson.exercises]
        cells += [number(entry["points"]), entry["status"]]
        named = [] if narrow else [Text(", ".join(mistakes(entry, lesson)))]
        made.add_row(Text(one_line(entry["student"], 40)), *cells, *named)
    return made


def mistakes(entry: Mapping[str, Any], lesson: Lesson) -> list[str]:
    """The named mistakes of a submission, each with the number of its exercise."""
    numbers = {exercise.name: exercise.number for exercise in lesson.exercises}
    return [f"{numbers[e['name']]} {e['mistake']}" for e in entry["exercises"] if e["mistake"]]


def counts(entries: Sequence[Mapping[str, Any]]) -> str:
    """How many submissions ended in each state, in words."""
    states = [entry["status"] for entry in entries]
    return ", ".join(f"{states.count(state)} {state}" for state in ("graded", "refused", "fault"))


def summary(entries: Sequence[Mapping[str, Any]]) -> str:
    """The line below a table: the states, and how well submissions were shut in."""
    return f"{counts(entries)}; {isolation.described(isolation.level())}"


def regraded(pairs: Sequence[tuple[Mapping, Mapping]], lesson: Lesson) -> list[Table | str]:
    """Who gains and who loses, and why, of the submissions that were graded again; then one line in numbers.

    pairs : the entries before and after of each.
    """
    changed = [(before, after) for before, after in pairs if regrading.reasons(before, after)]
    changed.sort(key=lambda pair: _gain(*pair))
    line = f"Graded again because the grader or the lesson changed: {len(pairs)}; "
    if not changed:
        return [line + "no points changed"]
    gains = [_gain(*pair) for pair in changed]
    up, down = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    same = f", {gains.count(0)} with other points but the same sum" if 0 in gains else ""
    return [_regraded_table(changed, lesson), f"{line}{up} gain, {down} lose{same}"]


def _gain(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    return round(after["points"] - before["points"], 6)


def _regraded_table(changed: Sequence[tuple[Mapping, Mapping]], lesson: Lesson) -> Table:
    numbers = {exercise.name: f"{exercise.number} " for exercise in lesson.exercises}
    made = Table(title=f"{lesson.name}: points that changed", show_lines=True)
    made.add_column("student", overflow="fold")
    for heading in ("before", "after", "change"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("why", overflow="fold")
    for before, after in changed:
        gain = _gain(before, after)
        why = (
            one_line(f"{numbers.get(name, '')}{name}: {text}" if name else text, 300)
            for name, text in regrading.reasons(before, after)
        )
        made.add_row(
            Text(one_line(after["student"], 40)),
            *(f"{number(entry['points'])} of {number(entry['max_points'])}" for entry in (before, after)),
            f"{'+' if gain > 0 else ''}{number(gain)}",
            Text("\n".join(why)),
        )
    return made


def graded_line(entry: Mapping[str, Any]) -> str:
    """One line about a submission that was graded."""
    named = ", ".join(f"{e['name']}: {e['mistake']}" for e in entry["exercises"] if e["mistake"])
    points = f"{number(entry['points'])} of {number(entry['max_points'])} points"
    return one_line(f"graded: {entry['path']}: {points}{f' ({named})' if named else ''}", 300)


def problem(entry: Mapping[str, Any]) -> str:
    """One line about a submission that was not graded."""
    return one_line(f"{entry['status']}: {entry['path']}: {entry['reason']}", 300)
