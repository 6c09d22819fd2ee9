"""Judge one exercise: draw a sheet, ask, mark, and look at earlier functions where these are to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autograder.exercise import Exercise
from autograder.exercises import find
from autograder.following import AskTool, follow
from autograder.sheets import Drawn, own_function
from course.answering import answer_question
from course.marking import Verdict, mark, viewed
from course.questions import Answer, Question

Ask = Callable[[Question], Sequence[Answer]]


def judge(exercise: Exercise, seed: int, ask: Ask, ask_tool: AskTool | None = None) -> Verdict:
    """The verdict on the function that `ask` reaches, for the questions drawn from `seed`.

    ask_tool : asks an earlier function of the student by name, where follow-through is wanted.
    """
    return judge_sheet(Drawn(exercise, seed), ask, ask_tool)


def judge_sheet(drawn: Drawn, ask: Ask, ask_tool: AskTool | None = None) -> Verdict:
    """The verdict for a sheet that is drawn already."""
    answers, given = [], []
    out_of_time: list[Answer] | None = None
    for item in drawn.sheet.items:
        answer = out_of_time or list(ask(item.question))
        if any(a.failure and a.failure.kind in ("time-out", "no answer") for a in answer):
            out_of_time = answer
        own = {name: own_function(name) for name in item.view.own}
        answers.append(answer)
        given.append(viewed(item.view.look, answer, item.question, own))
    verdict = mark(drawn.sheet, given, answers, drawn.wrong)
    if ask_tool is None or verdict.outcome in ("correct", "not attempted"):
        return verdict
    tools = {name: _judge_tool(name, drawn.seed, ask_tool) for name in drawn.exercise.builds_on}
    broken = {name: tool for name, tool in tools.items() if tool.outcome != "correct"}
    return follow(drawn, given, answers, verdict, broken, ask_tool) if broken else verdict


def _judge_tool(name: str, seed: int, ask_tool: AskTool) -> Verdict:
    """What an earlier function of the student is worth on its own exercise's cases."""
    return judge(find(name), seed, lambda question: ask_tool(name, question))


def in_this_process(exercise: Exercise, function: Callable) -> Ask:
    """Asks a function that runs here: references, wrong versions and variants, never a student's."""
    return lambda question: answer_question(function, question, own_function, exercise.parameters)


def judge_function(exercise: Exercise, seed: int, function: Callable) -> Verdict:
    """Judge a function that runs in this process."""
    return judge(exercise, seed, in_this_process(exercise, function))
