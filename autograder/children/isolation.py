"""Which levels of isolation this machine has, found out by trying.

process     everywhere. Protects the score from everything inside the process; not files of the same user.
landlock    Linux 5.13 and later, unprivileged (see course.child.landlock for what each kernel adds).
bubblewrap  Linux with bubblewrap installed and user namespaces allowed.
"""

from __future__ import annotations

import shutil
import sys
from functools import cache

import autograder
from autograder.children import warm
from autograder.children.child import Child
from autograder.children.warm import NotStarted
from course.child import landlock
from course.child.confine import BUBBLEWRAP, LANDLOCK, LEVELS, PROCESS

TRY = """
import socket
try:
    open({path!r}).close()
    print("it can read the grader's files")
except OSError:
    pass
try:
    socket.socket()
    print("it can open sockets")
except OSError:
    print("shut in")
"""


def available() -> list[str]:
    """The levels that work here, weakest first."""
    return [level for level in LEVELS if not why_not(level)]


def best() -> str:
    """The strongest level that works here."""
    return next(level for level in reversed(LEVELS) if not why_not(level))


def begin() -> None:
    """Start what takes longest of the search for the best level, while the caller does something else."""
    if sys.platform == "linux":
        likely = BUBBLEWRAP if shutil.which("bwrap") else LANDLOCK if landlock.abi() else PROCESS
        warm.begin(likely)


@cache
def why_not(level: str) -> str:
    """Why a level does not work here, in a sentence; empty if it works."""
    if level == PROCESS:
        return ""
    if sys.platform != "linux":
        return f"{level} needs Linux"
    if level == LANDLOCK and not landlock.abi():
        return "the kernel has no Landlock (Linux 5.13 or later, switched on)"
    try:
        with Child.start(level=level) as child:
            outputs = child.run_cell(TRY.format(path=autograder.__file__), 10).outputs
    except (NotStarted, OSError) as error:
        return f"{level} does not work here: {error}"
    said = "".join(output.get("text", "") for output in outputs).strip()
    return "" if said == "shut in" else f"{level} does not hold here: {said or 'a trial cell failed'}"


__all__ = ["BUBBLEWRAP", "LANDLOCK", "LEVELS", "PROCESS", "available", "begin", "best", "why_not"]
