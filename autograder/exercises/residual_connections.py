"""Lesson 1: residual connections and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb, lgamma, log, log1p

import numpy as np

from autograder.exercise import Exercise, Question, View, ask
from course.answering import OutOfTime
from course.questions import Given
from course.views import ends, parts, step_size, summed, thinned, with_calls

# ------------------------------------------------------------------------------------------ 1.1

RESIDUAL = Exercise(
    number="1.1",
    title="The add",
    level="easy",
    difficulty=1,
    minutes=6,
    core=True,
    why="Every sub-layer of the encoder is wrapped in this add, and the add decides that every sub-layer keeps the width d_model.",
    budget="Four lines are enough.",
    hints=(
        "The sub-layer returns a change, not a new token. What do you need besides that change, and how often do you need the sub-layer?",
        "x is (..., d_model). f(x) must be (..., d_model) too, every axis the same; only then is there something to add entry by entry.",
        "change: what f returns for x, asked once and kept under a name. shapes of change and x differ: raise ValueError with a sentence. "
        "otherwise: return a new array, x plus the change.",
    ),
)


@RESIDUAL.reference
def residual(x: np.ndarray, f: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Add the change that a sub-layer proposes to what the sub-layer read: y = x + f(x).

    x       : (..., d_model), any number of leading axes
    f       : the sub-layer, a function that takes x and returns the change, (..., d_model) too
    returns : (..., d_model), a new array

    f is called once: a sub-layer with dropout would answer a second call differently. There is no
    norm here, neither before f (pre-norm) nor after the add (post-norm).

    Raises ValueError where the change does not have exactly the shape of x.

    >>> residual(np.array([2.0, 0.0]), lambda x: np.array([0.5, -1.0]))
    array([ 2.5, -1. ])
    """
    change = f(x)
    if np.shape(change) != np.shape(x):
        raise ValueError(
            f"a sub-layer must keep the shape {np.shape(x)}, this one made {np.shape(change)} of it"
        )
    return x + change


@RESIDUAL.worked("(2, 0) and the change (0.5, -1) give (2.5, -1)", 0.1, decimals=3)
def _():
    yield ask(np.array([2.0, 0.0]), Given("constant", (np.array([0.5, -1.0]),)))


@RESIDUAL.must("x plus the change, for one token, a sentence and batches", 0.8)
def residual_values(rng):
    for shape in [(3,), (2, 4), (3, 3), (2, 3, 2), (2, 2, 2, 3)]:
        yield ask(rng.normal(size=shape), Given("linear", (rng.normal(size=(shape[-1], shape[-1])),)))


@RESIDUAL.must("f is called once, with x", 0.3, view=View(with_calls))
def residual_calls(rng):
    for shape in [(3,), (2, 3)]:
        yield ask(rng.normal(size=shape), Given("in_turns", ([rng.normal(size=shape) for _ in range(3)],)))


@RESIDUAL.must("a change of another shape raises ValueError", 0.35, needs_values=True)
def residual_shapes(rng):
    for shape, other in [((2, 3), (2, 1)), ((2, 3), (3,)), ((3,), (2, 3)), ((1, 3), (3,)), ((2, 3), (1, 3))]:
        yield ask(rng.normal(size=shape), Given("constant", (rng.normal(size=other),)))
    yield ask(rng.normal(size=(2, 3)), Given("linear", (rng.normal(size=(3, 1)),)))


@RESIDUAL.must("a sub-layer that changes nothing leaves x as it is", 0.1, needs_values=True)
def residual_nothing(rng):
    yield ask(rng.normal(size=(2, 3)), Given("constant", (np.zeros((2, 3)),)))


@RESIDUAL.must("integers work like floats", 0.1)
def residual_integers(rng):
    yield ask(rng.integers(1, 9, size=(2, 3)), Given("constant", (rng.normal(size=(2, 3)),)))
    yield ask(rng.normal(size=(2, 3)), Given("constant", (rng.integers(1, 9, size=(2, 3)),)))


@RESIDUAL.must("arguments by name", 0.05)
def residual_names(rng):
    yield ask(f=Given("linear", (rng.normal(size=(3, 3)),)), x=rng.normal(size=(2, 3)))


def residual_inputs(rng):
    yield ask(rng.normal(size=(2, 3)), Given("linear", (rng.normal(size=(3, 3)),)))
    yield ask(rng.normal(size=(2, 3)), Given("itself"))


RESIDUAL.leaves_inputs_alone(0.2, residual_inputs)


def same_shape(x: np.ndarray, change: np.ndarray) -> bool:
    return np.shape(x) == np.shape(change)


def wrong_residual(join: Callable, fits: Callable = same_shape) -> Callable:
    """A residual connection that joins x and the change in its own way, or looks at the shapes in its own way."""

    def wrong(x, f):
        change = f(x)
        if not fits(x, change):
            raise ValueError("shape")
        return join(x, change)

    return wrong


def added(x: np.ndarray, change: np.ndarray) -> np.ndarray:
    return x + change


def unchecked(x: np.ndarray, change: np.ndarray) -> bool:
    return True


def add_into_x(x, change):
    x += change
    return x


def add_into_change(x, change):
    change += x
    return change


def add_as_type_of_x(x, change):
    result = np.zeros_like(x)
    result[...] = x + change
    return result


def add_and_normalise(x, change):
    y = x + change
    return (y - y.mean(axis=-1, keepdims=True)) / np.sqrt(y.var(axis=-1, keepdims=True) + 1e-5)


RESIDUAL.mistake(
    "no-shape-check",
    "You never look at the shape of the change. NumPy stretches one of shape (seq, 1) or (d_model,) over x without a word.",
    wrong_residual(added, unchecked),
)
RESIDUAL_JOINS = (
    ("forgets-x", "You return the change alone. The token that went in is lost.", lambda x, change: +change),
    (
        "changes-x",
        "You add into the caller's array (+= works in place). Whoever still holds x finds it changed.",
        add_into_x,
    ),
    (
        "adds-into-the-change",
        "You add into the array that f returned. It belongs to f: it may be x itself, or hold whole numbers.",
        add_into_change,
    ),
    (
        "subtracts",
        "You take one of the two from the other. A residual connection adds.",
        lambda x, change: x - change,
    ),
    (
        "multiplies",
        "You multiply x and the change. A residual connection adds.",
        lambda x, change: x * change,
    ),
    ("averages", "You divide the sum by two. The sum is not averaged.", lambda x, change: (x + change) / 2),
    ("x-twice", "x is in your sum twice. f returns only the change.", lambda x, change: x + (x + change)),
    ("change-twice", "The change is in your sum twice.", lambda x, change: x + 2 * change),
    (
        "concatenates",
        "You put x and the change side by side. They are added entry by entry, so the width stays d_model.",
        lambda x, change: np.concatenate([x, change], axis=-1),
    ),
    (
        "integer-result",
        "Your result has the type of x (zeros_like, empty_like). With whole numbers in, every fraction is cut off.",
        add_as_type_of_x,
    ),
    (
        "normalises",
        "You normalise the sum. That is one step of a post-norm block; this function is the add alone.",
        add_and_normalise,
    ),
)
for mistake_id, cause, join in RESIDUAL_JOINS:
    RESIDUAL.mistake(mistake_id, cause, wrong_residual(join))


@RESIDUAL.mistake(
    "calls-f-twice",
    "f is called a second time. A sub-layer with dropout draws another mask then, so you check one change and add another.",
)
def _(x, f):
    if np.shape(f(x)) != np.shape(x):
        raise ValueError("shape")
    return x + f(x)


@RESIDUAL.mistake(
    "token-by-token",
    "You call f for one row at a time. A sub-layer such as attention must see all the tokens at once.",
)
def _(x, f):
    rows = [row + f(row) for row in x]
    if any(np.shape(row) != np.shape(x)[1:] for row in rows):
        raise ValueError("shape")
    return np.array(rows)


@RESIDUAL.mistake(
    "reads-the-sum",
    "f is called on the sum as well. It reads x, once, and its answer is added.",
)
def _(x, f):
    change = f(x)
    if not same_shape(x, change):
        raise ValueError("shape")
    return x + f(x + change)


def same_last_axis(x, change):
    return np.shape(x)[-1:] == np.shape(change)[-1:]


RESIDUAL.mistake(
    "checks-the-last-axis-only",
    "You compare the last axis only. A change with fewer or more axes gets through.",
    wrong_residual(added, same_last_axis),
)
RESIDUAL.mistake(
    "checks-the-first-axis-only",
    "You compare the lengths (the first axis) only. A change with another width gets through.",
    wrong_residual(added, lambda x, change: len(x) == len(change)),
)
RESIDUAL.mistake(
    "checks-the-number-of-axes",
    "You compare how many axes there are, not how long they are.",
    wrong_residual(added, lambda x, change: np.ndim(x) == np.ndim(change)),
)
RESIDUAL.mistake(
    "checks-the-size-only",
    "You compare how many entries there are. Two arrays of one size may still have different shapes.",
    wrong_residual(added, lambda x, change: np.size(x) == np.size(change)),
)
RESIDUAL.mistake(
    "checks-the-sum",
    "You compare the shape of the sum with that of x. By then NumPy has already stretched a change that was too small.",
    wrong_residual(added, lambda x, change: np.shape(x + change) == np.shape(x)),
)


@RESIDUAL.mistake(
    "another-error",
    "You stop with another kind of error (an assert raises AssertionError). Here a ValueError is due.",
)
def _(x, f):
    change = f(x)
    assert same_shape(x, change)
    return x + change


def raises_another(error: type[Exception]) -> Callable:
    """The add, with this error where the shape does not fit."""

    def wrong(x, f):
        change = f(x)
        if not same_shape(x, change):
            raise error("shape")
        return x + change

    return wrong


for mistake_id, error in (
    ("raises-type-error", TypeError),
    ("raises-runtime-error", RuntimeError),
    ("raises-exception", Exception),
):
    RESIDUAL.mistake(
        mistake_id,
        f"Where the shape does not fit you raise {error.__name__}. An array with the wrong shape is a ValueError.",
        raises_another(error),
    )


@RESIDUAL.mistake(
    "keeps-quiet",
    "Where the shape does not fit you return something and go on. The caller must be told, by a ValueError.",
)
def _(x, f):
    change = f(x)
    return x + change if same_shape(x, change) else x


@RESIDUAL.mistake(
    "prints-instead-of-raising",
    "Where the shape does not fit, your function ends without raising and returns None. The caller must be told, by a ValueError.",
)
def _(x, f):
    change = f(x)
    return x + change if same_shape(x, change) else None


for mistake_id, _cause, join in RESIDUAL_JOINS:
    RESIDUAL.pair(mistake_id, "no-shape-check", wrong_residual(join, unchecked))
RESIDUAL.pair("token-by-token", "no-shape-check", lambda x, f: np.array([row + f(row) for row in x]))
RESIDUAL.pair("reads-the-sum", "no-shape-check", lambda x, f: x + f(x + f(x)))
RESIDUAL.pair("changes-x", "checks-the-last-axis-only", wrong_residual(add_into_x, same_last_axis))
RESIDUAL.pair(
    "forgets-x", "checks-the-last-axis-only", wrong_residual(lambda x, change: +change, same_last_axis)
)


@RESIDUAL.variant
def _(x, f):
    """Checked axis by axis, added in a loop over the entries."""
    change = np.asarray(f(x))
    if change.ndim != x.ndim or any(a != b for a, b in zip(change.shape, x.shape)):
        raise ValueError("another shape")
    y = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        y[index] = x[index] + change[index]
    return y


@RESIDUAL.variant
def _(x, f):
    """In place, but on a copy."""
    y = x.astype(float)
    change = f(x)
    if change.shape != y.shape:
        raise ValueError("the width must stay d_model")
    y += change
    return y


@RESIDUAL.variant
def _(x, f):
    """An error of its own kind that is a ValueError too, prints and a warning."""

    class WrongWidth(ValueError):
        pass

    change = f(x)
    print("shapes", x.shape, change.shape)
    np.log(np.zeros(1))
    if x.shape != change.shape:
        raise WrongWidth
    return np.sum([x, change], axis=0)


@RESIDUAL.variant
def _(x, f):
    """A matrix product with (1, 1)."""
    change = f(x)
    if np.shape(change) != np.shape(x):
        raise ValueError("shape")
    return np.tensordot(np.ones(2), np.stack([x, change]), axes=1)


# ------------------------------------------------------------------------------------------ 1.2

NUMERICAL_JACOBIAN = Exercise(
    number="1.2",
    title="A Jacobian by small steps",
    level="easy",
    difficulty=2,
    minutes=10,
    core=True,
    why="You will write many gradients by hand. This function tells you whether they are right, without any calculus.",
    budget="Six lines are enough.",
    hints=(
        "Move one input a little up and then a little down. Which entries of the Jacobian do you learn from that, a row or a column?",
        "For each j of the n inputs: two calls of f, with vectors of shape (n,) that differ from x at place j only. Their difference, "
        "divided by the distance between the two points, is (m,) and fills column j of the (m, n) result.",
        "for j from 0 to n - 1: step is n float zeros with h at place j; slope is (f at x plus step, minus f at x minus step) divided "
        "by the distance; keep slope. put the slopes side by side as columns.",
    ),
)


