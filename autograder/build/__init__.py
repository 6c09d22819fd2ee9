"""Build: from the text of a lesson to the notebooks, and to the numbers that the course ships.

build() writes source/ and release/ and course/numbers, course/data; pull() brings an edit made in an
instructor's notebook back into the lesson's text and the declarations.
"""

from autograder.build.faults import BuildError
from autograder.build.files import build
from autograder.build.pull import pull

__all__ = ["BuildError", "build", "pull"]
