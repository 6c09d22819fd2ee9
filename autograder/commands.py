"""The commands: python -m autograder grade | class | build | pull | demo | lab."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from autograder import isolation

OK, FAULT, USAGE = 0, 1, 2  # exit statuses


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. argparse itself leaves with 2 where the usage is wrong."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        return _say("Stopped. What stands in a gradebook stays; the same command goes on from there.", FAULT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m autograder", description="Build, grade and hand out the course."
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    command = _command(commands, "grade", _grade, "grade notebooks without a gradebook")
    command.add_argument("paths", nargs="+", type=Path, metavar="NOTEBOOK_OR_FOLDER")
    command.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results there (- for the screen)"
    )
    command.add_argument(
        "--seed", type=int, metavar="N", help="draw the cases from this seed; else from a fresh one"
    )
    _running(command)

    command = _command(commands, "class", _class, "grade all of submitted/ into the gradebook")
    command.add_argument("lesson", type=lambda name: name.rstrip("/"))
    command.add_argument(
        "--accept-process-isolation",
        action="store_true",
        help="grade although a submission could read files of this account, the references among them",
    )
    _running(command)

    command = _command(commands, "build", _build, "build source/, release/ and the shipped numbers")
    command.add_argument("lessons", nargs="*", metavar="LESSON")
    command.add_argument("--check", action="store_true", help="write nothing; say what is stale")

    command = _command(commands, "pull", _pull, "bring edits of source/ back into lessons/")
    command.add_argument("lessons", nargs="+", metavar="LESSON")

    _command(commands, "demo", _demo, "grade a sample class of eight in demo/")
    _command(commands, "lab", _lab, "copy the notebooks to work/ and open JupyterLab there")
    return parser


def _command(commands, name: str, run, what: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    command.set_defaults(run=run)
    return command


def _running(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jobs", type=_at_least_one, default=os.cpu_count(), metavar="N", help="how many at once"
    )
    command.add_argument("--require-isolation", choices=isolation.LEVELS, help="refuse to run at less")


def _at_least_one(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError("must be a whole number, 1 or more")
    return int(text)


def _say(sentence: str, status: int) -> int:
    print(sentence, file=sys.stderr)
    return status


def _too_weak(options: argparse.Namespace) -> str:
    """Why this machine may not run submissions as they were asked for; nothing where it may."""
    wanted, offered = options.require_isolation, isolation.level()  # found before any worker is forked
    if wanted and not isolation.is_at_least(wanted):
        return f"Isolation level {wanted} is required, but this machine offers {offered}."
    return ""


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Import without looking for garbage meanwhile. What is imported stays, and workers share it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


# ---------------------------------------------------------------- the commands


def _grade(options: argparse.Namespace) -> int:
    isolation.begin()
    with _importing():
        from autograder import results
        from autograder.class_table import graded_line, problem, summary
        from autograder.exercises import all_exercises
        from autograder.finding import submissions
        from autograder.seeds import fresh_seed
        from autograder.submissions import grade_all

        all_exercises()
    too_weak = _too_weak(options)
    if too_weak:
        return _say(too_weak, USAGE)
    found = []
    for path in options.paths:
        if not path.exists() and not path.is_symlink():
            return _say(f"There is nothing at {path}. Name a notebook or a folder with notebooks.", USAGE)
        below = submissions(path)
        if not below:
            return _say(f"There is no notebook in the folder {path}.", USAGE)
        found += below
    on_screen = options.json is not None and str(options.json) == "-"
    if options.json and not on_screen and not options.json.absolute().parent.is_dir():
        return _say(f"The folder for {options.json} does not exist.", USAGE)
    seed = fresh_seed() if options.seed is None else options.seed
    entries = []
    for entry in grade_all(found, seed, options.jobs):
        entries.append(entry)
        if not on_screen:
            print(graded_line(entry) if entry["status"] == "graded" else problem(entry), flush=True)
    order = {str(each.path): place for place, each in enumerate(found)}
    entries.sort(key=lambda entry: order[entry["path"]])
    if on_screen:
        print(json.dumps(results.document(entries), indent=1, ensure_ascii=False))
    else:
        print(f"{summary(entries)}; seed {seed}")
        if options.json:
            results.write(options.json, entries)
    return FAULT if any(entry["status"] == "fault" for entry in entries) else OK


def _class(options: argparse.Namespace) -> int:
    isolation.begin()
    with _importing():
        from autograder import lessons
        from autograder.class_run import grade_and_show
        from autograder.exercises import all_exercises

        all_exercises()
    if options.lesson not in lessons.names():
        return _say(
            f"There is no lesson {options.lesson!r}. The lessons are: {', '.join(lessons.names())}.", USAGE
        )
    too_weak = _too_weak(options)
    if too_weak:
        return _say(too_weak, USAGE)
    if isolation.level() == "process" and not options.accept_process_isolation:
        return _say(
            "This machine keeps a submission in a process of its own, but not from reading files: a student's code could "
            "look up the references. To grade all the same, add --accept-process-isolation.",
            USAGE,
        )
    return grade_and_show(Path.cwd(), lessons.find(options.lesson), options.jobs)


def _build(options: argparse.Namespace) -> int:
    from autograder.build import build

    return build(options.lessons or None, check=options.check)


def _pull(options: argparse.Namespace) -> int:
    from autograder.build import pull

    return max(pull(lesson) for lesson in options.lessons)


def _demo(options: argparse.Namespace) -> int:
    from autograder.demo import demo

    return demo()


def _lab(options: argparse.Namespace) -> int:
    from autograder.lessons import ROOT

    work = ROOT / "work"
    for path in sorted((ROOT / "release").rglob("*")):
        target = work / path.relative_to(ROOT / "release")
        if path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.copying")
            shutil.copyfile(path, unfinished)
            unfinished.rename(target)
    # inside a container the only user is often root, whom JupyterLab refuses unless told
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return subprocess.call([sys.executable, "-m", "jupyterlab", *as_root, str(work)])
