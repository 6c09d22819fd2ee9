"""The grader inside nbgrader: its command, the formgrader's button and the class runner, on a course folder of their own."""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.utils import capture_log, temp_attrs

from autograder import class_run, nbgrader_steps
from autograder.commands import main
from autograder.demo import samples
from autograder.lessons import ROOT
from autograder.nbgrader_steps import state_in
from autograder.processes import KILLED, in_processes
from tests.test_grading import FIRST, LESSON, MOST, put, right

pytestmark = pytest.mark.slow
NAME = LESSON.name
CONFIG = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\n"
REFUSED = ("empty", "linked", "only_python", "pipe", "truncated")


def handed_in(root, student, notebook, name=f"{NAME}.ipynb"):
    return put(root / "submitted" / student / NAME, notebook, name)


def make_course(root):
    """A course folder with honest, broken and hostile submissions."""
    root.mkdir(parents=True)
    (root / "nbgrader_config.py").write_text(CONFIG)
    (root / "outside.txt").write_text("nobody's business")
    for student in ("check_cells", "other_ways", "three_mistakes", "untouched"):
        handed_in(root, student, samples(LESSON)[student])
    handed_in(root, "renamed", right(), "my homework.ipynb")
    whole = handed_in(root, "right", right()).parent
    (whole / "timestamp.txt").write_text("2026-01-02 03:04:05 UTC")
    (whole / "notes.txt").write_text("my notes")
    handed_in(root, "truncated", json.dumps(right())[:5000])
    handed_in(root, "only_python", "x = 1", "homework.py")
    (root / "submitted" / "empty" / NAME).mkdir(parents=True)
    odd = handed_in(root, "odd_files", right()).parent
    (odd / "gradebook").symlink_to(root / "outside.txt")
    os.link(root / "outside.txt", odd / "hard.txt")
    os.mkfifo(odd / "pipe")
    os.mkfifo(odd / "timestamp.txt")
    (root / "submitted" / "pipe" / NAME).mkdir(parents=True)
    os.mkfifo(root / "submitted" / "pipe" / NAME / f"{NAME}.ipynb")
    (root / "submitted" / "linked").mkdir()
    (root / "submitted" / "linked" / NAME).symlink_to(Path("..", "right", NAME))
    (root / "submitted" / "two\nlines" / NAME).mkdir(parents=True)
    return root


def content(folder):
    """Path -> hash of every plain file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def nbgrader(root, *arguments):
    command = [Path(sys.executable).with_name("nbgrader"), *arguments]
    return subprocess.run(
        command,
        cwd=root,
        env=os.environ | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def rows(root):
    """Student -> what the gradebook holds: for each graded cell the automatic score, the manual one, and whether a person must look."""
    with Gradebook(f"sqlite:///{root}/gradebook.db", "transformer_block") as gradebook:
        return {
            submission.student.id: {
                grade.cell.name: (grade.auto_score, grade.manual_score, bool(grade.needs_manual_grade))
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in gradebook.assignment_submissions(NAME)
        }


def auto_points(root, student):
    return {
        cell.removeprefix("check_"): row[0]
        for cell, row in rows(root)[student].items()
        if cell.startswith("check_")
    }


def result(root, student):
    return state_in(root / "autograded" / student / NAME, NAME)["result"]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The course folder after `nbgrader autograde`."""
    root = make_course(tmp_path_factory.mktemp("teach") / "course")
    before = content(root / "submitted")
    done = nbgrader(root, "autograde", NAME)
    assert done.returncode == 0, done.stderr
    assert content(root / "submitted") == before
    return root


# ---------------------------------------------------------------- nbgrader autograde


def test_every_submission_ends_in_a_state_in_the_gradebook(course):
    found = rows(course)
    states = {student: result(course, student)["status"] for student in found}
    honest = ("check_cells", "odd_files", "other_ways", "renamed", "right", "three_mistakes", "untouched")
    assert states == {student: "graded" for student in honest} | {student: "refused" for student in REFUSED}
    for student in ("check_cells", "odd_files", "other_ways", "renamed", "right"):
        assert auto_points(course, student) == MOST
    for student in (*REFUSED, "untouched"):
        assert set(auto_points(course, student).values()) == {0.0}
        assert not any(needs_person for _, _, needs_person in found[student].values())


