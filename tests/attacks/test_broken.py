"""Every broken submission ends as graded with what could be graded, or as refused with a sentence that says what to do."""

import hashlib
import json

import pytest

from autograder import isolation, submissions
from autograder.children import isolation as levels
from autograder.finding import submissions as found_in
from tests.attacks.attack import HONEST, LESSON, NAMES
from tests.attacks.broken import BROKEN


@pytest.fixture(params=isolation.LEVELS)
def level(request, monkeypatch):
    """Each level that this machine has, as the one that the grader finds."""
    why_not = levels.why_not(request.param)
    if why_not:
        pytest.skip(why_not)
    monkeypatch.setattr(isolation, "best", lambda: request.param)
    return request.param


def content(top):
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(top.rglob("*"))
    }


def test_there_are_enough_broken_submissions():
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_submission_ends_in_a_state(name, level, tmp_path):
    one = BROKEN[name]
    folder = tmp_path / "anna" / LESSON.name
    one.make(folder)
    before = content(tmp_path)
    (found,) = found_in(tmp_path)
    entry = submissions.grade_one(found, 5)
    assert content(tmp_path) == before
    json.dumps(entry)
    assert entry["isolation"] == level
    if one.refused:
        assert (entry["status"], entry["points"]) == ("refused", 0.0)
        assert one.refused in entry["reason"]
        assert entry["reason"].endswith(".") and len(entry["reason"]) < 300
    else:
        assert (entry["status"], entry["reason"]) == ("graded", "")
        due = {n: LESSON.points[n] if n in HONEST and n not in one.lost else 0.0 for n in NAMES}
        assert {e["name"]: e["points"] for e in entry["exercises"]} == due
