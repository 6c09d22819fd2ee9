"""Ways to look at an answer where its numbers alone do not decide.

Each view is called as view(answers, question, **own) and returns what is compared: usually a dict
whose keys are the words in which a report names the part that differs. None of them answers an
exercise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course import given
from course.compare import TOLERANCE
from course.questions import Answer, Question

CHANGED_INPUTS = "number of changed inputs"  # in what a view returns for two calls on the same arrays


def with_inputs(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The answers to the same call made twice on the same arrays, and how many inputs were changed."""
    first, second = answers
    return {
        "the answer": first.value,
        CHANGED_INPUTS: len({name for answer in answers for name in answer.changed}),
        "the second answer, from the same arrays": second.value,
    }


def with_calls(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The answer to one call, and what each function among its arguments was called with."""
    (answer,) = answers
    return {
        "the answer": answer.value,
        "the number of calls": [len(received) for received in answer.calls],
        "what it was called with": [[list(arguments) for arguments in received] for received in answer.calls],
    }


def dict_entries(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """Some entries of the dict that one call returned: those that about["only"] names.

    Raises ValueError where it is no dict or a key is missing.
    """
    (answer,) = answers
    if not isinstance(answer.value, dict):
        raise ValueError(f"{_kind(answer.value)} came; a dict is due")
    missing = [name for name in question.about["only"] if name not in answer.value]
    if missing:
        raise ValueError(f"the key {missing[0]!r} is missing")
    return {name: answer.value[name] for name in question.about["only"]}


def parts(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """Some parts of the tuple that one call returned, by name, so that a report can say which one differs.

    about["parts"] names all of them in order, about["only"] those that count here.
    Raises ValueError where it is no tuple, or one of another length.
    """
    (answer,) = answers
    names = question.about["parts"]
    _expect_parts(answer.value, names)
    named = dict(zip(names, answer.value))
    return {name: named[name] for name in question.about["only"]}


# ---------------------------------------------------------------- lesson 3


def truth_table(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """What one ReLU unit (w, b) says to the sum of every subset of the directions it was made for.

    The directions are the first argument, (n, d). Raises ValueError where w and b do not fit them.
    """
    (call, *_) = question.calls
    (directions, *_) = [*call.args, *call.kwargs.values()]
    return _one_or_two(
        [_unit_table(answer.value, np.asarray(directions, float)) for answer in answers], answers
    )


def _unit_table(unit: Any, directions: np.ndarray) -> dict[str, float]:
    _expect_parts(unit, ("w", "b"))
    w, b = (_real(part) for part in unit)
    n, d = directions.shape
    if w.shape != (d,):
        raise ValueError(f"w has shape {w.shape}; {(d,)} is due")
    if b.size != 1:
        raise ValueError(f"b has shape {b.shape}; one number is due")
    table = {}
    for size in range(n + 1):
        for chosen in itertools.combinations(range(n), size):
            x = directions[list(chosen)].sum(axis=0)
            table[_present(chosen, n)] = max(0.0, round(float(x @ w + b.item()), 12))  # no rounding noise
    return table


def _one_or_two(looked: list[Any], answers: Sequence[Answer]) -> Any:
    """The look at one answer; for two from the same arrays both, and how many inputs were changed."""
    if len(looked) == 1:
        return looked[0]
    changed = {name for answer in answers for name in answer.changed}
    return {"the answer": looked[0], CHANGED_INPUTS: len(changed), "the second answer": looked[1]}


def as_ffn(answers: Sequence[Answer], question: Question, ffn: Callable[..., Any]) -> Any:
    """What a feed-forward network given by its four arrays says to about["probes"], (n, d).

    Two answers from the same arrays are looked at one by one, and the changed inputs are counted
    as well. Raises ValueError where the arrays do not fit together.
    """
    probes = question.about["probes"]
    looked = [
        {"output of the new network": ffn(probes, *_network(answer.value, probes.shape[-1]))}
        for answer in answers
    ]
    return _one_or_two(looked, answers)


def hidden_units(answers: Sequence[Answer], question: Question) -> dict[str, int]:
    """How many hidden units a feed-forward network has whose tokens have about["d_model"] numbers."""
    (answer,) = answers
    _, b1, _, _ = _network(answer.value, question.about["d_model"])
    return {"number of hidden units": b1.size}


def _network(params: Any, d: int) -> tuple[np.ndarray, ...]:
    """The four arrays. Raises ValueError where they do not fit together."""
    _expect_parts(params, ("W1", "b1", "W2", "b2"))
    W1, b1, W2, b2 = (_real(part) for part in params)
    units = b1.size
    due = {"W1": (W1, (d, units)), "b1": (b1, (units,)), "W2": (W2, (units, d)), "b2": (b2, (d,))}
    for name, (array, shape) in due.items():
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}; with {units} numbers in b1, {shape} is due")
    return W1, b1, W2, b2


def silent_named(answers: Sequence[Answer], question: Question) -> Any:
    """Lists of indices, one for each token; an index of about["silent"] of that token becomes the word "silent".

    In which order silent memories would be listed depends on the sorting routine of the machine.
    """
    (answer,) = answers
    silent = question.about["silent"]
    if not isinstance(answer.value, tuple | list) or len(answer.value) != len(silent):
        return answer.value
    return [_named_in(listed, unheard) for listed, unheard in zip(answer.value, silent)]


def _named_in(listed: Any, unheard: Sequence[int]) -> Any:
    if isinstance(listed, np.ndarray) and listed.ndim == 1:
        listed = list(listed)
    if not isinstance(listed, tuple | list):
        return listed
    plain = [isinstance(m, int | np.integer) or getattr(m, "ndim", None) == 0 for m in listed]
    return ["silent" if ok and int(m) in unheard else m for ok, m in zip(plain, listed)]


def first_row_of_first_part(answers: Sequence[Answer], question: Question) -> list[Any]:
    """Row 0 of the first thing that each call returned."""
    return [np.asarray(answer.value[0])[0] for answer in answers]


def _expect_parts(value: Any, names: Sequence[str]) -> None:
    if not isinstance(value, tuple | list) and np.ndim(value) == 0:
        raise ValueError(f"{_kind(value)} came; {len(names)} parts are due ({', '.join(names)})")
    if len(value) != len(names):
        raise ValueError(f"{len(value)} parts came; {len(names)} are due ({', '.join(names)})")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"


def _real(value: Any) -> np.ndarray:
    """The value as an array of real numbers; imaginary parts of the size of rounding are left out.

    Raises ValueError where it holds something else than numbers, or numbers that are not real.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise ValueError("something else than numbers came; numbers are due")
    if (
        array.dtype.kind == "c"
        and not (np.abs(array.imag) <= TOLERANCE * np.maximum(1, abs(array.real))).all()
    ):
        raise ValueError("complex numbers came; real ones are due")
    return array.real.astype(float)


def _present(chosen: Sequence[int], n: int) -> str:
    """A row of a truth table in words, features counted from 1."""
    if not chosen:
        return "output with no feature present"
    if len(chosen) == n:
        return "output with all features present" if n > 1 else "output with the feature present"
    return "output with only " + " and ".join(f"feature {i + 1}" for i in chosen) + " present"


# ---------------------------------------------------------------- lesson 1


def summed(answers: Sequence[Answer], question: Question) -> Any:
    """The sum of one answer over its first axis."""
    (answer,) = answers
    return np.asarray(answer.value).sum(axis=0)


def ends(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The first and the last part of one answer."""
    (answer,) = answers
    return {"the first part": answer.value[0], "the last part": answer.value[-1]}


def thinned(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """A long row of numbers: its length, its sum, and every twentieth entry."""
    (answer,) = answers
    row = _real(answer.value)
    return {"the shape": np.array(row.shape), "the sum": row.sum(), "every twentieth entry": row[::20]}


def step_size(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """Whether a function among the arguments was called about h away from x (call: f, x, h=...)."""
    (answer,) = answers
    (call,) = question.calls
    distances = [np.abs(np.asarray(z) - call.args[1]).max() for (z,) in answer.calls[0]]
    ratio = max(distances, default=0.0) / call.kwargs["h"]
    return {"f is called about h away from x": bool(0.2 <= ratio <= 5)}


# ---------------------------------------------------------------- lesson 4: positions


def entries(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """Some entries of a large array and its shape; about["at"] lists the indices along each axis."""
    (answer,) = answers
    array, at = np.asarray(answer.value), question.about["at"]
    fits = array.ndim == len(at) and all(max(chosen) < size for chosen, size in zip(at, array.shape))
    axes = ("rows", "columns") if len(at) == 2 else ("entries",)
    where = " and ".join(f"{axis} {', '.join(map(str, chosen))}" for axis, chosen in zip(axes, at))
    return {"the shape": str(array.shape), where: array[np.ix_(*at)] if fits else None}


def neighbour_ratios(answers: Sequence[Answer], question: Question) -> np.ndarray:
    """Each number of a row divided by the one before."""
    (answer,) = answers
    row = _real(answer.value)
    with np.errstate(all="ignore"):
        return row[1:] / row[:-1]


def on_probe(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """What a matrix makes of the column about["probe"]."""
    (answer,) = answers
    return {"the matrix times the column": _real(answer.value) @ question.about["probe"]}


def row_difference(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """The shape of one answer, and the difference of its two rows about["rows"]."""
    (answer,) = answers
    array = _real(answer.value)
    first, second = question.about["rows"]
    return {"the shape": str(array.shape), "second row minus first row": array[second] - array[first]}


# ---------------------------------------------------------------- lesson 2: inputs that expose a wrong norm


def exposed(answers: Sequence[Answer], question: Question, layer_norm: Callable[..., Any]) -> dict[str, str]:
    """Whether an input exposes the wrong layer norm about["wrong norm"]; the answer is a dict of inputs.

    Everything is measured on the answers of the given layer_norm, also what the wrong norms divide by.
    Raises ValueError where there is no such input.
    """
    (answer,) = answers
    name = question.about["wrong norm"]
    if not isinstance(answer.value, dict):
        raise ValueError(f"a dict of four inputs is due, it is a {type(answer.value).__name__}")
    if name not in answer.value:
        raise ValueError(f"the key {name!r} is missing")
    return {f"the input for {name}": _exposure(_real(answer.value[name]), name, layer_norm)}


def _exposure(x: np.ndarray, name: str, layer_norm: Callable[..., Any]) -> str:
    if x.ndim == 0 or x.size == 0:
        return "not an array (..., d_model)"
    if x.size > 1000:
        return "more than 1000 numbers"
    if not np.isfinite(x).all():
        return "nan or infinity in it"
    differences = _norm_differences(x, layer_norm)
    if differences[name] > 0.1:
        return "exposed"
    if max(differences.values()) > 0.1:
        return "not exposed; another wrong norm is"
    if (x == x[..., :1]).all():
        return "not exposed; every row is constant"
    return "not exposed: the two answers differ by at most 0.1"


def _norm_differences(x: np.ndarray, layer_norm: Callable[..., Any]) -> dict[str, float]:
    """How far each of the four wrong norms of exercise 2.9 is from the right one on x, at most."""
    d, eps = x.shape[-1], 1e-5
    ones, zeros = np.ones(d), np.zeros(d)

    def stretch(y: np.ndarray) -> np.ndarray:
        """How many times wider the rows of x are than those of y: what a norm has divided by."""
        return np.nan_to_num(np.ptp(x, axis=-1, keepdims=True) / np.ptp(y, axis=-1, keepdims=True))

    with np.errstate(all="ignore"):
        right = layer_norm(x, ones, zeros, eps)
        divisor, deviation = stretch(right), stretch(layer_norm(x, ones, zeros, 0.0))
        rounded = (x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2
        wrong = {
            "d_minus_1": right * divisor / np.hypot(divisor, deviation / np.sqrt(max(d - 1, 1))),
            "eps_outside": right * divisor / (deviation + eps),
            "all_tokens": layer_norm(x.ravel(), np.ones(x.size), np.zeros(x.size), eps).reshape(x.shape),
            "mean_of_squares": right * divisor / np.sqrt(np.maximum(rounded, 0) + eps),
        }
        gaps = {name: np.abs(y - right) for name, y in wrong.items()}
    return {name: float(np.where(np.isfinite(gap), gap, 0.0).max()) for name, gap in gaps.items()}


# ---------------------------------------------------------------- lesson 5


def added_to_input(answers: Sequence[Answer], question: Question) -> list[np.ndarray]:
    """For each call, what the answer adds to the first argument."""
    return [np.asarray(answer.value) - call.args[0] for answer, call in zip(answers, question.calls)]


def dropout_pattern(answers: Sequence[Answer], question: Question) -> dict[str, Any]:
    """What became of the branch f(x) in y = x + dropout(f(x)), whichever entries chance has picked.

    The call's arguments are x (batch, seq, d_model), f (a Given), the identity, p, ... Shares count
    as p within six standard deviations. Raises ValueError where y has another shape than x.
    """
    (answer,) = answers
    x, f, _, p, *_ = question.calls[0].args
    y = _real(answer.value)
    if y.shape != x.shape:
        raise ValueError(f"the shape is {y.shape}; {x.shape} is due")
    branch = getattr(given, f.name)(*f.params)(x)
    change = y - x
    gone = np.abs(change) < 1e-6
    factor = float(np.median((change / branch)[~gone])) if not gone.all() else 0.0
    odd = ~gone & (np.abs(change - factor * branch) > 1e-5)
    return {
        "the part of the branch that is dropped": _share(gone, p),
        "the factor on the rest of the branch": factor,
        "entries that are neither dropped nor scaled so": _share(odd, p),
        "entries where x is gone too": _share(np.abs(y) < 1e-6, p),
        "which entries go": _pattern(gone),
    }


def _share(mask: np.ndarray, p: float) -> str:
    for words, q in (("none", 0.0), ("all", 1.0), ("about p", p), ("about 1 - p", 1 - p)):
        if _near(mask.mean(), q, mask.size):
            return words
    return "another share"


def _near(share: np.ndarray, p: float, n: int) -> np.ndarray:
    """Whether shares among n entries lie within six standard deviations of p."""
    return np.abs(share - p) <= 6 * np.sqrt(p * (1 - p) / n)


def _pattern(gone: np.ndarray) -> str:
    batch, seq, d_model = gone.shape
    if gone.all() or not gone.any():
        return "all or none"
    if (gone == gone[:, :, :1]).all():
        return "whole tokens"
    if (gone == gone[:, :1]).all():
        return "whole features, the same for every token"
    if (gone == gone[:1]).all():
        return "the same in every sentence"
    q = gone.mean()
    if not _near(gone.mean(axis=2), q, d_model).all():
        return "more in some tokens than in others"
    if not _near(gone.mean(axis=(0, 1)), q, batch * seq).all():
        return "more in some features than in others"
    return "each entry on its own"


def drawn_from_generator(answers: Sequence[Answer], question: Question) -> dict[str, bool]:
    """Whether chance comes from the generator given: calls with one generator, with it again, and with an equal one."""
    first, second, equal = (_real(answer.value) for answer in answers)
    return {
        "a generator in the same state gives the same answer": bool(np.array_equal(first, equal)),
        "the next call with the same generator gives the same answer": bool(np.array_equal(first, second)),
    }
