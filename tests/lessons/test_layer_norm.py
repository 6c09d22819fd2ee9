"""Every number in the prose of lesson 2 is computed here and looked for in the text."""

import numpy as np
import pytest

from autograder.exercises.layer_norm import (
    CORRECTED,
    PUBLISHED,
    batch_norm,
    could_be_layer_norm,
    layer_norm,
    layer_norm_backward,
    layer_norm_jacobian,
    leak,
    masked_feature_stats,
    sharpen,
)
from autograder.figures import by_lesson
from tests.lessons import says, text_of

FIGURES = by_lesson()["layer_norm"]
ROW = np.array([2.0, 0.0, -1.0, 3.0])
SUMS = np.array([[1.12, 0.42, -0.35, 0.17], [0.39, -0.15, 0.91, -0.42]])  # x + attention
FFN = np.array([[0.08, -0.12, 0.05, 0.10], [-0.06, 0.09, -0.03, 0.07]])


@pytest.fixture(scope="module")
def text():
    return text_of("02_layer_norm")


def plain(x, eps=1e-5):
    d = np.shape(x)[-1]
    return layer_norm(np.asarray(x, dtype=float), np.ones(d), np.zeros(d), eps)


def listed(row, decimals):
    """The numbers of a row as the text writes them."""
    return ", ".join(f"{value:.{decimals}f}" for value in np.asarray(row) + 0.0)


def test_the_row_by_hand(text):
    xhat = plain(ROW, 0.0)
    assert says(text, f"mean: 4 / 4 = {ROW.mean():g}")
    assert says(text, "distances from the mean: " + ", ".join(f"{c:g}" for c in ROW - ROW.mean()))
    assert says(text, f"the variance is 10 / 4 = {ROW.var():.1f} and its root {ROW.std():.3f}")
    assert says(text, f"distances divided by the root: {listed(xhat, 3)}")


def test_gamma_changes_the_order(text):
    line = FIGURES["number_line"]()
    scaled = line["scaled"]
    assert says(text, f"1.265 becomes {scaled[3]:.3f}")
    assert np.argmax(line["normalised"]) == 3 and np.argmax(scaled) == 0
    assert says(text, f"it moves from the right end to {scaled[3]:.2f}, left of feature 1")


def test_a_row_as_small_as_eps(text):
    small = ROW / 1000
    assert says(text, f"Divided by 1000, the row has the variance {small.var():.7f}")
    after = plain(small).var()
    assert after == pytest.approx(small.var() / (small.var() + 1e-5))
    assert says(text, f"{small.var():.7f} / {small.var() + 1e-5:.7f} = {after:.1f}")


def test_batch_norm_by_hand(text):
    x = np.array([[1.0, 2.0], [3.0, 6.0]])
    y, mean, var = batch_norm(x, np.ones(2), np.zeros(2), np.zeros(2), np.ones(2), True, eps=0.0)
    assert y.tolist() == [[-1, -1], [1, 1]]
    for feature, old in ((0, "1 and 3"), (1, "2 and 6")):
        statistics = f"mean {x[:, feature].mean():g}, variance {x[:, feature].var():g}"
        assert says(text, f"feature {feature + 1}: {statistics}")
        assert says(text, f"so {old} become -1 and 1")
    assert says(text, f"0.9 · 0 + 0.1 · 2 = {mean[0]:.1f} and 0.1 · 4 = {mean[1]:.1f}")
    unbiased = x.var(axis=0, ddof=1)
    assert says(text, f"the variances are {unbiased[0]:g} and {unbiased[1]:g}")
    assert says(text, f"0.9 + 0.2 = {var[0]:.1f} and 0.9 + 0.8 = {var[1]:.1f}")


def test_running_mean_figure(text):
    steps = FIGURES["running_mean"]()
    low, high = steps["batch"].min(), steps["batch"].max()
    assert says(text, f"the batch means scatter between {low:.1f} and {high:.1f} around 3")
    assert says(text, f"batch means from {low:.1f} to {high:.1f} around 3 with 8 rows")
    assert np.abs(steps["running"][30:] - 3).max() < 0.35


def test_training_and_use(text):
    gap = dict(zip(*FIGURES["batch_size_gap"]().values()))
    assert says(text, f"With one row the typical difference is {gap[1]:.1f}")
    assert says(text, f"With 8 rows the difference is still {gap[8]:.2f}, with 256 rows {gap[256]:.2f}")
    row = np.array([[3.0, -7.0]])
    y, *_ = batch_norm(row, np.ones(2), np.array([5.0, 6.0]), np.zeros(2), np.ones(2), True)
    assert y.tolist() == [[5, 6]]  # exactly beta


