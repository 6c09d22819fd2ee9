"""The numbers in the lessons' prose are computed, then looked for in the text."""

import re
from pathlib import Path

LESSONS = Path(__file__).parents[2] / "lessons"


def text_of(lesson: str) -> str:
    """The lesson's text, comment marks and line breaks taken out."""
    lines = (LESSONS / f"{lesson}.py").read_text(encoding="utf-8").splitlines()
    return re.sub(r"\s+", " ", " ".join(line.removeprefix("#").strip() for line in lines))


def says(text: str, fragment: str) -> bool:
    """Whether the text holds this fragment, whatever its line breaks."""
    return re.sub(r"\s+", " ", fragment) in text
