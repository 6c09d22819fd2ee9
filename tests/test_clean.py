"""What is handed in becomes a clean notebook or a refusal with a sentence: nothing of it runs, nothing of it is trusted."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat import from_dict, validate

from autograder.clean import MAX_CELLS, clean, is_check
from autograder.reading import MAX_BYTES, Refused, parse, read

STUB = "def mean(x):\n    raise NotImplementedError"
RIGHT = "def mean(x):\n    return sum(x) / len(x)"


def code(source, grade_id=None, **about):
    metadata = {
        "nbgrader": {
            "grade_id": grade_id,
            "grade": False,
            "solution": False,
            "locked": False,
            "schema_version": 3,
            "task": False,
            **about,
        }
    }
    return {
        "cell_type": "code",
        "source": source,
        "metadata": metadata if grade_id else {},
        "outputs": [],
        "execution_count": None,
    }


def text(source, kind="markdown", **more):
    return {"cell_type": kind, "source": source, "metadata": {}, **more}


def notebook(*cells, **more):
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **more}


def solution(name, source):
    return code(source, name, solution=True)


def check(name):
    cell = code(f'check("{name}")', f"check_{name}", grade=True, locked=True, points=2.0)
    cell["metadata"]["tags"] = ["raises-exception"]
    return cell


def written(source="YOUR ANSWER HERE"):
    cell = code(source, "why", grade=True, solution=True, points=4.0)
    return {key: cell[key] for key in ("source", "metadata")} | {"cell_type": "markdown"}


RELEASE = from_dict(
    notebook(
        text("# <b>Means</b>"),
        code("import numpy as np"),
        solution("mean", STUB),
        check("mean"),
        solution("spread", STUB.replace("mean", "spread")),
        check("spread"),
        text("**Why?**"),
        written(),
    )
)


def handed_in(**changes):
    """The release as a student hands it in: index -> another cell, or None for a deleted one."""
    cells = [changes.get(f"cell{i}", cell) for i, cell in enumerate(json.loads(json.dumps(RELEASE))["cells"])]
    return notebook(*(cell for cell in cells if cell is not None))


def cleaned(tree):
    made = clean(tree, RELEASE)
    validate(made)
    return made


def labels(made):
    return [cell.metadata.get("nbgrader", {}).get("grade_id", cell.source) for cell in made.cells]


WHOLE = [
    "# <b>Means</b>",
    "import numpy as np",
    "mean",
    "check_mean",
    "spread",
    "check_spread",
    "**Why?**",
    "why",
]


# ---------------------------------------------------------------- reading


def refusal(data, tmp_path):
    path = tmp_path / "homework.ipynb"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(Refused) as refused:
        read(path)
    return str(refused.value)


WRONG_FILES = {
    "empty": (b"", "empty"),
    "only blanks": (b" \n\t\n", "empty"),
    "a mark and nothing else": (b"\xef\xbb\xbf", "empty"),
    "truncated": (json.dumps(notebook(code("x = 1")))[:-30], "cut off"),
    "truncated in a text": (json.dumps(notebook(code("x = 1")))[:40], "cut off"),
    "python": ("import numpy as np\n\nx = 1\n", "Python text"),
    "python with a comment": ("# %% cell\nx = 1\n", "Python text"),
    "web page": ("<!DOCTYPE html><html><body>hi</body></html>", "web page"),
    "zip": (b"PK\x03\x04rest", "zip archive"),
    "gzip": (b"\x1f\x8b\x08\x00", "archive"),
    "pdf": (b"%PDF-1.7", "PDF"),
    "other text": ("Dear teacher, here is my homework.", "no notebook"),
    "conflict": (
        '{\n<<<<<<< HEAD\n"cells": [],\n=======\n"cells": [1],\n>>>>>>> mine\n"nbformat": 4}',
        "conflict marks",
    ),
    "a comma too many": ('{"cells": [1,], "nbformat": 4}', "damaged: line 1"),
    "a list": ("[]", "other JSON data"),
    "no cells": ('{"nbformat": 4}', "no cells"),
    "cells of a wrong kind": ('{"nbformat": 4, "cells": {}}', "no cells"),
    "future version": (json.dumps(notebook(nbformat=5)), "newer"),
    "version 2": ('{"nbformat": 2, "worksheets": []}', "before 2013"),
    "version as text": ('{"nbformat": "4", "cells": []}', "which format"),
    "nested": ('{"nbformat": 4, "cells": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
    "too many parts": ('{"nbformat": 4, "cells": [' + "0," * 2_000_001 + "0]}", "too much data"),
    "huge number": ('{"nbformat": 4, "cells": [' + "9" * 5000 + "]}", "damaged"),
}


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_a_file_that_is_no_notebook_is_refused_with_a_sentence_that_says_why(kind, tmp_path):
    data, words = WRONG_FILES[kind]
    sentence = refusal(data, tmp_path)
    assert words in sentence
    assert sentence.endswith(".") and len(sentence) < 200 and "\n" not in sentence


def test_links_pipes_folders_and_devices_are_refused_without_waiting(tmp_path):
    target = tmp_path / "target.ipynb"
    target.write_text(json.dumps(notebook()))
    (tmp_path / "link.ipynb").symlink_to(target)
    (tmp_path / "loop.ipynb").symlink_to("loop.ipynb")
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    os.link(target, tmp_path / "hard.ipynb")
    words = {
        "link": "link",
        "loop": "link",
        "pipe": "pipe",
        "folder": "folder",
        "hard": "hard link",
        "absent": "no such file",
    }
    for name, word in words.items():
        with pytest.raises(Refused, match=word):
            read(tmp_path / f"{name}.ipynb")
    with pytest.raises(Refused, match=r"backup made with cp -al .* copy made with cp -r"):
        read(tmp_path / "hard.ipynb")
    with pytest.raises(Refused, match="pipe or a device"):
        read(os.devnull)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.ipynb"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(Refused, match="32 MB is the most"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_encodings_that_editors_write_are_read(encoding):
    tree = parse(json.dumps(notebook(code("größe = 1")), ensure_ascii=False).encode(encoding))
    assert tree["cells"][0]["source"] == "größe = 1"


def test_missing_versions_and_metadata_are_no_reason_to_refuse():
    tree = parse(b'{"cells": [{"cell_type": "code", "source": ["x = 1\\n", "y = 2"]}]}')
    assert labels(cleaned(tree))[-1] == "x = 1\ny = 2"


# ---------------------------------------------------------------- cleaning


def test_an_untouched_notebook_stays_what_it_is():
    made = cleaned(handed_in())
    assert labels(made) == WHOLE
    assert [cell.source for cell in made.cells] == [cell.source for cell in RELEASE.cells]


def test_metadata_tags_ids_and_outputs_are_ours():
    cell = solution("mean", RIGHT)
    cell["metadata"] |= {"tags": ["skip-execution"], "mine": 1}
    cell["metadata"]["nbgrader"] |= {"points": 1000, "grade": True, "locked": True, "extra": 1}
    cell |= {"id": "same", "outputs": [{"output_type": "execute_result", "data": {"text/plain": "8.0"}}]}
    extra = code("x = 1") | {"id": "same", "metadata": {"tags": ["remove_cell"]}}
    tree = handed_in(cell2=cell, cell1=extra) | {"metadata": {"kernelspec": {"name": "evil"}, "widgets": {}}}
    made = cleaned(tree)
    assert made.cells[2].metadata == RELEASE.cells[2].metadata
    assert made.cells[2].source == RIGHT
    assert made.cells[1].metadata == {}
    assert made.metadata.kernelspec.name == "python3" and "widgets" not in made.metadata
    assert all(cell.get("outputs", []) == [] and "id" not in cell for cell in made.cells)


def test_check_cells_are_those_of_the_release_whatever_was_made_of_them():
    forged = check("mean")
    forged["metadata"] = {"tags": ["skip-execution"], "nbgrader": {"grade_id": "check_mean", "points": 99}}
    for changed in (
        forged,
        text('check("mean")') | {"metadata": forged["metadata"]},
        text("", "raw") | {"metadata": forged["metadata"]},
    ):
        made = cleaned(handed_in(cell3=changed))
        assert labels(made) == WHOLE
        assert made.cells[3] == cleaned(handed_in()).cells[3]


def test_what_was_written_into_a_check_cell_still_runs_before_it():
    changed = check("mean") | {"source": RIGHT}
    assert labels(cleaned(handed_in(cell2=None, cell3=changed)))[2:4] == [RIGHT, "check_mean"]


def test_deleted_check_cells_come_back_at_their_place():
    assert labels(cleaned(handed_in(cell3=None, cell5=None))) == WHOLE
    bare = cleaned(notebook(code("import numpy as np"), code(RIGHT), code("y = 1")))
    assert labels(bare) == ["import numpy as np", "mean", "check_mean", "check_spread", "why", "y = 1"]


def test_a_deleted_solution_does_not_come_back_to_hide_what_was_written_elsewhere():
    made = cleaned(handed_in(cell2=None, cell3=None))
    assert labels(made) == ["check_mean", *WHOLE[:2], *WHOLE[4:]]


def test_copies_become_plain_cells():
    made = cleaned(notebook(*handed_in()["cells"], solution("mean", RIGHT), check("mean")))
    assert labels(made) == [*WHOLE, RIGHT, 'check("mean")']


def test_of_two_cells_with_a_label_the_one_that_defines_the_function_is_taken():
    made = cleaned(handed_in(cell1=solution("mean", "x = 1")))
    assert labels(made)[1:3] == ["x = 1", "mean"]


def test_a_solution_whose_label_is_lost_is_found_by_its_function():
    for source in (
        RIGHT,
        "mean = lambda x: 1",
        "from helper import mean",
        "class mean:\n    pass",
        "async def mean(x): ...",
    ):
        made = cleaned(handed_in(cell2=code(source)))
        assert labels(made) == WHOLE
        assert made.cells[2].source == source
    renamed = solution("mean", RIGHT)
    renamed["metadata"]["nbgrader"]["grade_id"] = "mine"
    assert labels(cleaned(handed_in(cell2=renamed))) == WHOLE


def test_a_notebook_without_any_labels_is_put_together_again():
    bare = [cell | {"metadata": {}} for cell in handed_in()["cells"]]
    made = cleaned(notebook(*bare))
    assert labels(made) == WHOLE


def test_a_written_answer_whose_label_is_lost_is_found_after_its_question():
    question, answer = text("**Why?**"), text("Because of this.")
    release = from_dict(notebook(code("x = 1"), question, written()))
    made = clean(notebook(code("x = 1"), question, answer, text("more")), release)
    assert labels(made) == ["x = 1", "**Why?**", "why", "more"]
    assert made.cells[2].source == "Because of this."


def test_a_check_cell_is_asked_after_the_function_is_defined():
    early = check("mean")
    made = cleaned(notebook(early, solution("mean", RIGHT), check("mean"), *handed_in()["cells"][4:]))
    assert labels(made)[:3] == ['check("mean")', "mean", "check_mean"]


def test_a_solution_turned_into_text_is_code_again():
    made = cleaned(handed_in(cell2=text(RIGHT) | {"metadata": solution("mean", "")["metadata"]}))
    assert (made.cells[2].cell_type, made.cells[2].source) == ("code", RIGHT)


def test_a_written_answer_is_kept_with_its_pictures_and_without_its_script():
    picture = {
        "a.png": {"image/png": "aGVsbG8="},
        "b": {"text/html": "<script>"},
        "c.png": {"image/png": '"><script>'},
    }
    answer = written("Because a<b, <script>alert(1)</script>") | {"attachments": picture}
    made = cleaned(handed_in(cell7=answer))
    assert made.cells[7].source == "Because a< b, < script>alert(1)< /script>"
    assert made.cells[7].attachments == {"a.png": {"image/png": "aGVsbG8="}}
    assert made.cells[7].metadata == RELEASE.cells[7].metadata


def test_a_raw_cell_is_shown_letter_by_letter():
    made = cleaned(handed_in(cell0=text("<script>\nalert(1)", "raw")))
    assert (made.cells[0].cell_type, made.cells[0].source) == ("markdown", "    <script>\n    alert(1)")


def test_format_3_is_read():
    old = {
        "nbformat": 3,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": ["Means"]},
                    {
                        "cell_type": "code",
                        "input": [RIGHT],
                        "language": "python",
                        "metadata": solution("mean", "")["metadata"],
                    },
                ]
            }
        ],
    }
    made = cleaned(parse(json.dumps(old).encode()))
    assert labels(made)[:3] == ["## Means", "mean", "check_mean"]
    assert made.cells[1].source == RIGHT


def test_cells_of_no_known_form_do_no_harm():
    odd = [
        None,
        7,
        [],
        {},
        {"cell_type": "code"},
        {"cell_type": "code", "source": [1, "x = 1"], "metadata": []},
    ]
    odd += [
        {"cell_type": ["code"], "source": "y", "metadata": {"nbgrader": 3}},
        {"cell_type": "code", "source": "z\ud800\0", "attachments": 4},
    ]
    made = cleaned(notebook(*odd, *handed_in()["cells"]))
    assert labels(made)[-8:] == WHOLE
    assert "z??" in labels(made)
    json.dumps(made).encode("utf-8")


def test_too_many_cells_and_too_long_texts_are_refused():
    with pytest.raises(Refused, match="cells"):
        clean(notebook(*[code("x")] * (MAX_CELLS + 1)), RELEASE)
    with pytest.raises(Refused, match="5 MB"):
        clean(notebook(code("x" * 5_000_001)), RELEASE)


def test_every_exercise_has_its_check_cell_however_the_cells_are_shuffled():
    cells = handed_in()["cells"]
    for turn in range(len(cells)):
        made = cleaned(notebook(*cells[turn:], *cells[:turn]))
        assert sorted(labels(made)) == sorted(WHOLE)
        assert sum(map(is_check, made.cells)) == 2


# ---------------------------------------------------------------- whatever comes

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
labels_known = st.sampled_from([label for label in WHOLE if label.isidentifier()]) | st.text(max_size=8)
metadata = (
    st.fixed_dictionaries(
        {},
        optional={
            "nbgrader": st.fixed_dictionaries({}, optional={"grade_id": labels_known | anything}) | anything
        },
    )
    | anything
)
cells = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", "raw", "heading"]) | anything,
        "source": st.sampled_from([RIGHT, STUB, 'check("mean")']) | st.lists(st.text()) | anything,
        "metadata": metadata,
        "attachments": anything,
        "input": anything,
        "level": anything,
        "outputs": anything,
    },
)


@given(st.lists(cells | anything, max_size=12), st.sampled_from([3, 4]))
def test_whatever_the_cells_are_there_is_a_clean_notebook(found, version):
    tree = {"nbformat": version, "cells": found, "worksheets": [{"cells": found}, *found]}
    made = cleaned(parse(json.dumps(tree).encode()))
    assert sorted(label for label in labels(made) if label in ("check_mean", "check_spread", "why")) == [
        "check_mean",
        "check_spread",
        "why",
    ]


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode)
    | anything.map(lambda tree: json.dumps(tree).encode())
)
def test_whatever_the_bytes_are_they_are_read_or_refused_with_a_sentence(data):
    try:
        assert isinstance(parse(data), dict)
    except Refused as refused:
        assert str(refused).endswith(".")
