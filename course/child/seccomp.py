"""Seccomp: a Linux process gives up system calls that a notebook never needs, without any privilege.

Denied everywhere: the calls of NEVER, of sockets every kind (a socketpair stays), limits of other
processes, letting go of orphans (prctl), and every call that is newer than this file. Needs Linux 3.17.

With `strict`, for a process that shares its files and its process numbers with others (the level
landlock): permissions, owners and times of files cannot be changed, for Landlock does not see that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from course.child import kernel

NEVER = {  # what for: the calls
    "sockets": ("socket",),
    "other processes": ("kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace"),
    "their memory": ("migrate_pages", "move_pages", "process_madvise", "process_mrelease", "userfaultfd"),
    "their turn": (
        "ioprio_set",
        "sched_setaffinity",
        "sched_setattr",
        "sched_setparam",
        "sched_setscheduler",
    ),
    "their rank": ("setpriority",),
    "namespaces": ("chroot", "pivot_root", "setns", "unshare"),
    "mounts": ("fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount"),
    "more mounts": ("open_tree", "quotactl", "swapoff", "swapon", "umount2"),
    "files by number": ("fanotify_init", "name_to_handle_at", "open_by_handle_at"),
    "calls around this filter": ("io_uring_enter", "io_uring_register", "io_uring_setup"),
    "memory that no limit counts": ("memfd_create", "memfd_secret", "mq_open", "msgget", "semget", "shmget"),
    "keys": ("add_key", "keyctl", "request_key"),
    "the kernel": ("bpf", "delete_module", "finit_module", "init_module", "kexec_file_load", "kexec_load"),
    "watching it": ("acct", "perf_event_open", "syslog"),
    "the machine": ("ioperm", "iopl", "reboot", "setdomainname", "sethostname", "vhangup"),
    "its clock": ("adjtimex", "clock_adjtime", "clock_settime", "settimeofday"),
}
NEVER_STRICT = {
    "permissions": ("chmod", "fchmod", "fchmodat"),
    "owners": ("chown", "fchown", "fchownat", "lchown"),
    "times": ("futimesat", "utime", "utimensat", "utimes"),
    "attributes": ("fremovexattr", "fsetxattr", "lremovexattr", "lsetxattr", "removexattr", "setxattr"),
}
ABSENT = ("clone3", "openat2")  # the C library then uses clone and openat, whose arguments can be seen here
FIRST_NEWER = 452  # calls from here on are newer than this file

NAMESPACES = 0x7E020000  # every CLONE_NEW flag
DANGEROUS_IOCTL = (0x5412, 0x541C, 0x40086602, 0x401C5820)  # typing into a terminal (2), flags of files (2)
OWNER_OF_SIGNALS = (8, 15)  # F_SETOWN, F_SETOWN_EX: signals to others by way of a file
TRUNCATE, ACCESS, READ_ONLY = 0o1000, 0o3, 0  # bits of how a file is opened, on Linux

# the instructions of the kernel's filter language (classic BPF)
LOAD, AND, RETURN, EQUAL, AT_LEAST, ANY_BIT = 0x20, 0x54, 0x06, 0x15, 0x35, 0x45
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16  # offsets in what a filter sees

Instruction = tuple[int, int, int, int]


def give_up_calls(strict: bool, landlock_abi: int) -> None:
    """Deny the calls above, for good and for all descendants. Raises OSError."""
    program = filter_program(os.getpid(), strict, landlock_abi)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    kernel.prctl(22, 2, ctypes.addressof(header))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def filter_program(pid: int, strict: bool, landlock_abi: int) -> list[Instruction]:
    """The filter, as (code, jump if true, jump if false, constant)."""
    program: list[Instruction] = [
        (LOAD, 0, 0, MACHINE),
        (EQUAL, 1, 0, kernel.audit_machine()),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, FIRST_NEWER),  # also the second numbering of x86-64, which starts at 2**30
        _deny(errno.ENOSYS),
    ]
    for name in ABSENT:
        program += _rule(name, [_deny(errno.ENOSYS)])
    for names in (*NEVER.values(), *(NEVER_STRICT.values() if strict else ())):
        for name in names:
            program += _rule(name, [_deny()])
    program += _rule("clone", _if_any_bit(0, NAMESPACES))
    program += _rule("ioctl", _if_in(1, DANGEROUS_IOCTL))
    program += _rule("fcntl", _if_in(1, OWNER_OF_SIGNALS))
    program += _rule("prctl", _if_in(0, (kernel.PR_SET_CHILD_SUBREAPER,)))
    program += _rule("prlimit64", _unless_in(0, (0,)))
    if strict and landlock_abi < 3:
        program += _rule("truncate", [_deny()])
        program += _rule("open", _if_cut_without_writing(1))
        program += _rule("openat", _if_cut_without_writing(2))
    if strict and landlock_abi < 6:
        own = (0, pid)
        program += _rule("kill", _unless_in(0, own))
        for name in ("tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            program += _rule(name, _unless_in(0, (pid,)))
        program += _rule("tkill", [_deny()]) + _rule("pidfd_send_signal", [_deny()])
    return [*program, (RETURN, 0, 0, ALLOW)]


def _deny(error: int = errno.EPERM) -> Instruction:
    return (RETURN, 0, 0, ERROR | error)


def _rule(name: str, body: list[Instruction]) -> list[Instruction]:
    """If the call is this one, do the body; it ends in allowing. The number stays loaded otherwise."""
    number = kernel.number(name)
    if number is None:
        return []
    if body[-1][0] != RETURN:
        raise ValueError("a rule must decide")
    return [(EQUAL, 0, len(body), number), *body]


def _argument(index: int) -> Instruction:
    """Load the lower half of an argument, which is all of a whole number of 32 bits."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def _if_in(index: int, values: tuple[int, ...]) -> list[Instruction]:
    body = [_argument(index)]
    for value in values:
        body += [(EQUAL, 0, 1, value), _deny()]
    return [*body, (RETURN, 0, 0, ALLOW)]


def _unless_in(index: int, values: tuple[int, ...]) -> list[Instruction]:
    body = [_argument(index)]
    for value in values:
        body += [(EQUAL, 0, 1, value & 0xFFFFFFFF), (RETURN, 0, 0, ALLOW)]
    return [*body, _deny()]


def _if_any_bit(index: int, bits: int) -> list[Instruction]:
    return [_argument(index), (ANY_BIT, 0, 1, bits), _deny(), (RETURN, 0, 0, ALLOW)]


def _if_cut_without_writing(index: int) -> list[Instruction]:
    """O_TRUNC together with a way of access that is neither writing nor both."""
    body = [_argument(index), (AND, 0, 0, TRUNCATE | ACCESS)]
    for access in (READ_ONLY, ACCESS):
        body += [(EQUAL, 0, 1, TRUNCATE | access), _deny()]
    return [*body, (RETURN, 0, 0, ALLOW)]
