"""Grade the same class in every way and compare: python -m benchmarks [--students 60] [--flat 10 60 600].

Every line is measured in this run: real time, processor time and memory of a command with all processes
that it starts, start-up included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from nbformat import NotebookNode

from autograder import isolation
from autograder.children import warm
from autograder.class_run import api_of
from autograder.clean import is_check, plain
from autograder.demo import samples
from autograder.lessons import ROOT, Lesson, find
from autograder.nbgrader_steps import register
from benchmarks import LESSON, pictures_in
from benchmarks.in_kernel import with_checks_in_kernel
from benchmarks.measure import Measured, measured

KINDS = ("all_right", "other_ways", "three_mistakes", "half_done", "all_right", "untouched")
PLAIN = "c = get_config()\nc.CourseDirectory.course_id = 'bench'\n"
OURS = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\n"
NBGRADER = [sys.executable, "-m", "nbgrader"]
WORKERS = {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "d all": 2, "e all": 2}
CHANGED = "\n# changed, so that it is run when graded"


def main() -> int:
    options = _options()
    lesson = find(LESSON)
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        top = Path(made)
        class_ = a_class(lesson, options.students)
        everything = {student: with_explorations(notebook, lesson) for student, notebook in class_.items()}
        print(
            f"{LESSON}, {options.students} submissions, {os.cpu_count()} cores, isolation {isolation.level()}, "
        )
        print(f"load average before the run {os.getloadavg()[0]:.1f}. All with start-up.\n")
        warm.close_all()  # the trial of isolation is no part of what is measured
        compare(top, lesson, class_, everything)
        for count in options.flat:
            flat(top / f"flat-{count}", lesson, count)
    waits()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=60, metavar="N", help="how many submissions")
    parser.add_argument(
        "--flat", type=int, nargs="*", default=(), metavar="N", help="class --jobs 2 also at these sizes"
    )
    return parser.parse_args()


# ---------------------------------------------------------------- the class


def a_class(lesson: Lesson, count: int) -> dict[str, NotebookNode]:
    """Student -> notebook: right, wrong and unfinished ones, in turn."""
    notebooks = samples(lesson)
    return {f"student{number:04d}": notebooks[KINDS[number % len(KINDS)]] for number in range(count)}


def with_explorations(notebook: NotebookNode, lesson: Lesson) -> NotebookNode:
    """A copy in which every exploration cell is changed, so that our steps run it too."""
    untouched = {plain(source) for source in lesson.explorations}
    cells = [
        NotebookNode(cell | {"source": cell.source + CHANGED})
        if cell.cell_type == "code" and plain(cell.source) in untouched
        else cell
        for cell in notebook.cells
    ]
    return NotebookNode(notebook | {"cells": cells})


def course_folder(root: Path, config: str, source: NotebookNode, class_: Mapping[str, NotebookNode]) -> Path:
    """A course folder with this source notebook and these submissions."""
    root.mkdir()
    (root / "nbgrader_config.py").write_text(config)
    _write(root / "source" / LESSON / f"{LESSON}.ipynb", source)
    for student, notebook in class_.items():
        _write(root / "submitted" / student / LESSON / f"{LESSON}.ipynb", notebook)
    return root


def _write(path: Path, notebook: NotebookNode) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


# ---------------------------------------------------------------- the ways to grade it


def compare(
    top: Path, lesson: Lesson, class_: Mapping[str, NotebookNode], everything: Mapping[str, NotebookNode]
) -> None:
    """Grade the class in every way, and print the table and the ratios."""
    count = len(class_)
    plain_class = {student: with_checks_in_kernel(notebook) for student, notebook in class_.items()}
    roots = {
        "a": course_folder(top / "a", PLAIN, with_checks_in_kernel(lesson.source), plain_class),
        "b": course_folder(top / "b", OURS, lesson.source, class_),
        "c": course_folder(top / "c", OURS, lesson.source, class_),
        "d": course_folder(top / "d", OURS, lesson.source, class_),
        "d all": course_folder(top / "d_all", OURS, lesson.source, everything),
    }
    measured([*NBGRADER, "generate_assignment", LESSON], roots["a"])
    for key in ("b", "c", "d", "d all"):  # the gradebook is there, as after the first lesson of a class
        register(lesson, api_of(roots[key]).coursedir)
    cells = {"e": top / "cells.json", "e all": top / "all.json"}
    cells["e"].write_text(json.dumps([cells_of(n, lesson.explorations) for n in class_.values()]))
    cells["e all"].write_text(json.dumps([cells_of(n) for n in class_.values()]))
    ways = [
        ("a", "plain nbgrader autograde, checks in the kernel, all cells", _autograde(), roots["a"]),
        ("b", "nbgrader autograde with our steps", _autograde(), roots["b"]),
        ("c", "class --jobs 1", _class(1), roots["c"]),
        ("d", "class --jobs 2", _class(2), roots["d"]),
        ("e", "floor, 2 processes: the cells that (d) runs", _floor(cells["e"]), ROOT),
        ("d all", "class --jobs 2, explorations run too", _class(2), roots["d all"]),
        ("e all", "floor, 2 processes: all cells", _floor(cells["e all"]), ROOT),
    ]
    print(f"{'':6}{'notebooks':>10}{'real s':>9}{'CPU s':>9}{'peak MB':>9}{'peak MB':>10}{'':>10}")
    print(f"{'':6}{'a minute':>10}{'each':>9}{'each':>9}{'in all':>9}{'a worker':>10}{'pictures':>10}")
    found: dict[str, Measured] = {}
    for key, what, command, root in ways:
        found[key] = took = measured(command, root)
        shown = _pictures(root) if key in roots else sum(map(int, took.output.split()))
        numbers = f"{60 * count / took.seconds:10.1f}{took.seconds / count:9.3f}{took.processor / count:9.3f}"
        peaks = f"{took.peak / 1e6:9.0f}{took.peak / 1e6 / WORKERS[key]:10.0f}"
        print(f"{key:6}{numbers}{peaks}{shown:10d}  {what}", flush=True)
    print()
    for first, second, words in [
        ("a", "b", "(b) against (a)"),
        ("a", "c", "(c) against (a)"),
        ("a", "d", "(d) against (a), as graded"),
        ("a", "d all", "(d) against (a), all cells run"),
        ("d", "e", "(d) over its floor"),
        ("d all", "e all", "(d) over its floor, all cells run"),
    ]:
        real = found[first].seconds / found[second].seconds
        print(
            f"{words:36}{real:7.2f} times in real time,{found[first].processor / found[second].processor:7.2f} in CPU time"
        )


def _autograde() -> list[str]:
    return [*NBGRADER, "autograde", LESSON]


def _class(jobs: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "autograder",
        "class",
        LESSON,
        "--jobs",
        str(jobs),
        "--accept-process-isolation",
    ]


def _floor(cells: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.floor", str(cells), "2"]


def cells_of(notebook: NotebookNode, left_out: Sequence[str] = ()) -> list[str]:
    """The code of a notebook's cells, the check cells left out and these."""
    skipped = {plain(source) for source in left_out}
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and not is_check(cell)]
    return [cell.source for cell in code if cell.source.strip() and plain(cell.source) not in skipped]


