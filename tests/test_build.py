"""Building: the same every time, nothing of an author's is lost, and nothing secret is let out."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import numpy as np
import pytest

from autograder import lessons
from autograder.build import BuildError, build, cells, files, lesson_text, notebooks, numbers, pull, solutions
from autograder.exercise import Exercise, ask
from autograder.exercises import all_exercises
from autograder.exercises.residual_connections import wrong_jacobian
from autograder.judge import judge_function
from autograder.sheets import PUBLIC_SEED, Drawn
from course import shipped
from course.marking import mark
from course.questions import Given, View
from tests import leaks

ROOT = Path(__file__).parents[1]
NAME = "90_small"  # a number that no exercise has, so that only the lesson itself is built
EXERCISES = list(all_exercises().values())
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)

LESSON = """\
# A note for authors: not part of the notebook.

# %% [markdown]
# # A small lesson
#
# The mean of $x$ is *one* number.

# %% overview

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz


# %% exercise="layer_norm"

# %% [markdown]
# Between two exercises.

# %% explore="number_line" tags=["hide-input"]
fig, ax = plt.subplots()
ax.plot([1, 2])
figures.describe(fig, "A line.")

# %% [markdown] quiz="doubled"
# **Predict.** The stream doubles. What happens to the scores?
#
# - [ ] they double :: Only one of the two factors
#   would double then.
# - [x] they grow fourfold :: Both factors double.

# %% exercise="ffn"

# %% toolbox="layer_norm, ffn"

