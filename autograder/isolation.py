"""How well a submission's process is kept from the rest of the machine, in the words of the reports."""

from __future__ import annotations

from autograder.children.isolation import LEVELS, begin, best

_PROTECTS = {
    "process": "scores not protected against reading files",
    "landlock": "no files of others, no network",
    "bubblewrap": "no files or processes of others, no network",
}


def level() -> str:
    """The level at which submissions run here: the strongest that works."""
    return best()


def described(name: str) -> str:
    """The level in words, as every report states it."""
    return f"isolation level {name}: {_PROTECTS[name]}"


def is_at_least(wanted: str) -> bool:
    """Whether submissions run here at this level or a stronger one."""
    return LEVELS.index(level()) >= LEVELS.index(wanted)


__all__ = ["LEVELS", "begin", "described", "is_at_least", "level"]
