"""The few calls of the Linux kernel that Python's standard library does not offer, through ctypes.

Numbers are those of x86-64 and of 64-bit ARM; on other machines `known()` is False and the levels
that need these calls are not there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys

# name: (x86-64, 64-bit ARM); None where that machine has no such call
NUMBERS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "shmget": (29, 194),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}
MACHINES = {
    "x86_64": (0, 0xC000003E),
    "aarch64": (1, 0xC00000B7),
}  # column of NUMBERS, seccomp's name of the machine

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x00200000, 0x01000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000

PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER = 4, 8, 36
PR_SET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS, PR_CAP_AMBIENT = 38, 40, 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_READ_SEARCH = 2


def known() -> bool:
    """Whether this is Linux on a machine whose call numbers are known, with a 64-bit Python."""
    return sys.platform == "linux" and platform.machine() in MACHINES and sys.maxsize > 2**32


def number(name: str) -> int | None:
    """The number of a system call on this machine."""
    return NUMBERS[name][MACHINES[platform.machine()][0]]


def audit_machine() -> int:
    """What seccomp calls this machine."""
    return MACHINES[platform.machine()][1]


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def call(name: str, *args: int | bytes | ctypes.Array | ctypes.Structure | None) -> int:
    """A system call. Raises OSError."""
    prepared = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(_library().syscall(ctypes.c_long(number(name)), *prepared), name)


def prctl(option: int, *args: int) -> None:
    """Change a property of this process. Raises OSError."""
    padded = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:4]]
    _checked(_library().prctl(ctypes.c_int(option), *padded), "prctl")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system. Raises OSError."""
    text = [part.encode() if part is not None else None for part in (source, target, kind)]
    _checked(_library().mount(*text, ctypes.c_ulong(flags), options.encode()), f"mount on {target}")


def set_capabilities(kept: int) -> None:
    """Keep only the capabilities of this bit mask (those below 32). Raises OSError."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(struct.pack("=6I", kept, kept, kept, 0, 0, 0))
    _checked(_library().capset(header, data), "capset")


def fork_into(namespaces: int) -> int:
    """Like os.fork, with the child in new namespaces. Needs Linux 5.3 (clone3). Raises OSError.

    The system call is made directly, which spares a second fork (in a new process namespace only
    children are members). CLONE_CHILD_SETTID tells the C library its new thread id, as its own
    fork does.
    """
    python = ctypes.pythonapi
    address = ctypes.c_void_p()
    found = _library().prctl(PR_GET_TID_ADDRESS, ctypes.byref(address)) == 0 and address.value
    flags = namespaces | (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID if found else 0)
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    arguments = struct.pack("=8Q", flags, 0, address.value or 0, 0, signal.SIGCHLD, 0, 0, 0)
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    syscall = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the interpreter's lock
    syscall.restype = ctypes.c_long
    python.PyOS_BeforeFork()
    pid = syscall(ctypes.c_long(number("clone3")), buffer, ctypes.c_size_t(len(arguments)))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, f"clone3: {os.strerror(error)}")
    return pid
