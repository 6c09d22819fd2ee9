"""One notebook's stay in a process: make the surroundings, then serve."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from course.child.limits import Clock, limit_resources
from course.child.recorder import Recorder
from course.child.service import Service
from course.child.shell import make_shell
from course.wire import Connection

SEED = 0  # of the global generators, so that two runs of a notebook agree
HOMES = ("HOME", "USERPROFILE", "MPLCONFIGDIR", "IPYTHONDIR", "TMPDIR", "TEMP")


def prepare() -> Service:
    """A service with its shell, still without a grader to talk to."""
    service = Service(Clock())
    service.recorder = Recorder(service.send)
    service.shell = make_shell(service.recorder)
    return service


def serve(service: Service, sock: socket.socket, settings: Mapping[str, Any]) -> None:
    """Serve one notebook in this process, until the grader is gone.

    settings : "work" and "home", the private folders; "processes", how many the user may have; and
               for a forked process "level" and what confine.shut_in needs.
    """
    service.connect(Connection(sock))
    try:
        service.recorder.descriptors.capture()
        if "level" in settings:
            from course.child.confine import shut_in  # Linux only

            shut_in(settings["level"], settings)
        limit_resources(settings["processes"])
        _enter(settings)
    except Exception as error:  # whatever it is, the notebook must not run
        service.send({"refused": str(error)})
        return
    service.send({"ready": os.getpid()})
    service.serve()


def _enter(settings: Mapping[str, Any]) -> None:
    """Go to the submission's folder and make everything random start at the same place."""
    os.chdir(settings["work"])
    sys.path.append(settings["work"])
    os.environ.update(dict.fromkeys(HOMES, settings["home"]))
    tempfile.tempdir = settings["home"]
    np.random.seed(SEED)
    random.seed(SEED)
    signal.signal(signal.SIGINT, signal.default_int_handler)
