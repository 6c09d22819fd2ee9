"""The numbers in the prose of lesson 1."""

import numpy as np
import pytest

from autograder.exercises.residual_connections import (
    edit_report,
    numerical_jacobian,
    path_contributions,
    path_length_share,
    residual,
    residual_vjp,
    stack_backward,
    stack_jacobian,
)
from autograder.figures import residual_connections as shown
from course import given
from tests.lessons import says, text_of

TEXT = text_of("01_residual_connections")
LENGTH_X = np.array([19.5, 18.9, 19.6, 19.7, 14.0, 18.3, 19.8, 20.2, 20.3, 18.5, 15.0, 11.4])
LENGTH_ATTENTION = np.array([9.7, 3.7, 3.7, 9.3, 9.3, 3.2, 3.9, 10.4, 6.5, 2.9, 10.1, 7.2])
COSINE = np.array([0.67, 0.71, 0.76, 0.71, 0.62, 0.74, 0.77, 0.72, 0.81, 0.74, 0.66, 0.68])


def row(values) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"


def listed(values) -> str:
    """The numbers as the figure's code has them."""
    return "[" + ", ".join(str(value) for value in values.tolist()) + "]"


def test_the_first_edit():
    y = residual(np.array([2.0, 0.0]), given.constant(np.array([0.5, -1.0])))
    assert says(TEXT, f"The new token is {row(y)}.")
    change, cosine = edit_report(np.array([2.0, 0.0]), y)
    assert says(TEXT, f"the relative change is {change:.6f}")
    assert says(
        TEXT, f"= {cosine:.6f}. That is an angle of about {np.degrees(np.arccos(cosine)):.0f} degrees"
    )
    assert says(TEXT, f"has the length $\\sqrt{{0.25 + 1}}$ = {np.sqrt(1.25):.3f}")
    assert says(TEXT, f"has the length $\\sqrt{{6.25 + 1}}$ = {np.linalg.norm(y):.3f}")


def test_the_tiny_network():
    x = np.array([1.0, 2.0])
    assert says(TEXT, f"so *f* is {row(given.tiny_ffn()(x))}")
    plain = numerical_jacobian(given.tiny_ffn(), x).round(6)
    assert says(TEXT, f"columns of *J* are {row(plain[:, 0])} and {row(plain[:, 1])}")
    for J in (plain, numerical_jacobian(given.tiny_ffn(1.0), x).round(6)):
        (a, b), (c, d) = J
        assert says(TEXT, f"\\begin{{pmatrix}} {a:g} & {b:g} \\\\ {c:g} & {d:g} \\end{{pmatrix}}")
    back = given.pulls_back(plain)
    assert says(TEXT, f"= {row(back(x, np.ones(2)))}. The straight way adds (1, 1)")
    assert says(TEXT, f"Together: {row(residual_vjp(np.ones(2), x, back))}")


def test_the_slope_of_a_cube():
    up, down = 2.1**3, 1.9**3
    assert says(TEXT, f"2.1 cubed is {up:.3f} and 1.9 cubed is {down:.3f}")
    assert says(TEXT, f"Their difference {up - down:.3f} over 0.2 is {(up - down) / 0.2:.2f}")
    assert says(TEXT, f"({up:.3f} - 8) / 0.1 = {(up - 8) / 0.1:.2f}. The error is {(up - 8) / 0.1 - 12:.2f}")


def test_six_layers_of_one_number():
    half = [np.array([[0.5]])] * 6
    assert says(TEXT, f"0.5 to the power 6 is {stack_jacobian(half, residual=False).item():g}")
    assert says(TEXT, f"1.5 to the power 6 is {stack_jacobian(half).item():.6f}")
    assert says(TEXT, f"- [x] {stack_jacobian(half).item():.1f}: 1.5 multiplied six times")
    assert says(TEXT, "1.5 to the power 6 is 11.4") and says(TEXT, "the factor is 1 - 0.9 = 0.1")


