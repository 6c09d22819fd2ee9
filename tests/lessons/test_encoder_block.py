"""Every number in the prose of lesson 5 is computed here and looked for in the text."""

import re

import numpy as np
import pytest

from autograder.exercises.encoder_block import (
    SUSPECTS,
    block_of,
    encoder,
    encoder_block,
    layer_norm,
    norm_with_eps_outside,
    prenorm_block,
    right,
    softmax,
    split_heads,
)
from autograder.figures import by_lesson
from course import trace_page
from course.worked_example import MEMORIES, PUBLISHED, W_K_WITHOUT_FACTOR, WEIGHTS_H, WEIGHTS_R, X
from tests.lessons import says, text_of

FIGURES = by_lesson()["encoder_block"]
ONE, ZERO = np.ones(4), np.zeros(4)


@pytest.fixture(scope="module")
def text():
    return text_of("05_encoder_block")


@pytest.fixture(scope="module")
def trace():
    return FIGURES["worked_trace"]()


def row(values, decimals=4, between=" | "):
    """The numbers of a row as the text writes them."""
    return between.join(f"{value:.{decimals}f}" for value in np.asarray(values) + 0.0)


def spaced(values, decimals=4):
    return row(values, decimals, " ")


# ---------------------------------------------------------------- softmax and heads


def test_softmax_by_hand(text):
    assert says(text, f"The shares are ({softmax(np.array([np.log(3), 0.0]))[0]:g}, 0.25)")
    assert np.isfinite(np.exp(709.0)) and np.exp(709.0) < np.inf
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(710.0))
    assert says(text, "Above 709, e to the power of a score is too large")


def test_the_shares_in_the_text_alternative(text):
    shares = FIGURES["shares_of_a_row"]()
    *most, last = (f"{share:.2f}" for share in shares["shares"])
    assert says(text, f"the shares below stay as they are: {', '.join(most)} and {last}")
    assert np.array_equal(np.round(shares["shares"], 6), np.round(shares["again"], 6))


def test_heads_by_hand(text):
    first, second = split_heads(np.arange(8).reshape(1, 2, 4), 2)[0].tolist()
    assert says(text, f"head 0 holds {tuple(first[0])} and {tuple(first[1])}")
    assert says(text, f"head 1 holds {tuple(second[0])} and {tuple(second[1])}")
    reshaped = np.arange(8).reshape(1, 2, 2, 2)[0, 0].tolist()
    assert says(text, f"[x] {tuple(reshaped[0])} and {tuple(reshaped[1])}: both halves of the first token")


def test_dropout_by_hand(text):
    x, branch, p = np.array([2.0, 0.0]), np.array([0.5, -1.0]), 0.5
    dropped = branch * [1, 0] / (1 - p)
    assert says(text, f"so the branch becomes ({dropped[0]:g}, 0) and the sum is ({(x + dropped)[0]:g}, 0)")
    assert says(text, f"In use the sum is ({(x + branch)[0]:g}, {(x + branch)[1]:g})")


# ---------------------------------------------------------------- the worked example


def test_attention_by_hand(text, trace):
    keys = X @ W_K_WITHOUT_FACTOR
    for token in (0, 1):
        cells = " | ".join(f"{value:g}" for value in [*trace["Q"][token].round(6), *keys[token].round(6)])
        assert says(text, f"| token {token + 1} | {cells} |")
    products = trace["Q"] @ keys.T
    half = products / 2
    assert says(text, f"= {products[0, 0]:.2f}. Half of it, since the root of 4 is 2, is {half[0, 0]:.3f}")
    assert says(text, f"comes to {products[0, 1]:.2f}, and half of it to {half[0, 1]:.3f}")
    assert half[0, 0] - half[0, 1] == pytest.approx(1)
    assert says(text, f"Token 2 has {half[1, 0]:.2f} twice") and half[1, 0] == pytest.approx(half[1, 1])
    assert trace["A"] == pytest.approx(np.array([[0.75, 0.25], [0.5, 0.5]]))
    values = [f"({', '.join(f'{v:g}' for v in r.round(6) + 0.0)})" for r in trace["V"]]
    assert says(text, f"The values are {values[0]} and {values[1]}")
    assert says(text, "(" + ", ".join(f"{v:g}" for v in trace["A V"][0].round(6)) + ")")
    first, second = ("(" + ", ".join(f"{v:.2f}" for v in r) + ")" for r in trace["MHA(X)"])
    assert says(text, f"**{first}**") and says(text, f"Token 2 gets {second}")


