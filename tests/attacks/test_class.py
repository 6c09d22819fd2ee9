"""Attacks among a class: through nbgrader and the class runner, beside students who are honest."""

import json
import shutil
import sqlite3
import time

import pytest
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.utils import capture_log, temp_attrs

from autograder import class_run
from autograder.commands import main
from autograder.lessons import ROOT
from autograder.nbgrader_steps import state_in
from tests.attacks import harm, points
from tests.attacks.attack import HONEST, LESSON, NAMES, honest
from tests.attacks.broken import BROKEN
from tests.attacks.world import descendants, repository_files

pytestmark = pytest.mark.slow
SAMPLE = [
    "check cells tagged skip-execution",
    "every check cell four times",
    "check cells deleted",
    "forged results in the check cells",
    "keys that nbgrader does not know",
    "an AST transformer",
    "run_cell patched",
    "an object that equals everything",
    "the references read",
    "the gradebook written",
    "another submission written",
    "a file that is written after grading",
    "os._exit half way",
    "many verdicts, from a cell",
    "all later answers sent with the first",
    "a daemon whose name is no text",
    "orphans without end",
    "files beside the notebook that shadow libraries",
    "200 MB of text",
    "script in text cells",
]
BROKEN_SAMPLE = [
    "an empty file",
    "a truncated file",
    "a Python file",
    "a folder with the notebook's name",
    "a notebook of 100 MB",
    "deeply nested JSON",
    "format 3",
    "saved by Colab",
]
ATTACKS = {attack.name: attack for attack in (*points.ATTACKS, *harm.ATTACKS)}
WORTH = {f"check_{name}": LESSON.points[name] if name in HONEST else 0.0 for name in NAMES}
HONEST_STUDENTS = ("anna", "zoe")  # the first and the last


def student(number):
    return f"m{number:02}"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder: one who is graded already, then the attacks and the broken ones, then one more."""
    root = tmp_path_factory.mktemp("attacked") / "course"
    root.mkdir()
    config = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\n"
    (root / "nbgrader_config.py").write_text(config)
    places = {
        "gradebook": root / "gradebook.db",
        "other": root / "submitted" / "anna" / LESSON.name / f"{LESSON.name}.ipynb",
        "repository": ROOT,
        "mark": "course-attack-of-a-class",
    }
    for name in HONEST_STUDENTS:
        put(root, name, honest())
    grade_one(root, "anna")
    with gradebook(root) as book:
        book.find_grade(f"check_{HONEST[0]}", LESSON.name, LESSON.name, "anna").manual_score = 1.5
        book.db.commit()
    for number, name in enumerate(SAMPLE):
        attack = ATTACKS[name]
        folder = put(root, student(number), attack.tree(places))
        for file, content in attack.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
    for number, name in enumerate(BROKEN_SAMPLE, len(SAMPLE)):
        BROKEN[name].make(root / "submitted" / student(number) / LESSON.name)
    return root


def put(root, name, tree):
    folder = root / "submitted" / name / LESSON.name
    folder.mkdir(parents=True)
    (folder / f"{LESSON.name}.ipynb").write_text(json.dumps(tree))
    return folder


def gradebook(root):
    return Gradebook(f"sqlite:///{root}/gradebook.db", "transformer_block")


def grade_one(root, name):
    """What the formgrader's button does."""
    made = class_run.api_of(root).autograde(LESSON.name, name)
    assert made["success"], made


def rows(root):
    """Student -> check cell -> automatic and manual score."""
    with gradebook(root) as book:
        return {
            submission.student.id: {
                grade.cell.name: (grade.auto_score, grade.manual_score)
                for notebook in submission.notebooks
                for grade in notebook.grades
                if grade.cell.name in WORTH
            }
            for submission in book.assignment_submissions(LESSON.name)
        }


def submitted(root):
    return {
        str(path): path.read_bytes()
        for path in sorted((root / "submitted").rglob("*"))
        if path.is_file() and path.stat().st_size < 10**8
    }


def automatic(row):
    return {cell: score for cell, (score, _) in row.items()}


def assert_due(root):
    """Every row of the gradebook is what the student's honest answers are worth."""
    found = rows(root)
    assert found["anna"] == {
        cell: (score, 1.5 if cell == f"check_{HONEST[0]}" else None) for cell, score in WORTH.items()
    }
    assert automatic(found["zoe"]) == WORTH
    for number, name in enumerate(SAMPLE):
        state = state_in(root / "autograded" / student(number) / LESSON.name, LESSON.name)["result"]
        assert state["status"] == "graded", (name, state["reason"])
        if state["isolation"] != "process" or ATTACKS[name].needs == "process":
            assert automatic(found[student(number)]) == WORTH, name
    for number, name in enumerate(BROKEN_SAMPLE, len(SAMPLE)):
        state = state_in(root / "autograded" / student(number) / LESSON.name, LESSON.name)["result"]
        refused = BROKEN[name].refused
        assert state["status"] == ("refused" if refused else "graded"), name
        assert refused in state["reason"]
        due = dict.fromkeys(WORTH, 0.0) if refused else WORTH
        assert automatic(found[student(number)]) == due, name


def test_a_class_with_attacks_is_graded_to_its_end(course, tmp_path, monkeypatch, capsys):
    root = tmp_path / "course"
    shutil.copytree(course, root)
    before, repository, graded = (
        submitted(root),
        repository_files(),
        (root / "autograded" / "anna").stat().st_mtime_ns,
    )
    monkeypatch.chdir(root)
    started = time.monotonic()
    assert main(["class", LESSON.name, "--jobs", "2", "--accept-process-isolation"]) == 0
    assert time.monotonic() - started < 300
    said = capsys.readouterr().out
    refused = sum(1 for name in BROKEN_SAMPLE if BROKEN[name].refused)
    everybody = len(HONEST_STUDENTS) + len(SAMPLE) + len(BROKEN_SAMPLE)
    assert f"{everybody - refused} graded, {refused} refused, 0 fault" in said
    assert_due(root)
    assert submitted(root) == before
    assert repository_files() == repository
    assert (root / "autograded" / "anna").stat().st_mtime_ns == graded  # was graded, and is not run again
    with sqlite3.connect(root / "gradebook.db") as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


def test_nbgrader_grades_the_same(course):
    before, running = submitted(course), descendants()
    api = class_run.api_of(course)
    with temp_attrs(api.coursedir, assignment_id=LESSON.name):
        done = capture_log(Autograde(coursedir=api.coursedir, parent=api))
    assert done["success"], done
    assert_due(course)
    assert submitted(course) == before
    assert len(descendants() - running) <= 4  # the warm process, where it is new