def _pictures(root: Path) -> int:
    """How many PNG pictures the graded notebooks hold."""
    notebooks = (json.loads(path.read_text()) for path in root.glob(f"autograded/*/{LESSON}/{LESSON}.ipynb"))
    return sum(
        pictures_in(output.get("data", {}))
        for notebook in notebooks
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
    )


def flat(root: Path, lesson: Lesson, count: int) -> None:
    """The time per notebook of a class of this size."""
    course_folder(root, OURS, lesson.source, a_class(lesson, count))
    register(lesson, api_of(root).coursedir)
    took = measured(_class(2), root)
    each = f"{took.seconds / count:.3f} s, {took.processor / count:.3f} CPU s a notebook"
    print(f"class --jobs 2, {count} submissions: {each}, peak {took.peak / 1e6:.0f} MB in all", flush=True)


# ---------------------------------------------------------------- what a learner waits for


def waits() -> None:
    """Print how long `import course` and check(...) take."""
    took = json.loads(measured([sys.executable, "-m", "benchmarks.answering"], ROOT).output.splitlines()[-1])
    print(f"\nimport of the course, beyond NumPy and Matplotlib: {took['import']:.3f} s")
    for key, where in [("judged", "with the judge at hand"), ("shipped", "from the shipped numbers")]:
        times = took[key]
        slowest = max(times, key=times.get)
        print(
            f"check(...) {where}: median {median(times.values()):.3f} s, slowest {slowest} {times[slowest]:.3f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