def test_the_order_of_two_layers():
    J1, J2 = np.array([[0, 1], [0, 0]]), np.array([[0, 0], [1, 0]])
    assert stack_jacobian([J1, J2], residual=False).tolist() == [[0, 0], [0, 1]]
    assert says(TEXT, "= \\begin{pmatrix} 0 & 0 \\\\ 0 & 1 \\end{pmatrix}")
    assert stack_jacobian([J2, J1], residual=False).tolist() == [[1, 0], [0, 0]]
    assert says(TEXT, "J_1 J_2 = \\begin{pmatrix} 1 & 0 \\\\ 0 & 0 \\end{pmatrix}")


def test_five_kinds_of_stack():
    gains = shown.depth_gain()
    last = {kind: values[24] for kind, values in gains.items()}
    assert says(TEXT, f"**plain** has a gain of {last['plain']:.6f}.")
    assert 4.5e8 < last["residual"] < 5.5e8 and says(TEXT, "has a gain of five hundred million")
    assert says(TEXT, f"**plain with a norm** has {last['plain_norm']:.2g}.")
    assert says(TEXT, f"**post-norm** has {last['post_norm']:.2g} and **pre-norm** {last['pre_norm']:.2g}.")
    straight = gains["post_norm_straight_path"]
    assert says(TEXT, f"a gain of {straight[6]:.2f} after 6 blocks and of {straight[24]:.6f} after 24")
    size = gains["pre_norm_size"]
    assert says(TEXT, f"goes from {size[0]:.1f} to {size[24]:.1f} over these 24 blocks")
    assert np.allclose(gains["post_norm_size"], 1, atol=1e-3) and says(
        TEXT, "In post-norm it is 1.0 after every block"
    )


def test_the_gain_is_the_size_of_a_jacobian():
    """The figure's small changes agree with differences of the stack's outputs."""
    stack_of = np.random.default_rng(0)
    f, ffn = shown.attention(stack_of), shown.feed_forward(stack_of)
    x, dx = shown.begin(np.random.default_rng(1))

    def run(x, dx, kind):
        stream = shown.step(kind, ffn, shown.step(kind, f, (x, dx)))
        return shown.norm(stream) if kind == "pre_norm" else stream

    for kind in shown.KINDS:
        moved = run(x, dx, kind)[1]
        none = np.zeros_like(dx)
        differences = [
            (run(x + 1e-6 * v, none, kind)[0] - run(x - 1e-6 * v, none, kind)[0]) / 2e-6 for v in dx
        ]
        assert moved == pytest.approx(np.array(differences), abs=1e-6)


def test_silent_branches():
    moved = shown.small_branches()
    assert not moved["pre_norm"][0].any()
    assert says(TEXT, f"here a relative change of {moved['post_norm'][0, 24]:.1f}")
    assert np.ptp(moved["post_norm"][0, 1:]) < 1e-3


def test_deepnorm():
    for N in (6, 1000):
        alpha, beta = (2 * N) ** 0.25, (8 * N) ** -0.25
        assert says(TEXT, f"α is {alpha:.3f} and β is {beta:.3f}")


def test_the_measured_tokens():
    for numbers in (LENGTH_X, LENGTH_ATTENTION, COSINE):
        assert says(TEXT, listed(numbers))
    ratio, angle = LENGTH_ATTENTION / LENGTH_X, np.degrees(np.arccos(COSINE))
    assert says(TEXT, f"The change is {ratio.min():.2f} to {ratio.max():.2f} times as long as the token")
    assert says(TEXT, f"turned by {angle.min():.0f} to {angle.max():.0f} degrees")
    most = np.degrees(np.arcsin(ratio))
    assert says(
        TEXT, f"a relative change of {ratio[9]:.2f} can turn a token by {most[9]:.0f} degrees at most"
    )
    assert says(TEXT, f"this one has turned by {angle[9]:.0f}") and (angle > most).all()


def test_shares_of_paths():
    shares = path_length_share(2, 0.5)
    assert says(TEXT, "The shares are {:.3f}, {:.3f} and {:.3f}.".format(*shares))
    assert says(TEXT, "Together that is 2.25, which is 1.5 squared")
    resnet = path_length_share(54, 0.25)
    assert says(TEXT, f"0.2 times 54 is {np.arange(55) @ resnet:.1f}")
    assert says(TEXT, f"puts {100 * resnet[5:18].sum():.1f} % there")


