"""Numbers for the figures of lesson 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autograder.exercises.encoder_block import (
    SUSPECTS,
    as_one_sentence,
    block_of,
    block_weights,
    encoder,
    encoder_block,
    ffn,
    layer_norm,
    merge_by_reshape,
    multi_head_attention,
    norm_1_twice,
    norm_with_d_minus_1,
    norm_with_eps_outside,
    pre_norm,
    prenorm_block,
    right,
    softmax,
    split_by_reshape,
    split_heads,
    wrong_attention,
)
from autograder.exercises.layer_norm import layer_norm_backward
from autograder.exercises.positional_encoding import positional_encoding
from autograder.figures import figure_data, single
from course.worked_example import BETA, GAMMA, NUM_HEADS, WEIGHTS_H, X

# ---------------------------------------------------------------- the worked example


def trace(weights: tuple = WEIGHTS_H) -> dict[str, np.ndarray]:
    """Every matrix of the worked example, post-norm, by its symbol, in the order of computation."""
    W_q, W_k, W_v, W_o, W1, b1, W2, b2, *_ = weights
    q, k, v = X @ W_q, X @ W_k, X @ W_v
    scores = q @ k.T / np.sqrt(q.shape[-1])
    shares = softmax(scores)
    mha = multi_head_attention(X[None], W_q, W_k, W_v, W_o, NUM_HEADS)[0]
    first = layer_norm(X + mha, GAMMA, BETA)
    change = ffn(first, W1, b1, W2, b2)
    return {
        "X": X,
        "Q": q,
        "K": k,
        "V": v,
        "S": scores,
        "A": shares,
        "A V": shares @ v,
        "MHA(X)": mha,
        "X + MHA(X)": X + mha,
        "mu_1": (X + mha).mean(axis=-1, keepdims=True),
        "sigma_1": (X + mha).std(axis=-1, keepdims=True),
        "X'": first,
        "X' W1 + b1": first @ W1 + b1,
        "ReLU(X' W1 + b1)": np.maximum(first @ W1 + b1, 0),
        "FFN(X')": change,
        "X' + FFN(X')": first + change,
        "mu_2": (first + change).mean(axis=-1, keepdims=True),
        "sigma_2": (first + change).std(axis=-1, keepdims=True),
        "output": layer_norm(first + change, GAMMA, BETA),
    }


@figure_data
def worked_trace() -> dict[str, Any]:
    """Every matrix of the worked example with weights H, by its symbol."""
    return dict(trace())


@figure_data
def worked_prenorm() -> dict[str, Any]:
    """What the pre-norm block gives for the same weights and the same two tokens."""
    return {"output": prenorm_block(X[None], *WEIGHTS_H, NUM_HEADS)[0]}


# ---------------------------------------------------------------- heads, dropout


@figure_data
def cut_into_heads() -> dict[str, Any]:
    """Which token each number of each head comes from: cut the right way, and by one reshape."""
    owner = np.repeat(np.arange(4.0), 6).reshape(1, 4, 6)
    return {"right": single(split_heads(owner, 2)[0]), "one_reshape": single(split_by_reshape(owner, 2)[0])}


@figure_data
def dropout_steps() -> dict[str, Any]:
    """x, a branch, the branch after dropout with p = 0.4, and their sum, for 4 tokens of 8 features."""
    rng = np.random.default_rng(3)
    x, branch = rng.normal(size=(4, 8)), rng.normal(size=(4, 8)) / 2
    dropped = branch * (rng.random(branch.shape) >= 0.4) / 0.6
    return {
        "x": single(x),
        "f(x)": single(branch),
        "dropout(f(x))": single(dropped),
        "sum": single(x + dropped),
    }


# ---------------------------------------------------------------- depth: post-norm against pre-norm

DEPTHS = (1, 3, 6, 12, 24)
WIDTH, TOKENS, HEADS, HIDDEN, DRAWS = 64, 12, 8, 256, 5


def plain_layer(rng: np.random.Generator, d: int, f: int) -> tuple[np.ndarray, ...]:
    """The weights of one layer as they are drawn before training: N(0, 1/fan_in), gamma 1, all else 0."""
    attention = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(4))
    W1, W2 = rng.normal(size=(d, f)) / np.sqrt(d), rng.normal(size=(f, d)) / np.sqrt(f)
    one, zero = np.ones(d), np.zeros(d)
    return (*attention, W1, np.zeros(f), W2, zero, one, zero, one, zero)


def gradient_of_last_w2(x: np.ndarray, layers: list, norm: str, upstream: np.ndarray) -> float:
    """The length of the gradient of the last layer's W2, for one gradient that arrives at the stack's output."""
    W_q, W_k, W_v, W_o, W1, b1, W2, b2, gamma1, beta1, gamma2, beta2 = layers[-1]
    x = encoder(x, layers[:-1], HEADS, norm)
    if norm == "post":
        y = layer_norm(x + multi_head_attention(x, W_q, W_k, W_v, W_o, HEADS), gamma1, beta1)
        read = y
    else:
        y = x + multi_head_attention(layer_norm(x, gamma1, beta1), W_q, W_k, W_v, W_o, HEADS)
        read = layer_norm(y, gamma2, beta2)
    hidden = np.maximum(read @ W1 + b1, 0)
    stream = y + ffn(read, W1, b1, W2, b2)  # both kinds of stack end in a plain layer norm of this
    arriving, _, _ = layer_norm_backward(upstream, stream, np.ones(WIDTH))
    return float(np.linalg.norm(np.einsum("btf,btd->fd", hidden, arriving)))


def stream_size(x: np.ndarray, layers: list, norm: str) -> list[float]:
    """The root mean square of the stream after 0, 1, 2, ... blocks."""
    sizes = [np.sqrt((x**2).mean())]
    for layer in layers:
        x = encoder(x, [layer], HEADS, norm)
        sizes.append(np.sqrt((x**2).mean()))
    return [float(size) for size in sizes]


@figure_data
def last_layer_gradient() -> dict[str, Any]:
    """Post-norm and pre-norm stacks of growing depth: gradient of the last layer's W2, mean of five draws."""
    gradients: dict[str, list[float]] = {"post": [], "pre": []}
    for depth in DEPTHS:
        for norm, found in gradients.items():
            draws = []
            for seed in range(DRAWS):
                rng = np.random.default_rng([seed, depth])
                x = layer_norm(rng.normal(size=(1, TOKENS, WIDTH)), np.ones(WIDTH), np.zeros(WIDTH))
                layers = [plain_layer(rng, WIDTH, HIDDEN) for _ in range(depth)]
                upstream = rng.normal(size=x.shape)
                draws.append(gradient_of_last_w2(x, layers, norm, upstream / np.linalg.norm(upstream)))
            found.append(float(np.mean(draws)))
    rng = np.random.default_rng(0)
    x = layer_norm(rng.normal(size=(1, TOKENS, WIDTH)), np.ones(WIDTH), np.zeros(WIDTH))
    layers = [plain_layer(rng, WIDTH, HIDDEN) for _ in range(max(DEPTHS))]
    return {
        "depth": np.array(DEPTHS),
        "post": np.array(gradients["post"]),
        "pre": np.array(gradients["pre"]),
        "stream_post": single(stream_size(x, layers, "post")),
        "stream_pre": single(stream_size(x, layers, "pre")),
    }