@NUMERICAL_JACOBIAN.reference
def numerical_jacobian(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Measure the Jacobian of f at x by central differences.

    f       : takes a vector (n,), returns a vector (m,)
    x       : (n,), not changed
    h       : the step to either side
    returns : (m, n), (out, in): entry [i, j] says by how much output i grows when input j grows by one

    f may return its argument itself, or a view of it.

    >>> numerical_jacobian(lambda z: np.array([z[0] * z[1], 3 * z[0], z[1]]), np.array([2.0, 5.0])).round(4)
    array([[5., 2.],
           [3., 0.],
           [0., 1.]])
    """
    columns = []
    for j in range(len(x)):
        step = np.zeros(len(x))
        step[j] = h
        columns.append((f(x + step) - f(x - step)) / (2 * h))
    return np.stack(columns, axis=1)


@NUMERICAL_JACOBIAN.worked("the tiny FFN at (1, 2), without and with its residual", 0.15, decimals=6)
def _():
    yield ask(Given("tiny_ffn"), np.array([1.0, 2.0]))
    yield ask(Given("tiny_ffn", (1.0,)), np.array([1.0, 2.0]))


@NUMERICAL_JACOBIAN.must(
    "the Jacobian, for any number of inputs and outputs", 0.85, tolerance=1e-8, relative=True
)
def jacobian_values(rng):
    for n, m in [(1, 1), (2, 3), (4, 2), (3, 3)]:
        yield ask(Given("squashed", (rng.normal(size=(n, m)), rng.normal(size=m))), rng.normal(size=n))
    yield ask(Given("squares", (rng.normal(size=(3, 2)),)), rng.normal(size=3))


@NUMERICAL_JACOBIAN.must(
    "the cube of 100 keeps its accuracy", 0.2, tolerance=1e-8, relative=True, chaotic=True
)
def jacobian_cube(rng):
    yield ask(Given("cubes"), np.array([100.0]))
    yield ask(Given("cubes"), rng.uniform(90, 110, size=2))


@NUMERICAL_JACOBIAN.must("the error shrinks like h squared", 0.15, tolerance=3e-4)
def jacobian_order(rng):
    yield ask(Given("cubes"), rng.uniform(0.5, 1.5, size=2), h=0.01)


@NUMERICAL_JACOBIAN.must("the step is h", 0.15, view=View(step_size), needs_values=True)
def jacobian_step(rng):
    for h in (1e-3, 0.25):
        yield ask(Given("squares", (rng.normal(size=(3, 2)),)), rng.normal(size=3), h=h)


@NUMERICAL_JACOBIAN.must("f may return its argument, or a part of it", 0.15, tolerance=1e-8)
def jacobian_views(rng):
    yield ask(Given("first_entries", (2,)), rng.normal(size=3))
    yield ask(Given("itself"), rng.normal(size=3))


@NUMERICAL_JACOBIAN.must("integers work like floats", 0.1, tolerance=1e-8, relative=True)
def jacobian_integers(rng):
    yield ask(Given("squares", (rng.normal(size=(2, 3)),)), rng.integers(1, 9, size=2))


@NUMERICAL_JACOBIAN.must("arguments by name", 0.05, tolerance=1e-8, relative=True)
def jacobian_names(rng):
    yield ask(x=rng.normal(size=2), f=Given("squares", (rng.normal(size=(2, 3)),)))


def jacobian_inputs(rng):
    for n in (6, 6):
        yield ask(
            Given("squares", (rng.integers(1, 4, size=(n, 2)).astype(float),)), rng.uniform(0.5, 3.5, size=n)
        )


NUMERICAL_JACOBIAN.leaves_inputs_alone(0.2, jacobian_inputs)


def central(f, x, step):
    return f(x + step) - f(x - step)


def forward(f, x, step):
    return f(x + step) - f(x)


def backward(f, x, step):
    return f(x) - f(x - step)


def as_columns(slopes):
    return np.stack(slopes, axis=1)


def as_rows(slopes):
    return np.stack(slopes, axis=0)


def wrong_jacobian(
    *,
    rise: Callable = central,
    run: float = 2.0,
    fixed: float | None = None,
    default: float = 1e-5,
    lay: Callable = as_columns,
) -> Callable:
    """Differences with slips: what is subtracted, by how many steps it is divided, which step, how it is laid out."""

    def wrong(f, x, h=default):
        h = fixed or h
        slopes = []
        for j in range(len(x)):
            step = np.zeros(len(x))
            step[j] = h
            slopes.append(rise(f, x, step) / (run * h))
        return lay(slopes)

    return wrong


FORWARD = {"rise": forward, "run": 1.0}
NUMERICAL_JACOBIAN.mistake(
    "transposed",
    "Your rows and columns have changed places: you return (in, out). The convention here is (out, in).",
    wrong_jacobian(lay=as_rows),
)
NUMERICAL_JACOBIAN.mistake(
    "forward-difference",
    "You step to one side only. The error then shrinks like h, not like h squared.",
    wrong_jacobian(**FORWARD),
)
NUMERICAL_JACOBIAN.mistake(
    "backward-difference",
    "You step down only. The error then shrinks like h, not like h squared.",
    wrong_jacobian(rise=backward, run=1.0),
)
NUMERICAL_JACOBIAN.mistake(
    "divides-by-h",
    "All your slopes are twice too steep. How far are the two points apart at which you called f?",
    wrong_jacobian(run=1.0),
)
NUMERICAL_JACOBIAN.mistake(
    "one-sided-over-2h",
    "You step to one side only, but divide by the distance of a step to both sides.",
    wrong_jacobian(rise=forward),
)
NUMERICAL_JACOBIAN.mistake(
    "not-divided",
    "You return differences of outputs. A slope is a difference divided by a distance.",
    lambda f, x, h=1e-5: wrong_jacobian(run=1.0)(f, x, h) * h,
)
NUMERICAL_JACOBIAN.mistake(
    "wrong-sign",
    "All your slopes have the opposite sign. Which of the two points comes first in the difference?",
    wrong_jacobian(run=-2.0),
)
NUMERICAL_JACOBIAN.mistake(
    "h-ignored",
    "You always use the step 0.00001. The caller may pass another h.",
    wrong_jacobian(fixed=1e-5),
)


@NUMERICAL_JACOBIAN.mistake(
    "all-inputs-at-once",
    "You move all inputs together. To know what one input does, only that one may move.",
)
def _(f, x, h=1e-5):
    slope = (f(x + h) - f(x - h)) / (2 * h)
    return np.stack([slope] * len(x), axis=1)


@NUMERICAL_JACOBIAN.mistake(
    "one-vector",
    "You return one slope for each output. There is one for each pair of an output and an input.",
)
def _(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


@NUMERICAL_JACOBIAN.mistake(
    "one-call-for-all-steps",
    "You pass all moved vectors to f at once, as rows. f takes one vector of shape (n,).",
)
def _(f, x, h=1e-5):
    steps = h * np.eye(len(x))
    return ((f(x + steps) - f(x - steps)) / (2 * h)).T


@NUMERICAL_JACOBIAN.mistake(
    "square-only",
    "You make room for as many outputs as there are inputs. The number of outputs is for f to say.",
)
def _(f, x, h=1e-5):
    result = np.zeros((len(x), len(x)))
    for j, column in enumerate(wrong_jacobian()(f, x, h).T):
        result[:, j] = column
    return result


@NUMERICAL_JACOBIAN.mistake(
    "moved-inputs-stay-moved",
    "Once an input was moved it stays moved, so later columns are measured at another point than x.",
)
def _(f, x, h=1e-5):
    z, slopes = np.array(x, dtype=float), []
    for j in range(len(x)):
        z[j] += h
        up = np.array(f(z))
        z[j] -= 2 * h
        slopes.append((up - np.array(f(z))) / (2 * h))
    return np.stack(slopes, axis=1)


@NUMERICAL_JACOBIAN.mistake(
    "integer-copy",
    "The copy of x that you move has the type of x. With whole numbers in, the small step is cut off.",
)
def _(f, x, h=1e-5):
    slopes = []
    for j in range(len(x)):
        up, down = x.copy(), x.copy()
        up[j] += h
        down[j] -= h
        slopes.append((f(up) - f(down)) / (2 * h))
    return np.stack(slopes, axis=1)


def stepping_in_place(x, j, h, calls):
    """The two values of f beside x, by moving x itself."""
    x[j] += h
    up = np.array(calls(x))
    x[j] -= 2 * h
    return up, np.array(calls(x))


@NUMERICAL_JACOBIAN.mistake(
    "x-is-not-put-back",
    "You move the caller's x and never put it back. Later columns, and the caller, see another point.",
)
def _(f, x, h=1e-5):
    slopes = []
    for j in range(len(x)):
        up, down = stepping_in_place(x, j, h, f)
        slopes.append((up - down) / (2 * h))
    return np.stack(slopes, axis=1)


@NUMERICAL_JACOBIAN.mistake(
    "x-is-put-back-with-rounding",
    "You move the caller's x and step back by adding h. Rounding does not give back exactly the old number, and whole numbers never move.",
)
def _(f, x, h=1e-5):
    slopes = []
    for j in range(len(x)):
        up, down = stepping_in_place(x, j, h, f)
        x[j] += h
        slopes.append((up - down) / (2 * h))
    return np.stack(slopes, axis=1)


@NUMERICAL_JACOBIAN.mistake(
    "keeps-what-f-returned",
    "You keep what f returned while you move its argument. f may return that very array, so your first value moves too.",
)
def _(f, x, h=1e-5):
    z, slopes = np.array(x, dtype=float), []
    for j in range(len(x)):
        z[j] = x[j] + h
        up = f(z)
        z[j] = x[j] - h
        slopes.append((up - f(z)) / (2 * h))
        z[j] = x[j]
    return np.stack(slopes, axis=1)


def moving_one_array(own_copy: bool, put_back: bool) -> Callable:
    """Steps taken inside one array, keeping what f returned without copying it."""

    def wrong(f, x, h=1e-5):
        z = np.array(x, dtype=float) if own_copy else x
        slopes = []
        for j in range(len(z)):
            z[j] += h
            up = f(z)
            z[j] -= 2 * h
            slopes.append((up - f(z)) / (2 * h))
            if put_back:
                z[j] += h
        return np.stack(slopes, axis=1)

    return wrong


NUMERICAL_JACOBIAN.pair("moved-inputs-stay-moved", "keeps-what-f-returned", moving_one_array(True, False))
NUMERICAL_JACOBIAN.pair("x-is-not-put-back", "keeps-what-f-returned", moving_one_array(False, False))
NUMERICAL_JACOBIAN.pair("x-is-put-back-with-rounding", "keeps-what-f-returned", moving_one_array(False, True))
NUMERICAL_JACOBIAN.pair("transposed", "forward-difference", wrong_jacobian(**FORWARD, lay=as_rows))
NUMERICAL_JACOBIAN.pair("transposed", "divides-by-h", wrong_jacobian(run=1.0, lay=as_rows))
NUMERICAL_JACOBIAN.pair("transposed", "one-sided-over-2h", wrong_jacobian(rise=forward, lay=as_rows))
NUMERICAL_JACOBIAN.pair("transposed", "h-ignored", wrong_jacobian(fixed=1e-5, lay=as_rows))
NUMERICAL_JACOBIAN.pair("forward-difference", "h-ignored", wrong_jacobian(**FORWARD, fixed=1e-5))


@NUMERICAL_JACOBIAN.mistake(
    "transposed+integer-copy",
    "Two things. You return (in, out), not (out, in). And the copy of x that you move has the type of x, so whole numbers never move.",
)
def _(f, x, h=1e-5):
    rows = []
    for j in range(len(x)):
        up, down = x.copy(), x.copy()
        up[j] += h
        down[j] -= h
        rows.append((f(up) - f(down)) / (2 * h))
    return np.array(rows)


@NUMERICAL_JACOBIAN.mistake(
    "forward-difference+integer-copy",
    "Two things. You step to one side only. And the copy of x that you move has the type of x, so whole numbers never move.",
)
def _(f, x, h=1e-5):
    slopes = []
    for j in range(len(x)):
        up = x.copy()
        up[j] += h
        slopes.append((f(up) - f(x)) / h)
    return np.stack(slopes, axis=1)


NUMERICAL_JACOBIAN.mistake(
    "step-too-small",
    "Your default step is so small that the difference drowns in rounding: of two nearly equal numbers only noise is left.",
    wrong_jacobian(default=1e-12),
    noisy=True,
)
NUMERICAL_JACOBIAN.mistake(
    "always-a-tiny-step",
    "You never use h, and your own step is so small that the difference drowns in rounding.",
    wrong_jacobian(fixed=1e-12),
    noisy=True,
)


@NUMERICAL_JACOBIAN.variant
def _(f, x, h=1e-5):
    """Filled column by column, moving a float copy in place, keeping copies of what f returned."""
    z = np.array(x, dtype=float)
    result = np.zeros((len(f(z)), len(z)))
    for j in range(len(z)):
        old = z[j]
        z[j] = old + h
        up = np.array(f(z))
        z[j] = old - h
        result[:, j] = (up - np.array(f(z))) / (2 * h)
        z[j] = old
    return result


@NUMERICAL_JACOBIAN.variant
def _(f, x, h=1e-5):
    """Rows of an identity matrix as directions, transposed at the end; the true distance as divisor."""
    x = np.asarray(x, dtype=float)
    rows = []
    for e in np.eye(x.size):
        up, down = x + h * e, x - h * e
        rows.append((np.array(f(up)) - np.array(f(down))) / (up - down).sum())
    print(len(rows), "columns")
    return np.array(rows).T


@NUMERICAL_JACOBIAN.variant
def _(f, x, h=1e-5):
    """Two central differences combined (Richardson): more accurate than one."""

    def slopes(step):
        return np.array([(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))]).T

    return (4 * slopes(h / 2) - slopes(h)) / 3


@NUMERICAL_JACOBIAN.variant
def _(f, x, h=1e-5):
    """Written with ones at one place and column_stack; x given as a list would do as well."""
    n, x = len(x), np.array([float(v) for v in x])
    return np.column_stack(
        [(f(x + h * (np.arange(n) == j)) - f(x - h * (np.arange(n) == j))) / h / 2 for j in range(n)]
    )


# ------------------------------------------------------------------------------------------ 1.3

RESIDUAL_VJP = Exercise(
    number="1.3",
    title="Backward through the add",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="This one line is the reason why a gradient can reach the bottom of a deep stack.",
    budget="One line is enough.",
    hints=(
        "x reaches y by two ways. What does each of them send back, and what happens to gradients where two ways meet?",
        "g is (d,), the branch sends back (d,), the result is (d,). f_vjp takes x first and g second.",
        "return what the straight way sends back, plus what the branch sends back for x and g",
    ),
)


@RESIDUAL_VJP.reference
def residual_vjp(
    g: np.ndarray, x: np.ndarray, f_vjp: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Send a gradient back through y = x + f(x).

    g       : (d,), how the loss changes with y
    x       : (d,), what went into the layer
    f_vjp   : f_vjp(x, g) returns J^T g, (d,), where J is the Jacobian (out, in) of f at x
    returns : (d,), how the loss changes with x

    f_vjp may return g itself. g and x are not changed. No norm here (neither pre-norm nor post-norm).

    >>> J = np.array([[0.0, 1.0], [-1.0, 1.0]])
    >>> residual_vjp(np.array([1.0, 1.0]), np.array([1.0, 2.0]), lambda x, g: J.T @ g)
    array([0., 3.])
    """
    return g + f_vjp(x, g)


TINY_FFN_JACOBIAN = np.array([[0.0, 1.0], [-1.0, 1.0]])  # at (1, 2)


@RESIDUAL_VJP.worked("the tiny FFN at (1, 2), g = (1, 1): (0, 3)", 0.2, decimals=3)
def _():
    yield ask(np.array([1.0, 1.0]), np.array([1.0, 2.0]), Given("pulls_back", (TINY_FFN_JACOBIAN,)))


@RESIDUAL_VJP.must("right values for branches with any Jacobian", 1.6)
def vjp_values(rng):
    for d in (1, 2, 3, 5):
        yield ask(rng.normal(size=d), rng.normal(size=d), Given("pulls_back", (rng.normal(size=(d, d)),)))


@RESIDUAL_VJP.must("right values where the Jacobian depends on x", 0.7)
def vjp_depends_on_x(rng):
    for d in (1, 3):
        yield ask(
            rng.normal(size=d), rng.normal(size=d), Given("squares_pull_back", (rng.normal(size=(d, d)),))
        )


@RESIDUAL_VJP.must("f_vjp is called once, with x and g", 0.5, view=View(with_calls))
def vjp_calls(rng):
    yield ask(rng.normal(size=2), rng.normal(size=2), Given("pulls_back", (rng.normal(size=(2, 2)),)))


@RESIDUAL_VJP.must("a branch that sends nothing back leaves g", 0.3, needs_values=True)
def vjp_nothing(rng):
    yield ask(rng.normal(size=3), rng.normal(size=3), Given("pulls_back", (np.zeros((3, 3)),)))


@RESIDUAL_VJP.must("integers work like floats", 0.2)
def vjp_integers(rng):
    d = 3
    yield ask(
        rng.integers(1, 9, size=d),
        rng.integers(1, 9, size=d),
        Given("pulls_back", (rng.normal(size=(d, d)),)),
    )
    yield ask(
        rng.normal(size=d), rng.normal(size=d), Given("constant_pull_back", (rng.integers(1, 9, size=d),))
    )


@RESIDUAL_VJP.must("arguments by name", 0.1)
def vjp_names(rng):
    yield ask(
        f_vjp=Given("squares_pull_back", (rng.normal(size=(2, 2)),)),
        x=rng.normal(size=2),
        g=rng.normal(size=2),
    )


def vjp_inputs(rng):
    yield ask(rng.normal(size=3), rng.normal(size=3), Given("pulls_back", (rng.normal(size=(3, 3)),)))
    yield ask(rng.normal(size=3), rng.normal(size=3), Given("gradient_itself"))


RESIDUAL_VJP.leaves_inputs_alone(0.4, vjp_inputs)


RESIDUAL_VJP.mistake(
    "identity-path-forgotten",
    "Only the branch sends something back. x also reaches y straight, past the branch.",
    lambda g, x, f_vjp: f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "branch-forgotten",
    "Only the straight path sends something back. x also reaches y through the branch.",
    lambda g, x, f_vjp: f_vjp(x, g) * 0 + g,
)
RESIDUAL_VJP.mistake(
    "adds-x",
    "You add x, as in the forward pass. Going backward, what travels is the gradient.",
    lambda g, x, f_vjp: x + f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "g-twice",
    "g is in your sum twice. Each path sends its part back once.",
    lambda g, x, f_vjp: g + f_vjp(x, g) + g,
)
RESIDUAL_VJP.mistake(
    "multiplies",
    "You multiply what the two paths send back. Where two paths meet, their gradients are added.",
    lambda g, x, f_vjp: g * f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "multiplies-g-with-one-plus",
    "You multiply g with 1 plus what the branch sends back. f_vjp has already multiplied with g.",
    lambda g, x, f_vjp: g * (1 + f_vjp(x, g)),
)
RESIDUAL_VJP.mistake(
    "adds-one",
    "You add the number 1 for the straight path. Its Jacobian is the identity matrix, so it sends back something else.",
    lambda g, x, f_vjp: 1 + f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "branch-reads-the-sum",
    "The branch gets a sum as its incoming gradient. The gradient that reaches the branch is g, as it comes from y.",
    lambda g, x, f_vjp: f_vjp(x, g + f_vjp(x, g)),
)
RESIDUAL_VJP.mistake(
    "branch-applied-to-the-sum",
    "The branch is used a second time, on a sum. Each path sends its part back once.",
    lambda g, x, f_vjp: g + f_vjp(x, g + f_vjp(x, g)),
)
RESIDUAL_VJP.mistake(
    "arguments-swapped",
    "You call f_vjp with its two arguments in the other order. What it needs first is the point at which f is linearised.",
    lambda g, x, f_vjp: g + f_vjp(g, x),
)
RESIDUAL_VJP.mistake(
    "upstream-ignored",
    "The branch gets ones instead of g. Then it answers for another loss.",
    lambda g, x, f_vjp: g + f_vjp(x, np.ones(len(g))),
)
RESIDUAL_VJP.mistake(
    "local-slopes-times-g",
    "You ask the branch for its slopes with ones and multiply with g afterwards. That is right only if output i depends on input i alone.",
    lambda g, x, f_vjp: g + g * f_vjp(x, np.ones(len(g))),
)
RESIDUAL_VJP.mistake(
    "at-another-point",
    "You linearise the branch at another point than x. What did the branch read in the forward pass?",
    lambda g, x, f_vjp: g + f_vjp(x + g, g),
)
RESIDUAL_VJP.mistake(
    "subtracts",
    "You take what the branch sends back away from g. Where two paths meet, their gradients are added.",
    lambda g, x, f_vjp: g - f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "averages",
    "You average the two paths. Where two paths meet, their gradients are added.",
    lambda g, x, f_vjp: (g + f_vjp(x, g)) / 2,
)
RESIDUAL_VJP.mistake(
    "times-x",
    "x multiplies the gradient of the straight path. Along that path y grows by one for each one that x grows by.",
    lambda g, x, f_vjp: g * x + f_vjp(x, g),
)
RESIDUAL_VJP.mistake(
    "calls-f-vjp-twice",
    "f_vjp is called more than once. Keep what it returned under a name.",
    lambda g, x, f_vjp: g + f_vjp(x, g) if np.size(f_vjp(x, g)) else g,
)


@RESIDUAL_VJP.mistake(
    "changes-g",
    "You add into the caller's g (+= works in place). The layer above still needs it.",
)
def _(g, x, f_vjp):
    g += f_vjp(x, g)
    return g


@RESIDUAL_VJP.mistake(
    "adds-into-the-branch",
    "You add into the array that f_vjp returned. It belongs to the branch: it may be g itself, or hold whole numbers.",
)
def _(g, x, f_vjp):
    back = f_vjp(x, g)
    back += g
    return back


@RESIDUAL_VJP.mistake(
    "integer-result",
    "Your result has the type of g (zeros_like, empty_like). With whole numbers in, every fraction is cut off.",
)
def _(g, x, f_vjp):
    result = np.zeros_like(g)
    result[:] = g + f_vjp(x, g)
    return result


RESIDUAL_VJP.pair("identity-path-forgotten", "arguments-swapped", lambda g, x, f_vjp: f_vjp(g, x))
RESIDUAL_VJP.pair(
    "identity-path-forgotten", "upstream-ignored", lambda g, x, f_vjp: f_vjp(x, np.ones(len(g)))
)
RESIDUAL_VJP.pair("adds-x", "arguments-swapped", lambda g, x, f_vjp: x + f_vjp(g, x))
RESIDUAL_VJP.pair("g-twice", "arguments-swapped", lambda g, x, f_vjp: 2 * g + f_vjp(g, x))
RESIDUAL_VJP.pair("adds-x", "upstream-ignored", lambda g, x, f_vjp: x + f_vjp(x, np.ones(len(g))))
RESIDUAL_VJP.pair("multiplies", "arguments-swapped", lambda g, x, f_vjp: g * f_vjp(g, x))
RESIDUAL_VJP.pair("adds-one", "arguments-swapped", lambda g, x, f_vjp: 1 + f_vjp(g, x))


@RESIDUAL_VJP.variant
def _(g, x, f_vjp):
    """In place, on a copy."""
    back = np.array(g, dtype=float)
    back += f_vjp(x, g)
    return back


@RESIDUAL_VJP.variant
def _(g, x, f_vjp):
    """Entry by entry, with a print."""
    branch = f_vjp(x, g)
    print("from the branch:", branch)
    return np.array([float(g[i]) + branch[i] for i in range(len(g))])


@RESIDUAL_VJP.variant
def _(g, x, f_vjp):
    """The identity path as the matrix that it is; the branch gets copies."""
    np.sqrt(-np.ones(1))
    return np.eye(len(g)).T @ g + np.asarray(f_vjp(np.copy(x), np.copy(g)))


# ------------------------------------------------------------------------------------------ 1.4

STACK_JACOBIAN = Exercise(
    number="1.4",
    title="A stack is a product",
    level="medium",
    difficulty=3,
    minutes=10,
    core=True,
    why="Whether a gradient vanishes or explodes is decided by this product, with the identity in it or without.",
    budget="Six lines are enough.",
    hints=(
        "A vector x first meets layer 1. On which side of the matrix of layer 2 must the matrix of layer 1 stand?",
        "Every factor is (d, d), the running product is (d, d) and starts as the identity. A residual layer's own Jacobian is not J.",
        "total: identity of d. for every J in order: step is J, with the identity added where residual; the new total is step times total.",
    ),
)


@STACK_JACOBIAN.reference
def stack_jacobian(Js: list[np.ndarray], residual: bool = True) -> np.ndarray:
    """The Jacobian of a whole stack, from the Jacobians of its branches.

    Js       : list of (d, d), (out, in), in the order in which data meets the layers; one or more
    residual : True for layers y = x + f(x), False for plain layers y = f(x); no norms
    returns  : (d, d), (out, in): its product with a small change of the stack's input is the change of its output

    The list and its arrays are not changed.

    >>> stack_jacobian([np.array([[0.5]])] * 6, residual=False)
    array([[0.015625]])
    >>> stack_jacobian([np.array([[0.5]])] * 6)
    array([[11.390625]])
    """
    identity = np.eye(len(Js[0]))
    total = identity
    for J in Js:
        step = identity + J if residual else J
        total = step @ total
    return total


@STACK_JACOBIAN.worked("six layers of slope 0.5: 0.015625 plain, 11.390625 residual", 0.2, decimals=6)
def _():
    yield ask([np.array([[0.5]])] * 6, residual=False)
    yield ask([np.array([[0.5]])] * 6, residual=True)


def layers(rng: np.random.Generator, n: int, d: int, scale: float = 0.8) -> list[np.ndarray]:
    """Jacobians of n branches that do not commute."""
    return [scale * rng.normal(size=(d, d)) for _ in range(n)]


@STACK_JACOBIAN.must("residual stacks: the same as layer after layer", 1.3)
def stack_residual(rng):
    for n, d in [(1, 2), (2, 2), (3, 2), (5, 3), (3, 3)]:
        yield ask(layers(rng, n, d), residual=True)


@STACK_JACOBIAN.must("plain stacks: the same as layer after layer", 1.2)
def stack_plain(rng):
    for n, d in [(1, 2), (2, 2), (4, 3), (3, 3)]:
        yield ask(layers(rng, n, d), residual=False)


@STACK_JACOBIAN.must("residual is the default, and may come by position", 0.4)
def stack_default(rng):
    yield ask(layers(rng, 2, 2))
    yield ask(layers(rng, 2, 2), False)


@STACK_JACOBIAN.must("layers with J = -I let nothing through", 0.3, needs_values=True)
def stack_vanishes(rng):
    first, last = layers(rng, 2, 2)
    yield ask([-np.eye(2)])
    yield ask([first, -np.eye(2), last])


@STACK_JACOBIAN.must("integers work like floats", 0.2)
def stack_integers(rng):
    yield ask([rng.integers(-3, 4, size=(2, 2)) for _ in range(3)])
    yield ask([rng.integers(-3, 4, size=(2, 2)), rng.normal(size=(2, 2))], residual=False)


def stack_inputs(rng):
    yield ask(layers(rng, 3, 2))
    yield ask(layers(rng, 2, 2), residual=False)


STACK_JACOBIAN.leaves_inputs_alone(0.4, stack_inputs)


def right_factor(J, residual):
    return np.eye(len(J)) + J if residual else J


def later_on_the_left(step, total):
    return step @ total


def later_on_the_right(step, total):
    return total @ step


def entry_by_entry(step, total):
    return step * total


def wrong_stack(
    *,
    factor: Callable = right_factor,
    join: Callable = later_on_the_left,
    start: Callable = lambda Js: np.eye(len(Js[0])),
    used: Callable = list,
    default: bool = True,
) -> Callable:
    """A stack's Jacobian with slips: the factor of a layer, how factors are joined, the start, which layers are used."""

    def wrong(Js, residual=default):
        total = start(Js)
        for J in used(Js):
            total = join(factor(J, residual), total)
        return total

    return wrong


def all_ones(Js):
    return np.ones((len(Js[0]), len(Js[0])))


def plus_ones(J, residual):
    return 1 + J if residual else J


def always_plus_identity(J, residual):
    return np.eye(len(J)) + J


def never_plus_identity(J, residual):
    return J


STACK_JACOBIAN.mistake(
    "wrong-order",
    "Your factors stand in the other order: in your product the data meets the last layer first.",
    wrong_stack(join=later_on_the_right),
)
STACK_JACOBIAN.mistake(
    "elementwise",
    "You multiply entry by entry (*). One layer after the other is a matrix product (@).",
    wrong_stack(join=entry_by_entry, start=all_ones),
)
STACK_JACOBIAN.mistake(
    "elementwise-from-identity",
    "You multiply entry by entry (*), so everything off the diagonal is lost. One layer after the other is a matrix product (@).",
    wrong_stack(join=entry_by_entry),
)
STACK_JACOBIAN.mistake(
    "adds-ones",
    "You add the number 1, which NumPy adds to every entry. The straight path's Jacobian is the identity matrix.",
    wrong_stack(factor=plus_ones),
)
STACK_JACOBIAN.mistake(
    "always-residual",
    "You add the identity for plain layers as well. What does residual=False say?",
    wrong_stack(factor=always_plus_identity),
)
STACK_JACOBIAN.mistake(
    "never-residual",
    "You never add the identity. What is the Jacobian of y = x + f(x)?",
    wrong_stack(factor=never_plus_identity),
)
STACK_JACOBIAN.mistake(
    "flag-upside-down",
    "You add the identity for plain layers and leave it out for residual ones.",
    wrong_stack(factor=lambda J, residual: right_factor(J, not residual)),
)
STACK_JACOBIAN.mistake(
    "plain-by-default",
    "Your default is a plain stack. Keep the signature as it is given.",
    wrong_stack(default=False),
)
STACK_JACOBIAN.mistake(
    "sum-instead-of-product",
    "You add the layers' Jacobians up. One layer after the other is a product.",
    lambda Js, residual=True: (np.eye(len(Js[0])) if residual else 0) + sum(Js),
)
STACK_JACOBIAN.mistake(
    "one-skip-around-the-stack",
    "Your identity goes around the whole stack, once. Every layer has a residual connection of its own.",
    lambda Js, residual=True: wrong_stack()(Js, False) + (np.eye(len(Js[0])) if residual else 0),
)
STACK_JACOBIAN.mistake(
    "last-layer-missing",
    "Your product stops one layer too early.",
    wrong_stack(used=lambda Js: Js[:-1]),
)
STACK_JACOBIAN.mistake(
    "first-layer-missing",
    "Your product starts one layer too late.",
    wrong_stack(used=lambda Js: Js[1:]),
)
STACK_JACOBIAN.mistake(
    "last-layer-only",
    "You return the last layer's Jacobian. The running product gets lost on the way.",
    wrong_stack(join=lambda step, total: step),
)
STACK_JACOBIAN.mistake(
    "first-layer-twice",
    "The first layer is in your product twice: as the start and again in the loop.",
    wrong_stack(start=lambda Js: Js[0]),
)
STACK_JACOBIAN.mistake(
    "first-layer-without-identity",
    "The first layer enters your product as J. It is a residual layer like the others.",
    wrong_stack(start=lambda Js: Js[0], used=lambda Js: Js[1:]),
)
STACK_JACOBIAN.mistake(
    "same-layer-every-time",
    "You use the first layer every time. Each layer has a Jacobian of its own.",
    wrong_stack(used=lambda Js: [Js[0]] * len(Js)),
)
STACK_JACOBIAN.mistake(
    "starts-at-zero",
    "Your product starts at zero, and stays there. With what does a product start?",
    wrong_stack(start=lambda Js: np.zeros_like(Js[0], dtype=float)),
)
STACK_JACOBIAN.mistake(
    "transposed",
    "You return the transpose. That is the matrix that sends gradients back; the convention here is (out, in).",
    lambda Js, residual=True: wrong_stack()(Js, residual).T,
)
STACK_JACOBIAN.mistake(
    "subtracts",
    "Your layers are identity minus J. A residual layer adds its branch.",
    wrong_stack(factor=lambda J, residual: np.eye(len(J)) - J if residual else J),
)
STACK_JACOBIAN.mistake(
    "identity-of-the-wrong-size",
    "Your identity matrix has as many rows as there are layers. It belongs to the d numbers of a token.",
    lambda Js, residual=True: wrong_stack(
        factor=lambda J, residual: np.eye(len(Js)) + J if residual else J,
    )(Js, residual),
)


@STACK_JACOBIAN.mistake(
    "changes-the-layers",
    "You add the identity into the caller's arrays (+= works in place). Called again, your function finds other layers.",
)
def _(Js, residual=True):
    total = np.eye(len(Js[0]))
    for J in Js:
        if residual:
            J += np.eye(len(J), dtype=J.dtype)
        total = J @ total
    return total


@STACK_JACOBIAN.mistake(
    "adds-the-identity-in-place",
    "You add the identity into the caller's arrays (J += np.eye(d) works in place). Called again, your function finds "
    "other layers; arrays of whole numbers refuse it.",
)
def _(Js, residual=True):
    total = np.eye(len(Js[0]))
    for J in Js:
        if residual:
            J += np.eye(len(J))
        total = J @ total
    return total


@STACK_JACOBIAN.mistake(
    "changes-the-first-layer",
    "Your product starts as the caller's first array, and the identity is added into that (+= works in place).",
)
def _(Js, residual=True):
    total = Js[0]
    if residual:
        total += np.eye(len(total))
    return wrong_stack(start=lambda Js: total, used=lambda Js: Js[1:])(Js, residual)


@STACK_JACOBIAN.mistake(
    "integer-result",
    "Your running product has the type of the first layer. With whole numbers in, later fractions are cut off.",
)
def _(Js, residual=True):
    total = np.zeros_like(Js[0])
    total[...] = np.eye(len(Js[0]))
    for J in Js:
        total[...] = right_factor(J, residual) @ total
    return total


STACK_JACOBIAN.pair("wrong-order", "adds-ones", wrong_stack(join=later_on_the_right, factor=plus_ones))
STACK_JACOBIAN.pair(
    "wrong-order", "always-residual", wrong_stack(join=later_on_the_right, factor=always_plus_identity)
)
STACK_JACOBIAN.pair(
    "wrong-order", "never-residual", wrong_stack(join=later_on_the_right, factor=never_plus_identity)
)
STACK_JACOBIAN.pair("wrong-order", "plain-by-default", wrong_stack(join=later_on_the_right, default=False))
STACK_JACOBIAN.pair(
    "adds-ones", "elementwise", wrong_stack(factor=plus_ones, join=entry_by_entry, start=all_ones)
)
STACK_JACOBIAN.pair(
    "wrong-order",
    "one-skip-around-the-stack",
    lambda Js, residual=True: (
        wrong_stack(join=later_on_the_right)(Js, False) + (np.eye(len(Js[0])) if residual else 0)
    ),
)
STACK_JACOBIAN.pair(
    "wrong-order", "last-layer-missing", wrong_stack(join=later_on_the_right, used=lambda Js: Js[:-1])
)
STACK_JACOBIAN.pair(
    "wrong-order",
    "first-layer-without-identity",
    wrong_stack(join=later_on_the_right, start=lambda Js: Js[0], used=lambda Js: Js[1:]),
)
STACK_JACOBIAN.pair(
    "adds-ones",
    "first-layer-without-identity",
    wrong_stack(factor=plus_ones, start=lambda Js: Js[0], used=lambda Js: Js[1:]),
)


@STACK_JACOBIAN.variant
def _(Js, residual=True):
    """Column by column: every unit vector walks through the layers."""
    columns = []
    for v in np.eye(len(Js[0])):
        for J in Js:
            v = v + J @ v if residual else J @ v
        columns.append(v)
    return np.array(columns).T


@STACK_JACOBIAN.variant
def _(Js, residual=True):
    """From the last layer backward, the running product on the left; prints and a warning."""
    n, d = len(Js), len(Js[0])
    print(n, "layers")
    np.log(np.zeros(1))
    skip = np.eye(d) * bool(residual)
    total = np.eye(d)
    while n:
        n -= 1
        total = total @ (skip + Js[n])
    return total


@STACK_JACOBIAN.variant
def _(Js, residual=True):
    """functools.reduce over einsum products."""
    from functools import reduce

    factors = [np.asarray(J, dtype=float) + (np.identity(J.shape[0]) if residual else 0.0) for J in Js]
    return reduce(lambda total, step: np.einsum("ij,jk->ik", step, total), factors)


@STACK_JACOBIAN.variant
def _(Js, residual=True):
    """Linear layers run forward on rows, transposed at the end."""
    rows = np.eye(Js[0].shape[1])
    for J in Js:
        rows = rows @ J.T + rows if residual else rows @ J.T
    return rows.T


# ------------------------------------------------------------------------------------------ 1.5

EDIT_REPORT = Exercise(
    number="1.5",
    title="Edit or rewrite?",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="You need two numbers per token to say whether a layer edits its input or replaces it; you will use them on a trained model.",
    budget="Four lines are enough.",
    hints=(
        "Which axis goes away when you measure the length of one token, and which ones stay?",
        "x and y are (..., d). Lengths of y - x, x and y are (...), the dot product of x and y is (...); so are both results.",
        "length: root of the sum of squares along the last axis. relative change: length of the difference over length of x. "
        "cosine: sum of the products along the last axis, over length of x times length of y. return both, in this order.",
    ),
)
EDIT_PARTS = ("relative change", "cosine")


@EDIT_REPORT.reference
def edit_report(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measure, token by token, how far y has moved away from x.

    x       : (..., d), the tokens before, none of them zero
    y       : (..., d), the same tokens after
    returns : (relative change, cosine), both (...)

    relative change : length of y - x, divided by the length of x
    cosine          : of the angle between x and y

    Add nothing to the denominators.

    >>> change, cosine = edit_report(np.array([2.0, 0.0]), np.array([2.5, -1.0]))
    >>> print(f"{change:.6f} {cosine:.6f}")
    0.559017 0.928477
    """
    length_x = np.linalg.norm(x, axis=-1)
    length_y = np.linalg.norm(y, axis=-1)
    change = np.linalg.norm(y - x, axis=-1) / length_x
    cosine = (x * y).sum(axis=-1) / (length_x * length_y)
    return change, cosine


def reported(question: Question, *names: str) -> Question:
    """The question, looked at for some of the two results."""
    return replace(question, about={"parts": EDIT_PARTS, "only": names or EDIT_PARTS})


@EDIT_REPORT.worked("(2, 0) becomes (2.5, -1): 0.559017 and 0.928477", 0.2, decimals=6, view=View(parts))
def _():
    yield reported(ask(np.array([2.0, 0.0]), np.array([2.5, -1.0])))


def tokens_before_and_after(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of order one, and the same after an edit."""
    x = rng.normal(size=shape) + 0.5
    return x, 1.3 * x + rng.normal(size=shape)


@EDIT_REPORT.must("the relative change of each token", 1.1, view=View(parts))
def edit_change(rng):
    for shape in [(2,), (2, 3), (3, 3)]:
        yield reported(ask(*tokens_before_and_after(rng, *shape)), "relative change")


@EDIT_REPORT.must("the cosine of each token", 1.1, view=View(parts))
def edit_cosine(rng):
    for shape in [(2,), (2, 3), (3, 3)]:
        yield reported(ask(*tokens_before_and_after(rng, *shape)), "cosine")
    x, y = tokens_before_and_after(rng, 2, 3)
    yield reported(ask(x, 0.1 * y - 2 * x), "cosine")  # tokens that turned round


@EDIT_REPORT.must("batches, of any number of axes", 0.5, view=View(parts))
def edit_batches(rng):
    for shape in [(2, 3, 4), (3, 3, 3), (2, 1, 2, 3)]:
        yield reported(ask(*tokens_before_and_after(rng, *shape)))


@EDIT_REPORT.must("small and large tokens, nothing added to a denominator", 0.5, view=View(parts))
def edit_scale(rng):
    for scale in (0.1, 1e4):
        x, y = tokens_before_and_after(rng, 2, 3)
        yield reported(ask(scale * x, scale * y))
    x, y = tokens_before_and_after(rng, 2, 3)
    yield reported(ask(x, 20 * y))


@EDIT_REPORT.must("integers work like floats", 0.2, view=View(parts))
def edit_integers(rng):
    yield reported(ask(rng.integers(1, 9, size=(2, 3)), rng.integers(1, 9, size=(2, 3))))


@EDIT_REPORT.must("arguments by name", 0.1, view=View(parts))
def edit_names(rng):
    x, y = tokens_before_and_after(rng, 2, 3)
    yield reported(ask(y=y, x=x))


def edit_inputs(rng):
    yield ask(*tokens_before_and_after(rng, 2, 3))


EDIT_REPORT.leaves_inputs_alone(0.3, edit_inputs)


def length(v: np.ndarray) -> np.ndarray:
    return np.sqrt((v * v).sum(axis=-1))


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=-1)


def right_change(x, y):
    return length(y - x) / length(x)


def right_cosine(x, y):
    return dot(x, y) / (length(x) * length(y))


def wrong_report(change: Callable = right_change, cosine: Callable = right_cosine) -> Callable:
    """A report with another formula for one of its two numbers."""
    return lambda x, y: (change(x, y), cosine(x, y))


def along(axis: int | tuple | None, keepdims: bool = False) -> Callable:
    """A report whose sums run along another axis."""

    def wrong(x, y):
        def added(v):
            return v.sum(axis=axis, keepdims=keepdims)

        change = np.sqrt(added((y - x) ** 2) / added(x**2))
        return change, added(x * y) / np.sqrt(added(x**2) * added(y**2))

    return wrong


def length_ratio(x, y):
    return length(y) / length(x)


def cosine_with_change(x, y):
    return right_cosine(x, y - x)


def plain_dot(x, y):
    return dot(x, y)


EDIT_REPORT.mistake(
    "one-number",
    "You measure the whole array at once. Each token has a relative change and a cosine of its own.",
    along(None),
)
EDIT_REPORT.mistake(
    "first-axis",
    "You add along the first axis: over tokens or sentences. The numbers of one token lie along the last axis.",
    along(0),
)
EDIT_REPORT.mistake(
    "axis-1",
    "You add along axis 1. That is the last axis only if x has two axes; a single token and a batch need another count.",
    along(1),
)
EDIT_REPORT.mistake(
    "per-sentence",
    "The tokens of a sentence share their two numbers. Each token has its own.",
    lambda x, y: along(tuple(range(-min(2, x.ndim), 0)))(x, y),
)
EDIT_REPORT.mistake(
    "axis-kept",
    "Your results keep an axis of length 1. There is one number per token, so the last axis goes away.",
    along(-1, True),
)
EDIT_REPORT.mistake(
    "averaged-over-tokens",
    "You average over the tokens at the end. Each token keeps its own two numbers.",
    wrong_report(lambda x, y: right_change(x, y).mean(), lambda x, y: right_cosine(x, y).mean()),
)
EDIT_REPORT.mistake(
    "cosine-with-the-change",
    "Your cosine is that of x and the change. It must compare the token before with the token after.",
    wrong_report(cosine=cosine_with_change),
)
EDIT_REPORT.mistake(
    "cosine-of-y-and-the-change",
    "Your cosine is that of y and the change. It must compare the token before with the token after.",
    wrong_report(cosine=lambda x, y: right_cosine(y, y - x)),
)
EDIT_REPORT.mistake(
    "dot-not-divided",
    "Your cosine is the bare dot product. It grows with the lengths of both tokens; an angle does not.",
    wrong_report(cosine=plain_dot),
)
EDIT_REPORT.mistake(
    "dot-divided-by-one-length",
    "You divide the dot product by the length of x only. It grows with both lengths.",
    wrong_report(cosine=lambda x, y: dot(x, y) / length(x)),
)
EDIT_REPORT.mistake(
    "dot-divided-by-length-x-squared",
    "You divide the dot product by the length of x twice. It grows with the lengths of x and of y.",
    wrong_report(cosine=lambda x, y: dot(x, y) / dot(x, x)),
)
EDIT_REPORT.mistake(
    "dot-divided-by-squares",
    "You divide the dot product by the squared lengths: the root is missing.",
    wrong_report(cosine=lambda x, y: dot(x, y) / (dot(x, x) * dot(y, y))),
)
EDIT_REPORT.mistake(
    "angle",
    "You return the angle. Its cosine is asked for.",
    wrong_report(cosine=lambda x, y: np.arccos(np.clip(right_cosine(x, y), -1, 1))),
)
EDIT_REPORT.mistake(
    "angle-in-degrees",
    "You return the angle, in degrees. Its cosine is asked for.",
    wrong_report(cosine=lambda x, y: np.degrees(np.arccos(np.clip(right_cosine(x, y), -1, 1)))),
)
EDIT_REPORT.mistake(
    "cosine-distance",
    "You return 1 minus the cosine. The cosine itself is asked for.",
    wrong_report(cosine=lambda x, y: 1 - right_cosine(x, y)),
)
EDIT_REPORT.mistake(
    "absolute-cosine",
    "You drop the sign of the cosine. A token that turned round has a negative one.",
    wrong_report(cosine=lambda x, y: np.abs(right_cosine(x, y))),
)
EDIT_REPORT.mistake(
    "centred-cosine",
    "You take the mean away first. That is a correlation; the cosine uses the tokens as they are.",
    wrong_report(
        cosine=lambda x, y: right_cosine(
            x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
        )
    ),
)
EDIT_REPORT.mistake(
    "ratio-of-lengths",
    "You compare the lengths of y and x. Two tokens of one length may still be far apart: measure the length of the change.",
    wrong_report(length_ratio),
)
EDIT_REPORT.mistake(
    "difference-of-lengths",
    "You take the difference of the two lengths. Measure the length of the difference.",
    wrong_report(lambda x, y: (length(y) - length(x)) / length(x)),
)
EDIT_REPORT.mistake(
    "absolute-difference-of-lengths",
    "You take the difference of the two lengths and drop its sign. Measure the length of the difference.",
    wrong_report(lambda x, y: np.abs(length(y) - length(x)) / length(x)),
)
EDIT_REPORT.mistake(
    "relative-to-y",
    "You divide the change by the length of y. It is measured against the token before.",
    wrong_report(lambda x, y: length(y - x) / length(y)),
)
EDIT_REPORT.mistake(
    "not-relative",
    "You return the length of the change itself. It must be divided by a length.",
    wrong_report(lambda x, y: length(y - x)),
)
EDIT_REPORT.mistake(
    "change-squared",
    "Your relative change is a ratio of squares: the root is missing.",
    wrong_report(lambda x, y: right_change(x, y) ** 2),
)
EDIT_REPORT.mistake(
    "change-of-absolute-values",
    "You add up absolute values. A length is the root of the sum of squares.",
    wrong_report(lambda x, y: np.abs(y - x).sum(axis=-1) / np.abs(x).sum(axis=-1)),
)
EDIT_REPORT.mistake(
    "mean-of-entry-ratios",
    "You divide entry by entry and average. One small entry of x then decides everything; divide one length by another.",
    wrong_report(lambda x, y: (np.abs(y - x) / np.abs(x)).mean(axis=-1)),
)
EDIT_REPORT.mistake(
    "results-swapped",
    "Your two results have changed places: first the relative change, then the cosine.",
    lambda x, y: (right_cosine(x, y), right_change(x, y)),
)
for name, guard in (("1e-6", 1e-6), ("1e-8", 1e-8)):
    EDIT_REPORT.mistake(
        f"guard-{name}",
        f"You add {name} to the denominators. That moves every result a little; no token is zero here.",
        wrong_report(
            lambda x, y, guard=guard: length(y - x) / (length(x) + guard),
            lambda x, y, guard=guard: dot(x, y) / (length(x) * length(y) + guard),
        ),
    )


@EDIT_REPORT.mistake(
    "changes-y",
    "You compute the change inside the caller's y (-= works in place).",
)
def _(x, y):
    cosine = right_cosine(x, y)
    y -= x
    return length(y) / length(x), cosine


@EDIT_REPORT.mistake(
    "changes-y-first",
    "You compute the change inside the caller's y (-= works in place), and then use that y for the cosine.",
)
def _(x, y):
    y -= x
    return length(y) / length(x), right_cosine(x, y)


EDIT_REPORT.pair("ratio-of-lengths", "cosine-with-the-change", wrong_report(length_ratio, cosine_with_change))
EDIT_REPORT.pair("ratio-of-lengths", "dot-not-divided", wrong_report(length_ratio, plain_dot))
EDIT_REPORT.pair("not-relative", "dot-not-divided", wrong_report(lambda x, y: length(y - x), plain_dot))
EDIT_REPORT.pair(
    "not-relative", "cosine-with-the-change", wrong_report(lambda x, y: length(y - x), cosine_with_change)
)
EDIT_REPORT.pair(
    "relative-to-y", "dot-not-divided", wrong_report(lambda x, y: length(y - x) / length(y), plain_dot)
)


@EDIT_REPORT.mistake(
    "change-of-the-whole-array",
    "Your relative change is one number for the whole array (np.linalg.norm without an axis). Each token has its own.",
)
def _(x, y):
    return np.linalg.norm(y - x) / np.linalg.norm(x), right_cosine(x, y)


@EDIT_REPORT.mistake(
    "cosine-of-the-whole-array",
    "Your cosine is one number for the whole array. Each token has its own.",
)
def _(x, y):
    return right_change(x, y), (x * y).sum() / (np.linalg.norm(x) * np.linalg.norm(y))


@EDIT_REPORT.mistake(
    "divided-by-whole-lengths",
    "Your dot products are per token, but the lengths they are divided by are those of the whole array.",
)
def _(x, y):
    return (
        length(y - x) / np.linalg.norm(x),
        dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)),
    )


