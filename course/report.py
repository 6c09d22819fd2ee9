"""A verdict as a page that a person reads: HTML and its plain-text twin, from the same parts.

Readable without colour and by a screen reader: every mark is also a word. What the student's own
code printed or raised is text here, never markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from course.compare import Difference
from course.marking import ONLY_CHANGED, SINGLE_PRECISION, SINGLE_PROPERTY, Finding, Verdict
from course.questions import Call, Failure, Given, Own, Raises, Rng

OUTCOMES = {
    "correct": ("✓", "correct"),
    "partial": ("◐", "partly right"),
    "incorrect": ("✗", "not right yet"),
    "not attempted": ("–", "not attempted"),
    "open": ("–", "graded on submission"),
}
ROWS, COLUMNS = 6, 6  # of an array that are shown
SMALL = 16  # entries up to which an input is shown whole
INPUT_LINES = 8  # of calls and inputs in all
WORDS = 80  # of a finding's sentences
LEFT = 'style="text-align: left"'  # Jupyter puts what stands in a table to the right


@dataclass(frozen=True)
class Table:
    """Two arrays side by side, as texts; `at` is the place of the first difference in them."""

    yours: list[list[str]]
    expected: list[list[str]]
    at: tuple[int, int] | None
    cut: bool


# ---------------------------------------------------------------- the whole report


def text(verdict: Verdict) -> str:
    """The report as plain text."""
    lines = [headline(verdict)]
    lines += ["", *sentences(verdict)] if sentences(verdict) else []
    if verdict.finding:
        lines += _input_lines(verdict.finding, verdict.name)
        table = _table(verdict.finding.difference)
        lines += _table_lines(table) if table else []
    lines += ["", *(_property_line(result) for result in verdict.properties)]
    return "\n".join(lines + list(verdict.notes))


def html(verdict: Verdict) -> str:
    """The report as HTML: no script, no style that carries meaning."""
    parts = [f"<p><strong>{escape(headline(verdict))}</strong></p>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in sentences(verdict)]
    if verdict.finding:
        inputs = _input_lines(verdict.finding, verdict.name)
        parts += [f"<pre>{escape(chr(10).join(inputs))}</pre>"] if inputs else []
        table = _table(verdict.finding.difference)
        parts += [_table_html(table)] if table else []
    if verdict.properties:
        rows = "".join(_property_row(result) for result in verdict.properties)
        parts.append(
            f"<table><thead><tr><th></th><th {LEFT}>what must hold</th><th {LEFT}>points</th></tr></thead>{rows}</table>"
        )
    parts += [f"<p>{escape(note)}</p>" for note in verdict.notes]
    return "<div>" + "".join(parts) + "</div>"


def headline(verdict: Verdict) -> str:
    """One line: the outcome in words and the points."""
    mark, words = OUTCOMES[verdict.outcome]
    if verdict.outcome == "correct" and _still_open(verdict):
        words = "right so far"
    return f"{mark} {verdict.name}: {words}, {number(verdict.points)} of {number(verdict.max_points)} points"


def message(verdict: Verdict) -> str:
    """The sentences of the report in one line, for tables and JSON."""
    return " ".join(sentences(verdict))


def sentences(verdict: Verdict) -> list[str]:
    """What was seen, the likely cause, where to look: at most 80 words."""
    if verdict.outcome == "not attempted":
        return [
            f"{verdict.name} is still the stub. Replace the line that raises NotImplementedError with your own."
        ]
    if verdict.outcome == "open":
        return [
            "This one can only be judged on submission, or here once the earlier functions that it needs are right."
        ]
    if verdict.finding is None:
        rest = "All that can be checked here is right; the rest is graded on submission."
        return [rest] if _still_open(verdict) else []
    cause = [f"Likely cause: {verdict.cause}"] if verdict.cause else []
    what = _called_too_often(verdict.finding, verdict.name) or describe(
        verdict.finding.difference, verdict.name
    )
    seen = f"Seen while testing “{verdict.finding.property}”: {what}"
    last = [*cause, *_single_precision(verdict)]
    return [_at_most(seen, WORDS - len(" ".join(last).split())), *last]


def _still_open(verdict: Verdict) -> bool:
    return any(result.passed is None for result in verdict.properties)


def _single_precision(verdict: Verdict) -> list[str]:
    """Why properties that hold lost points, where the cause of something else is told."""
    lost = any(result.note == SINGLE_PROPERTY for result in verdict.properties)
    if not lost or verdict.mistake == SINGLE_PRECISION[0]:
        return []
    return ["What is computed in float32 (right to about seven digits) loses points too. Stay in float64."]


def _at_most(sentence: str, words: int) -> str:
    """The sentence, cut where it is longer."""
    parts = sentence.split()
    return sentence if len(parts) <= words else " ".join(parts[: words - 1]) + " …"


def number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


# ---------------------------------------------------------------- the difference, in words


def describe(found: Difference, name: str) -> str:
    """The difference in one or two sentences."""
    where = _part(found.path)
    if isinstance(found.given, Failure):
        return describe_failure(found.given, name, found.expected)
    if found.kind == "no failure":
        error = found.expected.error if isinstance(found.expected, Raises) else "an error"
        return f"here {name} must raise {error}, but it returned {_kind(found.given)}."
    if found.kind == "type":
        if found.given is None:
            return f"{where or name} returned None. Is the return line missing? Printing is not returning."
        return f"{where or 'it'} is {_kind(found.given)}; {_kind(found.expected)} is due."
    if found.kind == "length":
        return f"{where or 'it'} has {len(found.given)} parts; {len(found.expected)} are due."
    if found.kind == "keys":
        due, came = ", ".join(map(str, found.expected)), ", ".join(map(str, found.given))
        return f"the keys are {came[:150] or 'none'}; due are {due}."
    if found.kind == "shape":
        return f"{where or 'the result'} has shape {_shape(found.given)}; {_shape(found.expected)} is due."
    if found.path == ONLY_CHANGED:
        return (
            f"the answer is right, but {name} changed what it was given. Signs such as += and x[0] = do that."
        )
    return _describe_value(found, where)


def describe_failure(failure: Failure, name: str, expected: Any = None) -> str:
    """Why there was no answer, in a sentence, with the student's own line where there is one."""
    if failure.kind == "missing":
        return f"there is no {name} in this notebook. Run the cell that defines it, and keep its name."
    if failure.kind == "exception":
        error = failure.error.split(" < ")[0]
        said = f": {failure.message}" if failure.message else ""
        at = f" The line is `{failure.line}`." if failure.line else ""
        if isinstance(expected, Raises):
            return f"here a {expected.error} is due; it stopped with {error}{said}.{at}"
        return f"it stopped with {error}{said}.{at}"
    if failure.kind == "time-out":
        return f"{failure.message}. Does a loop never end, or does the work grow too fast?"
    if failure.kind == "not attempted":
        return "a part of it is still the stub (NotImplementedError)."
    return failure.message + "."


