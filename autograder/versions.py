"""What decides the points of a submission beside the submission itself, as one short text."""

from __future__ import annotations

import hashlib
from functools import cache

from autograder.lessons import ROOT


@cache
def engine(lesson: str) -> str:
    """A fingerprint of the grader, the course and the lesson as handed out: where it is another, points may be too."""
    parts = [
        *(ROOT / "autograder").rglob("*.py"),
        *(ROOT / "course").rglob("*.py"),
        *(ROOT / "release" / lesson).glob("*.ipynb"),
    ]
    digest = hashlib.sha256()
    for path in sorted(parts):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