def test_the_attention_and_the_ffn_are_those_that_the_page_assumed(trace):
    for name in ("MHA(X)", "FFN(X')"):
        assert np.abs(trace[name] - PUBLISHED[name]).max() < 1e-12


def test_the_block_by_hand(text, trace):
    total = trace["X + MHA(X)"][0]
    assert says(text, f"| x + A(x) | {row(total, 2)} |")
    assert says(text, f"| minus its mean {trace['mu_1'][0, 0]:.2f} | {row(total - total.mean(), 2)} |")
    sigma = trace["sigma_1"][0, 0]
    y, change, second = (trace[name][0] for name in ("X'", "FFN(X')", "X' + FFN(X')"))
    assert says(text, f"divided by its deviation {sigma:.4f}: this is y | {row(y)} |")
    assert says(text, f"| F(y) | {row(change, 2)} |")
    assert says(text, f"| y + F(y) | {row(second)} |")
    assert says(text, f"normed again: the output | {row(trace['output'][0])} |")


def test_the_four_memories_fire_as_the_text_says(trace):
    fired = (trace["ReLU(X' W1 + b1)"] > 0).reshape(2, 4, 2)[..., 0]
    assert fired.tolist() == [[True, False, True, False], [False, True, True, False]]
    assert trace["FFN(X')"][0] == pytest.approx(MEMORIES[0] + MEMORIES[2] + WEIGHTS_H[7])


def test_the_trace_is_the_block(trace):
    assert np.abs(encoder_block(X[None], *WEIGHTS_H, 1)[0] - trace["output"]).max() < 1e-12


def test_the_known_intermediate_values(trace):
    known = {
        "mu_1": [[0.34], [0.1825]],
        "sigma_1": [[0.529103], [0.511340]],
        "X'": [[1.474167, 0.151197, -1.304071, -0.321293], [0.405789, -0.650240, 1.422705, -1.178254]],
        "X' + FFN(X')": [
            [1.554167, 0.031197, -1.254071, -0.221293],
            [0.345789, -0.560240, 1.392705, -1.108254],
        ],
        "output": [[1.520015, 0.003680, -1.275987, -0.247709], [0.346042, -0.608982, 1.449572, -1.186631]],
    }
    for name, values in known.items():
        assert np.abs(trace[name] - values).max() < 1e-6


def test_the_text_page_holds_every_matrix_and_fits_on_a_page(trace):
    page = trace_page.as_text(trace)
    lines = page.splitlines()
    assert len(lines) <= 66 and max(map(len, lines)) <= 100
    assert set(trace_page.STEPS) == set(trace)
    for name, matrix in {**trace, **trace_page.weights()}.items():
        assert f"{name} {matrix.shape}" in page
    for matrix in trace.values():
        for values in matrix:
            assert all(f"{value + 0.0:.6f}" in page for value in values)


def test_published_beside_right(text, trace):
    published, y, out = PUBLISHED, trace["X'"], trace["output"]
    before, after = published["X'"], published["output"]
    assert says(
        text,
        f"| its deviation | 0.507 | {trace['sigma_1'][0, 0]:.4f} | not printed | {trace['sigma_1'][1, 0]:.4f} |",
    )
    assert says(
        text, f"| y | {spaced(before[0], 2)} | {spaced(y[0])} | {spaced(before[1], 2)} | {spaced(y[1])} |"
    )
    assert says(
        text,
        f"| output | {spaced(after[0], 2)} | {spaced(out[0])} | {spaced(after[1], 2)} | {spaced(out[1])} |",
    )
    sums = published["X + MHA(X)"]
    assert says(text, f"| x + A(x) | {spaced(sums[0], 2)} | the same | {spaced(sums[1], 2)} | the same |")
    assert np.abs(sums - trace["X + MHA(X)"]).max() < 1e-12


def test_seventeen_published_numbers_are_wrong(text, trace):
    wrong = sum(int((np.abs(PUBLISHED[n] - trace[n]) > 0.005).sum()) for n in ("X'", "output"))
    wrong += abs(PUBLISHED["sigma_1 of token 1"][0] - trace["sigma_1"][0, 0]) > 0.0005
    assert wrong == 17 and says(text, "17 numbers")
    assert says(text, "fails on 16 of 16 entries")


