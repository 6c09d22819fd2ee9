"""Judge one exercise: draw a sheet, ask, mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autograder.exercise import Exercise
from autograder.sheets import Drawn, own_function
from course.answering import answer_question
from course.marking import Verdict, mark, viewed
from course.questions import Answer, Question

Ask = Callable[[Question], Sequence[Answer]]


def judge(exercise: Exercise, seed: int, ask: Ask) -> Verdict:
    """The verdict on the function that `ask` reaches, for the questions drawn from `seed`."""
    drawn = Drawn(exercise, seed)
    answers, given = [], []
    out_of_time: list[Answer] | None = None
    for item in drawn.sheet.items:
        answer = out_of_time or list(ask(item.question))
        if any(a.failure and a.failure.kind in ("time-out", "no answer") for a in answer):
            out_of_time = answer
        own = {name: own_function(name) for name in item.view.own}
        answers.append(answer)
        given.append(viewed(item.view.look, answer, item.question, own))
    return mark(drawn.sheet, given, answers, drawn.wrong)


def judge_function(exercise: Exercise, seed: int, function: Callable) -> Verdict:
    """Judge a function that runs in this process: for references, wrong versions and variants."""
    return judge(exercise, seed, lambda q: answer_question(function, q, own_function, exercise.parameters))
