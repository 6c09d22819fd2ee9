"""Mark the answers to a sheet of questions: points per property, the cause of a wrong answer, one finding.

The sheet is the same thing in class and at home. A judge draws it fresh from a secret seed; the
course ships one, drawn from a public seed, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course.compare import TOLERANCE, Difference, Tolerance, difference
from course.questions import Answer, Failure, Question, Raises, View
from course.views import CHANGED_INPUTS

SINGLE_PRECISION_SHARE = 0.75  # of a property's points, for work in float32
SINGLE_PRECISION = (
    "single-precision",
    "The numbers are right to about seven digits: something is computed in float32 or rounded. Stay in float64.",
)
SINGLE_PROPERTY = "computed in float32"
OPEN_PROPERTY = "graded on submission"
# what a mistake answers that is wrong by rounding only, so near the right numbers
NOISE = Failure("rounding noise", "")
NEAR = Tolerance(0.05, relative=True)
ONLY_CHANGED = f"[{CHANGED_INPUTS!r}]"  # the path of a difference where the answer itself is right


@dataclass(frozen=True)
class Property:
    """Something that must hold, in words a student reads, and what it is worth.

    needs_values : trivial answers share it (or its numbers are public), so it counts only once a
                   property that is about fresh values holds.
    chaotic      : the wrong numbers depend on rounding (cancellation): a named mistake is
                   recognised here by being wrong too, not by its numbers.
    """

    name: str
    points: float
    needs_values: bool = False
    chaotic: bool = False
    tolerance: Tolerance = Tolerance()


@dataclass(frozen=True)
class Item:
    """A question of a sheet, with the property it belongs to and what the reference gives.

    expected is a view of the reference's answer, a Raises, or None with `open` set where the
    question can be asked only by a judge.
    """

    property: str
    question: Question
    expected: Any = None
    view: View = View()
    open: bool = False


@dataclass(frozen=True)
class Sheet:
    """All that is needed to mark one exercise once.

    mistakes : id -> the sentence that tells a student the cause, in order of precedence.
    """

    name: str
    parameters: tuple[str, ...]
    properties: tuple[Property, ...]
    items: tuple[Item, ...]
    mistakes: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_points(self) -> float:
        return round(sum(p.points for p in self.properties), 6)

    @property
    def chaotic(self) -> frozenset[str]:
        """The names of the properties whose wrong numbers depend on rounding."""
        return frozenset(p.name for p in self.properties if p.chaotic)


@dataclass(frozen=True)
class PropertyResult:
    """What became of one property. passed is None where it was not judged yet."""

    name: str
    passed: bool | None
    points: float
    max_points: float
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """The smallest case found that goes wrong; `parameters` name the positional arguments of its calls."""

    property: str
    question: Question
    difference: Difference
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of one exercise.

    outcome : "correct", "partial", "incorrect", "not attempted", or "open" where nothing could be judged.
    mistake : the stable id of the named mistake that explains the answers, or None.
    cause   : its sentence, or a general one.
    """

    name: str
    outcome: str
    points: float
    max_points: float
    properties: tuple[PropertyResult, ...] = ()
    mistake: str | None = None
    cause: str = ""
    finding: Finding | None = None
    notes: tuple[str, ...] = ()


def viewed(look, answers: Sequence[Answer], question: Question, own: Mapping[str, Any]) -> Any:
    """What the view makes of the answers to one question; the failure itself where one call failed."""
    failed = next((answer.failure for answer in answers if answer.failure), None)
    if failed:
        return failed
    try:
        return look(answers, question, **own)
    except Exception as error:  # the answer has a form that the view cannot use
        return Failure("malformed", f"the answer cannot be used: {error}", type(error).__name__)


def mark(
    sheet: Sheet,
    given: Sequence[Any],
    answers: Sequence[Sequence[Answer]],
    wrong: Mapping[str, Iterable[Any]],
) -> Verdict:
    """Mark one exercise.

    given   : for each item of the sheet, the view of what the student's function answered.
    answers : the answers themselves, for what was seen on the way (changed inputs, prints).
    wrong   : mistake id -> for each item, what that mistake answers. Read only where needed.
    """
    differences = [
        None if item.open else difference(view, item.expected, tolerance_of(sheet, item))
        for item, view in zip(sheet.items, given)
    ]
    if _not_attempted([view for item, view in zip(sheet.items, given) if not item.open]):
        return Verdict(
            sheet.name,
            "not attempted",
            0.0,
            sheet.max_points,
            tuple(PropertyResult(p.name, False, 0.0, p.points) for p in sheet.properties),
        )
    results = _property_results(sheet, differences)
    points = min(sheet.max_points, round(sum(r.points for r in results), 6))
    finding = _finding(sheet, differences)
    judged = [r for r in results if r.passed is not None]
    steady = [d for item, d in zip(sheet.items, differences) if item.property not in sheet.chaotic]
    single = finding is not None and any(steady) and all(d is None or d.single for d in steady)
    mistake = None
    if finding and _answered(given) and not (single and _stored_single(finding)):
        mistake = named_mistake(sheet, given, differences, wrong)
    cause = sheet.mistakes[mistake] if mistake else ""
    if finding and not mistake and single:
        mistake, cause = SINGLE_PRECISION
    outcome = (
        "open"
        if not judged
        else "correct"
        if all(r.passed and not r.note for r in judged)
        else "partial"
        if points > 0
        else "incorrect"
    )
    return Verdict(
        sheet.name, outcome, points, sheet.max_points, results, mistake, cause, finding, _notes(answers)
    )