def test_the_published_rows_prove_themselves_wrong(text):
    y, out = PUBLISHED["X'"], PUBLISHED["output"]
    assert says(text, f"variances of {y[0].var():.4f} and {y[1].var():.4f}")
    assert says(text, f"means of {out[0].mean():.4f} and {out[1].mean():.4f}")
    # rounding moves the deviation of a row by at most the deviation of the roundings, which is 0.005 at most
    assert says(text, f"stays between {0.995**2:.3f} and {1.005**2:.3f}")
    assert not ((y.var(axis=1) > 0.990) & (y.var(axis=1) < 1.010)).any()
    assert (np.abs(out.mean(axis=1)) > 0.005).all()
    slip = (PUBLISHED["X + MHA(X)"][0] - 0.34) / 0.507
    assert slip.round(2) == pytest.approx(y[0])


def test_what_the_example_cannot_show(text):
    spots = FIGURES["blind_spots"]()
    unseen = [name for name, size in zip(spots["names"], spots["example"]) if size == 0]
    assert len(unseen) == 4 and says(text, "Four of nine bugs change nothing at all")
    by_name = dict(zip(spots["names"], spots["example"]))
    assert says(text, f"the wrong `eps = 1e-6` by {by_name['eps = 1e-6']:.7f}")
    assert by_name["eps outside the root"] < 1e-5
    assert says(text, f"it moves the output by up to {by_name['variance divides by d_model - 1']:.3f}")
    assert spots["telling"].min() > 0.05 and says(text, "shows all nine by more than 0.05")


def test_allclose_lets_seven_of_eight_pass(text):
    wanted = encoder_block(X[None], *WEIGHTS_H, 1)
    wrong_eps = SUSPECTS["eps-1e-6"](X[None], *WEIGHTS_H, 1)
    assert np.isclose(wrong_eps, wanted).sum() == 7
    assert says(text, "lets seven of the eight entries pass with the wrong eps")


# ---------------------------------------------------------------- pre-norm, depth, stack


def test_pre_norm_by_hand(text):
    read = layer_norm(X[0], ONE, ZERO)
    assert says(
        text, f"the mean of (1, 0.5, -0.5, 0.2) is {X[0].mean():.1f}, the deviation is {X[0].std():.4f}"
    )
    assert says(text, f"the attention reads ({row(read, 4, ', ')})")
    result = prenorm_block(X[None], *WEIGHTS_H, 1)[0]
    assert says(text, f"returns ({row(result[0], 6, ', ')}) for token 1")
    assert result[1] == pytest.approx([0.051275, 0.093807, 1.298052, 0.095872], abs=1e-6)


def test_silent_branches():
    z, zero, one = np.zeros((2, 2)), np.zeros(2), np.ones(2)
    arguments = (np.array([[[3.0, 1.0]]]), z, z, z, z, z, zero, z, zero, one, zero, one, zero, 1)
    assert prenorm_block(*arguments).tolist() == [[[3.0, 1.0]]]
    assert encoder_block(*arguments).round(3).tolist() == [[[1.0, -1.0]]]


def test_the_gradient_of_the_last_layer(text):
    deep = FIGURES["last_layer_gradient"]()
    assert says(
        text, f"Post-norm: between {deep['post'].min():.1f} and {deep['post'].max():.1f} at every depth"
    )
    assert says(text, f"Pre-norm: {deep['pre'][0]:.1f} for one block, {deep['pre'][-1]:.1f} for 24")
    assert np.abs(deep["pre"] * np.sqrt(deep["depth"]) / 10 - 1).max() < 0.2
    assert deep["stream_post"][1:] == pytest.approx(1, abs=1e-4)
    assert deep["stream_pre"][-1] == pytest.approx(5, abs=0.2)


def test_two_layers(text):
    two = encoder(X[None], [WEIGHTS_H, WEIGHTS_H], 1)[0]
    assert says(text, f"token 1 comes out as ({row(two[0], 6, ', ')})")
    assert two[1] == pytest.approx([-0.065219, -0.643969, 1.644852, -0.935665], abs=1e-6)
    pre = encoder(X[None], [WEIGHTS_H, WEIGHTS_H], 1, "pre", (ONE, ZERO))[0]
    assert pre[0] == pytest.approx([1.518416, -1.238746, -0.385326, 0.105656], abs=1e-6)


