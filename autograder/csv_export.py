"""A step of nbgrader's export: its CSV writes names as they are, and a spreadsheet runs what looks like a formula."""

from __future__ import annotations

import re
from typing import Any

from nbgrader.api import Assignment, Gradebook, Student
from nbgrader.plugins import CsvExportPlugin

# at the start, and after what a spreadsheet may take for the end of a cell; some also read full-width signs
_FORMULA = re.compile(r'(^|[,;|\t\r\n"])(?=\s*[=+\-@＝＋－＠]|[\t\r\n])')
_NUMBER = re.compile(r"[+-][0-9]+(\.[0-9]+)?")


class CsvWithoutFormulas(CsvExportPlugin):
    """nbgrader's CSV of all grades, in which every text is one cell and none is a formula.

    nbgrader_config.py plugs it in. A text that a spreadsheet would run gets an apostrophe in front.
    """

    def export(self, gradebook: Gradebook) -> None:
        """Write the grades to the file `to`."""
        super().export(_Shown(gradebook))


class _Shown:
    """Something of the gradebook as the exporter sees it: its texts are cells."""

    def __init__(self, row: Any):
        self._row = row

    def __getattr__(self, name: str) -> Any:
        return _shown(getattr(self._row, name))


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return Cell(value)
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return _Shown(value) if isinstance(value, (Assignment, Student)) else value


class Cell(str):
    """A text that looks itself up as it is and is written as one quoted cell of a CSV without a formula.

    >>> print(f"{Cell('=1+1')},{Cell('-5')}")
    "'=1+1","-5"
    """

    def __format__(self, spec: str) -> str:
        text = str(self) if _NUMBER.fullmatch(self) else _FORMULA.sub(r"\1'", self)
        return '"' + text.replace('"', '""') + '"'
