"""Reports: short, in words as well as in marks, and never broken by what a student's function returns."""

import re
from html import unescape

import numpy as np
import pytest

from autograder.exercises import all_exercises
from autograder.judge import in_this_process, judge_function, judge_sheet
from autograder.sheets import Drawn
from course import report
from course.compare import Difference
from course.marking import Finding, PropertyResult, Verdict
from course.questions import Call, Question, ask

EXERCISES = list(all_exercises().values())
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)


class Hostile(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


ODD_ANSWERS = [
    lambda *a, **k: None,
    lambda *a, **k: "<script>alert(1)</script>",
    lambda *a, **k: np.zeros((2, 3, 4, 5)),
    lambda *a, **k: np.array(["a", "b"]),
    lambda *a, **k: [[1.0, 2.0], [3.0]],
    lambda *a, **k: {"a": np.nan},
    lambda *a, **k: (1, 2, 3),
    lambda *a, **k: 1j,
    lambda *a, **k: True,
    lambda *a, **k: print("hello") or 10**400,
    lambda *a, **k: (x for x in a),
    lambda: None,
    raises(ValueError("<b>bold</b>")),
    raises(Hostile()),
    raises(SystemExit(3)),
    raises(KeyboardInterrupt()),
    raises(NotImplementedError()),
]


def perturbed(exercise):
    """The right answer with its numbers moved, for the reports about values."""

    def function(*args, **kwargs):
        return move(exercise.reference_function(*args, **kwargs))

    return function


def move(value):
    if isinstance(value, tuple | list):
        return type(value)(map(move, value))
    if isinstance(value, dict):
        return {key: move(item) for key, item in value.items()}
    if isinstance(value, str | None):
        return value
    array = np.asarray(value)
    return ~array if array.dtype.kind == "b" else array + 0.25


@each
def test_every_report_is_short_clean_and_escaped(exercise):
    functions = [*ODD_ANSWERS, perturbed(exercise), *(m.function for m in exercise.mistakes)]
    drawn = Drawn(exercise, 4)
    for function in functions:
        verdict = judge_sheet(drawn, in_this_process(exercise, function))
        words = report.message(verdict).split()
        assert len(words) <= 80, words
        assert words or verdict.outcome == "correct"
        text, page = report.text(verdict), report.html(verdict)
        assert "Traceback" not in text + page
        assert "<script" not in page and "<b>" not in page
        assert text.splitlines()[0] == report.headline(verdict)
        assert verdict.name in text and report.OUTCOMES[verdict.outcome][1] in text


@each
def test_html_and_text_say_the_same(exercise):
    verdict = judge_function(exercise, 4, exercise.mistakes[0].function)
    bare = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", report.html(verdict))))
    for result in verdict.properties:
        assert result.name.split(" <")[0].split("&")[0].split(">")[0][:20] in bare
    text = re.sub(r"\s+", " ", report.text(verdict))
    assert report.sentences(verdict)
    for sentence in report.sentences(verdict):
        assert re.sub(r"\s+", " ", sentence) in text
    assert re.sub(r"<[^>]+>|\s", "", report.sentences(verdict)[-1]) in re.sub(r"\s", "", bare)


def test_inputs_take_eight_lines_at_most_and_the_last_says_what_is_missing():
    def lines_of(*arrays):
        found = Finding("values", ask(*arrays), Difference("value"), ("x", "y", "z"))
        return report._input_lines(found, "double")

    fits = lines_of(np.eye(4), np.ones((3, 2)))
    assert len(fits) == 8 and "not shown" not in fits[-1]
    cut = lines_of(np.eye(4), np.eye(4), np.eye(4))
    assert cut[0] == "double(x, y, z)" and len(cut) == 8
    assert cut[-1] == "… (6 more lines of inputs, not shown)"


def test_calls_with_other_inputs_show_each_of_them():
    one, two, gamma = np.array([1.0]), np.array([2.0]), np.array([3.0])
    calls = (Call((one, gamma)), Call((two,), {"gamma": gamma}))
    found = Finding("alone", Question(calls), Difference("value"), ("x", "gamma"))
    assert report._input_lines(found, "norm") == [
        "norm(x, gamma)",
        "norm(x_2, gamma=gamma)",
        "x = [1.]",
        "gamma = [3.]",
        "x_2 = [2.]",
    ]


@each
def test_no_report_shows_more_than_eight_lines_of_inputs(exercise):
    for item in Drawn(exercise, 4).sheet.items:
        found = Finding(item.property, item.question, Difference("value"), exercise.parameters)
        assert len(report._input_lines(found, exercise.name)) <= 8


def test_points_lost_to_float32_are_told_beside_another_cause():
    exercise = all_exercises()["layer_norm"]

    def layer_norm(x, gamma, beta, eps=1e-5):
        return exercise.reference_function(x, gamma, beta).astype(np.float32)

    verdict = judge_function(exercise, 4, layer_norm)
    assert any(r.passed and r.points < r.max_points for r in verdict.properties)
    assert verdict.mistake != "single-precision"
    assert "computed in float32" in report.message(verdict)


def test_a_changed_input_is_told_before_what_follows_from_it():
    def layer_norm(x, gamma, beta, eps=1e-5):
        deviation = np.sqrt(x.var(-1, keepdims=True) + eps)
        x -= x.mean(-1, keepdims=True)  # no whole number may take this
        x /= deviation
        return gamma * x + beta

    verdict = judge_function(all_exercises()["layer_norm"], 4, layer_norm)
    lost = [result.name for result in verdict.properties if not result.passed]
    assert lost == ["integers work like floats", "leaves its inputs unchanged"]
    assert verdict.finding.property == "leaves its inputs unchanged"
    assert "the answer is right, but layer_norm changed what it was given" in report.message(verdict)


@pytest.mark.parametrize("name, function", [("diagnose", "block"), ("residual", "f")])
def test_a_function_that_is_called_too_often_is_named(name, function):
    exercise = all_exercises()[name]

    def asks_for_ever(*args):
        while True:
            next(value for value in args if callable(value))(np.zeros((1, 2, 4)))

    verdict = judge_function(exercise, 4, asks_for_ever)
    assert f"{name} called {function} more than " in report.message(verdict)
    assert "RuntimeError" not in report.text(verdict)


@each
def test_a_right_answer_is_one_line_and_the_points(exercise):
    verdict = judge_function(exercise, 4, exercise.reference_function)
    lines = report.text(verdict).splitlines()
    assert lines[0].startswith("✓") and len(lines) == 2 + len(verdict.properties) + len(verdict.notes)


def test_what_is_right_as_far_as_it_is_judged_is_not_called_correct():
    held, waiting = PropertyResult("held", True, 1.0, 1.0), PropertyResult("waits", None, 0.0, 7.0)
    whole = Verdict("f", "correct", 1.0, 1.0, (held,))
    part = Verdict("f", "correct", 1.0, 8.0, (held, waiting))
    assert report.headline(whole) == "✓ f: correct, 1 of 1 points"
    assert report.headline(part) == "✓ f: right so far, 1 of 8 points"
    assert "the rest is graded on submission" in report.text(part) and "rest" not in report.text(whole)