# ---------------------------------------------------------------- what the worked example cannot see


def unscaled_by_head(q: np.ndarray, shape: tuple[int, ...]) -> float:
    return float(np.sqrt(shape[-1]))


EXHIBITS: Mapping[str, Callable] = {
    "pre-norm order": block_of(pre_norm),
    "weights transposed": block_of(
        right, attention=wrong_attention(project=lambda x, W: x @ W.T, output=lambda y, W_o: y @ W_o.T)
    ),
    "variance divides by d_model - 1": block_of(right, norm=norm_with_d_minus_1),
    "eps outside the root": block_of(right, norm=norm_with_eps_outside),
    "eps = 1e-6": SUSPECTS["eps-1e-6"],
    "1/sqrt(d_model) for 1/sqrt(d_k)": block_of(right, attention=wrong_attention(divisor=unscaled_by_head)),
    "heads merged by one reshape": block_of(right, attention=wrong_attention(merge=merge_by_reshape)),
    "gamma1, beta1 in both norms": block_of(norm_1_twice),
    "sentences mixed": block_of(right, attention=as_one_sentence(multi_head_attention)),
}


def telling_input() -> tuple:
    """Two sentences, two heads, all gammas and betas different, one sentence of order one and one of size 0.01."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(2, 3, 4))
    x[1] *= 0.01
    return (x, *block_weights(rng, 4, 6), 2)


@figure_data
def blind_spots() -> dict[str, Any]:
    """How far nine wrong blocks are from the right one: on the worked example, and on a telling input."""
    example, telling = (X[None], *WEIGHTS_H, NUM_HEADS), telling_input()

    def distance(block: Callable, arguments: tuple) -> float:
        return float(np.abs(block(*arguments) - encoder_block(*arguments)).max())

    return {
        "names": list(EXHIBITS),
        "example": np.array([distance(block, example) for block in EXHIBITS.values()]),
        "telling": np.array([distance(block, telling) for block in EXHIBITS.values()]),
    }


# ---------------------------------------------------------------- two measures of a bug


def mean_cosine(a: np.ndarray, b: np.ndarray) -> float:
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return float(((a * b).sum(axis=-1) / lengths).mean())


@figure_data
def two_measures() -> dict[str, Any]:
    """Largest difference and mean cosine of a stack of six blocks with one bug, from the right stack."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 6, 32))
    layers = [block_weights(rng, 32, 64) for _ in range(6)]

    def run(block: Callable) -> np.ndarray:
        y = x
        for layer in layers:
            y = block(y, *layer, 4)
        return y

    wanted = run(encoder_block)
    seen = {label: run(block) for label, block in SUSPECTS.items() if label != "right"}
    return {
        "names": list(seen),
        "difference": single([np.abs(y - wanted).max() for y in seen.values()]),
        "cosine": np.array([mean_cosine(y, wanted) for y in seen.values()]),
    }


