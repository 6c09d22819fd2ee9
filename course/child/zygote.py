"""A warm process: it has imported everything and is forked for each notebook. Linux only.

It never runs a cell of a submission and never holds its text. A grader sends {"start": {...}}
with a socket attached; the fork talks to the grader on that socket. {"end": n} ends fork n and
whatever it left behind. {"grader": true}, with a socket attached, adds another grader. When a grader
is gone, its forks end; with the last grader everything ends.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from course.child import kernel
from course.child.confine import BUBBLEWRAP, MESSAGE, PRIVATE, fork
from course.child.service import Service
from course.child.session import prepare, serve
from course.child.warming import warm

STRAYS = 2.0  # seconds for ending what has no parent, while other children run


def run(control: socket.socket, settings: Mapping[str, Any]) -> None:
    """Warm up, say so, and serve until the graders are gone."""
    if settings["become"] is not None:
        _become(settings["become"])
    kernel.prctl(
        kernel.PR_SET_CHILD_SUBREAPER, 1
    )  # what a child leaves behind becomes a child of this process
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # no other process of the user may look inside
    service = prepare()
    warm(service.shell)
    reply(control, {"warm": os.getpid()})
    Zygote(control, service, settings).serve()


def _become(uid: int) -> None:
    """Inside bubblewrap as root: turn into an ordinary user for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


class Zygote:
    """Forks a child for each notebook and clears up after it.

    graders : the sockets on which it is asked; they keep messages apart (SOCK_SEQPACKET).
    """

    def __init__(self, control: socket.socket, service: Service, settings: Mapping[str, Any]):
        self.graders = [control]
        self.service = service
        self.settings = {**settings, "outer_uid": os.getuid(), "outer_gid": os.getgid()}
        self.children: dict[int, Forked] = {}  # by number

    def serve(self) -> None:
        """Do what the graders ask, until the last of them is gone."""
        while self.graders:
            ready, _, _ = select.select(self.graders, [], [])
            for grader in ready:
                self._attend(grader)
        if self.settings["level"] != BUBBLEWRAP:  # there it is gone with its namespace
            _remove(os.environ["HOME"])

    def _attend(self, grader: socket.socket) -> None:
        message, attached = _receive(grader)
        if message is None:
            self._clear_up_after(grader)
        elif "grader" in message:
            self.graders.append(socket.socket(fileno=attached))
        elif "start" in message:
            self._start(grader, message["start"], attached)
        else:
            self._end(message["end"])
            reply(grader, {"ended": message["end"]})

    def _start(self, grader: socket.socket, start: dict, attached: int) -> None:
        try:
            pid = fork(self.settings["level"])
        except OSError as error:
            os.close(attached)
            return reply(grader, {"failed": str(error)})
        if pid == 0:
            self._be_the_child({**self.settings, **start}, attached)
        os.close(attached)
        self.children[pid] = Forked(grader, os.path.dirname(start["work"]))
        reply(grader, {"started": pid})

    def _be_the_child(self, settings: dict, attached: int) -> None:
        try:
            os.setsid()
            for grader in self.graders:
                grader.close()
            _open_anew()
            serve(self.service, socket.socket(fileno=attached), settings)
        finally:
            os._exit(0)

    def _end(self, child: int) -> None:
        """End a child, its group, and every process that lost its parent."""
        if child in self.children:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
            del self.children[child]
        last_moment = time.monotonic() + STRAYS
        while strays := _children_of(os.getpid()) - set(self.children):
            if self.children and time.monotonic() > last_moment:
                return  # a child that still runs makes them as fast as they are ended: it has its own end
            # all are stopped before the first is ended: else the others would fork again in its place
            stopped: set[int] = set()
            while running := _with_descendants(strays) - stopped:
                _signal(running, signal.SIGSTOP)
                stopped |= running
            _signal(stopped, signal.SIGKILL)
            for stray in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(stray, 0)

    def _clear_up_after(self, grader: socket.socket) -> None:
        """A grader is gone, perhaps killed: end its children and remove the folders that it cannot remove any more."""
        self.graders.remove(grader)
        grader.close()
        for child, forked in list(self.children.items()):
            if forked.grader is grader:
                self._end(child)
                if self.settings["level"] != BUBBLEWRAP:  # there they are gone with their namespaces
                    _remove(forked.folder)


class Forked(NamedTuple):
    """A running child: the socket of the grader that asked for it, and the folder that is private to it."""

    grader: socket.socket
    folder: str


def _remove(folder: str) -> None:
    """Remove a private folder. This process may be root's, so nothing else, whatever a message names."""
    if os.path.basename(folder).startswith(PRIVATE):
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)


def _open_anew() -> None:
    """Open the inherited files (matplotlib's fonts) once more: forks share the place where each reads on."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(number).st_mode):
                file = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
                os.dup2(file, number, inheritable=False)
                os.close(file)


def reply(grader: socket.socket, message: dict) -> None:
    """Send a message to a grader, if it is still there."""
    with contextlib.suppress(OSError):
        grader.send(json.dumps(message).encode())


def _receive(grader: socket.socket) -> tuple[dict | None, int | None]:
    """The next message, None where the grader is gone, and the file descriptor that came with it."""
    try:
        data, extra, _, _ = grader.recvmsg(MESSAGE, socket.CMSG_SPACE(4))
    except OSError:
        return None, None
    descriptors = array.array("i")
    for family, kind, content in extra:
        if (family, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[:4])
    return (json.loads(data) if data else None), (descriptors[0] if descriptors else None)


def _signal(processes: set[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, number)


def _children_of(parent: int) -> set[int]:
    """The process numbers of a process's children, those that it inherited included."""
    with contextlib.suppress(OSError):
        return {int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()}
    return _parents().get(parent, set())  # a kernel without that file


def _with_descendants(processes: set[int]) -> set[int]:
    """The processes and all that descend from them."""
    children, found, new = _parents(), set(), set(processes)
    while new:
        found |= new
        new = {child for process in new for child in children.get(process, ())} - found
    return found


def _parents() -> dict[int, set[int]]:
    """Process number: its children, for all processes that can be seen."""
    found: dict[int, set[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(status.read_bytes().rpartition(b")")[2].split()[1])  # names need not be text
            found.setdefault(parent, set()).add(int(status.parent.name))
    return found
