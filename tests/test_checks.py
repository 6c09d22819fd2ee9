"""check() and its companions, as a notebook calls them, with the judge beside it and from shipped numbers alone."""

import builtins
import functools
import time
from types import FunctionType

import numpy as np
import pytest

from autograder.exercises import all_exercises
from autograder.judge import in_this_process, judge_sheet
from autograder.sheets import PUBLIC_SEED, Drawn
from course import checks, desk, shipped

EXERCISES = list(all_exercises().values())
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
REFERENCES = {e.name: e.reference_function for e in EXERCISES}


@pytest.fixture
def bundle(monkeypatch):
    """A student's bundle: no judge at hand, nothing passed yet."""
    monkeypatch.setattr(desk, "check", lambda name, namespace: None)
    monkeypatch.setattr(checks, "_passed", {})
    monkeypatch.setattr(checks, "_hints_given", {})
    monkeypatch.setattr(checks, "_attempted", set())


def outcome_of(capsys, **names):
    """What `check` shows in a notebook that holds these names: (None or the raised line, the text)."""
    raised = None
    try:
        exec("check('layer_norm')", {"check": checks.check, **names})
    except checks.NotRight as error:
        raised = str(error)
    return raised, capsys.readouterr().out


# ---------------------------------------------------------------- shipped numbers agree with the judge


@each
def test_the_reference_passes_on_shipped_numbers(exercise, bundle):
    verdict = checks.shipped_verdict(exercise.name, exercise.reference_function, REFERENCES)
    assert verdict.outcome == "correct", verdict
    assert verdict.max_points == exercise.points


@each
def test_variants_pass_on_shipped_numbers(exercise, bundle):
    for variant in exercise.variants:
        assert checks.shipped_verdict(exercise.name, variant, REFERENCES).outcome == "correct"


@each
def test_shipped_numbers_name_the_same_mistakes_as_the_judge(exercise, bundle):
    drawn = Drawn(exercise, PUBLIC_SEED)
    for mistake in exercise.mistakes:
        judged = judge_sheet(drawn, in_this_process(exercise, mistake.function))
        shown = checks.shipped_verdict(exercise.name, mistake.function, REFERENCES)
        open_ones = {r.name for r in shown.properties if r.passed is None}
        if not open_ones:  # else what waits for the values cannot wait here
            assert shown.points <= judged.points + 1e-9
        if shown.outcome == "correct":  # only a judge can see it
            lost = [r.name for r in judged.properties if not r.passed and not r.note]
            assert set(lost) <= open_ones, (mistake.id, lost)
        elif not open_ones:
            assert shown.mistake == judged.mistake == mistake.id
        else:
            assert shown.mistake is not None, mistake.id


@each
def test_something_of_every_exercise_can_be_checked_at_home(exercise, bundle):
    verdict = checks.shipped_verdict(exercise.name, exercise.reference_function, REFERENCES)
    assert any(r.passed for r in verdict.properties)


def test_what_needs_an_earlier_function_is_open_while_that_one_is_missing(bundle):
    leak = all_exercises()["leak"]
    alone = checks.shipped_verdict("leak", leak.reference_function, {})
    together = checks.shipped_verdict("leak", leak.reference_function, REFERENCES)
    assert sum(r.passed is None for r in alone.properties) > sum(
        r.passed is None for r in together.properties
    )


@pytest.mark.parametrize("name", ["leak", "breaking_inputs", "diagnose"])
def test_where_nothing_can_be_judged_here_the_report_says_when_it_can(name, bundle, capsys):
    namespace = {"check": checks.check, "own": checks.own, name: REFERENCES[name]}
    exec(f"check({name!r}); mine = own({name!r})", namespace)
    text = capsys.readouterr().out
    assert f"– {name}: graded on submission, 0 of " in text and "✓" not in text
    assert "only be judged on submission, or here once the earlier functions that it needs are right" in text
    assert namespace["mine"] is None  # nobody knows whether it is right


@pytest.mark.parametrize("name", ["breaking_inputs", "write_memory", "equivariance_gap"])
def test_a_stub_is_not_attempted_also_where_the_rest_waits_for_an_earlier_function(name, bundle):
    assert checks.shipped_verdict(name, stub, {}).outcome == "not attempted"


# ---------------------------------------------------------------- the outcomes


def test_correct_says_so_and_does_not_raise(bundle, capsys):
    raised, text = outcome_of(capsys, layer_norm=REFERENCES["layer_norm"])
    assert raised is None and "✓ layer_norm: correct, 2 of 2 points" in text


def test_own_gives_a_function_only_while_it_is_the_one_that_passed(bundle, capsys):
    namespace = {"check": checks.check, "own": checks.own, "layer_norm": REFERENCES["layer_norm"]}
    exec("check('layer_norm'); mine = own('layer_norm')", namespace)
    assert namespace["mine"] is REFERENCES["layer_norm"]
    exec("layer_norm = abs; mine = own('layer_norm')", namespace)
    assert namespace["mine"] is None


def test_partly_right_names_the_mistake_and_the_points(bundle, capsys):
    raised, text = outcome_of(
        capsys, layer_norm=lambda x, gamma, beta, eps=1e-5: REFERENCES["layer_norm"](x, gamma, beta)
    )
    assert "partly right" in raised and "◐" in text and "eps" in text


def test_not_right_yet(bundle, capsys):
    raised, text = outcome_of(capsys, layer_norm=lambda x, gamma, beta, eps=1e-5: x)
    assert "not right yet, 0 of 2 points" in raised and "✗" in text


