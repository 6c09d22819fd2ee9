"""What a submission cannot reach at each level of isolation, and what it cannot leave behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import autograder
from autograder.children import Child, isolation, warm
from autograder.children import child as child_module
from autograder.children.surroundings import without
from course.child import zygote
from course.questions import Call, Question, ask

REPOSITORY = Path(autograder.__file__).resolve().parent.parent
UPPER = [level for level in isolation.LEVELS if level != isolation.PROCESS]


@pytest.fixture(params=isolation.LEVELS)
def level(request):
    """Each level that this machine has."""
    why_not = isolation.why_not(request.param)
    if why_not:
        pytest.skip(why_not)
    return request.param


@pytest.fixture
def upper(level):
    """Each level that also protects files, the network and other processes."""
    if level not in UPPER:
        pytest.skip("protects the score only, and says so")
    return level


def run(child, source, seconds=10):
    """The text that a cell printed; the cell must have ended well."""
    ran = child.run_cell(source, seconds)
    assert ran.state == "ok", ran
    return "".join(output.get("text", "") for output in ran.outputs).strip()


def tried(child, *attempts):
    """What each statement ended in: "done" or the name of the error."""
    lines = ["import os, sys, socket, signal, ctypes, resource, subprocess, shutil"]
    for attempt in attempts:
        lines += ["try:", *(f"    {line}" for line in attempt.splitlines()), "    print('done')"]
        lines += ["except BaseException as error:", "    print(type(error).__name__)"]
    return dict(zip(attempts, run(child, "\n".join(lines)).split("\n"), strict=True))


def marked(mark):
    """The processes whose command line holds a text, the test itself not counted."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(mark in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


# ---------------------------------------------------------------- what works everywhere


def test_a_notebook_runs_the_same_at_every_level(level, tmp_path):
    (tmp_path / "data.txt").write_text("here")
    with Child.start(tmp_path, level) as child:
        assert child.level == level
        assert run(child, "print(open('data.txt').read())\nopen('new.txt', 'w').write('x');") == "here"
        assert run(child, "!echo shell") == "shell"
        assert run(child, "%%bash\necho bash") == "bash"
        assert run(child, "import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')") == "awaited"
        assert (
            run(child, "import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'abc'))") == "3"
        )
        assert (
            run(child, "import threading\nt = threading.Thread(target=print, args=(5,)); t.start(); t.join()")
            == "5"
        )
        ran = child.run_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", 10)
        assert [o["data"]["image/png"][:4] for o in ran.outputs] == ["iVBO"]
        run(child, "from course import figures\ndef f(x, g): return g(x) + 1")
        (answer,) = child.ask("f", ("x", "g"), ask(np.ones(3), lambda x: 2 * x))
        np.testing.assert_array_equal(answer.value, [3, 3, 3])
    assert not (tmp_path / "new.txt").exists()


def test_a_crash_says_so_and_the_next_child_is_well(level):
    for crash in ("import os\nos.abort()", "import os\nos._exit(3)", "import os\nos.kill(os.getpid(), 9)"):
        with Child.start(level=level) as child:
            if level == isolation.BUBBLEWRAP and "9" in crash:
                continue  # the first process of its namespace cannot be killed from inside
            assert child.run_cell(crash, 5).state == "died"
    with Child.start(level=level) as child:
        assert run(child, "print('well')") == "well"


def test_two_children_live_side_by_side(level):
    with Child.start(level=level) as first, Child.start(level=level) as second:
        run(first, "x = 1")
        assert not second.defines("x")
        first.close()
        assert run(second, "print('still here')") == "still here"


def test_a_loop_is_interrupted_at_every_level(level):
    with Child.start(level=level) as child:
        assert child.run_cell("while True: i = 1", 0.2).state == "time-out"
        run(child, "def f(x):\n    while True: i = 1")
        (answer,) = child.ask("f", ("x",), Question((Call((1,)),), seconds=0.2))
        assert answer.failure.kind == "time-out"
        assert run(child, "print('on')") == "on"


# ---------------------------------------------------------------- files


