"""Lesson 3: the formulas of the references, and every number of the prose."""

import numpy as np
import pytest

from autograder.exercises.ffn_memory import (
    MEMORIES,
    TINY,
    TINY_X,
    X_PRIME,
    and_unit,
    collapse,
    count_parameters,
    empty_network,
    ffn,
    ffn_backward,
    recall,
    top_memories,
    weights,
    write_memory,
)
from autograder.figures import ffn_memory as figures
from course import worked_example
from tests.lessons import says, text_of

TEXT = text_of("03_ffn_memory")


def grouped(number):
    return f"{number:,}"


# ---------------------------------------------------------------- the formulas


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
def test_the_backward_pass_agrees_with_central_differences(shape):
    rng = np.random.default_rng(5)
    x, dy = rng.normal(size=(2, *shape))
    inputs = [x, *weights(rng, 3, 5)]
    gradients = ffn_backward(dy, *inputs)
    for which, gradient in enumerate(gradients):
        assert gradient.shape == inputs[which].shape
        numeric = np.zeros(gradient.shape)
        for place in np.ndindex(*gradient.shape):
            losses = []
            for step in (1e-6, -1e-6):
                moved = [array.copy() for array in inputs]
                moved[which][place] += step
                losses.append((ffn(*moved) * dy).sum())
            numeric[place] = (losses[0] - losses[1]) / 2e-6
        assert np.abs(numeric - gradient).max() < 1e-7 * max(1, np.abs(gradient).max())


def test_four_writes_rebuild_the_ffn_of_the_worked_example():
    params = empty_network(4, worked_example.B2)
    for key, threshold, value in MEMORIES:
        params = write_memory(params, key, threshold, value)
    for written, given in zip(
        params, (worked_example.W1, worked_example.B1, worked_example.W2, worked_example.B2)
    ):
        np.testing.assert_array_equal(written, given)
    assert np.abs(ffn(X_PRIME, *params) - worked_example.PUBLISHED["FFN(X')"]).max() < 1e-12


def test_reading_as_a_memory_is_the_ffn():
    rng = np.random.default_rng(6)
    x, (W1, b1, W2, b2) = rng.normal(size=(5, 3)), weights(rng, 3, 7)
    coefficients, y = recall(x, W1.T, b1, W2, b2)
    np.testing.assert_allclose(y, ffn(x, W1, b1, W2, b2), atol=1e-14)
    np.testing.assert_allclose(y, sum(np.outer(c, v) for c, v in zip(coefficients.T, W2)) + b2, atol=1e-13)


def test_a_collapsed_map_has_at_most_rank_d_ff():
    rng = np.random.default_rng(7)
    W, b = collapse(*weights(rng, 6, 2))
    assert np.linalg.matrix_rank(W) == 2 and b.shape == (6,)


def test_the_count_is_the_size_of_the_arrays():
    d, f = 6, 10
    W1, b1, W2, b2 = weights(np.random.default_rng(8), d, f)
    found = count_parameters(d, f)
    assert found["ffn"] == sum(a.size for a in (W1, b1, W2, b2))
    assert found["attention"] == 4 * (np.zeros((d, d)).size + np.zeros(d).size)
    assert found["total"] == found["attention"] + found["ffn"] + found["norms"]


# ---------------------------------------------------------------- the numbers of the prose


def test_the_tiny_ffn_by_hand():
    W1, b1, W2, b2 = TINY
    np.testing.assert_array_equal(TINY_X @ W1, [1, 2, 1])
    np.testing.assert_array_equal(TINY_X @ W1 + b1, [1, -1, 1])
    np.testing.assert_array_equal(ffn(TINY_X, *TINY), [2, 1])
    assert says(TEXT, "$x W_1 = (1, 2, 1)$") and says(TEXT, "Add $b_1$: $(1, -1, 1)$")
    assert says(TEXT, "1 \\cdot (1, 0) + 0 \\cdot (0, 1) + 1 \\cdot (1, 1) = (2, 1)")
    coefficients, _ = recall(TINY_X[None], W1.T, b1, W2, b2)
    for m, (match, bias, c) in enumerate(zip(TINY_X @ W1, b1, coefficients[0])):
        key, value = (f"({a:.0f}, {b:.0f})".replace("-", "−") for a, b in (W1[:, m], W2[m]))
        adds = value if c else "nothing"
        bias = f"{bias:.0f}".replace("-", "−")
        assert says(TEXT, f"| {m} | {key} | {match:.0f} | {bias} | {c:.0f} | {value} | {adds} |")


