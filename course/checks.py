"""check(), and what a learner calls beside it: hint, quiz, own, reset, solution.

check asks the function that stands in the notebook the questions of a sheet and shows the marked
answers. Where the repository is at hand a judge runs in a process of its own (course.desk); in a
student's bundle the sheet is the numbers that the course ships.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from course import desk, report, shipped
from course.answering import answer_question
from course.marking import Verdict, mark, viewed
from course.questions import Answer, Failure

_passed: dict[str, Callable] = {}  # exercise -> the student's function that passed its last check
_attempted: set[str] = set()  # exercises whose own attempt was checked at least once
_hints_given: dict[str, int] = {}


class NotRight(Exception):
    """An exercise is not right yet. Jupyter shows one line of it and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Shown:
    """Something to display: HTML where it can be shown, plain text everywhere."""

    def __init__(self, text: str, html: str = ""):
        self.text, self.html = text, html

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str | None:
        return self.html or None


def check(what: str | Callable) -> None:
    """Check one exercise and show what is right, what is not, and why.

    what : the name of the function, such as "layer_norm", or the function itself.

    Raises NotRight where the answer is not right yet, so that Validate sees it; not where it is graded on
    submission only.
    """
    namespace = _callers_namespace()
    name = _exercise_name(what, namespace)
    function = namespace.get(name) if isinstance(what, str) else what
    outcome, points, max_points, text, html = _check(name, function, namespace)
    _passed.pop(name, None)
    if outcome == "correct":
        _passed[name] = function
    if outcome != "not attempted" and function is not None:
        _attempted.add(name)
    display(Shown(text, html))
    if outcome not in ("correct", "open"):
        words = report.OUTCOMES[outcome][1]
        raise NotRight(f"{name}: {words}, {report.number(points)} of {report.number(max_points)} points")


def _check(name: str, function: Any, namespace: Mapping[str, Any]) -> tuple[str, float, float, str, str]:
    if callable(function):
        judged = desk.check(name, {**namespace, name: function})
        if judged is not None:
            return judged
    verdict = shipped_verdict(name, function, namespace)
    return verdict.outcome, verdict.points, verdict.max_points, report.text(verdict), report.html(verdict)


def shipped_verdict(name: str, function: Any, namespace: Mapping[str, Any]) -> Verdict:
    """The verdict on a function from the numbers that the course ships."""
    numbers = shipped.load(name)
    failure = _cannot_ask(name, function)
    items, given, answers = [], [], []

    def own_function(other: str) -> Callable:
        return passing(other, namespace)

    for item in numbers.sheet.items:
        group: list[Answer] = []
        view: Any = None
        if failure:
            view = failure
        elif not item.open:
            if any(a.failure and a.failure.kind == "time-out" for a in (answers[-1] if answers else [])):
                group = answers[-1]
            else:
                group = answer_question(
                    function, item.question, own_function, numbers.sheet.parameters, limited=True
                )
            item, view = _looked_at(item, group, own_function)
        items.append(item)
        given.append(view)
        answers.append(group)
    return mark(dataclasses.replace(numbers.sheet, items=tuple(items)), given, answers, numbers.wrong)


def _cannot_ask(name: str, function: Any) -> Failure | None:
    if function is None:
        return Failure("missing", f"there is no {name} here")
    if not callable(function):
        return Failure("malformed", f"{name} is a {type(function).__name__}, not a function")
    return None


def _looked_at(item: Any, group: list[Answer], own_function: Callable[[str], Callable]) -> tuple[Any, Any]:
    """The item and the view of its answers; open where an earlier function that it needs is not there."""
    if any(answer.failure and answer.failure.kind == "unavailable" for answer in group):
        return dataclasses.replace(item, open=True), None
    failed = any(answer.failure for answer in group)  # then there is nothing to look at
    try:
        own = {} if failed else {name: own_function(name) for name in item.view.own}
    except LookupError:
        return dataclasses.replace(item, open=True), None
    return item, viewed(item.view.look, group, item.question, own)


def passing(name: str, namespace: Mapping[str, Any]) -> Callable:
    """The student's own function of this name, if it passes. Raises LookupError otherwise."""
    function = namespace.get(name)
    if not callable(function):
        raise LookupError(f"{name} is not here yet")
    if _passed.get(name) is not function:
        if shipped_verdict(name, function, namespace).outcome != "correct":
            raise LookupError(f"your {name} is not right yet")
        _passed[name] = function
    return function


def own(name: str) -> Callable | None:
    """The student's own function if it passed its last check in this notebook, else None."""
    function = _callers_namespace().get(name)
    return function if function is not None and _passed.get(name) is function else None


def attempted(name: str) -> bool:
    """Whether an attempt at this exercise was checked in this session."""
    return name in _attempted


# ---------------------------------------------------------------- hints and quiz


def hint(name: str) -> None:
    """Show the next hint of an exercise. There are three: a question, a plan, pseudocode. They cost nothing."""
    hints = shipped.load(known(name)).hints
    given = min(_hints_given.get(name, 0) + 1, len(hints))
    _hints_given[name] = given
    lines = [f"Hint {i + 1} of {len(hints)}: {hints[i]}" for i in range(given)]
    more = "Run the cell again for the next one." if given < len(hints) else "That was the last one."
    display(Shown("\n".join([*lines, more])))


def quiz(name: str, choice: str) -> None:
    """Show what speaks for or against the chosen letter."""
    options = shipped.quiz(name)
    letter = str(choice).strip().upper()
    if letter not in options:
        letters = ", ".join(options)
        display(Shown(f"Type one of the letters {letters} between the quotes and run the cell."))
        return
    right, why = options[letter]
    display(Shown(f"{'✓' if right else '✗'} {letter}: {'right' if right else 'not this one'}. {why}"))


# ---------------------------------------------------------------- finding things


def display(shown: Shown) -> None:
    """Show something in the notebook, or print it where there is none."""
    try:
        from IPython import get_ipython
        from IPython.display import display as show
    except ImportError:
        print(shown.text)
        return
    if get_ipython() is None:
        print(shown.text)
    else:
        show(shown)


def _callers_namespace() -> dict[str, Any]:
    """The names that stand where the course's function was called: the notebook's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "course":
        frame = frame.f_back
    return {**frame.f_globals, **frame.f_locals}


def _exercise_name(what: str | Callable, namespace: Mapping[str, Any]) -> str:
    if isinstance(what, str):
        return known(what)
    names = [key for key, value in namespace.items() if value is what and key in shipped.names()]
    names += [getattr(inspect.unwrap(what), "__name__", "")] if callable(what) else []
    return known(names[0] if names else str(what)[:40])


def known(name: str) -> str:
    """The name, if an exercise has it. Raises NotRight with the nearest name otherwise."""
    if name not in shipped.names():
        raise NotRight(f"There is no exercise called {name!r}. Check the spelling: {_nearest(name)}")
    return name


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, shipped.names(), n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else "the name stands in the heading of the exercise."