@EDIT_REPORT.variant
def _(x, y):
    """A loop over the tokens with Python's own arithmetic; a list instead of a tuple."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    change, cosine = np.empty(x.shape[:-1]), np.empty(x.shape[:-1])
    for i in np.ndindex(x.shape[:-1]):
        a, b = x[i].tolist(), y[i].tolist()
        size = sum(p * p for p in a) ** 0.5
        change[i] = sum((q - p) ** 2 for p, q in zip(a, b)) ** 0.5 / size
        cosine[i] = sum(p * q for p, q in zip(a, b)) / size / sum(q * q for q in b) ** 0.5
    return [change, cosine]


@EDIT_REPORT.variant
def _(x, y):
    """einsum, stacked in one array; the smallest guard that is allowed."""
    x, y = 1.0 * x, 1.0 * y
    xx, yy, xy = (np.einsum("...i,...i->...", *pair) for pair in ((x, x), (y, y), (x, y)))
    d = y - x
    return np.stack([(np.einsum("...i,...i->...", d, d) / xx) ** 0.5, xy / (np.sqrt(xx * yy) + 1e-12)])


@EDIT_REPORT.variant
def _(x, y):
    """Unit vectors first, their dot product as a matrix product; prints and a warning."""
    unit_x = x / np.linalg.norm(x, axis=-1)[..., None]
    unit_y = y / np.linalg.norm(y, axis=-1, keepdims=True)
    np.sqrt(-np.ones(1))
    cosine = (unit_x[..., None, :] @ unit_y[..., :, None])[..., 0, 0]
    print(cosine)
    return np.linalg.norm(x - y, axis=-1) / np.linalg.norm(x, axis=-1), cosine


# ------------------------------------------------------------------------------------------ 1.6

PATH_LENGTH_SHARE = Exercise(
    number="1.6",
    title="How long are the paths?",
    level="hard",
    difficulty=4,
    minutes=20,
    core=False,
    why="It shows why most of the gradient of a deep stack comes through paths that are much shorter than the stack.",
    budget="Six lines are enough.",
    hints=(
        "At every layer a path either goes around the branch or through it. If you know the shares for N - 1 layers, where do the two "
        "ways of one more layer put them?",
        "The shares of an empty stack are (1,): one path of length 0. Every layer makes the array one entry longer. After N layers it is "
        "(N + 1,), and all of it adds up to one.",
        "share: an array with a single one. N times: around is share with a zero at the end; through is share with a zero in front, times "
        "r; the new share is their sum divided by (1 + r). Neither large nor tiny numbers ever appear.",
    ),
)


@PATH_LENGTH_SHARE.reference
def path_length_share(N: int, r: float) -> np.ndarray:
    """The share of the paths of each length in the gradient of N residual layers.

    N       : number of layers, 1 or more
    r       : gain of one branch, 0 or more: a path through k branches weighs r^k
    returns : (N + 1,): entry k is C(N, k) r^k / (1 + r)^N, the share of all paths through k branches

    It must not overflow for thousands of layers.

    >>> (path_length_share(6, 1.0) * 64).round(6)
    array([ 1.,  6., 15., 20., 15.,  6.,  1.])
    """
    share = np.ones(1)
    for _ in range(N):
        around = np.append(share, 0.0)
        through = r * np.append(0.0, share)
        share = (around + through) / (1 + r)
    return share


@PATH_LENGTH_SHARE.worked("six layers of gain 1: 1 6 15 20 15 6 1 over 64", 0.3, decimals=6)
def _():
    yield ask(6, 1.0)


@PATH_LENGTH_SHARE.must("right shares for small stacks of any gain", 2.5)
def share_small(rng):
    for N in (1, 2, 3, 5, 8):
        yield ask(N, float(rng.uniform(0.1, 0.9)))
        yield ask(N, float(rng.uniform(1.5, 4.0)))


@PATH_LENGTH_SHARE.must("54 layers, as in a ResNet of 110", 1.0)
def share_resnet(rng):
    yield ask(54, 0.25)
    yield ask(54, float(rng.uniform(0.5, 2.0)))


@PATH_LENGTH_SHARE.must("branches of gain 0 leave one path", 0.6)
def share_zero(rng):
    for N in (2, int(rng.integers(3, 9))):
        yield ask(N, 0.0)


@PATH_LENGTH_SHARE.must("r may be a whole number, N and r may come by name", 0.35)
def share_whole(rng):
    yield ask(4, 3)
    yield ask(r=2.0, N=int(rng.integers(3, 7)))


@PATH_LENGTH_SHARE.must("3000 layers without overflow", 1.25, view=View(thinned), chaotic=True)
def share_deep(rng):
    for r in (0.25, float(rng.uniform(1, 4))):
        yield replace(ask(3000, r), seconds=20.0)


def weights(N: int, r: float) -> np.ndarray:
    """C(N, k) r^k as a float array; 0^0 is 1. Overflows for deep stacks."""
    return np.array([float(comb(N, k)) * float(r) ** k for k in range(N + 1)])


def wrong_share(weigh: Callable = weights, total: Callable = lambda N, r: (1 + r) ** N) -> Callable:
    """Shares with slips, written the direct way."""
    return lambda N, r: weigh(N, r) / total(N, r)


def binomials(N, r):
    return np.array([float(comb(N, k)) for k in range(N + 1)])


PATH_LENGTH_SHARE.mistake(
    "gain-ignored",
    "You count the paths and leave out what they weigh: r does not change your shares.",
    wrong_share(binomials, lambda N, r: 2.0**N),
)
PATH_LENGTH_SHARE.mistake(
    "gain-as-probability",
    "You take r for the probability of going through a branch. It is a weight next to the weight 1 of going around.",
    lambda N, r: np.array([float(comb(N, k)) * r**k * (1.0 - r) ** (N - k) for k in range(N + 1)]),
)
PATH_LENGTH_SHARE.mistake(
    "not-normalised",
    "You return weights. Shares are weights divided by the weight of all paths.",
    wrong_share(total=lambda N, r: 1.0),
)
PATH_LENGTH_SHARE.mistake(
    "divided-by-the-number-of-paths",
    "You divide by the number of paths. Divide by what all of them weigh together.",
    wrong_share(total=lambda N, r: 2.0**N),
)
PATH_LENGTH_SHARE.mistake(
    "divided-by-one-layer",
    "You divide by the weight of one layer, 1 + r. There are N layers.",
    wrong_share(total=lambda N, r: 1 + r),
)
PATH_LENGTH_SHARE.mistake(
    "power-k-below",
    "You divide each weight by a power of (1 + r) that depends on k. All shares have the same denominator.",
    wrong_share(total=lambda N, r: (1.0 + r) ** np.arange(N + 1)),
)
PATH_LENGTH_SHARE.mistake(
    "divided-by-the-largest",
    "Your largest share is 1. Shares add up to 1.",
    lambda N, r: weights(N, r) / weights(N, r).max(),
)
PATH_LENGTH_SHARE.mistake(
    "binomials-missing",
    "You weigh one path of each length. There are many paths of one length, and more of middle lengths than of extreme ones.",
    lambda N, r: (p := float(r) ** np.arange(N + 1)) / p.sum(),
)
PATH_LENGTH_SHARE.mistake(
    "ordered-choices",
    "You count orders of the branches too. A path meets its branches in the order of the stack: count sets, not sequences.",
    lambda N, r: (
        (
            p := np.array(
                [float(comb(N, k)) * np.prod(np.arange(1.0, k + 1)) * float(r) ** k for k in range(N + 1)]
            )
        )
        / p.sum()
    ),
)
PATH_LENGTH_SHARE.mistake(
    "reversed",
    "Your row runs the other way: its first entry is the share of the longest path.",
    lambda N, r: wrong_share()(N, r)[::-1],
)
PATH_LENGTH_SHARE.mistake(
    "longest-path-missing",
    "Your row has N entries. Lengths run from 0 to N.",
    lambda N, r: wrong_share()(N, r)[:-1],
)
PATH_LENGTH_SHARE.mistake(
    "shortest-path-missing",
    "Your row starts at length 1. The path around all branches counts too.",
    lambda N, r: wrong_share()(N, r)[1:],
)
PATH_LENGTH_SHARE.mistake(
    "cumulated",
    "Your entries add up: entry k holds all paths up to length k.",
    lambda N, r: np.cumsum(wrong_share()(N, r)),
)
PATH_LENGTH_SHARE.mistake(
    "one-layer-less",
    "Your stack has one layer less than N.",
    lambda N, r: np.append(wrong_share()(N - 1, r), 0.0),
)
PATH_LENGTH_SHARE.mistake(
    "weight-without-power",
    "Each length weighs r once, however many branches the path goes through. Every branch on the path multiplies.",
    lambda N, r: (
        (p := np.array([comb(N, k) * (float(r) if k else 1.0) for k in range(N + 1)], dtype=float)) / p.sum()
    ),
)


def by_logarithms(N: int, r: float) -> np.ndarray:
    """The shares through logarithms: no overflow, but the logarithm of r must exist."""
    k = np.arange(N + 1)
    lg = np.array([lgamma(i + 1) for i in range(N + 1)])
    return np.exp(lg[N] - lg - lg[::-1] + k * (log(r) if r > 0 else -np.inf) - N * log1p(r))


@PATH_LENGTH_SHARE.mistake(
    "starts-from-zero",
    "Your first share, 1 over (1 + r)^N, is too small for a float and becomes 0, and every later share is a multiple of it.",
)
def _(N, r):
    shares = np.zeros(N + 1)
    shares[0] = (1.0 + r) ** -float(N)
    for k in range(N):
        shares[k + 1] = shares[k] * r * (N - k) / (k + 1)
    return shares


PATH_LENGTH_SHARE.mistake(
    "gain-0-fails",
    "You take the logarithm of r. For r = 0 there is none: one path is left, and its share is 1.",
    by_logarithms,
)
PATH_LENGTH_SHARE.mistake(
    "gain-0-raises",
    "For r = 0 your function stops or divides by zero. One path is left then, and its share is 1.",
    lambda N, r: by_logarithms(N, 1 / (1 / r)),
)
PATH_LENGTH_SHARE.mistake(
    "bell-curve",
    "You draw a bell curve with the right middle and width. It comes close, but these shares are exact.",
    lambda N, r: (
        (p := np.exp(-((np.arange(N + 1) - N * r / (1 + r)) ** 2) / max(2 * N * r / (1 + r) ** 2, 1e-12)))
        / p.sum()
    ),
)
PATH_LENGTH_SHARE.mistake(
    "overflows",
    "For deep stacks your numbers leave the range of floats: C(N, k) and (1 + r)^N become huge, r^k tiny. Keep every step of order one.",
    wrong_share(),
)
PATH_LENGTH_SHARE.pair("gain-ignored", "not-normalised", wrong_share(binomials, lambda N, r: 1.0))
PATH_LENGTH_SHARE.pair(
    "not-normalised", "longest-path-missing", lambda N, r: wrong_share(total=lambda N, r: 1.0)(N, r)[:-1]
)
PATH_LENGTH_SHARE.pair(
    "gain-ignored",
    "longest-path-missing",
    lambda N, r: wrong_share(binomials, lambda N, r: 2.0**N)(N, r)[:-1],
)
PATH_LENGTH_SHARE.pair(
    "gain-as-probability",
    "longest-path-missing",
    lambda N, r: np.array([float(comb(N, k)) * r**k * (1.0 - r) ** (N - k) for k in range(N)]),
)
PATH_LENGTH_SHARE.pair("gain-ignored", "divided-by-one-layer", wrong_share(binomials, lambda N, r: 1 + r))


@PATH_LENGTH_SHARE.variant
def _(N, r):
    """Logarithms, with gain 0 looked after."""
    if r == 0:
        return np.eye(N + 1)[0]
    return by_logarithms(N, r)


@PATH_LENGTH_SHARE.variant
def _(N, r):
    """Exact fractions of whole numbers: slow, and never out of range."""
    from fractions import Fraction

    exact = Fraction(r)
    up, down = exact.numerator, exact.denominator
    total, weight, shares = (up + down) ** N, down**N, []
    for k in range(N + 1):
        shares.append(weight / total)  # Python divides whole numbers of any size
        weight = weight * (N - k) * up // ((k + 1) * down)
    return shares


@PATH_LENGTH_SHARE.variant
def _(N, r):
    """numpy.convolve, one layer at a time; prints and a warning."""
    share = np.array([1.0])
    np.log(np.zeros(1))
    for _ in range(N):
        share = np.convolve(share, [1 / (1 + r), r / (1 + r)])
    print(share[:3])
    return share


@PATH_LENGTH_SHARE.variant
def _(N, r):
    """From the middle outward: ratios of neighbours, divided by their sum at the end."""
    k = np.arange(1, N + 1)
    with np.errstate(divide="ignore"):
        logs = np.append(0.0, np.cumsum(np.log((N - k + 1) / k * r)))
    p = np.exp(logs - logs.max())
    return p / p.sum()


# ------------------------------------------------------------------------------------------ 1.7

PATH_CONTRIBUTIONS = Exercise(
    number="1.7",
    title="All paths of one length",
    level="demanding",
    difficulty=5,
    minutes=30,
    core=False,
    why="A stack of N residual layers has 2^N paths. You can still add up all of them, exactly, in N steps.",
    budget="Eight lines are enough.",
    hints=(
        "Suppose you know the sums for the first n - 1 layers, for every length. Layer n is either passed by or used last. What does that "
        "make of the sum for length k?",
        "One array (N + 1, d, d) holds the sums for all lengths. Before the first layer only length 0 is there: the identity. Each layer "
        "adds to the sum of length k something made of the old sum of length k - 1.",
        "sums: zeros, with the identity at length 0. for every J in order: new is a copy of sums; for every k from 1 to N: new at k gets "
        "J times the OLD sum at k - 1 added. sums is new.",
    ),
)


@PATH_CONTRIBUTIONS.reference
def path_contributions(Js: list[np.ndarray]) -> np.ndarray:
    """Split the Jacobian of a residual stack into the sums of its paths, by length.

    Js      : list of N arrays (d, d), (out, in), in the order in which data meets the layers
    returns : (N + 1, d, d): entry k is the sum over all paths that go through exactly k branches

    The path through branches 1 and 3 contributes J3 @ J1; the path around all branches the identity.
    No norms. It must work for 40 layers, where there are 2^40 paths, in under 2 seconds.

    >>> path_contributions([np.array([[1.0]])] * 6)[:, 0, 0]
    array([ 1.,  6., 15., 20., 15.,  6.,  1.])
    """
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d))
    sums[0] = np.eye(d)
    for J in Js:
        around, through = sums, J @ sums
        sums = around.copy()
        sums[1:] += through[:-1]
    return sums


@PATH_CONTRIBUTIONS.worked("six layers of slope 1: 1 6 15 20 15 6 1", 0.4, decimals=6)
def _():
    yield ask([np.array([[1.0]])] * 6)


@PATH_CONTRIBUTIONS.must("the sums of stacks of up to four layers", 2.6)
def paths_small(rng):
    for n, d in [(1, 2), (2, 2), (3, 2), (4, 3), (3, 3)]:
        yield ask(layers(rng, n, d))


@PATH_CONTRIBUTIONS.must("the 64 paths of six layers", 1.4)
def paths_six(rng):
    yield ask(layers(rng, 6, 3))


@PATH_CONTRIBUTIONS.must("the shortest and the longest path", 0.8, view=View(ends), needs_values=True)
def paths_ends(rng):
    for n, d in [(2, 3), (4, 2)]:
        yield ask(layers(rng, n, d))


@PATH_CONTRIBUTIONS.must(
    "all lengths together are the Jacobian of the stack", 0.8, view=View(summed), needs_values=True
)
def paths_sum(rng):
    for n, d in [(2, 2), (4, 3)]:
        yield ask(layers(rng, n, d))


@PATH_CONTRIBUTIONS.must("integers work like floats", 0.3)
def paths_integers(rng):
    yield ask([rng.integers(-3, 4, size=(2, 2)), rng.integers(-3, 4, size=(2, 2)), rng.normal(size=(2, 2))])


def paths_inputs(rng):
    yield ask(layers(rng, 3, 2))


PATH_CONTRIBUTIONS.leaves_inputs_alone(0.5, paths_inputs)


# the last property of the sheet: after a time-out nothing more is asked
@PATH_CONTRIBUTIONS.must("40 layers in time", 1.2, relative=True)
def paths_deep(rng):
    yield replace(ask(layers(rng, 40, 3, 0.3)), seconds=8.0)


MANY_LAYERS = 20  # beyond this a program that visits each of the 2^N paths does not end in time


def wrong_paths(
    *,
    join: Callable = later_on_the_left,
    start: Callable = np.eye,
    start_total: Callable = lambda sums: sums,
) -> Callable:
    """Sums of paths with slips: how a branch is joined to a path, what a path of length 0 is."""

    def wrong(Js):
        d = len(Js[0])
        sums = np.zeros((len(Js) + 1, d, d))
        sums[0] = start(d)
        for J in Js:
            old = sums.copy()
            for k in range(len(Js)):
                sums[k + 1] += join(J, old[k])
        return start_total(sums)

    return wrong


def one_by_one(Js: Sequence[np.ndarray], join: Callable = later_on_the_left) -> np.ndarray:
    """Every path on its own, walked through recursively. For deep stacks it takes too long, as it does for a student."""
    if len(Js) > MANY_LAYERS:
        raise OutOfTime
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d))

    def walk(layer, length, product):
        if layer == len(Js):
            sums[length] += product
            return
        walk(layer + 1, length, product)
        walk(layer + 1, length + 1, join(Js[layer], product))

    walk(0, 0, np.eye(d))
    return sums


def too_many_to_list(Js):
    if len(Js) > MANY_LAYERS:
        raise MemoryError
    return one_by_one(Js)


PATH_CONTRIBUTIONS.mistake(
    "path-by-path",
    "Your program visits every path on its own. Forty layers have 2^40 of them, about a million million: add up paths of one length as you go.",
    one_by_one,
)
PATH_CONTRIBUTIONS.mistake(
    "list-of-all-paths",
    "Small stacks are right, but for 40 layers your program stops with an error. It seems to keep all 2^40 paths at once.",
    too_many_to_list,
)
PATH_CONTRIBUTIONS.mistake(
    "wrong-order",
    "The branches of a path stand in the other order in your products: data meets the last one first.",
    wrong_paths(join=later_on_the_right),
)
PATH_CONTRIBUTIONS.mistake(
    "elementwise",
    "You multiply entry by entry (*). One branch after the other is a matrix product (@).",
    wrong_paths(join=entry_by_entry, start=lambda d: np.ones((d, d))),
)
PATH_CONTRIBUTIONS.mistake(
    "elementwise-from-identity",
    "You multiply entry by entry (*), so everything off the diagonal is lost. One branch after the other is a matrix product (@).",
    wrong_paths(join=entry_by_entry),
)
PATH_CONTRIBUTIONS.mistake(
    "lengths-reversed",
    "Your sums are in the other order: the longest path comes first. Entry k is for length k.",
    wrong_paths(start_total=lambda sums: sums[::-1]),
)
PATH_CONTRIBUTIONS.mistake(
    "ones-instead-of-identity",
    "Your path of length 0 is a matrix of ones. Going around every branch changes nothing: which matrix changes nothing?",
    wrong_paths(start=lambda d: np.ones((d, d))),
)
PATH_CONTRIBUTIONS.mistake(
    "starts-at-zero",
    "Your sums start at zero for every length and stay there. The path around all branches must be there from the start.",
    wrong_paths(start=lambda d: np.zeros((d, d))),
)
PATH_CONTRIBUTIONS.mistake(
    "shortest-path-empty",
    "Length 0 is empty in your result. There is one path around all branches.",
    wrong_paths(start_total=lambda sums: np.concatenate([np.zeros_like(sums[:1]), sums[1:]])),
)
PATH_CONTRIBUTIONS.mistake(
    "longest-path-missing",
    "Your result has N entries. Lengths run from 0 to N.",
    wrong_paths(start_total=lambda sums: sums[:-1]),
)
PATH_CONTRIBUTIONS.mistake(
    "shortest-path-missing",
    "Your result starts at length 1. The path around all branches counts too.",
    wrong_paths(start_total=lambda sums: sums[1:]),
)


def averages(sums: np.ndarray) -> np.ndarray:
    N = len(sums) - 1
    return sums / np.array([float(comb(N, k)) for k in range(N + 1)])[:, None, None]


PATH_CONTRIBUTIONS.mistake(
    "averaged",
    "You average the paths of one length. Their sum is asked for.",
    wrong_paths(start_total=averages),
)
PATH_CONTRIBUTIONS.mistake(
    "transposed",
    "Each of your matrices is transposed; the convention here is (out, in).",
    wrong_paths(start_total=lambda sums: np.swapaxes(sums, 1, 2)),
)
PATH_CONTRIBUTIONS.mistake(
    "lengths-add-up",
    "Your entries add up: entry k holds all paths up to length k.",
    wrong_paths(start_total=lambda sums: np.cumsum(sums, axis=0)),
)


@PATH_CONTRIBUTIONS.mistake(
    "binomial-of-the-mean",
    "You count paths and use the mean Jacobian for each branch. Different branches do not commute; each path has its own product.",
)
def _(Js):
    N, mean = len(Js), sum(Js) / len(Js)
    return np.array([comb(N, k) * np.linalg.matrix_power(mean, k) for k in range(N + 1)])


@PATH_CONTRIBUTIONS.mistake(
    "binomial-of-the-first",
    "You count paths and use the first Jacobian for each branch. Each branch has its own.",
)
def _(Js):
    N = len(Js)
    return np.array([comb(N, k) * np.linalg.matrix_power(Js[0], k) for k in range(N + 1)], dtype=float)


@PATH_CONTRIBUTIONS.mistake(
    "layer-used-twice",
    "You update the sums from short to long in one array, so a layer finds its own branch already used. Every path uses a branch at most once.",
)
def _(Js):
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d))
    sums[0] = np.eye(d)
    for J in Js:
        for k in range(len(Js)):
            sums[k + 1] += J @ sums[k]
    return sums


@PATH_CONTRIBUTIONS.mistake(
    "first-layers-only",
    "Entry k is the product of the first k layers: one path of each length. There are many more.",
)
def _(Js):
    products = [np.eye(len(Js[0]))]
    for J in Js:
        products.append(J @ products[-1])
    return np.array(products)


@PATH_CONTRIBUTIONS.mistake(
    "neighbours-only",
    "Your paths use branches that follow each other without a gap. A path may go around some in between.",
)
def _(Js):
    N, d = len(Js), len(Js[0])
    sums = np.zeros((N + 1, d, d))
    sums[0] = np.eye(d)
    for first in range(N):
        product = np.eye(d)
        for last in range(first, N):
            product = Js[last] @ product
            sums[last - first + 1] += product
    return sums


@PATH_CONTRIBUTIONS.mistake(
    "power-of-the-sum",
    "Entry k is a power of the sum of all Jacobians. Then branches are used twice, and in every order.",
)
def _(Js):
    return np.array([np.linalg.matrix_power(sum(Js), k) for k in range(len(Js) + 1)], dtype=float)


@PATH_CONTRIBUTIONS.mistake(
    "one-path-less-for-every-layer",
    "A layer replaces the sum of each length. It must keep the paths that go around it.",
)
def _(Js):
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d))
    sums[0] = np.eye(d)
    for J in Js:
        sums[1:] = J @ sums[:-1]
    return sums


@PATH_CONTRIBUTIONS.mistake(
    "changes-the-layers",
    "You write into the caller's arrays. Called again, your function finds other layers.",
)
def _(Js):
    result = wrong_paths()([J.copy() for J in Js])
    Js[0] += np.eye(len(Js[0]), dtype=Js[0].dtype)
    return result


@PATH_CONTRIBUTIONS.mistake(
    "uses-up-the-list",
    "You take the layers out of the caller's list (pop works in place). Called again, your function finds fewer of them.",
)
def _(Js):
    taken = []
    while Js:
        taken.append(Js.pop(0))
    return wrong_paths()(taken)


@PATH_CONTRIBUTIONS.mistake(
    "integer-result",
    "Your sums have the type of the first layer. With whole numbers in, later fractions are cut off.",
)
def _(Js):
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d), dtype=np.asarray(Js[0]).dtype)
    sums[0] = np.eye(d)
    for J in Js:
        old = sums.copy()
        sums[1:] = old[1:] + J @ old[:-1]
    return sums


PATH_CONTRIBUTIONS.pair("path-by-path", "wrong-order", lambda Js: one_by_one(Js, later_on_the_right))
PATH_CONTRIBUTIONS.pair(
    "wrong-order", "lengths-reversed", wrong_paths(join=later_on_the_right, start_total=lambda s: s[::-1])
)
PATH_CONTRIBUTIONS.pair("path-by-path", "longest-path-missing", lambda Js: one_by_one(Js)[:-1])
PATH_CONTRIBUTIONS.pair(
    "path-by-path",
    "elementwise",
    lambda Js: (
        one_by_one(Js)
        if len(Js) > MANY_LAYERS
        else wrong_paths(join=entry_by_entry, start=lambda d: np.ones((d, d)))(Js)
    ),
)
PATH_CONTRIBUTIONS.pair(
    "path-by-path",
    "shortest-path-empty",
    lambda Js: np.concatenate([np.zeros((1, len(Js[0]), len(Js[0]))), one_by_one(Js)[1:]]),
)


@PATH_CONTRIBUTIONS.variant
def _(Js):
    """One array, from long to short, so that every old sum is still there when it is needed."""
    d = len(Js[0])
    sums = np.zeros((len(Js) + 1, d, d))
    sums[0] = np.eye(d)
    for n, J in enumerate(Js, start=1):
        for k in range(n, 0, -1):
            sums[k] += J @ sums[k - 1]
    return sums


@PATH_CONTRIBUTIONS.variant
def _(Js):
    """From the last layer backward, with a list of sums that grows."""
    sums = [np.eye(len(Js[0]))]
    for J in list(Js)[::-1]:
        longer = [s @ J for s in sums]
        zero = np.zeros_like(sums[0])
        sums = [a + b for a, b in zip([*sums, zero], [zero, *longer])]
    print("paths:", 2 ** len(Js))
    return sums


@PATH_CONTRIBUTIONS.variant
def _(Js):
    """A polynomial in z, the product of (I + z J), evaluated at roots of unity and read off by a Fourier transform."""
    N, d = len(Js), len(Js[0])
    z = np.exp(2j * np.pi * np.arange(N + 1) / (N + 1))
    values = np.broadcast_to(np.eye(d), (N + 1, d, d)).astype(complex)
    for J in Js:
        values = values + z[:, None, None] * np.einsum("ij,njk->nik", J, values)
    return np.fft.fft(values, axis=0).real / (N + 1)


@PATH_CONTRIBUTIONS.variant
def _(Js):
    """Recursion with memory."""
    from functools import cache

    d = len(Js[0])

    @cache
    def total(n, k):
        if k < 0 or k > n:
            return np.zeros((d, d))
        if n == 0:
            return np.eye(d)
        return total(n - 1, k) + Js[n - 1] @ total(n - 1, k - 1)

    return np.stack([total(len(Js), k) for k in range(len(Js) + 1)])


# ------------------------------------------------------------------------------------------ 1.8

STACK_BACKWARD = Exercise(
    number="1.8",
    title="Back-propagation through a stack",
    level="demanding",
    difficulty=5,
    minutes=35,
    core=False,
    why="It is the whole of back-propagation in fifteen lines, and at the end of the lesson it trains a network of your own.",
    budget="Fifteen lines are enough.",
    hints=(
        "What must you keep from the way forward so that the way back can compute the slope of tanh and the gradient of W, layer by layer?",
        "Forward: keep the input (T, d) of every layer. Backward, from the last layer to the first: the gradient at z = xW is (T, d), dW is "
        "(d, d) = (d, T) times (T, d), the gradient at the layer's input is (T, d) = (T, d) times (d, d).",
        "forward: list of inputs, one per layer. backward, last layer first: at z: g times (1 minus tanh squared). dW: the layer's input, "
        "transposed, times that. next g: that times W transposed, plus g itself where residual. put dW in front of the list.",
    ),
)
BACKWARD_PARTS = ("dx", "dWs")


@STACK_BACKWARD.reference
def stack_backward(
    x: np.ndarray, Ws: list[np.ndarray], g: np.ndarray, residual: bool = True
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Back-propagate through a stack of layers y = x + tanh(x W), or y = tanh(x W).

    x        : (T, d), the input of the first layer, one token per row
    Ws       : list of (d, d), in the order in which data meets the layers
    g        : (T, d), how the loss changes with the output of the last layer
    residual : True for y = x + tanh(x W), False for y = tanh(x W); no norms
    returns  : (dx, dWs): dx (T, d), how the loss changes with x, and
               dWs, a list of (d, d) in layer order, how it changes with each W

    The loss adds up over tokens, so dW does too. No input is changed.

    >>> dx, dWs = stack_backward(np.array([[0.5]]), [np.array([[1.0]])], np.array([[1.0]]))
    >>> print(dx.round(6), dWs[0].round(6))
    [[1.786448]] [[0.393224]]
    """
    inputs, hidden = [], []
    for W in Ws:
        inputs.append(x)
        hidden.append(np.tanh(x @ W))  # (T, d)
        x = x + hidden[-1] if residual else hidden[-1]
    dWs = []
    for x, h, W in zip(inputs[::-1], hidden[::-1], Ws[::-1]):
        dz = g * (1 - h**2)  # (T, d), at z = x W
        dWs.insert(0, x.T @ dz)  # (d, d)
        back = dz @ W.T  # (T, d)
        g = g + back if residual else back
    return g, dWs