def test_strengths_and_collapse_of_the_tiny_ffn():
    W1, b1, W2, _ = TINY
    assert top_memories(TINY_X[None], W1, b1, W2, 2) == [[2, 0]]
    assert says(TEXT, f"1 · √2 = {np.linalg.norm(W2[2]):.3f}")
    W, b = collapse(*TINY)
    np.testing.assert_array_equal(W, [[0, -1], [1, 2]])
    np.testing.assert_array_equal(b, [0, -3])
    np.testing.assert_array_equal(TINY_X @ W, [2, 3])
    np.testing.assert_array_equal(TINY_X @ W + b, [2, 0])
    assert says(TEXT, r"W = \begin{pmatrix} 0 & -1 \\ 1 & 2 \end{pmatrix}") and says(TEXT, "= (0, -3)$")
    assert says(TEXT, "$x W = (2, 3)$, plus $b$ gives (2, 0)")


def test_the_backward_pass_by_hand():
    _, _, W2, _ = TINY
    dy = np.array([1.0, 1.0])
    dx, _, dpre, *_ = ffn_backward(dy, TINY_X, *TINY)
    np.testing.assert_array_equal(dy @ W2.T, [1, 1, 2])
    np.testing.assert_array_equal(dpre, [1, 0, 2])
    np.testing.assert_array_equal(dx, [-1, 2])
    assert says(TEXT, "dh = (1, 1, 2)") and says(TEXT, "dpre = (1, 0, 2)")
    assert says(TEXT, r"$1 \cdot (1, 0) + 2 \cdot (-1, 1) = (-1, 2)$")


def test_the_counts():
    small = count_parameters(9, 36, bias=False, norms=False)
    assert says(TEXT, f"attention 4 · 81 = {small['attention']}, FFN 2 · 9 · 36 = {small['ffn']}")
    assert says(TEXT, f"{small['ffn']} of {small['total']} numbers, two thirds")
    assert small["ffn"] / small["total"] == pytest.approx(2 / 3)
    half = count_parameters(9, 18, bias=False, norms=False)
    assert half["ffn"] / half["total"] == pytest.approx(1 / 2)
    paper = count_parameters(512, 2048)
    assert says(
        TEXT,
        f"attention has {grouped(paper['attention'])} numbers, the FFN {grouped(paper['ffn'])} and the norms "
        f"{grouped(paper['norms'])}, together {grouped(paper['total'])}: the FFN's share is "
        f"{100 * paper['ffn'] / paper['total']:.1f} %",
    )
    shares = [100 * c[1] / c.sum() for c in figures.block_shares()["counts"]]
    assert says(
        TEXT.replace('" "', ""), "the FFN holds {:.1f}, {:.1f}, {:.1f} and {:.1f} percent".format(*shares)
    )


def test_half_of_the_arithmetic():
    d = 512
    n = 2 * d
    assert 8 * d**2 == 4 * d**2 + 2 * n * d
    assert says(TEXT, f"which is {n} in the paper's block")


def test_one_and_unit_by_hand():
    w, b = and_unit(np.eye(2))
    np.testing.assert_allclose([*w, b], [1, 1, -1], atol=1e-12)
    cat, chase = np.array([1, 0]), np.array([0.6, 0.8])
    key = cat + chase
    assert says(TEXT, f"$w = ({key[0]:.1f}, {key[1]:.1f})$")
    assert says(TEXT, rf"$w \cdot$ cat = {key @ cat:.1f}, and {key @ cat:.1f} − 1 = {key @ cat - 1:.1f}")
    assert key @ chase == pytest.approx(key @ cat) and np.linalg.norm(chase) == pytest.approx(1)


def test_the_written_memory_by_hand():
    for z, shown in ((1.5, "1.5"), (2.5, "2.5"), (3, "3"), (7, "7")):
        first, second = max(z - 2, 0), max(z - 3, 0)
        assert says(TEXT, f"| {shown} | {first:g} | {second:g} | {first - second:g} |")
    assert says(TEXT, "at a match of 9 it says seven times the value if $t = 2$") and 9 - 2 == 7


