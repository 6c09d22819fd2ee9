"""`nbgrader export` writes a table in which no name is a formula and every name is one cell."""

import csv

import pytest
from nbgrader.api import Gradebook

from autograder.commands import main
from autograder.csv_export import Cell
from autograder.lessons import ROOT
from tests.test_grading import LESSON, put
from tests.test_nbgrader import nbgrader

NAME = LESSON.name
CONFIG = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\n"
WRITTEN = {  # folder of a student -> how a spreadsheet may read it
    "=cmd|' C calc'!A0": "'=cmd|' C calc'!A0",
    "+1+1": "'+1+1",
    "-2+3": "'-2+3",
    "@SUM(1,2)": "'@SUM(1,2)",
    "ann,,,,,,99": "ann,,,,,,99",
    'bob",=1+1,"': 'bob",\'=1+1,"',
    "cleo;=1+1": "cleo;'=1+1",
    "dora": "dora",
    "-5": "-5",
}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", '"\'=1+1"'),
        ("\t=1+1", "\"'\t'=1+1\""),
        ("\r=1+1", "\"'\r'=1+1\""),
        ("  =1+1", '"\'  =1+1"'),
        ("+49 30 123", '"\'+49 30 123"'),
        ("＝1+1", '"\'＝1+1"'),
        ("-1.5", '"-1.5"'),
        ("+4930123", '"+4930123"'),
        ("O'Neil-Smith, Ann", '"O\'Neil-Smith, Ann"'),
        ("ann@example.org", '"ann@example.org"'),
        ("", '""'),
    ],
)
def test_a_cell_is_quoted_and_no_formula(text, cell):
    assert f"{Cell(text)}" == cell
    assert Cell(text) == text  # so that the gradebook finds it


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A class with such names, graded; two have names in the gradebook, one a score below zero."""
    root = tmp_path_factory.mktemp("export")
    (root / "nbgrader_config.py").write_text(CONFIG)
    for student in WRITTEN:
        put(root / "submitted" / student / NAME, LESSON.release, f"{NAME}.ipynb")
    with pytest.MonkeyPatch.context() as context:
        context.chdir(root)
        assert main(["class", NAME, "--jobs", "2", "--accept-process-isolation"]) == 0
    with Gradebook(f"sqlite:///{root}/gradebook.db", "transformer_block") as gradebook:
        gradebook.update_or_create_student(
            "dora", first_name='=HYPERLINK("http://example.org","x")', last_name="@x", email="\r=1"
        )
        gradebook.update_or_create_student(
            "-5", first_name="Ada", last_name="O'Neil", email="ada@example.org"
        )
        gradebook.find_grade("against_batch_norm", NAME, NAME, "dora").manual_score = -3
        gradebook.db.commit()
    return root


def exported(course, *arguments):
    """Student as written -> the row of the table."""
    done = nbgrader(course, "export", "--to", "out.csv", *arguments)
    assert done.returncode == 0, done.stderr
    with open(course / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert all(None not in row and None not in row.values() for row in rows)  # as many cells as headings
    return {row["student_id"]: row for row in rows}


@pytest.mark.slow
def test_an_exported_table_holds_no_formula_and_the_numbers_as_they_are(course):
    rows = exported(course)
    assert set(rows) == set(WRITTEN.values())
    assert {row["assignment"] for row in rows.values()} == {NAME}
    assert {row["score"] for row in rows.values()} == {"0.0"}
    assert rows["dora"]["raw_score"] == "-3.0"
    assert [rows["dora"][key] for key in ("first_name", "last_name", "email")] == [
        '\'=HYPERLINK("http://example.org","x")',
        "'@x",
        "'\r'=1",
    ]
    assert [rows["-5"][key] for key in ("first_name", "last_name", "email")] == [
        "Ada",
        "O'Neil",
        "ada@example.org",
    ]


@pytest.mark.slow
def test_students_and_lessons_are_chosen_by_their_real_names(course):
    chosen = exported(course, "--student", "['+1+1', 'dora']", "--assignment", f"['{NAME}']")
    assert set(chosen) == {"'+1+1", "dora"}
    assert exported(course, "--assignment", "['another']") == {}