def test_files_outside_cannot_be_read(upper, tmp_path):
    gradebook = tmp_path / "gradebook.db"
    gradebook.write_text("points")
    with Child.start(level=upper) as child:
        ends = tried(
            child,
            f"open({str(gradebook)!r}).read()",
            f"os.listdir({str(tmp_path)!r})",
            f"open({autograder.__file__!r}).read()",
            f"os.listdir({str(REPOSITORY / 'autograder')!r})",
            f"os.listdir({str(REPOSITORY / 'tests')!r})",
            f"os.symlink({str(gradebook)!r}, 'link'); open('link').read()",
            f"os.link({str(gradebook)!r}, 'hard'); open('hard').read()",
            f"open('/proc/self/root{gradebook}').read()",
            f"open('/proc/{os.getpid()}/root{gradebook}').read()",
            f"os.listdir({str(Path.home())!r})[0]; open({str(Path.home() / '.profile')!r})",
            "open('/etc/shadow').read()",
            "open('/etc/passwd').read()",
            f"sys.path.append({str(REPOSITORY)!r}); import autograder",
            f"subprocess.check_output(['cat', {str(gradebook)!r}], stderr=subprocess.DEVNULL)",
        )
    assert "done" not in ends.values(), ends


def test_the_weakest_level_does_not_protect_files_and_sockets():
    with Child.start(level=isolation.PROCESS) as child:
        ends = tried(child, f"open({autograder.__file__!r}).read()", "socket.socket()", "os.listdir('/')")
    assert set(ends.values()) == {"done"}  # so the attempts of the other tests are real ones


def test_files_outside_cannot_be_changed(upper, tmp_path):
    target = tmp_path / "gradebook.db"
    target.write_text("points")
    tmp_path.chmod(0o777)
    target.chmod(0o666)
    before = (target.stat(), (REPOSITORY / "course" / "wire.py").stat())
    outside, wire = str(target), str(REPOSITORY / "course" / "wire.py")
    with Child.start(level=upper) as child:
        ends = tried(
            child,
            f"open({outside!r}, 'w')",
            f"open({str(tmp_path / 'new')!r}, 'w')",
            f"os.remove({outside!r})",
            f"os.rename({outside!r}, 'mine')",
            f"os.truncate({outside!r}, 0)",
            f"os.chmod({outside!r}, 0)",
            f"os.utime({outside!r}, (0, 0))",
            f"os.setxattr({outside!r}, 'user.x', b'1')",
            f"os.mkdir({str(tmp_path / 'folder')!r})",
            f"os.open({wire!r}, os.O_RDONLY | os.O_TRUNC)",
            f"os.fchmod(os.open({wire!r}, os.O_RDONLY), 0)",
            f"os.chown({wire!r}, 1, 1)",
            f"open({wire!r}, 'a')",
        )
    assert "done" not in ends.values(), ends
    assert [p.name for p in tmp_path.iterdir()] == ["gradebook.db"]
    for old, path in zip(before, (target, REPOSITORY / "course" / "wire.py")):
        new = path.stat()
        assert (new.st_mode, new.st_size, new.st_mtime, new.st_uid) == (
            old.st_mode,
            old.st_size,
            old.st_mtime,
            old.st_uid,
        )


LEAVE = """
import os, tempfile
places = ["/", "/tmp", "/dev", "/dev/shm", "/var/tmp", "/notebook", "/run", tempfile.gettempdir(), os.environ["HOME"], "."]
for place in places:
    try:
        open(os.path.join(place, "left-{mark}"), "w").close()
    except OSError:
        pass
"""
FIND = """
found = []
for folder, names, files in os.walk("/"):
    if folder.count("/") > 2:  # deeper there are only libraries
        names.clear()
    found += [name for name in files if "left-{mark}" in name]
print(found)
"""


def test_nothing_passes_from_one_notebook_to_the_next(upper):
    mark = str(time.monotonic_ns())
    with Child.start(level=upper) as child:
        run(child, LEAVE.format(mark=mark))
        kept = run(child, f"print(os.path.exists('left-{mark}'))")
    with Child.start(level=upper) as child:
        assert (kept, run(child, "import os\n" + FIND.format(mark=mark))) == ("True", "[]")
    assert not [p for place in ("/tmp", "/dev/shm", "/var/tmp") for p in Path(place).glob(f"left-{mark}")]


# ---------------------------------------------------------------- network and other processes


def test_there_is_no_network(upper, tmp_path):
    path = str(tmp_path / "socket")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        os.chmod(path, 0o777)
        tmp_path.chmod(0o755)
        with Child.start(level=upper) as child:
            ends = tried(
                child,
                f"socket.create_connection({tcp.getsockname()!r}, 2)",
                f"socket.socket(socket.AF_UNIX).connect({path!r})",
                "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
                "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
                "socket.create_server(('127.0.0.1', 0))",
                "if ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0) < 0: raise OSError",  # io_uring
            )
    assert "done" not in ends.values(), ends


