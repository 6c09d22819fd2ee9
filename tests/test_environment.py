"""The look at the learner's environment names what is missing, and what to do about it."""

import os

import pytest

from course import __version__, environment
from tests.lessons import text_of


def test_all_is_well_in_a_fresh_folder(tmp_path):
    things = environment.look(tmp_path, __version__)
    assert [t.what for t in things if t.advice] == ["kernel"]  # a test does not run in a notebook
    assert "make lab" in environment.kernel().advice


def test_the_report_has_one_line_per_thing_and_a_sum(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    environment.report("0.1")
    printed = capsys.readouterr().out
    assert printed.count("to do  ") == 2 and printed.endswith("2 of 8 to do.\n")
    assert f"version {__version__}, the notebook is for 0.1" in printed


def test_an_old_python():
    assert "3.11" in environment.python((3, 9, 1)).advice
    assert not environment.python((3, 14, 0)).advice


def test_a_missing_or_old_library():
    assert environment.library("a-library-that-nobody-has").found == "missing"
    assert "too old" in environment.library("numpy", oldest_numpy=(99, 0)).advice


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    assert "copy the notebook" in environment.writable(tmp_path).advice


def test_a_folder_that_is_not_there(tmp_path):
    assert environment.writable(tmp_path / "gone").advice


def test_a_file_that_hides_a_library(tmp_path):
    (tmp_path / "numpy.py").write_text("")
    assert environment.hidden(tmp_path).found.startswith("numpy.py hides")


def test_lesson_0_asks_for_this_version():
    wanted = ".".join(__version__.split(".")[:2])
    assert f'environment.report("{wanted}")' in text_of("00_start_here")