def test_the_gradebook_says_what_the_result_says(course):
    for student in rows(course):
        entry = result(course, student)
        given = {exercise["name"]: exercise["points"] for exercise in entry["exercises"]} or dict.fromkeys(
            MOST, 0.0
        )
        assert auto_points(course, student) == given
        assert entry["path"] == f"submitted/{student}/{NAME}/{NAME}.ipynb"


def test_a_refused_submission_says_why_in_its_notebook(course):
    notebook = json.loads((course / "autograded" / "truncated" / NAME / f"{NAME}.ipynb").read_text())
    assert "cut off" in "".join(notebook["cells"][0]["source"])
    assert "cut off" in json.dumps(notebook["cells"][1]["outputs"])


def test_nothing_but_plain_files_of_the_submission_is_copied(course):
    assert sorted(path.name for path in (course / "autograded" / "right" / NAME).iterdir()) == sorted(
        [f"{NAME}.ipynb", "notes.txt", "timestamp.txt"]
    )
    assert [path.name for path in (course / "autograded" / "odd_files" / NAME).iterdir()] == [f"{NAME}.ipynb"]
    assert [path.name for path in (course / "autograded" / "linked" / NAME).iterdir()] == [f"{NAME}.ipynb"]
    assert (course / "outside.txt").read_text() == "nobody's business"


def test_the_secret_of_the_class_is_for_its_owner_only(course):
    assert (course / "class_secret").stat().st_mode & 0o777 == 0o600
    assert len({result(course, student)["seed"] for student in ("right", "renamed", "untouched")}) == 3


def test_grade_gives_the_same_points_for_the_same_seed(course, tmp_path):
    for student in ("three_mistakes", "check_cells"):
        entry = result(course, student)
        out = tmp_path / f"{student}.json"
        assert (
            main(["grade", str(course / entry["path"]), "--seed", str(entry["seed"]), "--json", str(out)])
            == 0
        )
        (again,) = json.loads(out.read_text())["submissions"]
        assert again["exercises"] == entry["exercises"]


def test_the_feedback_page_shows_the_report(course):
    made = class_run.api_of(course).generate_feedback(NAME)
    assert made["success"], made
    pages = {path.parents[1].name: path.read_text() for path in course.glob(f"feedback/*/{NAME}/{NAME}.html")}
    assert set(pages) == set(rows(course))
    mistaken = result(course, "three_mistakes")["exercises"][0]
    assert f"{FIRST}: partly right" in pages["three_mistakes"]
    assert "Likely cause" in pages["three_mistakes"] and mistaken["mistake"]
    assert "Not graded" in pages["truncated"]
    assert "Traceback (most" not in pages["three_mistakes"]


# ---------------------------------------------------------------- again


@pytest.fixture
def copied(course, tmp_path):
    """A course folder of one's own, already graded: three students of the common one."""
    root = tmp_path / "course"
    for student in ("right", "three_mistakes", "untouched"):
        for step in ("submitted", "autograded"):
            shutil.copytree(course / step / student, root / step / student)
    for name in ("gradebook.db", "class_secret", "nbgrader_config.py"):
        shutil.copy(course / name, root / name)
    return root


def button(root, student):
    """What the formgrader's autograde button does."""
    made = class_run.api_of(root).autograde(NAME, student)
    assert made["success"], made


def autograde_all(root):
    """What `nbgrader autograde` does, in this process."""
    api = class_run.api_of(root)
    with temp_attrs(api.coursedir, assignment_id=NAME):
        done = capture_log(Autograde(coursedir=api.coursedir, parent=api))
    assert done["success"], done


def test_the_button_of_the_formgrader_gives_the_same(copied):
    before = rows(copied), result(copied, "three_mistakes")["exercises"]
    button(copied, "three_mistakes")
    assert (rows(copied), result(copied, "three_mistakes")["exercises"]) == before