def test_other_processes_are_out_of_reach(upper):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        try:
            os.setpriority(os.PRIO_PROCESS, other.pid, 1)
            with Child.start(level=upper) as child:
                ends = tried(
                    child,
                    f"os.kill({other.pid}, 9)",
                    f"os.kill({os.getpid()}, 0)",
                    f"os.killpg({os.getpgid(0)}, 0)",
                    f"os.setpriority(os.PRIO_PROCESS, {other.pid}, 10)",
                    "os.setpriority(os.PRIO_USER, os.getuid(), 10)",
                    f"os.sched_setaffinity({other.pid}, {{0}})",
                    f"resource.prlimit({other.pid}, resource.RLIMIT_NOFILE, (0, 0))",
                    f"open('/proc/{os.getpid()}/environ', 'rb').read()",
                    f"open('/proc/{os.getpid()}/mem', 'rb').read(1)",
                    f"if ctypes.CDLL(None, use_errno=True).ptrace(16, {other.pid}, 0, 0) < 0: raise OSError",
                    "if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) < 0: raise OSError",
                    "if ctypes.CDLL(None, use_errno=True).shmget(1, 4096, 0o1666) < 0: raise OSError",
                    "if ctypes.CDLL(None, use_errno=True).prctl(4, 1, 0, 0, 0) or os.listdir('/proc')[0]: pass",
                )
            assert "done" not in ends.values(), ends
            assert other.poll() is None
            assert os.getpriority(os.PRIO_PROCESS, other.pid) == 1
        finally:
            other.kill()


# ---------------------------------------------------------------- what stays behind

DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen([sys.executable or "python3", "-S", "-c", "import time; time.sleep(300)", "{mark}"], start_new_session=True)
        os.execvp("sh", ["sh", "-c", "sleep 300; echo {mark}"])
    os._exit(0)
subprocess.Popen(["sh", "-c", "sleep 300; echo {mark}"], start_new_session=True)
time.sleep(0.3)
"""


def test_no_process_is_left_behind(level):
    mark = f"mark-{time.monotonic_ns()}"
    with Child.start(level=level) as child:
        run(child, DAEMON.format(mark=mark))
        assert marked(mark)
    assert not marked(mark)


NAMELESS = """
import ctypes
ctypes.CDLL(None).prctl(15, b"\\xff) R 1", 0, 0, 0)  # its name: bytes that are no text
"""


def test_a_process_whose_name_is_no_text_is_ended_too(level):
    mark = f"mark-{time.monotonic_ns()}"
    lines = DAEMON.format(mark=mark).splitlines()
    with Child.start(level=level) as child:
        line = child._process._warm
        run(child, "\n".join([*NAMELESS.splitlines(), *lines]))
        run(
            child,
            ORPHANS.format(number=1, what=NAMELESS.replace("\n", "; ").strip("; ") + "; time.sleep(60)"),
        )
    assert line.alive
    assert not marked(mark)


ORPHANS = """
import os, time
for _ in range({number}):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            try:
                {what}
            finally:
                os._exit(0)
        os._exit(0)
time.sleep(0.5)
"""


def test_processes_without_a_parent_count_as_those_of_their_notebook(upper):
    hungry = "hog = bytearray(900_000_000).replace(b'0', b'1'); time.sleep(60)"
    forgetful = "import ctypes; print(ctypes.CDLL(None).prctl(36, 0, 0, 0, 0))"
    with Child.start(level=upper) as child:
        assert run(child, forgetful) == "-1"
        ran = child.run_cell(ORPHANS.format(number=5, what=hungry) + "time.sleep(8)", 10)
        assert "GB of memory" in child.gone, ran


BUSY = """
import os, subprocess, time
for _ in range(4):
    subprocess.Popen(["sh", "-c", "{what}"], start_new_session=True)
