"""Grading again after the checks changed says who gains and who loses, and why; nothing that stood before is lost."""

import copy
import dataclasses

import pytest

from autograder import class_run, class_table, nbgrader_steps, regrading
from autograder.commands import main
from autograder.exercises import find as find_exercise
from autograder.lessons import ROOT
from tests.test_grading import FIRST, LESSON, put, right
from tests.test_nbgrader import break_grader_at

NAME = LESSON.name
CONFIG = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\n"
ACCURATE, BY_NAME = "rows of numbers around 100,000,000 keep their accuracy", "arguments by name"
AGAIN = "Graded again because the grader or the lesson changed:"
ONE_PASS = """\
def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.maximum((x * x).mean(axis=-1, keepdims=True) - mean**2, 0)
    return gamma * (x - mean) / np.sqrt(variance + eps) + beta"""


# ---------------------------------------------------------------- two results


def entry(student="ada", status="graded", reason="", **exercises):
    """An entry; exercises : name -> {property: (passed, points, max_points)}."""
    made = [
        {
            "name": name,
            "points": sum(p[1] for p in properties.values()),
            "max_points": sum(p[2] for p in properties.values()),
            "properties": [
                dict(zip(("name", "passed", "points", "max_points"), (key, *p)))
                for key, p in properties.items()
            ],
        }
        for name, properties in exercises.items()
    ]
    points, most = (sum(e[key] for e in made) for key in ("points", "max_points"))
    return {
        "student": student,
        "status": status,
        "reason": reason,
        "points": points,
        "max_points": most,
        "exercises": made,
    }


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {"f": {"a": (True, 1, 1), "b": (False, 0, 2)}},
            {"f": {"a": (True, 1, 1), "b": (True, 2, 2)}},
            ["f: “b” holds now, 0 of 2 → 2 of 2"],
        ),
        (
            {"f": {"a": (True, 1, 1)}, "g": {"c": (True, 1, 1)}},
            {"f": {"a": (False, 0, 1)}, "g": {"c": (True, 1, 1)}},
            ["f: “a” no longer holds, 1 of 1 → 0 of 1"],
        ),
        (
            {"f": {"a": (True, 1, 1)}},
            {"f": {"a": (True, 0.75, 1)}},
            ["f: “a” counts differently, 1 of 1 → 0.75 of 1"],
        ),
        (
            {"f": {"a": (True, 2, 2), "old": (True, 1, 1)}},
            {"f": {"a": (True, 1, 1), "new": (False, 0, 2)}},
            [
                "f: “a” counts differently, 2 of 2 → 1 of 1",
                "f: “new” is new and does not hold, 0 of 2",
                "f: “old” is gone; it gave 1 of 1",
            ],
        ),
        (
            {"f": {"a": (True, 1, 1)}},
            {"g": {"a": (True, 2, 3)}},
            ["g: a new exercise, 2 of 3", "f: the exercise is gone; it gave 1 of 1"],
        ),
        ({"f": {"a": (True, 1, 1)}}, {"f": {"b": (True, 1, 1)}}, []),
        ({"f": {"a": (False, 0, 1)}}, {"f": {"a": (False, 0, 2)}, "g": {"b": (False, 0, 1)}}, []),
    ],
)
def test_the_reasons_name_the_exercise_and_the_property(before, after, words):
    assert [f"{name}: {text}" for name, text in regrading.reasons(entry(**before), entry(**after))] == words


def test_a_submission_that_is_refused_or_taken_now_says_so():
    graded, refused = entry(f={"a": (True, 1, 1)}), entry(status="refused", reason="The file is cut off.")
    assert regrading.reasons(graded, refused) == [("", "graded before, refused now. The file is cut off.")]
    assert regrading.reasons(refused, graded) == [("", "refused before, graded now.")]
    assert regrading.reasons(refused, entry(f={"a": (False, 0, 1)})) == []


def state(digest, points):
    return {
        "digest": digest,
        "engine": "e",
        "result": entry(f={"a": (points > 0, points, 2)}, student=digest),
    }