def propagated(question: Question, *names: str) -> Question:
    """The question, looked at for some of the two results."""
    return replace(question, about={"parts": BACKWARD_PARTS, "only": names or BACKWARD_PARTS})


@STACK_BACKWARD.worked(
    "one number per token: 1 and 1.786448",
    0.4,
    decimals=6,
    view=View(parts),
)
def _():
    one = np.array([[1.0]])
    yield propagated(ask(0.5 * one, [0 * one] * 6, one), "dx")
    yield propagated(ask(0.5 * one, [one], one))


def a_stack(rng: np.random.Generator, T: int, d: int, n: int) -> tuple:
    """x, Ws and a random gradient from above."""
    Ws = [0.7 * rng.normal(size=(d, d)) for _ in range(n)]
    return rng.normal(size=(T, d)), Ws, rng.normal(size=(T, d))


STACKS = ((1, 2, 1), (3, 2, 2), (2, 3, 4), (3, 3, 3))


@STACK_BACKWARD.must("residual: the gradient of x", 1.8, view=View(parts))
def backward_dx(rng):
    for sizes in STACKS:
        yield propagated(ask(*a_stack(rng, *sizes), residual=True), "dx")


@STACK_BACKWARD.must("residual: the gradient of every W", 2.0, view=View(parts))
def backward_dWs(rng):
    for sizes in STACKS:
        yield propagated(ask(*a_stack(rng, *sizes), residual=True), "dWs")


