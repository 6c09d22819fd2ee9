"""Entry: run as a file by an interpreter in isolated mode (python -I -S program.py).

The first line of standard input is a JSON object:

root      : the folder that holds `course`; on the path only while `course` is imported.
libraries : the folders of the installed libraries.
socket    : file descriptor of the socket to the grader (on Windows: what socket.share gave, as base64).
zygote    : whether this process is forked for each notebook (see zygote.py) or serves one (see session.py).

and what those two need.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    sys.argv = [""]
    sys.path += settings["libraries"]
    sys.path.append(settings["root"])
    if settings["zygote"]:
        from course.child.zygote import run

        sys.path.remove(settings["root"])
        run(socket.socket(fileno=settings["socket"]), settings)
    else:
        from course.child.session import prepare, serve

        sys.path.remove(settings["root"])
        serve(prepare(), _socket(settings["socket"]), settings)
    os._exit(0)  # nothing that the student registered for the end is of use


def _socket(given: int | str) -> socket.socket:
    if isinstance(given, int):
        return socket.socket(fileno=given)
    return socket.fromshare(base64.b64decode(given))


if __name__ == "__main__":
    main()
