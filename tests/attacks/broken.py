"""Submissions that are broken by accident: how each is made, and how it must end."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.attack import ANSWERS, HONEST, LESSON, code, grade_id, honest, notebook, place_of

NAME = f"{LESSON.name}.ipynb"
FIRST = HONEST[0]
BODY = "\n".join(line for line in ANSWERS[FIRST].splitlines() if line.startswith("    ") and "#" not in line)
PLAIN = f"def {FIRST}(x, gamma, beta, eps=1e-5):\n" + BODY[BODY.rindex('"""') + 4 :].lstrip("\n")
EXPRESSION = "gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + beta"


@dataclass(frozen=True)
class Broken:
    """One broken submission.

    make    : puts it into the folder of the lesson.
    refused : words of the reason; empty where it is graded.
    lost    : the honest exercises that get nothing.
    path    : what the grader is pointed at, within the folder; empty for the folder itself.
    """

    name: str
    make: Callable[[Path], None]
    refused: str = ""
    lost: tuple[str, ...] = ()


def file(content: bytes | str, name: str = NAME) -> Callable[[Path], None]:
    """A submission that is one file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: _write(folder / name, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def edited(edit: Callable[[dict], object], name: str = NAME) -> Callable[[Path], None]:
    """The honest notebook after a change of its JSON tree (or what the change returns)."""
    tree = honest()
    return file(json.dumps(edit(tree) or tree), name)


def answer(source: str) -> Callable[[Path], None]:
    """The honest notebook with another answer to its first exercise."""
    return file(json.dumps(notebook(ANSWERS | {FIRST: source})))


def cell(source: str) -> Callable[[Path], None]:
    """The honest notebook with one more cell before the answers."""
    return edited(lambda tree: tree["cells"].insert(2, code(source)))


TEXT = json.dumps(honest(), indent=1)


# ---------------------------------------------------------------- files


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"../../../{NAME}", TEXT)
        archive.writestr("bomb", bytes(10_000_000))
    return made.getvalue()


def _conflict() -> str:
    half = TEXT.index('"metadata"')
    return f"{TEXT[:half]}\n<<<<<<< HEAD\n{TEXT[half:]}\n=======\n{TEXT[half:]}\n>>>>>>> other\n"


FILES = [
    Broken("an empty file", file(""), "empty"),
    Broken("a file of zeros", file(bytes(5000)), "empty"),
    Broken("no JSON", file("my homework"), "no notebook"),
    Broken("a truncated file", file(TEXT[: len(TEXT) // 2]), "cut off"),
    Broken("a file that lost its last byte", file(TEXT[:-1]), "cut off"),
    Broken("a mark at the start", file(TEXT.encode("utf-8-sig"))),
    Broken("UTF-16", file(TEXT.encode("utf-16"))),
    Broken(
        "Latin-1",
        file(
            json.dumps(notebook(ANSWERS | {FIRST: ANSWERS[FIRST] + "  # größer"}), ensure_ascii=False).encode(
                "latin-1"
            )
        ),
    ),
    Broken("Windows line ends", file(TEXT.replace("\n", "\r\n"))),
    Broken("merge-conflict marks", file(_conflict()), "conflict marks"),
    Broken("a zip archive under the notebook's name", file(_zip()), "zip archive"),
    Broken("a zip archive", file(_zip(), "homework.zip"), "no notebook of this lesson"),
    Broken(
        "a Python file",
        file("import numpy as np\n" + ANSWERS[FIRST], "homework.py"),
        "no notebook of this lesson",
    ),
    Broken("Python under the notebook's name", file("import numpy as np\n" + ANSWERS[FIRST]), "Python text"),
    Broken("a web page", file("<!doctype html><html><script>alert(1)</script></html>"), "web page"),
    Broken("a PDF", file(b"%PDF-1.7 ..."), "PDF"),
    Broken("a picture", file(b"\x89PNG\r\n\x1a\n"), "picture"),
    Broken(
        "an empty folder",
        lambda folder: folder.mkdir(parents=True, exist_ok=True),
        "no notebook of this lesson",
    ),
    Broken(
        "a folder with the notebook's name", lambda folder: (folder / NAME).mkdir(parents=True), "a folder"
    ),
    Broken("a notebook of 100 MB", lambda folder: _large(folder), "100 MB"),
    Broken(
        "a notebook in its checkpoint folder only",
        file(TEXT, f".ipynb_checkpoints/{NAME}"),
        "no notebook of this lesson",
    ),
    Broken("another file name", file(TEXT, "homework final (2).ipynb")),
    Broken("a name with blanks, signs and umlauts", file(TEXT, "Übung 2 – ﬁnal;rm -rf $HOME.ipynb")),
    Broken("a name with signs of patterns and formats", file(TEXT, "[a-z]*%s{0}?.ipynb")),
    Broken(
        "deeply nested JSON",
        file('{"nbformat": 4, "cells": ' + "[" * 200_000 + "]" * 200_000 + "}"),
        "nested",
    ),
    Broken(
        "a notebook of millions of parts",
        file('{"nbformat": 4, "cells": [' + "{}," * 1_500_000 + "{}]}"),
        "far too much data",
    ),
    Broken(
        "a number of ten thousand digits",
        file('{"nbformat": 4, "x": ' + "9" * 10_000 + ', "cells": []}'),
        "damaged",
    ),
    Broken("a list in the place of a notebook", file("[1, 2]"), "other JSON data"),
]


def _large(folder: Path) -> None:
    _write(folder / NAME, b"")
    with (folder / NAME).open("r+b") as opened:
        opened.truncate(100_000_000)


# ---------------------------------------------------------------- notebooks


def _format_3(tree):
    cells = []
    for one in tree["cells"]:
        old = {"cell_type": one["cell_type"], "metadata": one["metadata"]}
        old |= (
            {"input": one["source"], "language": "python"}
            if one["cell_type"] == "code"
            else {"source": one["source"]}
        )
        cells.append(old)
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells}]}


def _without(*keys):
    def edit(tree):
        for one in tree["cells"]:
            for key in keys:
                one.pop(key, None)

    return edit


def _minor(number):
    def edit(tree):
        tree["nbformat_minor"] = number
        for one in tree["cells"]:
            one.pop("id", None)

    return edit


def _same_ids(tree):
    for one in tree["cells"]:
        one["id"] = "same"


def _no_metadata(tree):
    tree.pop("metadata")
    for one in tree["cells"]:
        one["metadata"] = {}


def _colab(tree):
    tree["metadata"] |= {"colab": {"provenance": []}, "accelerator": "GPU"}
    for number, one in enumerate(tree["cells"]):
        one["metadata"] |= {"id": f"x{number}", "colab": {"base_uri": "https://localhost:8080/"}}
        one["source"] = one["source"].splitlines(keepends=True)


def _vs_code(tree):
    for one in tree["cells"]:
        one["metadata"] = {"vscode": {"languageId": "python"}}
        one.pop("outputs", None)


def _kaggle(tree):
    for one in tree["cells"]:
        one["metadata"] |= {"_uuid": "8f2839", "execution": {"iopub.execute_input": "2026"}, "trusted": True}


def _deepnote(tree):
    tree["metadata"] = {"deepnote": {}, "deepnote_notebook_id": "1"}
    for one in tree["cells"]:
        one["metadata"] = {"cell_id": "1", "deepnote_cell_type": one["cell_type"]}


def _odd_cells(tree):
    tree["cells"] += [
        None,
        3,
        "text",
        [],
        {},
        {"cell_type": "code"},
        {"cell_type": 4, "source": {}},
        {"cell_type": "code", "source": [1, None, "x = 1"], "metadata": []},
    ]


def _other_outputs(tree):
    for one in tree["cells"]:
        if one["cell_type"] == "code":
            one["outputs"] = [
                {"output_type": "stream", "name": "stderr", "text": "Traceback"},
                {"output_type": "odd"},
            ]
            one["execution_count"] = "seven"


def _out_of_order(tree):
    place = place_of(tree, FIRST)
    tree["cells"].append(tree["cells"].pop(place))


def _no_imports(tree):
    del tree["cells"][1]


def _split(tree):
    place = place_of(tree, FIRST)
    tree["cells"].insert(place, code(PLAIN))
    tree["cells"][place + 1]["source"] = "# see above"


def _twice(tree):
    tree["cells"] += copy.deepcopy([one for one in tree["cells"] if grade_id(one)])


NOTEBOOKS = [
    Broken("format 3", edited(_format_3)),
    *(Broken(f"format 4.{minor} without cell ids", edited(_minor(minor))) for minor in range(5)),
    Broken("a future format", edited(lambda tree: tree.update(nbformat=5)), "newer"),
    Broken("a future minor format", edited(lambda tree: tree.update(nbformat_minor=99))),
    Broken(
        "a format from before 2013",
        edited(lambda tree: tree.update(nbformat=2, worksheets=[])),
        "before 2013",
    ),
    Broken("the same id in every cell", edited(_same_ids)),
    Broken("no metadata at all", edited(_no_metadata)),
    Broken("no kernel named", edited(lambda tree: tree.update(metadata={}))),
    Broken("no outputs and counts", edited(_without("outputs", "execution_count", "id"))),
    Broken("saved by Colab", edited(_colab)),
    Broken("saved by VS Code", edited(_vs_code)),
    Broken("saved by Kaggle", edited(_kaggle)),
    Broken("saved by Deepnote", edited(_deepnote)),
    Broken("cells that are none", edited(_odd_cells)),
    Broken("outputs of another run", edited(_other_outputs)),
    Broken("definitions out of order", edited(_out_of_order)),
    Broken("the cell with the imports deleted", edited(_no_imports), lost=tuple(HONEST)),
    Broken("an answer in a cell of its own", edited(_split)),
    Broken("every graded cell twice", edited(_twice)),
    Broken("no cells at all", edited(lambda tree: tree.update(cells=[])), lost=tuple(HONEST)),
    Broken(
        "ten thousand cells",
        edited(lambda tree: tree.update(cells=tree["cells"] + [code("")] * 10_000)),
        "cells",
    ),
    Broken("six million letters", edited(lambda tree: tree["cells"].append(code("#" * 6_000_000))), "5 MB"),
]

# ---------------------------------------------------------------- code

ANSWERED = [
    Broken("a cell that fails half way", cell("x = 1\n1 / 0\ny = 2")),
    Broken("a cell that is no Python", cell("def broken(:\n")),
    Broken("a magic and a shell line", cell("%matplotlib inline\n%time x = 1\n!echo shell\n%%no_such_magic")),
    Broken("a missing import", cell("import torch_that_is_not_there\nfrom nowhere import nothing")),
    Broken("a program that is still running", cell("import subprocess\nsubprocess.Popen(['sleep', '60'])")),
    Broken(
        "an output of ten million umlauts",
        cell("from IPython.display import display\ndisplay({'text/plain': 'ü' * 12_000_000}, raw=True)"),
    ),
    Broken("a question to the keyboard", cell("n = int(input('how many? '))")),
    Broken("a top-level await", cell("import asyncio\nawait asyncio.sleep(0.01)")),
    Broken(
        "plots",
        cell("import matplotlib.pyplot as plt\nfor _ in range(3):\n    plt.plot([1, 2])\n    plt.show()"),
    ),
    Broken(
        "warnings and prints",
        cell("import warnings, sys\nwarnings.warn('old')\nprint('x', file=sys.stderr)\nnp.log(np.zeros(1))"),
    ),
    Broken("a function renamed", answer(PLAIN.replace(FIRST, "LayerNorm")), lost=(FIRST,)),
    Broken("a missing argument", answer(f"def {FIRST}(x):\n    return x"), lost=(FIRST,)),
    Broken("an argument too many", answer(PLAIN.replace("(x, ", "(self, x, ")), lost=(FIRST,)),
    Broken("an answer that returns None", answer(PLAIN.replace("return ", "result = ")), lost=(FIRST,)),
    Broken(
        "an answer that prints instead",
        answer(PLAIN.replace("return ", "return print(") + ")"),
        lost=(FIRST,),
    ),
    Broken("an answer that returns a tuple", answer(PLAIN + ", 1"), lost=(FIRST,)),
    Broken(
        "an answer that returns a scalar",
        answer(f"def {FIRST}(x, gamma, beta, eps=1e-5):\n    return 0.0"),
        lost=(FIRST,),
    ),
    Broken(
        "tabs and blanks mixed",
        answer(f"def {FIRST}(x, gamma, beta, eps=1e-5):\n    y = x\n\treturn y"),
        lost=(FIRST,),
    ),
    Broken("an answer without its end", answer(ANSWERS[FIRST][:-60]), lost=(FIRST,)),
    Broken("curly quotes", answer(PLAIN + "\n\nprint(“done”)"), lost=(FIRST,)),
    Broken(
        "an answer that returns lists",
        answer(f"def {FIRST}(x, gamma, beta, eps=1e-5):\n    return ({EXPRESSION}).tolist()"),
    ),
    Broken("a lambda", answer(f"{FIRST} = lambda x, gamma, beta, eps=1e-5: {EXPRESSION}")),
    Broken(
        "a class that can be called",
        answer(
            f"class Norm:\n    def __call__(self, x, gamma, beta, eps=1e-5):\n        return {EXPRESSION}\n\n{FIRST} = Norm()"
        ),
    ),
    Broken(
        "a decorated function",
        answer(
            f"import functools\n\ndef loud(f):\n    def inner(*args, **kwargs):\n        print('called')\n        return f(*args, **kwargs)\n    return inner\n\n@loud\n{PLAIN}"
        ),
    ),
    Broken(
        "a partial function",
        answer(
            f"import functools\n\ndef norm(shift, x, gamma, beta, eps=1e-5):\n    return {EXPRESSION} + shift\n\n{FIRST} = functools.partial(norm, 0.0)"
        ),
    ),
    Broken(
        "globals and imports inside the function",
        answer(
            f"SMALL = 0\n\ndef {FIRST}(x, gamma, beta, eps=1e-5):\n    import numpy as numbers\n    np = numbers\n    return {EXPRESSION} + SMALL"
        ),
    ),
    Broken("a long but finite cell", cell("total = 0\nfor i in range(3_000_000):\n    total += i")),
]

BROKEN: Mapping[str, Broken] = {one.name: one for one in (*FILES, *NOTEBOOKS, *ANSWERED)}