_TOO_OFTEN = re.compile(r"a function was called more than (\d+) times")


def _called_too_often(finding: Finding, name: str) -> str:
    """The sentence where the answer used up the calls of the functions among its arguments; nothing otherwise."""
    failure = finding.difference.given
    found = _TOO_OFTEN.fullmatch(failure.message) if isinstance(failure, Failure) else None
    if not found:
        return ""
    (call, *_) = finding.question.calls
    named = dict(zip(finding.parameters, call.args)) | dict(call.kwargs)
    functions = [label for label, value in named.items() if _holds_function(value)]
    at = f" The line is `{failure.line}`." if failure.line else ""
    return (
        f"{name} called {' and '.join(functions)} more than {found[1]} times for one answer; no more are allowed."
        f"{at} Call it once for each input that you need, and keep what it returned in a variable."
    )


def _holds_function(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_holds_function, value))
    return isinstance(value, Given | Own) or callable(value)


def _describe_value(found: Difference, where: str) -> str:
    given, expected = found.given, found.expected
    if not isinstance(expected, np.ndarray):
        return f"{where or 'it'} is {_short(given)}; {_short(expected)} is due."
    mine, due = given[found.index], expected[found.index]
    shown = _digits(mine, due)
    if expected.ndim == 0:
        return f"{where or 'the result'} is {shown(mine)}; {shown(due)} is due."
    index = ", ".join(map(str, found.index))
    return f"{where + ': ' if where else ''}the first difference is at index [{index}]: {shown(mine)}, due is {shown(due)}."