def test_two_and_three_layers_of_paths():
    J1, J2, J3 = np.random.default_rng(1).normal(size=(3, 2, 2))
    assert path_contributions([J1, J2]) == pytest.approx(np.array([np.eye(2), J1 + J2, J2 @ J1]))
    longer = [np.eye(2), (J1 + J2) + J3, J2 @ J1 + J3 @ (J1 + J2), J3 @ (J2 @ J1)]
    assert path_contributions([J1, J2, J3]) == pytest.approx(np.array(longer))


def test_back_propagation_by_hand():
    one = np.array([[1.0]])
    dx, (dW,) = stack_backward(0.5 * one, [one], one)
    h = np.tanh(0.5)
    assert says(TEXT, f"*h* = tanh 0.5 = {h:.6f} and the slope is 1 - {h:.6f}² = {1 - h * h:.6f}")
    assert says(TEXT, f"= {dW.item():.6f}, and the gradient at *x* is 1 + {1 - h * h:.6f} = {dx.item():.6f}")
    assert stack_backward(0.5 * one, [0 * one] * 6, one)[0].item() == 1.0


@pytest.mark.parametrize("residual", [True, False])
def test_back_propagation_agrees_with_differences(residual):
    rng = np.random.default_rng(5)
    x, g = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    Ws = [rng.normal(size=(4, 4)) / 2 for _ in range(3)]

    def loss(x, Ws):
        for W in Ws:
            x = np.tanh(x @ W) + (x if residual else 0)
        return np.array([(g * x).sum()])

    dx, dWs = stack_backward(x, Ws, g, residual)
    assert dx.ravel() == pytest.approx(
        numerical_jacobian(lambda z: loss(z.reshape(3, 4), Ws), x.ravel())[0], abs=1e-7
    )
    for n, dW in enumerate(dWs):

        def moved(w, n=n):
            return loss(x, [*Ws[:n], w.reshape(4, 4), *Ws[n + 1 :]])

        assert dW.ravel() == pytest.approx(numerical_jacobian(moved, Ws[n].ravel())[0], abs=1e-7)


def test_the_training_run():
    run = shown.training_run()
    by_depth = {
        kind: {int(n): losses for n, losses in zip(run["layers"], run[kind])}
        for kind in ("plain", "residual")
    }
    plain, with_skip = by_depth["plain"], by_depth["residual"]
    assert all(plain[n].min() < 0.05 for n in (2, 4, 8)) and plain[16].min() > 0.05
    assert np.allclose(plain[32], 1, atol=0.01) and says(TEXT, "With 32 the loss stays at 1")
    first_below = {n: int(run["steps"][np.flatnonzero(losses < 0.05)[0]]) for n, losses in with_skip.items()}
    assert min(first_below, key=first_below.get) == 32
    assert says(TEXT, f"the deepest learns first, after about {first_below[32]} steps")
    assert max(losses[0] for losses in with_skip.values()) == with_skip[32][0]
    assert says(TEXT, f"0.5 to the power 32 is {0.5**32:.1e}")


def test_the_lesion_study():
    """The figure's words: a plain stack loses its output, a residual one a part of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 32))
    Ws = [rng.normal(size=(32, 32)) / np.sqrt(32) for _ in range(24)]

    def damage(skip, strength):
        def through(Ws):
            y = x
            for W in Ws:
                y = skip * y + strength * np.tanh(y @ W)
            return y

        whole = through(Ws)
        changes = [
            np.linalg.norm(through(Ws[:i] + Ws[i + 1 :]) - whole) / np.linalg.norm(whole) for i in range(24)
        ]
        return np.median(changes)

    assert damage(0, 1) > 1.2
    assert says(
        TEXT,
        f"in a residual stack around {damage(1, 1):.1f}, with weak branches around {damage(1, 0.25):.2f}",
    )
    assert says(
        TEXT, f"A relative change of {np.sqrt(2):.2f} is what two unrelated outputs of one length show"
    )
