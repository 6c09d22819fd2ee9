"""Write what is derived, or say what is stale. Nothing that somebody edited is overwritten."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat

from autograder import figures
from autograder.build import notebooks, numbers
from autograder.build.faults import BuildError
from autograder.build.lesson_text import Chunk, parse
from autograder.exercises import all_exercises, of_lesson

ROOT = Path(__file__).parents[2]
Say = Callable[[str], None]


def build(
    lessons: Sequence[str] | None = None, check: bool = False, root: Path = ROOT, say: Say = print
) -> int:
    """Build some lessons, or all with everything else that is derived. Returns the exit status.

    check : write nothing, name each stale file; the status is 1 if there is one.
    root  : the folder that holds lessons/, source/, release/ and course/.
    """
    try:
        wanted = _wanted(lessons, root)
        edited = [name for name in wanted if _edited_by_hand(name, root)]
        for name in edited:
            say(
                f"source/{name}/{name}.ipynb was edited by hand and is left alone. "
                f"Bring the edit back first: python -m autograder pull {name}"
            )
        planned = _planned([name for name in wanted if name not in edited], lessons is None, root)
        stale = [path for path, text in planned.items() if not _is_fresh(path, text)]
        left = _left_over(root) if lessons is None else []
    except BuildError as error:
        say(f"build: {error}")
        return 1
    for path in stale:
        say(f"{'stale' if check else 'built'}: {path.relative_to(root)}")
        if not check:
            write(path, planned[path])
    for path in left:
        say(f"{'stale' if check else 'removed'}: {path.relative_to(root)} belongs to nothing any more")
        if not check:
            path.unlink()
    if not stale and not left and not edited:
        say("Everything is built.")
    return 1 if edited or (check and (stale or left)) else 0


def lesson_path(name: str, root: Path = ROOT) -> Path:
    return root / "lessons" / f"{name}.py"


def source_path(name: str, root: Path = ROOT) -> Path:
    return root / "source" / name / f"{name}.ipynb"


def release_path(name: str, root: Path = ROOT) -> Path:
    return root / "release" / name / f"{name}.ipynb"


def read_lesson(name: str, root: Path = ROOT) -> tuple[str, list[Chunk]]:
    """The note and the chunks of a lesson. Raises BuildError where it is not there or not well formed."""
    path = lesson_path(name, root)
    if not path.is_file():
        known = ", ".join(p.stem for p in sorted(path.parent.glob("*.py"))) or "none yet"
        raise BuildError(f"there is no lessons/{name}.py; the lessons are: {known}")
    try:
        return parse(path.read_text(encoding="utf-8"))
    except BuildError as error:
        raise BuildError(f"lessons/{name}.py: {error}") from error


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---------------------------------------------------------------- what there should be


def _wanted(lessons: Sequence[str] | None, root: Path) -> list[str]:
    if lessons is None:
        return [path.stem for path in sorted((root / "lessons").glob("*.py"))]
    for name in lessons:
        read_lesson(name, root)
    return list(lessons)


def _planned(lessons: Sequence[str], everything: bool, root: Path) -> dict[Path, str]:
    """Path -> the text that belongs there."""
    planned: dict[Path, str] = {}
    data = figures.by_lesson()
    quizzes: dict[str, str] = {}
    for name in lessons:
        _, chunks = read_lesson(name, root)
        for quiz in (chunk.name for chunk in chunks if chunk.kind == "quiz"):
            if quizzes.setdefault(quiz, name) != name:
                raise BuildError(f"lessons/{name}.py: {quizzes[quiz]} has a quiz called {quiz} as well")
        try:
            source = notebooks.source_notebook(name, chunks)
        except BuildError as error:
            raise BuildError(f"lessons/{name}.py: {error}") from error
        planned[source_path(name, root)] = notebooks.as_text(source)
        planned[release_path(name, root)] = notebooks.release_text(source)
        tree = numbers.lesson_tree(name, chunks, data.get(name[3:], {}))
        planned[root / "course" / "data" / f"{name}.json"] = numbers.as_text(tree)
    exercises = all_exercises().values() if everything else [e for n in lessons for e in of_lesson(n)]
    for exercise in exercises:
        text = numbers.as_text(numbers.exercise_tree(exercise))
        planned[_numbers_path(exercise.name, root)] = text
    return planned


def _numbers_path(exercise: str, root: Path) -> Path:
    return root / "course" / "numbers" / f"{exercise}.json"


def _left_over(root: Path) -> list[Path]:
    """Shipped files of exercises and lessons that are gone."""
    lessons = {path.stem for path in (root / "lessons").glob("*.py")}
    shipped = sorted((root / "course" / "numbers").glob("*.json"))
    data = sorted((root / "course" / "data").glob("*.json"))
    return [p for p in shipped if p.stem not in all_exercises()] + [p for p in data if p.stem not in lessons]


def _is_fresh(path: Path, text: str) -> bool:
    if not path.is_file():
        return False
    old = path.read_text(encoding="utf-8")
    return old == text or (path.suffix == ".json" and numbers.agree(old, text))


def _edited_by_hand(name: str, root: Path) -> bool:
    """Whether building would lose an edit: the notebook is neither as it was built nor as it would be."""
    path = source_path(name, root)
    if not path.is_file():
        return False
    try:
        found = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except Exception as error:
        raise BuildError(
            f"source/{name}/{name}.ipynb cannot be read ({error}); move it away and build again"
        ) from error
    if not notebooks.is_edited(found):
        return False
    _, chunks = read_lesson(name, root)
    wanted = notebooks.source_notebook(name, chunks)
    return list(map(notebooks.fingerprint, found.cells)) != list(map(notebooks.fingerprint, wanted.cells))
