"""Landlock: a Linux process gives up all files but those it names, without any privilege.

What each version of the kernel's interface (ABI) adds, and what stands in for it before:

ABI 1 (Linux 5.13)  files: reading, writing, making, removing. Needed for the level.
ABI 2 (5.19)        moving between folders; before, never allowed.
ABI 3 (6.2)         cutting files short; before, seccomp denies truncate() and O_TRUNC without writing.
ABI 4 (6.7)         TCP; seccomp denies sockets of every kind anyway.
ABI 5 (6.10)        ioctl on devices; before, the few devices allowed here do nothing with it.
ABI 6 (6.12)        signals and abstract sockets to other processes; before, seccomp allows signals to itself only.

Not covered by any version: whether a file exists, its size and its times can be seen; permissions,
owners and times can be changed (seccomp denies that).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from course.child import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
ALL_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 0b11  # binding and connecting
SCOPES = 0b11  # abstract sockets and signals
VERSION = 1  # flag: ask for the ABI
BENEATH = 1  # type of a rule


def abi() -> int:
    """The kernel's version of Landlock, 0 where there is none."""
    if not kernel.known():
        return 0
    try:
        return kernel.call("landlock_create_ruleset", None, 0, VERSION)
    except OSError:
        return 0


def keep_only(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """Give up all files but these, for good and for all descendants. Raises OSError.

    readable : files and folders to read and run.
    writable : folders in which everything is allowed but devices and sockets.
    devices  : files to read and write.
    """
    version = abi()
    handled = ALL_OF_ABI[max(known for known in ALL_OF_ABI if known <= version)]
    attributes = struct.pack("=3Q", handled, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = kernel.call("landlock_create_ruleset", buffer, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR)
        for path in writable:
            _allow(ruleset, path, handled & ~(MAKE_CHAR | MAKE_BLOCK | MAKE_SOCK | IOCTL_DEV))
        for path in devices:
            _allow(ruleset, path, READ_FILE | WRITE_FILE)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(file).st_mode):
                rights &= FOR_FILES
            rule = struct.pack("=Qi", rights, file)
            buffer = ctypes.create_string_buffer(rule, len(rule))
            kernel.call("landlock_add_rule", ruleset, BENEATH, buffer, 0)
        finally:
            os.close(file)
