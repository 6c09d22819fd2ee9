"""Shut a forked process in before the first cell of a submission runs. Linux only.

process     : a process of its own; as root, another user's. Files of the same user are not protected.
landlock    : besides, no files but the named ones, no sockets, no signals to others (see landlock.py, seccomp.py).
bubblewrap  : the process that forks already sees only what a notebook needs (bubblewrap made that view);
              each notebook gets process, user and mount namespaces of its own, an empty /proc, fresh folders
              of bounded size to write to, and no sockets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from course.child import kernel, landlock, seccomp

PROCESS, LANDLOCK, BUBBLEWRAP = "process", "landlock", "bubblewrap"
LEVELS = (PROCESS, LANDLOCK, BUBBLEWRAP)
NAMESPACES = kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
PRIVATE = "grading-"  # so begins the name of every folder that is made for children, and of no other that is removed
MESSAGE = 1 << 16  # bytes of one message between a grader and its warm process
NOTEBOOK = "/notebook"  # at the level bubblewrap: the folder of what a notebook may write
DISK = 128 * 1024 * 1024  # bytes that it may write there
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def fork(level: str) -> int:
    """Like os.fork; at the level bubblewrap the child is in namespaces of its own."""
    return kernel.fork_into(NAMESPACES) if level == BUBBLEWRAP else os.fork()


def shut_in(level: str, settings: Mapping[str, Any]) -> None:
    """Give up what the level takes away. The current process is a fresh child of `fork`. Raises OSError.

    settings : "work" and "home" (private folders; at bubblewrap they are made here), "uid" (the user to become
               where the grader is root, else None), "readable" (what can be read), and the zygote's own
               "outer_uid" and "outer_gid".
    """
    if level == BUBBLEWRAP:
        _own_view(settings)
    else:  # what it starts stays below it, and counts as its own; with a namespace that is so already
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if settings.get("uid") is not None:
        become(settings["uid"])
    kernel.prctl(
        kernel.PR_SET_DUMPABLE, 1
    )  # so that the grader, if it is no root, can see what this process writes
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)  # sudo and its like give nothing, and can always be ended
    if level == PROCESS:
        return
    strict = level == LANDLOCK
    if strict:
        landlock.keep_only(settings["readable"], [settings["work"], settings["home"]], DEVICES)
    seccomp.give_up_calls(strict, landlock.abi() if strict else 0)


def become(uid: int) -> None:
    """Turn from root into another user, one that may still read what it needs on its way to the libraries.

    At the level process it may thereby read every file, as the grader's own account may; writing
    and other processes are out of its reach.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    kernel.set_capabilities(1 << kernel.CAP_DAC_READ_SEARCH)
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_RAISE, kernel.CAP_DAC_READ_SEARCH)


def _own_view(settings: Mapping[str, Any]) -> None:
    """Finish new namespaces: the same user, nothing in /proc, fresh folders to write to, no capabilities."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else the maps below belong to root
    uid, gid = settings["outer_uid"], settings["outer_gid"]
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    safe = kernel.MS_NOSUID | kernel.MS_NODEV
    room = f"size={DISK},nr_inodes=4096,mode=700"
    kernel.mount("tmpfs", NOTEBOOK, "tmpfs", safe, room)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", safe | kernel.MS_NOEXEC, room)
    if not os.listdir("/tmp"):  # else the course itself lies there; then it stays read-only
        kernel.mount("tmpfs", "/tmp", "tmpfs", safe, room)
    nothing = safe | kernel.MS_NOEXEC | kernel.MS_RDONLY
    kernel.mount("tmpfs", "/proc", "tmpfs", nothing, "size=4096,nr_inodes=2")
    os.makedirs(settings["work"])
    os.makedirs(settings["home"])
    os.chdir("/")
    kernel.set_capabilities(0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
