"""Functions among the arguments of a question stay here; the child calls them through messages.

A Given that holds nothing of the judge's is public code and runs in the child: there it may hand
back its argument or a view of it, which no message can. Its calls are what the child says they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autograder.sheets import own_function
from course.answering import resolved
from course.child.service import HANDLE
from course.questions import Given, Own, Question
from course.wire import Malformed, canonical, decode, encode

SMALLEST_BOUND = 4096


class Remote:
    """The functions of one question: handles for the child, and what each was called with.

    A function here runs with arguments that the child chose, so these are bounded: together they
    hold at most 4 times the numbers of the question's own arguments (or 4096), and no whole number
    may be larger than that.

    message    : the question, to be sent to the child.
    identities : for each array in them, in order, a number: equal ones are the same array.
    """

    def __init__(self, question: Question):
        self.question = question
        self.functions: list[Callable] = []
        self.calls: list[list[list[tuple] | None]] = []
        self.left = question.budget
        self.bound = max(
            SMALLEST_BOUND, 4 * _numbers([[call.args, dict(call.kwargs)] for call in question.calls])
        )
        self._record: list[list[tuple] | None] = []
        self._records: list[list[tuple]] = []
        self._identity: dict[int, int] = {}
        self.identities: list[int] = []
        self.message = {
            "calls": [self._call(call) for call in question.calls],
            "identities": self.identities,
            "same_arrays": question.same_arrays,
            "budget": question.budget,
            "seconds": question.seconds,
        }

    def _call(self, call: Any) -> dict:
        self._record = []
        self.calls.append(self._record)
        args = self._replaced(tuple(call.args))
        kwargs = {name: self._replaced(value) for name, value in call.kwargs.items()}
        return {"args": encode(args), "kwargs": encode(kwargs)}

    def _replaced(self, value: Any) -> Any:
        """The value with a handle in the place of each function, in the order in which the child meets them."""
        if isinstance(value, np.ndarray):
            self.identities.append(self._identity.setdefault(id(value), len(self._identity)))
            return value
        if _is_public(value):
            self._record.append(None)
            return value
        if isinstance(value, Own | Given) or callable(value):
            return self._handle(resolved(value, own_function))
        if isinstance(value, tuple | list):
            return type(value)(self._replaced(item) for item in value)
        if isinstance(value, dict):
            return {key: self._replaced(item) for key, item in value.items()}
        return value

    def _handle(self, function: Callable) -> Own:
        received: list[tuple] = []
        self._record.append(received)
        self._records.append(received)
        self.functions.append(function)
        return Own(f"{HANDLE}{len(self.functions) - 1}")

    def seen(self) -> list[tuple]:
        """For each call of the question: for each function, the arguments of every call it received.

        None stands for a function that runs in the child.
        """
        return [tuple(None if calls is None else tuple(calls) for calls in record) for record in self.calls]

    def reply(self, body: Any) -> dict:
        """The message that answers a call from the child. Raises Malformed if it is no such call."""
        number = _number(body, len(self.functions))
        args, kwargs = decode(body.get("args")), decode(body.get("kwargs"))
        if not isinstance(args, tuple) or not _are_names(kwargs):
            raise Malformed("not a call")
        if self.left <= 0:
            return _raised(RuntimeError(f"a function was called more than {self.question.budget} times"))
        self.left -= 1
        everything = (*args, *kwargs.values())
        if _numbers(everything) > self.bound or _largest(everything) > self.bound:
            return _raised(ValueError("the function was called with far more numbers than the question has"))
        self._records[number].append(everything)
        try:
            args, kwargs = canonical((args, kwargs))  # the record keeps its own arrays
            return {"value": encode(self.functions[number](*args, **kwargs))}
        except Exception as error:  # the child chose the arguments: whatever goes wrong is its answer
            return _raised(error)


def asking(first: int, name: str, parameters: tuple[str, ...], remotes: Sequence[Remote]) -> dict:
    """The message that asks the function of this name several questions, numbered from `first` on.

    Each is answered by a message of its own, in order; after one that took too long there are no more.
    """
    questions = [remote.message for remote in remotes]
    return {"ask": {"id": first, "name": name, "parameters": list(parameters), "questions": questions}}


def _is_public(value: Any) -> bool:
    """Whether it is a Given that holds no function of the judge's."""
    return isinstance(value, Given) and not any(_holds_function(param) for param in value.params)


def _holds_function(value: Any) -> bool:
    if isinstance(value, Given):
        return not _is_public(value)
    if isinstance(value, list | tuple):
        return any(map(_holds_function, value))
    if isinstance(value, dict):
        return any(map(_holds_function, value.values()))
    return isinstance(value, Own) or callable(value)


def _number(body: Any, count: int) -> int:
    names = {f"{HANDLE}{i}": i for i in range(count)}
    if not isinstance(body, dict) or not isinstance(body.get("handle"), str) or body["handle"] not in names:
        raise Malformed("not a call of a function of this question")
    return names[body["handle"]]


def _are_names(kwargs: Any) -> bool:
    return isinstance(kwargs, dict) and all(isinstance(name, str) for name in kwargs)


def _raised(error: Exception) -> dict:
    return {"error": [type(error).__name__, str(error)[:300]]}


def _numbers(value: Any) -> int:
    """How many numbers and texts there are in it."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, list | tuple):
        return sum(map(_numbers, value))
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    return 1


def _largest(value: Any) -> int:
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    if isinstance(value, dict):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 0:
        return abs(int(value))
    return 0