@STACK_BACKWARD.must("plain: the gradient of x", 1.1, view=View(parts))
def backward_plain_dx(rng):
    for sizes in STACKS[:3]:
        yield propagated(ask(*a_stack(rng, *sizes), residual=False), "dx")


@STACK_BACKWARD.must("plain: the gradient of every W", 1.1, view=View(parts))
def backward_plain_dWs(rng):
    for sizes in STACKS[:3]:
        yield propagated(ask(*a_stack(rng, *sizes), residual=False), "dWs")


@STACK_BACKWARD.must("residual is the default, and may come by position", 0.5, view=View(parts))
def backward_default(rng):
    yield propagated(ask(*a_stack(rng, 2, 2, 2)))
    yield propagated(ask(*a_stack(rng, 2, 2, 2), False))


@STACK_BACKWARD.must("integers work like floats", 0.4, view=View(parts))
def backward_integers(rng):
    x, Ws, g = a_stack(rng, 2, 2, 2)
    whole = [rng.integers(-2, 3, size=(2, 2)) for _ in range(2)]
    yield propagated(ask(rng.integers(-2, 3, size=(2, 2)), Ws, g))
    yield propagated(ask(0.3 * x, whole, rng.integers(1, 5, size=(2, 2))))


def backward_inputs(rng):
    yield ask(*a_stack(rng, 2, 2, 2))
    yield ask(*a_stack(rng, 2, 2, 2), residual=False)