def test_only_the_same_file_is_compared_and_what_has_no_result_is_not():
    before = {"ada": state("1", 2), "bob": state("2", 2), "cleo": state("3", 2), "dora": state("4", 2)}
    now = {"ada": state("1", 0), "bob": state("other", 0), "cleo": None}
    assert regrading.pairs(before, now) == [(before["ada"]["result"], now["ada"]["result"])]


def test_what_is_kept_stays_until_it_is_settled_unless_another_file_was_handed_in(tmp_path):
    path = regrading.path_in(tmp_path, NAME)
    regrading.keep(path, {"ada": state("1", 2), "bob": state("2", 2)})
    regrading.keep(path, {"ada": state("1", 1), "bob": state("other", 1), "cleo": state("3", 1)})
    kept = {"ada": state("1", 2), "bob": state("other", 1), "cleo": state("3", 1)}
    assert regrading.kept(path) == kept
    regrading.settle(path, ["cleo"])
    assert regrading.kept(path) == {"cleo": kept["cleo"]}
    regrading.settle(path, [])
    assert not path.exists() and regrading.kept(path) == {}


def test_losses_stand_first_and_the_line_counts_all():
    def pair(student, first, second):
        return tuple(
            entry(student, **{FIRST: {"a": (True, points, 3)}, "gone": {"b": (True, 3 - points, 3)}})
            if same
            else entry(student, **{FIRST: {"a": (True, points, 3)}})
            for points, same in (first, second)
        )

    pairs = [
        pair("gains", (1, False), (2, False)),
        pair("loses", (2, False), (1, False)),
        pair("moves", (2, True), (1, True)),
        pair("stays", (2, False), (2, False)),
    ]
    table, line = class_table.regraded(pairs, LESSON)
    assert line == f"{AGAIN} 4; 1 gain, 1 lose, 1 with other points but the same sum"
    columns = [list(map(str, column.cells)) for column in table.columns]
    assert columns[:4] == [
        ["loses", "moves", "gains"],
        ["2 of 3", "3 of 6", "1 of 3"],
        ["1 of 3", "3 of 6", "2 of 3"],
        ["-1", "0", "+1"],
    ]
    assert columns[4][0] == f"2.1 {FIRST}: “a” counts differently, 2 of 3 → 1 of 3"
    assert class_table.regraded(pairs[3:], LESSON) == [f"{AGAIN} 1; no points changed"]


# ---------------------------------------------------------------- a class that is graded again


