"""A reference function as the text of a notebook cell, and back.

In a notebook only `np` is imported, so a type hint that needs any other name stands in quotes
there; going back takes the quotes off.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable

from autograder.build.faults import BuildError
from autograder.build.names import needed

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
IN_A_NOTEBOOK = {"np", *vars(builtins)}


def definition(function: Callable) -> str:
    """The text of a function, without its decorators."""
    text = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


def as_cell(text: str) -> str:
    """The instructor's cell for a definition: signature, docstring, and the body as a solution region."""
    text = _quoted_hints(text)
    node = _only_function(text)
    if ast.get_docstring(node) is None or len(node.body) < 2:
        raise BuildError(f"{node.name} needs a docstring and a body")
    lines = text.splitlines()
    head, body = lines[: node.body[0].end_lineno], lines[node.body[0].end_lineno :]
    while body and not body[0].strip():
        body = body[1:]
    indent = " " * node.body[1].col_offset
    return "\n".join([*head, indent + BEGIN, *body, indent + END])


def from_cell(source: str) -> str:
    """The definition that stands in an instructor's cell. Raises BuildError where it is not one function."""
    lines = [line for line in source.splitlines() if line.strip() not in (BEGIN, END)]
    text = "\n".join(lines).strip("\n")
    _only_function(text)
    return _unquoted_hints(text)


def replaced(module: str, name: str, text: str) -> str:
    """The text of a module of declarations with the reference of this name replaced."""
    for node in ast.parse(module).body:
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == name
            and any(map(_declares, node.decorator_list))
        ):
            lines = module.splitlines()
            lines[node.lineno - 1 : node.end_lineno] = text.splitlines()
            return "\n".join(lines) + "\n"
    raise BuildError(f"the reference of {name} was not found")


def _declares(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "reference"


def function_name(text: str) -> str:
    """The name of the function that a definition defines."""
    return _only_function(text).name


def foreign_names(text: str) -> set[str]:
    """The names that a definition takes from its surroundings, beside `np`, built-in names and its own."""
    return needed(_quoted_hints(text)) - IN_A_NOTEBOOK - {function_name(text)}


def _only_function(text: str) -> ast.FunctionDef:
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise BuildError(f"the cell is not valid Python: {error}") from error
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise BuildError("the cell must hold one function and nothing else")
    return body[0]


# ---------------------------------------------------------------- type hints


def _quoted_hints(text: str) -> str:
    """Put every hint that needs more than `np` and built-in names into quotes."""

    def quoted(node: ast.expr, hint: str) -> str | None:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return None if names <= IN_A_NOTEBOOK else '"' + hint.replace('"', "'") + '"'

    return _with_hints(text, quoted)


def _unquoted_hints(text: str) -> str:
    def unquoted(node: ast.expr, hint: str) -> str | None:
        plain = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return node.value if plain else None

    return _with_hints(text, unquoted)


def _with_hints(text: str, change: Callable[[ast.expr, str], str | None]) -> str:
    """The text of a function with its hints replaced where `change` gives another one."""
    lines = [line.encode() for line in text.splitlines()]  # ast counts columns in bytes
    for node in sorted(_hints(_only_function(text)), key=lambda n: (n.lineno, n.col_offset), reverse=True):
        new = change(node, ast.get_source_segment(text, node))
        if new is None:
            continue
        first, last = node.lineno - 1, node.end_lineno - 1
        joined = (
            lines[first][: node.col_offset]
            + " ".join(new.split()).encode()
            + lines[last][node.end_col_offset :]
        )
        lines[first : last + 1] = [joined]
    return b"\n".join(lines).decode()


def _hints(function: ast.FunctionDef) -> list[ast.expr]:
    a = function.args
    arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    hints = [argument.annotation for argument in arguments if argument] + [function.returns]
    return [hint for hint in hints if hint is not None]