# %% [markdown] written="why_not" points=4
# Why is that so? Two sentences.
#
# ---
#
# - 2 points: names the statistics of one token as the cause of it.
# - 2 points: says what would happen to a sentence of one token.
"""


@pytest.fixture
def root(tmp_path):
    """A course with one small lesson, built."""
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / f"{NAME}.py").write_text(LESSON, encoding="utf-8")
    assert run(build, [NAME], root=tmp_path)[0] == 0
    return tmp_path


def run(command, *args, **options):
    """The exit status of build or pull, and what it said."""
    said = []
    return command(*args, say=said.append, **options), "\n".join(said)


def lesson(root):
    return files.lesson_path(NAME, root).read_text(encoding="utf-8")


def source(root):
    return nbformat.read(files.source_path(NAME, root), as_version=4)


def edit(root, change):
    """Let `change` edit the cells of the source notebook (by id, and as a list), as an instructor would."""
    notebook = source(root)
    change({cell.id: cell for cell in notebook.cells}, notebook.cells)
    nbformat.write(notebook, files.source_path(NAME, root))


def everything(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- the same every time


def test_building_twice_changes_nothing(root):
    before = {path: path.stat().st_mtime_ns for path in everything(root)}
    status, said = run(build, [NAME], root=root)
    assert (status, said) == (0, "Everything is built.")
    assert {path: path.stat().st_mtime_ns for path in everything(root)} == before


def test_another_process_builds_the_same_bytes(root):
    again = "from pathlib import Path; from autograder.build import build; import sys; build([sys.argv[1]], root=Path())"
    before = everything(root)
    for path in before:
        if path.suffix != ".py":
            path.unlink()
    subprocess.run(
        [sys.executable, "-c", again, NAME],
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert everything(root) == before


@pytest.mark.parametrize("folder", ["lessons", "release", "course/data"])
def test_check_names_what_is_stale_and_writes_nothing(root, folder):
    (path,) = [p for p in (root / folder).rglob("*") if p.is_file()]
    path.write_text(
        path.read_text(encoding="utf-8").replace("Both factors", "Two factors").replace("mean", "sum")
    )
    before = everything(root)
    status, said = run(build, [NAME], check=True, root=root)
    assert status == 1 and f"{NAME}" in said and "stale" in said
    assert everything(root) == before
    assert run(build, [NAME], root=root)[0] == 0
    assert run(build, [NAME], check=True, root=root)[0] == 0


def test_the_outputs_of_a_notebook_that_was_run_are_no_edit(root):
    built = everything(root)

    def run_it(by_id, _):
        by_id["explore-number_line"].outputs = [nbformat.v4.new_output("stream", text="seen")]
        by_id["explore-number_line"].execution_count = 7
        by_id["explore-number_line"].metadata["tags"] = ["hide-input"]
        by_id["quiz-doubled-answer"].source = 'quiz("doubled", "b")'

    edit(root, run_it)
    assert run(build, [NAME], check=True, root=root)[0] == 1
    assert run(build, [NAME], root=root)[0] == 0
    assert everything(root) == built


def test_a_write_that_fails_leaves_the_old_file(root, monkeypatch):
    before = everything(root)

    def fail(*args):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        files.write(files.lesson_path(NAME, root), "half")
    assert everything(root) == before


def test_numbers_of_exercises_and_lessons_that_are_gone_are_removed(root, monkeypatch):
    monkeypatch.setattr(files, "all_exercises", lambda: {})
    left = [root / "course" / "numbers" / "gone.json", root / "course" / "data" / "gone.json"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    assert run(build, check=True, root=root)[0] == 1
    assert run(build, root=root)[0] == 0
    assert not any(path.exists() for path in left)
    assert run(build, check=True, root=root) == (0, "Everything is built.")


# ---------------------------------------------------------------- the notebooks


def test_the_cells_say_what_they_are_and_what_they_are_worth(root):
    by_id = {cell.id: cell for cell in source(root).cells}
    check = by_id["check_layer_norm"]
    assert check.source == 'check("layer_norm")' and check.metadata.tags == ["raises-exception"]
    assert check.metadata.nbgrader == {
        "grade": True,
        "grade_id": "check_layer_norm",
        "locked": True,
        "points": all_exercises()["layer_norm"].points,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    assert by_id["layer_norm"].metadata.nbgrader.solution and not by_id["layer_norm"].metadata.nbgrader.grade
    assert by_id["why_not"].metadata.nbgrader.points == 4
    roles = {cell.metadata.course.role for cell in source(root).cells}
    assert roles == {
        *(
            "prose",
            "code",
            "exploration",
            "exercise-heading",
            "solution",
            "check",
            "toolbox",
            "quiz",
            "written",
        ),
        "overview",
    }
    assert source(root).metadata.kernelspec.name == "python3"
    assert f"lessons/{NAME}.py" in source(root).metadata.course.about


def test_the_overview_adds_up(root):
    by_id = {cell.id: cell for cell in source(root).cells}
    declared = [all_exercises()[name] for name in ("layer_norm", "ffn")]
    table = by_id["overview"].source
    minutes, points = sum(e.minutes for e in declared), sum(e.points for e in declared)
    assert f"| | **all exercises together** | | | **{minutes}** | **{points}** |" in table
    assert "4 points more" in table


def test_the_release_is_what_nbgrader_makes_of_the_source(root, tmp_path_factory):
    course = tmp_path_factory.mktemp("course")
    shutil.copytree(root / "source", course / "source")
    if (ROOT / "nbgrader_config.py").is_file():
        shutil.copy(ROOT / "nbgrader_config.py", course)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", NAME],
        cwd=course,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    made = (course / "release" / NAME / f"{NAME}.ipynb").read_bytes()
    assert made == files.release_path(NAME, root).read_bytes()


def test_the_release_holds_stubs_and_no_answers(root):
    release = nbformat.read(files.release_path(NAME, root), as_version=4)
    by_id = {cell.id: cell for cell in release.cells}
    assert by_id["why_not"].source == "YOUR ANSWER HERE"
    space = {"np": np}
    exec(by_id["layer_norm"].source, space)
    with pytest.raises(NotImplementedError):
        space["layer_norm"](np.ones(3), 1, 0)
    assert ">>>" in space["layer_norm"].__doc__
    assert "Both factors" not in files.release_path(NAME, root).read_text(encoding="utf-8")


@each
def test_a_solution_runs_where_only_np_is_imported(exercise):
    text = cells.definition_of(exercise.name, {})
    space = {"np": np}
    exec(solutions.as_cell(text), space)
    exec(notebooks.cleared(solutions.as_cell(text)), space)
    assert solutions.from_cell(solutions.as_cell(text)) == text


def test_a_hint_that_needs_another_name_stands_in_quotes_and_comes_back():
    text = '''def apply(x: np.ndarray, f: Callable[[np.ndarray], np.ndarray], n: int = 1) -> "np.ndarray | None":
    """Apply f: ä."""
    return f(x)'''
    cell = solutions.as_cell(text)
    assert 'f: "Callable[[np.ndarray], np.ndarray]", n: int = 1)' in cell
    exec(cell, {"np": np})
    assert "f: Callable[[np.ndarray], np.ndarray], n" in solutions.from_cell(cell)


def test_a_reference_that_needs_a_name_of_its_module_is_refused():
    text = 'def ffn(x: np.ndarray) -> np.ndarray:\n    """Doc."""\n    return sum(relu(v) for v in x)'
    with pytest.raises(BuildError, match="relu"):
        cells.definition_of("ffn", {"ffn": text})


# ---------------------------------------------------------------- lessons that cannot be built


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('exercise="ffn"', 'exercise="nothing"', "nothing"),
        ('exercise="ffn"', 'exercise="layer_norm"', "layer_norm"),
        ("# %% overview", "# %% everything", "not understood"),
        ('[markdown] quiz="doubled"', 'quiz="doubled"', "markdown"),
        ("- [x]", "- [ ]", "one \\[x\\]"),
        (" :: Both factors double.", "", "explanation"),
        ("# ---\n", "", "rubric"),
        (" points=4", "", "points"),
        ('figures.describe(fig, "A line.")', "figures.describe(fig,", "not valid Python"),
        ("# A note for authors", "note = 1  #", "only comments"),
        ('# %% exercise="ffn"\n', '# %% exercise="ffn"\nx = 1\n', "no body"),
        ("# Between two exercises.\n", "", "empty"),
        ('# %% exercise="ffn"\n', "# %%\nax.plot([3])\n", "number_line"),
    ],
)
def test_a_lesson_that_is_not_well_formed_is_named_with_the_place(root, old, new, says):
    assert old in LESSON
    files.lesson_path(NAME, root).write_text(LESSON.replace(old, new, 1), encoding="utf-8")
    before = everything(root)
    status, said = run(build, [NAME], root=root)
    assert status == 1 and f"lessons/{NAME}.py" in said
    assert re.search(says, said)
    assert everything(root) == before


def test_a_lesson_that_is_not_there_is_said_with_those_that_are(root):
    status, said = run(build, ["91_other"], root=root)
    assert status == 1 and "91_other" in said and NAME in said


def test_a_name_that_a_later_cell_defines_itself_is_no_loose_end():
    _, chunks = lesson_text.parse(
        '# %% explore="a"\nfig = 1\n\n# %%\nfig = 2\nprint(fig)\n\n# %%\nprint(fig)\n'
    )
    notebooks.source_notebook(NAME, chunks)


def test_two_lessons_do_not_share_the_name_of_a_quiz(root):
    other = '# %% [markdown] quiz="doubled"\n# Which?\n#\n# - [x] this :: Yes.\n# - [ ] that :: No.\n'
    files.lesson_path("91_other", root).write_text(other, encoding="utf-8")
    status, said = run(build, [NAME, "91_other"], root=root)
    assert status == 1 and "doubled" in said and NAME in said


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "lessons").glob("*.py"))])
def test_every_cell_of_the_lessons_could_be_written_again(name):
    _, chunks = files.read_lesson(name)
    assert len(chunks) > 10
    assert [lesson_text.parse(lesson_text.render(chunk))[1] for chunk in chunks] == [
        [chunk] for chunk in chunks
    ]


# ---------------------------------------------------------------- edits in the notebook


def change_prose(by_id, cells):
    cells[0].source += "\n\nA second paragraph with a [link](x)."


def change_exploration(by_id, cells):
    by_id["explore-number_line"].source = "%matplotlib inline\nplt.plot([3])"
    by_id["explore-number_line"].metadata["tags"] = []


def change_quiz(by_id, cells):
    quiz = by_id["quiz-doubled"]
    quiz.source = quiz.source.replace("doubles.", "triples.").replace("fourfold", "ninefold")


def change_written(by_id, cells):
    by_id["written-why_not"].source = by_id["written-why_not"].source.replace(
        "Two sentences", "Three sentences"
    )
    by_id["why_not"].source = by_id["why_not"].source.replace("2 points", "3 points")
    by_id["why_not"].metadata.nbgrader["points"] = 6


def add_cells(by_id, cells):
    cells.insert(1, nbformat.v4.new_markdown_cell("New prose\n\n- with `code`"))
    cells.append(nbformat.v4.new_code_cell("np.arange(3)\n\n\ndef helper():\n    return 1"))
    cells.append(nbformat.v4.new_code_cell(""))


def copy_exploration(by_id, cells):
    twin = nbformat.from_dict(by_id["explore-number_line"])
    twin["id"] = "another"
    cells.append(twin)


def remove_cells(by_id, cells):
    for id in ("explore-number_line", "heading-ffn", "ffn", "check_ffn"):
        cells.remove(by_id[id])


def move_cells(by_id, cells):
    cells.append(cells.pop(0))
    group = [by_id[id] for id in ("quiz-doubled", "quiz-doubled-answer")]
    for cell in group:
        cells.remove(cell)
    cells[1:1] = group


def lose_ids(by_id, cells):
    for number, cell in enumerate(cells):
        cell["id"] = f"new{number}"
    cells[0].source += " More."


EDITS = [
    change_prose,
    change_exploration,
    change_quiz,
    change_written,
    add_cells,
    copy_exploration,
    remove_cells,
    move_cells,
    lose_ids,
]


@pytest.mark.parametrize("change", EDITS, ids=lambda f: f.__name__)
def test_an_edit_is_not_overwritten_and_comes_back_with_pull(root, change):
    edit(root, change)
    before = everything(root)
    wanted = [(cell.cell_type, cell.source) for cell in source(root).cells if cell.source]
    status, said = run(build, [NAME], root=root)
    assert status == 1 and f"python -m autograder pull {NAME}" in said
    assert everything(root) == before

    status, said = run(pull, NAME, root=root)
    assert status == 0, said
    assert lesson(root) != LESSON
    assert run(build, [NAME], root=root)[0] == 0
    built = [(cell.cell_type, cell.source) for cell in source(root).cells]
    assert tidied(built) == tidied(wanted)
    assert run(build, [NAME], check=True, root=root)[0] == 0
    assert "not edited" in run(pull, NAME, root=root)[1]


def tidied(pairs):
    """Without what follows from other cells: the table, and the line about a written question's points."""
    kept = [(kind, text.split("\n\n*A person reads")[0]) for kind, text in pairs]
    return [(kind, text) for kind, text in kept if not text.startswith("| exercise |")]