def test_tokens_on_their_way(text):
    way = FIGURES["through_depth"]()
    assert np.ptp(way["length_post"][1:]) < 0.01
    assert says(text, f"the rows have the length {way['length_post'][-1]:.1f} after every block")
    assert says(text, f"grows from {way['cosine_post'][0]:.2f} to {way['cosine_post'][-1]:.2f}")
    assert says(text, f"the rows grow from {way['length_pre'][0]:.1f} to {way['length_pre'][-1]:.1f}")
    assert says(text, f"the cosine ends at {way['cosine_pre'][-1]:.2f}")


# ---------------------------------------------------------------- bugs


def test_the_museum(text):
    for d, digits in ((4, "13.4"), (512, "0.1")):
        assert f"{100 * (1 - np.sqrt((d - 1) / d)):.1f}" == digits
        assert says(text, f"t width {d} ") and says(text, f"off by {digits} %")
    quiet = np.array([0.001, -0.001, 0.001, -0.001])
    good, bad = layer_norm(quiet, ONE, ZERO)[0], norm_with_eps_outside(quiet, ONE, ZERO)[0]
    assert says(text, f"returns {good:.4f} at its first place, this one {bad:.4f}")
    loud = np.array([2.0, 0.0, -1.0, 3.0])
    gap = np.abs(layer_norm(loud, ONE, ZERO) - norm_with_eps_outside(loud, ONE, ZERO)).max()
    assert 1e-6 < gap < 1e-5  # only the sixth decimal


def test_two_measures(text):
    bugs = FIGURES["two_measures"]()
    size = dict(zip(bugs["names"], bugs["difference"]))
    cosine = dict(zip(bugs["names"], bugs["cosine"]))
    small, large = "ffn-reads-input", "no-residual-2"
    assert says(text, f"({size[small]:.2f} against {size[large]:.2f} for *{large}*)")
    assert says(text, f"lower cosine ({cosine[small]:.3f} against {cosine[large]:.3f})")
    assert size[small] < size[large] and cosine[small] < cosine[large]
    assert says(text, f"moves this stack by {size['eps-1e-6']:.7f}")
    assert sum(value > 1e-3 for value in size.values()) == 12


def test_who_sees_whom():
    seen = {name: moved > 0 for name, moved in FIGURES["who_sees_whom"]().items()}
    place = np.arange(8)
    assert np.array_equal(seen["A"], place[:, None] >= place)
    assert seen["B"].all()
    assert np.array_equal(seen["C"], (place < 6) | np.eye(8, dtype=bool))
    assert np.array_equal(seen["D"], abs(place[:, None] - place) <= 1)


def test_why_eps_hides(text):
    ratio = np.sqrt(1.00001 / 1.000001) - 1
    assert says(
        text, f"they differ by {1e6 * ratio:.1f} millionths".replace("they differ", "the results differ")
    )
    large, small = np.sqrt(1e-4 + 1e-5), np.sqrt(1e-4 + 1e-6)
    assert says(text, f"0.00011, which is {large:.6f}") and says(text, f"0.000101, which is {small:.6f}")
    assert large / small - 1 > 0.04 and says(text, "they differ by more than 4 %")


def test_the_labels_of_the_table_are_those_of_the_exercise(text):
    table = text[text.index("| label |") : text.index("The formulas are easy")]
    assert re.findall(r"\| `([a-z0-9-]+)` \|", table) == list(SUSPECTS)


def test_the_probe(text):
    probe = FIGURES["probe_size"]()
    gaps = dict(zip(probe["names"], probe["gap"]))["eps-1e-6"]
    assert gaps[probe["size"] <= 0.0011].max() > 0.1
    assert gaps[-1] < 1e-5 and says(text, "falls below 0.00001 for large ones")


# ---------------------------------------------------------------- further facts of the example


def test_variant_r_is_close_to_the_example(trace):
    close = encoder_block(X[None], *WEIGHTS_R, 1)[0]
    assert np.abs(close - trace["output"]).max() < 7.4e-5


def test_the_example_does_not_see_a_swap_of_the_norms(trace):
    swapped = block_of(lambda x, A, F, L1, L2: right(x, A, F, L2, L1))
    assert np.array_equal(swapped(X[None], *WEIGHTS_H, 1)[0], encoder_block(X[None], *WEIGHTS_H, 1)[0])
