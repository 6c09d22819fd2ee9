"""Lesson 4: positional encoding as a rotation."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from autograder.exercise import Call, Exercise, View, ask, steps
from course.questions import Given, Own, Question
from course.views import entries, neighbour_ratios, on_probe, row_difference

# ---------------------------------------------------------------- what the wrong versions share


def paper(i, d):
    """The exponent of the paper for pair i."""
    return 2 * i / d


# id -> (what it does to the hands, in words; the exponent for pair i)
EXPONENTS = {
    "tensor2tensor-exponent": (
        "Your last exponent is exactly 1: the slowest hand reaches the base. That is tensor2tensor's rule, not the paper's.",
        lambda i, d: i / max(d / 2 - 1, 1),
    ),
    "factor-2-forgotten": (
        "Your exponents reach only one half, so the slow hands are far too fast. Look at the last pair's exponent.",
        lambda i, d: i / d,
    ),
    "exponent-doubled": (
        "Your exponents run up to 2: one factor 2 too many, as when i counts columns in steps of two.",
        lambda i, d: 4 * i / d,
    ),
    "exponent-sign": (
        "The exponent has the wrong sign: your later hands turn faster, not slower.",
        lambda i, d: -2 * i / d,
    ),
}


def omegas(d, exponent=paper):
    """The speed of each hand for base 10000, in radians per position."""
    return 10000.0 ** -exponent(np.arange(d // 2), d)


def pairs_apart(even, odd):
    """Two (..., d/2) arrays woven into (..., d): even columns, odd columns."""
    return np.stack([even, odd], axis=-1).reshape(*even.shape[:-1], -1)


@lru_cache(maxsize=64)
def right_table(n, d, exponent=paper):
    """The interleaved table, read-only; remembered, as many wrong decoders search the same one."""
    angle = np.arange(n)[:, None] * omegas(d, exponent)
    table = pairs_apart(np.sin(angle), np.cos(angle))
    table.flags.writeable = False
    return table


# ---------------------------------------------------------------- 4.1 wavelengths

WAVELENGTHS = Exercise(
    number="4.1",
    title="How long each hand takes for one turn",
    level="easy",
    difficulty=1,
    minutes=6,
    core=True,
    why="The wavelengths decide which hands tell near places apart and which tell far ones apart.",
    budget="Two lines are enough.",
    hints=(
        "A hand turns by omega radians per position. How many positions make one full turn?",
        "i is (d_model/2,), counted from 0; omega is (d_model/2,); the wavelengths are (d_model/2,).",
        "i = 0, 1, ..., d_model/2 - 1; omega = base to the power -(2i / d_model); the wavelength is a full turn in radians, divided by omega",
    ),
)


@WAVELENGTHS.reference
def wavelengths(d_model: int, base: float = 10000.0) -> np.ndarray:
    """Number of positions that each pair of dimensions needs for one full turn.

    d_model : even   base : any number above 1   returns : (d_model / 2,), pair 0 first

    >>> wavelengths(4).round(3)
    array([  6.283, 628.319])
    """
    i = np.arange(d_model // 2)
    omega = base ** (-2 * i / d_model)  # radians per position
    return 2 * np.pi / omega


@WAVELENGTHS.worked("eight of the 256 wavelengths of d_model = 512", 0.25, view=View(entries))
def _():
    yield Question((Call((512,)),), about={"at": [[0, 1, 2, 32, 64, 128, 192, 255]]})


@WAVELENGTHS.must("right for other widths", 0.75)
def _(rng):
    for d in (4, 6, 2 * int(rng.integers(4, 9))):
        yield ask(d)


@WAVELENGTHS.must("another base counts", 0.5)
def _(rng):
    for d in (4, 10):
        yield ask(d, float(rng.uniform(20, 5000)))


@WAVELENGTHS.must(
    "each wavelength is the same factor times the one before", 0.25, view=View(neighbour_ratios)
)
def _(rng):
    yield ask(6)
    yield ask(12, float(rng.uniform(20, 5000)))


@WAVELENGTHS.must("arguments by name, base as a whole number", 0.25)
def _(rng):
    yield ask(d_model=8, base=int(rng.integers(20, 5000)))


def wrong_wavelengths(exponent=paper, turn=2 * np.pi, first=0, fixed_base=None):
    def version(d_model, base=10000.0):
        i = np.arange(d_model // 2) + first
        return turn * (fixed_base or base) ** exponent(i, d_model)

    return version


WAVELENGTHS.mistake(
    "frequency",
    "You return how far a hand turns per position. Asked for is the reverse: how many positions one turn takes.",
    wrong_wavelengths(EXPONENTS["exponent-sign"][1], turn=1.0),
)
WAVELENGTHS.mistake(
    "turns-per-position",
    "You return the part of a turn made per position. Asked for is its inverse: positions per turn.",
    wrong_wavelengths(EXPONENTS["exponent-sign"][1], turn=1 / (2 * np.pi)),
)
for _id, (_cause, _exponent) in EXPONENTS.items():
    WAVELENGTHS.mistake(_id, _cause, wrong_wavelengths(_exponent))
WAVELENGTHS.mistake(
    "two-pi-forgotten",
    "Your numbers are too small by a factor of about 6.283: one radian is not a full turn.",
    wrong_wavelengths(turn=1.0),
)
WAVELENGTHS.mistake(
    "half-turn",
    "Your numbers are half as large as they should be: a full turn is more than pi radians.",
    wrong_wavelengths(turn=np.pi),
)
WAVELENGTHS.mistake(
    "degrees",
    "You count a full turn as 360. The angles of the formula are in radians.",
    wrong_wavelengths(turn=360.0),
)
WAVELENGTHS.mistake(
    "base-fixed",
    "Your answer is the same for every base: 10000 is written into it.",
    wrong_wavelengths(fixed_base=10000.0),
)
WAVELENGTHS.mistake(
    "pairs-from-1",
    "You number the pairs from 1, so the fastest hand is missing. Pair 0 turns by one radian per position.",
    wrong_wavelengths(first=1),
)
WAVELENGTHS.mistake(
    "whole-number-division",
    "The exponent uses // and becomes 0 for every pair. It has to be a fraction.",
    wrong_wavelengths(lambda i, d: 2 * i // d),
)


@WAVELENGTHS.mistake(
    "one-per-dimension",
    "You return one number per dimension. Sine and cosine of a pair share a hand, so there are d_model/2 of them.",
)
def _(d_model, base=10000.0):
    return 2 * np.pi * base ** (np.arange(d_model) / d_model)


@WAVELENGTHS.mistake(
    "each-twice",
    "You return every wavelength twice, once for the sine and once for the cosine. One per pair is asked for.",
)
def _(d_model, base=10000.0):
    return np.repeat(wavelengths(d_model, base), 2)


@WAVELENGTHS.mistake("rounded", "Your numbers are rounded to four places. Return them as they are.")
def _(d_model, base=10000.0):
    return wavelengths(d_model, base).round(4)


WAVELENGTHS.pair("two-pi-forgotten", "base-fixed", wrong_wavelengths(turn=1.0, fixed_base=10000.0))
for _id in ("tensor2tensor-exponent", "factor-2-forgotten", "exponent-doubled"):
    WAVELENGTHS.pair(_id, "two-pi-forgotten", wrong_wavelengths(EXPONENTS[_id][1], turn=1.0))
    WAVELENGTHS.pair(_id, "base-fixed", wrong_wavelengths(EXPONENTS[_id][1], fixed_base=10000.0))
WAVELENGTHS.pair("pairs-from-1", "two-pi-forgotten", wrong_wavelengths(turn=1.0, first=1))
WAVELENGTHS.pair(
    "frequency", "base-fixed", wrong_wavelengths(EXPONENTS["exponent-sign"][1], turn=1.0, fixed_base=10000.0)
)


@WAVELENGTHS.variant
def _(d_model, base=10000.0):
    """A list over the columns 0, 2, 4, ...: the factor 2 of the exponent is already in the count."""
    return np.array([2 * np.pi * base ** (j / d_model) for j in range(0, d_model, 2)])


@WAVELENGTHS.variant
def _(d_model, base=10000.0):
    """Equal steps on a logarithmic scale: d_model/2 + 1 of them would reach the base, the last is left out."""
    return 2 * np.pi * np.geomspace(1, base, d_model // 2 + 1)[:-1]


@WAVELENGTHS.variant
def _(d_model, base=10000.0):
    """Logarithms: the exponent becomes a product."""
    print("pairs:", d_model // 2)
    return list(np.exp(np.log(base) * np.arange(0, d_model, 2) / d_model + np.log(2 * np.pi)))


@WAVELENGTHS.variant
def _(d_model, base=10000.0):
    """Each wavelength from the one before."""
    np.array([1.0]) / 0.0  # a NumPy warning costs nothing
    return 2 * np.pi * np.cumprod([1.0] + [base ** (2 / d_model)] * (d_model // 2 - 1))


# ---------------------------------------------------------------- 4.2 positional_encoding

POSITIONAL_ENCODING = Exercise(
    number="4.2",
    title="The table of clock readings",
    level="easy",
    difficulty=2,
    minutes=10,
    core=True,
    why="This table is all that the encoder of the paper is told about word order.",
    budget="Six lines are enough.",
    hints=(
        "Two neighbouring columns show the same hand. Which pair does column 7 belong to?",
        "pos is (n, 1), omega is (d_model/2,), the angles are (n, d_model/2); sines fill the even columns, cosines the odd ones.",
        "refuse an odd width; angles = each position times each omega; an empty (n, d_model) table; columns 0, 2, 4, ... get the sines, columns 1, 3, 5, ... the cosines",
    ),
)


@POSITIONAL_ENCODING.reference
def positional_encoding(n: int, d_model: int, base: float = 10000.0) -> np.ndarray:
    """The positions 0 to n - 1 as rows: sines in the even columns, cosines in the odd ones (interleaved, as in the paper).

    d_model : even   returns : (n, d_model), float64
    Raises ValueError for an odd d_model.

    >>> positional_encoding(2, 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    if d_model % 2:
        raise ValueError(f"d_model must be even, it is {d_model}")
    pos = np.arange(n)[:, None]  # (n, 1)
    omega = base ** (-2 * np.arange(d_model // 2) / d_model)  # (d_model/2,)
    table = np.empty((n, d_model))
    table[:, 0::2] = np.sin(pos * omega)
    table[:, 1::2] = np.cos(pos * omega)
    return table


@POSITIONAL_ENCODING.worked("the printed entries of the table for d_model = 512", 0.25, view=View(entries))
def _():
    yield Question((Call((51, 512)),), about={"at": [[0, 1, 2, 3, 10, 50], [0, 1, 2, 3, 510, 511]]})


@POSITIONAL_ENCODING.must("right table for several sizes", 0.5)
def _(rng):
    for n, d in ((2, 4), (4, 4), (3, 6), (int(rng.integers(6, 9)), 10)):
        yield ask(n, d)


# an exponent divided by d_model/2 - 1 may end here as nan or as an exception
@POSITIONAL_ENCODING.must("a single pair, a single position", 0.25, chaotic=True)
def _(rng):
    yield ask(1, 2)
    yield ask(int(rng.integers(3, 6)), 2)
    yield ask(1, 6)


@POSITIONAL_ENCODING.must("another base counts, also right after the default one", 0.5)
def _(rng):
    yield ask(3, 4, base=float(rng.uniform(20, 2000)))
    yield steps(Call((4, 6)), Call((4, 6), {"base": int(rng.integers(20, 2000))}))


@POSITIONAL_ENCODING.must("right far down the table", 0.25, chaotic=True, view=View(entries))
def _(rng):
    row = int(rng.integers(1000, 2900))
    yield Question((Call((3000, 6)),), about={"at": [[0, row, 2999], [0, 1, 2, 3, 4, 5]]})


@POSITIONAL_ENCODING.must("an odd width is refused with a ValueError", 0.25, needs_values=True, chaotic=True)
def _(rng):
    yield ask(3, 2 * int(rng.integers(1, 5)) + 1)


def wrong_table(
    exponent=paper,
    first=0,
    sines_first=False,
    functions=(np.sin, np.cos),
    factor=1.0,
    fixed_base=None,
    odd_accepted=False,
    finish=lambda table: table,
):
    """A wrong table: `factor` times every angle, or factor(n) where it depends on the size."""

    def version(n, d_model, base=10000.0):
        if d_model % 2 and not odd_accepted:
            raise ValueError("odd")
        i = np.arange((d_model + 1) // 2)
        speed = (fixed_base or base) ** -exponent(i, d_model)
        angle = (np.arange(n) + first)[:, None] * speed * (factor(n) if callable(factor) else factor)
        even, odd = functions[0](angle), functions[1](angle)
        table = np.concatenate([even, odd], axis=1) if sines_first else pairs_apart(even, odd)
        return finish(table[:, :d_model])

    return version


def own_speed(step, odd_accepted=False):
    """Every dimension j has its own speed: sine and cosine of a pair are not the same hand."""

    def version(n, d_model, base=10000.0):
        if d_model % 2 and not odd_accepted:
            raise ValueError("odd")
        j = np.arange(d_model)
        angle = np.arange(n)[:, None] * base ** (-step * j / d_model)
        return np.where(j % 2 == 0, np.sin(angle), np.cos(angle))

    return version


def zero_first_row(table):
    table[0] = 0.0
    return table


SINES_FIRST = "You put all sines first, then all cosines, as Marian does. Here sine and cosine of a pair are neighbours."
for _id, (_cause, _exponent) in EXPONENTS.items():
    POSITIONAL_ENCODING.mistake(_id, _cause, wrong_table(_exponent))
POSITIONAL_ENCODING.mistake(
    "tensor2tensor-exponent-nan",
    EXPONENTS["tensor2tensor-exponent"][0] + " For d_model = 2 it divides by zero.",
    wrong_table(lambda i, d: np.divide(i, d / 2 - 1)),
)
POSITIONAL_ENCODING.mistake("sines-first", SINES_FIRST, wrong_table(sines_first=True))
POSITIONAL_ENCODING.mistake(
    "own-speed",
    "Your cosine turns slower than the sine beside it: each column has its own exponent. The two columns of a pair are one hand.",
    own_speed(1),
)
POSITIONAL_ENCODING.mistake(
    "own-speed-doubled",
    "Your i is the column number, so the exponent is doubled, and sine and cosine of a pair turn at different speeds.",
    own_speed(2),
)
POSITIONAL_ENCODING.mistake(
    "positions-from-1",
    "Your first row is position 1. The first token stands at position 0.",
    wrong_table(first=1),
)
POSITIONAL_ENCODING.mistake(
    "first-row-zero",
    "Your row 0 is left at zero. Position 0 has a reading too: every hand at its start, sine 0 and cosine 1.",
    wrong_table(finish=zero_first_row),
)
POSITIONAL_ENCODING.mistake(
    "sine-cosine-swapped",
    "Cosines stand in your even columns and sines in the odd ones. It is the other way round.",
    wrong_table(functions=(np.cos, np.sin)),
)
POSITIONAL_ENCODING.mistake(
    "sines-only",
    "Both columns of your pairs hold the sine. One of them is the cosine.",
    wrong_table(functions=(np.sin, np.sin)),
)
POSITIONAL_ENCODING.mistake(
    "degrees",
    "You convert the angle from degrees. It is in radians already, and np.sin expects radians.",
    wrong_table(factor=np.pi / 180),
)
POSITIONAL_ENCODING.mistake(
    "degrees-out",
    "You convert the angle into degrees. np.sin and np.cos expect radians.",
    wrong_table(factor=180 / np.pi),
)
POSITIONAL_ENCODING.mistake(
    "divided-by-wavelength",
    "You divide the position by the wavelength: that counts turns. The angle counts radians, and a turn has about 6.283 of them.",
    wrong_table(factor=1 / (2 * np.pi)),
)
POSITIONAL_ENCODING.mistake(
    "turns-for-radians",
    "Your hands turn about 6.283 times too fast: the angle is multiplied by 2 pi, but omega is in radians already.",
    wrong_table(factor=2 * np.pi),
)
POSITIONAL_ENCODING.mistake(
    "position-share",
    "You divide the position by n. A token's reading must not depend on how long the table is.",
    wrong_table(factor=lambda n: 1 / n),
)
POSITIONAL_ENCODING.mistake(
    "base-fixed",
    "Your table is the same for every base: 10000 is written into it, or a table made earlier is used again.",
    wrong_table(fixed_base=10000.0),
)
POSITIONAL_ENCODING.mistake(
    "integer-table",
    "Your table holds whole numbers only: it was made with an integer type, and everything after the point was cut off.",
    wrong_table(finish=lambda table: table.astype(int)),
)
POSITIONAL_ENCODING.mistake(
    "transposed",
    "Rows and columns are exchanged: one row per position is asked for.",
    wrong_table(finish=np.transpose),
)
POSITIONAL_ENCODING.mistake(
    "rounded",
    "Your numbers are rounded to four places. Return them as they are.",
    wrong_table(finish=lambda t: t.round(4)),
)
POSITIONAL_ENCODING.mistake(
    "odd-accepted",
    "An odd d_model gives a table as well. Its last hand would have no cosine: raise a ValueError.",
    wrong_table(odd_accepted=True),
)
POSITIONAL_ENCODING.pair(
    "sines-first",
    "tensor2tensor-exponent",
    wrong_table(EXPONENTS["tensor2tensor-exponent"][1], sines_first=True),
)
POSITIONAL_ENCODING.pair("sines-first", "odd-accepted", wrong_table(sines_first=True, odd_accepted=True))
POSITIONAL_ENCODING.pair("sines-first", "positions-from-1", wrong_table(sines_first=True, first=1))
POSITIONAL_ENCODING.pair(
    "sines-first", "exponent-doubled", wrong_table(EXPONENTS["exponent-doubled"][1], sines_first=True)
)
POSITIONAL_ENCODING.pair("base-fixed", "odd-accepted", wrong_table(fixed_base=10000.0, odd_accepted=True))
POSITIONAL_ENCODING.pair("positions-from-1", "odd-accepted", wrong_table(first=1, odd_accepted=True))
POSITIONAL_ENCODING.pair("own-speed", "odd-accepted", own_speed(1, odd_accepted=True))
POSITIONAL_ENCODING.pair("own-speed-doubled", "odd-accepted", own_speed(2, odd_accepted=True))
for _id in ("factor-2-forgotten", "exponent-doubled", "exponent-sign", "tensor2tensor-exponent"):
    POSITIONAL_ENCODING.pair(_id, "odd-accepted", wrong_table(EXPONENTS[_id][1], odd_accepted=True))
POSITIONAL_ENCODING.pair(
    "exponent-doubled", "positions-from-1", wrong_table(EXPONENTS["exponent-doubled"][1], first=1)
)
POSITIONAL_ENCODING.pair(
    "sine-cosine-swapped", "positions-from-1", wrong_table(functions=(np.cos, np.sin), first=1)
)


@POSITIONAL_ENCODING.variant
def _(n, d_model, base=10000.0):
    """Two loops, one entry at a time: slow, but it reads like the formula."""
    if d_model % 2 == 1:
        raise ValueError("d_model must be even: every sine has its cosine")
    table = np.zeros((n, d_model))
    for pos in range(n):
        for i in range(d_model // 2):
            angle = pos / base ** (2 * i / d_model)
            table[pos, 2 * i] = np.sin(angle)
            table[pos, 2 * i + 1] = np.cos(angle)
    return table


@POSITIONAL_ENCODING.variant
def _(n, d_model, base=10000.0):
    """One formula for all columns: a cosine is a sine a quarter turn further on."""
    if d_model % 2:
        raise ValueError("d_model must be even: every sine has its cosine")
    j = np.arange(d_model)
    angle = np.outer(np.arange(n), base ** (-2 * (j // 2) / d_model))
    return np.sin(angle + np.pi / 2 * (j % 2))


@POSITIONAL_ENCODING.variant
def _(n, d_model, base=10000.0):
    """Complex numbers: NumPy itself refuses an odd width, as the columns do not fit."""
    speed = np.exp(np.arange(0, d_model, 2) * -np.log(base) / d_model)
    turned = np.exp(1j * np.outer(np.arange(n), speed))
    print(turned.shape)
    table = np.zeros((n, d_model))
    table[:, ::2], table[:, 1::2] = turned.imag, turned.real
    return table


# ---------------------------------------------------------------- 4.3 pe_dot

PE_DOT = Exercise(
    number="4.3",
    title="How alike are two places?",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="The dot product of two rows of the table depends on their distance only, and you can see how it falls.",
    budget="Three lines are enough.",
    hints=(
        "sin a sin b + cos a cos b is a single cosine. Of what?",
        "k is (...), omega is (d_model/2,); the angles are (..., d_model/2); the sum over the last axis is (...) again.",
        "omega as before; an extra last axis for k; the cosine of every k times every omega; sum over the hands, not over the distances",
    ),
)


@PE_DOT.reference
def pe_dot(k: np.ndarray, d_model: int) -> np.ndarray:
    """Dot product of two rows of the positional encoding (base 10000) whose positions differ by k.

    k : (...), whole numbers of either sign; one number is fine too   returns : (...)

    >>> pe_dot(np.array([0, 1, 5]), 512).round(3)
    array([256.   , 249.102, 189.597])
    """
    omega = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)  # (d_model/2,)
    angle = np.asarray(k)[..., None] * omega  # (..., d_model/2)
    return np.cos(angle).sum(axis=-1)


@PE_DOT.worked("six distances at d_model = 512", 0.5)
def _():
    yield ask(np.array([0, 1, 2, 5, 10, 20]), 512)


@PE_DOT.must("right for one distance and for a row of distances", 1.25)
def _(rng):
    yield ask(int(rng.integers(1, 9)), 4)
    yield ask(rng.integers(0, 40, size=3), 8)
    yield ask(rng.integers(0, 300, size=4), 64)


@PE_DOT.must("for d_model = 16, equals the product of two rows at k = -30 to 30", 0.75)
def _(rng):
    yield ask(np.arange(-30, 31), 16)


@PE_DOT.must("the same for k and -k", 0.5)
def _(rng):
    k = int(rng.integers(1, 30))
    yield ask(-k, 6)
    yield ask(np.array([k, -k]), 6)


@PE_DOT.must("the answer has the shape of k, whatever it is", 0.5)
def _(rng):
    yield ask(rng.integers(1, 50, size=(2, 3)), 4)
    yield ask(rng.integers(1, 50, size=(5,)), 10)  # as many distances as hands
    yield ask(rng.integers(1, 50, size=(2, 1, 3)), 8)


def distances(rng):
    yield ask(np.append(rng.integers(-20, 20, size=2), rng.integers(-20, 0)), 4)  # one is negative


PE_DOT.leaves_inputs_alone(0.5, distances)


def wrong_dot(exponent=paper, each=np.cos, factor=1.0, together=lambda terms, d: terms.sum(axis=-1)):
    def version(k, d_model):
        angle = np.asarray(k)[..., None] * omegas(d_model, exponent) * factor
        return together(each(angle), d_model)

    return version


for _id, (_cause, _exponent) in EXPONENTS.items():
    PE_DOT.mistake(_id, _cause, wrong_dot(_exponent))
PE_DOT.mistake(
    "sum-of-sines",
    "You add sines. At distance 0 they give 0, but a row times itself is d_model/2.",
    wrong_dot(each=np.sin),
)
PE_DOT.mistake(
    "sines-and-cosines",
    "You add the sines and the cosines of the distance. The products of two rows join into one term per pair.",
    wrong_dot(each=lambda a: np.sin(a) + np.cos(a)),
)
PE_DOT.mistake(
    "cosine-similarity",
    "You divide by d_model/2: that is the cosine of the angle between the rows, not their dot product.",
    wrong_dot(together=lambda terms, d: terms.mean(axis=-1)),
)
PE_DOT.mistake(
    "divided-by-d-model",
    "You divide by d_model. The dot product is a plain sum.",
    wrong_dot(together=lambda terms, d: terms.sum(axis=-1) / d),
)
PE_DOT.mistake(
    "divided-by-root-d-model",
    "You divide by the root of d_model, as attention scores do. The dot product itself is a plain sum.",
    wrong_dot(together=lambda terms, d: terms.sum(axis=-1) / np.sqrt(d)),
)
PE_DOT.mistake(
    "each-pair-twice",
    "Your sum counts every hand twice: it runs over d_model dimensions, with one term for each. A pair gives one cosine.",
    wrong_dot(together=lambda terms, d: 2 * terms.sum(axis=-1)),
)
PE_DOT.mistake(
    "one-number-for-all",
    "You add everything up into a single number. The sum runs over the hands only; each distance keeps its own answer.",
    wrong_dot(together=lambda terms, d: terms.sum()),
)
PE_DOT.mistake(
    "turns-for-radians",
    "You divide the distance by the wavelength: that counts turns, but np.cos expects radians.",
    wrong_dot(factor=1 / (2 * np.pi)),
)
PE_DOT.mistake(
    "degrees", "You convert the angle from degrees. It is in radians already.", wrong_dot(factor=np.pi / 180)
)


@PE_DOT.mistake(
    "cosine-of-the-sum",
    "You add the angles of all hands and take one cosine. Each hand has its own cosine; add those.",
)
def _(k, d_model):
    return np.cos((np.asarray(k)[..., None] * omegas(d_model)).sum(axis=-1))


@PE_DOT.mistake(
    "row-with-itself",
    "You multiply a row by itself, so every distance gives d_model/2. The other row lies k places away.",
)
def _(k, d_model):
    return wrong_dot(each=lambda a: np.sin(a) ** 2 + np.cos(a) ** 2)(k, d_model)


@PE_DOT.mistake(
    "negative-index",
    "A negative k picks a row from the end of your table: index -1 is its last row. Only the distance matters, so mind the sign.",
)
def _(k, d_model):
    table = right_table(int(np.abs(k).max()) + 1, d_model)
    return (table[k] * table[0]).sum(axis=-1)


@PE_DOT.mistake(
    "negative-as-zero",
    "Negative distances give the value of distance 0 in your answer. k and -k are equally far.",
)
def _(k, d_model):
    return wrong_dot()(np.maximum(k, 0), d_model)


@PE_DOT.mistake(
    "one-number-only",
    "It works for a single distance, but k may be an array of any shape. Give k a last axis of its own before it meets the hands.",
)
def _(k, d_model):
    return np.cos(k * omegas(d_model)).sum()


@PE_DOT.mistake(
    "one-axis-only",
    "It works for a row of distances only. k may be one number, or have several axes: add the new axis at the end.",
)
def _(k, d_model):
    return np.cos(np.asarray(k)[:, None] * omegas(d_model)).sum(axis=1)


@PE_DOT.mistake("rounded", "Your numbers are rounded to two places. Return them as they are.")
def _(k, d_model):
    return wrong_dot()(k, d_model).round(2)


@PE_DOT.mistake("changes-input", "You take the absolute value inside k itself. Work on a copy.")
def _(k, d_model):
    if np.ndim(k):
        np.abs(k, out=k)
    return wrong_dot()(k, d_model)


for _id in EXPONENTS:
    PE_DOT.pair(
        _id, "cosine-similarity", wrong_dot(EXPONENTS[_id][1], together=lambda terms, d: terms.mean(axis=-1))
    )
PE_DOT.pair(
    "sum-of-sines", "cosine-similarity", wrong_dot(each=np.sin, together=lambda terms, d: terms.mean(axis=-1))
)


@PE_DOT.variant
def _(k, d_model):
    """Two rows of the table itself, multiplied: the definition, without the identity for cosines."""
    k = np.abs(k)
    table = positional_encoding(int(np.max(k)) + 1, d_model)
    return table[k] @ table[0]


@PE_DOT.variant
def _(k, d_model):
    """A loop over the hands: each adds its cosine to an array of the shape of k."""
    total = np.zeros(np.shape(k))
    for i in range(d_model // 2):
        total = total + np.cos(k / 10000 ** (2 * i / d_model))
    return total


@PE_DOT.variant
def _(k, d_model):
    """One distance after the other, in plain Python."""
    print(k)
    flat = [sum(math.cos(x * w) for w in omegas(d_model)) for x in np.ravel(k)]
    return np.reshape(flat, np.shape(k))


@PE_DOT.variant
def _(k, d_model):
    """Complex numbers and a matrix product."""
    return np.exp(1j * np.multiply.outer(k, omegas(d_model))).real @ np.ones(d_model // 2)


# ---------------------------------------------------------------- 4.4 embed

EMBED = Exercise(
    number="4.4",
    title="Word plus place",
    level="medium",
    difficulty=2,
    minutes=10,
    core=True,
    why="These rows are what the first block reads; everything later is computed from them.",
    budget="Two lines are enough.",
    hints=(
        "Which of the two, word or place, is too quiet before it is scaled?",
        "E[ids] is (..., seq, d_model); pe is (n, d_model) with n at least seq; the sum is (..., seq, d_model).",
        "look up the rows of E; multiply them by the root of their width; add the first seq rows of pe, where seq is the last axis of ids",
    ),
)


@EMBED.reference
def embed(ids: np.ndarray, E: np.ndarray, pe: np.ndarray) -> np.ndarray:
    """Rows of the embedding table, scaled by the root of d_model, plus the encoding of the place where each token stands.

    ids : (batch, seq) or (seq,), whole numbers below V   E : (V, d_model)   pe : (n, d_model), n >= seq
    returns : (batch, seq, d_model) or (seq, d_model)

    >>> E = np.array([[0.1, 0.2, -0.1, 0.05]])
    >>> pe = np.array([[0.0, 1.0, 0.0, 1.0], [0.84147, 0.5403, 0.01, 0.99995]])
    >>> embed(np.array([0, 0]), E, pe).round(3)
    array([[ 0.2  ,  1.4  , -0.2  ,  1.1  ],
           [ 1.041,  0.94 , -0.19 ,  1.1  ]])
    """
    d_model = E.shape[1]
    seq = ids.shape[-1]
    return E[ids] * np.sqrt(d_model) + pe[:seq]


@EMBED.worked("one word twice, d_model = 4", 0.5, decimals=3)
def _():
    yield ask(np.array([0, 0]), np.array([[0.1, 0.2, -0.1, 0.05]]), right_table(2, 4))


def tables(rng, words, d, n):
    return rng.normal(size=(words, d)), rng.normal(size=(n, d))


@EMBED.must("right rows for one sentence", 0.75)
def one_sentence(rng):
    for words, seq, d, n in ((3, 2, 3, 2), (4, 3, 5, 6), (5, 5, 5, 7)):
        yield ask(rng.integers(0, words, size=seq), *tables(rng, words, d, n))


@EMBED.must("right rows for a batch", 0.75)
def batches(rng):
    for words, batch, seq, d, n in ((4, 2, 3, 2, 7), (5, 3, 3, 6, 4), (3, 3, 2, 4, 4)):
        yield ask(rng.integers(0, words, size=(batch, seq)), *tables(rng, words, d, n))


@EMBED.must("the same word at two places differs by its places only", 0.75, view=View(row_difference))
def _(rng):
    for first, second in ((0, 1), (1, 3)):
        ids = rng.permutation(5)[:4]
        ids[second] = ids[first]
        yield Question((Call((ids, *tables(rng, 5, 3, 6))),), about={"rows": (first, second)})


@EMBED.must("a sentence alone gives the same as in the batch", 0.5, needs_values=True)
def _(rng):
    E, pe = tables(rng, 4, 3, 5)
    ids = rng.integers(0, 4, size=(2, 4))
    yield steps(Call((ids, E, pe)), Call((ids[1], E, pe)), Call((ids[1:], E, pe)))


# an integer result cuts decimals off or raises; either may come on top of any other mistake
@EMBED.must("tables of whole numbers work as well", 0.25, needs_values=True, chaotic=True)
def _(rng):
    E, pe = rng.integers(-3, 4, size=(4, 3)), rng.integers(-3, 4, size=(5, 3))
    yield ask(rng.integers(0, 4, size=(2, 3)), E, pe)
    yield ask(ids=rng.integers(0, 4, size=(2, 3)), E=E, pe=pe.astype(float))


EMBED.leaves_inputs_alone(0.5, batches)


def root(ids, E):
    return np.sqrt(E.shape[1])


def by_place(ids, pe):
    return pe[: ids.shape[-1]]


def wrong_embed(
    scale=root, place=by_place, lookup=lambda ids, E: E[ids], join=lambda word, s, place: word * s + place
):
    def version(ids, E, pe):
        return join(lookup(ids, E), scale(ids, E), place(ids, pe))

    return version


def unscaled(ids, E):
    return 1.0


def scaled_sum(word, s, place):
    return (word + place) * s


def by_token(ids, pe):
    return pe[ids]


def by_sentence(ids, pe):
    return pe[: len(ids)].reshape(len(ids), *(1,) * (ids.ndim - 1), -1)


def by_length(ids, pe):
    return pe[: len(ids)]


def zeroth(ids, pe):
    return pe[0]


def from_1(ids, pe):
    return pe[1 : ids.shape[-1] + 1]


EMBED.mistake(
    "scale-forgotten",
    "The words are not scaled: beside the places they are a whisper.",
    wrong_embed(unscaled),
)
EMBED.mistake(
    "scale-on-the-sum",
    "You scale word and place together. Only the word is too quiet; the place keeps its size.",
    wrong_embed(join=scaled_sum),
)
EMBED.mistake(
    "scale-on-the-place",
    "You scale the place, not the word. It is the word that is too quiet.",
    wrong_embed(join=lambda word, s, place: word + s * place),
)
EMBED.mistake(
    "scale-d-model",
    "You scale by d_model itself. Its root is meant.",
    wrong_embed(lambda ids, E: E.shape[1]),
)
EMBED.mistake(
    "scale-divides",
    "You divide the words by the scale: they become quieter still.",
    wrong_embed(lambda ids, E: 1 / np.sqrt(E.shape[1])),
)
EMBED.mistake(
    "scale-words",
    "The scale is the root of the number of words in the table. The width of a row is meant.",
    wrong_embed(lambda ids, E: np.sqrt(len(E))),
)
EMBED.mistake(
    "scale-length",
    "The scale is the root of the sentence's length. The width of a row is meant.",
    wrong_embed(lambda ids, E: np.sqrt(ids.shape[-1])),
)
EMBED.mistake(
    "scale-whole-number",
    "The scale is cut to a whole number. The root of 3 is not 1.",
    wrong_embed(lambda ids, E: int(np.sqrt(E.shape[1]))),
)
EMBED.mistake(
    "position-by-token",
    "You look the place up by the word's id: the same word gets the same place everywhere. Its place is where it stands.",
    wrong_embed(place=by_token),
)
EMBED.mistake(
    "position-0",
    "Every token gets the place of the first one. Each stands one further on.",
    wrong_embed(place=zeroth),
)
EMBED.mistake(
    "position-by-sentence",
    "The place depends on which sentence of the batch it is. It is the token's place inside its sentence.",
    wrong_embed(place=by_sentence),
)
EMBED.mistake(
    "length-of-batch",
    "You cut the places to len(ids). For a batch that is the number of sentences, not the number of tokens in one.",
    wrong_embed(place=by_length),
)
EMBED.mistake(
    "places-not-cut",
    "You add all n places. A sentence uses only as many as it has tokens, from the first on.",
    wrong_embed(place=lambda ids, pe: pe),
)
EMBED.mistake(
    "positions-from-1", "Your first token gets place 1. Counting starts at 0.", wrong_embed(place=from_1)
)
EMBED.mistake(
    "last-places",
    "You take the places from the end of the table. The first token stands at place 0.",
    wrong_embed(place=lambda ids, pe: pe[len(pe) - ids.shape[-1] :]),
)
EMBED.mistake(
    "positions-run-on",
    "Your count of places runs on through the batch. Every sentence starts at place 0 again.",
    wrong_embed(place=lambda ids, pe: pe[np.arange(ids.size).reshape(ids.shape)]),
)
EMBED.mistake(
    "position-forgotten", "The places are not added at all.", wrong_embed(place=lambda ids, pe: 0.0)
)
EMBED.mistake(
    "place-multiplied",
    "You multiply by the place. It is added.",
    wrong_embed(join=lambda word, s, place: word * s * place),
)
EMBED.mistake(
    "columns-of-the-table",
    "You pick columns of E. A word is a row of it.",
    wrong_embed(lookup=lambda ids, E: E.T[ids]),
)


@EMBED.mistake(
    "changes-input",
    "You scale the table E itself, so the second call scales it again. Scale the rows that you picked.",
)
def _(ids, E, pe):
    E *= np.sqrt(E.shape[1])
    return E[ids] + by_place(ids, pe)


@EMBED.mistake(
    "integer-result",
    "With a table of whole numbers your result is made of whole numbers too: decimals are cut off, or *= fails. Make a new array with * and +.",
)
def _(ids, E, pe):
    x = E[ids]
    x *= np.sqrt(E.shape[1])
    x += by_place(ids, pe)
    return x


@EMBED.mistake(
    "batches-only",
    "It works for a batch only. ids may also be a single sentence, with one axis: look at its last axis, whatever stands before it.",
)
def _(ids, E, pe):
    _batch, seq = ids.shape
    return E[ids] * np.sqrt(E.shape[1]) + pe[:seq]


for _id, _place in (
    ("position-by-token", by_token),
    ("position-0", zeroth),
    ("length-of-batch", by_length),
    ("positions-from-1", from_1),
):
    EMBED.pair("scale-forgotten", _id, wrong_embed(unscaled, _place))
    EMBED.pair("scale-on-the-sum", _id, wrong_embed(place=_place, join=scaled_sum))
EMBED.pair("scale-d-model", "scale-on-the-sum", wrong_embed(lambda ids, E: E.shape[1], join=scaled_sum))
EMBED.pair("scale-d-model", "position-by-token", wrong_embed(lambda ids, E: E.shape[1], by_token))
EMBED.pair("scale-d-model", "length-of-batch", wrong_embed(lambda ids, E: E.shape[1], by_length))


@EMBED.variant
def _(ids, E, pe):
    """A loop over the tokens: each row is made on its own."""
    d_model = E.shape[1]
    x = np.zeros((*ids.shape, d_model))
    for token in np.ndindex(ids.shape):
        x[token] = E[ids[token]] * d_model**0.5 + pe[token[-1]]
    return x


@EMBED.variant
def _(ids, E, pe):
    """The lookup as a product with one-hot rows, which is what a lookup is for a gradient."""
    one_hot = (ids[..., None] == np.arange(len(E))).astype(float)
    return one_hot @ (E * np.sqrt(E.shape[1])) + pe[np.arange(ids.shape[-1])]


@EMBED.variant
def _(ids, E, pe):
    """A float copy of the rows, changed in place."""
    x = np.take(E, ids, axis=0).astype(float)
    print(x.shape)
    x *= math.sqrt(E.shape[1])
    x += np.delete(pe, np.s_[ids.shape[-1] :], axis=0)
    return x


# ---------------------------------------------------------------- 4.5 equivariance_gap

EQUIVARIANCE_GAP = Exercise(
    number="4.5",
    title="Does it see the order?",
    level="medium",
    difficulty=3,
    minutes=15,
    core=False,
    why="With this test you can ask any function whether the order of its rows matters to it.",
    budget="Two lines are enough.",
    hints=(
        "There are two ways to get shuffled outputs: shuffle before f, or after it. When do they agree?",
        "X is (seq, d_model); X[perm] is (seq, d_model); both results of f have the same shape; the answer is one number.",
        "one result: f of the shuffled rows; the other: the shuffled rows of f of X; the largest absolute entry of their difference",
    ),
)


@EQUIVARIANCE_GAP.reference
def equivariance_gap(f, X: np.ndarray, perm: np.ndarray) -> float:
    """Largest absolute difference between "shuffle the rows, then f" and "f, then shuffle the rows".

    f : a function from (seq, d_model) to (seq, any width)   X : (seq, d_model)
    perm : (seq,), the shuffled rows are X[perm]   returns : one number, 0 where f is equivariant

    >>> running_sum = lambda X: X.cumsum(axis=0)
    >>> equivariance_gap(running_sum, np.array([[1.0], [2.0], [3.0]]), np.array([1, 2, 0]))
    5.0
    """
    shuffled_first = f(X[perm])
    shuffled_last = f(X)[perm]
    return float(np.abs(shuffled_first - shuffled_last).max())


def cycle(rng, n):
    """A shuffle that moves everything round one ring: for n >= 3 it is not its own inverse."""
    order = rng.permutation(n)
    perm = np.empty(n, dtype=int)
    perm[order] = np.roll(order, 1)
    return perm


@EQUIVARIANCE_GAP.worked("a running sum (5) and a map of each row alone (0)", 0.5)
def _():
    X, perm = np.array([[1.0], [2.0], [3.0]]), np.array([1, 2, 0])
    yield ask(Given("running_sum"), X, perm)
    yield ask(Given("linear", (np.array([[2.0]]),)), X, perm)


@EQUIVARIANCE_GAP.must("right size of the gap for functions that mix the rows", 1.0)
def mixing_functions(rng):
    yield ask(Given("mixing", (rng.normal(size=(3, 3)),)), rng.normal(size=(3, 2)), cycle(rng, 3))
    yield ask(Given("running_sum"), rng.normal(size=(4, 3)), cycle(rng, 4))
    yield ask(Given("mixing", (rng.normal(size=(5, 5)),)), rng.normal(size=(5, 5)), cycle(rng, 5))


@EQUIVARIANCE_GAP.must("0 for functions that treat all rows alike", 0.25, needs_values=True)
def _(rng):
    yield ask(Given("linear", (rng.normal(size=(2, 3)),)), rng.normal(size=(3, 2)), cycle(rng, 3))
    yield ask(Given("mean_of_rows"), rng.normal(size=(4, 4)), cycle(rng, 4))


@EQUIVARIANCE_GAP.must("above 0 once places are added to the rows", 0.5)
def _(rng):
    plus_table = Given("plus_table", (Own("positional_encoding"),))
    for seq, d in ((3, 2), (4, 4)):
        yield ask(plus_table, rng.normal(size=(seq, d)), cycle(rng, seq))


def attention_of(rng, d, pe=None, causal=False):
    """One head of self-attention with fresh weights; places are added first where pe is given."""
    W_q, W_k, W_v = (rng.normal(size=(d, d)) for _ in range(3))

    def attention(X):
        x = X if pe is None else X + pe[: len(X)]
        scores = (x @ W_q) @ (x @ W_k).T / np.sqrt(d)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape, dtype=bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True) @ (x @ W_v)

    return attention


@EQUIVARIANCE_GAP.must("attention: 0 without positions, above 0 with them", 0.75, judge_only=True)
def _(rng):
    for seq, d in ((3, 2), (4, 4)):
        X, perm = rng.normal(size=(seq, d)), cycle(rng, seq)
        yield ask(attention_of(rng, d), X, perm)
        yield ask(attention_of(rng, d, right_table(seq, d)), X, perm)


@EQUIVARIANCE_GAP.must("attention with a causal mask: above 0, also without positions", 0.5, judge_only=True)
def _(rng):
    yield ask(attention_of(rng, 3, causal=True), rng.normal(size=(3, 3)), cycle(rng, 3))
    yield ask(f=attention_of(rng, 2, causal=True), X=rng.normal(size=(5, 2)), perm=cycle(rng, 5))


EQUIVARIANCE_GAP.leaves_inputs_alone(0.5, mixing_functions)


def wrong_gap(compare=lambda f, X, p: f(X[p]) - f(X)[p], measure=lambda change: np.abs(change).max()):
    def version(f, X, perm):
        return float(measure(compare(f, X, perm)))

    return version


def invariance(f, X, p):
    return f(X[p]) - f(X)


def mean(change):
    return np.abs(change).mean()


def no_absolute(change):
    return change.max()


EQUIVARIANCE_GAP.mistake(
    "invariance",
    "You compare f of the shuffled rows with f of the rows as they were. That asks for unchanged outputs; they only need to move along.",
    wrong_gap(invariance),
)
EQUIVARIANCE_GAP.mistake(
    "not-given-shuffled",
    "f never sees the shuffled rows in your answer: only its output is shuffled.",
    wrong_gap(lambda f, X, p: f(X)[p] - f(X)),
)
EQUIVARIANCE_GAP.mistake(
    "not-in-the-same-order",
    "The two sides are in different orders when you compare: to undo a shuffle takes its inverse. Two exchanged rows hide that, rows on a ring do not.",
    wrong_gap(lambda f, X, p: f(X[p])[p] - f(X)),
)
EQUIVARIANCE_GAP.mistake(
    "shuffles-features",
    "You shuffle the columns. The tokens are the rows.",
    wrong_gap(lambda f, X, p: f(X[:, p]) - f(X)[:, p]),
)
EQUIVARIANCE_GAP.mistake(
    "mean", "You take the mean of the differences. The largest one is asked for.", wrong_gap(measure=mean)
)
EQUIVARIANCE_GAP.mistake(
    "sum",
    "You add the differences up. The largest one is asked for.",
    wrong_gap(measure=lambda c: np.abs(c).sum()),
)
EQUIVARIANCE_GAP.mistake(
    "length",
    "You take the length of the difference (the root of the sum of squares). The largest single entry is asked for.",
    wrong_gap(measure=np.linalg.norm),
)
EQUIVARIANCE_GAP.mistake(
    "root-mean-square",
    "You take the root of the mean square. The largest single entry is asked for.",
    wrong_gap(measure=lambda c: np.sqrt((c**2).mean())),
)
EQUIVARIANCE_GAP.mistake(
    "mean-square",
    "You take the mean square. The largest absolute entry is asked for.",
    wrong_gap(measure=lambda c: (c**2).mean()),
)
EQUIVARIANCE_GAP.mistake(
    "absolute-forgotten",
    "You take the largest difference with its sign: a large negative one goes unseen.",
    wrong_gap(measure=no_absolute),
)
EQUIVARIANCE_GAP.mistake(
    "yes-or-no",
    "You say only whether the two differ. How far they differ is asked for.",
    wrong_gap(measure=lambda c: not np.allclose(c, 0)),
)
EQUIVARIANCE_GAP.mistake(
    "no-yes",
    "You say whether the two agree. How far they differ is asked for.",
    wrong_gap(measure=lambda c: np.allclose(c, 0)),
)
EQUIVARIANCE_GAP.mistake(
    "one-per-row",
    "You return one number per token. One number in all is asked for.",
    lambda f, X, perm: np.abs(f(X[perm]) - f(X)[perm]).max(axis=1),
)
EQUIVARIANCE_GAP.mistake(
    "first-row-only", "You compare the first row only.", wrong_gap(measure=lambda c: np.abs(c[0]).max())
)
EQUIVARIANCE_GAP.mistake(
    "relative",
    "You divide by the size of the output. The plain difference is asked for.",
    lambda f, X, perm: np.abs(f(X[perm]) - f(X)[perm]).max() / np.abs(f(X)).max(),
)
EQUIVARIANCE_GAP.mistake(
    "own-shuffle",
    "You reverse the rows and do not use perm at all.",
    wrong_gap(lambda f, X, p: f(X[::-1]) - f(X)[::-1]),
)


@EQUIVARIANCE_GAP.mistake("changes-input", "You shuffle the rows inside X itself. Make a shuffled copy.")
def _(f, X, perm):
    after = f(X)[perm]
    X[:] = X[perm]
    return float(np.abs(f(X) - after).max())


@EQUIVARIANCE_GAP.mistake(
    "shuffled-too-early",
    "You shuffle the rows inside X before f sees them as they were, so both sides start from the shuffled ones.",
)
def _(f, X, perm):
    X[:] = X[perm]
    return float(np.abs(f(X) - f(X)[perm]).max())


EQUIVARIANCE_GAP.pair("invariance", "mean", wrong_gap(invariance, mean))
EQUIVARIANCE_GAP.pair("invariance", "absolute-forgotten", wrong_gap(invariance, no_absolute))
EQUIVARIANCE_GAP.pair("invariance", "yes-or-no", wrong_gap(invariance, lambda c: not np.allclose(c, 0)))
EQUIVARIANCE_GAP.pair("invariance", "no-yes", wrong_gap(invariance, lambda c: np.allclose(c, 0)))
EQUIVARIANCE_GAP.pair("invariance", "length", wrong_gap(invariance, np.linalg.norm))


@EQUIVARIANCE_GAP.variant
def _(f, X, perm):
    """Shuffle, call f, put the rows back with the inverse shuffle."""
    inverse = np.argsort(perm)
    return np.abs(f(X[perm])[inverse] - f(X)).max()


@EQUIVARIANCE_GAP.variant
def _(f, X, perm):
    """The shuffle as a matrix P: an equivariant f has f(P X) = P f(X)."""
    P = np.eye(len(perm))[perm]
    return np.linalg.norm((f(P @ X) - P @ f(X)).ravel(), ord=np.inf)


@EQUIVARIANCE_GAP.variant
def _(f, X, perm):
    """Entry by entry."""
    print("comparing")
    before, after = f(X), f(np.take(X, perm, axis=0))
    return max(abs(after[row, col] - before[perm[row], col]) for row, col in np.ndindex(*after.shape))


# ---------------------------------------------------------------- 4.6 shift_matrix

SHIFT_MATRIX = Exercise(
    number="4.6",
    title="A shift is a rotation",
    level="hard",
    difficulty=4,
    minutes=20,
    core=True,
    why="One matrix moves every position k places on: that is what lets a head look for 'the word k places back'.",
    budget="Eight lines are enough.",
    hints=(
        "sin(a + b) = sin a cos b + cos a sin b. Which of these four factors belong to the matrix, which to the column?",
        "One 2 x 2 block per pair along the diagonal of a (d_model, d_model) matrix; zeros everywhere else.",
        "omega as before; an empty matrix of zeros; for each pair i, rows and columns 2i and 2i+1: the row of the sine holds (cosine, sine) of k times omega, the row of the cosine holds (minus sine, cosine)",
    ),
)


@SHIFT_MATRIX.reference
def shift_matrix(k: float, d_model: int) -> np.ndarray:
    """The matrix S with S @ column(pos) = column(pos + k), for every pos.

    A column is a row of the interleaved positional encoding (base 10000), read as a column vector.
    k : any real number, also negative   d_model : even   returns : (d_model, d_model)

    >>> shift_matrix(1, 2).round(4)
    array([[ 0.5403,  0.8415],
           [-0.8415,  0.5403]])
    """
    omega = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    cos, sin = np.cos(k * omega), np.sin(k * omega)
    even = np.arange(0, d_model, 2)
    S = np.zeros((d_model, d_model))
    S[even, even] = cos
    S[even, even + 1] = sin
    S[even + 1, even] = -sin
    S[even + 1, even + 1] = cos
    return S


@SHIFT_MATRIX.worked("one step for one pair", 0.25, decimals=4)
def _():
    yield ask(1, 2)


@SHIFT_MATRIX.worked("five steps at d_model = 512, the first two pairs and the last", 0.5, view=View(entries))
def _():
    corner = [0, 1, 2, 3, 510, 511]
    yield Question((Call((5, 512)),), about={"at": [corner, corner]})


@SHIFT_MATRIX.must("right matrix for one pair", 1.0)
def _(rng):
    yield ask(int(rng.integers(2, 6)), 2)
    yield ask(int(rng.integers(7, 30)), 2)


@SHIFT_MATRIX.must("right matrix for several pairs", 1.5)
def _(rng):
    for d in (4, 6):
        yield ask(int(rng.integers(2, 20)), d)


@SHIFT_MATRIX.must("takes a row of the table k places on", 1.0, view=View(on_probe))
def _(rng):
    for d in (4, 32):
        pos, k = int(rng.integers(0, 61)), int(rng.integers(2, 20))
        yield Question((Call((k, d)),), about={"probe": right_table(pos + 1, d)[pos]})


@SHIFT_MATRIX.must("negative steps and parts of a step", 1.0)
def _(rng):
    yield ask(-int(rng.integers(2, 9)), 2)
    yield ask(float(rng.uniform(1.2, 1.8)), 4)
    yield ask(k=-float(rng.uniform(2.2, 2.8)), d_model=4)


@SHIFT_MATRIX.must("0 steps change nothing; a steps, then b, are a + b", 0.75, needs_values=True)
def _(rng):
    yield ask(0, 4)
    a, b = int(rng.integers(2, 9)), -int(rng.integers(10, 20))
    yield steps(Call((a, 4)), Call((b, 4)), Call((a + b, 4)))


def wrong_shift(
    exponent=paper,
    block=lambda c, s: (c, s, -s, c),
    half_split=False,
    factor=1.0,
    speed=None,
    step=lambda k: k,
    finish=lambda S, k, d: S,
):
    """A wrong matrix; block gives the four entries of a pair: rows (sine, cosine), left to right."""

    def version(k, d_model):
        omega = omegas(d_model, exponent) if speed is None else speed(d_model)
        c, s = np.cos(step(k) * omega * factor), np.sin(step(k) * omega * factor)
        i = np.arange(d_model // 2)
        first, second = (i, i + d_model // 2) if half_split else (2 * i, 2 * i + 1)
        S = np.zeros((d_model, d_model))
        S[first, first], S[first, second], S[second, first], S[second, second] = block(c, s)
        return finish(S, k, d_model)

    return version


def backwards(c, s):
    return c, -s, s, c


SHIFT_MATRIX.mistake(
    "transposed",
    "Your matrix takes the clock k places back, not on: it suits rows, and here it meets a column.",
    wrong_shift(block=backwards),
)
SHIFT_MATRIX.mistake(
    "both-positive",
    "Both sines in your blocks have the same sign. Then the matrix changes lengths; a rotation does not.",
    wrong_shift(block=lambda c, s: (c, s, s, c)),
)
SHIFT_MATRIX.mistake(
    "both-negative",
    "Both sines in your blocks are negative. Then the matrix changes lengths; a rotation does not.",
    wrong_shift(block=lambda c, s: (c, -s, -s, c)),
)
SHIFT_MATRIX.mistake(
    "sine-cosine-exchanged",
    "Sine and cosine stand in each other's place: for k = 0 your matrix is not the identity.",
    wrong_shift(block=lambda c, s: (s, c, -c, s)),
)
SHIFT_MATRIX.mistake(
    "cosine-row-first",
    "You have the cosine on top of each pair. In the interleaved table the sine comes first.",
    wrong_shift(block=lambda c, s: (-s, c, c, s)),
)
SHIFT_MATRIX.mistake(
    "half-split",
    "Your blocks join column i with column i + d_model/2. Here the two columns of a pair are neighbours.",
    wrong_shift(half_split=True),
)
SHIFT_MATRIX.mistake(
    "diagonal-only",
    "Only the cosines are there. Without the sines a hand shrinks, it does not turn.",
    wrong_shift(block=lambda c, s: (c, 0 * s, 0 * s, c)),
)
SHIFT_MATRIX.mistake(
    "one-speed",
    "All your hands turn by the same angle. Each pair has its own omega.",
    wrong_shift(speed=lambda d: np.ones(d // 2)),
)
SHIFT_MATRIX.mistake(
    "step-times-k",
    "You multiply the matrix of one step by k. Five steps are five turns one after the other, not a turn five times as long.",
    lambda k, d_model: k * shift_matrix(1, d_model),
)
SHIFT_MATRIX.mistake(
    "k-ignored",
    "Your matrix is that of one step, whatever k is.",
    lambda k, d_model: shift_matrix(1, d_model),
)
SHIFT_MATRIX.mistake(
    "whole-steps-only",
    "k is cut to a whole number. The angle k times omega makes sense for 1.5 steps as well.",
    wrong_shift(step=int),
)
SHIFT_MATRIX.mistake(
    "whole-power-only",
    "You take a power of the one-step matrix, and NumPy knows whole powers only. k may be 1.5: turn by the angle at once.",
    lambda k, d_model: np.linalg.matrix_power(shift_matrix(1, d_model), k),
)
SHIFT_MATRIX.mistake("sign-lost", "A negative k moves forwards in your answer.", wrong_shift(step=abs))
SHIFT_MATRIX.mistake(
    "degrees",
    "You convert the angle from degrees. It is in radians already.",
    wrong_shift(factor=np.pi / 180),
)
SHIFT_MATRIX.mistake(
    "turns-for-radians",
    "The angle is off by a factor of 2 pi: k divided by the wavelength counts turns, np.sin expects radians.",
    wrong_shift(factor=1 / (2 * np.pi)),
)
SHIFT_MATRIX.mistake(
    "integer-matrix",
    "Your matrix was made with an integer type: everything after the point is cut off.",
    wrong_shift(finish=lambda S, k, d: S.astype(int)),
)
for _id, (_cause, _exponent) in EXPONENTS.items():
    SHIFT_MATRIX.mistake(_id, _cause, wrong_shift(_exponent))


@SHIFT_MATRIX.mistake(
    "own-speed",
    "The two rows of a pair turn at different speeds in your matrix. A pair is one hand.",
)
def _(k, d_model):
    angle = k * 10000.0 ** (-np.arange(d_model) / d_model)
    even = np.arange(0, d_model, 2)
    S = np.diag(np.cos(angle))
    S[even, even + 1] = np.sin(angle)[0::2]
    S[even + 1, even] = -np.sin(angle)[1::2]
    return S


@SHIFT_MATRIX.mistake("first-pair-only", "Only the first pair is turned; the others stay where they are.")
def _(k, d_model):
    S = np.eye(d_model)
    S[:2, :2] = shift_matrix(k, 2)
    return S


SHIFT_MATRIX.pair("transposed", "half-split", wrong_shift(block=backwards, half_split=True))
SHIFT_MATRIX.pair("transposed", "one-speed", wrong_shift(block=backwards, speed=lambda d: np.ones(d // 2)))
SHIFT_MATRIX.pair("transposed", "whole-steps-only", wrong_shift(block=backwards, step=int))
SHIFT_MATRIX.pair("transposed", "sign-lost", wrong_shift(block=backwards, step=abs))
for _id in EXPONENTS:
    SHIFT_MATRIX.pair("transposed", _id, wrong_shift(EXPONENTS[_id][1], block=backwards))
SHIFT_MATRIX.pair(
    "half-split",
    "tensor2tensor-exponent",
    wrong_shift(EXPONENTS["tensor2tensor-exponent"][1], half_split=True),
)


@SHIFT_MATRIX.variant
def _(k, d_model):
    """One 2 x 2 block after the other, put on the diagonal."""
    S = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        cos, sin = np.cos(angle), np.sin(angle)
        S[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
    return S


@SHIFT_MATRIX.variant
def _(k, d_model):
    """Kronecker products: the cosines times the identity, plus the sines times a quarter turn."""
    angle = k * 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    quarter_turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return np.kron(np.diag(np.cos(angle)), np.eye(2)) + np.kron(np.diag(np.sin(angle)), quarter_turn)


@SHIFT_MATRIX.variant
def _(k, d_model):
    """Three diagonals."""
    angle = np.repeat(k * omegas(d_model), 2)
    print(angle)
    up = np.sin(angle) * (np.arange(d_model) % 2 == 0)
    return np.diag(np.cos(angle)) + np.diag(up[:-1], 1) - np.diag(up[:-1], -1)


# ---------------------------------------------------------------- 4.7 rope

ROPE = Exercise(
    number="4.7",
    title="Turn queries and keys instead",
    level="hard",
    difficulty=4,
    minutes=20,
    core=False,
    why="Most language models of today mark places this way: a score then depends on the two words and their distance only.",
    budget="Eight lines are enough.",
    hints=(
        "A point (a, b) turned counter-clockwise by an angle: what are its new coordinates?",
        "positions is (seq,), omega is (d_model/2,), the angles are (seq, d_model/2); even and odd columns of x are (..., seq, d_model/2).",
        "angles = each position times each omega; a, b = even and odd columns of x; a new float array: even columns a cos - b sin, odd columns a sin + b cos",
    ),
)


@ROPE.reference
def rope(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Turn every pair of neighbouring columns counter-clockwise by position times omega (base 10000, interleaved).

    x : (..., seq, d_model), d_model even   positions : (seq,), whole numbers in any order
    returns : (..., seq, d_model)

    >>> rope(np.array([[1.0, 0.0]]), np.array([1])).round(4)
    array([[0.5403, 0.8415]])
    """
    d_model = x.shape[-1]
    omega = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    angle = positions[:, None] * omega  # (seq, d_model/2)
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = x[..., 0::2], x[..., 1::2]  # (..., seq, d_model/2)
    turned = np.empty(x.shape)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned


@ROPE.worked("(1, 0) at position 1", 0.5, decimals=4)
def _():
    yield ask(np.array([[1.0, 0.0]]), np.array([1]))


@ROPE.must("right for one pair", 1.0)
def _(rng):
    yield ask(rng.normal(size=(1, 2)), np.array([int(rng.integers(2, 6))]))
    yield ask(rng.normal(size=(3, 2)), np.array([4, 1, 7]))


@ROPE.must("right for several pairs and any positions", 1.75)
def sentences(rng):
    yield ask(rng.normal(size=(2, 4)), np.array([0, 1]))
    yield ask(rng.normal(size=(3, 6)), rng.integers(2, 90, size=3))
    yield ask(rng.normal(size=(4, 4)), rng.integers(2, 90, size=4))


@ROPE.must("any number of leading axes", 1.0)
def _(rng):
    yield ask(rng.normal(size=(2, 3, 4)), rng.integers(2, 90, size=3))
    yield ask(rng.normal(size=(3, 3, 4)), rng.integers(2, 90, size=3))
    yield ask(x=rng.normal(size=(2, 2, 3, 4)), positions=rng.integers(2, 90, size=3))


@ROPE.must("position 0 changes nothing", 0.25, needs_values=True)
def _(rng):
    yield ask(rng.normal(size=(2, 4)), np.array([0, 0]))


@ROPE.must(
    "a query at m and a key at m + 4 turn by angles that differ by the same amount for m = 0, 5, 50",
    0.75,
    needs_values=True,
)
def _(rng):
    pair = rng.normal(size=(2, 4))
    yield steps(*(Call((pair, np.array([m, m + 4]))) for m in (0, 5, 50)))


# np.empty_like(x) is the natural slip here, on top of any other
@ROPE.must("whole numbers work like floats", 0.25, needs_values=True, chaotic=True)
def _(rng):
    yield ask(rng.integers(-5, 6, size=(3, 4)), rng.integers(2, 90, size=3))


ROPE.leaves_inputs_alone(0.5, sentences)


def halves(x):
    n = x.shape[-1] // 2
    return x[..., :n], x[..., n:]


def neighbours(x):
    return x[..., 0::2], x[..., 1::2]


def joined(a, b):
    return np.concatenate([a, b], axis=-1)


def counter_clockwise(a, b, c, s):
    return a * c - b * s, a * s + b * c


def clockwise(a, b, c, s):
    return a * c + b * s, b * c - a * s


def wrong_rope(
    exponent=paper,
    turn=counter_clockwise,
    take=neighbours,
    put=pairs_apart,
    place=lambda x, positions: positions,
    factor=1.0,
    speed=None,
    arrange=lambda angle, x: angle,
):
    def version(x, positions):
        d = x.shape[-1]
        omega = omegas(d, exponent) if speed is None else speed(d)
        angle = arrange(place(x, positions)[:, None] * omega * factor, x)
        a, b = take(x)
        return put(*turn(a, b, np.cos(angle), np.sin(angle)))

    return version


def row_index(x, positions):
    return np.arange(x.shape[-2])


def one_more(x, positions):
    return positions + 1


def already_turned(a, b, c, s):
    a = a * c - b * s
    return a, a * s + b * c


ROPE.mistake(
    "clockwise",
    "You turn clockwise, like the shift matrix of 4.6. Here (1, 0) has to move towards (0, 1).",
    wrong_rope(turn=clockwise),
)
ROPE.mistake(
    "half-split",
    "You pair column i with column i + d_model/2, as GPT-NeoX does. Here neighbouring columns form a pair.",
    wrong_rope(take=halves, put=joined),
)
ROPE.mistake(
    "output-not-woven",
    "You turn the right pairs, then put all first halves in front of all second halves. Put each pair back where it came from.",
    wrong_rope(put=joined),
)
ROPE.mistake(
    "halves-woven",
    "You take the columns as two halves but put them back as neighbours. Take and put must use the same layout, the interleaved one.",
    wrong_rope(take=halves),
)
ROPE.mistake(
    "angles-repeated-in-halves",
    "Your angles are laid out for two halves, your pairs are neighbours: two columns of a pair turn by different angles.",
    lambda x, positions: mixed_layout(x, positions, angles_in_halves=True),
)
ROPE.mistake(
    "angles-repeated-for-neighbours",
    "Your angles are laid out for neighbouring columns, but you pair column i with column i + d_model/2.",
    lambda x, positions: mixed_layout(x, positions, angles_in_halves=False),
)


def mixed_layout(x, positions, angles_in_halves):
    """x cos + (x turned by a quarter) sin, with the angles in one layout and the quarter turn in the other."""
    angle = positions[:, None] * omegas(x.shape[-1])
    if angles_in_halves:
        a, b = neighbours(x)
        full, quarter = joined(angle, angle), pairs_apart(-b, a)
    else:
        a, b = halves(x)
        full, quarter = pairs_apart(angle, angle), joined(-b, a)
    return x * np.cos(full) + quarter * np.sin(full)


ROPE.mistake(
    "already-turned",
    "Your second line uses the first half after it was turned. Both new numbers come from the old pair.",
    wrong_rope(turn=already_turned),
)
ROPE.mistake(
    "row-index",
    "You turn by the row's index. The positions are given and need not be 0, 1, 2, ...",
    wrong_rope(place=row_index),
)
ROPE.mistake(
    "positions-from-1",
    "You turn by one position too far: position 0 must leave x as it is.",
    wrong_rope(place=one_more),
)
ROPE.mistake(
    "adds-positions",
    "You add the positional encoding. Here nothing is added: the numbers that are there are turned.",
    lambda x, positions: x + right_table(int(positions.max()) + 1, x.shape[-1])[positions],
)
ROPE.mistake(
    "both-plus",
    "Neither of your lines has a minus. Then lengths change; a rotation keeps them.",
    wrong_rope(turn=lambda a, b, c, s: (a * c + b * s, a * s + b * c)),
)
ROPE.mistake(
    "both-minus",
    "Both of your lines have a minus. Then lengths change; a rotation keeps them.",
    wrong_rope(turn=lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
)
ROPE.mistake(
    "sine-cosine-exchanged",
    "Sine and cosine stand in each other's place: at position 0 your pair should stay as it is.",
    wrong_rope(turn=lambda a, b, c, s: (a * s - b * c, a * c + b * s)),
)
ROPE.mistake(
    "no-partner",
    "You multiply the first column by the cosine and the second by the sine. Each new number needs both old ones.",
    wrong_rope(turn=lambda a, b, c, s: (a * c, b * s)),
)
ROPE.mistake(
    "one-speed",
    "All pairs turn by the same angle. Each has its own omega.",
    wrong_rope(speed=lambda d: np.ones(d // 2)),
)
ROPE.mistake(
    "first-axis",
    "Your positions run along the first axis of x. They belong to the second to last one, where the tokens are.",
    lambda x, positions: wrong_rope(
        arrange=lambda angle, x: angle.reshape(len(angle), *(1,) * (x.ndim - 2), -1)
    )(x, positions),
)
ROPE.mistake(
    "degrees", "You convert the angle from degrees. It is in radians already.", wrong_rope(factor=np.pi / 180)
)
for _id, (_cause, _exponent) in EXPONENTS.items():
    ROPE.mistake(_id, _cause, wrong_rope(_exponent))


@ROPE.mistake(
    "positions-times-omega-one-by-one",
    "You multiply positions and omega entry by entry. Every position meets every omega: give the positions an axis of their own.",
)
def _(x, positions):
    angle = positions * omegas(x.shape[-1])
    return pairs_apart(*counter_clockwise(*neighbours(x), np.cos(angle), np.sin(angle)))


@ROPE.mistake(
    "integer-result",
    "With x of whole numbers your result is made of whole numbers too, and the decimals are lost. Make the new array a float one.",
)
def _(x, positions):
    turned = np.empty_like(x)
    turned[...] = rope(x, positions)
    return turned


@ROPE.mistake(
    "two-axes-only",
    "It works for one sentence only. x may have more axes in front: write x[..., 0::2], not x[:, 0::2].",
)
def _(x, positions):
    seq, d = x.shape
    return wrong_rope()(x.reshape(seq, d), positions)


@ROPE.mistake(
    "three-axes-only",
    "It works for a batch of sentences only. x may have fewer axes in front, or more.",
)
def _(x, positions):
    batch, seq, d = x.shape
    return wrong_rope()(x.reshape(batch, seq, d), positions)


@ROPE.mistake("changes-input", "You write the turned numbers into x itself. Make a new array.")
def _(x, positions):
    x[...] = rope(x, positions)
    return x


def one_side(x, positions, turn):
    """Both lines write into x itself; the second may read what the first has written."""
    angle = positions[:, None] * omegas(x.shape[-1])
    x[..., 0::2], x[..., 1::2] = turn(*neighbours(x), np.cos(angle), np.sin(angle))
    return x


ROPE.pair("already-turned", "changes-input", lambda x, positions: one_side(x, positions, already_turned))
ROPE.pair("clockwise", "changes-input", lambda x, positions: one_side(x, positions, clockwise))
ROPE.pair("clockwise", "half-split", wrong_rope(turn=clockwise, take=halves, put=joined))
ROPE.pair("clockwise", "output-not-woven", wrong_rope(turn=clockwise, put=joined))
ROPE.pair("clockwise", "row-index", wrong_rope(turn=clockwise, place=row_index))
ROPE.pair("half-split", "row-index", wrong_rope(take=halves, put=joined, place=row_index))
ROPE.pair("output-not-woven", "row-index", wrong_rope(put=joined, place=row_index))
for _id in EXPONENTS:
    ROPE.pair("clockwise", _id, wrong_rope(EXPONENTS[_id][1], turn=clockwise))
    ROPE.pair("half-split", _id, wrong_rope(EXPONENTS[_id][1], take=halves, put=joined))


@ROPE.variant
def _(x, positions):
    """Each pair as one complex number: a turn is a product with e^(i angle)."""
    omega = 10000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    pairs = pairs * np.exp(1j * positions[:, None] * omega)
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


@ROPE.variant
def _(x, positions):
    """x times the cosines plus x turned by a quarter times the sines, every angle written twice."""
    omega = 10000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = np.repeat(positions[:, None] * omega, 2, axis=-1)
    quarter_turned = np.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
    return x * np.cos(angle) + quarter_turned * np.sin(angle)


@ROPE.variant
def _(x, positions):
    """A loop over rows and pairs."""
    out = np.array(x, dtype=float)
    for t, pos in enumerate(positions):
        print("row", t)
        for i in range(x.shape[-1] // 2):
            a = pos / 10000 ** (2 * i / x.shape[-1])
            first, second = x[..., t, 2 * i], x[..., t, 2 * i + 1]
            out[..., t, 2 * i] = first * math.cos(a) - second * math.sin(a)
            out[..., t, 2 * i + 1] = first * math.sin(a) + second * math.cos(a)
    return out


@ROPE.variant
def _(x, positions):
    """The shift matrix of 4.6, turned round by its sign."""
    turns = np.stack([shift_matrix(-float(p), x.shape[-1]) for p in positions])
    return np.einsum("tij,...tj->...ti", turns, x)


# ---------------------------------------------------------------- 4.8 decode_position

DECODE_POSITION = Exercise(
    number="4.8",
    title="Read the time from a noisy clock",
    level="demanding",
    difficulty=5,
    minutes=25,
    core=False,
    why="If you can read the position back from the numbers, a network can too, also where they are blurred.",
    budget="Four to ten lines, depending on the way you choose.",
    hints=(
        "The fast hand shows the same for 0, 6.28 and 12.57. The slow one is blurred by hundreds of places. What does each know that the other does not?",
        "v is (d_model,); a table of all candidates is (n_max, d_model); one score per candidate is (n_max,). Or: d_model/2 angles, from the slowest to the fastest.",
        "either: build the row of every candidate, score how well each agrees with v, return the best one. Or: a first guess from the slowest hand (its angle may be slightly negative); then for each faster hand move the guess to the nearest place that agrees with it; round at the end",
    ),
)


@DECODE_POSITION.reference
def decode_position(v: np.ndarray, n_max: int) -> int:
    """The position in range(n_max) that a row of the positional encoding (base 10000, interleaved) stands for.

    v : (d_model,), a row of the table, possibly with noise of standard deviation 0.1 on every entry
    returns : a whole number from 0 to n_max - 1

    >>> decode_position(np.array([0.1, 1.0, 0.0, 1.0]), n_max=5)
    0
    """
    d_model = v.shape[0]
    omega = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    angle = np.arange(n_max)[:, None] * omega  # (n_max, d_model/2)
    agreement = np.sin(angle) @ v[0::2] + np.cos(angle) @ v[1::2]  # (n_max,)
    return int(np.argmax(agreement))


def hands(v):
    """The angle of every hand in (-pi, pi], and its speed."""
    return np.arctan2(v[0::2], v[1::2]), omegas(len(v))


def hand_by_hand(v, start, finish=round):
    """Read the slowest hand first: `start` is its angle; every faster hand corrects the guess."""
    angle, omega = hands(v)
    pos = start / omega[-1]
    for a, w in zip(angle[-2::-1], omega[-2::-1]):
        turn = 2 * np.pi / w
        pos = a / w + turn * round((pos - a / w) / turn)
    return finish(pos)


def blurred(rng, pos, n_max=2000, d=32):
    """A row of the table with noise, on which all sensible ways of reading agree.

    Near the start the slowest hand is blurred to before 0, as half of all noise does anyway.
    """
    clean = right_table(pos + 1, d)[pos]
    while True:
        noise = rng.normal(scale=0.1, size=d)
        if pos < 2:
            noise[-2] = -abs(noise[-2]) - 0.01
        v = clean + noise
        readings = {decode_position(v, n_max), nearest_row(v, n_max), hand_by_hand(v, hands(v)[0][-1])}
        if readings == {pos}:
            return ask(v, n_max)


def nearest_row(v, n_max):
    return int(((right_table(n_max, len(v)) - v) ** 2).sum(axis=1).argmin())


@DECODE_POSITION.worked("rows 50 and 3 of the table for d_model = 512", 0.5)
def _():
    for pos in (3, 50):
        yield ask(right_table(pos + 1, 512)[pos], 100)


@DECODE_POSITION.must("right without noise", 1.5)
def clean_rows(rng):
    for d, n_max in ((4, 9), (16, 300), (32, 2000)):
        pos = int(rng.integers(n_max // 2, n_max))
        yield ask(right_table(pos + 1, d)[pos], n_max)


@DECODE_POSITION.must("with noise, at the start: 0 and 1", 1.25)
def _(rng):
    for pos in (0, 1, 0):
        yield blurred(rng, pos)


@DECODE_POSITION.must("with noise, one turn of the fastest hand on: 6 and 7", 1.25)
def _(rng):
    for pos in (6, 7):
        yield blurred(rng, pos)


@DECODE_POSITION.must("with noise, whole turns of the fastest hand on: 44, 314 and 628", 1.25)
def _(rng):
    for pos in (44, 314, 628):
        yield blurred(rng, pos)


@DECODE_POSITION.must("with noise, the last position and any other", 1.75)
def _(rng):
    yield blurred(rng, 1999)
    for _ in range(3):
        yield blurred(rng, int(rng.integers(100, 1999)))


DECODE_POSITION.leaves_inputs_alone(0.5, clean_rows)


def by_slowest(angle):
    def version(v, n_max):
        return round(angle(v) / omegas(len(v))[-1])

    return version


def slowest_angle(v):
    return np.arctan2(v[-2], v[-1])


def full_circle(angle):
    return angle % (2 * np.pi)


def from_table(table, score=lambda table, v: table @ v):
    def version(v, n_max):
        return int(np.argmax(score(table(n_max, len(v)), v)))

    return version


def sines_first(n, d):
    return np.concatenate([right_table(n, d)[:, 0::2], right_table(n, d)[:, 1::2]], axis=1)


def exact_row(missing):
    def version(v, n_max):
        found = np.flatnonzero(np.isclose(right_table(n_max, len(v)), v).all(axis=1))
        return int(found[0]) if len(found) else missing()

    return version


def no_row():
    raise IndexError("no row is exactly like v")


DECODE_POSITION.mistake(
    "unsigned-slowest",
    "Your first guess reads the slowest hand on a circle from 0 to 2 pi. A little noise before 0 then becomes almost a full turn.",
    lambda v, n_max: hand_by_hand(v, full_circle(slowest_angle(v))),
)
DECODE_POSITION.mistake(
    "unsigned-slowest-clipped",
    "Near the start, noise pushes the slowest hand just before 0; on a circle from 0 to 2 pi that is almost a full turn, and you cut it to n_max - 1.",
    lambda v, n_max: min(max(hand_by_hand(v, full_circle(slowest_angle(v))), 0), n_max - 1),
)
DECODE_POSITION.mistake(
    "slowest-only",
    "You read the slowest hand alone. It knows roughly where, but a blur of 0.1 is hundreds of places for it.",
    by_slowest(slowest_angle),
)
DECODE_POSITION.mistake(
    "slowest-only-unsigned",
    "You read the slowest hand alone, on a circle from 0 to 2 pi. It is blurred by hundreds of places, and just before 0 it wraps.",
    by_slowest(lambda v: full_circle(slowest_angle(v))),
)
DECODE_POSITION.mistake(
    "slowest-only-clipped",
    "You read the slowest hand alone and cut the result to the range. It is blurred by hundreds of places.",
    lambda v, n_max: min(max(by_slowest(slowest_angle)(v, n_max), 0), n_max - 1),
)
DECODE_POSITION.mistake(
    "arcsin-slowest",
    "You take the arcsine of the slowest hand. Its sine barely moves, so the noise is worth hundreds of places.",
    by_slowest(lambda v: np.arcsin(np.clip(v[-2], -1, 1))),
)
DECODE_POSITION.mistake(
    "arccos-slowest",
    "You take the arccosine of the slowest hand. Near the start its cosine does not move at all.",
    by_slowest(lambda v: np.arccos(np.clip(v[-1], -1, 1))),
)
DECODE_POSITION.mistake(
    "fastest-only",
    "You read the fastest hand alone: it starts again every 6.28 places, so your answers never get beyond 6.",
    lambda v, n_max: round(full_circle(np.arctan2(v[0], v[1]))),
)
DECODE_POSITION.mistake(
    "fastest-only-signed",
    "You read the fastest hand alone, on a circle from -pi to pi: it starts again every 6.28 places.",
    lambda v, n_max: round(np.arctan2(v[0], v[1])),
)
DECODE_POSITION.mistake(
    "first-pair-only",
    "You compare the first pair only. It looks almost alike at 0, 44, 710: the slow hands tell these apart.",
    from_table(right_table, lambda table, v: table[:, :2] @ v[:2]),
)
DECODE_POSITION.mistake(
    "least-alike",
    "You return the row that is least like v. A large dot product means alike.",
    from_table(right_table, lambda table, v: -(table @ v)),
)
DECODE_POSITION.mistake(
    "signed-difference",
    "You add up the differences with their signs, so that they cancel. Use squares or absolute values.",
    from_table(right_table, lambda table, v: -abs((table - v).sum(axis=1))),
)
DECODE_POSITION.mistake(
    "exact-row",
    "You look for a row that equals v. With noise there is none: look for the most similar one.",
    exact_row(no_row),
)
DECODE_POSITION.mistake(
    "exact-row-none",
    "You look for a row that equals v and return None where there is none. Look for the most similar one.",
    exact_row(lambda: None),
)
DECODE_POSITION.mistake(
    "exact-row-0",
    "You look for a row that equals v; with noise there is none, and 0 comes out. Look for the most similar one.",
    exact_row(lambda: 0),
)
DECODE_POSITION.mistake(
    "exact-row-minus-1",
    "You look for a row that equals v; with noise there is none, and -1 comes out. Look for the most similar one.",
    exact_row(lambda: -1),
)
DECODE_POSITION.mistake(
    "other-layout",
    "Your table has all sines first. v is interleaved: sine, cosine, sine, cosine.",
    from_table(sines_first),
)
for _id in ("tensor2tensor-exponent", "factor-2-forgotten", "exponent-doubled"):
    DECODE_POSITION.mistake(
        _id, EXPONENTS[_id][0], from_table(lambda n, d, _e=EXPONENTS[_id][1]: right_table(n, d, _e))
    )
DECODE_POSITION.mistake(
    "table-of-d-model-rows",
    "You search as many positions as v has entries. There are n_max of them.",
    lambda v, n_max: decode_position(v, len(v)),
)
DECODE_POSITION.mistake(
    "one-too-far",
    "Your answers are too large by one: positions count from 0.",
    lambda v, n_max: decode_position(v, n_max) + 1,
)
DECODE_POSITION.mistake(
    "last-left-out",
    "You search one position too few: n_max - 1 can be the answer.",
    lambda v, n_max: decode_position(v, n_max - 1),
)
DECODE_POSITION.mistake(
    "returns-the-score",
    "You return how well the best row fits. Which row it is, is asked for.",
    lambda v, n_max: float((right_table(n_max, len(v)) @ v).max()),
)
DECODE_POSITION.mistake(
    "not-rounded",
    "You return a position with decimals. Round it to a whole number.",
    lambda v, n_max: hand_by_hand(v, slowest_angle(v), float),
)
DECODE_POSITION.mistake(
    "cut-not-rounded",
    "You cut the decimals off: 6.98 becomes 6. Round to the nearest whole number.",
    lambda v, n_max: hand_by_hand(v, slowest_angle(v), int),
)


@DECODE_POSITION.mistake(
    "averages-hands",
    "You average what the hands show one by one. A hand knows its place only up to whole turns: settle the turns first, from slow to fast.",
)
def _(v, n_max):
    angle, omega = hands(v)
    return round((angle / omega).mean())


@DECODE_POSITION.mistake(
    "equal-weights",
    "You settle the turns, then average all hands alike. The slow ones are blurred by hundreds of places and spoil the fast ones.",
)
def _(v, n_max):
    angle, omega = hands(v)
    pos, seen = slowest_angle(v) / omega[-1], [slowest_angle(v) / omega[-1]]
    for a, w in zip(angle[-2::-1], omega[-2::-1]):
        pos = a / w + 2 * np.pi / w * round((pos - a / w) * w / (2 * np.pi))
        seen.append(pos)
    return round(np.mean(seen))


@DECODE_POSITION.mistake(
    "arctan-half-turn",
    "You use the arctangent of sine over cosine. It cannot tell a hand from the opposite one; np.arctan2 can.",
)
def _(v, n_max):
    half = v.copy()
    angle = np.arctan(v[0::2] / v[1::2])
    half[0::2], half[1::2] = np.sin(angle), np.cos(angle)
    return hand_by_hand(half, slowest_angle(half))


@DECODE_POSITION.mistake(
    "arctan2-swapped",
    "You give np.arctan2 the cosine first. It expects the sine, then the cosine.",
)
def _(v, n_max):
    swapped = v.reshape(-1, 2)[:, ::-1].ravel()
    return hand_by_hand(swapped, slowest_angle(swapped))


DECODE_POSITION.pair(
    "other-layout",
    "tensor2tensor-exponent",
    from_table(
        lambda n, d: right_table(n, d, EXPONENTS["tensor2tensor-exponent"][1])[:, np.r_[0:d:2, 1:d:2]]
    ),
)
DECODE_POSITION.pair(
    "unsigned-slowest",
    "not-rounded",
    lambda v, n_max: hand_by_hand(v, full_circle(slowest_angle(v)), float),
)


@DECODE_POSITION.variant
def _(v, n_max):
    """Hand by hand, from the slowest to the fastest: each corrects the guess by less than half a turn of its own."""
    omega = 10000.0 ** (-2 * np.arange(len(v) // 2) / len(v))
    angle = np.arctan2(v[0::2], v[1::2])  # in (-pi, pi]
    position = angle[-1] / omega[-1]
    for a, w in zip(angle[-2::-1], omega[-2::-1]):
        turn = 2 * np.pi / w
        position = a / w + turn * np.round((position - a / w) / turn)
    return int(np.clip(np.round(position), 0, n_max - 1))


@DECODE_POSITION.variant
def _(v, n_max):
    """The row of the table that lies nearest: all rows are equally long, so nearest means largest dot product."""
    table = positional_encoding(n_max, len(v))
    return int(((table - v) ** 2).sum(axis=1).argmin())


@DECODE_POSITION.variant
def _(v, n_max):
    """One candidate after the other, by the sum of absolute differences."""
    print("reading")
    best, best_distance = None, float("inf")
    for pos in range(n_max):
        distance = np.abs(
            np.ravel([np.sin(pos * omegas(len(v))), np.cos(pos * omegas(len(v)))], "F") - v
        ).sum()
        if distance < best_distance:
            best, best_distance = pos, distance
    return float(best)


@DECODE_POSITION.variant
def _(v, n_max):
    """By the angles alone: the candidate whose hands are off by least."""
    angle, omega = hands(v)
    off = np.angle(np.exp(1j * (angle - np.arange(n_max)[:, None] * omega)))
    return (off**2).sum(axis=1).argmin()
