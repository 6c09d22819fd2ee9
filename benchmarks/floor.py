"""The floor: the cells of a class in children forked from a warm interpreter. No judging, no database, no isolation.

python -m benchmarks.floor FILE JOBS, where FILE holds a JSON list with the cells of each notebook.
Prints how many pictures the cells showed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks import pictures_in


def warm_shell():
    """An IPython shell with what a lesson imports, and one plot drawn."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib_inline.backend_inline import configure_inline_support

    shell = InteractiveShell.instance()
    shell.colors = "nocolor"
    configure_inline_support(shell, os.environ["MPLBACKEND"])
    run(
        shell,
        "import numpy as np\nimport matplotlib.pyplot as plt\nfrom course import check, figures\nplt.plot([0, 1]);",
    )
    shell.reset(new_session=True)
    return shell


def run(shell, source: str) -> int:
    """Run one cell; the number of pictures that it showed."""
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        shell.run_cell(source, store_history=True)
    return sum(pictures_in(output.data) for output in captured.outputs)


def pictures_of(shell, cells: list[str]) -> int:
    """Run the cells of one notebook in a fork; the number of pictures."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(sum(run(shell, cell) for cell in cells)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(said)


def main() -> None:
    notebooks, jobs = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    shell = warm_shell()
    workers = []
    for first in range(jobs):
        worker = os.fork()
        if worker == 0:
            found = sum(pictures_of(shell, cells) for cells in notebooks[first::jobs])
            print(found, flush=True)
            os._exit(0)
        workers.append(worker)
    for worker in workers:
        os.waitpid(worker, 0)


if __name__ == "__main__":
    main()