def test_a_new_run_resets_automatic_scores_and_keeps_manual_ones_and_comments(copied):
    with Gradebook(f"sqlite:///{copied}/gradebook.db", "transformer_block") as gradebook:
        gradebook.find_grade("against_batch_norm", NAME, NAME, "right").manual_score = 3.5
        gradebook.find_grade(f"check_{FIRST}", NAME, NAME, "right").manual_score = 1.25
        gradebook.find_comment("against_batch_norm", NAME, NAME, "right").manual_comment = "well said"
        gradebook.db.commit()
    handed_in(copied, "right", LESSON.release)
    button(copied, "right")
    found = rows(copied)["right"]
    assert found[f"check_{FIRST}"][:2] == (0.0, 1.25)
    assert found["against_batch_norm"][1] == 3.5
    assert set(auto_points(copied, "right").values()) == {0.0}
    with Gradebook(f"sqlite:///{copied}/gradebook.db", "transformer_block") as gradebook:
        assert gradebook.find_comment("against_batch_norm", NAME, NAME, "right").comment == "well said"


def test_what_was_handed_in_anew_is_graded_anew_and_nothing_else(copied):
    other = copied / "autograded" / "untouched" / NAME / f"{NAME}.ipynb"
    untouched = other.stat().st_mtime_ns
    handed_in(copied, "right", LESSON.release)
    autograde_all(copied)
    assert set(auto_points(copied, "right").values()) == {0.0}
    assert other.stat().st_mtime_ns == untouched


