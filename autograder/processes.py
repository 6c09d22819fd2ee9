"""Share work between processes; a worker that is killed costs nobody else anything."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import TypeVar

Result = TypeVar("Result")
KILLED = "Its worker process was ended from outside, twice."


def in_processes(
    work: Callable[..., Result],
    tasks: Sequence[tuple],
    jobs: int,
    preload: str,
    failed: Callable[[tuple, str], Result],
) -> Iterator[Result]:
    """Results of work(*task) for every task, as they come. preload: a module that is imported once for all workers.

    Where a worker is killed, the tasks that were not done start again, each by itself; a task whose
    worker is killed then too gets the result that `failed` makes of it and a reason.
    """
    left = list(tasks)
    context = _context(preload)
    try:
        with concurrent.futures.ProcessPoolExecutor(
            min(jobs, len(tasks) or 1), context, _end_with_parent
        ) as pool:
            running = {pool.submit(work, *task): task for task in tasks}
            for done in concurrent.futures.as_completed(running):
                result = done.result()
                left.remove(running[done])
                yield result
    except BrokenProcessPool:
        for task in left:
            yield _alone(work, task, context, failed)


def _alone(work: Callable[..., Result], task: tuple, context: BaseContext, failed: Callable) -> Result:
    try:
        with concurrent.futures.ProcessPoolExecutor(1, context, _end_with_parent) as pool:
            return pool.submit(work, *task).result()
    except BrokenProcessPool:
        return failed(task, KILLED)


def _end_with_parent() -> None:
    """End this worker as soon as the process that gives it work is gone, also where that was killed."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _context(preload: str) -> BaseContext:
    """Fresh processes: a fork of one that has threads, as the gradebook's may, can stop for ever."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context
