"""reset() and solution(): one exercise back to its stub, and three right ways after an honest attempt."""

from __future__ import annotations

from course import checks, desk, shipped


def reset(name: str) -> None:
    """Put an exercise back to its stub.

    Type it in the exercise's own cell, alone, and run the cell: its text becomes the stub again.
    What you had written stays in the notebook's undo (Ctrl+Z in the cell).
    """
    name = checks.known(name)
    stub = shipped.load(name).stub
    try:
        from IPython import get_ipython

        shell = get_ipython()
    except ImportError:
        shell = None
    if shell is None:
        print(stub)
        return
    shell.user_ns.pop(name, None)
    shell.set_next_input(stub, replace=True)


def solution(name: str) -> None:
    """Show three right ways to write an exercise and what differs between them.

    Self-study only: it needs the repository, and at least one check of your own attempt before.
    """
    name = checks.known(name)
    if not checks.attempted(name):
        raise checks.NotRight(f"Try it first: write your own {name}, run its check once, then ask again.")
    ways = desk.solutions(name)
    if ways is None:
        raise checks.NotRight(
            "Solutions come with the repository only, not with a class's notebooks. Try hint()."
        )
    parts = [f"Way {i + 1}. {what}\n\n{code}" for i, (what, code) in enumerate(ways)]
    checks.display(checks.Shown("\n\n".join(parts)))