def _part(path: str) -> str:
    """A path such as ['the answer'][0] in words."""
    words = []
    for piece in path.strip("[]").split("]["):
        if piece.startswith(("'", '"')):
            words.append(piece.strip("'\""))
        elif piece:
            words.append(f"part {piece} (counting from 0)")
    return ", ".join(words)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {_shape(value)}" if value.ndim else "a number"
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int | float):
        return "a number"
    names = {tuple: "a tuple", list: "a list", dict: "a dict", str: "text", type(None): "None"}
    return names.get(type(value), f"a {type(value).__name__}") + (
        f" of {len(value)} parts" if isinstance(value, tuple | list) else ""
    )


def _shape(array: np.ndarray) -> str:
    return str(tuple(int(n) for n in np.shape(array)))


def _digits(mine: Any, due: Any):
    """A format with enough digits to show that two numbers differ."""
    if "b" in (np.asarray(mine).dtype.kind, np.asarray(due).dtype.kind):
        return str
    for digits in (4, 6, 9, 12, 17):
        if f"{mine:.{digits}g}" != f"{due:.{digits}g}":
            break
    return lambda value: f"{value:.{digits}g}"


# ---------------------------------------------------------------- the input


def _input_lines(finding: Finding, name: str) -> list[str]:
    """The calls of the case that went wrong, with their inputs where they are small."""
    calls: list[str] = []
    inputs: dict[str, list[str]] = {}
    for number, call in enumerate(_distinct(finding.question.calls), 1):
        known = len(finding.parameters)
        labels = [*finding.parameters, *(f"argument {i + 1}" for i in range(known, len(call.args)))]
        shown = [_shown(label, value, number, inputs) for label, value in zip(labels, call.args)]
        shown += [f"{label}={_shown(label, value, number, inputs)}" for label, value in call.kwargs.items()]
        calls.append(f"{name}({', '.join(shown)})")
    return _first_lines([*calls, *(line for lines in inputs.values() for line in lines)])


def _shown(label: str, value: Any, number: int, inputs: dict[str, list[str]]) -> str:
    """How a call shows an argument: in short, or by a label under which its lines are put among the inputs."""
    lines = _value_lines(label, value)
    if not lines:
        return _short(value)
    if inputs.get(label, lines) != lines:  # an earlier call had another array here
        label = f"{label}_{number}"
        lines = _value_lines(label, value)
    inputs[label] = lines
    return label


def _first_lines(lines: list[str]) -> list[str]:
    """The lines; where they are too many, the first ones and a line that says how many are left out."""
    if len(lines) <= INPUT_LINES:
        return lines
    shown = lines[: INPUT_LINES - 1]
    return [*shown, f"… ({len(lines) - len(shown)} more lines of inputs, not shown)"]


def _distinct(calls: Sequence[Call]) -> list[Call]:
    seen: list[Call] = []
    for call in calls:
        if not any(call is other for other in seen):
            seen.append(call)
    return seen


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if not value.ndim:
            return str(value)
        return f"{value.dtype} array {_shape(value)}"
    if isinstance(value, Given):
        return f"function {value.name}"
    if isinstance(value, Own):
        return f"your {value.name}"
    if isinstance(value, Rng):
        return f"np.random.default_rng({value.seed})"
    if callable(value):
        return "a function"
    if isinstance(value, tuple | list):
        inner = ", ".join(_short(item) for item in value[:3]) + (", …" if len(value) > 3 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value)[:60]


