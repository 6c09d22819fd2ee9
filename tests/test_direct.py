"""The short way into the gradebook leaves what nbgrader leaves: all rows of all tables, and the files."""

import re
import shutil
import sqlite3
from datetime import datetime

import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins import BasePlugin

from autograder import class_run, direct, nbgrader_steps
from autograder.demo import samples
from autograder.lessons import ROOT
from tests.test_grading import FIRST, LESSON, put, right

pytestmark = pytest.mark.slow
NAME = LESSON.name
STUDENTS = ("late", "refused", "right", "three_mistakes", "untouched")
CONFIG = f"""\
c = get_config()
load_subconfig('nbgrader_config.py', path={str(ROOT)!r})
c.CourseDirectory.root = {{root!r}}
c.AssignLatePenalties.plugin_class = 'tests.test_direct.TwoPoints'
"""


class TwoPoints(BasePlugin):
    """Takes two points off what is late."""

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 2.0


def make_course(root):
    """A course folder with a due date, a student with an extension, and ordinary submissions."""
    root.mkdir()
    (root / "nbgrader_config.py").write_text(CONFIG.format(root=str(root)))
    (root / "class_secret").write_text("5ec4e7" * 10)
    notebooks = {student: samples(LESSON).get(student, right()) for student in STUDENTS}
    for student, notebook in notebooks.items():
        put(root / "submitted" / student / NAME, "{" if student == "refused" else notebook, f"{NAME}.ipynb")
    for student in ("late", "three_mistakes"):
        (root / "submitted" / student / NAME / "timestamp.txt").write_text("2026-02-03 04:05:06 UTC")
    coursedir = class_run.api_of(root).coursedir
    nbgrader_steps.register(LESSON, coursedir)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        gradebook.add_student("late", first_name="Ada", email="ada@example.org")
        gradebook.find_assignment(NAME).duedate = datetime(2026, 2, 1)
        gradebook.db.commit()
    return root


def touch_up(root):
    """What an instructor changes by hand, and what is then handed in anew."""
    coursedir = class_run.api_of(root).coursedir
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        for student in ("right", "late"):
            gradebook.find_grade("against_batch_norm", NAME, NAME, student).manual_score = 3.5
        gradebook.find_grade(f"check_{FIRST}", NAME, NAME, "right").manual_score = 1.25
        gradebook.find_grade(f"check_{FIRST}", NAME, NAME, "right").extra_credit = 0.5
        gradebook.find_comment("against_batch_norm", NAME, NAME, "right").manual_comment = "well said"
        gradebook.grant_extension(NAME, "three_mistakes", days=7)
    put(root / "submitted" / "right" / NAME, samples(LESSON)["three_mistakes"], f"{NAME}.ipynb")
    put(root / "submitted" / "three_mistakes" / NAME, right(), f"{NAME}.ipynb")
    (root / "submitted" / "right" / NAME / "timestamp.txt").write_text("2026-03-01 00:00:00 UTC")


def table_rows(root):
    """Table -> its rows, with what it stands for in the place of every random identifier."""
    with sqlite3.connect(root / "gradebook.db") as database:
        database.row_factory = sqlite3.Row
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")] for name in names}
    by_id = {}
    for name, rows in tables.items():
        for row in rows:
            by_id.setdefault(row.get("id"), []).append((name, row))

    def told(value):
        if not re.fullmatch("[0-9a-f]{32}", str(value)) or value not in by_id:
            return value
        return sorted(f"{name} {shown(row)}" for name, row in by_id[value])

    def shown(row):
        return repr({key: told(value) for key, value in row.items() if key != "id"})

    return {name: sorted(map(shown, rows)) for name, rows in tables.items()}


def files(root):
    """Path -> mode and content of what was graded, without the seconds that it took."""
    found = sorted(path for path in (root / "autograded").rglob("*") if path.is_file())
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            re.sub(r'"seconds": [\d.e-]+', '"seconds": 0', path.read_text()),
        )
        for path in found
    }


@pytest.fixture(scope="module")
def courses(tmp_path_factory):
    """Two equal course folders; all of the second are graded the short way."""
    top = tmp_path_factory.mktemp("two")
    return make_course(top / "long"), make_course(top / "short")


