"""A submission's cells in a process of their own: what they show, what they answer, and what they cannot do."""

import json
import os
import struct
import textwrap
import time

import numpy as np
import psutil
import pytest

from autograder.children import Child
from autograder.children.processes import Clock
from autograder.exercises import find
from autograder.judge import judge, judge_function
from course.child.recorder import CUT
from course.questions import Call, Given, Own, Question, Rng, ask
from course.wire import TooLate

X = np.arange(12.0).reshape(3, 4)


@pytest.fixture(scope="module")
def child():
    """One child for the tests that leave it as they found it."""
    with Child.start() as started:
        yield started


@pytest.fixture
def own_child():
    """A child of its own for a test that does harm."""
    with Child.start() as started:
        yield started


def shown(ran):
    """The printed text of a cell and the plain text of its results."""
    return [o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"] for o in ran.outputs]


def value(answers):
    (answer,) = answers
    assert answer.failure is None, answer.failure
    return answer.value


def failure(answers):
    (answer,) = answers
    assert answer.value is None
    return answer.failure


# ---------------------------------------------------------------- cells


def test_outputs_come_in_order(child):
    ran = child.run_cell(
        "import os, sys\nprint('a')\nos.system('echo b')\nos.write(1, b'c\\n')\nprint('e', file=sys.stderr)\nprint('f')\n41 + 1",
        5,
    )
    assert [(o["output_type"], o.get("name")) for o in ran.outputs] == [
        ("stream", "stdout"),
        ("stream", "stderr"),
        ("stream", "stdout"),
        ("execute_result", None),
    ]
    assert shown(ran) == ["a\nb\nc\n", "e\n", "f\n", "42"]
    assert (ran.state, ran.outputs[-1]["execution_count"]) == ("ok", ran.execution_count)


def test_a_cell_finds_what_a_jupyter_kernel_has(child):
    assert child.run_cell("%matplotlib inline", 10).outputs == []
    assert shown(
        child.run_cell("type(get_ipython()).__name__, 'IPKernelApp' in get_ipython().config", 5)
    ) == ["('ZMQInteractiveShell', True)"]
    ran = child.run_cell("import warnings\nwarnings.warn('careful')", 5)
    assert "careful" in ran.outputs[0]["text"]
    assert "ipykernel_" in ran.outputs[0]["text"]


def test_plots_are_pictures(child):
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([2, 1]);"
    for _ in range(2):
        pictures = [o for o in child.run_cell(plot, 20).outputs if "image/png" in o.get("data", {})]
        assert [o["data"]["image/png"][:10] for o in pictures] == ["iVBORw0KGg"] * 2


def test_outputs_are_valid_in_a_notebook(child):
    import nbformat

    cell = nbformat.v4.new_code_cell("", execution_count=1)
    source = "from IPython.display import HTML, JSON, display\ndisplay(HTML('<b>x</b>'), JSON({'a': [1]}))\nprint(1)\n1/0"
    cell.outputs = [nbformat.from_dict(o) for o in child.run_cell(source, 5).outputs]
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    assert [o.output_type for o in cell.outputs] == ["display_data", "display_data", "stream", "error"]
    assert cell.outputs[-1].ename == "ZeroDivisionError"


def test_displays_can_be_updated_and_cleared(child):
    first = child.run_cell("shown = display('before', display_id=True)", 5)
    child.run_cell("shown.update('after')", 5)
    assert shown(first) == ["'after'"]
    ran = child.run_cell(
        "from IPython.display import clear_output\nprint(1)\nclear_output(wait=True)\nprint(2)", 5
    )
    assert shown(ran) == ["2\n"]


def test_widgets_are_harmless(child):
    ran = child.run_cell("import ipywidgets\nipywidgets.IntSlider(3)", 10)
    assert ran.state == "ok"
    assert "IntSlider" in ran.outputs[0]["data"]["text/plain"]


def test_magics_shell_lines_and_await_work(child):
    assert shown(child.run_cell("%%bash\necho from bash", 5)) == ["from bash\n"]
    assert "from echo" in shown(child.run_cell("!echo from echo", 5))[0]
    assert shown(child.run_cell("import asyncio\nawait asyncio.sleep(0.01, 7)", 5)) == ["7"]
    assert "not found" in shown(child.run_cell("%nonsense", 5))[0]


def test_input_fails_at_once(child):
    ran = child.run_cell("input('name? ')", 5)
    assert ran.state == "error"
    assert "input()" in ran.outputs[0]["evalue"]


def test_exit_and_system_exit_do_not_end_the_notebook(child):
    child.run_cell("exit()", 5)
    child.run_cell("raise SystemExit", 5)
    assert shown(child.run_cell("1 + 1", 5)) == ["2"]


def test_a_cell_that_fails_half_way_keeps_what_it_did(child):
    ran = child.run_cell("half = 1\nprint('here')\nraise KeyError('no')", 5)
    assert (ran.state, ran.outputs[0]["text"], ran.outputs[1]["ename"]) == ("error", "here\n", "KeyError")
    assert child.defines("half")
    assert child.run_cell("def broken(:", 5).state == "error"


def test_long_outputs_are_cut_with_a_note(child):
    for source in ("print('y' * 3_000_000)", "for i in range(100_000): print(i, 'some words')"):
        (output,) = child.run_cell(source, 10).outputs
        assert len(output["text"]) < 201_000
        assert "left out" in output["text"][-80:]
    ran = child.run_cell("for i in range(2000): display(i)", 10)
    assert len(ran.outputs) < 510
    assert "left out" in shown(ran)[-1]


def test_an_output_too_long_to_be_sent_is_left_out_with_a_note(child):
    source = "from IPython.display import display\ndisplay({'text/plain': 'ü' * 12_000_000}, raw=True)\nprint('end')"
    ran = child.run_cell(source, 10)
    assert ran.state == "ok"
    assert [output["text"] for output in ran.outputs] == [CUT + "end\n"]


def test_threads_and_forks_of_the_student_print_in_order_and_disturb_nothing(child):
    threads = "import threading\nts = [threading.Thread(target=lambda: [print('x' * 50) for _ in range(500)]) for _ in range(4)]\n"
    ran = child.run_cell(threads + "for t in ts: t.start()\nfor t in ts: t.join()", 10)
    assert sum(text.count("x") for text in shown(ran)) == 4 * 500 * 50
    ran = child.run_cell(
        "import os\nif os.fork() == 0: print('from the fork')\nelse: os.wait(); print('after it')", 5
    )
    assert shown(ran)[-1] == "from the fork\nafter it\n"  # newer Pythons also warn of the fork
    assert shown(child.run_cell("2", 5)) == ["2"]


def test_two_runs_agree_on_random_numbers():
    drawn = []
    for _ in range(2):
        with Child.start() as child:
            drawn.append(
                shown(
                    child.run_cell(
                        "import random\nimport numpy as np\n(np.random.rand(), random.random())", 5
                    )
                )
            )
    assert drawn[0] == drawn[1]


# ---------------------------------------------------------------- surroundings


def test_the_child_finds_course_and_no_answers(child):
    child.run_cell("from course import figures\nimport numpy, matplotlib, IPython", 10)
    ran = child.run_cell("import autograder", 5)
    assert ran.outputs[0]["ename"] == "ModuleNotFoundError"
    loaded = shown(child.run_cell("import sys\nprint(*sys.modules)", 5))[0].split()
    assert not [name for name in loaded if name.split(".")[0] in ("autograder", "nbgrader", "nbformat")]


def test_nothing_of_the_graders_environment_gets_in(child, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "1")
    with Child.start() as other:
        names = shown(other.run_cell("import os\nprint(*sorted(os.environ))", 5))[0].split()
    assert "SOME_SECRET" not in names
    assert "COURSE_GRADING" in names
    assert not [name for name in names if name.startswith(("LOGNAME", "PYTHON", "VIRTUAL"))]


def test_files_beside_the_notebook_are_copied_and_never_shadow_a_library(tmp_path):
    (tmp_path / "data.txt").write_text("some data")
    (tmp_path / "helper.py").write_text("answer = 42")
    (tmp_path / "numpy.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "more.txt").write_text("more")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with Child.start(tmp_path) as child:
        child.run_cell("import json, numpy, helper, os, pathlib", 5)
        ran = child.run_cell(
            "open('data.txt').read(), helper.answer, numpy.pi > 3, open('deep/more.txt').read()", 5
        )
        assert shown(ran) == ["('some data', 42, True, 'more')"]
        names = shown(child.run_cell("print(*sorted(os.listdir()))", 5))[0].split()
        child.run_cell("open('data.txt', 'w').write('changed')", 5)
    assert "link" not in names
    assert "pipe" not in names
    assert (tmp_path / "data.txt").read_text() == "some data"


def test_the_private_folder_is_gone_afterwards():
    with Child.start() as child:
        folder = shown(
            child.run_cell(
                "import os\nos.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0)\nprint(os.getcwd())", 5
            )
        )
    assert not os.path.exists(folder[0].strip())


# ---------------------------------------------------------------- questions


def test_a_function_is_asked(child):
    child.run_cell("def double(x):\n    print('working')\n    return 2 * x", 5)
    (answer,) = child.ask("double", ("x",), ask(X))
    np.testing.assert_array_equal(answer.value, 2 * X)
    assert (answer.failure, answer.changed, answer.printed) == (None, (), "working\n")


@pytest.mark.parametrize(
    "source",
    [
        "f = lambda x: x + 1",
        "import functools\nf = functools.partial(lambda a, x: x + a, 1)",
        "class f:\n    def __new__(cls, x): return x + 1",
        "class C:\n    def __call__(self, x): return x + 1\nf = C()",
        "import functools\ndef deco(g):\n    @functools.wraps(g)\n    def h(*a): return g(*a)\n    return h\n@deco\ndef f(x): return x + 1",
        "f = np.vectorize(lambda v: v + 1)",
    ],
)
def test_whatever_can_be_called_is_called(child, source):
    child.run_cell("import numpy as np\n" + source, 5)
    np.testing.assert_array_equal(value(child.ask("f", ("x",), ask(X))), X + 1)


def test_what_cannot_be_called_is_missing(child):
    child.run_cell("number = 3", 5)
    assert failure(child.ask("number", ("x",), ask(X))).kind == "missing"
    assert failure(child.ask("nowhere", ("x",), ask(X))).kind == "missing"


def test_failures_say_what_happened(child):
    child.run_cell(
        "def stub(x):\n    raise NotImplementedError\ndef fails(x):\n    return x['no']\ndef odd(x):\n    return object()",
        5,
    )
    assert failure(child.ask("stub", ("x",), ask(X))).kind == "not attempted"
    failed = failure(child.ask("fails", ("x",), ask(X)))
    assert failed.kind == "exception"
    assert failed.error.startswith("IndexError")
    assert failed.line == "return x['no']"
    assert failure(child.ask("odd", ("x",), ask(X))).kind == "malformed"


def test_functions_stay_with_the_judge(child):
    child.run_cell("def through(x, f, g=None):\n    return f(f(x)) if g is None else g(f(x))", 5)
    secret = []

    def f(x):
        secret.append(x)
        return x + 1

    (answer,) = child.ask("through", ("x", "f"), ask(X, f))
    np.testing.assert_array_equal(answer.value, X + 2)
    assert len(secret) == 2
    assert [len(received) for received in answer.calls] == [2]
    np.testing.assert_array_equal(answer.calls[0][1][0], X + 1)
    (answer,) = child.ask("through", ("x",), ask(X, Given("linear", (np.eye(4) * 3,)), g=f))
    np.testing.assert_array_equal(answer.value, 3 * X + 1)
    assert [len(received) for received in answer.calls] == [1, 1]


def test_own_is_the_reference(child):
    child.run_cell("def block(x, norm):\n    return norm(x, np.ones(4), np.zeros(4))", 5)
    reference = find("layer_norm").reference_function
    got = value(child.ask("block", ("x", "norm"), ask(X, Own("layer_norm"))))
    np.testing.assert_allclose(got, reference(X, np.ones(4), np.zeros(4)))


def test_an_error_of_a_function_keeps_its_type(child):
    def refuses(x):
        raise ValueError("not this")

    failed = failure(child.ask("through", ("x", "f"), ask(X, refuses)))
    assert (failed.error.split(" < ")[0], failed.message) == ("ValueError", "not this")


def test_functions_have_a_budget_and_die_with_their_question(child):
    child.run_cell(
        "kept = []\ndef often(x, f):\n    kept.append(f)\n    while True: f(x)\ndef later(x):\n    return kept[0](x)",
        5,
    )
    called = []
    failed = failure(child.ask("often", ("x", "f"), Question((Call((X, called.append)),), budget=7)))
    assert (failed.kind, len(called)) == ("exception", 7)
    assert failure(child.ask("later", ("x",), ask(X))).kind == "exception"
    assert len(called) == 7


def test_the_budget_holds_also_past_what_counts_in_the_child(child):
    child.run_cell(
        "def sly(x, f):\n"
        "    (past,) = [c.cell_contents for c in f.__closure__ if getattr(c.cell_contents, '__name__', '') == 'function']\n"
        "    while True: past(x)",
        5,
    )
    called = []
    failed = failure(child.ask("sly", ("x", "f"), Question((Call((X, called.append)),), budget=7)))
    assert "more than 7 times" in failed.message and len(called) == 7


def test_what_a_function_was_called_with_stays_as_it_was(child):
    def spoils(x):
        x += 1
        return x

    child.run_cell("def once(x, f): return f(x)", 5)
    (answer,) = child.ask("once", ("x", "f"), ask(X, spoils))
    ((received,),) = answer.calls
    np.testing.assert_array_equal(received[0], X)


def test_a_function_is_not_made_to_work_on_huge_arguments(child):
    child.run_cell(
        "def greedy(x, f):\n    return f(np.zeros((1000, 1000)))\ndef far(x, f):\n    return f(10**9)", 5
    )
    called = []
    for name in ("greedy", "far"):
        assert failure(child.ask(name, ("x", "f"), ask(X, called.append))).kind == "exception"
    assert not called


def test_steps_share_arrays_and_generators(child):
    child.run_cell(
        "def add(x, rng):\n    x += 1\n    return x[0, 0] + 0 * rng.random()\ndef draw(rng): return rng.random()",
        5,
    )
    one = Call((X, Rng(3)))
    assert [a.value for a in child.ask("add", ("x", "rng"), Question((one, one), same_arrays=True))] == [1, 2]
    assert [a.value for a in child.ask("add", ("x", "rng"), Question((one, one)))] == [1, 1]
    (first, second) = child.ask("draw", ("rng",), Question((Call((Rng(3),)), Call((Rng(3),)))))
    rng = np.random.default_rng(3)
    assert [first.value, second.value] == [rng.random(), rng.random()]


def test_changed_inputs_are_named(child):
    child.run_cell("def spoil(a, b):\n    b += 1\n    return a", 5)
    (answer,) = child.ask("spoil", ("a", "b"), ask(X, X.copy()))
    assert answer.changed == ("b",)


NORMS = {
    "right": "x = np.asarray(x, dtype=float)\n    c = x - x.mean(-1, keepdims=True)\n"
    "    return c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) * gamma + beta",
    "unbiased": "return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps) * gamma + beta",
    "wrong axis": "return (x - x.mean(0)) / np.sqrt(x.var(0) + eps) * gamma + beta",
    "in place": "x -= x.mean(-1, keepdims=True)\n    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma + beta",
    "fails": "return gamma[1.5]",
    "stub": "raise NotImplementedError",
}


@pytest.mark.parametrize("body", NORMS)
def test_the_child_and_this_process_give_the_same_verdict(child, body):
    source = f"import numpy as np\ndef layer_norm(x, gamma, beta, eps=1e-5):\n    {NORMS[body]}\n"
    exercise, here = find("layer_norm"), {}
    exec(source, here)
    child.run_cell(source, 5)
    asked = judge(exercise, 5, lambda questions: child.ask_all("layer_norm", exercise.parameters, questions))
    called = judge_function(exercise, 5, here["layer_norm"])
    assert asked.outcome == (
        "correct" if body == "right" else "not attempted" if body == "stub" else called.outcome
    )
    assert (asked.outcome, asked.points, asked.mistake) == (called.outcome, called.points, called.mistake)
    assert [p.passed for p in asked.properties] == [p.passed for p in called.properties]


# ---------------------------------------------------------------- time


def test_a_loop_ends_and_the_notebook_goes_on(child):
    started = time.monotonic()
    ran = child.run_cell("print('before')\nwhile True: i = 1", 0.3)
    assert (ran.state, ran.outputs[0]["text"], ran.outputs[1]["ename"]) == (
        "time-out",
        "before\n",
        "CellOutOfTime",
    )
    assert time.monotonic() - started < 2
    assert shown(child.run_cell("1", 5)) == ["1"]


def test_sleep_costs_no_processor_time_but_ends(child):
    assert child.run_cell("import time\ntime.sleep(0.5)", 0.1).state == "ok"
    assert child.run_cell("time.sleep(60)", 0.05).state == "time-out"


STUBBORN = "while True:\n    try:\n        i = 0\n        while True: i = 1\n    except BaseException: pass"


def test_a_loop_that_swallows_everything_is_ended(own_child):
    started = time.monotonic()
    ran = own_child.run_cell(f"print('before')\ndisplay(1)\n{STUBBORN}", 0.2)
    assert (ran.state, shown(ran)) == ("time-out", ["before\n", "1"])
    assert time.monotonic() - started < 5
    assert own_child.run_cell("1", 5).state == "died"
    assert not own_child.defines("x")
    assert failure(own_child.ask("f", ("x",), ask(X))).kind == "time-out"


def test_a_question_that_takes_too_long_is_a_time_out(own_child):
    own_child.run_cell(
        f"def slow(x):\n    while True: i = 1\ndef stubborn(x):\n{textwrap.indent(STUBBORN, '    ')}", 5
    )
    question = Question((Call((X,)), Call((X,))), seconds=0.2)
    first, second = own_child.ask("slow", ("x",), question)
    assert first.failure.kind == second.failure.kind == "time-out"
    assert shown(own_child.run_cell("1", 5)) == ["1"]
    first, second = own_child.ask("stubborn", ("x",), question)
    assert first.failure.kind == second.failure.kind == "time-out"
    assert own_child.gone


@pytest.mark.parametrize("processor, wall", [(0.2, 60.0), (60.0, 0.2)])
def test_the_graders_own_clock_rings_by_processor_time_and_by_real_time(processor, wall):
    clock = Clock(psutil.Process(), processor, wall)
    clock.check()
    started = time.monotonic()
    with pytest.raises(TooLate):
        while time.monotonic() < started + 20:  # this process is at work meanwhile
            clock.check()


def test_several_questions_are_answered_in_order_until_one_takes_too_long(own_child):
    own_child.run_cell(
        "seen = []\ndef f(x, g):\n    seen.append(int(x))\n    while x == 3: pass\n    return g(x)", 5
    )
    questions = [Question((Call((number, lambda x: 10 * x)),), seconds=0.3) for number in range(6)]
    answers = list(own_child.ask_all("f", ("x", "g"), questions))
    assert [value(answer) for answer in answers[:3]] == [0, 10, 20]
    assert [failure(answer).kind for answer in answers[3:]] == ["time-out"]
    assert shown(own_child.run_cell("seen", 5)) == ["[0, 1, 2, 3]"]


# ---------------------------------------------------------------- tricks inside the process

EARLIER = "def f(x):\n    return 2 * x\n"
TRICKS = {
    "numpy patched": "import numpy as np\nnp.asarray = np.array = np.frombuffer = np.ndarray.tobytes = lambda *a, **k: 1 / 0",
    "course patched": "import course.answering as a, course.wire as w, course.child.service as s\n"
    "a.answer_question = w.encode = s.encode = s.answer_question = lambda *a, **k: 1",
    "builtins patched": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda *a: 3",
    "json patched": "import json, base64\njson.dumps = lambda *a, **k: 'x'\nbase64.b64encode = None",
    "modules replaced": "import sys\nfor name in list(sys.modules): sys.modules[name] = None",
    "source changed by a transformer": "import ast\nclass T(ast.NodeTransformer):\n    def visit_Constant(self, n): return ast.Constant(7)\n"
    "get_ipython().ast_transformers.append(T())",
    "run_cell patched": "get_ipython().run_cell = lambda *a, **k: 1 / 0",
    "hooks": "ip = get_ipython()\nfor e in ('pre_run_cell', 'post_run_cell', 'pre_execute', 'post_execute'):\n"
    "    ip.events.register(e, lambda *a: 1 / 0)\nip.set_custom_exc((Exception,), lambda *a: None)",
    "traced": "import sys\ndef t(frame, event, arg):\n    raise KeyError\nsys.settrace(t)",
    "threads": "import threading, time\ndef go():\n    while True: time.sleep(0.001); print('x' * 1000)\n"
    "for _ in range(3): threading.Thread(target=go, daemon=True).start()",
    "process ended": "import os\nos._exit(0)",
    "killed": "import os\nos.kill(os.getpid(), 9)",
    "crashed": "import ctypes\nctypes.string_at(0)",
    "signals ignored": "import signal\nfor s in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)",
    "output replaced": "import sys\nsys.stdout = sys.stderr = None",
    "descriptors closed": "import os\nos.closerange(0, 200)",
    "recursion": "import sys\nsys.setrecursionlimit(10)",
    "memory": "hog = []\nwhile True: hog.append(bytearray(50_000_000))",
    "garbage": "import gc\ngc.disable()\nimport socket\n[o.send(b'abc') for o in gc.get_objects() if isinstance(o, socket.socket)]",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_earns_nothing_and_hurts_nobody(own_child, trick):
    own_child.run_cell(TRICKS[trick], 2)
    own_child.run_cell(EARLIER, 2)
    (answer,) = own_child.ask("f", ("x",), Question((Call((X,)),), seconds=0.5))
    if answer.failure is None:  # an honest function may still be answered rightly, or else be spoilt
        assert type(answer.value) in (np.ndarray, int, float, tuple, list, str, type(None))
    assert own_child.run_cell("1", 1).state in ("ok", "error", "time-out", "died")


def raw(*messages):
    """A cell that writes messages of its own to the grader's socket when `f` is asked."""
    return (
        "import gc\n"
        "def f(x):\n"
        "    (c,) = [o for o in gc.get_objects() if type(o).__name__ == 'Connection']\n"
        f"    for m in {messages!r}: c.sock.sendall(m)\n"
        "    return 2 * x\n"
    )


def framed(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


ANSWER = {"value": 1, "failure": None, "changed": [], "printed": "", "seconds": 0.0}
FORGED = {
    "not JSON": framed(b"\xff\xfe"),
    "deep": framed(b'{"answer": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "many parts": framed(b'{"answer": [' + b"[]," * 3_000_000 + b"0]}"),
    "several keys": framed({"answer": 1, "ran": 2}),
    "empty": framed({}),
    "a list": framed([1]),
    "another question": framed({"answer": {"id": 99, "answers": [ANSWER]}}),
    "a call of nothing": framed(
        {"call": {"id": 1, "handle": "function 0", "args": {"tuple": []}, "kwargs": {"dict": []}}}
    ),
    "an odd call": framed({"call": {"id": 1, "handle": 3}}),
    "a cell's result": framed({"ran": {"state": "ok", "count": 1}}),
    "a verdict": framed({"points": 100}),
    "too long": struct.pack(">I", 2**31),
    "half a message": struct.pack(">I", 1000) + b"{",
    "flood": framed({"x": 1}) * 1000,
}
BAD_ANSWERS = {
    "no list": 3,
    "too many": [ANSWER] * 2,
    "keys": [{"value": 1}],
    "unavailable": [ANSWER | {"failure": ["unavailable", "", "", ""]}],
    "kind": [ANSWER | {"failure": ["fine", "", "", ""]}],
    "failure": [ANSWER | {"failure": {"kind": "missing"}}],
    "changed": [ANSWER | {"changed": "abc"}],
    "changed parts": [ANSWER | {"changed": [1]}],
    "seconds": [ANSWER | {"seconds": -1}],
    "seconds nan": [ANSWER | {"seconds": float("nan")}],
    "placeholder": [ANSWER | {"value": {"Own": ["layer_norm"]}}],
    "array size": [ANSWER | {"value": {"array": ["f8", [10**6, 10**6], ""]}}],
    "array negative": [ANSWER | {"value": {"array": ["f8", [-1], ""]}}],
    "array dtype": [ANSWER | {"value": {"array": ["O", [1], "AAAA"]}}],
    "dict key": [ANSWER | {"value": {"dict": [[[1], 1]]}}],
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_message_never_reaches_further_than_its_answer(own_child, forged):
    own_child.run_cell(raw(FORGED[forged]), 5)
    (answer,) = own_child.ask("f", ("x",), Question((Call((X,)),), seconds=0.3))
    if answer.failure is None:
        np.testing.assert_array_equal(answer.value, 2 * X)
    else:
        assert answer.failure.kind in ("malformed", "no answer", "time-out")


def test_a_child_that_never_stops_talking_is_ended():
    flood = "import gc\n(c,) = [o for o in gc.get_objects() if type(o).__name__ == 'Connection']\n"
    for message in ({"output": {"output_type": "stream", "name": "stdout", "text": "x"}}, {"clear": False}):
        with Child.start() as child:
            source = f"{flood}import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\nwhile True: c.sock.sendall({framed(message)!r} * 100)"
            assert child.run_cell(source, 0.1).state in ("time-out", "died")


def test_answers_that_break_the_rules_are_malformed(child):
    for name, answers in BAD_ANSWERS.items():
        child.run_cell(raw(framed({"answer": {"id": child._asked + 1, "answers": answers}})), 5)
        assert failure(child.ask("f", ("x",), ask(X))).kind == "malformed", name


def test_text_that_no_file_can_hold_is_replaced(child):
    ran = child.run_cell("print('a\\ud800b')\n'\\ud800'", 5)
    json.dumps(ran.outputs, ensure_ascii=False).encode()
    child.run_cell("def f(x): return ['\\ud800']", 5)
    assert value(child.ask("f", ("x",), ask(X))) == ["?"]
