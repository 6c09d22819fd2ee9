"""Run a submission's cells in a process of their own, and ask the functions they define."""

from autograder.children.child import Child, Ran
from autograder.children.warm import NotStarted, close_all

__all__ = ["Child", "NotStarted", "Ran", "close_all"]