def test_pull_changes_only_the_lines_of_the_edited_cell(root):
    edit(root, change_prose)
    run(pull, NAME, root=root)
    added = "#\n# A second paragraph with a [link](x).\n"
    assert lesson(root) == LESSON.replace("is *one* number.\n", "is *one* number.\n" + added)


@pytest.mark.parametrize(
    ("id", "old", "new", "place"),
    [
        ("heading-layer_norm", "minutes", "hours", "autograder/exercises/layer_norm.py"),
        ("check_layer_norm", "check(", "  check(", "autograder/exercises/layer_norm.py"),
        ("overview", "difficulty", "effort", "autograder/exercises"),
        ("quiz-doubled", "- **A**", "- **A** zero\n- **B**", "lesson's text"),
        ("toolbox-layer_norm-ffn", "Paste", "Put", "references"),
        (
            "layer_norm",
            "def layer_norm",
            "import math\n\n\ndef layer_norm",
            "autograder/exercises/layer_norm.py",
        ),
        ("layer_norm", "def layer_norm", "def my_norm", "autograder/exercises/layer_norm.py"),
    ],
)
def test_what_cannot_be_brought_back_is_named_and_stays(root, id, old, new, place):
    declared = (ROOT / "autograder" / "exercises" / "layer_norm.py").read_bytes()

    def change(by_id, cells):
        cells[0].source += " More."
        assert old in by_id[id].source
        by_id[id].source = by_id[id].source.replace(old, new, 1)

    edit(root, change)
    edited = source(root)
    status, said = run(pull, NAME, root=root)
    assert status == 1 and "Not brought back" in said and place in said
    assert [cell.source for cell in source(root).cells] == [cell.source for cell in edited.cells]
    assert lesson(root) == LESSON.replace("*one* number.", "*one* number. More.")
    assert (ROOT / "autograder" / "exercises" / "layer_norm.py").read_bytes() == declared
    assert run(build, [NAME], root=root)[0] == 1, "still refused until it is settled"
    edit(root, lambda by_id, cells: by_id[id].update(source=by_id[id].source.replace(new, old, 1)))
    assert run(build, [NAME], root=root)[0] == 0


