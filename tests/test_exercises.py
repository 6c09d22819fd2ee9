"""The grading tests itself: every declaration must keep its own promises."""

import doctest
import inspect

import numpy as np
import pytest

from autograder.exercises import all_exercises
from autograder.judge import in_this_process, judge_function, judge_sheet
from autograder.sheets import PUBLIC_SEED, Drawn
from course.compare import Tolerance, difference
from course.questions import Raises
from tests.conftest import SEEDS

EXERCISES = list(all_exercises().values())
FEW = [PUBLIC_SEED, *range(1, max(2, SEEDS // 40))]

each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)


@each
def test_the_points_of_the_properties_add_up(exercise):
    assert sum(d.property.points for d in exercise.properties) == pytest.approx(exercise.points)


@each
def test_some_property_is_about_fresh_values(exercise):
    assert any(not d.property.needs_values for d in exercise.properties)


@each
def test_the_reference_scores_full_for_any_seed(exercise):
    for seed in range(SEEDS):
        verdict = judge_function(exercise, seed, exercise.reference_function)
        assert verdict.outcome == "correct", (seed, verdict)
        assert verdict.points == exercise.points


@each
def test_a_stub_is_not_attempted(exercise):
    def stub(*args, **kwargs):
        raise NotImplementedError

    verdict = judge_function(exercise, 1, stub)
    assert (verdict.outcome, verdict.points) == ("not attempted", 0)


def trivial_answers():
    """Answers that need no thought; none may earn a point."""

    def first(*args, **kwargs):
        return args[0] if args else None

    def last(*args, **kwargs):
        return args[-1] if args else None

    def second(*args, **kwargs):
        return args[1] if len(args) > 1 else None

    def third(*args, **kwargs):
        return args[2] if len(args) > 2 else None

    def zeros(*args, **kwargs):
        return np.zeros_like(np.asarray(args[0], dtype=float)) if args else 0.0

    def all_false(rows, *args, **kwargs):
        return np.zeros(len(rows), dtype=bool)

    def all_true(rows, *args, **kwargs):
        return np.ones(len(rows), dtype=bool)

    def constant(value):
        return lambda *args, **kwargs: value

    constants = [None, 0, 0.0, 1.0, np.inf, np.nan, True, False, "", "right", [], {}, (), np.zeros(3)]
    return [first, second, third, last, zeros, all_false, all_true, *map(constant, constants)]


@each
def test_trivial_answers_earn_nothing(exercise):
    for answer in trivial_answers():
        verdict = judge_function(exercise, 3, answer)
        assert verdict.points == 0, (answer, verdict.properties)


def with_numbers_as(change, function):
    """The function, with `change` applied to every number and array of what it returns."""

    def changed(value):
        if isinstance(value, tuple | list):
            return type(value)(map(changed, value))
        if isinstance(value, dict):
            return {key: changed(part) for key, part in value.items()}
        return value if isinstance(value, str | bool | None) else change(np.asarray(value))

    return lambda *args, **kwargs: changed(function(*args, **kwargs))


ALSO_WITHOUT_NUMBERS = ["could_be_layer_norm", "diagnose"]  # truth values and text are due


@each
def test_an_imaginary_part_is_not_passed_over(exercise):
    answer = with_numbers_as(lambda array: array * (1 + 1j) + 1j, exercise.reference_function)
    assert judge_function(exercise, 3, answer).points == 0 or exercise.name in ALSO_WITHOUT_NUMBERS


@each
def test_text_is_no_number(exercise):
    answer = with_numbers_as(lambda array: array.astype(str).tolist(), exercise.reference_function)
    assert judge_function(exercise, 3, answer).points == 0 or exercise.name in ALSO_WITHOUT_NUMBERS


@each
def test_real_numbers_stored_as_complex_ones_are_right(exercise):
    def complex_ones(array):
        return array.astype(complex) if array.dtype.kind == "f" else array

    answer = with_numbers_as(complex_ones, exercise.reference_function)
    assert judge_function(exercise, 3, answer).outcome == "correct"


def judged(drawn, function):
    return judge_sheet(drawn, in_this_process(drawn.exercise, function))


@each
def test_every_named_mistake_loses_points_and_is_named(exercise):
    for seed in FEW:
        drawn = Drawn(exercise, seed)
        for mistake in exercise.mistakes:
            verdict = judged(drawn, mistake.function)
            assert verdict.points < exercise.points, (seed, mistake.id, verdict)
            assert verdict.mistake == mistake.id, (seed, mistake.id, verdict.mistake, verdict.properties)


@each
def test_every_named_mistake_is_far_from_right(exercise):
    """Some case shows it by more than a hundred times the tolerance."""
    drawn = Drawn(exercise, 1)
    tolerances = {p.name: p.tolerance for p in drawn.sheet.properties}

    def far(item, view):
        t = tolerances[item.property]
        return difference(view, item.expected, Tolerance(100 * t.value, t.relative)) is not None

    for mistake in exercise.mistakes:
        assert any(map(far, drawn.sheet.items, drawn.wrong[mistake.id])), mistake.id


@each
def test_every_right_answer_written_differently_scores_full(exercise):
    for seed in FEW:
        drawn = Drawn(exercise, seed)
        for variant in exercise.variants:
            verdict = judged(drawn, variant)
            assert verdict.outcome == "correct", (seed, verdict)


@each
def test_mistake_ids_are_unique_and_causes_are_short(exercise):
    ids = [m.id for m in exercise.mistakes]
    assert len(set(ids)) == len(ids)
    assert all(0 < len(m.cause.split()) <= 50 for m in exercise.mistakes)


@each
def test_enough_variants_and_three_hints(exercise):
    assert len(exercise.variants) >= 3
    assert len(exercise.hints) == 3 and all(exercise.hints)


@each
def test_the_docstring_example_runs(exercise):
    function = exercise.reference_function
    tests = doctest.DocTestParser().get_doctest(
        inspect.getdoc(function), {"np": np, **vars(inspect.getmodule(function))}, exercise.name, None, 0
    )
    assert tests.examples, "a worked number belongs into the docstring"
    assert doctest.DocTestRunner().run(tests).failed == 0


@each
def test_cases_do_not_depend_on_the_order_of_drawing(exercise):
    first, second = Drawn(exercise, 7), Drawn(exercise, 7)
    for a, b in zip(first.sheet.items, second.sheet.items, strict=True):
        assert (
            a.expected == b.expected
            if isinstance(a.expected, Raises)
            else not difference(b.expected, a.expected)
        )