def test_what_an_interrupted_run_left_half_done_is_done_again(copied):
    graded = copied / "autograded" / "right" / NAME / f"{NAME}.ipynb"
    whole = graded.read_text()
    graded.chmod(0o644)
    graded.write_text(whole[: len(whole) // 2])
    other = copied / "autograded" / "untouched" / NAME / f"{NAME}.ipynb"
    untouched = other.stat().st_mtime_ns
    autograde_all(copied)
    assert result(copied, "right")["points"] == LESSON.max_points
    assert other.stat().st_mtime_ns == untouched


def break_grader_at(words, patch):
    """The grader breaks at every submission in which these words stand."""
    honest = nbgrader_steps.grade

    def broken(notebook, *arguments):
        if words in str(notebook):
            raise ZeroDivisionError("in the grader")
        return honest(notebook, *arguments)

    patch.setattr(nbgrader_steps, "grade", broken)


def test_a_fault_costs_nobody_else_anything_and_leaves_no_points(copied, monkeypatch, capsys):
    break_grader_at("no such thing", monkeypatch)
    notebook = right()
    notebook.cells[-1].source = "no such thing"
    handed_in(copied, "right", notebook)
    before = rows(copied)
    monkeypatch.chdir(copied)
    assert main(["class", NAME, "--jobs", "1", "--accept-process-isolation"]) == 1
    said = capsys.readouterr().out
    assert "fault: submitted/right" in said and "2 graded, 0 refused, 1 fault" in said
    assert {score for score, _, _ in rows(copied)["right"].values()} == {None}
    assert all(needs_person for _, _, needs_person in rows(copied)["right"].values())
    assert {s: row for s, row in rows(copied).items() if s != "right"} == {
        s: row for s, row in before.items() if s != "right"
    }


# ---------------------------------------------------------------- python -m autograder class


def test_the_class_runner_killed_and_started_again_gives_the_same_rows(course, tmp_path, monkeypatch, capsys):
    root = make_course(tmp_path / "course")
    shutil.copy(course / "class_secret", root / "class_secret")
    command = [sys.executable, "-m", "autograder", "class", NAME, "--jobs", "2", "--accept-process-isolation"]
    runner = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)
    while not list(root.glob("autograded/*/*/*.ipynb")):
        assert runner.poll() is None
        time.sleep(0.01)
    runner.kill()
    runner.wait()
    monkeypatch.chdir(root)
    assert main(["class", NAME, "--jobs", "2", "--accept-process-isolation"]) == 0
    said = capsys.readouterr().out
    assert rows(root) == rows(course)
    for student in REFUSED:
        assert f"refused: submitted/{student}/" in said
    assert "refused: submitted/two lines/" in said
    assert "7 graded, 6 refused, 0 fault; isolation level" in said
    files = {path: path.stat().st_mtime_ns for path in root.glob("autograded/*/*/*.ipynb")}
    assert main(["class", NAME, "--accept-process-isolation"]) == 0
    assert {path: path.stat().st_mtime_ns for path in root.glob("autograded/*/*/*.ipynb")} == files


def test_what_the_gradebook_does_not_hold_is_graded_again(copied):
    graded = copied / "autograded" / "right" / NAME / f"{NAME}.ipynb"

    def graded_again():
        moment = graded.stat().st_mtime_ns
        command = [sys.executable, "-m", "autograder", "class", NAME, "--accept-process-isolation"]
        subprocess.run(command, cwd=copied, check=True, capture_output=True)
        return graded.stat().st_mtime_ns != moment

    def points():
        return {student: rows(copied)[student] for student in ("right", "three_mistakes", "untouched")}

    before = points()
    assert not graded_again()
    (copied / "gradebook.db").unlink()
    assert graded_again() and points() == before
    with Gradebook(f"sqlite:///{copied}/gradebook.db", "transformer_block") as gradebook:
        gradebook.find_grade(f"check_{FIRST}", NAME, NAME, "right").auto_score = 0.25
        gradebook.db.commit()
    assert graded_again() and points() == before
    seed = result(copied, "right")["seed"]
    (copied / "class_secret").unlink()
    assert graded_again() and points() == before
    assert result(copied, "right")["seed"] != seed


def test_a_lesson_that_a_killed_run_left_half_written_in_the_gradebook_is_written_anew(tmp_path, monkeypatch):
    root = tmp_path / "course"
    root.mkdir()
    (root / "nbgrader_config.py").write_text(CONFIG)
    coursedir = class_run.api_of(root).coursedir
    write, left = Gradebook.update_or_create_source_cell, iter(range(3))
    with monkeypatch.context() as killed, pytest.raises(StopIteration):
        killed.setattr(
            Gradebook,
            "update_or_create_source_cell",
            lambda *args, **about: (next(left), write(*args, **about)),
        )
        nbgrader_steps.register(LESSON, coursedir)
    known = []
    for _ in range(2):
        with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            known.append({cell.name for cell in gradebook.find_notebook(NAME, NAME).source_cells})
        nbgrader_steps.register(LESSON, coursedir)
    assert len(known[0]) == 3 and known[1] == set(LESSON.cells)


def test_a_class_is_graded_only_in_a_course_folder_with_submissions(tmp_path, monkeypatch, capsys):
    for folder, config, words in [("plain", "", "no course folder"), ("empty", CONFIG, "Nobody handed in")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nbgrader_config.py").write_text(config)
        monkeypatch.chdir(tmp_path / folder)
        assert main(["class", NAME, "--accept-process-isolation"]) == 2
        assert words in capsys.readouterr().out


def doubled(number):
    if number == 3:
        os._exit(1)
    return 2 * number


def raised(number):
    if number == 3:
        raise ValueError("no such number")
    return 2 * number


def test_a_task_that_fails_costs_only_itself():
    found = in_processes(raised, [(n,) for n in range(6)], 2, lambda task, why: (task, why))
    assert sorted(found, key=str) == sorted([0, 2, 4, 8, 10, ((3,), "ValueError: no such number")], key=str)


def test_a_worker_that_is_killed_costs_only_its_own_task():
    found = in_processes(doubled, [(n,) for n in range(6)], 2, lambda task, why: (task, why))
    assert sorted(found, key=str) == sorted([0, 2, 4, 8, 10, ((3,), KILLED)], key=str)


def test_the_config_holds_nothing_but_names():
    lines = (ROOT / "nbgrader_config.py").read_text().splitlines()
    assert not any(line.startswith(("def ", "class ", "from ")) for line in lines)


@pytest.mark.parametrize("stamp", ["02h32010100499999999999999999999", "10:99999999999999999999999", "soon"])
def test_a_time_that_is_none_is_set_aside(tmp_path, stamp):
    (tmp_path / "timestamp.txt").write_text(stamp)
    nbgrader_steps.set_aside_unusable_timestamp(tmp_path, logging.getLogger())
    assert [path.name for path in tmp_path.iterdir()] == ["timestamp.txt.unreadable"]


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path):
    root = tmp_path / "course"
    root.mkdir()
    (root / "nbgrader_config.py").write_text(CONFIG)
    student = os.fsdecode(b"\xff\xfe")
    try:
        handed_in(root, student, right())
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    (entry,), waiting = class_run.sorted_out(root, LESSON, class_run.students(root, NAME))
    assert not waiting
    assert (entry["status"], entry["reason"]) == ("refused", class_run.BAD_NAME)
