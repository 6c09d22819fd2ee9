"""Find what students must not get: bodies of references, wrong versions and variants, and instructors' notes.

Code is compared as syntax trees in which names count only by the order in which they appear, so
renaming, comments and layout do not hide a copy. Text is compared word by word.
"""

import ast
import builtins
import copy
import inspect
import json
import re
import textwrap
import warnings
from functools import cache
from pathlib import Path

from autograder.build import lesson_text
from autograder.exercises import all_exercises

KEPT = {"np", *vars(builtins)}
SMALLEST = 13  # nodes of a syntax tree; below that, a wrong version is the same as other code by chance
WORDS = 6  # of a note; below that, so is text


# ---------------------------------------------------------------- what must not be found


def secret_bodies():
    """Shape of a body -> whose it is, for every declared function."""
    found = {}
    for exercise in all_exercises().values():
        functions = [("reference", exercise.reference_function)]
        functions += [(mistake.id, mistake.function) for mistake in exercise.mistakes]
        functions += [(f"variant {i}", variant) for i, variant in enumerate(exercise.variants)]
        for what, function in functions:
            for part in [function, *parts_of(function)]:
                for body in bodies_of(part):
                    if size(body) >= SMALLEST or function is part is exercise.reference_function:
                        found.setdefault(shape(body), f"{exercise.name}: {what}")
    return found


def parts_of(function, seen=None):
    """The functions of the declarations that a function is made from: those it closes over and those it calls."""
    seen = {function} if seen is None else seen
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    for part in [*held, *named]:
        if (
            inspect.isfunction(part)
            and part.__module__.startswith("autograder.exercises.")
            and part not in seen
        ):
            seen.add(part)
            yield part
            yield from parts_of(part, seen)


def secret_notes(lessons):
    """The lines of the rubrics and model answers of these lesson texts, as lists of words."""
    notes = set()
    for text in lessons:
        for chunk in lesson_text.parse(text)[1]:
            if chunk.kind == "written":
                _, rubric = lesson_text.written_parts(chunk)
                notes |= {words(line) for line in rubric.splitlines() if len(words(line)) >= WORDS}
    return notes


def bodies_of(function):
    """The statements of a function, its docstring left out; of a lambda, the returned value."""
    line = function.__code__.co_firstlineno
    for node in functions_by_line(inspect.getsourcefile(function)).get(line, ()):
        if isinstance(node, ast.Lambda) == (function.__name__ == "<lambda>"):
            yield [ast.Return(node.body)] if isinstance(node, ast.Lambda) else without_docstring(node.body)


@cache
def functions_by_line(path):
    """First line, decorators included -> the functions and lambdas that begin there."""
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            lines = [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
            found.setdefault(min(lines), []).append(node)
    return found


# ---------------------------------------------------------------- where it must not be found


def leaks(paths, bodies, notes):
    """One line for each secret that one of these files (.py, .ipynb, .json) holds."""
    found = []
    kinds = {kinds_of_shape(shape) for shape in bodies}
    for path in paths:
        for text in texts(path):
            found += [f"{path.name} holds {bodies[s]}" for s in shapes_in(text, kinds) if s in bodies]
            line = f" {' '.join(words(text))} "
            found += [f"{path.name} holds a note: {' '.join(n)}" for n in notes if f" {' '.join(n)} " in line]
    return found


def texts(path):
    """Every piece of text in a file."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield content
        yield from (node.value for node in ast.walk(ast.parse(content)) if _is_text(node))
    elif path.suffix == ".ipynb":
        for cell in json.loads(content)["cells"]:
            yield "".join(cell["source"])
            yield json.dumps(cell["metadata"])
    else:
        yield from strings(json.loads(content))


def strings(tree):
    if isinstance(tree, str):
        if not re.fullmatch(r"[\w+/=]*", tree):  # a name, or an array's bytes
            yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from strings(item)
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield key
            yield from strings(item)


def shapes_in(text, kinds):
    """The shapes of all runs of statements of these kinds in the code that a text is or quotes."""
    for code in [text, *re.findall(r"```\w*\n(.*?)```", text, re.DOTALL), *re.findall(r"`([^`\n]+)`", text)]:
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(textwrap.dedent(code))
        except (SyntaxError, ValueError):
            continue
        for block in blocks(tree):
            names = [type(statement).__name__ for statement in block]
            for start in range(len(block)):
                for end in range(start + 1, len(block) + 1):
                    if tuple(names[start:end]) in kinds:
                        yield shape(block[start:end])


def blocks(tree):
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield without_docstring(block)
        if isinstance(node, ast.Lambda):
            yield [ast.Return(node.body)]


# ---------------------------------------------------------------- shapes


def shape(statements):
    """The syntax trees of statements, one a line, their names numbered in the order in which they appear."""
    numbers = {}

    def numbered(name):
        return name if name in KEPT else f"v{numbers.setdefault(name, len(numbers))}"

    lines = []
    for statement in copy.deepcopy(statements):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                node.id = numbered(node.id)
            elif isinstance(node, ast.arg):
                node.arg, node.annotation = numbered(node.arg), None
            elif isinstance(node, ast.FunctionDef):
                node.name, node.returns, node.body = numbered(node.name), None, without_docstring(node.body)
        lines.append(ast.dump(statement))
    return "\n".join(lines)


def kinds_of_shape(shape):
    """The kinds of its statements, such as ("Assign", "Return")."""
    return tuple(line.partition("(")[0] for line in shape.split("\n"))


def without_docstring(body):
    has_one = len(body) > 1 and isinstance(body[0], ast.Expr) and _is_text(body[0].value)
    return body[1:] if has_one else body


def size(statements):
    return sum(1 for statement in statements for _ in ast.walk(statement))


def words(text):
    return tuple(re.findall(r"\w+", text.lower()))


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