# ---------------------------------------------------------------- who can see whom


def hidden_from(mask: np.ndarray) -> Callable:
    """An attention in which a token reads only where mask[reader, read] is True."""
    return wrong_attention(change_scores=lambda scores: np.where(mask, scores, -np.inf))


@figure_data
def who_sees_whom() -> dict[str, Any]:
    """How far each output row moves when one token changes, in blocks with four different masks."""
    n = 8
    place = np.arange(n)
    masks = {
        "A": place[:, None] >= place,
        "B": np.ones((n, n), dtype=bool),
        "C": np.broadcast_to(place < 6, (n, n)),
        "D": abs(place[:, None] - place) <= 1,
    }
    rng = np.random.default_rng(4)
    x, weights = rng.normal(size=(1, n, 8)), block_weights(rng, 8, 16)
    moved = {}
    for name, mask in masks.items():
        block = block_of(right, attention=hidden_from(mask))
        before = block(x, *weights, 2)[0]
        rows = np.zeros((n, n))
        for j in range(n):
            other = x.copy()
            other[0, j] += 0.5
            rows[:, j] = np.abs(block(other, *weights, 2)[0] - before).max(axis=-1)
        moved[name] = single(rows)
    return moved


# ---------------------------------------------------------------- a sentence on its way through six blocks


@figure_data
def through_depth() -> dict[str, Any]:
    """Six tokens on their way through six blocks: in the two directions in which they differ most, their length, their likeness."""
    words = ["the", "cat", "sat", "on", "the", "mat"]
    rng = np.random.default_rng(8)
    d, depth = 32, 6
    table = {word: rng.normal(size=d) / np.sqrt(d) for word in dict.fromkeys(words)}
    x = np.stack([table[word] for word in words])[None] * np.sqrt(d) + 0.5 * positional_encoding(
        len(words), d
    )
    layers = [plain_layer(rng, d, 2 * d) for _ in range(depth)]
    found: dict[str, Any] = {"words": words}
    for norm in ("post", "pre"):
        states = [x[0]]
        for layer in layers:
            states.append(encoder(states[-1][None], [layer], 4, norm)[0])
        stacked = np.concatenate(states)
        centred = stacked - stacked.mean(axis=0)
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        largest = directions[:2] * np.sign(directions[:2, :1])
        found[norm] = single((centred @ largest.T).reshape(depth + 1, len(words), 2))
        found[f"length_{norm}"] = single([np.linalg.norm(state, axis=1).mean() for state in states])
        found[f"cosine_{norm}"] = single([cosine_between_tokens(state) for state in states])
    return found


def cosine_between_tokens(state: np.ndarray) -> float:
    """The mean cosine between the rows of two different tokens."""
    rows = state / np.linalg.norm(state, axis=1, keepdims=True)
    n = len(rows)
    return float(((rows @ rows.T).sum() - n) / (n * (n - 1)))


# ---------------------------------------------------------------- the size of a probe


@figure_data
def probe_size() -> dict[str, Any]:
    """For probes of growing size: how far each wrong block is from the right one, at most."""
    rng = np.random.default_rng(21)
    weights, shape = block_weights(rng, 8, 10), rng.normal(size=(2, 3, 8))
    sizes = np.logspace(-4, 2, 25)
    labels = [label for label in SUSPECTS if label != "right"]
    gaps = np.array(
        [
            [
                np.abs(SUSPECTS[label](s * shape, *weights, 2) - encoder_block(s * shape, *weights, 2)).max()
                for s in sizes
            ]
            for label in labels
        ]
    )
    return {"size": sizes, "names": labels, "gap": single(gaps)}


# ---------------------------------------------------------------- softmax


@figure_data
def shares_of_a_row() -> dict[str, Any]:
    """Five scores, the same scores with 100 added to each, and their shares."""
    scores = np.array([2.0, 1.0, 0.0, -1.0, 1.5])
    return {
        "scores": scores,
        "shifted": scores + 100,
        "shares": single(softmax(scores)),
        "again": single(softmax(scores + 100)),
    }
