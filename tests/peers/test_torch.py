"""The references against PyTorch, in float64, to 1e-9: modules forward, autograd backward."""

import numpy as np
import pytest
import torch
from torch import nn

from autograder.exercises.encoder_block import (
    block_weights,
    dropout_sublayer,
    encoder,
    encoder_block,
    multi_head_attention,
    prenorm_block,
    softmax,
)
from autograder.exercises.ffn_memory import collapse, ffn, ffn_backward
from autograder.exercises.layer_norm import batch_norm, layer_norm, layer_norm_backward, layer_norm_jacobian
from autograder.exercises.residual_connections import (
    numerical_jacobian,
    residual_vjp,
    stack_backward,
    stack_jacobian,
)
from autograder.figures.encoder_block import HEADS, HIDDEN, TOKENS, WIDTH, gradient_of_last_w2, plain_layer

CLOSE = 1e-9
SHAPES = [(5,), (4, 4), (2, 3), (2, 3, 6), (2, 2, 3, 4)]
SIZES = [(1, 1, 4, 1), (1, 3, 4, 2), (2, 5, 8, 4), (3, 4, 4, 2), (2, 8, 8, 8)]  # batch, seq, d_model, heads


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def tensor(array, grad=False):
    return torch.tensor(np.asarray(array, dtype=float), dtype=torch.float64, requires_grad=grad)


def same(ours, theirs):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < CLOSE