def _answered(given: Sequence[Any]) -> bool:
    """Whether there is any answer that a mistake could explain."""
    return any(not isinstance(view, Failure) or view.kind not in ("missing", "no answer") for view in given)


def tolerance_of(sheet: Sheet, item: Item) -> Tolerance:
    """How close an answer to this item must be."""
    return next(p.tolerance for p in sheet.properties if p.name == item.property)


def _not_attempted(given: Sequence[Any]) -> bool:
    kinds = {view.kind if isinstance(view, Failure) else "value" for view in given}
    return bool(kinds) and kinds <= {"not attempted", "missing", "unavailable"} and "not attempted" in kinds


def _property_results(sheet: Sheet, differences: Sequence[Difference | None]) -> tuple[PropertyResult, ...]:
    state = {p.name: _state(sheet, differences, p) for p in sheet.properties}
    value_states = [state[p.name] for p in sheet.properties if not p.needs_values]
    # where only a judge can ask for values, the rest must not wait for them
    values_hold = any(s in ("passed", "single") for s in value_states) or set(value_states) == {"open"}
    results = []
    for p in sheet.properties:
        now = state[p.name]
        if now == "open":
            results.append(PropertyResult(p.name, None, 0.0, p.points, OPEN_PROPERTY))
        elif now == "failed":
            results.append(PropertyResult(p.name, False, 0.0, p.points))
        elif p.needs_values and not values_hold:
            results.append(PropertyResult(p.name, False, 0.0, p.points, "counts once the values are right"))
        elif now == "single":
            results.append(
                PropertyResult(p.name, True, p.points * SINGLE_PRECISION_SHARE, p.points, SINGLE_PROPERTY)
            )
        else:
            results.append(PropertyResult(p.name, True, p.points, p.points))
    return tuple(results)


def _state(sheet: Sheet, differences: Sequence[Difference | None], p: Property) -> str:
    mine = [(item, d) for item, d in zip(sheet.items, differences) if item.property == p.name]
    if any(item.open for item, _ in mine) or not mine:
        return "open"
    if any(d is not None and not d.single for _, d in mine):
        return "failed"
    return "single" if any(d is not None for _, d in mine) else "passed"


def _finding(sheet: Sheet, differences: Sequence[Difference | None]) -> Finding | None:
    """The first real difference, in the order of the sheet: cases come smallest first.

    A right answer that changed its input goes before all others, which may only follow from it.
    """
    found = [(item, d) for item, d in zip(sheet.items, differences) if d is not None]
    found.sort(key=lambda pair: (pair[1].path != ONLY_CHANGED, pair[1].single))
    if not found:
        return None
    item, first = found[0]
    return Finding(item.property, item.question, first, sheet.parameters)


def _stored_single(finding: Finding) -> bool:
    dtype = getattr(finding.difference.given, "dtype", None)
    return dtype is not None and dtype.itemsize < 8


def named_mistake(
    sheet: Sheet,
    given: Sequence[Any],
    differences: Sequence[Difference | None],
    wrong: Mapping[str, Iterable[Any]],
) -> str | None:
    """The first mistake that answers every question just as the student did, if there is one."""
    for name in sheet.mistakes:
        if name in wrong and _explains(sheet, given, differences, wrong[name]):
            return name
    return None


def _explains(sheet: Sheet, given: Sequence[Any], differences: Sequence, answers: Iterable[Any]) -> bool:
    telling = 0
    for item, mine, mistaken, found in zip(sheet.items, given, answers, differences):
        if item.open:
            continue
        tolerance = tolerance_of(sheet, item)
        mistaken_here = difference(mistaken, item.expected, tolerance) is not None
        noise = isinstance(mistaken, Failure) and mistaken == NOISE
        if noise or item.property in sheet.chaotic:  # the wrong numbers are other ones on another machine
            if mistaken_here != (found is not None) or (noise and difference(mine, item.expected, NEAR)):
                return False
            telling += mistaken_here
        elif not _same(mine, mistaken, tolerance):
            return False
        else:
            telling += mistaken_here and _is_telling(mine, mistaken, item.expected)
    return telling > 0


def _is_telling(mine: Any, mistaken: Any, expected: Any) -> bool:
    """Two errors of one type say little where numbers are due; with one text they say as much as equal numbers."""
    return not isinstance(mine, Failure) or isinstance(expected, Raises) or mine.message == mistaken.message


def _same(mine: Any, mistaken: Any, tolerance: Tolerance) -> bool:
    if isinstance(mine, Failure) or isinstance(mistaken, Failure):
        return isinstance(mine, Failure) and isinstance(mistaken, Failure) and _same_failure(mine, mistaken)
    # last digits may differ, also where the right numbers must be exact
    close = Tolerance(10 * max(tolerance.value, TOLERANCE), tolerance.relative)
    return difference(mine, mistaken, close) is None


def _same_failure(mine: Failure, mistaken: Failure) -> bool:
    """Of the same kind; an unusable form or an error must also be the same one."""
    if mine.kind == "malformed":
        return mistaken.kind == "malformed" and mine.message == mistaken.message
    return mine.kind == mistaken.kind and mine.error == mistaken.error


def _notes(answers: Sequence[Sequence[Answer]]) -> tuple[str, ...]:
    seen = [answer for group in answers for answer in group]
    notes = []
    if any(answer.printed for answer in seen):
        notes.append("Your function prints. That is fine and costs nothing.")
    changed = sorted({name for answer in seen for name in answer.changed})
    if changed:
        notes.append("Your function changes its input: " + ", ".join(changed) + ". Work on a copy.")
    return tuple(notes)
