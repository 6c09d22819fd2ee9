"""Exploration cells are not run when grading: no later cell may need what one of them defines."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.build.faults import BuildError
from autograder.build.lesson_text import Chunk
from autograder.build.names import defined, needed


def expect_no_loose_ends(chunks: Sequence[Chunk]) -> None:
    """Raises BuildError where a later cell uses a name that only an exploration defines."""
    lasting: set[str] = set()
    passing: dict[str, str] = {}  # name -> the exploration that defines it
    for chunk in chunks:
        if chunk.kind not in ("code", "explore"):
            continue
        where = (
            f"the exploration {chunk.name}" if chunk.name else f"the cell {chunk.source.splitlines()[0]!r}"
        )
        try:
            own, used = defined(chunk.source), needed(chunk.source)
        except SyntaxError as error:
            raise BuildError(f"{where} is not valid Python: {error}") from error
        loose = sorted((used - own - lasting) & set(passing))
        if loose:
            raise BuildError(
                f"{where} uses {loose[0]}, which only the exploration {passing[loose[0]]} defines"
            )
        if chunk.kind == "explore":
            passing.update(dict.fromkeys(own, chunk.name))
        else:
            lasting |= own
