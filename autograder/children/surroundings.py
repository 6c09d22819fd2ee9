"""What a child finds around it: its path, its environment, its folders, its files."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import site
import stat
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import psutil

import course

COURSE = Path(course.__file__).resolve().parent
PROGRAM = COURSE / "child" / "program.py"
MAX_FILES = 200
MAX_BYTES = 20_000_000
SPARE_PROCESSES = 256


@cache
def libraries() -> tuple[str, ...]:
    """The folders of installed libraries, without the repository and without what .pth files add."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    for name in ("numpy", "IPython", "matplotlib", "ipykernel"):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            found.append(str(Path(spec.origin).parent.parent))
    return tuple(dict.fromkeys(folder for folder in found if Path(folder).is_dir()))


def environment(home: Path) -> dict[str, str]:
    """The whole environment of a child. Nothing of the grader's gets in but PATH and the language."""
    given = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    private = {
        name: str(home) for name in ("HOME", "USERPROFILE", "MPLCONFIGDIR", "IPYTHONDIR", "TMPDIR", "TEMP")
    }
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
    backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return given | private | one_thread | backend | {"COURSE_GRADING": "1"}


class Folders:
    """A private folder for one child: `work` (the cells' current folder) and `home`. Removed by close()."""

    def __init__(self, submission: Path | None):
        self.top = Path(tempfile.mkdtemp(prefix="grading-"))
        self.work = self.top / "work"
        self.home = self.top / "home"
        self.work.mkdir()
        self.home.mkdir()
        for path in font_list().glob("fontlist-*.json"):
            shutil.copy(path, self.home)
        if submission is not None:
            for name, data in files_of(submission):
                target = self.work / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

    def close(self) -> None:
        """Remove the folder, also where the student took away permissions."""

        def once_more(function, path, error):
            with contextlib.suppress(OSError):
                os.chmod(os.path.dirname(path), 0o700)
                os.chmod(
                    path, 0o700, follow_symlinks=False
                ) if os.chmod in os.supports_follow_symlinks else None
                function(path)

        shutil.rmtree(self.top, onerror=once_more)


def files_of(submission: Path) -> list[tuple[str, bytes]]:
    """(relative path, content) of the plain files of a submission, within bounds. Links and special files are left out."""
    found, left = [], MAX_BYTES
    for folder, names, files in os.walk(submission):
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and not os.path.islink(os.path.join(folder, name))
        )
        for name in sorted(files):
            path = os.path.join(folder, name)
            data = _read_plain(path, left)
            if data is None or len(found) >= MAX_FILES:
                continue
            left -= len(data)
            found.append((os.path.relpath(path, submission), data))
    return found


def _read_plain(path: str, limit: int) -> bytes | None:
    """The content of a plain file of at most `limit` bytes, else None. Never follows a link or waits for a pipe."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        file = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        state = os.fstat(opened.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > limit:
            return None
        return opened.read(limit)


def processes_allowed() -> int:
    """How many processes the user may have while a child runs: those of now and some more."""
    return _processes_now() + SPARE_PROCESSES


@cache
def _processes_now() -> int:
    user = psutil.Process().username()
    total = 0
    for process in psutil.process_iter(["username", "num_threads"]):
        if process.info["username"] == user:
            total += process.info["num_threads"] or 1
    return total


# ---------------------------------------------------------------- matplotlib's list of fonts


@cache
def font_list() -> Path:
    """A folder with matplotlib's list of fonts, made once: it takes up to some seconds, and each child has a new home."""
    folder = Path(tempfile.mkdtemp(prefix="grading-fonts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    code = f"import sys; sys.path += {list(libraries())!r}; import matplotlib.font_manager"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env=environment(folder), capture_output=True, check=False
    )
    return folder