def test_padding(text):
    x, mask = np.array([[[1.0], [3.0]], [[5.0], [0.0]]]), np.array([[True, True], [True, False]])
    mean, var = masked_feature_stats(x, mask)
    assert says(text, f"the mean is 9 / 3 = {mean[0]:g}")
    assert says(text, f"the variance is 8 / 3 = {var[0]:.3f}")
    assert says(text, f"the mean would be 9 / 4 = {x.mean():.2f}")
    drift = FIGURES["padding_drift"]()
    assert says(text, f"the mean fell from {drift['counted'][0]:.1f} to {drift['counted'][-1]:.1f}")
    assert drift["share"][-1] == pytest.approx(0.9)
    assert (drift["masked"] == drift["masked"][0]).all()


def test_the_jacobian_by_hand(text):
    xhat, sigma = plain(ROW, 0.0), ROW.std()
    first = layer_norm_jacobian(ROW, 0.0)[0]
    bracket = first * sigma
    assert says(text, f"1 - 0.25 - 0.632 · 0.632 / 4 = {bracket[0]:.2f}, divided by sigma: {first[0]:.3f}")
    assert says(text, f"0 - 0.25 + 0.632 · 0.632 / 4 = {bracket[1]:.2f}, divided by sigma: {first[1]:.3f}")
    assert says(text, f"{first[2]:.3f} and {first[3]:.3f}")
    assert says(text, f"x-hat is ({listed(xhat, 3)})")
    values = FIGURES["norm_singular_values"]()
    assert values["layer_norm"].round(3).tolist() == [0.632, 0.632, 0, 0]
    assert says(text, f"1/sigma = {1 / sigma:.3f}, and deletes two")
    assert says(text, f"{values['rms_norm'][0]:.3f} three times, then 0 for RMSNorm")
    assert values["rms_norm"].round(3).tolist() == [0.535, 0.535, 0.535, 0]


def test_the_leak_by_hand(text):
    X, new = np.array([[[1.0, 2.0]], [[3.0, 6.0]], [[2.0, 4.0]]]), np.array([[8.0, 4.0]])

    def batch(x):
        return batch_norm(x, np.ones(2), np.zeros(2), np.zeros(2), np.ones(2), True)[0]

    after = X.copy()
    after[2] = new
    for x, numbers in (
        (X, "1, 3, 2 has mean 2 and variance 2/3"),
        (after, "the mean is 4 and the variance 26/3"),
    ):
        assert says(text, numbers)
        assert f"{x[:, 0, 0].mean():g}" in numbers
    assert X[:, 0, 0].var() == pytest.approx(2 / 3) and after[:, 0, 0].var() == pytest.approx(26 / 3)
    old, moved = batch(X)[:, 0, 0], batch(after)[:, 0, 0]
    assert says(text, f"rows 1 and 2 give {old[0]:.3f} and {old[1]:.3f}")
    assert says(text, f"they give {moved[0]:.3f} and {moved[1]:.3f}")
    assert says(text, f"from {old[1]:.3f} to {moved[1]:.3f}: the leak is {leak(batch, X, 2, new):.3f}")
    assert says(text, f"experiment by {leak(batch, X, 2, new):.3f}, with layer norm by 0")
    assert leak(plain, X, 2, new) == 0
    maps = FIGURES["leak_maps"]()
    others = [0, 2, 3]
    assert maps["layer_norm"][others].max() == 0
    assert says(text, f"by up to {maps['batch_norm'][others].max():.1f} outside sentence 2")


def test_the_growing_stream(text):
    growth = FIGURES["stream_growth"]()
    assert says(
        text, f"without a norm the stream grows from 1 to about {round(growth['no norm: size'][-1], -4):,.0f}"
    )
    assert says(text, f"in pre-norm it grows to {growth['pre-norm: size'][-1]:.1f}")
    assert says(text, f"here to {growth['pre-norm: size'][-1]:.1f} after 24 blocks")
    assert growth["post-norm: size"] == pytest.approx(1, abs=1e-3)
    assert says(text, f"it is {growth['even']:.2f} nats when all weights are equal")
    without, pre = growth["no norm: entropy"], growth["pre-norm: entropy"]
    assert says(text, f"the entropy falls from {without[0]:.2f} to {without[11]:.2f} nats within 12 blocks")
    assert says(text, f"In pre-norm it is {pre[11]:.2f} at block 12")
    assert pre[:12].min() > 2.1 and pre[:12].max() < 2.4


def test_doubling_the_stream_quadruples_the_scores():
    rng = np.random.default_rng(1)
    x, w_q, w_k = (rng.normal(size=(4, 4)) for _ in range(3))
    scores = (x @ w_q) @ (x @ w_k).T
    assert (2 * x @ w_q) @ (2 * x @ w_k).T == pytest.approx(4 * scores)
    assert plain(2 * x, 0.0) == pytest.approx(plain(x, 0.0))