def norm_module(gamma, beta, eps=1e-5):
    module = nn.LayerNorm(len(gamma), eps=eps, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(tensor(gamma))
        module.bias.copy_(tensor(beta))
    return module


# ---------------------------------------------------------------- lesson 1


def test_numerical_jacobian(rng):
    W = rng.normal(size=(3, 4))
    ours = numerical_jacobian(lambda x: np.tanh(x @ W), np.array([0.3, -0.2, 0.5]))
    theirs = torch.autograd.functional.jacobian(lambda x: torch.tanh(x @ tensor(W)), tensor([0.3, -0.2, 0.5]))
    assert np.abs(ours - theirs.numpy()).max() < 1e-8  # central differences, not a formula


def test_residual_vjp(rng):
    W, x, g = rng.normal(size=(4, 4)), rng.normal(size=4), rng.normal(size=4)
    X = tensor(x, grad=True)
    (X + torch.tanh(X @ tensor(W))).backward(tensor(g))
    same(residual_vjp(g, x, lambda x, g: W @ ((1 - np.tanh(x @ W) ** 2) * g)), X.grad)


def test_stack_jacobian(rng):
    Js = [rng.normal(size=(3, 3)) / 3 for _ in range(4)]

    def stack(x):
        for J in Js:
            x = x + tensor(J) @ x
        return x

    same(stack_jacobian(Js, residual=True), torch.autograd.functional.jacobian(stack, tensor(np.zeros(3))))


@pytest.mark.parametrize("residual", [True, False])
def test_stack_backward(rng, residual):
    x, g = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    Ws = [rng.normal(size=(4, 4)) / 2 for _ in range(3)]
    X, weights = tensor(x, grad=True), [tensor(W, grad=True) for W in Ws]
    y = X
    for W in weights:
        y = (y if residual else 0) + torch.tanh(y @ W)
    y.backward(tensor(g))
    dx, dWs = stack_backward(x, Ws, g, residual)
    same(dx, X.grad)
    for ours, W in zip(dWs, weights, strict=True):
        same(ours, W.grad)


# ---------------------------------------------------------------- lesson 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("eps", [1e-5, 1e-2, 1e-12])
def test_layer_norm(rng, shape, eps):
    x, gamma, beta = rng.normal(size=shape), rng.normal(size=shape[-1]), rng.normal(size=shape[-1])
    same(layer_norm(x, gamma, beta, eps), norm_module(gamma, beta, eps)(tensor(x)))


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_backward(rng, shape):
    x, dy = rng.normal(size=shape), rng.normal(size=shape)
    gamma, beta = rng.normal(size=shape[-1]), rng.normal(size=shape[-1])
    module, X = norm_module(gamma, beta, 1e-2), tensor(x, grad=True)
    module(X).backward(tensor(dy))
    for ours, theirs in zip(
        layer_norm_backward(dy, x, gamma, 1e-2), (X.grad, module.weight.grad, module.bias.grad), strict=True
    ):
        same(ours, theirs)


def test_layer_norm_jacobian(rng):
    x = rng.normal(size=6)
    module = norm_module(np.ones(6), np.zeros(6), 0.1)
    same(layer_norm_jacobian(x, 0.1), torch.autograd.functional.jacobian(module, tensor(x)))


@pytest.mark.parametrize("shape", [(6, 3), (4, 5, 3)])
def test_batch_norm_in_training_and_in_use(rng, shape):
    d = shape[-1]
    gamma, beta = rng.normal(size=d), rng.normal(size=d)
    mean, var = rng.normal(size=d), 0.5 + rng.random(d)
    module = nn.BatchNorm1d(d, eps=1e-3, momentum=0.3, dtype=torch.float64)
    with torch.no_grad():
        for theirs, ours in (
            (module.weight, gamma),
            (module.bias, beta),
            (module.running_mean, mean),
            (module.running_var, var),
        ):
            theirs.copy_(tensor(ours))

    def run(x):  # the library wants the features second
        return module(tensor(x).reshape(-1, d)).reshape(x.shape)

    for training in (True, False):
        x = rng.normal(size=shape)
        module.train(training)
        y, mean, var = batch_norm(x, gamma, beta, mean, var, training, 0.3, 1e-3)
        same(y, run(x))
        same(mean, module.running_mean)
        same(var, module.running_var)


# ---------------------------------------------------------------- lesson 3


def network_modules(W1, b1, W2, b2):
    first = nn.Linear(*W1.shape, dtype=torch.float64)
    second = nn.Linear(*W2.shape, dtype=torch.float64)
    with torch.no_grad():
        for linear, W, b in ((first, W1, b1), (second, W2, b2)):
            linear.weight.copy_(tensor(W.T))
            linear.bias.copy_(tensor(b))
    return first, second


@pytest.mark.parametrize("shape", SHAPES)
def test_ffn_and_its_backward_pass(rng, shape):
    d, f = shape[-1], 7
    W1, b1, W2, b2 = rng.normal(size=(d, f)), rng.normal(size=f), rng.normal(size=(f, d)), rng.normal(size=d)
    x, dy = rng.normal(size=shape), rng.normal(size=shape)
    first, second = network_modules(W1, b1, W2, b2)
    X = tensor(x, grad=True)
    y = second(torch.relu(first(X)))
    same(ffn(x, W1, b1, W2, b2), y)
    y.backward(tensor(dy))
    theirs = (X.grad, first.weight.grad.T, first.bias.grad, second.weight.grad.T, second.bias.grad)
    for mine, gradient in zip(ffn_backward(dy, x, W1, b1, W2, b2), theirs, strict=True):
        same(mine, gradient)


def test_collapse(rng):
    W1, b1, W2, b2 = rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=(5, 3)), rng.normal(size=3)
    first, second = network_modules(W1, b1, W2, b2)
    W, b = collapse(W1, b1, W2, b2)
    x = rng.normal(size=(4, 3))
    same(x @ W + b, second(first(tensor(x))))


# ---------------------------------------------------------------- lesson 5


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_softmax(rng, axis, size):
    s = size * rng.normal(size=(3, 4, 5))
    s[0, 0, 0] = -np.inf
    same(softmax(s, axis), torch.softmax(tensor(s), axis))


def test_a_sub_layer_in_use(rng):
    x, W, gamma, beta = (
        rng.normal(size=(2, 3, 4)),
        rng.normal(size=(4, 4)),
        rng.normal(size=4),
        rng.normal(size=4),
    )
    module, dropout = norm_module(gamma, beta), nn.Dropout(0.3).eval()
    ours = dropout_sublayer(
        x, lambda z: z @ W, lambda z: layer_norm(z, gamma, beta), 0.3, np.random.default_rng(0), False
    )
    same(ours, module(tensor(x) + dropout(tensor(x) @ tensor(W))))


