"""Import and try once what nearly every notebook uses, so that a fork has it ready."""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

LIBRARIES = ("matplotlib.pyplot", "matplotlib_inline.backend_inline", "course.figures")
OPTIONAL = ("ipywidgets", "course.checks")
CELLS = (
    "import matplotlib.pyplot as plt",
    "plt.plot([1, 2]); plt.title('$x^2$'); plt.show()",
    "1 / 0",
    "%matplotlib inline",
)


def warm(shell: Any) -> None:
    """Import the libraries, run some cells, and leave the shell as new."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for name in OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for cell in CELLS:
            shell.run_cell(cell, store_history=True)
    shell.reset(new_session=True)
