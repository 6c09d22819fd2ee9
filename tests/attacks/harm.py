"""Attacks on the machine, the class and the instructor's browser."""

from __future__ import annotations

from tests.attacks.attack import HONEST, OTHERS, Attack, code, grade_id
from tests.attacks.points import returns

TIME = "time and space"
FILES = "files outside"
NETWORK = "network"
PROCESSES = "other processes"
BROWSER = "the instructor's screen"
SWALLOW = """\
while True:
    try:
        while True:
            pass
    except BaseException:
        pass"""
TRY = """\
def attempt(action):
    try:
        print('done' if action() is not NotImplemented else '')
    except BaseException as error:
        print(type(error).__name__)
import ctypes, os, resource, shutil, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def called(*args):
    if libc.syscall(*map(ctypes.c_long, args)) < 0:
        raise OSError(ctypes.get_errno())
"""


def tries(*actions: str) -> str:
    """A cell that tries each expression, and prints what became of it."""
    return TRY + "\n".join(f"attempt(lambda: {action})" for action in actions)


# ---------------------------------------------------------------- time and space

FLOODS = {
    "an endless loop": "while True:\n    pass",
    "a loop that swallows every exception": SWALLOW,
    "a loop that ignores every signal": "import signal\nfor number in range(1, 65):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\n"
    + SWALLOW,
    "a sleep of an hour": "import time\ntime.sleep(3600)",
    "a wait that nothing interrupts": "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ntime.sleep(3600)",
    "a pattern that takes for ever": "import re\nre.match('(a+)+b', 'a' * 40)",
    "a number of a billion digits": "x = 10**10**9",
    "memory without end": "hog = []\nwhile True:\n    hog.append(bytearray(10**7).replace(b'0', b'1'))",
    "one array of a terabyte": "np.ones(10**12)",
    "a disk flood": "for i in range(2000):\n    open(f'f{i}', 'wb').write(bytes(20_000_000))",
    "a flood of empty files": "for i in range(10**6):\n    open(f'f{i}', 'w').close()",
    "folders nested without end": "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    "a fork flood": "import os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n    except OSError:\n        time.sleep(0.001)",
    "a thread flood": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
    "a flood of open files": "kept = []\nwhile True:\n    kept.append(open('/dev/null'))",
    "200 MB of text": "for _ in range(200):\n    print('x' * 10**6)",
    "200 MB past Python": "import os\nfor _ in range(200):\n    os.write(1, b'x' * 10**6)",
    "200,000 small outputs": "from IPython.display import display\nfor i in range(200_000):\n    display(i)",
    "100,000 clearings and updates": "from IPython.display import clear_output, display\nhandle = display(1, display_id=True)\nfor i in range(100_000):\n    handle.update(i)\n    clear_output()",
    "an output of 100 MB": "from IPython.display import display\ndisplay({'text/plain': 'x' * 10**8, 'image/png': 'A' * 10**8}, raw=True)",
    "an output nested deeply": "from IPython.display import display\nx = 0\nfor _ in range(500):\n    x = [x]\ndisplay({'application/json': x, 'text/plain': 'x'}, raw=True)",
    "calls without end": "import sys\nsys.setrecursionlimit(10**8)\ndef f():\n    return f()\nf()",
    "a crash in C": "import ctypes\nctypes.string_at(0)",
    "a stack that overflows in C": "x = ()\nfor _ in range(10**6):\n    x = (x,)\nrepr(x)\nhash(x)",
    "an object that never dies": "class Undead:\n    def __del__(self):\n        while True:\n            pass\nUndead()",
    "a question to the person at the keyboard": "input('points? ')",
}
SPACE = [Attack(name, TIME, cell, short=True) for name, cell in FLOODS.items()] + [
    Attack(
        "an answer that never ends",
        TIME,
        answers={OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    while True:\n        pass"},
        shows="no answer after",
    ),
    Attack(
        "an answer that swallows every exception",
        TIME,
        answers={
            OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n"
            + "\n".join(f"    {line}" for line in SWALLOW.splitlines())
        },
        shows="the time was up",
    ),
    Attack(
        "an answer that takes all memory",
        TIME,
        answers={
            OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    return [bytes(10**8) for _ in range(10**4)]"
        },
        shows="MemoryError",
    ),
    Attack(
        "an answer that prints 200 MB",
        TIME,
        answers={
            OTHERS[
                0
            ]: f"def {OTHERS[0]}(*args, **kwargs):\n    for _ in range(200):\n        print('x' * 10**6)"
        },
    ),
    Attack(
        "an answer that calls itself without end",
        TIME,
        answers={OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    return {OTHERS[0]}(*args, **kwargs)"},
        shows="calls itself without stopping",
    ),
    Attack("an error text of 100 MB", TIME, "raise ValueError('x' * 10**8)", short=True),
    Attack(
        "an answer with an error text of 100 MB",
        TIME,
        answers={OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    raise ValueError('x' * 10**8)"},
    ),
]

# ---------------------------------------------------------------- files, network, processes

OUTSIDE = [
    Attack(name, FILES, tries(*actions), needs="landlock", hides=("done",))
    for name, actions in {
        "the gradebook written": [
            "open('$gradebook', 'w').write('mine')",
            "open('$gradebook', 'r+b').write(b'x')",
            "os.truncate('$gradebook', 0)",
            "os.open('$gradebook', os.O_RDONLY | os.O_TRUNC)",
        ],
        "another submission written": [
            "open('$other', 'a').write('x')",
            "os.replace('$other', 'mine')",
            "shutil.copy('/etc/hostname', '$other')",
        ],
        "the home folder written": [
            "open('$home/.bashrc', 'w').write('evil')",
            "open('$home/notes.txt', 'a').write('x')",
            "os.mkdir('$home/new')",
        ],
        "the course and the grader written": [
            "open('$repository/course/$mark', 'w')",
            "open('$repository/autograder/$mark', 'w')",
            "open('$repository/$mark', 'w')",
            "open('/usr/lib/$mark', 'w')",
        ],
        "everything deleted": [
            "os.remove('$gradebook')",
            "os.remove('$other')",
            "shutil.rmtree('$outside')",
            "os.rename('$outside', '$outside-gone')",
        ],
        "permissions, owners, times and labels changed": [
            "os.chmod('$gradebook', 0)",
            "os.chown('$gradebook', 1, 1)",
            "os.utime('$gradebook', (0, 0))",
            "os.setxattr('$gradebook', 'user.x', b'1')",
        ],
        "hard links to files outside": [
            "os.link('$gradebook', 'hard') or open('hard', 'a').write('x')",
            "os.link('$secret', '$home/hard')",
        ],
        "folders outside listed": [
            "os.listdir('$outside')",
            "os.listdir('$home')",
            "os.scandir('$repository/autograder')",
            "os.chdir('$outside') or os.listdir('.')",
        ],
        "a shell that writes outside": [
            "subprocess.check_call('echo x >> $gradebook', shell=True, stderr=subprocess.DEVNULL)",
            "subprocess.check_call(['rm', '-r', '$outside'], stderr=subprocess.DEVNULL)",
        ],
        "file systems mounted": [
            "called(165, 0, 0, 0, 0, 0)",
            "called(272, 0x10000000)",
            "called(161, id(b'/') + 32)",
        ],
    }.items()
]
OUTSIDE += [
    Attack(
        "links in one's own folder",
        FILES,
        TRY
        + "os.symlink('$gradebook', 'link')\nattempt(lambda: open('link', 'a').write('x'))\nos.symlink('$outside', 'folder')\nattempt(lambda: open('folder/new', 'w'))\nos.symlink('/', 'all')",
        needs="landlock",
        hides=("done",),
    ),
    Attack(
        "pipes and devices in one's own folder",
        FILES,
        TRY
        + "os.mkfifo('pipe')\ntry:\n    os.mknod('device', 0o60666, os.makedev(8, 0))\n    open('device', 'rb').read(10)\n    print('done')\nexcept OSError as error:\n    print(error)",
        hides=("done",),
    ),
    Attack(
        "odd names and permissions in one's own folder",
        FILES,
        "import os\nfor name in ('new\\nline', '-rf', 'ü' * 100, ' ', '\\x1b[31m', b'\\xff\\xfe', '..x', 'a' * 255):\n    open(name, 'w').close()\nos.mkdir('closed')\nos.makedirs('deep/' * 100)\nopen('closed/in', 'w').close()\nos.chmod('closed', 0)\nos.chmod('.', 0)",
    ),
    Attack(
        "one's own notebook rewritten while it is graded",
        FILES,
        "import glob\nfor name in glob.glob('*.ipynb'):\n    open(name, 'w').write('{}')",
    ),
    Attack(
        "a file that is written after grading",
        FILES,
        "import subprocess, sys\nsubprocess.Popen(['sh', '-c', 'sleep 2; echo late >> $gradebook; echo late > /tmp/$mark; echo $mark'], start_new_session=True, stderr=subprocess.DEVNULL)",
    ),
    Attack(
        "a daemon that lets go of its parent",
        PROCESSES,
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.execvp('sh', ['sh', '-c', 'sleep 300; echo $mark'])\n    os._exit(0)\ntime.sleep(0.2)",
    ),
    Attack(
        "a background job of the shell",
        PROCESSES,
        "!nohup sh -c 'sleep 300; echo $mark' >/dev/null 2>&1 &\n%%bash --bg\nsleep 300; echo $mark",
    ),
    Attack(
        "a group of processes that start each other again",
        PROCESSES,
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        end = time.monotonic() + 20\n        while time.monotonic() < end:\n            if os.fork():\n                os._exit(0)\n            os.setsid()\n            time.sleep(0.005)\n        os._exit(0)\ntime.sleep(0.1)",
    ),
]
NAMELESS = (
    "import ctypes, os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    "        ctypes.CDLL(None).prctl(15, b'\\xff) R 1', 0, 0, 0)\n"
    "        os.system('sleep 300; echo $mark')\n    os._exit(0)\ntime.sleep(0.3)"
)
OUTSIDE += [
    Attack("a daemon whose name is no text", PROCESSES, NAMELESS),
    Attack(
        "orphans without end",
        PROCESSES,
        "import ctypes, os, time\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n"
        "for _ in range(2):\n    if os.fork() == 0:\n        while True:\n            try:\n"
        "                os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'sleep 9 & exit # $mark'], {}), 0)\n"
        "            except OSError:\n                time.sleep(0.01)\ntime.sleep(0.5)",
    ),
    Attack(
        "small programs that keep the processors busy",
        TIME,
        "import subprocess, time\nfor _ in range(50):\n"
        "    subprocess.Popen(['sh', '-c', 'while :; do :; done # $mark'], start_new_session=True)\ntime.sleep(30)",
        shows="of processor time",
    ),
    Attack(
        "a notebook that stops itself",
        PROCESSES,
        "import os, signal\nos.kill(0, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)",
        short=True,
    ),
    Attack(
        "the warm process and the neighbours looked for among the open files",
        PROCESSES,
        TRY + "import array, stat\nmine = []\nfor number in range(1024):\n    try:\n"
        "        if stat.S_ISSOCK(os.fstat(number).st_mode):\n            mine.append(number)\n"
        "    except OSError:\n        pass\n"
        "print('sockets:', len(mine))\n"
        "for number in mine:\n    found = socket.socket(fileno=os.dup(number))\n"
        "    print('kind:', found.type == socket.SOCK_SEQPACKET)",
        shows="sockets: 1\\nkind: False",
    ),
]
OUTSIDE += [
    Attack(name, NETWORK, tries(*actions), needs="landlock", hides=("done",))
    for name, actions in {
        "a connection to this machine": [
            "socket.create_connection(('127.0.0.1', $port), 2)",
            "socket.create_connection(('localhost', $port), 2)",
            "__import__('urllib.request').request.urlopen('http://127.0.0.1:$port', timeout=2)",
        ],
        "a connection to a socket file": ["socket.socket(socket.AF_UNIX).connect('$socket')"],
        "a datagram": [
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
            "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 1)",
        ],
        "a port of one's own": ["socket.create_server(('127.0.0.1', 0))", "socket.create_server(('', 0))"],
        "a packet filter, a kernel socket": [
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "called(425, 1, 0)",
        ],
    }.items()
]
OUTSIDE += [
    Attack(
        "a connection by a program",
        NETWORK,
        "import subprocess, sys\nprint(subprocess.run(['bash', '-c', 'echo x > /dev/tcp/127.0.0.1/$port'], stderr=subprocess.DEVNULL).returncode)",
        needs="landlock",
        hides=("'text': '0\\n'",),
    ),
]
OUTSIDE += [
    Attack(name, PROCESSES, tries(*actions), needs="landlock", hides=("done",), kills=kills)
    for name, kills, actions in [
        (
            "a neighbour's process killed",
            True,
            [
                "os.kill($bystander, 9)",
                "os.kill($bystander, 19)",
                "signal.pidfd_send_signal(os.pidfd_open($bystander), 9)",
            ],
        ),
        ("the grader killed", True, ["os.kill($grader, 9)", "os.killpg(os.getpgid($grader), 9)"]),
        (
            "a neighbour's process traced",
            False,
            [
                "called(101, 16, $bystander, 0, 0)",
                "called(310, $bystander, 0, 0, 0, 0, 0)",
                "called(438, os.pidfd_open($bystander), 1, 0)",
                "open('/proc/$bystander/mem', 'r+b')",
            ],
        ),
        (
            "a neighbour's process slowed down",
            False,
            [
                "os.setpriority(os.PRIO_PROCESS, $bystander, 19)",
                "os.sched_setaffinity($bystander, {0})",
                "resource.prlimit($bystander, resource.RLIMIT_NOFILE, (0, 0))",
            ],
        ),
        (
            "shared memory and queues",
            False,
            ["called(29, 77, 4096, 0o1666)", "called(68, 77, 0o1666)", "called(64, 77, 1, 0o1666)"],
        ),
    ]
]
OUTSIDE += [
    Attack(
        "its parent killed",
        PROCESSES,
        "import os, signal\nfor number in (9, 15, 19, 2):\n    for who in (os.getppid(), 1, 0):\n        try:\n            os.kill(who, number)\n        except OSError:\n            pass",
        needs="landlock",
        kills=True,
    ),
    Attack(
        "every process killed",
        PROCESSES,
        "import os\nfor who in (-1, *range(2, 5000)):\n    try:\n        os.kill(who, 9)\n    except OSError:\n        pass",
        needs="landlock",
        kills=True,
    ),
]

# ---------------------------------------------------------------- the instructor's screen

ACTIVE = ("<script", "onerror=", "onclick=", "onload=", "javascript:", "<iframe", "<svg", "<object", "<form")
TAGS = ("<script", "<img", "<svg", "<iframe", "<details", "javascript:")


def _text_cells(tree):
    for source in (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[link](javascript:alert(1))",
        "$\\href{javascript:alert(1)}{x}$",
        '<svg onload="alert(1)">',
        "<details open ontoggle=alert(1)>",
    ):
        tree["cells"].append({"cell_type": "markdown", "metadata": {}, "source": source})
        tree["cells"].append(
            {"cell_type": "raw", "metadata": {"raw_mimetype": "text/html"}, "source": source}
        )
    written = next(cell for cell in tree["cells"] if grade_id(cell) == "against_batch_norm")
    written["source"] = "<script>alert(1)</script><iframe src='javascript:alert(1)'></iframe>"


def _widget_state(tree):
    state = {
        "1": {
            "model_module": "evil",
            "model_name": "HTMLModel",
            "state": {"value": "<script>alert(1)</script>"},
        }
    }
    tree["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": state}}
    view = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "1"},
        "text/html": "<script>alert(1)</script>",
    }
    tree["cells"].append(
        code("1") | {"outputs": [{"output_type": "display_data", "data": view, "metadata": {}}]}
    )