class Killed(BaseException):
    pass


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course folder with three submissions; one has a file beside it, so it goes through nbgrader itself."""
    root = tmp_path / "course"
    for student, notebook in {
        "one_pass": right(**{FIRST: ONE_PASS}),
        "right": right(),
        "untouched": LESSON.release,
    }.items():
        put(root / "submitted" / student / NAME, notebook, f"{NAME}.ipynb")
    (root / "submitted" / "one_pass" / NAME / "notes.txt").write_text("mine")
    (root / "nbgrader_config.py").write_text(CONFIG)
    monkeypatch.chdir(root)
    monkeypatch.setattr(class_table, "WIDTH", 300)  # a reason in one line
    return root


@pytest.fixture
def graded(course, monkeypatch, capsys):
    """Grades the class by the engine of a name, and gives what was said."""

    def run(engine, status=0):
        for module in (class_run, nbgrader_steps):
            monkeypatch.setattr(module, "engine", lambda lesson: engine)
        assert main(["class", NAME, "--jobs", "1", "--accept-process-isolation"]) == status
        return capsys.readouterr().out

    return run


def changed(context, name, **changes):
    """Another property of the first exercise in the place of this one: other points, or other cases."""
    exercise = find_exercise(FIRST)
    properties = copy.copy(exercise.properties)
    (place,) = (i for i, declared in enumerate(properties) if declared.property.name == name)
    points = changes.pop("points", properties[place].property.points)
    other = dataclasses.replace(properties[place].property, points=points)
    properties[place] = dataclasses.replace(properties[place], property=other, **changes)
    context.setattr(exercise, "properties", properties)


def without_far_rows(context):
    """The checks ask for no accuracy far from zero, so that a variance in one pass is right."""
    (values,) = (
        declared.cases
        for declared in find_exercise(FIRST).properties
        if declared.property.name == "right values for one token, a sentence and a batch"
    )
    changed(context, ACCURATE, cases=values)


def row(said, student):
    """The cells of a student in the table of points that changed, without its frame; [] where there is none."""
    table = said.partition("points that changed")[2].splitlines()
    found = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table if student in line]
    return found[0] if found else []


@pytest.mark.slow
def test_who_gains_and_who_loses_is_told_once(graded, course, monkeypatch):
    most = LESSON.max_points
    with monkeypatch.context() as weaker:
        without_far_rows(weaker)
        assert "Graded again" not in graded("first")
    said = graded("second")
    assert f"{AGAIN} 3; 0 gain, 1 lose" in said
    assert row(said, "one_pass") == [
        "one_pass",
        f"{most:g} of {most:g}",
        f"{most - 0.2:g} of {most:g}",
        "-0.2",
        f"2.1 {FIRST}: “{ACCURATE}” no longer holds, 0.2 of 0.2 → 0 of 0.2",
    ]
    assert not row(said, "right")
    assert "Graded again" not in graded("second")
    with monkeypatch.context() as weaker:
        without_far_rows(weaker)
        changed(weaker, BY_NAME, points=0.05)
        said = graded("third")
    assert f"{AGAIN} 3; 1 gain, 1 lose" in said
    assert row(said, "one_pass")[3] == "+0.15"
    assert row(said, "right")[2:] == [
        f"{most - 0.05:g} of {most - 0.05:g}",
        "-0.05",
        f"2.1 {FIRST}: “{BY_NAME}” counts differently, 0.1 of 0.1 → 0.05 of 0.05",
    ]
    assert not list(course.glob("before_regrading*"))


@pytest.mark.slow
def test_where_no_points_changed_one_line_says_so_and_what_is_handed_in_anew_is_not_counted(graded, course):
    graded("first")
    put(course / "submitted" / "right" / NAME, LESSON.release, f"{NAME}.ipynb")
    said = graded("second")
    assert f"{AGAIN} 2; no points changed" in said and "points that changed" not in said


@pytest.mark.slow
def test_runs_that_are_killed_and_checks_that_change_meanwhile_lose_nothing(graded, course, monkeypatch):
    with monkeypatch.context() as weaker:
        without_far_rows(weaker)
        graded("first")

    def end(*arguments):
        raise Killed

    steps = iter([nbgrader_steps.grade])
    with monkeypatch.context() as killed:
        killed.setattr(nbgrader_steps, "grade", lambda *arguments: next(steps, end)(*arguments))
        with pytest.raises(Killed):
            graded("second")
    put(course / "submitted" / "right" / NAME, LESSON.release, f"{NAME}.ipynb")
    said = graded("third")
    assert f"{AGAIN} 2; 0 gain, 1 lose" in said
    assert row(said, "one_pass")[3] == "-0.2" and not row(said, "right")


def failing_inside(context):
    """The grader breaks at the submission in one pass: no graded notebook is left of it."""
    break_grader_at("(x * x).mean", context)


def failing_before(context):
    """The grading of the submission in one pass ends before it began: the old graded notebook is left."""
    honest = class_run.grade_student

    def ended(root, lesson, student):
        if student == "one_pass":
            return class_run._fault(root, lesson, student, "ended")
        return honest(root, lesson, student)

    context.setattr(class_run, "grade_student", ended)


@pytest.mark.slow
@pytest.mark.parametrize("fail", [failing_inside, failing_before])
def test_a_submission_that_ends_as_a_fault_is_compared_when_it_is_graded(graded, monkeypatch, fail):
    with monkeypatch.context() as weaker:
        without_far_rows(weaker)
        graded("first")
    with monkeypatch.context() as failing:
        fail(failing)
        assert f"{AGAIN} 2; no points changed" in graded("second", status=1)
    said = graded("third")
    assert f"{AGAIN} 3; 0 gain, 1 lose" in said and row(said, "one_pass")[3] == "-0.2"
