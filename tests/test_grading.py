"""A whole notebook is graded: what runs, in which order it is asked, what a failure costs, and what the cells show."""

import copy
import json
import os
from pathlib import Path

import pytest
from nbformat import validate
from nbgrader.utils import determine_grade

from autograder import grading, results
from autograder.clean import clean, is_check
from autograder.commands import main
from autograder.demo import answered, lesson_solution, samples, with_cell
from autograder.finding import submissions
from autograder.lessons import find

LESSON = find("02_layer_norm")
RIGHT = {e.name: lesson_solution(LESSON, e.name) for e in LESSON.exercises}
FIRST, SECOND, *_ = RIGHT
MOST = LESSON.points
AFTER_IMPORTS = 2


def right(**answers):
    """A submission in which everything is right but these answers."""
    return answered(LESSON, RIGHT | answers)


def graded(notebook, seed=5, folder=None):
    made = grading.grade(
        clean(json.loads(json.dumps(notebook)), LESSON.release), LESSON.explorations, seed, folder
    )
    validate(made.notebook)
    return made


def points(made):
    return {verdict.name: verdict.points for verdict in made.verdicts}


def outputs(made, source):
    """The outputs of the cell with this text, as one text."""
    return "\n".join(map(str, next(cell.outputs for cell in made.notebook.cells if cell.source == source)))