def grade_both(courses, students):
    long, short = courses
    for student in students:
        class_run.grade_through_nbgrader(long, NAME, student)
        assert direct.grade_directly(class_run.api_of(short), LESSON, student)


def assert_same(courses):
    long, short = map(table_rows, courses)
    assert len(long) >= 13 and len(long["grade"]) == len(STUDENTS) * len(LESSON.points | LESSON.written)
    assert short == long
    assert files(courses[1]) == files(courses[0])


def test_rows_and_files_are_those_of_nbgrader_first_and_again(courses):
    grade_both(courses, STUDENTS)
    assert_same(courses)
    with Gradebook(f"sqlite:///{courses[1]}/gradebook.db", "transformer_block") as gradebook:
        assert gradebook.find_submission_notebook(NAME, NAME, "late").late_submission_penalty == 2.0
    for root in courses:
        touch_up(root)
    grade_both(courses, ("right", "three_mistakes", "late"))
    assert_same(courses)
    with Gradebook(f"sqlite:///{courses[1]}/gradebook.db", "transformer_block") as gradebook:
        assert gradebook.find_grade(f"check_{FIRST}", NAME, NAME, "right").manual_score == 1.25
        assert gradebook.find_submission_notebook(NAME, NAME, "right").late_submission_penalty == 2.0
        assert (
            gradebook.find_submission_notebook(NAME, NAME, "three_mistakes").late_submission_penalty is None
        )


@pytest.fixture
def short(tmp_path):
    return make_course(tmp_path / "course")


def test_what_is_not_ordinary_goes_the_long_way(short):
    api = class_run.api_of(short)
    handed_in = short / "submitted" / "right" / NAME
    (handed_in / "notes.txt").write_text("mine")
    assert not direct.grade_directly(api, LESSON, "right")
    (handed_in / "notes.txt").rename(handed_in / ".ipynb_checkpoints")  # as nbgrader ignores it
    assert direct.grade_directly(api, LESSON, "right")
    (handed_in / f"{NAME}.ipynb").rename(handed_in / "homework.ipynb")
    assert not direct.grade_directly(api, LESSON, "right")
    shutil.rmtree(handed_in)
    handed_in.symlink_to(short / "submitted" / "late" / NAME)
    assert not direct.grade_directly(api, LESSON, "right")
    with Gradebook(f"sqlite:///{short}/gradebook.db", "transformer_block") as gradebook:
        gradebook.find_source_cell(FIRST, NAME, NAME).checksum = "another"
        gradebook.db.commit()
    direct._knows.cache_clear()  # it is asked once a run
    assert not direct.grade_directly(api, LESSON, "late")


def test_other_steps_than_ours_go_the_long_way(short):
    path = short / "nbgrader_config.py"
    for line in ("c.Autograde.permissions = 644", "c.SaveAutoGrades.enabled = False"):
        other = short.with_name(f"course{len(line)}")
        shutil.copytree(short, other)
        text = path.read_text().replace(str(short), str(other))
        (other / path.name).write_text(f"{text}{line}\n")
        assert not direct.grade_directly(class_run.api_of(other), LESSON, "right")


@pytest.mark.parametrize("place", ["_record", "os.replace", "_penalty"])
def test_interrupted_anywhere_it_is_not_graded_and_then_graded_once(short, monkeypatch, place):
    class Killed(BaseException):
        pass

    def killed(*arguments):
        raise Killed

    api = class_run.api_of(short)
    with monkeypatch.context() as broken:
        broken.setattr(f"autograder.direct.{place}", killed)
        with pytest.raises(Killed):
            direct.grade_directly(api, LESSON, "late")
        assert class_run.standing(short, LESSON, "late") is None
    known, waiting = class_run.sorted_out(short, LESSON, ["late"])
    assert (known, waiting) == ([], ["late"])
    (entry,) = class_run.grade_students(short, LESSON, 1, waiting)
    assert entry["points"] == LESSON.max_points
    with Gradebook(f"sqlite:///{short}/gradebook.db", "transformer_block") as gradebook:
        (submission,) = gradebook.assignment_submissions(NAME)
        assert submission.score == LESSON.max_points
