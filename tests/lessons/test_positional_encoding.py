"""The numbers that lesson 4 prints."""

import numpy as np
import pytest

from autograder.exercises.positional_encoding import (
    decode_position,
    embed,
    equivariance_gap,
    pe_dot,
    positional_encoding,
    rope,
    shift_matrix,
    wavelengths,
)
from autograder.figures import positional_encoding as figures
from course import given
from tests.lessons import says, text_of

TEXT = text_of("04_positional_encoding")
TABLE = positional_encoding(60, 512)
HANDS = [0, 1, 2, 32, 64, 128, 192, 255]
DISTANCES = np.array([0, 1, 2, 5, 10, 20])


def tells(fragment):
    assert says(TEXT, fragment), fragment


def test_the_wavelengths_of_512():
    places = [4, 4, 4, 4, 4, 4, 3, 3]
    cells = [f"{wavelengths(512)[i]:.{p}f}" for i, p in zip(HANDS, places)]
    tells("| wavelength, in positions | " + " | ".join(cells) + " |")
    tells("| hand *i* | " + " | ".join(map(str, HANDS)) + " |")
    assert wavelengths(512)[64:] / wavelengths(512)[:-64] == pytest.approx(10)


def test_the_last_wavelength_stops_short_of_the_limit():
    tells(f"= {10000 * 2 * np.pi:.0f}$, because")
    tells(f"The last one needs {int(wavelengths(512)[-1]):,} positions")
    assert wavelengths(512)[-1] < 10000 * 2 * np.pi


def test_the_two_hands_of_4():
    first, second = wavelengths(4)
    tells(f"exponent 0, omega 1, wavelength {first:.3f}")
    tells(f"so 0.01, and the wavelength is {second:.3f}")
    assert 2 * np.pi / second == pytest.approx(0.01)


@pytest.mark.parametrize("pos", [0, 1, 2, 3, 10, 50])
def test_the_rows_of_the_table(pos):
    row = TABLE[pos]
    cells = [f"{row[j]:.4f}" for j in range(4)] + [f"{row[j]:.6f}" for j in (510, 511)]
    tells(f"| {pos} | " + " | ".join(cells) + " |")


def test_the_rows_of_4():
    tells("so the row is ({:.0f}, {:.0f}, {:.0f}, {:.0f})".format(*positional_encoding(2, 4)[0]))
    tells("so the row is ({:.4f}, {:.4f}, {:.4f}, {:.4f})".format(*positional_encoding(2, 4)[1]))


def test_the_angle_of_hand_1_at_position_1():
    angle = 2 * np.pi / wavelengths(512)[1]
    tells(f"whose angle there is {angle:.4f}, and {np.sin(angle):.4f} and {np.cos(angle):.4f}")


def test_every_row_has_the_same_length():
    assert np.linalg.norm(TABLE, axis=1) == pytest.approx(16)
    tells(r"$\sqrt{256} = 16$, at every position")


def test_the_dot_products():
    cells = [f"{value:.2f}" for value in pe_dot(DISTANCES, 512)]
    tells("| dot product | " + " | ".join(cells) + " |")
    assert TABLE[7 + DISTANCES] @ TABLE[7] == pytest.approx(pe_dot(DISTANCES, 512))
    tells(f"{np.cos(1):.5f} + {np.cos(0.01):.5f} = {pe_dot(1, 4):.5f}")


@pytest.mark.parametrize(("d", "rise"), [(512, 44), (8, 4)])
def test_the_first_rise(d, rise):
    steps = np.diff(pe_dot(np.arange(100), d))
    assert np.argmax(steps > 0) + 1 == rise
    tells(f"at *k* = {rise} for `d_model = {d}`")
    tells(f"at k = {rise}")  # in the quiz


def test_far_away_it_is_negative():
    tells(f"{pe_dot(5839, 512):.2f} at *k* = 5839, {pe_dot(18469, 512):.2f} at *k* = 18,469")