def attention_module(W_q, W_k, W_v, W_o, num_heads):
    """The library keeps the three projections in one matrix of rows, (3 d_model, d_model)."""
    module = nn.MultiheadAttention(len(W_q), num_heads, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(tensor(np.concatenate([W_q.T, W_k.T, W_v.T])))
        module.out_proj.weight.copy_(tensor(W_o.T))
    return module


@pytest.mark.parametrize(("batch", "seq", "d", "heads"), SIZES)
def test_multi_head_attention(rng, batch, seq, d, heads):
    x, weights = rng.normal(size=(batch, seq, d)), block_weights(rng, d, 5)[:4]
    X = tensor(x)
    same(multi_head_attention(x, *weights, heads), attention_module(*weights, heads)(X, X, X)[0])


def layer_module(weights, num_heads, norm_first):
    """An encoder layer of the library with a layer of ours: transposed weights, attention biases of 0."""
    W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2 = weights
    module = nn.TransformerEncoderLayer(
        len(W_q),
        num_heads,
        dim_feedforward=len(b1),
        dropout=0.0,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    )
    attention = module.self_attn
    pairs = [
        (attention.in_proj_weight, np.concatenate([W_q.T, W_k.T, W_v.T])),
        (attention.in_proj_bias, np.zeros(3 * len(W_q))),
        (attention.out_proj.weight, W_o.T),
        (attention.out_proj.bias, np.zeros(len(W_q))),
        (module.linear1.weight, W1.T),
        (module.linear1.bias, b1),
        (module.linear2.weight, W2.T),
        (module.linear2.bias, b2),
        (module.norm1.weight, gamma1),
        (module.norm1.bias, beta1),
        (module.norm2.weight, gamma2),
        (module.norm2.bias, beta2),
    ]
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(tensor(ours))
    return module


@pytest.mark.parametrize(("batch", "seq", "d", "heads"), SIZES)
@pytest.mark.parametrize("training", [True, False])  # the library has a faster path for use
@pytest.mark.parametrize(("block", "norm_first"), [(encoder_block, False), (prenorm_block, True)])
def test_the_block(rng, block, norm_first, training, batch, seq, d, heads):
    x, weights = rng.normal(size=(batch, seq, d)), block_weights(rng, d, 6)
    module = layer_module(weights, heads, norm_first).train(training)
    with torch.set_grad_enabled(training):
        same(block(x, *weights, heads), module(tensor(x)))


@pytest.mark.parametrize("size", [0.01, 30.0])
@pytest.mark.parametrize(("block", "norm_first"), [(encoder_block, False), (prenorm_block, True)])
def test_the_block_on_small_and_large_tokens(rng, block, norm_first, size):
    x, weights = size * rng.normal(size=(2, 3, 8)), block_weights(rng, 8, 6)
    same(block(x, *weights, 2), layer_module(weights, 2, norm_first)(tensor(x)))


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize(("norm", "with_final"), [("post", False), ("pre", False), ("pre", True)])
def test_the_stack(rng, depth, norm, with_final):
    x, layers = rng.normal(size=(2, 3, 8)), [block_weights(rng, 8, 6) for _ in range(depth)]
    final = (rng.normal(size=8), rng.normal(size=8)) if with_final else None
    y = tensor(x)
    for weights in layers:
        y = layer_module(weights, 2, norm == "pre")(y)
    if final:
        y = norm_module(*final)(y)
    same(encoder(x, layers, 2, norm, final), y)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_gradient_in_the_figure_of_depth(rng, norm):
    """The stack ends in a plain layer norm: in post-norm that of its last block, in pre-norm one more."""
    x, upstream = rng.normal(size=(2, 1, TOKENS, WIDTH))
    layers = [plain_layer(rng, WIDTH, HIDDEN) for _ in range(2)]
    modules = [layer_module(weights, HEADS, norm == "pre") for weights in layers]
    y = modules[1](modules[0](tensor(x)))
    if norm == "pre":
        y = norm_module(np.ones(WIDTH), np.zeros(WIDTH))(y)
    y.backward(tensor(upstream))
    theirs = float(torch.linalg.norm(modules[1].linear2.weight.grad))
    assert gradient_of_last_w2(x, layers, norm, upstream) == pytest.approx(theirs, rel=CLOSE)