STACK_BACKWARD.leaves_inputs_alone(0.7, backward_inputs)


def slope_of_tanh(x, z, h, y):
    return 1 - h**2


def weight_gradient(x, z, h, y, dz, g):
    return x.T @ dz


def turned_back(dz, W):
    return dz @ W.T


def wrong_backward(
    *,
    slope: Callable = slope_of_tanh,
    dW: Callable = weight_gradient,
    turn: Callable = turned_back,
    skip: Callable = lambda residual: float(residual),
    forward_skip: Callable = lambda residual: float(residual),
    passed_on: bool = True,
    kept: Callable = lambda inputs: inputs,
    order: int = 1,
    late: bool = False,
    start: Callable = lambda g: g,
    used: Callable = lambda Ws: Ws,
    default: bool = True,
) -> Callable:
    """Back-propagation with slips; with no switch set it is right.

    slope, dW, turn : the slope of tanh, the gradient of W, and the way through x W
    skip            : how often the straight path sends g back; forward_skip the same on the way forward
    passed_on       : whether a layer hands its own gradient down, or always the one from the top
    kept            : what is taken for the layers' inputs on the way back
    late            : g is updated before dW is computed
    """

    def wrong(x, Ws, g, residual=default):
        bottom = x
        inputs, outputs = [], []
        for W in Ws:
            inputs.append(x)
            x = forward_skip(residual) * x + np.tanh(x @ W)
            outputs.append(x)
        inputs = kept(inputs) if kept else [bottom] * len(Ws)
        top = g = start(g)
        dWs = []
        for x, y, W in zip(inputs[::-1], outputs[::-1], used(Ws)[::-1]):
            above = g if passed_on else top
            z = x @ W
            h = np.tanh(z)
            dz = above * slope(x, z, h, y)
            g = skip(residual) * above + turn(dz, W)
            if late:
                dz = g * slope(x, z, h, y)
            dWs.append(dW(x, z, h, y, dz, above))
        return g, dWs[::-order]

    return wrong


