"""Every attack at every level of isolation: the honest worth and no point more, and nothing else is touched."""

import json
import re
import time
from functools import cache

import psutil
import pytest
from nbformat import validate

from autograder import grading, isolation, results
from autograder.children import child, warm
from autograder.children import isolation as levels
from autograder.clean import clean, is_check
from autograder.lessons import ROOT
from tests.attacks import harm, points
from tests.attacks.attack import ANSWERS, HONEST, LESSON, NAMES, honest, notebook
from tests.attacks.world import descendants, repository_files, world

ATTACKS = {attack.name: attack for attack in (*points.ATTACKS, *harm.ATTACKS)}
SEED = 5
SECONDS = 90  # of real time for the slowest, on a busy machine
WORTH = {name: LESSON.points[name] if name in HONEST else 0.0 for name in NAMES}
SMALL = notebook({HONEST[0]: ANSWERS[HONEST[0]]})
WORTH_OF_SMALL = {name: LESSON.points[name] if name == HONEST[0] else 0.0 for name in NAMES}
KINDS = {attack.kind for attack in ATTACKS.values()}


@pytest.fixture(params=isolation.LEVELS)
def level(request):
    """Each level that this machine has."""
    why_not = levels.why_not(request.param)
    if why_not:
        pytest.skip(why_not)
    return request.param


@pytest.fixture
def around():
    with world() as made:
        yield made


def graded(tree, level, folder=None):
    return grading.grade(clean(tree, LESSON.release), LESSON.explorations, SEED, folder, level)


def worth(made):
    return {verdict.name: verdict.points for verdict in made.verdicts}


def test_there_are_enough_attacks_and_no_name_twice():
    assert len(ATTACKS) == len(points.ATTACKS) + len(harm.ATTACKS) >= 60


def test_the_honest_notebook_is_worth_what_the_attacks_are_held_to(level):
    assert worth(graded(honest(), level)) == WORTH


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_earns_nothing_and_harms_nobody(name, level, around, monkeypatch):
    attack = ATTACKS[name]
    held = level != isolation.LEVELS[0] or attack.needs == "process"
    if attack.kills and not held:
        pytest.skip("at this level, which is reported as not protected, it may end any process of the user")
    if attack.short:
        monkeypatch.setattr(grading, "CELL_SECONDS", 0.4)
        monkeypatch.setattr(child, "wall_seconds", lambda seconds: 2.0)
    around.hand_in(attack.tree(around.places), attack.files)
    tree = json.loads((around.folder / f"{LESSON.name}.ipynb").read_text())
    warmed(level)
    before, running, started = around.content(), descendants(), time.monotonic()

    made = graded(tree, level, around.folder)

    assert time.monotonic() - started < SECONDS
    assert_reported(made, attack, level)
    if held:
        assert worth(made) == WORTH
        assert around.content() == before
        assert not around.reached()
        assert not around.left_behind()
        assert around.bystander.poll() is None
        assert psutil.Process(around.bystander.pid).nice() == 0
        for words in attack.hides:
            assert words not in (active(made) if attack.kind == harm.BROWSER else shown(made))
    assert descendants() <= running | warm_now()
    assert worth(graded(SMALL, level)) == WORTH_OF_SMALL  # the run goes on, and the next one gets what is due


def active(made):
    """What a browser would take for more than text: HTML and other rich outputs, text cells, metadata."""
    texts = (cell.source for cell in made.notebook.cells if cell.cell_type == "markdown")
    parts = [
        str(made.notebook.metadata),
        *(re.sub(r"(?m)^ {4}.*", "", text) for text in texts),
    ]  # no code blocks
    for cell in made.notebook.cells:
        parts += [str(cell.metadata), str(cell.get("attachments", ""))]
        for output in cell.get("outputs", ()):
            parts += [text for mime, text in output.get("data", {}).items() if mime != "text/plain"]
            parts.append(str(output.get("metadata", "")))
    return "\n".join(parts)


@cache
def warmed(level):
    """Have the level's warm process started."""
    graded(SMALL, level)


def assert_reported(made, attack, level):
    """The notebook is whole, names the level, and says of every exercise what became of it."""
    validate(made.notebook)
    for cell in filter(is_check, made.notebook.cells):
        assert isolation.described(level) in cell.outputs[0].data["text/plain"]
    entry = results.graded("path", "mallory", LESSON.name, made)
    assert entry["status"] == "graded" and entry["isolation"] == level
    assert all(e["message"] or e["outcome"] in ("correct", "not attempted") for e in entry["exercises"])
    assert len(json.dumps(made.notebook)) < 60_000_000
    assert attack.shows in shown(made)


def shown(made):
    """All that a person sees of the graded notebook besides the cells' own text."""
    return "\n".join(str(output) for cell in made.notebook.cells for output in cell.get("outputs", ()))


def warm_now():
    """The warm processes of this test run; a child that ended one had it replaced."""
    roots = [psutil.Process(one._process.pid) for one in warm._warm.values() if one.alive]
    return {p.pid for root in roots for p in (root, *root.children()) if p.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(scope="module", autouse=True)
def _nothing_of_the_repository_changes():
    before = repository_files()
    yield
    assert repository_files() == before


def test_every_kind_stands_in_the_table_of_the_documentation():
    table = (ROOT / "docs" / "threats.md").read_text()
    assert all(f"| {kind} |" in table for kind in KINDS)
