"""What lies around a submission while it is graded: a course folder, a home, other processes, open ports.

Everything in it may be read and written by everybody, so that only the isolation protects it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from autograder.demo import lesson_solution
from autograder.lessons import ROOT
from tests.attacks.attack import LESSON, NAMES, notebook

SECRET = "the-secret-of-the-class"


class World:
    """A folder with what an attack may be after, and things that listen and live beside it."""

    def __init__(self, top: Path, ports: list[socket.socket], bystander: subprocess.Popen):
        self.top = top
        self.ports = ports
        self.bystander = bystander
        self.mark = f"course-attack-{time.monotonic_ns()}"
        self.folder = top / "course" / "submitted" / "mallory" / LESSON.name
        self.places = {
            "gradebook": top / "course" / "gradebook.db",
            "secret": top / "course" / "class_secret",
            "source": top / "course" / "source" / LESSON.name / f"{LESSON.name}.ipynb",
            "other": top / "course" / "submitted" / "anna" / LESSON.name / f"{LESSON.name}.ipynb",
            "outside": top / "course",
            "home": top / "home",
            "socket": top / "socket",
            "repository": ROOT,
            "port": ports[0].getsockname()[1],
            "bystander": bystander.pid,
            "grader": os.getpid(),
            "mark": self.mark,
        }

    def hand_in(self, tree: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Put a submission into its folder."""
        self.folder.mkdir(parents=True)
        (self.folder / f"{LESSON.name}.ipynb").write_text(json.dumps(tree))
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def content(self) -> dict[str, str]:
        """Path -> kind, mode, owner and hash of all that lies in the world."""
        return {str(path.relative_to(self.top)): _state(path) for path in sorted(self.top.rglob("*"))}

    def reached(self) -> bool:
        """Whether somebody connected to one of the open ports."""
        for port in self.ports:
            with contextlib.suppress(BlockingIOError):
                port.accept()
                return True
        return False

    def left_behind(self) -> list[str]:
        """Processes that carry the mark, and files with it at the places that everybody may write to."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if self.mark in line and process.pid != os.getpid():
                found.append(line)
        for place in ("/tmp", "/var/tmp", "/dev/shm", str(ROOT), str(ROOT / "course"), str(Path.home())):
            found += map(str, Path(place).glob(f"*{self.mark}*"))
        return found


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A world of one's own."""
    top = Path(tempfile.mkdtemp(prefix="attacked-"))
    bystander = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(top / "socket"))
        unix.listen()
        for port in (tcp, unix):
            port.setblocking(False)
        made = World(top, [tcp, unix], bystander)
        right = notebook({name: lesson_solution(LESSON, name) for name in NAMES})
        _write(made.places["gradebook"], "everybody's points")
        _write(made.places["secret"], SECRET)
        _write(made.places["source"], json.dumps(LESSON.source))
        _write(made.places["other"], json.dumps(right))
        _write(made.places["home"] / "notes.txt", "private")
        for path in (top, *top.rglob("*")):
            path.chmod(0o666 if path.is_file() else 0o777)
        try:
            yield made
        finally:
            bystander.kill()
            bystander.wait()
            _remove_left(made.mark)
            shutil.rmtree(top, ignore_errors=True)


def descendants() -> set[int]:
    """The process numbers of all that this process started and that still runs."""
    return {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


def repository_files() -> dict[str, str]:
    """Path -> state of every file that makes up the grader and the course."""
    folders = [ROOT / name for name in ("autograder", "course", "release", "source", "lessons")]
    paths = [
        path for folder in folders for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts
    ]
    return {str(path.relative_to(ROOT)): _state(path) for path in paths}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _state(path: Path) -> str:
    state = path.lstat()
    plain = path.is_file() and not path.is_symlink()
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
    return f"{state.st_mode:o} {state.st_uid} {state.st_nlink if plain else ''} {digest}"


def _remove_left(mark: str) -> None:
    """What an attack could leave at the level process: its processes and files."""
    for process in psutil.process_iter(["cmdline"]):
        if mark in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid():
            process.kill()
    for place in ("/tmp", "/var/tmp", "/dev/shm", str(Path.home())):
        for path in Path(place).glob(f"*{mark}*"):
            path.unlink(missing_ok=True)