NO_SKIP_BACK = {"skip": lambda residual: 0.0}
ALWAYS_SKIP_BACK = {"skip": lambda residual: 1.0}


def of_hidden(x, z, h, y, dz, g):
    return h.T @ dz


def transposed_gradient(x, z, h, y, dz, g):
    return dz.T @ x


def averaged(x, z, h, y, dz, g):
    return x.T @ dz / len(x)


def not_turned(dz, W):
    return dz @ W


def from_the_output(x, z, h, y):
    return 1 - y**2


def no_slope(x, z, h, y):
    return np.ones_like(h)


STACK_BACKWARD.mistake(
    "skip-forgotten-going-back",
    "Going back, only the branch sends something to the layer below. x also reached y straight, past the branch.",
    wrong_backward(**NO_SKIP_BACK),
)
STACK_BACKWARD.mistake(
    "skip-always-going-back",
    "Going back, you add g for plain layers as well. With residual=False there is no straight path.",
    wrong_backward(**ALWAYS_SKIP_BACK),
)
STACK_BACKWARD.mistake(
    "skip-twice-going-back",
    "Going back, g is added twice. The straight path sends it back once.",
    wrong_backward(skip=lambda residual: 2.0 * residual),
)
STACK_BACKWARD.mistake(
    "skip-forgotten-going-forward",
    "Going forward, your layers are plain, so the way back sees other inputs than the stack had.",
    wrong_backward(forward_skip=lambda residual: 0.0),
)
STACK_BACKWARD.mistake(
    "skip-always-going-forward",
    "Going forward, your layers are residual even with residual=False, so the way back sees other inputs than the stack had.",
    wrong_backward(forward_skip=lambda residual: 1.0),
)
STACK_BACKWARD.mistake(
    "flag-ignored",
    "Your stack is residual whatever the flag says.",
    wrong_backward(**ALWAYS_SKIP_BACK, forward_skip=lambda residual: 1.0),
)
STACK_BACKWARD.mistake(
    "always-plain",
    "Your stack is plain whatever the flag says.",
    wrong_backward(**NO_SKIP_BACK, forward_skip=lambda residual: 0.0),
)
STACK_BACKWARD.mistake(
    "plain-by-default",
    "Your default is a plain stack. Keep the signature as it is given.",
    wrong_backward(default=False),
)
STACK_BACKWARD.mistake(
    "dW-from-the-hidden",
    "Your dW multiplies with what came out of tanh. W multiplied what went into the layer.",
    wrong_backward(dW=of_hidden),
)
STACK_BACKWARD.mistake(
    "dW-from-the-output",
    "Your dW multiplies with the output of the layer. W multiplied what went into it.",
    wrong_backward(dW=lambda x, z, h, y, dz, g: y.T @ dz),
)
STACK_BACKWARD.mistake(
    "dW-averaged-over-tokens",
    "You average dW over the tokens. The loss adds up over tokens, and so does its gradient.",
    wrong_backward(dW=averaged),
)
STACK_BACKWARD.mistake(
    "dW-transposed",
    "Your dW is transposed. Its rows belong to the inputs of x @ W, like the rows of W.",
    wrong_backward(dW=transposed_gradient),
)
STACK_BACKWARD.mistake(
    "dW-without-slope",
    "Your dW uses the gradient as it is after tanh. W acts before tanh.",
    wrong_backward(dW=lambda x, z, h, y, dz, g: x.T @ g),
)
STACK_BACKWARD.mistake(
    "dWs-reversed",
    "Your list of gradients runs from the last layer to the first. Layer order is asked for.",
    wrong_backward(order=-1),
)
STACK_BACKWARD.mistake(
    "first-layers-input-everywhere",
    "Every dW uses the input of the first layer. Each layer has an input of its own.",
    wrong_backward(kept=None),
)
STACK_BACKWARD.mistake(
    "gradient-not-passed-on",
    "Every layer gets the gradient from the top. Each one must get what the layer above it sends down.",
    wrong_backward(passed_on=False),
)
STACK_BACKWARD.mistake(
    "dW-after-the-update",
    "You compute dW from the gradient that already went through the layer. It needs the one that came from above.",
    wrong_backward(late=True),
)
STACK_BACKWARD.mistake(
    "W-not-transposed",
    "Going back through x @ W you multiply by W again. Which matrix sends gradients back?",
    wrong_backward(turn=not_turned),
)
STACK_BACKWARD.mistake(
    "slope-forgotten",
    "Going back you pass tanh by. Its slope is 1 only at zero.",
    wrong_backward(slope=no_slope),
)
STACK_BACKWARD.mistake(
    "slope-from-the-output",
    "You take the slope of tanh from the output of the layer. With a residual connection the output is not tanh alone.",
    wrong_backward(slope=from_the_output),
)
STACK_BACKWARD.mistake(
    "slope-without-tanh",
    "Your slope is 1 minus z squared, z being what goes into tanh. The square belongs to what comes out of it.",
    wrong_backward(slope=lambda x, z, h, y: 1 - z**2),
)
STACK_BACKWARD.mistake(
    "slope-not-squared",
    "Your slope is 1 minus tanh. The square is missing.",
    wrong_backward(slope=lambda x, z, h, y: 1 - h),
)
STACK_BACKWARD.mistake(
    "slope-of-the-sigmoid",
    "Your slope is that of the sigmoid, h (1 - h). This is tanh.",
    wrong_backward(slope=lambda x, z, h, y: h * (1 - h)),
)
STACK_BACKWARD.mistake(
    "slope-applied-to-x",
    "You take the slope at x. tanh was applied to x @ W.",
    wrong_backward(slope=lambda x, z, h, y: 1 - np.tanh(x) ** 2),
)
STACK_BACKWARD.mistake(
    "tanh-instead-of-its-slope",
    "Going back you multiply by tanh itself. What is its slope?",
    wrong_backward(slope=lambda x, z, h, y: h),
)
STACK_BACKWARD.mistake(
    "upstream-ignored",
    "You start from ones. The gradient that comes from above is g.",
    wrong_backward(start=lambda g: np.ones(g.shape)),
)
STACK_BACKWARD.mistake(
    "layers-not-reversed",
    "Going back you use the weights in the order of the way forward. The last layer comes first.",
    wrong_backward(used=lambda Ws: Ws[::-1]),
)