def test_the_embedded_rows():
    rows = embed(np.array([0, 0]), np.array([[0.1, 0.2, -0.1, 0.05]]), positional_encoding(2, 4))
    tells("| at place 0: plus (0, 1, 0, 1) | " + " | ".join(f"{x:.3f}" for x in rows[0]) + " |")
    place = ", ".join(f"{x:.5f}" for x in positional_encoding(2, 4)[1])
    tells(f"plus ({place}) | " + " | ".join(f"{x:.3f}" for x in rows[1]) + " |")


def test_the_scale():
    tells("has the length 1.083")
    tells(f"The root of 512 is {np.sqrt(512):.3f}, and the scaled word has length {np.sqrt(512) * 1.083:.1f}")


def test_the_running_sum():
    X, perm = np.array([[1.0], [2.0], [3.0]]), np.array([1, 2, 0])
    assert X[perm].ravel().tolist() == [2, 3, 1]
    assert X[perm].cumsum(axis=0).ravel().tolist() == [2, 5, 6]
    assert X.cumsum(axis=0)[perm].ravel().tolist() == [3, 6, 1]
    tells(f"The gap is {equivariance_gap(given.running_sum(), X, perm):.0f}:")


def test_one_step_of_hand_0():
    S = shift_matrix(1, 2)
    tells(f"(({S[0, 0]:.4f}, {S[0, 1]:.4f}), ({S[1, 0]:.4f}, {S[1, 1]:.4f}))")
    tells("The product is ({:.4f}, {:.4f}), the reading at position 1".format(*(S @ [0, 1])))
    assert pytest.approx(positional_encoding(2, 2)[1]) == S @ [0, 1]


def test_the_shift_moves_every_row():
    S = shift_matrix(5, 512)
    assert np.abs(TABLE[:50] @ S.T - TABLE[5:55]).max() < 1e-12


def test_the_hand_turns_clockwise():
    """With the sine to the right and the cosine up, the turn from 0 to 1 is a right turn."""
    (x0, y0), (x1, y1) = positional_encoding(2, 2)
    assert x0 * y1 - y0 * x1 < 0


def test_two_turned_pairs():
    one, two = rope(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, 2]))
    tells(f"becomes ({one[0]:.4f}, {one[1]:.4f}), at position 2 ({two[0]:.4f}, {two[1]:.4f})")
    tells(f"0.5403 · (-0.4161) + 0.8415 · 0.9093 = {one @ two:.3f}, the cosine of 1")


def test_the_layouts_differ_by_up_to_two():
    tables = figures.layouts(100, 512)
    for name in ("marian", "tensor2tensor", "half_split"):
        assert f"{np.abs(tables[name] - tables['paper']).max():.2f}" == "2.00"
    tells("off by up to 2.00")


def test_the_slowest_hand_of_32():
    longest = wavelengths(32)[-1]
    omega = 2 * np.pi / longest
    tells(f"omega {omega:.6f}, so 0.1 radians are {0.1 / omega:.0f} positions")
    tells(f"a turn takes {longest:,.0f} positions")


def test_the_figures_show_what_they_say():
    gaps = dict(zip(figures.swap_test()["names"], figures.swap_test()["gaps"]))
    assert gaps["each row alone"] == gaps["attention"] == 0
    assert min(gaps["attention, positions added"], gaps["attention, causal mask"], gaps["running sum"]) > 1
    bag = figures.bag_of_words()
    assert np.allclose(bag["before"][::-1], bag["after"])
    assert striped(figures.score_terms()["plain"]) and not striped(figures.score_terms()["place-place"])
    assert striped(figures.added_or_turned()["turned"]) and not striped(figures.added_or_turned()["added"])


def test_only_position_44_fits_all_blurred_hands():
    blur = figures.blurred_hands()
    at = np.arange(131)[:, None, None]
    fits = ((blur["begin"] <= at) & (at <= blur["begin"] + blur["width"])).any(axis=1).all(axis=1)
    assert np.flatnonzero(fits).tolist() == [44]


def test_the_blurred_clock_can_be_read():
    v = positional_encoding(2000, 32)[1999] + np.random.default_rng(1).normal(scale=0.1, size=32)
    assert decode_position(v, 2000) == 1999


def striped(scores):
    """Whether every diagonal has one value."""
    n = len(scores)
    return all(np.ptp(np.diagonal(scores, k)) < 1e-4 for k in range(-n + 1, n))
