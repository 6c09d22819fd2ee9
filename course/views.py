"""Ways to look at an answer where its numbers alone do not decide.

Each view is called as view(answers, question, **own) and returns what is compared. None of them
answers an exercise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course.questions import Answer, Question


def with_inputs(answers: Sequence[Answer], question: Question) -> Any:
    """The values, and which inputs were changed on the way."""
    changed = sorted({name for answer in answers for name in answer.changed})
    return [[answer.value for answer in answers], len(changed)]


def with_calls(answers: Sequence[Answer], question: Question) -> Any:
    """The values, and what each function among the arguments was called with."""
    return [[answer.value for answer in answers], [list(map(list, calls)) for a in answers for calls in a.calls]]