def test_points_changed_in_the_notebook_are_named_with_their_place(root):
    edit(root, lambda by_id, cells: by_id["check_ffn"].metadata.nbgrader.update(points=9))
    assert run(build, [NAME], root=root)[0] == 1
    status, said = run(pull, NAME, root=root)
    assert status == 1 and "ffn_memory.py" in said and lesson(root) == LESSON


def between(by_id, cells):
    cells.insert(cells.index(by_id["ffn"]), nbformat.v4.new_markdown_cell("In between"))


def without_its_check(by_id, cells):
    cells.remove(by_id["check_ffn"])


def copied_check(by_id, cells):
    cells.append(nbformat.from_dict({**by_id["check_ffn"], "id": "copy"}))


def raw(by_id, cells):
    cells.append(nbformat.v4.new_raw_cell("raw"))


def two_explorations_tied(by_id, cells):
    cells.append(nbformat.v4.new_code_cell("ax.set_title('later')"))


@pytest.mark.parametrize(
    "change", [between, without_its_check, copied_check, raw, two_explorations_tied], ids=lambda f: f.__name__
)
def test_an_edit_that_a_lesson_cannot_say_changes_nothing(root, change):
    edit(root, change)
    before = everything(root)
    status, said = run(pull, NAME, root=root)
    assert status == 1 and "Nothing was changed" in said
    assert everything(root) == before


