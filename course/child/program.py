"""Entry: run as a file by an interpreter in isolated mode (python -I -S program.py).

The first line of standard input is a JSON object:

root      : the folder that holds `course`; on the path only while `course` is imported.
libraries : the folders of the installed libraries.
socket    : file descriptor of the socket to the grader (on Windows: what socket.share gave, as base64).
work      : the current folder of the cells; last on their path.
home      : HOME and the folder of the settings of matplotlib and IPython.
processes : how many processes the user may have.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    sys.argv = [""]
    sys.path += settings["libraries"]
    sys.path.append(settings["root"])
    import course.child.session as session

    sys.path.remove(settings["root"])
    session.run(settings)
    os._exit(0)  # nothing that the student registered for the end is of use


if __name__ == "__main__":
    main()
