"""What a graded notebook may use of the machine: memory, processes, files and time."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

from course.answering import OutOfTime

try:
    import resource  # Linux and macOS; on Windows only the grader's own time limits hold
except ImportError:
    resource = None

MEMORY = 1536 * 1024 * 1024  # bytes of address space; a lesson with heavy plots takes 0.4 GiB
FILE = 64 * 1024 * 1024  # bytes of one file
OPEN_FILES = 256
PROCESSOR = 1800  # seconds for the whole notebook

# A busy machine must not cost a student time, so the limit is on processor time;
# code that only sleeps ends after this much real time.
WALL_FACTOR = 2
WALL_MORE = 2.0


def wall_seconds(seconds: float) -> float:
    """Real time that may pass where `seconds` of processor time are allowed."""
    return WALL_FACTOR * seconds + WALL_MORE


def limit_resources(processes: int) -> None:
    """Lower this process's limits for good. processes: how many the user may have in all (root is not held to it)."""
    if resource is None:
        return
    _lower("RLIMIT_CORE", 0)
    _lower("RLIMIT_FSIZE", FILE)
    _lower("RLIMIT_NOFILE", OPEN_FILES)
    _lower("RLIMIT_CPU", PROCESSOR)
    _lower("RLIMIT_NPROC", processes)
    if sys.platform != "darwin":  # macOS reserves more address space than it uses
        _lower("RLIMIT_AS", MEMORY)


def _lower(name: str, value: int) -> None:
    number = getattr(resource, name, None)
    if number is None:
        return
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(number, (value, value))


class Clock:
    """Interrupts the main thread when its time is up, but never in the middle of a message.

    talking : set while a message is sent or awaited; an interrupt then waits for the next tick.
    rang    : whether time was up since the last `limit` began.
    """

    TICK = 1.0  # seconds until the next interrupt, for code that swallowed the first

    def __init__(self):
        self.talking = False
        self.rang = False

    @contextlib.contextmanager
    def limit(self, seconds: float, error: type[OutOfTime], sentence: str) -> Iterator[None]:
        """Raise error(sentence) after `seconds` of processor time or the real time that goes with it."""
        self.rang = False
        if not hasattr(signal, "setitimer"):  # Windows: the grader ends the process instead
            yield
            return

        def ring(signum, frame):
            if not self.talking:
                self.rang = True
                raise error(sentence)

        signal.signal(signal.SIGPROF, ring)
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_PROF, seconds, self.TICK)
        signal.setitimer(signal.ITIMER_REAL, wall_seconds(seconds), self.TICK)
        try:
            yield
        finally:
            self.off()

    def off(self) -> None:
        """Stop the timers."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)


class CellOutOfTime(OutOfTime):
    """A cell took too long. Shown in the notebook as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]
