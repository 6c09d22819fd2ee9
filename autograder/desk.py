"""A judge beside a learner's notebook: asks the function in the learner's kernel, and says what it thinks.

Started by course.desk as `python -m autograder.desk PORT`. First the public cases, so that a report
stays the same from run to run; where all of them hold, fresh ones too.
"""

from __future__ import annotations

import inspect
import os
import secrets
import socket
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

from autograder.children.received import read_answers
from autograder.children.remote import Remote, asking
from autograder.exercise import Exercise
from autograder.exercises import find
from autograder.judge import judge
from autograder.sheets import PUBLIC_SEED
from course import report
from course.marking import Verdict
from course.questions import Answer, Failure, Question, is_unanswered
from course.wire import Closed, Connection, Malformed


class Desk:
    """Serves one kernel until it is gone."""

    def __init__(self, connection: Connection):
        self.connection = connection

    def serve(self) -> None:
        answers: dict[str, Callable[[str], dict]] = {"check": self._check, "solutions": _solutions}
        while True:
            ((kind, name),) = self.connection.receive().items()
            self.connection.send(answers[kind](name))

    def _check(self, name: str) -> dict:
        verdict = self._judge(find(name), PUBLIC_SEED)
        if verdict.outcome == "correct":
            verdict = self._judge(find(name), secrets.randbits(60))
        shown = (report.text(verdict), report.html(verdict))
        return {"verdict": [verdict.outcome, verdict.points, verdict.max_points, *shown]}

    def _judge(self, exercise: Exercise, seed: int) -> Verdict:
        return judge(
            exercise,
            seed,
            lambda questions: self._ask_all(exercise.name, questions),
            lambda name, question: next(self._ask_all(name, [question])),
        )

    def _ask_all(self, name: str, questions: Sequence[Question]) -> Iterator[list[Answer]]:
        remotes = [Remote(question) for question in questions]
        self.connection.send(asking(0, name, find(name).parameters, remotes))
        for remote in remotes:
            answers = self._answers(remote)
            yield answers
            if is_unanswered(answers):
                return

    def _answers(self, remote: Remote) -> list[Answer]:
        calls = len(remote.question.calls)
        try:
            while True:
                ((kind, body),) = self.connection.receive().items()
                if kind == "answer":
                    return read_answers(body["answers"], calls, remote.seen())
                self.connection.send(remote.reply(body))
        except Malformed as error:
            return [Answer(failure=Failure("malformed", str(error)))] * calls


def _solutions(name: str) -> dict:
    """The reference and two variants as text, each with what is special about it."""
    exercise = find(name)
    ways = [exercise.reference_function, *exercise.variants[:2]]
    return {"solutions": [[_special(way), _code(way, name)] for way in ways]}


def _special(function: Callable) -> str:
    return (inspect.getdoc(function) or "Written differently.").splitlines()[0]


def _code(function: Callable, name: str) -> str:
    """The function's source without its decorators, under the exercise's name."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    lines[start] = lines[start].replace(f"def {function.__name__}(", f"def {name}(", 1)
    return "\n".join(lines[start:])


def main() -> None:
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(sock)
    connection.send({"key": os.environ["COURSE_DESK"]})
    try:
        Desk(connection).serve()
    except Closed:
        return


if __name__ == "__main__":
    main()
