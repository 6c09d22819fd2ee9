"""The class for plain nbgrader: the same notebooks, but every check cell marks the public cases in the student's kernel."""

from __future__ import annotations

import copy

from nbformat import NotebookNode

from autograder.clean import checked_name, is_check

CHECK = """\
from course.checks import shipped_verdict

float(shipped_verdict({name!r}, globals().get({name!r}), globals()).points)"""


def with_checks_in_kernel(notebook: NotebookNode) -> NotebookNode:
    """A copy in which the check cells ask and mark by themselves, from the numbers that the course ships."""
    changed = copy.deepcopy(notebook)
    for cell in changed.cells:
        if is_check(cell):
            cell.source = CHECK.format(name=checked_name(cell))
    return changed
