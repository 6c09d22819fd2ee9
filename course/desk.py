"""The learner's side of a judge that runs beside the notebook, where the repository is at hand.

The judge (autograder.desk) is a process of its own, so this kernel never holds a reference. It asks
over a socket on the loopback; the learner's function answers here, as a graded child would.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from course.child.limits import Clock
from course.child.service import Service
from course.wire import Closed, Connection, Malformed, TooLate

START = 20.0  # seconds until a judge must have answered its first greeting
Judged = tuple[str, float, float, str, str]  # outcome, points, most points, text, HTML


def check(name: str, namespace: dict[str, Any]) -> Judged | None:
    """The judge's verdict on the function of this name, or None where there is no judge."""
    reply = _converse({"check": name}, "verdict", namespace)
    return tuple(reply) if reply else None


def solutions(name: str) -> list[tuple[str, str]] | None:
    """Right ways to write an exercise: what is special, and the code. None where there is no judge."""
    reply = _converse({"solutions": name}, "solutions", {})
    return [(what, code) for what, code in reply] if reply else None


def _converse(request: dict, kind: str, namespace: dict[str, Any]) -> Any:
    """Send a request; answer the judge's questions until its reply comes."""
    connection = _judge()
    if connection is None:
        return None
    service = Service(Clock())
    service.connection = connection
    service.shell = SimpleNamespace(user_ns=namespace)
    try:
        service.send(request)
        while True:
            ((got, body),) = connection.receive().items()
            if got == kind:
                return body
            for answer in service.ask(body):
                service.send(answer)
    except (Closed, Malformed, TooLate, OSError):
        _judge.cache_clear()  # the next check starts another one
        return None
    except BaseException:  # the learner interrupts: the conversation is out of step
        connection.close()
        _judge.cache_clear()
        raise


@cache
def _judge() -> Connection | None:
    """A connection to a judge, started on first use; None where the repository is not at hand."""
    if importlib.util.find_spec("autograder") is None:
        return None
    key = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(START)
        process = subprocess.Popen(
            [sys.executable, "-m", "autograder.desk", str(server.getsockname()[1])],
            cwd=Path(__file__).parents[1],
            env=os.environ | {"COURSE_DESK": key},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(process.kill)
        return _greeted(server, key)


def _greeted(server: socket.socket, key: str) -> Connection | None:
    """The connection of the process that knows the key."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        try:
            sock, _ = server.accept()
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # many small messages follow each other
            connection = Connection(sock)
            if connection.receive(time.monotonic() + 2.0) == {"key": key}:
                return connection
        except (Closed, Malformed, TooLate):
            continue
        except OSError:
            return None
    return None
