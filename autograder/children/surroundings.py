"""What a child finds around it: its path, its environment, its folders, its files."""

from __future__ import annotations

import atexit
import base64
import contextlib
import importlib.util
import itertools
import os
import shutil
import site
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import psutil

import autograder
import course
from course.child.confine import PRIVATE

COURSE = Path(course.__file__).resolve().parent
PROGRAM = COURSE / "child" / "program.py"
INTERPRETER = sys.executable if sys.platform == "win32" else os.path.realpath(sys.executable)
MAX_FILES = 200
MAX_BYTES = 20_000_000
MANY_FILES = 5000  # files and folders that a child may have
LONG_PATH = 2000  # characters: folders within folders
PROCESSES = 64  # for a child whose user has no other processes
SPARE_PROCESSES = 256  # for a child of a user who has

# what programs need on Linux, besides the interpreter and its libraries
SYSTEM = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/fonts",
    "/etc/mime.types",
]


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


@cache
def readable() -> tuple[str, ...]:
    """All that a child may read at the upper levels: system programs, the interpreter, libraries, `course`."""
    prefixes = dict.fromkeys((sys.base_prefix, sys.prefix))
    python = [os.path.join(p, part) for p in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    wanted = [*SYSTEM, *python, INTERPRETER, *libraries(), str(COURSE)]
    private = [folder for folder in (os.path.expanduser("~"), os.getcwd()) if folder not in wanted]
    return tuple(without(wanted, [Path(autograder.__file__).parent, COURSE.parent, *map(Path, private)]))


def without(paths: Iterable[str], secret: Iterable[Path]) -> list[str]:
    """The paths that exist; one that holds a secret folder is replaced by what else it holds."""
    secret = [Path(os.path.realpath(path)) for path in secret]
    found: list[str] = []

    def add(path: str) -> None:
        real = Path(os.path.realpath(path))
        if not real.exists() or any(real == hidden for hidden in secret):
            return
        if real.is_dir() and any(real in hidden.parents for hidden in secret):
            for name in sorted(os.listdir(real)):
                add(os.path.join(path, name))
        else:
            found.append(path)

    for path in paths:
        add(path)
    return list(dict.fromkeys(found))


def environment(home: str | os.PathLike) -> dict[str, str]:
    """The whole environment of a child. Nothing of the grader's gets in but the language (on Windows also PATH)."""
    given = {name: os.environ[name] for name in ("LANG", "PATH", "SYSTEMROOT") if name in os.environ}
    if sys.platform != "win32":
        given["PATH"] = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    private = {
        name: str(home) for name in ("HOME", "USERPROFILE", "MPLCONFIGDIR", "IPYTHONDIR", "TMPDIR", "TEMP")
    }
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
    backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return given | private | one_thread | backend | {"COURSE_GRADING": "1"}


# ---------------------------------------------------------------- folders and files


class Folders:
    """A private folder for one child: `work` (the cells' current folder) and `home`. Removed by close().

    owner : the number of the user that the child becomes, if it is another one.
    """

    def __init__(self, owner: int | None = None):
        self.top = Path(tempfile.mkdtemp(prefix=PRIVATE))
        self.work = self.top / "work"
        self.home = self.top / "home"
        for folder in (self.work, self.home):
            folder.mkdir(mode=0o700)
        if owner is not None:
            for folder in (self.top, self.work, self.home):
                os.chown(folder, owner, owner)

    def hold_too_much(self, limit: int) -> bool:
        """Whether the files take more than `limit` bytes, or are too many to be looked at each time."""
        total = 0
        for looked, entry in enumerate(entries(self.top)):
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            if looked > MANY_FILES or len(entry.path) > LONG_PATH or total > limit:
                return True
        return False

    def close(self) -> None:
        """Remove the folder, also where the student took away permissions or nested folders deeply."""
        for entry in entries(self.top):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
        try:
            shutil.rmtree(self.top, ignore_errors=True)
        except RecursionError:
            subprocess.run(["rm", "-rf", str(self.top)], capture_output=True, check=False)


def entries(top: str | os.PathLike) -> Iterator[os.DirEntry]:
    """All that is in a folder and in its folders, however deep, in order; links are not followed."""
    waiting = [os.fspath(top)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def packed_files(submission: Path | None) -> list[list[str]]:
    """[relative path, content as base64] of the plain files of a submission, within bounds.

    Links and special files, and what begins with a dot, are left out.
    """
    if submission is None:
        return []
    found, left = [], MAX_BYTES
    for entry in itertools.islice(entries(submission), 10 * MAX_FILES):
        path = os.path.relpath(entry.path, submission)
        if (
            len(found) == MAX_FILES
            or not path.isprintable()
            or any(p.startswith(".") for p in Path(path).parts)
        ):
            continue
        data = _read_plain(entry.path, left)
        if data is not None:
            left -= len(data)
            found.append([path, base64.b64encode(data).decode("ascii")])
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
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size > limit:
            return None
        with os.fdopen(os.dup(file), "rb") as opened:
            return opened.read(limit)
    finally:
        os.close(file)


@cache
def font_list() -> Path:
    """A folder with matplotlib's list of fonts, made once: it takes up to some seconds, and each child has a new home."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PRIVATE}fonts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    code = f"import sys; sys.path += {list(libraries())!r}; import matplotlib.font_manager"
    subprocess.run(
        [INTERPRETER, "-I", "-S", "-c", code], env=environment(folder), capture_output=True, check=False
    )
    return folder


# ---------------------------------------------------------------- users and processes


def is_root() -> bool:
    """Whether the grader runs as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def spare_user() -> int | None:
    """The number of a user for a child to become, where the grader may choose; else None.

    Each grader process has its own, so that children of two graders are strangers to each other.
    """
    return 61184 + os.getpid() % 4000 if is_root() else None


@cache
def processes_of_the_user() -> int:
    """How many processes and threads the user has now: the system's limit counts them all."""
    user = psutil.Process().username()
    infos = (process.info for process in psutil.process_iter(["username", "num_threads"]))
    return sum(info["num_threads"] or 1 for info in infos if info["username"] == user)
