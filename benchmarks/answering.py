"""How long a learner waits: the lesson's import of the course, and check(...) in a notebook. Prints JSON, in seconds.

The import is timed after those of NumPy and Matplotlib, which the lesson imports anyway.
"""

from __future__ import annotations

import json
from statistics import median
from time import perf_counter

ROUNDS = 5


def main() -> None:
    import matplotlib.pyplot  # noqa: F401
    import numpy  # noqa: F401

    started = perf_counter()
    from course import check, data, figures, hint, own, quiz  # noqa: F401

    imported = perf_counter() - started

    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from autograder.demo import lesson_solution
    from autograder.lessons import find
    from benchmarks import LESSON

    lesson = find(LESSON)
    shell = InteractiveShell.instance()

    def run(source: str) -> float:
        begun = perf_counter()
        with capture_output():
            done = shell.run_cell(source)
        done.raise_error()
        return perf_counter() - begun

    run("import numpy as np\nfrom course import check\nfrom course.checks import shipped_verdict")
    for exercise in lesson.exercises:
        run(lesson_solution(lesson, exercise.name))

    def waits(call: str) -> dict[str, float]:
        found = {}
        for exercise in lesson.exercises:
            text = call.format(name=exercise.name)
            run(text)
            found[exercise.name] = median(run(text) for _ in range(ROUNDS))
        return found

    judged = waits("check({name!r})")
    shipped = waits("shipped_verdict({name!r}, {name}, globals())")
    print(json.dumps({"import": imported, "judged": judged, "shipped": shipped}))


if __name__ == "__main__":
    main()
