"""Read a submitted file as data: a notebook's JSON, or a refusal that says what to do.

The file is looked at before anything else opens or parses it. Nothing of it runs here.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path

MAX_BYTES = 32_000_000
MAX_PARTS = 2_000_000  # commas and opening brackets: each may become an object in memory
CLEAR = (
    "Open it in JupyterLab, choose “Clear Outputs of All Cells” in the Edit menu, save, and hand it in again."
)
HARD_LINK = (  # to a file that the student may not read, perhaps: another's work would be graded and shown
    "This file is a hard link: it has a second name elsewhere. Hand in a copy of it. "
    "If a backup made with cp -al gave it that name, grade a copy made with cp -r, which has one name."
)
RESAVE = "Open your notebook in JupyterLab, save it, and hand in the .ipynb file."


class Refused(Exception):
    """A submission that cannot be graded. Its text is one or two sentences that say what to do."""


def read(path: Path) -> dict:
    """The JSON object of the notebook in this file, checked no further than that it holds cells of a known format.

    Raises Refused.
    """
    return parse(read_bytes(path))


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a plain file, never through a link and never waiting for a pipe. Raises Refused."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        if os.path.islink(path):  # said first for systems without O_NOFOLLOW
            raise OSError(errno.ELOOP, "a link")
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise Refused(_cannot_open(error)) from error
    try:
        _refuse_unless_plain(os.fstat(descriptor), limit)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise Refused(_cannot_open(error)) from error
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise Refused(f"The file grows while it is read. {RESAVE}")
    return data


def _refuse_unless_plain(state: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise Refused(f"This is a folder with the name of a notebook. {RESAVE}")
    if not stat.S_ISREG(state.st_mode):
        raise Refused(f"This is no ordinary file (a pipe or a device). {RESAVE}")
    if state.st_nlink > 1:
        raise Refused(HARD_LINK)
    if state.st_size > limit:
        raise Refused(f"The file has {_megabytes(state.st_size)}; {_megabytes(limit)} is the most. {CLEAR}")


def _cannot_open(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.ELOOP, getattr(errno, "EMLINK", None)):
        return "This is a link to another place, not a file. Hand in the notebook itself."
    if number == errno.ENOENT:
        return f"There is no such file. {RESAVE}"
    if number in (errno.EACCES, errno.EPERM):
        return "The file may not be read. Give it read permission (chmod a+r) and hand it in again."
    return f"The file cannot be opened. {RESAVE}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


# ---------------------------------------------------------------- from bytes to a notebook


def parse(data: bytes) -> dict:
    """The notebook that these bytes hold. Raises Refused."""
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        raise Refused(f"The file is empty. {RESAVE}")
    _refuse_other_kinds(data)
    text = _text(data)
    if text.count(",") + text.count("[") + text.count("{") > MAX_PARTS:
        raise Refused(f"The notebook holds far too much data. {CLEAR}")
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise Refused(
            f"The notebook is nested far too deeply to be one that Jupyter saved. {RESAVE}"
        ) from error
    except ValueError as error:
        raise Refused(_why_no_json(text, error)) from error
    _refuse_other_formats(tree)
    return tree


_MAGIC = {
    b"PK\x03\x04": "a zip archive. Unpack it and hand in the .ipynb file that is inside.",
    b"\x1f\x8b": "a compressed archive. Unpack it and hand in the .ipynb file that is inside.",
    b"7z\xbc\xaf": "a compressed archive. Unpack it and hand in the .ipynb file that is inside.",
    b"Rar!": "a compressed archive. Unpack it and hand in the .ipynb file that is inside.",
    b"%PDF": "a PDF. Hand in the .ipynb file itself, not a print of it.",
    b"\x89PNG": "a picture. Hand in the .ipynb file itself.",
    b"\xff\xd8\xff": "a picture. Hand in the .ipynb file itself.",
}


def _refuse_other_kinds(data: bytes) -> None:
    for magic, what in _MAGIC.items():
        if data.startswith(magic):
            raise Refused(f"This is no notebook but {what}")
    start = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<") and (b"<html" in start or b"<!doctype" in start or b"<?xml" in start):
        raise Refused(
            "This is no notebook but a web page. Hand in the .ipynb file itself, not an export of it."
        )


def _text(data: bytes) -> str:
    """The bytes as text: UTF-8, UTF-16 or UTF-32, with a mark at the start or without; else Latin-1."""
    try:
        return data.decode(json.detect_encoding(data)).lstrip("\ufeff")
    except UnicodeDecodeError:
        return data.decode("latin-1")


_CONFLICT = re.compile(r"^(<{7} .*|={7}|>{7} .*)\r?$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*(#|import |from \w|def |class |\"\"\"|@)", re.MULTILINE)


def _why_no_json(text: str, error: ValueError) -> str:
    if _CONFLICT.search(text):
        return "Git left conflict marks (<<<<<<<) in the file. Choose one of the two versions, save it in JupyterLab, and hand it in again."
    if not text.lstrip().startswith(("{", "[")):
        if _PYTHON.match(text):
            return "This is no notebook but Python text. Hand in the .ipynb file itself, not an export of it."
        return f"This is no notebook: its content is not what Jupyter writes. {RESAVE}"
    position = getattr(error, "pos", 0)
    if "Unterminated string" in str(error) or position >= len(text.rstrip()):
        return f"The file ends in the middle: it was cut off when it was saved or copied. {RESAVE}"
    line = text.count("\n", 0, position) + 1
    return f"The file is damaged: line {line} is not what Jupyter writes. {RESAVE}"


def _refuse_other_formats(tree: object) -> None:
    if not isinstance(tree, dict):
        raise Refused(f"This is no notebook but other JSON data. {RESAVE}")
    version = tree.get("nbformat", 4)
    if type(version) is not int or version < 1:
        raise Refused(f"The notebook does not say which format it has. {RESAVE}")
    if version > 4:
        raise Refused(
            f"The notebook has format {version}, which is newer than this grader knows. Save it as format 4."
        )
    if version < 3:
        raise Refused(f"The notebook has format {version}, from before 2013. {RESAVE}")
    if not isinstance(tree.get("cells" if version == 4 else "worksheets"), list):
        raise Refused(f"This is no notebook: it has no cells. {RESAVE}")
