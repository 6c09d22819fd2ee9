"""Look at a child's process from outside, and end it with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence

import psutil

from autograder.children.warm import NotStarted, Warm
from course.wire import TooLate

READY = 30.0  # seconds until a forked child must say its first word
END = 10.0  # seconds until a killed process must be gone
GREED = 0.25  # seconds between two looks at what a child holds


class Fresh:
    """A child that is a process started by the grader."""

    def __init__(self, process: subprocess.Popen):
        self._process = process
        self.psutil = psutil.Process(process.pid)

    def end(self) -> None:
        """End it, its process group, and its descendants as far as they can be found."""
        descendants = tree(self.psutil)[1:]
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        for descendant in descendants:
            with contextlib.suppress(psutil.Error):
                descendant.kill()
        self._process.wait()


class Forked:
    """A child forked from a warm process.

    number : what the warm process calls it; in another process namespace that is not its number here.
    """

    def __init__(self, warm: Warm, number: int, sock: socket.socket):
        self._warm = warm
        self._number = number
        try:
            pid = sender(sock)
            self.psutil = psutil.Process(pid)
            self._handle = os.pidfd_open(pid)  # stays with this process even if its number is used again
        except (OSError, psutil.Error) as error:
            warm.end(number)
            raise NotStarted(f"the process for the notebook is not there: {error}") from error

    def end(self) -> None:
        """End it, and through the warm process all that it left behind."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        self._warm.end(self._number)


def sender(sock: socket.socket) -> int:
    """The number here of the process that sends the next byte on a Unix socket; the byte stays. Raises OSError.

    SO_PASSCRED must have been set on the socket before that byte was sent.
    """
    size = struct.calcsize("3i")
    if not select.select([sock], [], [], READY)[0]:
        raise TimeoutError("it says nothing")
    _, found, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(size), socket.MSG_PEEK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    for family, kind, content in found:
        if (family, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return struct.unpack("3i", content[:size])[0]
    raise ConnectionError("it ended at once")


class Clock:
    """Raises TooLate when a process has used its processor time, or a good deal more real time.

    Processor time is counted from the first check: most clocks are never looked at.
    """

    def __init__(self, process: psutil.Process, processor: float, wall: float):
        self._process = process
        self._wall_end = time.monotonic() + wall
        self._processor = processor
        self._processor_end: float | None = None
        self._next_look = time.monotonic() + GREED

    def check(self) -> bool:
        """Raises TooLate; otherwise whether it is time to look at what the child holds."""
        now = time.monotonic()
        used = processor_seconds(self._process)
        if self._processor_end is None:
            self._processor_end = used + self._processor
        if now > self._wall_end or used > self._processor_end:
            raise TooLate("the time is up")
        if now < self._next_look:
            return False
        self._next_look = now + GREED
        return True


def processor_seconds(process: psutil.Process) -> float:
    """Processor time that a process has used; 0 if it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def seconds_of_descendants(members: Sequence[psutil.Process]) -> float:
    """Processor time of what a process started; members: its tree. Includes those that ended and were waited for."""
    total = -processor_seconds(members[0])
    for member in members:
        with contextlib.suppress(psutil.Error):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return max(total, 0.0)


def tree(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants."""
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return [process]


def resident_bytes(process: psutil.Process) -> int:
    """Memory that a process holds; 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def written_bytes(process: psutil.Process) -> int:
    """What a process has written to files of any kind; 0 if it is gone or the system does not say."""
    with contextlib.suppress(psutil.Error, AttributeError):  # macOS has no such counters
        counters = process.io_counters()
        return max(counters.write_bytes, getattr(counters, "write_chars", 0))
    return 0