def test_pull_refuses_where_the_lesson_was_changed_as_well(root):
    edit(root, change_prose)
    path = files.lesson_path(NAME, root)
    path.write_text(LESSON.replace("Between two", "Among the"), encoding="utf-8")
    before = everything(root)
    status, said = run(pull, NAME, root=root)
    assert status == 1 and "both" in said and "git stash" in said
    assert everything(root) == before


def test_an_edit_made_in_both_places_alike_needs_no_pull(root):
    edit(root, change_prose)
    notebook = files.source_path(NAME, root).read_text(encoding="utf-8")
    run(pull, NAME, root=root)
    files.source_path(NAME, root).write_text(notebook, encoding="utf-8")
    same = [cell.source for cell in source(root).cells]
    assert run(build, [NAME], root=root)[0] == 0
    assert [cell.source for cell in source(root).cells] == same


def test_an_edited_solution_goes_into_the_reference(tmp_path):
    """Through the commands, in a copy of the repository, since the declarations change."""
    for folder in ("autograder", "course"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.json")
        )
    (tmp_path / "lessons").mkdir()
    files.lesson_path(NAME, tmp_path).write_text(LESSON, encoding="utf-8")

    def command(*words):
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "autograder", *words, NAME],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def rewrite(by_id, _):
        cell = by_id["ffn"]
        cell.source = (
            cell.source[: cell.source.index('"""')]
            + '"""Another docstring."""\n    ### BEGIN SOLUTION\n    # another way\n'
            + "    return np.maximum(b1 + x @ W1, 0) @ W2 + b2\n    ### END SOLUTION"
        )

    assert command("build")[0] == 0
    edit(tmp_path, rewrite)
    wanted = {cell.id: cell.source for cell in source(tmp_path).cells}["ffn"]
    status, said = command("build")
    assert status == 1 and "pull" in said
    status, said = command("pull")
    assert status == 0, said
    assert lesson(tmp_path) == LESSON
    declared = (tmp_path / "autograder" / "exercises" / "ffn_memory.py").read_text(encoding="utf-8")
    assert "# another way" in declared and "def ffn(x: np.ndarray" in declared
    original = (ROOT / "autograder" / "exercises" / "ffn_memory.py").read_text(encoding="utf-8")
    assert names_in(declared) == names_in(original)
    assert command("build")[0] == 0
    by_id = {cell.id: cell.source for cell in source(tmp_path).cells}
    assert by_id["ffn"] == wanted and "# another way" in by_id["toolbox-layer_norm-ffn"]


