"""A learner works through lesson 2 in JupyterLab."""

import shutil

import pytest
from nbgrader.validator import Validator

from autograder.demo import lesson_solution
from autograder.lessons import ROOT, find
from tests.browser.lab import Lab

LESSON = find("02_layer_norm")
CELLS = LESSON.release.cells
CHECKS = {
    cell.metadata.course.name: i for i, cell in enumerate(CELLS) if cell.metadata.course.role == "check"
}
ANSWERS = {
    cell.metadata.course.name: i for i, cell in enumerate(CELLS) if cell.metadata.course.role == "solution"
}
RIGHT, WRONG, *UNTOUCHED = CHECKS
LAST = max(i for i, cell in enumerate(CELLS) if cell.cell_type == "code")
QUIZ = next(i for i, cell in enumerate(CELLS) if cell.source == 'quiz("largest_after_gamma", "")')
HINT = 'from course import hint\n\nhint("layer_norm")'
MISTAKE = next(m for e in LESSON.exercises if e.name == WRONG for m in e.mistakes if m.id == "axis-0-only")


def mistaken():
    """A batch norm that averages over the first axis only."""
    source = lesson_solution(LESSON, WRONG)
    for right, wrong in (("tuple(range(x.ndim - 1))", "0"), ("x.size // x.shape[-1]", "len(x)")):
        assert right in source
        source = source.replace(right, wrong)
    return source


@pytest.fixture(scope="module")
def lab(browser, serve, tmp_path_factory):
    """JupyterLab after Run All, with the first exercise right, the second with a named mistake, the others untouched."""
    root = tmp_path_factory.mktemp("work") / "notebooks"
    shutil.copytree(ROOT / "release", root)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    server = serve(root)
    lab = Lab(context.new_page(), server.lab(f"{LESSON.name}/{LESSON.name}.ipynb"), len(CELLS))
    lab.write(ANSWERS[RIGHT], lesson_solution(LESSON, RIGHT))
    lab.write(ANSWERS[WRONG], mistaken())
    lab.run_all(LAST)
    lab.root = root
    yield lab
    context.close()


def test_run_all_goes_on_to_the_last_cell(lab):
    code = [i for i, cell in enumerate(CELLS) if cell.cell_type == "code"]
    assert [i for i in code if lab.count(i) in ("[ ]:", "[*]:")] == []


def test_a_right_answer_is_called_right(lab):
    shown = lab.output(CHECKS[RIGHT]).inner_text()
    assert f"{RIGHT}: correct, 2 of 2 points" in shown
    assert "Error" not in shown


def test_a_named_mistake_shows_its_cause_and_one_line_instead_of_a_traceback(lab):
    output = lab.output(CHECKS[WRONG])
    assert f"Likely cause: {MISTAKE.cause}" in output.inner_text()
    error = output.locator(
        "[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText[data-mime-type*='error']"
    )
    (line,) = error.last.inner_text().strip().splitlines()
    assert line.startswith(f"{WRONG}: ")
    assert "Traceback" not in output.inner_text()


def test_untouched_exercises_are_called_not_attempted(lab):
    for name in UNTOUCHED:
        shown = lab.output(CHECKS[name]).inner_text()
        assert f"{name}: not attempted" in shown
        assert "Traceback" not in shown


def test_the_report_is_drawn_as_a_page(lab, tmp_path):
    output = lab.output(CHECKS[WRONG])
    table = output.locator(".jp-RenderedHTML table")
    assert table.count() >= 1
    assert "<" not in output.locator(".jp-RenderedHTML").inner_text()  # no markup is read as text
    for place in (RIGHT, WRONG, UNTOUCHED[0]):
        lab.cell(CHECKS[place]).screenshot(path=tmp_path / f"{place}.png")


def test_quiz_and_hint_show_their_text(lab):
    lab.write(QUIZ, 'quiz("largest_after_gamma", "A")')
    assert "A: not this one." in lab.run(QUIZ).inner_text()
    lab.write(QUIZ, HINT)
    assert "Hint 1 of 3" in lab.run(QUIZ).inner_text()
    assert "Hint 2 of 3" in lab.run(QUIZ).inner_text()


def test_validate_sees_the_failing_checks(lab):
    lab.save()
    path = lab.root / LESSON.name / f"{LESSON.name}.ipynb"
    failed = [cell["source"] for cell in Validator().validate(str(path))["failed"]]
    assert failed == [*(f'check("{name}")' for name in (WRONG, *UNTOUCHED)), "YOUR ANSWER HERE"]


def test_reset_brings_the_stub_back(lab):
    place = ANSWERS[RIGHT]
    lab.write(place, f'from course import reset\n\nreset("{RIGHT}")')
    lab.run(place)
    lab.page.wait_for_function(
        "([place, text]) => document.querySelectorAll('.jp-Notebook .jp-Cell')[place].querySelector('.cm-content').innerText.includes(text)",
        arg=[place, "raise NotImplementedError"],
    )
    lab.run(place)
    assert f"{RIGHT}: not attempted" in lab.run(CHECKS[RIGHT]).inner_text()