def _value_lines(label: str, value: Any) -> list[str]:
    """An array that is small enough to be read, as lines; nothing otherwise."""
    if not isinstance(value, np.ndarray) or not value.ndim or value.size > SMALL:
        return []
    lines = np.array2string(value, precision=4, separator=", ", max_line_width=90).splitlines()
    return [f"{label} = {lines[0]}", *(" " * (len(label) + 3) + line for line in lines[1:])]


# ---------------------------------------------------------------- yours beside expected


def _table(found: Difference) -> Table | None:
    given, expected = found.given, found.expected
    if found.kind != "value" or not isinstance(expected, np.ndarray) or expected.ndim == 0:
        return None
    mine, due, at = _plane(given, found.index), _plane(expected, found.index), found.index[-2:]
    row, column = at if len(at) == 2 else (0, at[0])
    top = max(0, min(row - ROWS // 2, mine.shape[0] - ROWS))
    left = max(0, min(column - COLUMNS // 2, mine.shape[1] - COLUMNS))
    window = np.s_[top : top + ROWS, left : left + COLUMNS]
    shown = _digits(given[found.index], expected[found.index])
    cells = [[[shown(entry) for entry in line] for line in plane[window]] for plane in (mine, due)]
    cut = expected.size > cells_in(cells[0])
    return Table(cells[0], cells[1], (row - top, column - left), cut)


def cells_in(rows: list[list[str]]) -> int:
    return sum(len(row) for row in rows)


def _plane(array: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """The last two axes of an array at an index; a row as a matrix of one row."""
    return array[index[:-2]] if array.ndim >= 2 else array[np.newaxis, :]


def _table_lines(table: Table) -> list[str]:
    yours, expected = (_marked(rows, table.at, "*", "*") for rows in (table.yours, table.expected))
    width = max(len(cell) for rows in (yours, expected) for row in rows for cell in row)
    left = ["  ".join(cell.rjust(width) for cell in row) for row in yours]
    right = ["  ".join(cell.rjust(width) for cell in row) for row in expected]
    column = max(len("yours"), *(len(line) for line in left))
    lines = [f"{'yours'.ljust(column)}  |  expected"]
    lines += [f"{mine.ljust(column)}  |  {due}" for mine, due in zip(left, right)]
    return [
        *lines,
        "(a part of the array; the first difference is between stars)"
        if table.cut
        else "(the first difference is between stars)",
    ]


def _table_html(table: Table) -> str:
    columns = len(table.yours[0])
    head = f'<tr><th colspan="{columns}">yours</th><th></th><th colspan="{columns}">expected</th></tr>'
    yours = _marked([[escape(c) for c in row] for row in table.yours], table.at, "<mark>*", "*</mark>")
    expected = _marked([[escape(c) for c in row] for row in table.expected], table.at, "<mark>*", "*</mark>")
    rows = ""
    for mine, due in zip(yours, expected):
        rows += "<tr>" + "".join(f"<td>{c}</td>" for c in mine) + "<td>|</td>"
        rows += "".join(f"<td>{c}</td>" for c in due) + "</tr>"
    cut = "A part of the array. " if table.cut else ""
    return f'<table style="margin-top: 1em"><thead>{head}</thead>{rows}</table><p>{cut}The first difference is between stars.</p>'


def _marked(rows: list[list[str]], at: tuple[int, int] | None, before: str, after: str) -> list[list[str]]:
    return [
        [f"{before}{cell}{after}" if (r, c) == at else cell for c, cell in enumerate(row)]
        for r, row in enumerate(rows)
    ]


# ---------------------------------------------------------------- points


def _property_parts(result: Any) -> tuple[str, str, str]:
    mark = {True: "✓ yes", False: "✗ no", None: "– later"}[result.passed]
    note = f" ({result.note})" if result.note else ""
    return mark, result.name + note, f"{number(result.points)} of {number(result.max_points)}"


def _property_line(result: Any) -> str:
    mark, name, points = _property_parts(result)
    return f"{mark:<8}{name}: {points}"


def _property_row(result: Any) -> str:
    return "<tr>" + "".join(f"<td {LEFT}>{escape(part)}</td>" for part in _property_parts(result)) + "</tr>"
