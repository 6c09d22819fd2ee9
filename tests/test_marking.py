"""Points and causes, on a small sheet made by hand: double(x) is 2 x."""

import numpy as np

from course.compare import Tolerance
from course.marking import NOISE, Item, Property, Sheet, mark
from course.questions import Answer, Failure, ask

X = [np.array([0.1, 0.2]), np.array([0.3]), np.array([0.0])]
SHEET = Sheet(
    "double",
    ("x",),
    (
        Property("values", 2.0),
        Property("another length", 1.0),
        Property("zero stays zero", 1.0, needs_values=True),
    ),
    tuple(
        Item(name, ask(x), 2 * x)
        for name, x in zip(["values", "another length", "zero stays zero"], X, strict=True)
    ),
    {"squares": "You square.", "halves": "You halve."},
)
WRONG = {"squares": [x * x for x in X], "halves": [x / 2 for x in X]}


def marked(function, sheet=SHEET, wrong=WRONG):
    given = [function(x) for x in X]
    return mark(sheet, given, [[Answer(value)] for value in given], wrong)


def test_a_right_answer_earns_everything():
    verdict = marked(lambda x: 2 * x)
    assert (verdict.outcome, verdict.points, verdict.mistake, verdict.finding) == ("correct", 4.0, None, None)


def test_a_property_that_trivial_answers_share_waits_for_the_values():
    verdict = marked(lambda x: 0 * x)
    assert (verdict.outcome, verdict.points) == ("incorrect", 0.0)
    assert verdict.properties[2].passed is False and verdict.properties[2].note


def test_part_of_the_points_for_part_of_the_properties():
    verdict = marked(lambda x: 2 * x if len(x) == 2 else x)
    assert (verdict.outcome, verdict.points) == ("partial", 3.0)
    assert verdict.finding.property == "another length"


def test_a_named_mistake_must_explain_every_answer():
    assert marked(lambda x: x / 2).mistake == "halves"
    assert marked(lambda x: x / 2 if len(x) == 2 else x / 3).mistake is None


def test_work_in_float32_keeps_most_points_and_is_told():
    verdict = marked(lambda x: (2 * x).astype(np.float32))
    assert verdict.mistake == "single-precision"
    assert 2.0 < verdict.points < 4.0


def test_a_wrong_answer_in_float32_is_still_wrong():
    verdict = marked(lambda x: (3 * x).astype(np.float32))
    assert (verdict.points, verdict.mistake) == (0.0, None)


def test_a_stub_is_not_attempted_and_a_crash_is_wrong():
    stub = Failure("not attempted", "the stub", "NotImplementedError")
    assert marked(lambda x: stub).outcome == "not attempted"
    crash = Failure("exception", "no", "ValueError < Exception")
    assert marked(lambda x: crash).outcome == "incorrect"


def test_a_mistake_whose_numbers_are_noise_is_known_by_where_it_is_wrong():
    sheet = Sheet(
        "double",
        ("x",),
        (Property("values", 2.0), Property("large offsets", 1.0, chaotic=True)),
        (Item("values", ask(X[0]), 2 * X[0]), Item("large offsets", ask(X[1]), 2 * X[1])),
        {"cancels": "It cancels."},
    )
    wrong = {"cancels": [2 * X[0], 2 * X[1] + 7]}
    noisy = [2 * X[0], 2 * X[1] + 5]
    assert mark(sheet, noisy, [[Answer(v)] for v in noisy], wrong).mistake == "cancels"
    right = [2 * X[0], 2 * X[1]]
    assert mark(sheet, right, [[Answer(v)] for v in right], wrong).mistake is None


def test_rounding_noise_is_known_where_the_answer_is_wrong_and_near():
    sheet = Sheet(
        "double",
        ("x",),
        (Property("values", 2.0), Property("given steps", 1.0)),
        (Item("values", ask(X[0]), 2 * X[0]), Item("given steps", ask(X[1]), 2 * X[1])),
        {"drowns": "It drowns in rounding."},
    )
    wrong = {"drowns": [NOISE, 2 * X[1]]}

    def named(first, second):
        return mark(sheet, [first, second], [[Answer(first)], [Answer(second)]], wrong).mistake

    assert named(1.999 * X[0], 2 * X[1]) == named(2.0003 * X[0], 2 * X[1]) == "drowns"
    assert named(1.8 * X[0], 2 * X[1]) is None  # not near
    assert named(1.999 * X[0], 1.999 * X[1]) is None  # wrong where the mistake is right
    assert named(2 * X[0], 1.999 * X[1]) is None


def test_a_mistake_is_known_by_its_numbers_also_where_the_right_ones_must_be_exact():
    exact = Property("gives it back exactly", 1.0, tolerance=Tolerance(0.0))
    sheet = Sheet("same", ("x",), (exact,), (Item(exact.name, ask(X[0]), X[0]),), {"tripled": "Not tripled."})
    last_digit = np.nextafter(3 * X[0], np.inf)
    verdict = mark(sheet, [last_digit], [[Answer(last_digit)]], {"tripled": [3 * X[0]]})
    assert (verdict.points, verdict.mistake) == (0.0, "tripled")


def test_a_sheet_of_open_properties_is_neither_right_nor_wrong():
    sheet = Sheet(
        "double",
        ("x",),
        (Property("with the judge", 2.0), Property("zero stays zero", 1.0, needs_values=True)),
        (Item("with the judge", ask(), open=True), Item("zero stays zero", ask(), open=True)),
    )
    verdict = mark(sheet, [None, None], [[], []], {})
    assert (verdict.outcome, verdict.points, verdict.max_points) == ("open", 0.0, 3.0)


def test_a_stub_is_not_attempted_where_the_rest_is_open():
    stub = Failure("not attempted", "the stub", "NotImplementedError")
    sheet = Sheet(
        "double",
        ("x",),
        (Property("values", 2.0), Property("with the judge", 2.0)),
        (Item("values", ask(X[0]), 2 * X[0]), Item("with the judge", ask(), open=True)),
    )
    assert mark(sheet, [stub, None], [[Answer(failure=stub)], []], {}).outcome == "not attempted"


def test_an_open_property_is_neither_right_nor_wrong():
    sheet = Sheet(
        "double",
        ("x",),
        (Property("values", 2.0), Property("with the judge", 2.0)),
        (Item("values", ask(X[0]), 2 * X[0]), Item("with the judge", ask(), open=True)),
    )
    verdict = mark(sheet, [2 * X[0], None], [[Answer(2 * X[0])], []], {})
    assert (verdict.outcome, verdict.points, verdict.properties[1].passed) == ("correct", 2.0, None)
