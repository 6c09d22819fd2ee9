"""The grader's handle of a warm process (course.child.zygote): it is forked for each notebook. Linux only."""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
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
from course.child.confine import BUBBLEWRAP, DISK, MESSAGE, NOTEBOOK, PRIVATE

START = 60.0  # seconds until it must be warm
REPLY = 20.0  # seconds until it must answer


class NotStarted(RuntimeError):
    """No child can be had this way; the text says why."""


class Line:
    """A grader's line to a warm process. May be used from several threads."""

    def __init__(self, level: str, control: socket.socket):
        self.level = level
        self._control = control
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the warm process is there, as far as can be seen from this end."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: closed here
            ready, _, _ = select.select([self._control], [], [], 0)
            return not ready or bool(self._control.recv(1, socket.MSG_PEEK))
        return False

    def fork(self, theirs: socket.socket, settings: Mapping[str, Any]) -> int:
        """Fork a child that talks on this socket; its number at the warm process. Raises NotStarted."""
        with self._lock:
            try:
                self._send({"start": dict(settings)}, theirs)
                reply = self._reply(REPLY)
            except OSError as error:
                reply = {"failed": str(error)}
        if not reply:
            self.close()  # an answer that still comes would be taken for that to the next question
        if "started" not in reply:
            raise NotStarted(str(reply.get("failed", "the warm process does not answer")))
        return reply["started"]

    def end(self, number: int) -> None:
        """End a child and all that it left behind; if the warm process does not manage, give it up."""
        with self._lock:
            try:
                self._control.send(json.dumps({"end": number}).encode())
                ended = self._reply(REPLY) == {"ended": number}
            except OSError:
                ended = False
        if not ended:
            self.close()

    def close(self) -> None:
        """Give the line up: the warm process ends the children that were forked through it."""
        self.forget()

    def forget(self) -> None:
        """Let go of it in a process that it does not belong to."""
        self._control.close()

    def _send(self, message: Mapping[str, Any], attached: socket.socket) -> None:
        number = array.array("i", [attached.fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, number)]
        self._control.sendmsg([json.dumps(message).encode()], rights)

    def _reply(self, seconds: float) -> dict:
        self._control.settimeout(seconds)
        try:
            data = self._control.recv(MESSAGE)
        except OSError:
            return {}
        return json.loads(data) if data else {}


class Warm(Line):
    """One warm process at one level of isolation, and the first line to it."""

    def __init__(self, level: str):
        control, theirs = _pair()
        super().__init__(level, control)
        boxed = level == BUBBLEWRAP
        command = [*(bubblewrap_command() if boxed else ()), INTERPRETER, "-I", "-S", str(PROGRAM)]
        self._home = NOTEBOOK if boxed else tempfile.mkdtemp(prefix=f"{PRIVATE}warm-")
        self._is_warm = False
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
            command,
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

    def wait_until_warm(self) -> None:
        """Raises NotStarted, and then the process is ended."""
        with self._lock:
            self._is_warm = self._is_warm or "warm" in self._reply(START)
        if not self._is_warm:
            said = self._last_words()
            self.close()
            raise NotStarted(f"the warm process does not start: {said}")

    @property
    def alive(self) -> bool:
        return super().alive and self._process.poll() is None

    def further_line(self) -> Line:
        """A line for another process of this grader."""
        ours, theirs = _pair()
        with theirs, self._lock:
            self._send({"grader": True}, theirs)
        return Line(self.level, ours)

    def close(self) -> None:
        """End the warm process; it ends its children."""
        super().close()
        try:
            self._process.wait(REPLY)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # with what bubblewrap started
            self._process.wait()
        self._process.stderr.close()
        if self.level != BUBBLEWRAP:
            shutil.rmtree(self._home, ignore_errors=True)

    def _last_words(self) -> str:
        self._process.kill()
        said = self._process.stderr.read(4000).decode("utf-8", "replace").strip().splitlines()
        return said[-1][:300] if said else "it says nothing"


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # it keeps messages apart


# ---------------------------------------------------------------- one for each level and grader

_warm: dict[str, Line] = {}
_starting = threading.Lock()


def begin(level: str) -> None:
    """Let a warm process start while the caller does something else; whether it works is seen later."""
    with _starting, contextlib.suppress(NotStarted):
        if level not in _warm:
            _warm[level] = Warm(level)


def warm_process(level: str) -> Line:
    """This process's line to a warm process of a level, started when first needed. Raises NotStarted."""
    with _starting:
        if level in _warm and not _warm[level].alive:
            _warm.pop(level).close()
        if level not in _warm:
            _warm[level] = Warm(level)
        line = _warm[level]
    if isinstance(line, Warm):
        line.wait_until_warm()
    return line


def further_lines() -> list[Line]:
    """Lines to this process's warm processes, for another process to use()."""
    return [line.further_line() for line in _warm.values() if isinstance(line, Warm) and line.alive]


def use(lines: Iterable[Line]) -> None:
    """Fork children through these lines from now on."""
    _warm.update({line.level: line for line in lines})


def close_all() -> None:
    """End this process's warm processes."""
    for line in _warm.values():
        line.close()
    _warm.clear()


def _forget_all() -> None:
    global _starting
    _starting = threading.Lock()
    for line in _warm.values():
        line.forget()
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