def names_in(module):
    return [node.name for node in ast.walk(ast.parse(module)) if isinstance(node, ast.FunctionDef)]


# ---------------------------------------------------------------- the shipped numbers


@each
def test_the_shipped_numbers_mark_like_the_judge(exercise):
    """For the reference, and for every mistake, what can be asked gets the same points and the same name."""
    drawn, numbers_of = Drawn(exercise, PUBLIC_SEED), shipped.load(exercise.name)
    opened = {item.property for item in numbers_of.sheet.items if item.open}
    functions = {None: exercise.reference_function, **{m.id: m.function for m in exercise.mistakes}}
    for mistake, function in functions.items():
        given = drawn.views_of(function)
        nothing = [[] for _ in given]
        judged = mark(drawn.sheet, given, nothing, drawn.wrong)
        marked = mark(numbers_of.sheet, given, nothing, numbers_of.wrong)
        if not opened:
            assert (marked.points, marked.outcome) == (judged.points, judged.outcome), mistake
            assert marked.mistake == judged.mistake == mistake
        else:
            assert passed(marked, judged) == passed(judged, marked)
        if mistake is None:
            assert marked.outcome == "correct"


@pytest.mark.parametrize(
    ("step", "mistake"), [({"default": 3e-13}, "step-too-small"), ({"fixed": 5e-13}, "always-a-tiny-step")]
)
def test_rounding_noise_is_named_also_where_its_numbers_are_others(step, mistake):
    """As on another processor: the numbers are not those of the declared wrong version."""
    exercise, function = all_exercises()["numerical_jacobian"], wrong_jacobian(**step)
    assert {judge_function(exercise, seed, function).mistake for seed in range(1, 9)} == {mistake}
    given, numbers_of = Drawn(exercise, PUBLIC_SEED).views_of(function), shipped.load(exercise.name)
    assert mark(numbers_of.sheet, given, [[] for _ in given], numbers_of.wrong).mistake == mistake


def passed(verdict, other):
    """Property -> whether it holds, for those that both verdicts decide without looking at another property."""
    decided = {r.name for r in other.properties if not r.note} & {
        r.name for r in verdict.properties if not r.note
    }
    return {r.name: r.passed for r in verdict.properties if r.name in decided}


@each
def test_the_shipped_numbers_carry_what_the_checks_show(exercise):
    numbers_of = shipped.load(exercise.name)
    assert numbers_of.sheet.name == exercise.name in shipped.names()
    assert numbers_of.sheet.max_points == exercise.points
    assert numbers_of.hints == exercise.hints
    assert numbers_of.stub.endswith("raise NotImplementedError()")
    assert dict(numbers_of.sheet.mistakes) == {m.id: m.cause for m in exercise.mistakes}


@each
def test_the_shipped_numbers_are_small(exercise):
    assert (shipped.HOME / "numbers" / f"{exercise.name}.json").stat().st_size < 600_000


def about_f(secret):
    return [{"inner": (secret, print)}]


