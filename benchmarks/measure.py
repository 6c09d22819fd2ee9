"""Run a command and measure what it and all that it starts take: real time, processor time, memory."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import psutil

from course.child import kernel

LOOK = 0.5  # seconds between two looks at the memory


@dataclass(frozen=True)
class Measured:
    """What one command took. peak : bytes held by all its processes at once, shared pages counted once."""

    seconds: float
    processor: float
    peak: int
    output: str


def measured(command: Sequence[str], folder: Path) -> Measured:
    """Run the command in a folder. Raises RuntimeError with its last words if it does not end well."""
    if sys.platform == "linux":
        # orphans of the command become ours, so that their time is counted
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(LOOK):
            peak[0] = max(peak[0], sum(map(_bytes, psutil.Process().children(recursive=True))))

    watcher = threading.Thread(target=watch)
    with tempfile.TemporaryFile("w+") as said:
        before, started = _processor(), monotonic()
        # nbgrader calls `alembic`, which lies beside this Python
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, env=os.environ | {"PATH": path}
        )
        watcher.start()
        status = process.wait()
        seconds = monotonic() - started
        done.set()
        watcher.join()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        said.seek(0)
        output = said.read()
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {status}:\n{output[-2000:]}")
    return Measured(seconds, _processor() - before, peak[0], output)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error, AttributeError):
        return process.memory_full_info().pss
    return 0
