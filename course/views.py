"""Ways to look at an answer where its numbers alone do not decide.

Each view is called as view(answers, question, **own) and returns what is compared: usually a dict
whose keys are the words in which a report names the part that differs. None of them answers an
exercise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course.questions import Answer, Question


def with_inputs(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The answers to the same call made twice on the same arrays, and how many inputs were changed."""
    first, second = answers
    return {
        "the answer": first.value,
        "number of changed inputs": len({name for answer in answers for name in answer.changed}),
        "the second answer, from the same arrays": second.value,
    }


def with_calls(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The answer to one call, and what each function among its arguments was called with."""
    (answer,) = answers
    return {
        "the answer": answer.value,
        "the number of calls": [len(received) for received in answer.calls],
        "what it was called with": [[list(arguments) for arguments in received] for received in answer.calls],
    }