def _attachments(tree):
    tree["cells"].append(
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": "![x](attachment:x.svg) ![y](attachment:y.png)",
            "attachments": {
                "x.svg": {"image/svg+xml": "<svg onload=alert(1)>"},
                "y.png": {"image/png": "A" * 20_000_000, "text/html": "<script>alert(1)</script>"},
                "z.png": {"image/png": '"><script>alert(1)</script>'},
            },
        }
    )


SHOWN = {
    "HTML with script": 'display(HTML(\'<script>alert(1)</script><img src=x onerror=alert(1)><b onclick="x()">b</b><iframe src="javascript:alert(1)"></iframe><form action="//x"><object data=x>\'))',
    "an SVG with script": 'display(SVG(\'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>\'))',
    "JavaScript": "display(Javascript('alert(1)'))\ndisplay({'application/javascript': 'alert(1)'}, raw=True)",
    "markdown and LaTeX with script": "display(Markdown('<script>alert(1)</script> [x](javascript:alert(1))'), Latex('$\\\\href{javascript:alert(1)}{x}$'))",
    "a picture that is none": "display({'image/png': '\"><script>alert(1)</script>', 'image/svg+xml': '<svg onload=alert(1)>'}, raw=True)",
    "a widget": "import ipywidgets\ndisplay(ipywidgets.HTML('<script>alert(1)</script>'))\ndisplay({'application/vnd.jupyter.widget-view+json': {'model_id': 'x'}, 'text/html': '<script>alert(1)</script>'}, raw=True)",
    "metadata of an output": "display({'text/html': 'x', 'image/png': 'AAAA'}, raw=True, metadata={'image/png': {'width': '1\" onerror=alert(1)'}, 'x': '<script>'})",
}
SCREEN = [
    Attack(f"{name} in an output", BROWSER, "from IPython.display import *\n" + cell, hides=ACTIVE)
    for name, cell in SHOWN.items()
]
SCREEN += [
    Attack("script in text cells", BROWSER, edit=_text_cells, hides=TAGS),
    Attack("script in widget state", BROWSER, edit=_widget_state, hides=ACTIVE),
    Attack("script in attachments", BROWSER, edit=_attachments, hides=ACTIVE),
    Attack(
        "script in error texts",
        BROWSER,
        "class Evil(Exception):\n    pass\nEvil.__name__ = '<script>alert(1)</script>'\nraise Evil('<img src=x onerror=alert(1)>')",
        "def NAME(*args, **kwargs):\n    raise Evil('<script>alert(1)</script><img src=x onerror=alert(1)>')",
    ),
    Attack(
        "script in answers",
        BROWSER,
        every=returns("{'<script>alert(1)</script>': '<img src=x onerror=alert(1)>'}"),
    ),
    Attack(
        "codes for a terminal in error texts",
        BROWSER,
        "print('\\x1b]0;title\\x07\\x1b[2J\\x1b[31m')\nraise ValueError('\\x1b[2J\\x1b]8;;http://x\\x07')",
        "def NAME(*args, **kwargs):\n    raise ValueError('=cmd()\\x1b[2J\\x1b]0;evil\\x07\\n@SUM(1)')",
    ),
    Attack(
        "text that no file can hold",
        BROWSER,
        "print('\\ud800\\udfff\\x00')\nraise ValueError('\\ud800')",
        returns("'\\ud800'"),
    ),
]

ATTACKS = [*SPACE, *OUTSIDE, *SCREEN]
assert set(HONEST).isdisjoint(OTHERS)
