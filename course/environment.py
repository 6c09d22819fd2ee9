"""Is everything here that the notebooks need? Each thing is looked at, and what is missing gets one sentence."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_NUMPY = (2, 0)
LIBRARIES = ("numpy", "matplotlib", "ipywidgets")
INSTALL = "In the course's folder, run `pip install -r requirements.txt`, then restart the kernel."


@dataclass(frozen=True)
class Looked:
    """One thing that was looked at: what it is, what was found, and what to do ("" where all is well)."""

    what: str
    found: str
    advice: str = ""


def report(written_for: str = "") -> None:
    """Print one line per thing: Python, NumPy and the other libraries, the folder, the kernel, the course.

    written_for : the course version that the notebook belongs to, such as "1.0".
    """
    looked = look(Path.cwd(), written_for)
    for thing in looked:
        print(f"{'to do' if thing.advice else 'fine':6} {thing.what}: {thing.found}")
        if thing.advice:
            print(f"       {thing.advice}")
    missing = sum(bool(thing.advice) for thing in looked)
    print(f"\n{missing} of {len(looked)} to do." if missing else "\nEverything is here.")


def look(folder: Path, written_for: str = "") -> list[Looked]:
    """Look at everything, without printing."""
    return [
        python(sys.version_info[:3]),
        *(library(name) for name in LIBRARIES),
        writable(folder),
        hidden(folder),
        kernel(),
        course_version(written_for),
    ]


def python(found: Sequence[int]) -> Looked:
    text = ".".join(map(str, found))
    if tuple(found[:2]) >= OLDEST_PYTHON:
        return Looked("Python", text)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Looked("Python", text, f"Install Python {oldest} or newer and set the course up again with it.")


def library(name: str, oldest_numpy: tuple[int, int] = OLDEST_NUMPY) -> Looked:
    """Whether a library is installed; for NumPy also whether it is new enough."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return Looked(name, "missing", INSTALL)
    if name == "numpy" and tuple(int(part) for part in found.split(".")[:2]) < oldest_numpy:
        return Looked(name, found, f"This version is too old. {INSTALL}")
    return Looked(name, found)


def writable(folder: Path) -> Looked:
    """Whether the notebook can be saved where it is."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Looked("folder", "can be written to")
    except OSError:
        return Looked(
            "folder",
            "cannot be written to",
            "Your work could not be saved: copy the notebook into a folder of your own and open it there.",
        )


def hidden(folder: Path) -> Looked:
    """Whether a file beside the notebook has the name of a library and is imported in its place."""
    names = [name for name in (*LIBRARIES, "course") if (folder / f"{name}.py").is_file()]
    if not names:
        return Looked("files beside the notebook", "none hides a library")
    return Looked(
        "files beside the notebook",
        f"{names[0]}.py hides the library of that name",
        "Rename the file, then restart the kernel.",
    )


def kernel() -> Looked:
    """Whether this runs in a notebook's kernel, which check() needs to show its reports."""
    if importlib.util.find_spec("IPython") is not None:
        from IPython import get_ipython

        shell = get_ipython()
        if shell is not None and hasattr(shell, "kernel"):
            return Looked("kernel", platform.python_implementation() + " in a notebook")
    return Looked("kernel", "none", "Open the notebook in JupyterLab: run `make lab` in the course's folder.")


def course_version(written_for: str = "") -> Looked:
    """Whether the installed course is the one that the notebook was written for."""
    from course import __version__

    if not written_for or __version__.split(".")[:2] == written_for.split(".")[:2]:
        return Looked("course", f"version {__version__}")
    return Looked(
        "course",
        f"version {__version__}, the notebook is for {written_for}",
        "Get the notebooks and the course from the same place; your answers can be copied over.",
    )
