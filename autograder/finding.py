"""Find what was handed in: which file of a folder is the notebook, and what in there is better left alone."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder import lessons
from autograder.children.surroundings import MAX_BYTES, MAX_FILES
from autograder.lessons import Lesson
from autograder.reading import Refused, read
from autograder.sanitize import one_line

NOTEBOOK = ".ipynb"
LINKED_FOLDER = "The folder is a link to another place. Hand in a folder with the notebook itself."


@dataclass(frozen=True)
class Found:
    """Something to grade. reason : why it is refused before it is read, or nothing."""

    path: Path
    student: str
    reason: str = ""


def submissions(path: Path) -> list[Found]:
    """What there is to grade at this path: the file itself, or every notebook below the folder, in order of name."""
    if not path.is_dir():
        return [Found(path, student_of(path))]
    found = sorted(_below(path), key=lambda found: str(found.path))
    name = path.absolute().name
    if not found and name in lessons.names():
        return [Found(path, student_of(path), _nothing_here(path, name))]
    return found


def _below(top: Path) -> Iterator[Found]:
    """What lies below a folder. One that has a lesson's name holds a student's notebook, or the students' folders."""
    holds_students = top.absolute().name in lessons.names()
    for folder, names, files in os.walk(top):
        here = Path(folder)
        notebooks = [
            name for name in (*names, *files) if name.endswith(NOTEBOOK) and not name.startswith(".")
        ]
        names[:] = [name for name in names if name not in notebooks and not name.startswith(".")]
        linked = [name for name in names if os.path.islink(here / name)]
        for name in notebooks:
            student = here.name if holds_students and here.parent == top else student_of(here / name)
            yield Found(here / name, student)
        for name in linked:  # os.walk does not go there
            yield Found(here / name, student_of(here / name), LINKED_FOLDER)
        if here != top and here.name in lessons.names() and not notebooks:
            yield Found(here, student_of(here), _nothing_here(here, here.name))


def student_of(path: Path) -> str:
    """The student whose notebook this is: the folder above the lesson's, else the file's name."""
    for folder in (path.absolute(), path.absolute().parent):
        if folder.name in lessons.names():
            return folder.parent.name
    return path.stem


def lesson_of_file(tree: Mapping[str, Any], path: Path) -> Lesson | None:
    """The lesson of a notebook: by its cells, else by the name of the file, else by that of the folder."""
    for name in (path.stem, path.absolute().parent.name):
        named = next((lesson for lesson in lessons.names() if name.startswith(lesson)), "")
        found = lessons.lesson_of(tree, named)
        if found:
            return found
    return None


def notebook_in(folder: Path, lesson: Lesson) -> Path:
    """The notebook of this lesson in a student's folder, also under another name. Raises Refused where there is none."""
    if is_linked(folder):
        raise Refused(LINKED_FOLDER)
    expected = folder / f"{lesson.name}{NOTEBOOK}"
    if os.path.lexists(expected):
        return expected
    others = [folder / name for name in _names(folder) if name.endswith(NOTEBOOK)]
    for other in sorted(others, key=_age):
        try:
            if lessons.lesson_of(read(other)) == lesson:
                return other
        except Refused:
            continue
    if len(others) == 1:
        return others[0]
    raise Refused(_nothing_here(folder, lesson.name))


def _names(folder: Path) -> list[str]:
    """What lies in a folder, hidden files left out; nothing where it may not be read."""
    try:
        return [name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    except OSError:
        return []


def _age(path: Path) -> float:
    return -os.lstat(path).st_mtime


def _nothing_here(folder: Path, lesson: str) -> str:
    names = [name for name in _names(folder) if name != "timestamp.txt"]
    instead = f" Found instead: {one_line(', '.join(names))}." if names else ""
    return f"There is no notebook of this lesson in the folder.{instead} Hand in {lesson}{NOTEBOOK}."


def is_linked(folder: Path) -> bool:
    """Whether a student's folder for a lesson lies elsewhere in truth."""
    return folder.is_symlink() or folder.parent.is_symlink()


def unsafe_files(folder: Path) -> list[str]:
    """Patterns for the names of files in a submission that nbgrader must not copy: all that are not plain files
    of this folder alone, that may not be read, or that are too many or too large."""
    if is_linked(folder):
        return ["*", ".*"]
    left, count, unsafe = MAX_BYTES, 0, []
    for here, _, files in os.walk(folder):
        for name in files:
            state = os.lstat(os.path.join(here, name))
            plain = (
                stat.S_ISREG(state.st_mode)
                and state.st_nlink == 1
                and os.access(os.path.join(here, name), os.R_OK)
            )
            if plain and state.st_size <= left and count < MAX_FILES:
                left, count = left - state.st_size, count + 1
            elif not name.endswith(NOTEBOOK):
                unsafe.append(glob.escape(name))
    return unsafe