def stub(*args, **kwargs):
    raise NotImplementedError


def test_a_stub_is_not_attempted(bundle, capsys):
    raised, text = outcome_of(capsys, layer_norm=stub)
    assert "not attempted" in raised and "stub" in text


def test_a_missing_name_is_said(bundle, capsys):
    raised, text = outcome_of(capsys)
    assert "not right yet" in raised and "there is no layer_norm" in text


def test_a_misspelt_exercise_gets_the_nearest_name(bundle):
    with pytest.raises(checks.NotRight, match="layer_norm"):
        checks.check("layer_nrom")


def wraps(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


class CallableNorm:
    def __call__(self, x, gamma, beta, eps=1e-5):
        return REFERENCES["layer_norm"](x, gamma, beta, eps)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, gamma, beta, eps=1e-5: REFERENCES["layer_norm"](x, gamma, beta, eps),
        functools.partial(REFERENCES["layer_norm"]),
        CallableNorm(),
        wraps(REFERENCES["layer_norm"]),
    ],
    ids=["lambda", "partial", "object", "decorated"],
)
def test_any_callable_of_the_right_name_is_checked(form, bundle, capsys):
    assert outcome_of(capsys, layer_norm=form)[0] is None


def test_the_function_itself_may_be_given(bundle, capsys):
    exec("check(layer_norm)", {"check": checks.check, "layer_norm": CallableNorm()})
    assert "correct" in capsys.readouterr().out


def endless(x, gamma, beta, eps=1e-5):
    while True:
        pass


def test_an_answer_that_never_returns_is_interrupted(bundle, capsys):
    started = time.monotonic()
    raised, text = outcome_of(capsys, layer_norm=endless)
    assert time.monotonic() - started < 15
    assert "not right yet" in raised and "no answer after" in text


def test_not_right_shows_one_line_and_no_traceback():
    error = checks.NotRight("layer_norm: not right yet, 0 of 2 points")
    assert error._render_traceback_() == ["layer_norm: not right yet, 0 of 2 points"]


# ---------------------------------------------------------------- with the judge beside the notebook


def test_a_judge_beside_the_notebook_gives_the_same_verdict(capsys):
    def layer_norm(x, gamma, beta, eps=1e-5):
        return REFERENCES["layer_norm"](x, gamma, beta, eps) - beta

    judged = desk.check("layer_norm", {"layer_norm": layer_norm})
    shown = checks.shipped_verdict("layer_norm", layer_norm, {})
    assert judged is not None, "the judge did not start"
    assert judged[:3] == (shown.outcome, shown.points, shown.max_points)
    assert shown.cause and shown.cause in judged[3]


def test_the_judge_serves_functions_that_a_bundle_cannot(capsys):
    judged = desk.check("leak", {"leak": REFERENCES["leak"]})
    assert judged[0] == "correct" and "submission" not in judged[3]


def test_the_judge_asks_the_notebooks_own_earlier_functions_too():
    def layer_norm(x, gamma, beta, eps=1e-5):
        return REFERENCES["layer_norm"](x, gamma, 0 * beta if np.ndim(x) > 2 else beta, eps)

    block = REFERENCES["encoder_block"]
    mine = FunctionType(block.__code__, {**block.__globals__, "layer_norm": layer_norm}, "encoder_block")
    judged = desk.check("encoder_block", {**REFERENCES, "layer_norm": layer_norm, "encoder_block": mine})
    assert judged[0] == "partial" and "right for the layer_norm you gave it" in judged[3]


# ---------------------------------------------------------------- hints, quiz, solutions, starting again


def test_hints_come_rung_by_rung(bundle, capsys):
    hints = shipped.load("layer_norm").hints
    for rung in range(1, 4):
        checks.hint("layer_norm")
        text = capsys.readouterr().out
        assert [hint in text for hint in hints] == [i < rung for i in range(3)]


def test_every_quiz_explains_every_letter(capsys):
    for lesson in shipped._lessons():
        for name, options in lesson["quizzes"].items():
            assert sum(right for right, _ in options.values()) == 1, name
            for letter, (_, why) in options.items():
                checks.quiz(name, letter.lower())
                assert why in capsys.readouterr().out


def test_an_unanswered_quiz_says_what_to_type(capsys):
    name = next(name for lesson in shipped._lessons() for name in lesson["quizzes"])
    checks.quiz(name, "")
    assert "Type one of the letters" in capsys.readouterr().out


def test_solutions_need_an_attempt_first(bundle, capsys):
    from course import solution

    with pytest.raises(checks.NotRight, match="Try it first"):
        solution("layer_norm")
    outcome_of(capsys, layer_norm=lambda x, gamma, beta, eps=1e-5: x)
    solution("layer_norm")
    text = capsys.readouterr().out
    assert text.count("Way ") == 3 and text.count("def layer_norm(") == 3
    for code in text.split("\n\ndef ")[1:]:
        builtins.compile("def " + code.split("\n\nWay")[0], "way", "exec")


def test_reset_gives_the_stub_back(capsys):
    from course import reset

    reset("layer_norm")
    stub = capsys.readouterr().out
    assert "def layer_norm(" in stub and "NotImplementedError" in stub
    namespace = {"np": np}
    exec(stub, namespace)
    with pytest.raises(NotImplementedError):
        namespace["layer_norm"](1, 2, 3)
