"""What a student's notebook imports: check, hint, quiz, data, own, reset, solution, and the look of the figures."""

import importlib

__version__ = "1.0.0"
_HOMES = {
    "check": "checks",
    "hint": "checks",
    "quiz": "checks",
    "own": "checks",
    "data": "shipped",
    "reset": "starting_again",
    "solution": "starting_again",
}
__all__ = ["check", "data", "figures", "hint", "own", "quiz", "reset", "solution"]


def __getattr__(name: str):
    """Load each name's module when it is first asked for: the grader's child needs few of them."""
    if name == "figures":
        return importlib.import_module("course.figures")
    if name in _HOMES:
        return getattr(importlib.import_module(f"course.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'course' has no attribute {name!r}")