def small_exercise(**options):
    exercise = Exercise(
        "99.1",
        "Apply",
        "easy",
        1,
        5,
        True,
        "Why.",
        "One line.",
        ("question", "plan", "pseudocode"),
        **options,
    )

    @exercise.reference
    def apply(x: np.ndarray, f=None) -> np.ndarray:
        """Apply f to x."""
        return np.asarray(f(x)) if callable(f) else np.asarray(x) / 3

    exercise.mistake("nothing", "You return x.", lambda x, f=None: x)
    return exercise


def shipped_items(exercise, monkeypatch):
    monkeypatch.setattr(
        numbers, "definition_of", lambda name, _: solutions.definition(exercise.reference_function)
    )
    return numbers.exercise_tree(exercise)


def test_what_only_a_judge_can_ask_ships_as_open_with_no_numbers(monkeypatch):
    exercise = small_exercise()
    secret = np.array([0.123456789])

    @exercise.must("plain", 0.5)
    def _(rng):
        yield ask(secret)
        yield ask(secret, Given("constant", (secret,)))

    @exercise.must("a function of the judge's", 0.5)
    def _(rng):
        yield ask(secret, lambda x: x)
        yield ask(secret, about_f(secret))

    @exercise.must("judge only", 0.5, judge_only=True)
    def _(rng):
        yield ask(secret)

    @exercise.must("a view of its own", 0.5, view=View(lambda answers, question: answers[0].value))
    def _(rng):
        yield ask(secret)

    tree = shipped_items(exercise, monkeypatch)
    assert [item.get("open", False) for item in tree["items"]] == [False, False, True, True, True, True]
    assert all(set(item) == {"property", "open"} for item in tree["items"][2:])
    assert list(tree["wrong"]["nothing"]) == ["0"], "stored only where it differs from what is expected"


def test_noise_ships_as_wrong_and_not_as_numbers(monkeypatch):
    exercise = small_exercise()
    exercise.must("large", 2.0, chaotic=True)(lambda rng: [ask(np.array([1e8]))])
    tree = shipped_items(exercise, monkeypatch)
    assert tree["wrong"]["nothing"] == {"0": {"Failure": ["no answer", "", "", ""]}}


def test_numbers_that_another_processor_rounds_differently_are_not_stale():
    def text(value, name="p"):
        return numbers.as_text({"items": [numbers.encode(np.array([value, 2.0]))], "title": name})

    assert numbers.agree(text(1 / 3), text(1 / 3 + 1e-13))
    assert not numbers.agree(text(1 / 3), text(1 / 3 + 1e-8))
    assert not numbers.agree(text(1 / 3), text(1 / 3, "q"))
    assert not numbers.agree("half a fi", text(1 / 3))


def test_quizzes_and_figures_are_found_by_name(root, monkeypatch):
    figure = {"x": np.arange(3.0), "nested": {"n": 2}, "words": "one"}
    monkeypatch.setattr(files.figures, "by_lesson", lambda: {NAME[3:]: {"line": lambda: figure}})
    assert run(build, [NAME], root=root)[0] == 0
    monkeypatch.setattr(shipped, "HOME", root / "course")
    shipped._lessons.cache_clear()
    try:
        assert shipped.quiz("doubled") == {
            "A": (False, "Only one of the two factors would double then."),
            "B": (True, "Both factors double."),
        }
        found = shipped.data("line")
        assert np.array_equal(found["x"], figure["x"]) and found["nested"] == {"n": 2}
        for look in (shipped.quiz, shipped.data, shipped.load):
            with pytest.raises(LookupError):
                look("nothing of this name")
    finally:
        shipped._lessons.cache_clear()


# ---------------------------------------------------------------- the grader's view


def test_the_grader_sees_the_lesson(root):
    assert lessons.names(root) == (NAME,)
    found = lessons.find(NAME, root)
    assert [e.name for e in found.exercises] == ["layer_norm", "ffn"]
    assert found.points == {name: all_exercises()[name].points for name in ("layer_norm", "ffn")}
    assert found.max_points == sum(found.points.values()) and found.written == {"why_not": 4.0}
    assert found.explorations == {
        'fig, ax = plt.subplots()\nax.plot([1, 2])\nfigures.describe(fig, "A line.")'
    }
    with pytest.raises(LookupError, match=NAME):
        lessons.find("91_other", root)


