"""Judge one exercise: draw a sheet, ask, mark, and look at earlier functions where these are to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from autograder.exercise import Exercise
from autograder.exercises import find
from autograder.following import AskTool, follow
from autograder.sheets import Drawn, own_function
from course.answering import answer_question
from course.marking import Item, Verdict, mark, viewed
from course.questions import Answer, Question

# The answers to some questions, in order; they may end with the first that has no answer in time.
Ask = Callable[[Sequence[Question]], Iterable[Sequence[Answer]]]


def judge(exercise: Exercise, seed: int, ask: Ask, ask_tool: AskTool | None = None) -> Verdict:
    """The verdict on the function that `ask` reaches, for the questions drawn from `seed`.

    ask_tool : asks an earlier function of the student by name, where follow-through is wanted.
    """
    return judge_sheet(Drawn(exercise, seed), ask, ask_tool)


def judge_sheet(drawn: Drawn, ask: Ask, ask_tool: AskTool | None = None) -> Verdict:
    """The verdict for a sheet that is drawn already."""
    items = drawn.sheet.items
    answers = list(islice(ask([item.question for item in items]), len(items)))
    answers += [answers[-1]] * (len(items) - len(answers))
    given = [_viewed(item, answer) for item, answer in zip(items, answers)]
    verdict = mark(drawn.sheet, given, answers, drawn.wrong)
    if ask_tool is None or verdict.outcome in ("correct", "not attempted"):
        return verdict
    tools = {name: _judge_tool(name, drawn.seed, ask_tool) for name in drawn.exercise.builds_on}
    broken = {name: tool for name, tool in tools.items() if tool.outcome != "correct"}
    return follow(drawn, given, answers, verdict, broken, ask_tool) if broken else verdict


def _viewed(item: Item, answers: Sequence[Answer]) -> Any:
    own = {name: own_function(name) for name in item.view.own}
    return viewed(item.view.look, answers, item.question, own)


def _judge_tool(name: str, seed: int, ask_tool: AskTool) -> Verdict:
    """What an earlier function of the student is worth on its own exercise's cases."""
    return judge(find(name), seed, lambda questions: (ask_tool(name, question) for question in questions))


def in_this_process(exercise: Exercise, function: Callable) -> Ask:
    """Asks a function that runs here: references, wrong versions and variants, never a student's."""
    return lambda questions: (
        answer_question(function, question, own_function, exercise.parameters) for question in questions
    )


def judge_function(exercise: Exercise, seed: int, function: Callable) -> Verdict:
    """Judge a function that runs in this process."""
    return judge(exercise, seed, in_this_process(exercise, function))
