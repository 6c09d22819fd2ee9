"""The example in docs/contributing.md is a declaration that works."""

import re

import pytest

from autograder.exercise import Exercise, ask
from autograder.judge import judge_function
from autograder.lessons import ROOT


@pytest.fixture(scope="module")
def double():
    text = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace = {"Exercise": Exercise, "ask": ask}
    exec(example, namespace)
    return namespace["DOUBLE"]


def test_the_points_of_the_example_add_up(double):
    assert sum(declared.property.points for declared in double.properties) == double.points


@pytest.mark.parametrize("answer", [lambda x: 2 * x, lambda x: x + x])
def test_right_answers_to_the_example_score_full(double, answer):
    verdict = judge_function(double, 7, answer)
    assert (verdict.outcome, verdict.points) == ("correct", double.points)


def test_the_named_mistake_of_the_example_is_named(double):
    verdict = judge_function(double, 7, lambda x: x**2)
    assert (verdict.outcome, verdict.points, verdict.mistake) == ("incorrect", 0, "squared")
    assert verdict.cause == "You square the number."


def test_a_wrong_answer_without_a_name_is_wrong_too(double):
    verdict = judge_function(double, 7, lambda x: 3 * x)
    assert (verdict.outcome, verdict.points, verdict.mistake) == ("incorrect", 0, None)
    assert verdict.finding.property == "twice 3 is 6"


def test_changing_the_input_loses_the_last_quarter(double):
    def answer(x):
        x *= 2
        return x

    verdict = judge_function(double, 7, answer)
    assert (verdict.outcome, verdict.points) == ("partial", 1.75)