def test_the_worked_example():
    for token, row in enumerate(X_PRIME, start=1):
        numbers = "".join(f"{number:11.6f}" for number in row)
        assert says(TEXT, f"token {token} {numbers.strip()}")
    matches = X_PRIME @ np.array([key for key, _, _ in MEMORIES]).T
    x = X_PRIME[0]
    assert says(TEXT, f"{x[0]:.3f} + {-x[2]:.3f} = {matches[0, 0]:.3f}, above 1 + 1")
    assert says(TEXT, f"C matches with {matches[0, 2]:.3f}, above 0.5 + 1")
    thresholds = np.array([threshold for _, threshold, _ in MEMORIES])
    shares = np.clip(matches - thresholds, 0, 1)
    np.testing.assert_array_equal(shares, [[1, 0, 1, 0], [0, 1, 1, 0]])
    for m, (name, fires) in enumerate(zip("ABCD", ("token 1", "token 2", "both", "neither"))):
        key, threshold, value = MEMORIES[m]
        shown = [", ".join(f"{n:g}" for n in row).replace("-", "−") for row in (key, value)]
        assert says(TEXT, f"| {name} | ({shown[0]}) | {threshold:g} | ({shown[1]}) | {fires} |")
    assert says(TEXT, "0.05 + 0.02 + 0.01 = 0.08")
    assert MEMORIES[0][2][0] + MEMORIES[2][2][0] + worked_example.B2[0] == pytest.approx(0.08)
    for row in worked_example.PUBLISHED["FFN(X')"]:
        assert says(TEXT, "(" + ", ".join(f"{n:.2f}" for n in row).replace("-", "−") + ")")


def test_an_edit_moves_only_the_tokens_that_ask():
    np.testing.assert_allclose(
        figures.edited_fact()["moved"], 0.2 * np.array([[1, 0], [0, 1], [1, 1], [0, 0]]), atol=1e-12
    )
    assert says(TEXT, "each move has length 0.2")


def test_attention_alone_makes_tokens_alike():
    found = figures.rank_collapse()
    alone, block = found["alone"], found["with_skip_and_norm"]
    assert says(
        TEXT,
        f"it falls from {alone[0]:.2f} to {alone[1]:.2f}, then {alone[2]:.3f}, then less than one millionth",
    )
    assert alone[3] < 1e-6
    assert says(TEXT, f"{block[3]:.2f} after three rounds, {block[12]:.2f} after twelve")


def test_averages_stay_in_the_triangle_and_the_ffn_leaves_it():
    hull = figures.convex_hull()

    def inside(points):
        corners = np.column_stack([hull["values"], np.ones(3)])
        weights_of = np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(corners)
        return (weights_of > -1e-3).all(axis=1)  # the data are rounded to four places

    assert inside(hull["averages"]).all()
    assert inside(hull["after"]).mean() < 0.5


def test_how_many_memories_are_silent():
    found = figures.silent_share()
    relu, swish, gelu = 100 * found["near_zero"]
    assert found["names"] == ["ReLU", "swish", "GELU"]
    joined = TEXT.replace('" "', "")
    assert says(
        joined, f"ReLU {relu[0]:.1f} percent on random weights and {relu[1]:.1f} on a hand-written memory"
    )
    assert says(joined, f"swish {swish[0]:.1f} and {swish[1]:.1f}, GELU {gelu[0]:.1f} and {gelu[1]:.1f}")
    assert 0.4 < figures.hidden_matrix()["silent"] < 0.6


def test_the_overload_experiment():
    found = figures.overloaded()
    written = dict(zip(found["facts"], found["with_relu"]))
    matrix = dict(zip(found["facts"], found["without"]))
    assert says(TEXT, f"The matrix has failed at 16 facts: error {matrix[16]:.2f}")
    assert says(TEXT, f"The written memories are at {written[16]:.2f} there")
    assert says(TEXT, f"{written[128]:.2f} for 128 facts, {written[512]:.2f} for 512")
    assert (np.diff(found["with_relu"]) > 0).all() and written[512] > 1


def test_a_high_threshold_reads_all_64_facts_of_the_overload_cell():
    rng = np.random.default_rng(1)  # as in the cell
    keys, values = rng.normal(size=(2, 64, 16))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    params = empty_network(16, np.zeros(16))
    for key, value in zip(keys, values):
        params = write_memory(params, key, 3.0, value)
    assert np.abs(ffn(4 * keys, *params) - values).max() < 1e-9
    noisy = 4 * keys + 0.3 * rng.normal(size=keys.shape)
    assert np.linalg.norm(ffn(noisy, *params) - values, axis=1).mean() > 0.05
    assert says(TEXT, "With threshold 3, all 64 facts are read without error")


def test_a_silent_unit_learns_nothing():
    found = figures.who_learns()
    silent = found["pre"] < 0
    assert silent.sum() == 7
    assert (found["dW1"][:, silent] == 0).all() and (found["dW1"][:, ~silent] != 0).any(axis=0).all()
