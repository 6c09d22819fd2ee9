"""Run a submission's cells in a process of their own, and ask the functions they define."""

from autograder.children.child import Child, Ran

__all__ = ["Child", "Ran"]
