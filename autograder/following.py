"""Follow-through: an exercise whose own work is right although an earlier function of the student is wrong.

The reference of the exercise is evaluated with the student's own earlier functions in the place of
ours. Where the student's answers are what it then gives, their work here is right for the tools they
had, and earns up to half of its points. The tools are asked in a process in which this exercise was
never asked, so that they cannot know what would suit it.

A tool made wrong on purpose gains nothing: it must earn at least half of the points of its own
exercise, and on the very arguments that it gets here it must either be right at least half of the
time or make one named mistake throughout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from autograder.exercise import Exercise
from autograder.exercises import find
from autograder.sheets import Drawn, own_function
from course.answering import answer_question
from course.compare import difference
from course.marking import Item, PropertyResult, Verdict, mark, viewed
from course.questions import Answer, Call, Failure, Question, Raises

SHARE = 0.5  # of a property's points, where it holds for the student's own tools
AskTool = Callable[[str, Question], Sequence[Answer]]


def follow(
    drawn: Drawn,
    given: Sequence[Any],
    answers: Sequence[Sequence[Answer]],
    verdict: Verdict,
    broken: Mapping[str, Verdict],
    ask_tool: AskTool,
) -> Verdict:
    """The verdict, with the tools named where they are to blame, and with follow-through marks where they earn them.

    given, answers : what the student's function answered to the sheet that was drawn.
    broken         : the earlier functions of the student that are not right, and their verdicts.
    ask_tool       : asks an earlier function of the student, in a process of its own.
    """
    exercise = drawn.exercise
    tools = {name: _Tool(name, ask_tool) for name in exercise.builds_on}
    followed = mark(dataclasses.replace(drawn.sheet, items=_with_tools(drawn, tools)), given, answers, {})
    if not followed.points:
        return verdict
    names = _listed(list(broken))
    worth = all(tool.points * 2 >= tool.max_points for tool in broken.values())
    if worth and all(_is_honest(tools[name]) for name in broken):
        note = f"right for the {names} you gave it"
        results = tuple(_better(own, fit, note) for own, fit in zip(verdict.properties, followed.properties))
        points = round(sum(result.points for result in results), 6)
        if points > verdict.points:
            verdict = dataclasses.replace(
                verdict, outcome="partial", points=points, properties=results, mistake="wrong-tool", cause=""
            )
    if followed.outcome == "correct" and (verdict.mistake or "wrong-tool") == "wrong-tool":
        cause = f"Your {exercise.name} is right for the {names} you gave it. Look there first: not right yet."
        return dataclasses.replace(verdict, mistake="wrong-tool", cause=cause)
    if verdict.mistake == "wrong-tool":
        cause = f"Part of the difference comes from the {names} you gave it. Look there first."
        return dataclasses.replace(verdict, cause=cause)
    return verdict


def _listed(names: Sequence[str]) -> str:
    """The names as a sentence lists them."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


class _Tool:
    """A function of the student as the reference may call it; remembers what it was called with and answered."""

    def __init__(self, name: str, ask_tool: AskTool):
        self.name = name
        self._ask_tool = ask_tool
        self.seen: list[tuple[Call, Any]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = Call(args, kwargs)
        (answer,) = self._ask_tool(self.name, Question((call,)))
        self.seen.append((call, answer.failure or answer.value))
        if answer.failure:
            raise RuntimeError(answer.failure.message)
        return answer.value


def _with_tools(drawn: Drawn, tools: Mapping[str, _Tool]) -> tuple[Item, ...]:
    """The items of the sheet, each with what the reference gives when it calls the student's tools."""
    reference = drawn.exercise.reference_function
    rebuilt = FunctionType(
        reference.__code__, {**reference.__globals__, **tools}, reference.__name__, reference.__defaults__
    )
    rebuilt.__kwdefaults__ = reference.__kwdefaults__
    items = []
    for item in drawn.sheet.items:
        own = {name: own_function(name) for name in item.view.own}
        group = answer_question(rebuilt, item.question, own_function, drawn.exercise.parameters)
        view = viewed(item.view.look, group, item.question, own)
        if isinstance(view, Failure):  # what fails with the student's tools cannot be followed
            view = item.expected if isinstance(item.expected, Raises) else Raises("nothing of this kind")
        items.append(dataclasses.replace(item, expected=view))
    return tuple(items)


def _is_honest(tool: _Tool) -> bool:
    """Whether the tool is right half of the time here, or wrong in one way that has a name."""
    exercise = find(tool.name)

    def fits(function: Callable) -> list[bool]:
        return [_agree(function, exercise, call, answer) for call, answer in tool.seen]

    right = fits(exercise.reference_function)
    if not right or sum(right) * 2 >= len(right):
        return bool(right)
    return any(all(fits(mistake.function)) for mistake in exercise.mistakes)


def _agree(function: Callable, exercise: Exercise, call: Call, seen: Any) -> bool:
    (answer,) = answer_question(function, Question((call,)), own_function, exercise.parameters)
    return not answer.failure and not isinstance(seen, Failure) and difference(seen, answer.value) is None


def _better(own: PropertyResult, fit: PropertyResult, note: str) -> PropertyResult:
    """A property's own result, or half of its points where it holds for the student's tools."""
    half = fit.points * SHARE
    return own if own.passed or half <= own.points else dataclasses.replace(own, points=half, note=note)
