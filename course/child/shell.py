"""The IPython shell of a Jupyter kernel, without the kernel: its messages go to a recorder."""

from __future__ import annotations

import builtins
import io
import subprocess
import sys
from typing import Any

from ipykernel.compiler import XCachingCompiler
from ipykernel.zmqshell import ZMQInteractiveShell
from jupyter_client.session import Session
from traitlets.config import Config

from course.child.recorder import Recorder, Stream

TRACEBACK = 20_000  # characters


class Messages(Session):
    """A kernel's session whose messages go to the recorder as nbformat outputs."""

    recorder: Recorder | None = None

    def send(self, stream, msg_or_type, content=None, *args, **kwargs):
        """Stands for sending a message on the kernel's output channel."""
        if isinstance(msg_or_type, str):
            kind, content = msg_or_type, content or {}
        else:
            kind, content = msg_or_type["header"]["msg_type"], msg_or_type["content"]
        record = _RECORD.get(kind)
        if record and self.recorder:
            record(self.recorder, content)


def _record_display(recorder: Recorder, content: dict) -> None:
    output = {
        "output_type": "display_data",
        "data": content["data"],
        "metadata": content.get("metadata") or {},
    }
    recorder.output(output, (content.get("transient") or {}).get("display_id"))


def _record_update(recorder: Recorder, content: dict) -> None:
    display_id = (content.get("transient") or {}).get("display_id")
    if display_id:
        recorder.update(display_id, content["data"], content.get("metadata") or {})


def _record_result(recorder: Recorder, content: dict) -> None:
    recorder.output(
        {
            "output_type": "execute_result",
            "execution_count": content.get("execution_count"),
            "data": content["data"],
            "metadata": content.get("metadata") or {},
        }
    )


def _record_error(recorder: Recorder, content: dict) -> None:
    lines, size = [], 0
    for line in content["traceback"]:
        size += len(line)
        lines.append(line if size <= TRACEBACK else "[The rest of the traceback was left out.]")
        if size > TRACEBACK:
            break
    recorder.output(
        {
            "output_type": "error",
            "ename": content["ename"],
            "evalue": content["evalue"][:TRACEBACK],
            "traceback": lines,
        }
    )


_RECORD = {
    "display_data": _record_display,
    "update_display_data": _record_update,
    "execute_result": _record_result,
    "error": _record_error,
    "clear_output": lambda recorder, content: recorder.clear(content.get("wait", False)),
}


class Shell(ZMQInteractiveShell):
    """A kernel's shell; exit() in a cell ends nothing, and shell lines need no terminal."""

    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: there is no kernel with an event loop for windows."""

    def ask_exit(self) -> None:
        """Stay."""

    def system(self, cmd: str) -> None:
        """Run a shell line (`!ls`); what it puts out is read from the file descriptors."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        self.user_ns["_exit_code"] = subprocess.call(
            self.var_expand(cmd, depth=1), shell=True, stdin=subprocess.DEVNULL
        )


Shell.__name__ = ZMQInteractiveShell.__name__  # code that asks whether it runs in Jupyter looks at the name


def make_shell(recorder: Recorder) -> Shell:
    """The one shell of this process, its outputs going to `recorder`."""
    settings = Config()
    settings.HistoryManager.enabled = False  # no history file
    settings.IPKernelApp.parent_appname = "grading"  # or it looks at this section
    shell = Shell.instance(config=settings, compiler_class=XCachingCompiler)
    session = Messages(key=b"")
    session.recorder = recorder
    for place in (shell.display_pub, shell.displayhook):
        place.session = session
    shell.displayhook.topic = b"execute_result"
    sys.stdout = sys.__stdout__ = Stream(recorder, "stdout", 1)
    sys.stderr = sys.__stderr__ = Stream(recorder, "stderr", 2)
    sys.stdin = sys.__stdin__ = io.StringIO()  # nothing to read
    builtins.input = _no_input
    return shell


def _no_input(prompt: Any = "") -> str:
    raise RuntimeError(
        "input() asks for something typed: nobody is there when a notebook is graded. Use a plain value."
    )
