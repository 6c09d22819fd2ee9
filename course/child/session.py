"""One notebook's stay in this process: make the surroundings, then serve."""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from course.child.limits import Clock, limit_resources
from course.child.recorder import Recorder
from course.child.service import Service
from course.child.shell import make_shell
from course.wire import Connection

SEED = 0  # of the global generators, so that two runs of a notebook agree


def run(settings: Mapping[str, Any]) -> None:
    """Serve one notebook in this process."""
    connection = Connection(_socket(settings["socket"]))
    service = Service(connection, Clock())
    service.recorder = Recorder(service.send)
    service.shell = make_shell(service.recorder)
    enter(settings)
    limit_resources(settings["processes"])
    service.recorder.descriptors.capture()
    service.send({"ready": os.getpid()})
    service.serve()


def enter(settings: Mapping[str, Any]) -> None:
    """Go to the submission's folder and make everything random start at the same place."""
    os.chdir(settings["work"])
    sys.path.append(settings["work"])
    np.random.seed(SEED)
    random.seed(SEED)
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _socket(given: int | str) -> socket.socket:
    if isinstance(given, int):
        return socket.socket(fileno=given)
    return socket.fromshare(base64.b64decode(given))
