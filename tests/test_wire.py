"""What may travel arrives as it was; whatever else comes is refused, and nothing crashes the reader."""

import json
import socket
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from course import wire
from course.questions import Given, Own, Raises, Rng

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
)
arrays = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
)
values = st.recursive(
    plain | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=8,
)
trees = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["array", "tuple", "dict", "Rng", "Given", "x"]), inner, max_size=2)
    ),
    max_leaves=20,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(values)
def test_a_value_of_the_closed_set_arrives_as_it_was(value):
    assert same(value, wire.decode(json.loads(json.dumps(wire.encode(value)))))


@settings(max_examples=500)
@given(trees)
def test_any_other_tree_is_decoded_or_refused(tree):
    try:
        wire.decode(tree)
    except wire.Malformed:
        pass


@pytest.mark.parametrize(
    "tree",
    [
        {"array": ["f8", [10**9], ""]},
        {"array": ["f8", [-1], ""]},
        {"array": ["O", [1], "AAAA"]},
        {"array": ["f8", [2], "AAAA"]},
        {"array": ["f8", [True], "AAAAAAAAAAA="]},
        {"Own": ["layer_norm"]},
        {"Rng": [1, ""]},
        {"dict": [[["a"], 1]]},
        {"tuple": 3},
        {"array": ["f8", [1], "AAAAAAAAAAA="], "tuple": []},
    ],
)
def test_trees_that_lie_are_refused(tree):
    with pytest.raises(wire.Malformed):
        wire.decode(tree)


def test_deep_nesting_is_refused_on_both_sides():
    deep: list = []
    for _ in range(wire.MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(wire.Malformed):
        wire.encode(deep)
    with pytest.raises(wire.Malformed):
        wire.decode(deep)


@pytest.mark.parametrize(
    "value",
    [object(), (n for n in range(3)), {1, 2}, np.array([object()]), print, 1 << 5000],
    ids=lambda v: type(v).__name__,
)
def test_values_outside_the_closed_set_are_refused(value):
    with pytest.raises(wire.Malformed):
        wire.encode(value)


def test_placeholders_travel_from_the_judge_only():
    value = [Rng(3, "a"), Given("linear", (np.eye(2),)), Own("ffn"), Raises("ValueError")]
    tree = json.loads(json.dumps(wire.encode(value)))
    back = wire.decode(tree, placeholders=True)
    assert back[0] == Rng(3, "a") and back[2] == Own("ffn") and np.array_equal(back[1].params[0], np.eye(2))


class Odd(np.ndarray):
    def __eq__(self, other):
        return True


def test_an_array_that_equals_everything_travels_as_a_plain_array():
    odd = np.arange(3.0).view(Odd)
    back = wire.decode(wire.encode(odd))
    assert type(back) is np.ndarray and back.tolist() == [0.0, 1.0, 2.0]


# ---------------------------------------------------------------- frames


def pair():
    a, b = socket.socketpair()
    return wire.Connection(a), b


def test_a_frame_that_announces_too_much_is_refused_before_it_is_read():
    connection, raw = pair()
    raw.sendall(struct.pack(">I", 2**32 - 1))
    with pytest.raises(wire.Malformed):
        connection.receive(time.monotonic() + 1)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[1]", b"{", b"[" * 100_000])
def test_a_frame_that_is_no_json_object_is_refused(body):
    connection, raw = pair()
    raw.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(wire.Malformed):
        connection.receive(time.monotonic() + 1)


def test_a_message_of_too_many_parts_is_refused_before_it_becomes_objects(monkeypatch):
    connection, other = pair()
    monkeypatch.setattr(wire, "MAX_PARTS", 50)
    for parts, refused in [(20, False), (60, True)]:
        body = json.dumps({"x": [0] * parts}).encode()
        other.sendall(struct.pack(">I", len(body)) + body)
        if refused:
            with pytest.raises(wire.Malformed, match="too many parts"):
                connection.receive()
        else:
            assert len(connection.receive()["x"]) == parts


def test_messages_that_arrive_in_one_piece_are_told_apart():
    connection, other = pair()
    bodies = [json.dumps({"number": number}).encode() for number in range(5)]
    other.sendall(b"".join(struct.pack(">I", len(body)) + body for body in bodies))
    assert [connection.receive()["number"] for _ in bodies] == list(range(5))


def test_a_silent_or_vanished_side_is_noticed():
    connection, raw = pair()
    with pytest.raises(wire.TooLate):
        connection.receive(time.monotonic() + 0.05)
    raw.close()
    with pytest.raises(wire.Closed):
        connection.receive(time.monotonic() + 1)


def test_a_side_that_never_reads_cannot_hold_the_sender():
    connection, _raw = pair()
    started = time.monotonic()
    with pytest.raises(wire.TooLate):
        connection.send({"text": "x" * 5_000_000}, started + 0.2)
    assert time.monotonic() - started < 2


def test_large_messages_arrive_whole():
    connection, raw = pair()
    other = wire.Connection(raw)
    message = {"text": "y" * 3_000_000}
    thread = threading.Thread(target=other.send, args=(message,))
    thread.start()
    assert connection.receive(time.monotonic() + 5) == message
    thread.join()