time.sleep({seconds})
"""


@pytest.mark.parametrize(
    "what",
    ["while :; do :; done", "while :; do (i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done); done"],
)
def test_what_a_notebook_starts_does_not_keep_the_processors_from_others(level, what, monkeypatch):
    monkeypatch.setattr(child_module, "DESCENDANTS", 2.0)
    with Child.start(level=level) as child:
        child.run_cell(BUSY.format(what="i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done", seconds=0.5), 10)
        assert not child.gone
        child.run_cell(BUSY.format(what=what, seconds=20), 10)
        assert "processor time" in child.gone


ENDLESS = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # lets go of them, where that is allowed
for _ in range(3):
    if os.fork() == 0:
        while True:
            try:
                os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 5 & sleep 5 & exit # {mark}"], {{}}), 0)
            except OSError:
                time.sleep(0.001)
"""


def test_a_notebook_that_makes_orphans_without_end_does_not_hold_up_its_neighbour(level):
    mark = f"mark-{time.monotonic_ns()}"
    longest = 1 if level in UPPER else 4
    with Child.start(level=level) as hostile:
        run(hostile, ENDLESS.format(mark=mark))
        for _ in range(5):
            neighbour = Child.start(level=level)
            line, started = neighbour._process._warm, time.monotonic()
            neighbour.close()
            assert time.monotonic() - started < longest
            assert line.alive
    assert not marked(mark)


FONTS = """
import os, stat
def is_font(number):
    try:
        return stat.S_ISREG(os.fstat(number).st_mode) and os.fstat(number).st_size > 100_000
    except OSError:
        return False
fonts = [number for number in range(3, 64) if is_font(number)]
"""


def test_two_notebooks_do_not_share_where_they_read_in_a_file(level):
    with Child.start(level=level) as one, Child.start(level=level) as other:
        for child in (one, other):
            run(child, FONTS)
        assert run(one, "print(len(fonts) > 0)\nfor number in fonts: os.lseek(number, 4321, 0)") == "True"
        assert "4321" not in run(other, "print([os.lseek(number, 0, 1) for number in fonts])")


BOMB = """
import os, time
mark = "{mark}"
def bomb():
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            time.sleep(0.001)
bomb()
"""


def test_a_fork_bomb_is_bounded_and_ends(level):
    before = len(psutil.pids())
    started = time.monotonic()
    with Child.start(level=level) as child:
        assert child.run_cell(BOMB.format(mark=""), 0.3).state in ("time-out", "died", "error")
        most = len(psutil.pids()) - before
    assert most < 350
    assert time.monotonic() - started < 20
    time.sleep(0.1)
    assert len(psutil.pids()) < before + 20