def label(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


@pytest.fixture(scope="module")
def all_right():
    return graded(right())


# ---------------------------------------------------------------- points


def test_right_answers_get_everything_and_the_release_nothing(all_right):
    assert points(all_right) == MOST
    untouched = graded(LESSON.release)
    assert set(points(untouched).values()) == {0}
    assert {verdict.outcome for verdict in untouched.verdicts} == {"not attempted"}


def test_what_is_graded_stays_as_it_is_and_so_does_the_release():
    release = copy.deepcopy(LESSON.release)
    notebook = clean(samples(LESSON)["half_done"], LESSON.release)
    for cell in notebook.cells:
        cell.metadata["mine"] = True
    given = copy.deepcopy(notebook)
    assert grading.grade(notebook, LESSON.explorations, 5).notebook != given
    assert (notebook, LESSON.release) == (given, release)


def test_right_answers_in_other_ways_with_prints_and_warnings_get_everything():
    assert points(graded(samples(LESSON)["other_ways"])) == MOST


def test_patched_libraries_and_a_check_of_ones_own_earn_nothing():
    assert set(points(graded(samples(LESSON)["attack"])).values()) == {0}


def test_an_endless_answer_and_a_half_done_notebook_get_what_the_rest_is_worth():
    assert points(graded(samples(LESSON)["endless_loop"])) == MOST | {FIRST: 0}
    half = points(graded(samples(LESSON)["half_done"]))
    assert list(half.values()) == [*list(MOST.values())[:4], *[0] * (len(MOST) - 4)]


def test_there_are_eight_samples():
    assert len(samples(LESSON)) == 8


def test_the_same_seed_gives_the_same_verdicts():
    notebook = samples(LESSON)["three_mistakes"]
    first, again, other = graded(notebook, 5), graded(notebook, 5), graded(notebook, 6)
    assert points(first) == points(again) == points(other)
    said = [[results.graded("", "", "", made)["exercises"] for made in (first, again, other)]]
    assert said[0][0] == said[0][1] != said[0][2]


# ---------------------------------------------------------------- order


def test_a_function_that_is_defined_after_its_check_cell_counts():
    notebook = right()
    place = next(i for i, cell in enumerate(notebook.cells) if label(cell) == FIRST)
    notebook.cells.append(notebook.cells.pop(place))
    assert points(graded(notebook)) == MOST


def test_an_answer_written_below_the_stub_counts():
    notebook = right(**{FIRST: next(c.source for c in LESSON.release.cells if label(c) == FIRST)})
    assert points(graded(with_cell(notebook, len(notebook.cells), RIGHT[FIRST]))) == MOST


def test_what_is_redefined_further_down_costs_nothing():
    last = f"import numpy\n\n\ndef {FIRST}(*args, **kwargs):\n    return None\n\n\nnumpy.sqrt = None"
    notebook = right()
    assert points(graded(with_cell(notebook, len(notebook.cells), last))) == MOST


def test_a_helper_in_a_cell_of_its_own_and_a_file_beside_the_notebook_may_be_used(tmp_path):
    (tmp_path / "helper.py").write_text("def identity(x):\n    return x\n")
    (tmp_path / "numpy.py").write_text("raise SystemExit")
    used = (
        RIGHT[FIRST]
        + f"\n\n\ninner = {FIRST}\n\n\ndef {FIRST}(*args, **kwargs):\n    return helped(inner(*args, **kwargs))"
    )
    notebook = with_cell(
        right(**{FIRST: used}), AFTER_IMPORTS, "from helper import identity\n\nhelped = identity"
    )
    assert points(graded(notebook, folder=tmp_path)) == MOST


# ---------------------------------------------------------------- what goes wrong


def test_a_cell_that_fails_stops_nothing():
    made = graded(with_cell(right(), AFTER_IMPORTS, "print('before')\n1 / 0"))
    assert points(made) == MOST
    assert "ZeroDivisionError" in outputs(made, "print('before')\n1 / 0")


def test_a_cell_that_ends_the_process_costs_only_itself():
    end = "import os\n\nos._exit(0)"
    made = graded(with_cell(right(), AFTER_IMPORTS, end))
    assert points(made) == MOST
    assert "This cell was ended" in outputs(made, end)


def test_an_answer_that_ends_the_process_costs_only_its_own_points():
    made = graded(right(**{SECOND: f"def {SECOND}(*args, **kwargs):\n    import os\n    os._exit(0)"}))
    assert points(made) == MOST | {SECOND: 0}
    assert made.verdicts[1].finding.difference.given.kind == "no answer"


def test_after_too_many_ends_the_rest_is_not_run_and_says_so():
    made = graded(samples_of_ends(grading.RESTARTS + 2))
    assert set(points(made).values()) == {0}
    assert f"ended its process {grading.RESTARTS + 1} times" in outputs(made, RIGHT[FIRST])


def samples_of_ends(count):
    notebook = right()
    for i in range(count):
        with_cell(notebook, AFTER_IMPORTS, f"import os\n\nos._exit({i})")
    return notebook


def test_an_endless_loop_in_a_cell_ends_and_costs_nothing_else(monkeypatch):
    monkeypatch.setattr(grading, "CELL_SECONDS", 0.5)
    loop = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"
    made = graded(with_cell(right(), AFTER_IMPORTS, loop))
    assert points(made) == MOST
    assert "ended" in outputs(made, loop) or "longer" in outputs(made, loop)


def test_when_the_time_of_the_notebook_is_up_the_rest_is_no_answer(monkeypatch):
    monkeypatch.setattr(grading, "NOTEBOOK_SECONDS", 0.0)
    made = graded(right())
    assert set(points(made).values()) == {0}
    assert "longer than" in outputs(made, f'check("{FIRST}")')


# ---------------------------------------------------------------- explorations


def exploration():
    return next(
        i
        for i, c in enumerate(LESSON.release.cells)
        if c.metadata.get("course", {}).get("role") == "exploration"
    )


def test_explorations_are_run_only_where_they_were_changed(all_right):
    place = exploration()
    source = LESSON.release.cells[place].source
    assert "Not run when grading" in outputs(all_right, source)
    changed = right()
    changed.cells[place].source = "print('my own experiment')"
    assert "my own experiment" in outputs(graded(changed), "print('my own experiment')")


def test_an_exploration_whose_names_the_student_uses_is_run(monkeypatch):
    lesson_cell = "sample_of_mine = 3"
    uses = f"def {SECOND}(*args, **kwargs):\n    sample_of_mine\n    return inner(*args, **kwargs)"
    notebook = with_cell(
        right(**{SECOND: f"{RIGHT[SECOND]}\n\n\ninner = {SECOND}\n\n\n{uses}"}), AFTER_IMPORTS, lesson_cell
    )
    tree = json.loads(json.dumps(notebook))
    made = grading.grade(clean(tree, LESSON.release), LESSON.explorations | {lesson_cell}, 5)
    assert points(made) == MOST
    assert outputs(made, lesson_cell) == ""


# ---------------------------------------------------------------- what the cells show


def test_a_check_cell_holds_the_report_and_one_float_that_nbgrader_reads(all_right):
    mistaken = graded(samples(LESSON)["three_mistakes"])
    for made in (all_right, mistaken, graded(LESSON.release)):
        for cell in filter(is_check, made.notebook.cells):
            report, score = cell.outputs
            assert (report.output_type, set(report.data)) == ("display_data", {"text/html", "text/plain"})
            assert (score.output_type, set(score.data)) == ("execute_result", {"text/plain"})
            name = label(cell).removeprefix("check_")
            assert score.data["text/plain"] == repr(float(points(made)[name]))
            assert determine_grade(cell) == (points(made)[name], MOST[name])
            assert "isolation level" in report.data["text/plain"] and "seed 5" in report.data["text/html"]


def test_at_the_weakest_level_the_report_says_what_is_not_protected():
    tree = json.loads(json.dumps(right()))
    made = grading.grade(clean(tree, LESSON.release), LESSON.explorations, 5, level="process")
    assert (points(made), made.isolation) == (MOST, "process")
    assert "scores not protected against reading files" in outputs(made, f'check("{FIRST}")')


def test_points_stay_within_what_the_cell_may_give(all_right):
    cell = next(filter(is_check, all_right.notebook.cells))
    for given, kept in [(1e9, 2.0), (-1.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), (1, 1.0)]:
        grading.write_score(cell, "text", "html", given)
        assert determine_grade(cell) == (kept, 2.0)


def test_outputs_of_the_student_hold_no_script():
    source = """from IPython.display import HTML, SVG, Javascript, Markdown, display

display(HTML('<script>alert(1)</script><b onclick="alert(1)">bold</b><img src=x onerror=alert(1)>'))
display(Javascript('alert(1)'), Markdown('<script>alert(1)</script>'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'))
display({'image/png': '"><script>alert(1)</script>', 'text/plain': 'plain'}, raw=True)"""
    shown = outputs(graded(with_cell(right(), AFTER_IMPORTS, source)), source)
    assert "<b>bold</b>" in shown and "plain" in shown and 'src="data:image/svg+xml;base64,' in shown
    for word in ("<script", "onclick", "onerror", "application/javascript", "text/markdown", "<svg"):
        assert word not in shown


def test_a_plot_survives():
    source = "plt.plot([1, 2, 3])\nplt.show()"
    assert "image/png" in outputs(graded(with_cell(right(), AFTER_IMPORTS, source)), source)


# ---------------------------------------------------------------- python -m autograder grade


def put(folder, notebook, name="02_layer_norm.ipynb"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
    return path


def grade(*arguments, to):
    status = main(["grade", *map(str, arguments), "--json", str(to), "--seed", "5"])
    return status, json.loads(to.read_text())


def test_grade_writes_the_results_of_a_whole_folder(tmp_path):
    class_folder = tmp_path / "submitted"
    put(class_folder / "anna" / LESSON.name, right())
    put(class_folder / "ben" / LESSON.name, samples(LESSON)["three_mistakes"])
    put(class_folder / "cleo" / LESSON.name, json.dumps(right())[:4000])
    put(class_folder / "dora" / LESSON.name, "print(1)", "02_layer_norm.py")
    put(class_folder / "emil" / LESSON.name, right(), "my homework.ipynb")
    (class_folder / "finn").mkdir()
    (class_folder / "finn" / LESSON.name).symlink_to(class_folder / "anna" / LESSON.name)
    status, document = grade(class_folder, "--jobs", 2, to=tmp_path / "out.json")
    assert status == 0
    assert document["version"] == 1
    found = {entry["student"]: entry for entry in document["submissions"]}
    assert {name: entry["status"] for name, entry in found.items()} == {
        "anna": "graded",
        "ben": "graded",
        "cleo": "refused",
        "dora": "refused",
        "emil": "graded",
        "finn": "refused",
    }
    assert (
        found["anna"]["points"] == found["emil"]["points"] == found["anna"]["max_points"] == LESSON.max_points
    )
    assert "cut off" in found["cleo"]["reason"] and found["cleo"]["points"] == 0
    keys = {
        "path",
        "student",
        "lesson",
        "status",
        "reason",
        "isolation",
        "seed",
        "seconds",
        "points",
        "max_points",
        "exercises",
    }
    assert all(set(entry) == keys for entry in document["submissions"])
    ben = {exercise["name"]: exercise for exercise in found["ben"]["exercises"]}
    assert set(ben[FIRST]) == {"name", "points", "max_points", "outcome", "mistake", "message", "properties"}
    assert sum(1 for exercise in ben.values() if exercise["mistake"]) == 3
    assert ben[FIRST]["points"] == pytest.approx(sum(p["points"] for p in ben[FIRST]["properties"]))


def test_a_folder_named_after_the_lesson_may_hold_the_students_folders(tmp_path):
    top = tmp_path / LESSON.name
    for student in ("ann", "ben"):
        put(top / student, {})
    assert [(found.student, found.reason) for found in submissions(top)] == [("ann", ""), ("ben", "")]


def test_a_folder_named_after_the_lesson_may_be_a_students(tmp_path, monkeypatch):
    put(tmp_path / "ann" / LESSON.name, {}, "other.ipynb")
    (tmp_path / "ben" / LESSON.name).mkdir(parents=True)
    assert [(found.student, found.reason) for found in submissions(tmp_path / "ann" / LESSON.name)] == [
        ("ann", "")
    ]
    (nothing,) = submissions(tmp_path / "ben" / LESSON.name)
    assert nothing.student == "ben" and "no notebook of this lesson" in nothing.reason
    assert [found.student for found in submissions(tmp_path)] == ["ann", "ben"]
    monkeypatch.chdir(tmp_path / "ben" / LESSON.name)
    assert [found.student for found in submissions(Path("."))] == ["ben"]


def test_grade_refuses_a_notebook_of_no_known_lesson(tmp_path, capsys):
    other = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": []}
    status, document = grade(put(tmp_path, other, "cooking.ipynb"), to=tmp_path / "out.json")
    (entry,) = document["submissions"]
    assert (status, entry["status"], entry["lesson"], entry["points"]) == (0, "refused", None, 0)
    assert "no notebook of this course" in entry["reason"] and "02_layer_norm" in entry["reason"]


def test_grade_knows_the_lesson_by_the_name_where_the_labels_are_lost(tmp_path):
    bare = right()
    for cell in bare.cells:
        cell.metadata = {}
    status, document = grade(put(tmp_path, bare, "02_layer_norm (1).ipynb"), to=tmp_path / "out.json")
    assert (status, document["submissions"][0]["points"]) == (0, LESSON.max_points)


def test_a_fault_of_the_grader_is_said_and_gives_status_1(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("in the judge")

    monkeypatch.setattr(grading, "judge", broken)
    status, document = grade(put(tmp_path, right()), "--jobs", 1, to=tmp_path / "out.json")
    (entry,) = document["submissions"]
    assert (status, entry["status"], entry["points"]) == (1, "fault", 0)
    assert "ZeroDivisionError" in entry["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["grade", "nowhere.ipynb"], "There is nothing at nowhere.ipynb"),
        (["grade", "{tmp_path}"], "no notebook in the folder"),
        (["grade", "{tmp_path}", "--jobs", "0"], "1 or more"),
        (["grade"], "required"),
        (["class", "77_nothing"], "no lesson '77_nothing'"),
        (["bake"], "invalid choice"),
    ],
)
def test_wrong_usage_says_so_and_gives_status_2(arguments, words, tmp_path, capsys):
    try:
        status = main([argument.format(tmp_path=tmp_path) for argument in arguments])
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert words in capsys.readouterr().err


def test_less_isolation_than_required_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("autograder.isolation.best", lambda: "process")
    assert main(["grade", str(put(tmp_path, right())), "--require-isolation", "landlock"]) == 2
    assert "this machine offers process" in capsys.readouterr().err
    assert main(["class", LESSON.name]) == 2
    assert "--accept-process-isolation" in capsys.readouterr().err


def test_results_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError("stopped")))
    with pytest.raises(OSError):
        results.write(path, [])
    assert path.read_text() == "old"


# ---------------------------------------------------------------- python -m autograder lab


def test_lab_copies_the_notebooks_and_never_overwrites_work(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("autograder.lessons.ROOT", tmp_path)
    monkeypatch.setattr("subprocess.call", lambda command: opened.append(command[-1]) or 0)
    put(tmp_path / "release" / "a", "handed out", "a.ipynb")
    put(tmp_path / "release" / "b", "handed out", "b.ipynb")
    put(tmp_path / "work" / "a", "my work", "a.ipynb")
    assert main(["lab"]) == 0
    assert (tmp_path / "work" / "a" / "a.ipynb").read_text() == "my work"
    assert (tmp_path / "work" / "b" / "b.ipynb").read_text() == "handed out"
    assert opened == [str(tmp_path / "work")]
    assert sorted(path.name for path in (tmp_path / "work").rglob("*") if path.is_file()) == [
        "a.ipynb",
        "b.ipynb",
    ]