def test_sharpening(text):
    pair = sharpen(np.array([0.8, 0.2]), 2)
    assert says(text, "the squares are 0.64 and 0.04, their sum is 0.68")
    assert says(text, f"the new weights are {pair[0]:.3f} and {pair[1]:.3f}")
    row = np.array([0.6, 0.18, 0.12, 0.06, 0.04])
    assert says(text, f"f = 3: {sharpen(row, 3)[0]:.3f}")
    assert says(text, f"f = 4: {sharpen(row, 4)[0]:.3f}")
    assert says(text, f"the weight becomes {sharpen(row, 4)[0]:.3f}")
    assert says(text, f"a stream {np.sqrt(3):.1f} times as large")


def test_the_backward_pass_by_hand(text):
    terms = FIGURES["backward_terms"]()
    part = (terms["g"] * plain(ROW, 0.0)).mean()
    assert says(
        text, f"mean of g: {terms['g'].mean():.2f}, which leaves ({listed(terms['without_mean'], 2)})"
    )
    assert says(text, f"0.632 / 4 = {part:.3f}; times x-hat that is ({listed(part * plain(ROW, 0.0), 1)})")
    assert says(text, f"which leaves ({listed(terms['without_both'], 2)})")
    assert says(text, f"divided by 1.581: ({listed(terms['dx'], 3)})")
    dx, dgamma, dbeta = layer_norm_backward(np.eye(4)[0], ROW, np.ones(4), 0.0)
    assert says(text, f"dgamma is dy times x-hat, ({dgamma[0]:.3f}, 0, 0, 0)") and not dgamma[1:].any()
    assert dbeta.tolist() == [1, 0, 0, 0]
    assert dx == pytest.approx(terms["dx"]) and dx == pytest.approx(layer_norm_jacobian(ROW, 0.0)[0])


def test_the_published_rows_on_trial(text):
    rows = np.array(PUBLISHED)
    for row in rows:
        assert says(text, listed(row, 2))
    assert says(text, f"means of {rows[2].mean():.4f} and {rows[3].mean():.4f}")
    assert says(text, f"variances of {rows[0].var():.4f} and {rows[1].var():.4f}")
    inwards, outwards = np.abs(rows[0]) - 0.005, np.abs(rows[0]) + 0.005
    assert says(text, f"{listed(np.sign(rows[0]) * inwards, 3)}, mean of squares {(inwards**2).mean():.4f}")
    assert says(text, f"away from 0: mean of squares {(outwards**2).mean():.4f}")
    assert says(text, f"1 is not between {(inwards**2).mean():.4f} and {(outwards**2).mean():.4f}")
    assert could_be_layer_norm(rows, 2).tolist() == [False] * 4
    assert could_be_layer_norm(np.array(CORRECTED), 2).tolist() == [True] * 4


def test_the_corrected_example(text):
    normed = plain(SUMS)
    sums = normed + FFN
    output = plain(sums)
    assert says(text, f"{SUMS[0].std():.4f} (printed: 0.507) | {SUMS[1].std():.4f}")
    for name, rows in {"X'": normed, "X' + FFN": sums, "output": output}.items():
        assert says(text, f"| {name} | {listed(rows[0], 4)} | {listed(rows[1], 4)} |")
    assert np.array(CORRECTED) == pytest.approx(np.concatenate([normed, output]), abs=0.005)
    # 17 wrong numbers: sigma, eight of X', eight of the output; the sums follow from the printed X'
    published = np.array(PUBLISHED)
    assert (np.abs(published - np.concatenate([normed, output])) > 0.005).sum() == 16
    assert says(text, "in all 16 entries") and says(text, "Seventeen printed numbers are wrong")
    for row in published[:2] + FFN:
        assert says(text, listed(row, 2))
    # the first row of X' is what sigma = 0.507 gives
    assert (SUMS[0] - SUMS[0].mean()) / 0.507 == pytest.approx(published[0], abs=0.0051)


def test_the_cost_of_d_minus_1(text):
    slip = FIGURES["d_minus_1_error"]()
    by_width = dict(zip(slip["width"], slip["by_width"]))
    assert says(text, f"For d = 4 it is {1 - by_width[4]:.3f}: {100 * by_width[4]:.1f} % too small")
    assert says(text, f"For d = 512 it is {1 - by_width[512]:.3f}: {100 * by_width[512]:.1f} % too small")
    assert says(text, f"the root of 1/2, {np.sqrt(0.5):.3f}")
    assert says(text, f"from {100 * by_width[2]:.0f} percent at d_model 2")
    low, high = 100 * slip["by_depth"].min(), 100 * slip["by_depth"].max()
    assert says(text, f"stays between {low:.2f} and {high:.2f} percent over 24 blocks")