FLOODS = {
    "large files": "for i in range(1000): open(f'f{i}', 'wb').write(bytes(20_000_000))",
    "files that are removed": "kept = []\nfor i in range(1000):\n    kept.append(open('f', 'wb')); kept[-1].write(bytes(20_000_000)); os.remove('f')",
    "files without a name": "kept = []\nfor i in range(1000): kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(20_000_000))",
    "small files": "for i in range(10**7): open(f'f{i}', 'wb').close()",
    "folders in folders": "for i in range(10**7): os.mkdir('d'); os.chdir('d')",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_files_ends(level, flood):
    with Child.start(level=level) as child:
        ran = child.run_cell(f"import os\n{FLOODS[flood]}", 20)
        assert ran.state in ("died", "error"), ran
        reason = child.gone or ran.outputs[-1]["ename"]
        folders = child._folders
    assert any(word in reason for word in ("MB", "Error", "files")), reason
    assert folders is None or not folders.top.exists()


def test_a_flood_of_memory_ends(level):
    source = "import os\nfor _ in range(5):\n    if os.fork() == 0: break\nhog = []\nwhile True: hog.append(bytearray(10**7).replace(b'0', b'1'))"
    with Child.start(level=level) as child:
        assert child.run_cell(source, 5).state in ("died", "error", "time-out")
    assert psutil.virtual_memory().available > 10**9


KILLED = """
import sys, time
from autograder.children import Child
child = Child.start(level=sys.argv[1])
child.run_cell("import subprocess\\nsubprocess.Popen(['sh', '-c', 'sleep 300; echo ' + {mark!r}], start_new_session=True)", 5)
print(child._process.psutil.pid, flush=True)
child.run_cell("while True:\\n    try:\\n        i = 0\\n        while True: i = 1\\n    except BaseException: pass", 100)
"""


def test_when_the_grader_is_killed_nothing_stays(level):
    mark = f"mark-{time.monotonic_ns()}"
    command = [sys.executable, "-c", KILLED.format(mark=mark), level]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as grader:
        pid = int(grader.stdout.readline())
        assert marked(mark)
        grader.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (psutil.pid_exists(pid) or marked(mark)):
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
    assert not marked(mark)


# ---------------------------------------------------------------- levels


def test_the_levels_are_found_out_and_named():
    found = isolation.available()
    assert found[0] == isolation.PROCESS
    assert isolation.best() == found[-1]
    for level in isolation.LEVELS:
        assert (level in found) == (isolation.why_not(level) == "")


def test_secret_folders_are_cut_out_of_readable_ones(tmp_path):
    for name in ("libs/numpy", "libs/autograder", "libs/x/secret", "libs/x/open"):
        (tmp_path / name).mkdir(parents=True)
    libs = tmp_path / "libs"
    kept = without([str(libs), str(tmp_path / "nowhere")], [libs / "autograder", libs / "x" / "secret"])
    assert kept == [str(libs / "numpy"), str(libs / "x" / "open")]
    assert without([str(libs)], [tmp_path]) == [str(libs)]


SOCKETS = """
import os, stat
for number in range(4096):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            print(number)
    except OSError:
        pass
"""


def test_a_notebook_holds_its_own_line_and_no_other(level):
    """With a line to the warm process, or to another notebook's process, it could give orders."""
    line = warm.warm_process(level).further_line()  # as another worker of the class has one
    try:
        with Child.start(level=level), Child.start(level=level) as child:
            assert len(run(child, SOCKETS).split()) == 1
    finally:
        line.close()


def test_what_was_forked_for_a_grader_ends_with_its_line(level):
    shared = warm.warm_process(level)
    line = shared.further_line()
    with Child.start(level=level) as other:
        try:
            warm.use([line])
            with Child.start(level=level) as child:
                line.close()  # as when the worker is killed
                gone = child._process.psutil
                gone.wait(10)
                assert not gone.is_running() and run(other, "print('still here')") == "still here"
        finally:
            warm.use([shared])


def test_a_line_to_a_dead_warm_process_is_replaced(level):
    process = warm.Warm(level)
    process.wait_until_warm()
    line = process.further_line()
    shared = warm.warm_process(level)
    try:
        warm.use([line])
        assert line.alive and warm.warm_process(level) is line
        os.killpg(process._process.pid, signal.SIGKILL)
        process.close()
        deadline = time.monotonic() + 10
        while line.alive:
            assert time.monotonic() < deadline
        with Child.start(level=level) as child:
            assert run(child, "print('well')") == "well"
    finally:
        warm.warm_process(level).close()
        warm.use([shared])


def test_a_warm_process_removes_private_folders_only(tmp_path, monkeypatch):
    removed = []
    monkeypatch.setattr(zygote.shutil, "rmtree", lambda folder, **options: removed.append(folder))
    for folder in (
        "/",
        "",
        "/etc",
        "/x",
        str(tmp_path),
        str(tmp_path / "grading"),
        str(tmp_path / "grading-1" / "x"),
    ):
        zygote._remove(folder)
    assert removed == []
    zygote._remove(str(tmp_path / "grading-1"))
    assert removed == [str(tmp_path / "grading-1")]


def test_a_dead_warm_process_is_replaced(level):
    with Child.start(level=level) as child:
        line = child._process._warm
        line._process.kill()
        line._process.wait()
    with Child.start(level=level) as child:
        assert run(child, "print('well')") == "well"


def test_a_warm_process_that_does_not_answer_is_given_up(upper, monkeypatch):
    with Child.start(level=upper) as child:
        line = child._process._warm
    box = psutil.Process(line._process.pid)
    process = box.children(recursive=True)[-1] if upper == isolation.BUBBLEWRAP else box
    monkeypatch.setattr(warm, "REPLY", 0.5)
    process.suspend()
    try:
        with pytest.raises(warm.NotStarted, match="does not answer"):
            Child.start(level=upper)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    assert not line.alive  # its late answer would be taken for that to the next question
    monkeypatch.undo()
    with Child.start(level=upper) as child:
        assert run(child, "print('well')") == "well"


def test_a_fresh_interpreter_serves_where_nothing_can_be_forked():
    with Child.start_fresh() as child:
        run(child, textwrap.dedent("def f(x):\n    return 2 * x"))
        (answer,) = child.ask("f", ("x",), ask(np.ones(2)))
        np.testing.assert_array_equal(answer.value, [2, 2])
        assert child.run_cell("import autograder", 5).state == "error"
