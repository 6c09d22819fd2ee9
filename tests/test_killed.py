"""kill -9 at random moments: nothing is lost, nothing is graded twice, nothing stays behind."""

import random
import shutil
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from nbgrader.api import Gradebook

from autograder import class_run
from autograder.demo import samples
from autograder.nbgrader_steps import register
from autograder.seeds import class_secret
from course.child import kernel
from tests.test_grading import LESSON, put
from tests.test_nbgrader import CONFIG, NAME, rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux keeps them"),
]
KINDS = ("all_right", "three_mistakes", "half_done", "untouched", "check_cells", "{")
COMMAND = [sys.executable, "-m", "autograder", "class", NAME, "--jobs", "2", "--accept-process-isolation"]


def start(root):
    return subprocess.Popen(COMMAND, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def ungraded(tmp_path_factory):
    """A class of twelve, with a gradebook that knows the lesson and nobody."""
    root = tmp_path_factory.mktemp("ungraded") / "course"
    root.mkdir()
    (root / "nbgrader_config.py").write_text(CONFIG)
    for number in range(12):
        kind = KINDS[number % len(KINDS)]
        notebook = samples(LESSON).get(kind, kind)
        put(root / "submitted" / f"s{number:02}" / NAME, notebook, f"{NAME}.ipynb")
    class_secret(root)
    register(LESSON, class_run.api_of(root).coursedir)
    return root


@pytest.fixture(scope="module")
def whole(ungraded, tmp_path_factory):
    """The class graded without interruption."""
    root = shutil.copytree(ungraded, tmp_path_factory.mktemp("whole") / "course")
    said, _ = start(root).communicate(timeout=120)
    assert "10 graded, 2 refused, 0 fault" in said
    return root


def assert_graded_once(root, whole):
    assert rows(root) == rows(whole)
    with Gradebook(f"sqlite:///{root}/gradebook.db", "transformer_block") as gradebook:
        students = Counter(submission.student.id for submission in gradebook.assignment_submissions(NAME))
    assert set(students.values()) == {1} and len(students) == 12


def ours():
    """What runs below this process, but for nbgrader's look for the version of its tables, which ends by itself."""
    return {process for process in psutil.Process().children(recursive=True) if _is_running(process)}


def _is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE and "alembic" not in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def assert_nothing_stays(before):
    deadline = time.monotonic() + 20
    while left := ours() - before:
        assert time.monotonic() < deadline, [p.cmdline()[-3:] for p in left]
        time.sleep(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_runner_killed_at_random_moments_and_started_again(ungraded, whole, tmp_path, seed):
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # what a killed runner leaves behind becomes ours
    moments = random.Random(seed)
    root = shutil.copytree(ungraded, tmp_path / "course")
    if seed == 0:  # killed while the gradebook is made, too
        (root / "gradebook.db").unlink()
    before = ours()
    for _ in range(3):
        runner = start(root)
        time.sleep(moments.uniform(1.0, 3.5))
        runner.kill()
        runner.communicate()
        assert_nothing_stays(before)
    said, _ = start(root).communicate(timeout=120)
    assert "10 graded, 2 refused, 0 fault" in said
    assert_graded_once(root, whole)


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_killed_at_a_random_moment_costs_nobody_anything(ungraded, whole, tmp_path, seed):
    moments = random.Random(seed)
    root = shutil.copytree(ungraded, tmp_path / "course")
    runner = start(root)
    workers = []
    while not workers:
        found = psutil.Process(runner.pid).children() if runner.poll() is None else []
        workers = [p for p in found if p.cmdline()[1:3] == COMMAND[1:3]]
        assert runner.poll() is None, runner.communicate()
    time.sleep(moments.uniform(0.0, 0.6))
    moments.choice(workers).kill()
    said, _ = runner.communicate(timeout=120)
    assert runner.returncode == 0 and "10 graded, 2 refused, 0 fault" in said
    assert_graded_once(root, whole)