def one_input_for_all(pick: Callable) -> Callable:
    """Back-propagation in which every dW multiplies with one x: pick(the stack's input, its output)."""

    def wrong(x, Ws, g, residual=True):
        bottom, hidden = x, []
        for W in Ws:
            hidden.append(np.tanh(x @ W))
            x = x + hidden[-1] if residual else hidden[-1]
        dWs = []
        for h, W in zip(hidden[::-1], Ws[::-1]):
            dz = g * (1 - h**2)
            dWs.insert(0, pick(bottom, x).T @ dz)
            g = g + dz @ W.T if residual else dz @ W.T
        return g, dWs

    return wrong


STACK_BACKWARD.mistake(
    "dW-from-the-first-input",
    "Every dW multiplies with the x of the call, which only the first layer read. W multiplied the input of its own layer.",
    one_input_for_all(lambda bottom, top: bottom),
)
STACK_BACKWARD.mistake(
    "dW-from-the-last-output",
    "Every dW multiplies with what came out of the last layer: x was overwritten on the way forward. Keep the input of each layer.",
    one_input_for_all(lambda bottom, top: top),
)


@STACK_BACKWARD.mistake(
    "changes-g",
    "You add into the caller's g (+= works in place). If it holds whole numbers, that even fails.",
)
def _(x, Ws, g, residual=True):
    inputs, hidden = [], []
    for W in Ws:
        inputs.append(x)
        hidden.append(np.tanh(x @ W))
        x = x + hidden[-1] if residual else hidden[-1]
    dWs = []
    for x, h, W in zip(inputs[::-1], hidden[::-1], Ws[::-1]):
        dz = g * (1 - h**2)
        dWs.insert(0, x.T @ dz)
        if residual:
            g += dz @ W.T
        else:
            g = dz @ W.T
    return g, dWs


@STACK_BACKWARD.mistake(
    "changes-x",
    "Going forward you add into x itself (+= works in place): the caller's x moves, and so do all the inputs that you kept.",
)
def _(x, Ws, g, residual=True):
    if not residual:
        return wrong_backward()(x, Ws, g, residual)
    hidden = []
    for W in Ws:
        hidden.append(np.tanh(x @ W))
        x += hidden[-1]
    dWs = []
    for h, W in zip(hidden[::-1], Ws[::-1]):
        dz = g * (1 - h**2)
        dWs.insert(0, x.T @ dz)
        g = g + dz @ W.T
    return g, dWs


@STACK_BACKWARD.mistake(
    "kept-inputs-move",
    "You keep the same array for every layer and go on adding into it, so in the end all the inputs that you kept are equal.",
)
def _(x, Ws, g, residual=True):
    if not residual:
        return wrong_backward()(x, Ws, g, residual)
    x, hidden = np.array(x, dtype=float), []
    for W in Ws:
        hidden.append(np.tanh(x @ W))
        x += hidden[-1]
    dWs = []
    for h, W in zip(hidden[::-1], Ws[::-1]):
        dz = g * (1 - h**2)
        dWs.insert(0, x.T @ dz)
        g = g + dz @ W.T
    return g, dWs


@STACK_BACKWARD.mistake(
    "results-swapped",
    "Your two results have changed places: first dx, then the list of dW.",
)
def _(x, Ws, g, residual=True):
    return wrong_backward()(x, Ws, g, residual)[::-1]


@STACK_BACKWARD.mistake(
    "last-dW-only",
    "You return one dW. There is one for every layer.",
)
def _(x, Ws, g, residual=True):
    dx, dWs = wrong_backward()(x, Ws, g, residual)
    return dx, dWs[:1]


STACK_BACKWARD.pair(
    "skip-forgotten-going-back", "dW-from-the-hidden", wrong_backward(**NO_SKIP_BACK, dW=of_hidden)
)
STACK_BACKWARD.pair(
    "skip-forgotten-going-back", "dW-averaged-over-tokens", wrong_backward(**NO_SKIP_BACK, dW=averaged)
)
STACK_BACKWARD.pair(
    "skip-forgotten-going-back", "W-not-transposed", wrong_backward(**NO_SKIP_BACK, turn=not_turned)
)
STACK_BACKWARD.pair("skip-forgotten-going-back", "dWs-reversed", wrong_backward(**NO_SKIP_BACK, order=-1))
STACK_BACKWARD.pair(
    "skip-always-going-back", "dW-averaged-over-tokens", wrong_backward(**ALWAYS_SKIP_BACK, dW=averaged)
)
STACK_BACKWARD.pair("skip-always-going-back", "dWs-reversed", wrong_backward(**ALWAYS_SKIP_BACK, order=-1))
STACK_BACKWARD.pair("slope-from-the-output", "dWs-reversed", wrong_backward(slope=from_the_output, order=-1))
STACK_BACKWARD.pair(
    "slope-from-the-output", "W-not-transposed", wrong_backward(slope=from_the_output, turn=not_turned)
)
STACK_BACKWARD.pair(
    "W-not-transposed", "dW-transposed", wrong_backward(turn=not_turned, dW=transposed_gradient)
)
STACK_BACKWARD.pair("W-not-transposed", "dWs-reversed", wrong_backward(turn=not_turned, order=-1))
STACK_BACKWARD.pair("dW-transposed", "dWs-reversed", wrong_backward(dW=transposed_gradient, order=-1))
STACK_BACKWARD.pair("dW-averaged-over-tokens", "dWs-reversed", wrong_backward(dW=averaged, order=-1))
STACK_BACKWARD.pair("slope-forgotten", "dWs-reversed", wrong_backward(slope=no_slope, order=-1))


@STACK_BACKWARD.variant
def by_recursion(x, Ws, g, residual=True):
    """Recursion: a layer goes forward, asks the rest of the stack for the gradient of its output, and goes back."""
    if len(Ws) == 0:
        return np.array(g, dtype=float), []
    W, h = Ws[0], np.tanh(x @ Ws[0])
    g, below = by_recursion(h + x if residual else h, Ws[1:], g, residual)
    dz = g - g * h * h
    return dz @ W.T + (g if residual else 0), [x.T @ dz, *below]


@STACK_BACKWARD.variant
def _(x, Ws, g, residual=True):
    """Token by token, entry by entry where it matters; prints."""
    x, g = np.array(x, dtype=float), np.array(g, dtype=float)
    dx, dWs = np.zeros_like(x), np.zeros((len(Ws), *np.shape(Ws[0])))
    for t in range(len(x)):
        stream = [x[t]]
        for W in Ws:
            stream.append(residual * stream[-1] + np.tanh(stream[-1] @ W))
        back = g[t]
        for n in reversed(range(len(Ws))):
            dz = back / np.cosh(stream[n] @ Ws[n]) ** 2
            dWs[n] += np.outer(stream[n], dz)
            back = Ws[n] @ dz + residual * back
        dx[t] = back
    print(len(dWs), "gradients")
    return dx, list(dWs)


@STACK_BACKWARD.variant
def _(x, Ws, g, residual=True):
    """einsum, dWs as one array, and a warning."""
    xs = [x * 1.0]
    for W in Ws:
        h = np.tanh(np.einsum("ti,ij->tj", xs[-1], W))
        xs.append(xs[-1] + h if residual else h)
    np.log(np.zeros(1))
    dWs = [None] * len(Ws)
    for n in range(len(Ws) - 1, -1, -1):
        h = xs[n + 1] - xs[n] if residual else xs[n + 1]
        dz = np.einsum("ti,ti->ti", g, 1 - h * h)
        dWs[n] = np.einsum("ti,tj->ij", xs[n], dz)
        g = np.einsum("tj,ij->ti", dz, Ws[n]) + (g if residual else 0)
    return g, np.array(dWs)
