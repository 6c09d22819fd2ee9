"""Whatever bytes a student's process sends, the judge's side takes them or says Malformed: it never crashes, hangs or bloats."""

import json
import socket
import struct
import threading
import time

import nbformat
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.children import Child, Ran, received
from autograder.children.channel import Channel
from autograder.children.received import Outputs, read_answers
from autograder.children.remote import Remote
from course.questions import Answer, ask
from course.wire import Closed, Malformed, TooLate

KEYS = [
    *("output_type", "name", "text", "data", "metadata", "execution_count", "ename", "evalue", "traceback"),
    *(
        "display_id",
        "value",
        "failure",
        "changed",
        "printed",
        "seconds",
        "array",
        "tuple",
        "dict",
        "Own",
        "id",
    ),
    *("handle", "args", "kwargs", "image/png", "text/plain", "application/json"),
]
TEXTS = [
    "stdout",
    "stderr",
    "stream",
    "display_data",
    "execute_result",
    "error",
    "function 0",
    "f8",
    "b1",
    "AAAA",
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([10**400, -(10**30), 2**31]),
    st.floats(),
    st.sampled_from(TEXTS),
    st.text(max_size=5),
    st.just("\ud800"),
)
KEY = st.one_of(st.sampled_from(KEYS), st.text(max_size=5))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEY, inner, max_size=5)),
    max_leaves=25,
)


def like(example):
    """JSON trees that look like this one, with parts replaced, left out or added."""
    if isinstance(example, dict):
        parts = {key: st.one_of(like(value), like(value), JSON) for key, value in example.items()}
        return st.one_of(st.fixed_dictionaries(parts), st.fixed_dictionaries({}, optional=parts), JSON)
    if isinstance(example, list):
        return st.one_of(st.tuples(*map(like, example)).map(list), st.lists(JSON, max_size=3))
    return st.one_of(st.just(example), LEAVES)


ARRAY = {"array": ["f8", [2], "AAAAAAAA8D8AAAAAAAAAQA=="]}
ANSWER = {"value": ARRAY, "failure": None, "changed": ["x"], "printed": "", "seconds": 0.1}
FAILED = ANSWER | {"value": None, "failure": ["exception", "no", "ValueError", "x = 1"]}
OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "words", "display_id": None},
    {
        "output_type": "display_data",
        "data": {"text/plain": "x", "application/json": {"a": [1]}},
        "metadata": {},
    },
    {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 3},
    {"output_type": "error", "ename": "E", "evalue": "no", "traceback": ["a", "b"]},
]


@given(st.one_of(JSON, like([ANSWER]), like([FAILED]), like([ANSWER, ANSWER])))
@settings(deadline=None)
def test_any_body_is_answers_or_malformed(body):
    try:
        answers = read_answers(body, 1, [()])
    except Malformed:
        return
    (answer,) = answers
    assert isinstance(answer, Answer)
    assert (answer.failure is None) or answer.value is None
    json.dumps([answer.printed, answer.changed, str(answer.failure), repr(answer.value)]).encode()


@given(
    st.lists(st.tuples(st.sampled_from(["output", "update", "clear"]), st.one_of(JSON, *map(like, OUTPUTS))))
)
@settings(deadline=None)
def test_any_outputs_make_a_valid_notebook_or_are_malformed(messages):
    outputs = Outputs()
    outputs.begin()
    for kind, body in messages:
        try:
            outputs.take(kind, body)
        except Malformed:
            continue
    cell = nbformat.v4.new_code_cell("", outputs=[nbformat.from_dict(output) for output in outputs.cell])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(notebook)
    nbformat.writes(notebook).encode("utf-8")


@given(
    st.one_of(
        JSON, like({"id": 1, "handle": "function 0", "args": {"tuple": [ARRAY]}, "kwargs": {"dict": []}})
    )
)
@settings(deadline=None)
def test_any_call_is_answered_or_malformed(body):
    remote = Remote(ask(np.ones(2), lambda x: x + 1))
    try:
        reply = remote.reply(body)
    except Malformed:
        return
    assert list(reply) in (["value"], ["error"])
    json.dumps(reply)


@given(st.binary(max_size=60), st.booleans())
@settings(deadline=None)
def test_any_bytes_are_a_message_or_an_end(data, framed):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">I", len(data)) + data if framed else data)
        theirs.close()
        channel = Channel(ours, lambda: None)
        try:
            while True:
                assert isinstance(channel.receive(), dict)
        except (Closed, Malformed):
            pass


class NoProcess:
    """Stands for the process behind a socket."""

    psutil = psutil.Process()

    def end(self):
        """There is nothing to end."""


MESSAGES = [
    {"ran": {"state": "ok", "count": 1}},
    {"defined": True},
    {"answer": {"id": 1, "answers": [ANSWER]}},
    {"call": {"id": 1, "handle": "function 0", "args": {"tuple": [ARRAY]}, "kwargs": {"dict": []}}},
    {"output": OUTPUTS[0]},
    {"late": "ask"},
    {"refused": "no"},
]


@given(st.lists(st.one_of(JSON, *map(like, MESSAGES)), max_size=5))
@settings(deadline=None)
def test_any_conversation_ends_in_a_result(messages):
    data = b"".join(
        struct.pack(">I", len(text)) + text for text in (json.dumps(m).encode() for m in messages)
    )
    for conversation in (
        lambda child: isinstance(child.run_cell("1", 1), Ran),
        lambda child: child.defines("f") in (True, False),
        lambda child: isinstance(child.ask("f", ("x",), ask(np.ones(2), lambda x: x + 1))[0], Answer),
    ):
        ours, theirs = socket.socketpair()
        with theirs:
            child = Child(NoProcess(), ours, "process", None)
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            assert conversation(child)
            child.close()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10_000_000,
        b'{"a":' * 100_000,
        b"[[],[],[]" * 1_000_000,
        b'{"a": ' + b"9" * 10**6 + b"}",
        b'"' + b"\\ud800" * 10**5 + b'"',
    ],
    ids=["brackets", "objects", "small lists", "digits", "surrogates"],
)
def test_a_costly_message_is_refused_quickly(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=lambda: theirs.sendall(struct.pack(">I", len(data)) + data))
        sender.start()
        started = time.monotonic()
        with pytest.raises(Malformed):
            Channel(ours, lambda: None).receive()
        sender.join()
    assert time.monotonic() - started < 5


def test_waiting_ends_when_the_caller_says_so():
    def no_more():
        raise TooLate("enough")

    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TooLate):
        theirs.sendall(struct.pack(">I", 100) + b"{")
        Channel(ours, no_more).receive()


def test_a_child_that_ignores_its_own_caps_meets_ours(monkeypatch):
    monkeypatch.setattr(received, "NOTEBOOK_BYTES", 1000)
    outputs = Outputs()
    outputs.begin()
    for _ in range(100):
        outputs.take("output", {"output_type": "stream", "name": "stdout", "text": "x" * 50})
        outputs.take(
            "output", {"output_type": "display_data", "data": {"text/plain": "y" * 50}, "metadata": {}}
        )
    assert sum(len(str(output)) for output in outputs.cell) < 4000
    assert "left out" in outputs.cell[-1]["text"]