def test_a_submission_is_known_by_its_grade_ids_and_else_by_its_name(root):
    tree = json.loads(files.release_path(NAME, root).read_text(encoding="utf-8"))
    assert lessons.lesson_of(tree, "another_name", root).name == NAME
    assert lessons.lesson_of({"cells": []}, NAME, root).name == NAME
    assert lessons.lesson_of({"cells": [{"metadata": {"nbgrader": {"grade_id": ["x"]}}}]}, "", root) is None


# ---------------------------------------------------------------- nothing secret gets out


def public_files(root):
    return [
        path
        for folder in ("course", "release")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".py", ".ipynb", ".json") and ".ipynb_checkpoints" not in path.parts
    ]


def lesson_texts(root):
    return [path.read_text(encoding="utf-8") for path in (root / "lessons").glob("*.py")]


@pytest.fixture(scope="module")
def bodies():
    return leaks.secret_bodies()


def test_neither_course_nor_release_holds_a_solution_or_a_rubric(bodies):
    assert len(bodies) > 2 * len(EXERCISES)
    assert leaks.leaks(public_files(ROOT), bodies, leaks.secret_notes(lesson_texts(ROOT))) == []


def renamed(function):
    """The text of a function with other names, comments and layout."""
    tree = ast.parse(solutions.definition(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in leaks.KEPT:
            node.id = f"{node.id}_renamed"
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = f"{node.arg}_renamed", None
    return "# harmless\n" + ast.unparse(tree).replace("\n", "  # nothing to see\n\n", 1)


PLANTED = {
    "reference": lambda e: e.reference_function,
    "mistake": lambda e: next(m.function for m in e.mistakes if m.function.__name__ != "<lambda>"),
    "variant": lambda e: e.variants[0],
}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("place", ["module", "inside a function", "notebook", "fence", "json"])
def test_a_planted_solution_is_found(root, bodies, kind, place):
    text = renamed(PLANTED[kind](all_exercises()["layer_norm"]))
    plant(root, text, place)
    assert leaks.leaks(public_files(root), bodies, set())


def plant(root, text, place):
    (root / "course").mkdir(exist_ok=True)
    if place == "module":
        (root / "course" / "x.py").write_text(text)
    elif place == "inside a function":
        body = textwrap.indent(text, "    ")
        (root / "course" / "x.py").write_text(f"import numpy\n\n\ndef outer():\n{body}\n    return 1\n")
    elif place == "json":
        (root / "course" / "data" / "x.json").write_text(json.dumps({"a": [{"b": text}]}))
    else:
        path = files.release_path(NAME, root)
        notebook = nbformat.read(path, as_version=4)
        if place == "notebook":
            notebook.cells.append(nbformat.v4.new_code_cell(text))
        else:
            notebook.cells.append(nbformat.v4.new_markdown_cell(f"See:\n\n```python\n{text}\n```\n"))
        nbformat.write(notebook, path)


def test_a_solution_that_the_release_kept_is_found(root, bodies):
    shutil.copy(files.source_path(NAME, root), files.release_path(NAME, root))
    found = leaks.leaks(public_files(root), bodies, leaks.secret_notes(lesson_texts(root)))
    assert any("layer_norm: reference" in line for line in found)
    assert any("ffn: reference" in line for line in found)
    assert any("note" in line for line in found)


def test_a_planted_rubric_is_found_and_a_clean_course_is_clean(root, bodies):
    notes = leaks.secret_notes(lesson_texts(root))
    assert len(notes) == 2
    assert leaks.leaks(public_files(root), bodies, notes) == []
    path = files.release_path(NAME, root)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source += "\n\n*2 points*: names the statistics of one\ntoken as the cause of it!"
    nbformat.write(notebook, path)
    assert leaks.leaks(public_files(root), bodies, notes)


def test_the_repository_is_built():
    status, said = run(build, check=True)
    assert status == 0, said
