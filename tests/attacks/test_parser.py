"""Whatever bytes or JSON are handed in, reading and cleaning end in a valid notebook or a refusal, soon and within bounds."""

import json
import time

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder import lessons
from autograder.clean import MAX_TEXT, clean, graded_cells, pieces_of
from autograder.reading import MAX_PARTS, Refused, parse
from autograder.sanitize import MAX_TAGS, safe_outputs
from tests.attacks.attack import LESSON, honest

SOON = 10.0  # seconds, on a busy machine
many = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

IDS = [*LESSON.cells, "check_", "", "layer_norm ", "unknown"]
WORDS = st.sampled_from(
    [
        "def layer_norm(x): return x",
        'check("layer_norm")',
        "import layer_norm",
        "leak = 3",
        "<script>",
        "\ud800",
        "\0",
        "%%bash",
        "#" * 50,
        "&#1;",
        "&#" + "9" * 5000 + ";",
        "![x](data:,y) ![y](attachment:z)",
    ]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | WORDS
    | st.sampled_from(IDS)
)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
about = st.fixed_dictionaries(
    {},
    optional={
        key: st.sampled_from(IDS) | anything
        for key in ("grade_id", "grade", "solution", "points", "locked", "schema_version")
    },
)
cells = anything | st.fixed_dictionaries(
    {"cell_type": st.sampled_from(["code", "markdown", "raw", "heading", "odd"]) | anything},
    optional={
        "source": WORDS | st.lists(WORDS | anything, max_size=3) | anything,
        "input": WORDS | anything,
        "level": anything,
        "metadata": st.fixed_dictionaries({}, optional={"nbgrader": about | anything, "tags": anything})
        | anything,
        "attachments": st.dictionaries(
            WORDS,
            st.dictionaries(st.sampled_from(["image/png", "text/html"]), anything, max_size=2),
            max_size=2,
        )
        | anything,
        "outputs": anything,
        "id": anything,
    },
)
trees = st.fixed_dictionaries(
    {"cells": st.lists(cells, max_size=8)},
    optional={"metadata": anything, "nbformat": st.just(4), "nbformat_minor": anything},
) | st.fixed_dictionaries(
    {
        "nbformat": st.just(3),
        "worksheets": st.lists(
            st.fixed_dictionaries({"cells": st.lists(cells, max_size=5) | anything}) | anything, max_size=3
        ),
    }
)


def cleaned(tree):
    """The clean notebook, with what must hold for every one; None where it is refused."""
    started = time.monotonic()
    try:
        lessons.lesson_of(tree)
        made = clean(tree, LESSON.release)
    except Refused as refusal:
        assert str(refusal).endswith(".")
        return None
    finally:
        assert time.monotonic() - started < SOON
    nbformat.validate(made)
    nbformat.writes(made).encode("utf-8")
    graded = [cell.metadata.nbgrader.grade_id for cell in made.cells if "nbgrader" in cell.metadata]
    due = {name for name, cell in graded_cells(LESSON.release).items() if cell.metadata.nbgrader.grade}
    assert len(set(graded)) == len(graded) and due <= set(graded)
    return made


@many
@given(trees)
def test_any_tree_becomes_a_valid_notebook_or_a_refusal(tree):
    cleaned(tree)


@many
@given(st.integers(0, 10**6), st.integers(1, 400), st.binary(max_size=20))
def test_a_damaged_file_is_read_or_refused(place, length, other):
    data = json.dumps(honest()).encode()
    place %= len(data)
    try:
        tree = parse(data[:place] + other + data[place + length :])
    except Refused as refusal:
        assert str(refusal).endswith(".") and len(str(refusal)) < 300
        return
    cleaned(tree)


@many
@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused(data):
    try:
        tree = parse(data)
    except Refused as refusal:
        assert str(refusal).endswith(".") and "\n" not in str(refusal)
        return
    cleaned(tree)


def sources(*texts):
    return {"cells": [{"cell_type": "code", "metadata": {}, "source": text} for text in texts]}


def text(source):
    return {"cells": [{"cell_type": "markdown", "metadata": {}, "source": source}]}


@pytest.mark.parametrize(
    "tree",
    [
        sources(" " * MAX_TEXT),
        sources("\n" * MAX_TEXT),
        sources("import " * (MAX_TEXT // 7)),
        sources("layer_norm:" * (MAX_TEXT // 11)),
        sources("layer_norm" + " " * (MAX_TEXT - 100)),
        sources(("\t" * 1000 + "\n") * (MAX_TEXT // 1001)),
        sources("async " * (MAX_TEXT // 6)),
        sources("def layer_norm(x):\n    pass\n" * (MAX_TEXT // 30)),
        sources(*["import layer_norm\n" * 100] * 1900),
        {
            "cells": [
                {
                    "cell_type": "markdown",
                    "source": "",
                    "attachments": {f"{i}": {"image/png": "A A " * 1000} for i in range(5000)},
                }
            ]
        },
        {"cells": [{"cell_type": "code", "source": ["x"] * (MAX_PARTS - 10)}]},
        *(
            text(part * (MAX_TEXT // len(part)))
            for part in ("<", "[", "[](", "![", "$", "`", "data:", "data ", "j ", "&#", "&#9", "\\html", "* ")
        ),
    ],
    ids=lambda tree: str(tree)[50:90],
)
def test_a_costly_text_is_cleaned_soon(tree):
    cleaned(tree)


def test_pieces_hold_no_more_than_is_allowed():
    with pytest.raises(Refused):
        pieces_of(sources("x" * (MAX_TEXT + 1)))


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 10**6,
        "<font>x</p>" * 10**6,
        "<div>" * MAX_TAGS,
        "<font>x</p>" * (MAX_TAGS // 2),
        '<img src="data:image/png;base64,' + " " * 10**6 + '!">',
        '<a href="' + " data:" * 10**6 + '">',
        "&#" + "9" * 10**6 + ";",
        "\\href" * 10**6,
    ],
    ids=lambda html: html[:20],
)
def test_costly_html_is_cleaned_soon(html):
    started = time.monotonic()
    output = {
        "output_type": "display_data",
        "metadata": {},
        "data": {"text/html": html, "text/plain": "plain"},
    }
    (made,) = safe_outputs([output])
    assert made["data"]["text/plain"] == "plain"
    assert time.monotonic() - started < SOON
