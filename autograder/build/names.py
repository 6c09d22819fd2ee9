"""Which names a piece of Python defines, and which it takes from its surroundings."""

from __future__ import annotations

import symtable


def defined(source: str) -> set[str]:
    """The names that the text binds at its top level: by assignment, import, def or class."""
    symbols = _table(source).get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


def needed(source: str) -> set[str]:
    """The names that are looked up at the top level, by the text itself or by its functions."""
    return _looked_up(_table(source))


def _table(source: str) -> symtable.SymbolTable:
    """Raises SyntaxError where the text is no Python; lines of IPython's magic do not count."""
    plain = ["" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines()]
    return symtable.symtable("\n".join(plain), "cell", "exec")


def _looked_up(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return found.union(*(_looked_up(child) for child in table.get_children()))
