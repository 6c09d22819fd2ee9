"""Import and try once what nearly every notebook uses, so that a fork has it ready."""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
from typing import Any

import numpy as np

import course
from course.answering import answer_question
from course.questions import ask

LIBRARIES = [
    "numpy.random",
    "numpy.linalg",
    "numpy.fft",
    "numpy.ma",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "contourpy",
    "ipywidgets",
    "IPython.utils.timing",
]
PLOT = """
import matplotlib.pyplot as plt
_, (_left, _right) = plt.subplots(1, 2)
_left.plot([1, 2], label="line $x^2$")
_left.scatter([1, 2], [2, 1], label="points")
_left.bar([1, 2], [2, 1])
_left.set(title="A title", xlabel="x", ylabel="y")
_left.legend()
_left.annotate("text", (1, 1))
plt.colorbar(_right.imshow([[1, 2], [3, 4]]))
plt.show()
"""
CELLS = (PLOT, "1 / 0", "%matplotlib inline")


def warm(shell: Any) -> None:
    """Import the libraries and the course, run some cells, and leave the shell as new."""
    parts = [f"course.{module.name}" for module in pkgutil.iter_modules(course.__path__)]
    for name in [*LIBRARIES, *parts]:
        with contextlib.suppress(ImportError):  # not every course has every library
            importlib.import_module(name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for cell in CELLS:
            shell.run_cell(cell, store_history=True)
    answer_question(lambda x: x, ask(np.ones(2)), lambda name: None)
    shell.reset(new_session=True)
