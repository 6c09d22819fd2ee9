"""The grader's handle of a warm process (course.child.zygote): it is forked for each notebook. Linux only."""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autograder.children.surroundings import (
    COURSE,
    INTERPRETER,
    PROGRAM,
    environment,
    is_root,
    libraries,
    readable,
    spare_user,
)
from course.child.confine import BUBBLEWRAP, DISK, MESSAGE, NOTEBOOK

START = 60.0  # seconds until it must be warm
REPLY = 20.0  # seconds until it must answer


class NotStarted(RuntimeError):
    """No child can be had this way; the text says why."""


class Warm:
    """One warm process at one level of isolation. May be used from several threads."""

    def __init__(self, level: str):
        self.level = level
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boxed = level == BUBBLEWRAP
        self._home = NOTEBOOK if boxed else tempfile.mkdtemp(prefix="grading-warm-")
        settings = {
            "zygote": True,
            "level": level,
            "root": str(COURSE.parent),
            "libraries": libraries(),
            "readable": readable(),
            "socket": theirs.fileno(),
            "become": spare_user() if boxed else None,
        }
        self._process = subprocess.Popen(
            [*(bubblewrap_command() if boxed else ()), INTERPRETER, "-I", "-S", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(self._home),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.close()
        if "warm" not in self._reply(START):
            said = self._last_words()
            self.close()
            raise NotStarted(f"the warm process does not start: {said}")

    @property
    def alive(self) -> bool:
        """Whether it can still be forked."""
        return self._control.fileno() >= 0 and self._process.poll() is None

    def fork(self, theirs: socket.socket, settings: Mapping[str, Any]) -> int:
        """Fork a child that talks on this socket; its number at the warm process. Raises NotStarted."""
        with self._lock:
            number = array.array("i", [theirs.fileno()])
            attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, number)]
            try:
                self._control.sendmsg([json.dumps({"start": dict(settings)}).encode()], attached)
                reply = self._reply(REPLY)
            except OSError as error:
                reply = {"failed": str(error)}
        if "started" not in reply:
            raise NotStarted(str(reply.get("failed", "the warm process does not answer")))
        return reply["started"]

    def end(self, number: int) -> None:
        """End a child and all that it left behind; if the warm process does not manage, end that too."""
        with self._lock:
            try:
                self._control.send(json.dumps({"end": number}).encode())
                ended = self._reply(REPLY) == {"ended": number}
            except OSError:
                ended = False
        if not ended:
            self.close()

    def close(self) -> None:
        """End the warm process; it ends its children."""
        self._control.close()
        try:
            self._process.wait(REPLY)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stderr.close()
        if self.level != BUBBLEWRAP:
            shutil.rmtree(self._home, ignore_errors=True)

    def forget(self) -> None:
        """Let go of it in a fork of the grader: it belongs to the other process."""
        self._control.close()

    def _reply(self, seconds: float) -> dict:
        self._control.settimeout(seconds)
        try:
            data = self._control.recv(MESSAGE)
        except OSError:
            return {}
        return json.loads(data) if data else {}

    def _last_words(self) -> str:
        self._process.kill()
        said = self._process.stderr.read(4000).decode("utf-8", "replace").strip().splitlines()
        return said[-1][:300] if said else "it says nothing"


# ---------------------------------------------------------------- one for each level and process

_warm: dict[str, Warm] = {}
_starting = threading.Lock()


def warm_process(level: str) -> Warm:
    """This process's warm process for a level, started when first needed. Raises NotStarted."""
    with _starting:
        if level in _warm and not _warm[level].alive:
            _warm.pop(level).close()
        if level not in _warm:
            _warm[level] = Warm(level)
        return _warm[level]


def close_all() -> None:
    """End this process's warm processes."""
    for warm in _warm.values():
        warm.close()
    _warm.clear()


def _forget_all() -> None:
    global _starting
    _starting = threading.Lock()
    for warm in _warm.values():
        warm.forget()
    _warm.clear()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# ---------------------------------------------------------------- bubblewrap


def bubblewrap_command() -> list[str]:
    """The command that gives what follows a view of the readable paths only. Raises NotStarted."""
    program = shutil.which("bwrap")
    if program is None:
        raise NotStarted("bubblewrap (bwrap) is not installed")
    binds = sorted(readable(), key=lambda path: path.count("/"))
    covered = [Path(path) for path in binds]
    folders = {parent for path in covered for parent in path.parents} - {Path("/")} | {Path("/tmp")}
    bare = sorted(f for f in folders if not any(bound == f or bound in f.parents for bound in covered))
    command = [
        program,
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if is_root():  # bubblewrap then needs no user namespace; the warm process turns into another user itself
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user"]
    command += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--size",
        str(DISK),
        "--tmpfs",
        NOTEBOOK,
    ]
    for folder in bare:  # bubblewrap would make them for root only
        command += ["--perms", "0755", "--dir", str(folder)]
    for path in binds:
        command += ["--ro-bind", path, path]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
