"""Share work between processes; one that is killed costs nobody else anything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from autograder.children import warm

Result = TypeVar("Result")
KILLED = "Its worker process was ended from outside, twice."


def in_processes(
    work: Callable[..., Result],
    tasks: Sequence[tuple],
    jobs: int,
    failed: Callable[[tuple, str], Result],
) -> Iterator[Result]:
    """Results of work(*task) for every task, as they come.

    Where a worker is killed, another takes its place and its task is tried once more. What is killed
    twice, or raises, gets the result that `failed` makes of the task and a reason.
    """
    waiting = deque(range(len(tasks)))
    killed: set[int] = set()
    workers = [_Worker(work) for _ in range(min(jobs, len(tasks)))]

    def hand_out() -> None:
        for worker in workers:
            if worker.task is None and waiting:
                worker.begin(waiting.popleft(), tasks)

    try:
        while True:
            hand_out()
            busy = {worker.connection: worker for worker in workers if worker.task is not None}
            if not busy:
                return
            for ready in wait(list(busy)):
                worker = busy[ready]
                number, task = worker.task, tasks[worker.task]
                try:
                    result, error = worker.result()
                except (EOFError, OSError):
                    worker.end()
                    workers[workers.index(worker)] = _Worker(work)
                    if number not in killed:
                        killed.add(number)
                        waiting.append(number)
                        continue
                    result, error = None, KILLED
                hand_out()  # before the result is looked at
                yield failed(task, error) if error else result
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that does one task after the other. task : the number of the one it is at, or None."""

    def __init__(self, work: Callable):
        # A fork has everything imported already. It is made while this process has one thread only.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        lines = warm.further_lines()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, theirs, lines), daemon=True)
        self.process.start()
        theirs.close()  # or its end would not be seen
        for line in lines:
            line.forget()
        self.task: int | None = None

    def begin(self, number: int, tasks: Sequence[tuple]) -> None:
        self.task = number
        try:
            self.connection.send(tasks[number])
        except OSError:  # it is gone, which is seen when its result is read
            pass

    def result(self) -> tuple[Any, str]:
        """The result, or None and why there is none. Raises EOFError or OSError where the process is gone."""
        found = self.connection.recv()
        self.task = None
        return found

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _serve(work: Callable, connection: Connection, lines: Sequence[warm.Line]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives the work decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warm.use(lines)
    while True:
        task = connection.recv()
        try:
            found = work(*task), ""
        except Exception as error:
            found = None, f"{type(error).__name__}: {error}"
        connection.send(found)


def _end_with_parent() -> None:
    """End this process as soon as the one that gives it work is gone, also where that was killed."""
    multiprocessing.parent_process().join()
    os._exit(1)
