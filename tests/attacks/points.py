"""Attacks on the score: metadata, patches inside the process, objects that lie, theft, and the protocol."""

from __future__ import annotations

import copy

from tests.attacks.attack import HONEST, OTHERS, Attack, checks, code, grade_id, place_of

RIGHT = """\
class Right:
    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = __contains__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __bool__ = lambda self: True
    __float__ = lambda self: 0.0
    __getattr__ = lambda self, name: self
    __call__ = lambda self, *args, **kwargs: self
"""
RETURNS_RIGHT = "def NAME(*args, **kwargs):\n    return Right()"


def returns(value: str) -> str:
    """An answer that is always this expression; `args` are the arguments."""
    return f"def NAME(*args, **kwargs):\n    return {value}"


# ---------------------------------------------------------------- metadata


def _skip(tree):
    for cell in checks(tree):
        cell["metadata"]["tags"] = ["skip-execution", "raises-exception"]
        cell["outputs"] = []


def _points(tree):
    for cell in checks(tree):
        cell["metadata"]["nbgrader"]["points"] = 1000


def _flags(tree):
    for cell in checks(tree):
        cell["metadata"]["nbgrader"] |= {"grade": False, "solution": True, "locked": False, "task": True}
        cell["source"] = "100.0"


def _swapped(tree):
    first, last = checks(tree)[0], checks(tree)[-1]
    one, other = grade_id(first), grade_id(last)
    first["metadata"]["nbgrader"]["grade_id"], last["metadata"]["nbgrader"]["grade_id"] = other, one


def _one_answer_for_all(tree):
    for cell in checks(tree):
        cell["metadata"]["nbgrader"]["grade_id"] = f"check_{HONEST[0]}"


def _kind(kind):
    def edit(tree):
        for cell in checks(tree):
            cell["cell_type"] = kind
            cell["source"] = "100.0"

    return edit


def _copied(tree):
    tree["cells"] += [copy.deepcopy(cell) for cell in checks(tree) for _ in range(3)]


def _deleted(tree):
    tree["cells"] = [cell for cell in tree["cells"] if not grade_id(cell).startswith("check_")]


def _reordered(tree):
    tree["cells"][2:] = tree["cells"][:1:-1]


def _kernel(tree):
    tree["metadata"] = {
        "kernelspec": {"name": "../../bin/sh", "language": "bash", "display_name": "sh"},
        "language_info": {"name": "bash", "file_extension": ".sh"},
    }


def _forged(tree):
    for cell in checks(tree):
        result = {"output_type": "execute_result", "metadata": {}, "execution_count": 1}
        cell["outputs"] = [result | {"data": {"text/plain": "100.0"}}]


def _sources(tree):
    for cell in checks(tree):
        cell["source"] = "100.0"


def _extra_keys(tree):
    for cell in checks(tree):
        cell["metadata"]["nbgrader"] |= {"schema_version": 99, "checksum": "0", "auto_score": 100.0}
        cell["metadata"]["course"] = {"role": "exploration"}
    tree["metadata"]["autograder"] = {"result": {"points": 100.0, "status": "graded"}, "digest": "0"}


def _own_checks(tree):
    cell = code("100.0")
    for name in OTHERS:
        about = {"grade_id": f"check_{name}", "grade": True, "solution": True, "locked": True, "points": 100}
        cell["metadata"] = {"nbgrader": about | {"schema_version": 3, "cell_type": "code", "task": False}}
        tree["cells"].insert(place_of(tree, name), copy.deepcopy(cell))


def _answers_as_explorations(tree):
    for cell in tree["cells"]:
        cell["metadata"]["course"] = {"role": "exploration"}


METADATA = [
    Attack(name, "metadata and cells", edit=edit)
    for name, edit in {
        "check cells tagged skip-execution": _skip,
        "a thousand points for every check": _points,
        "flags of the check cells turned round": _flags,
        "names of two check cells swapped": _swapped,
        "every check cell named after the easiest": _one_answer_for_all,
        "check cells turned into text": _kind("markdown"),
        "check cells turned into raw text": _kind("raw"),
        "every check cell four times": _copied,
        "check cells deleted": _deleted,
        "another kernel named": _kernel,
        "forged results in the check cells": _forged,
        "check cells that say 100": _sources,
        "keys that nbgrader does not know": _extra_keys,
        "own cells under the names of check cells": _own_checks,
        "all cells called explorations": _answers_as_explorations,
    }.items()
]

# ---------------------------------------------------------------- patches inside the process

PATCHES = {
    "NumPy's comparisons patched": RIGHT
    + "for name in 'allclose array_equal isclose all any equal less_equal abs max'.split():\n"
    "    setattr(np, name, lambda *args, **kwargs: True)",
    "np.testing patched": "import numpy.testing as t\n"
    "for name in dir(t):\n    if name.startswith('assert'):\n        setattr(t, name, lambda *args, **kwargs: None)",
    "builtins patched": "import builtins\nbuiltins.abs = builtins.min = lambda *args: 0\n"
    "builtins.float = lambda *args: 100.0\nbuiltins.isinstance = lambda *args: True",
    "json and base64 patched": "import base64, json\n"
    "json.dumps = lambda *args, **kwargs: '{\"verdict\": 100.0}'\nbase64.b64encode = lambda data: b''",
    "the protocol's encoder patched": "import sys\n"
    "for name, module in list(sys.modules.items()):\n"
    "    if name.startswith('course') and hasattr(module, 'encode'):\n"
    "        module.encode = lambda *args: {'array': ['f8', [], 'AAAAAAAAWUA=']}",
    "the asking itself patched": "import course.answering as a, sys\n"
    "from course.questions import Answer\n"
    "patched = lambda function, question, *rest, **kw: [Answer(100.0)] * len(question.calls)\n"
    "for module in list(sys.modules.values()):\n"
    "    if hasattr(module, 'answer_question'):\n        module.answer_question = patched",
    "marking and comparing patched": "import course.compare, course.marking\n"
    "course.compare.difference = course.marking.difference = lambda *args, **kwargs: None\n"
    "course.marking.mark = lambda sheet, *rest: 100.0",
    "check redefined": "def check(*args, **kwargs):\n    return 100.0\nimport course\ncourse.check = check",
    "an AST transformer": "import ast\n"
    "class Full(ast.NodeTransformer):\n"
    "    def visit_Module(self, node):\n        return ast.parse('100.0')\n"
    "get_ipython().ast_transformers.append(Full())",
    "an input transformer": "get_ipython().input_transformers_post.append(lambda lines: ['100.0\\n'])\n"
    "get_ipython().input_transformers_cleanup.append(lambda lines: ['100.0\\n'])",
    "run_cell patched": "ip = get_ipython()\ntype(ip).run_cell = ip.run_cell = lambda *args, **kwargs: 100.0",
    "run_code and do_execute patched": "ip = get_ipython()\n"
    "async def run_code(*args, **kwargs):\n    return False\n"
    "type(ip).run_code = ip.run_code = ip.do_execute = run_code",
    "the display hook patched": "import sys\nhook = get_ipython().displayhook\n"
    "sys.displayhook = type(hook).__call__ = lambda *args: print('100.0')",
    "a published result": "get_ipython().displayhook(100.0)\nfrom IPython.display import display\n"
    "display({'text/plain': '100.0'}, raw=True)\n100.0",
    "tracebacks silenced": "get_ipython().showtraceback = get_ipython()._showtraceback = lambda *args, **kwargs: None\n"
    "import sys\nsys.excepthook = lambda *args: None",
    "an exception handler of one's own": "get_ipython().set_custom_exc((BaseException,), lambda *args, **kwargs: None)",
    "hooks before and after each cell": "def hook(*args):\n    get_ipython().user_ns['np'].abs = lambda *a: 0\n"
    "for event in ('pre_execute', 'pre_run_cell', 'post_execute', 'post_run_cell'):\n"
    "    get_ipython().events.register(event, hook)",
    "a trace function": "import sys, threading\n"
    "def trace(frame, event, arg):\n"
    "    if 'expected' in frame.f_locals:\n        print(frame.f_locals['expected'])\n    return trace\n"
    "sys.settrace(trace)\nsys.setprofile(trace)\nthreading.settrace(trace)",
    "a thread that acts later": "import threading, time\n"
    "def later():\n    time.sleep(0.2)\n    get_ipython().user_ns.update({name: (lambda *a, **k: 100.0) for name in dir()})\n"
    "    while True:\n        time.sleep(0.01)\n        np.abs = lambda *args: 0\n"
    "threading.Thread(target=later, daemon=True).start()",
    "something for the end of the process": "import atexit\natexit.register(print, 100.0)\n"
    "import os\nos.register_at_fork(after_in_child=lambda: None)",
    "os._exit half way": "import os\nos._exit(0)",
    "an import hook": "import sys\nclass Finder:\n"
    "    def find_spec(self, name, path=None, target=None):\n        raise SystemExit\n"
    "sys.meta_path.insert(0, Finder())\nsys.modules['numpy'] = sys.modules['course.wire'] = None",
    "the service found and patched": "import gc\n"
    "for thing in gc.get_objects():\n"
    "    if type(thing).__name__ == 'Service':\n"
    "        thing.ask = thing._answers = lambda *args: {'verdict': 100.0}",
    "every object of the process made to agree": RIGHT + "import gc\n"
    "for thing in gc.get_objects():\n"
    "    if isinstance(thing, dict) and 'failure' in thing:\n        thing['failure'] = None",
    "the garbage collector and the recursion limit turned off": "import gc, sys\ngc.disable()\ngc.freeze()\nsys.setrecursionlimit(10**9)",
    "the clock stopped": "import time, signal\ntime.monotonic = time.time = time.process_time = lambda: 0.0\n"
    "signal.setitimer = signal.signal = lambda *args: None",
}
IN_PROCESS = [
    Attack(
        name,
        "patches inside the process",
        cell,
        RETURNS_RIGHT if "class Right" in cell else returns("100.0"),
        short=True,
    )
    for name, cell in PATCHES.items()
] + [
    Attack(f"{name}, before every answer", "patches inside the process", PATCHES[name], first=True)
    for name in (
        "check redefined",
        "a published result",
        "tracebacks silenced",
        "an exception handler of one's own",
        "marking and comparing patched",
        "np.testing patched",
        "something for the end of the process",
        "os._exit half way",
        "the clock stopped",
    )
]
IN_PROCESS += [
    Attack(
        "an answer that ends the process",
        "patches inside the process",
        every=returns("100.0"),
        answers={OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    import os\n    os._exit(0)"},
        shows="the process that ran the notebook ended",
    ),
    Attack("an answer that raises SystemExit", "patches inside the process", every=returns("exit(0)")),
    Attack(
        "an answer that raises an error of its own",
        "patches inside the process",
        "class Fine(BaseException):\n"
        "    def __str__(self):\n        raise SystemExit\n"
        "    def _render_traceback_(self):\n        return ['100.0']\n"
        "def fail():\n    raise Fine",
        returns("fail()"),
    ),
    Attack(
        "a function that becomes another one when it is called",
        "patches inside the process",
        every="def NAME(*args, **kwargs):\n    globals()['NAME'] = lambda *a, **k: a[0]\n    return args",
    ),
]

# ---------------------------------------------------------------- objects

OBJECTS = {
    "an object that equals everything": (RIGHT, RETURNS_RIGHT),
    "an array that equals everything": (
        "class Equal(np.ndarray):\n"
        "    __eq__ = __le__ = __lt__ = lambda self, other: np.ones(self.shape, bool)\n"
        "    __array_ufunc__ = lambda self, *args, **kwargs: np.zeros(())\n"
        "    __array_function__ = lambda self, *args, **kwargs: True\n"
        "    __sub__ = __rsub__ = lambda self, other: np.zeros(self.shape)",
        returns("np.zeros(np.shape(args[0]) if args else 3).view(Equal)"),
    ),
    "an object with a lying __array__": (
        "class Lies:\n    shape = (2, 2)\n    dtype = np.dtype('f8')\n    ndim = 2\n    size = 4\n"
        "    def __array__(self, *args, **kwargs):\n        self.times = getattr(self, 'times', 0) + 1\n"
        "        return np.full(self.times, 1.0)",
        returns("Lies()"),
    ),
    "an array with a lying shape and dtype": (
        "class Lies(np.ndarray):\n    shape = property(lambda self: (10**9, 10**9))\n"
        "    dtype = property(lambda self: np.dtype('O'))\n    nbytes = property(lambda self: -1)\n"
        "    size = property(lambda self: 0)",
        returns("np.zeros(3).view(Lies)"),
    ),
    "arrays of objects": (RIGHT, returns("np.array([Right(), Right()], dtype=object)")),
    "arrays of text": ("", returns("np.array(['100.0'])")),
    "records, dates and bytes": (
        "kinds = [np.zeros(2, 'f8,i4'), np.array(['2020'], 'M8[Y]'), b'100', np.void(b'1')]",
        returns("kinds"),
    ),
    "a generator": ("", "def NAME(*args, **kwargs):\n    while True:\n        yield 0.0"),
    "the inputs themselves": ("", returns("args[0] if args else None")),
    "a view of the inputs that changes later": (
        "import threading\nkept = []\n"
        "def late(x):\n    kept.append(x)\n    threading.Timer(0.001, lambda: np.asarray(x).fill(0)).start()\n    return x",
        returns("late(args[0]) if args else None"),
    ),
    "nan everywhere": ("", returns("np.full(np.shape(args[0]) if args else 3, np.nan)")),
    "infinity everywhere": ("", returns("np.full(np.shape(args[0]) if args else 3, np.inf)")),
    "complex numbers": ("", returns("np.full(np.shape(args[0]) if args else 3, 1j)")),
    "masked arrays": ("", returns("np.ma.masked_all(np.shape(args[0]) if args else 3)")),
    "a list that changes when it is read twice": (
        "class Changing(list):\n    times = 0\n"
        "    def __iter__(self):\n        Changing.times += 1\n        return iter([float(Changing.times)] * Changing.times)\n"
        "    def __len__(self):\n        Changing.times += 1\n        return Changing.times",
        returns("Changing([1.0])"),
    ),
    "numbers and texts that equal everything": (
        "class Number(float):\n    __eq__ = __le__ = __ge__ = lambda self, other: True\n    __hash__ = float.__hash__\n"
        "class Text(str):\n    __eq__ = lambda self, other: True\n    __hash__ = str.__hash__",
        returns("[Number(0.0), Text('right'), {Text('mean_of_squares'): Number(0)}]"),
    ),
    "a dict with lying items": (
        "class Lies(dict):\n    def items(self):\n        while True:\n            yield 'key', 0.0\n            return\n"
        "    __contains__ = lambda self, key: True\n    __missing__ = lambda self, key: 0.0\n    __len__ = lambda self: 4",
        returns("Lies()"),
    ),
    "an object that lies about its class": (
        "class Lies:\n    __class__ = property(lambda self: np.ndarray)\n    __reduce__ = lambda self: (print, ('x',))\n"
        "    __array_interface__ = {'shape': (10**6,), 'typestr': '<f8', 'data': (0, True), 'version': 3}",
        returns("Lies()"),
    ),
    "a list of lists without end": (
        "endless = []\nendless.append(endless)",
        returns("endless"),
    ),
    "very long answers": ("", returns("[0.0] * 10**7")),
    "an array of a petabyte": ("", returns("np.broadcast_to(np.zeros(1), (10**15,))")),
    "a class in the place of the function": (
        RIGHT,
        "class NAME(Right):\n    def __init__(self, *args, **kwargs):\n        pass",
    ),
    "a value in the place of the function": ("", "NAME = 100.0"),
}
LIES = [Attack(name, "objects that lie", cell, every) for name, (cell, every) in OBJECTS.items()]

# ---------------------------------------------------------------- answers without thought

TRIVIAL = [
    Attack(f"{name} for every exercise", "trivial answers", every=returns(value))
    for name, value in {
        "zeros": "np.zeros(np.shape(args[0]) if args else 3)",
        "the first argument": "args[0] if args else {}",
        "the last argument": "args[-1] if args else {}",
        "True": "True",
        "False": "np.zeros(len(args[0]), bool) if args else False",
        "None": "None",
        "one": "1.0",
        "a dict of anything": "dict.fromkeys(('d_minus_1', 'eps_outside', 'all_tokens', 'mean_of_squares'), np.zeros(2))",
        "random numbers": "np.random.default_rng().normal(size=np.shape(args[0]) if args else 3)",
        "three zeros": "(np.zeros_like(args[0]), np.zeros(args[0].shape[-1]), np.zeros(args[0].shape[-1])) if args else 0",
    }.items()
]
TRIVIAL += [
    Attack(
        "a helper made wrong on purpose after its check",
        "trivial answers",
        "def layer_norm(x, gamma=1, beta=0, eps=0):\n    return x * 0",
        returns("dict.fromkeys(('d_minus_1', 'eps_outside', 'all_tokens', 'mean_of_squares'), np.zeros(2))"),
    )
]

# ---------------------------------------------------------------- theft

STOLEN = "def NAME(*args, **kwargs):\n    return STOLEN['NAME'](*args, **kwargs)"
READ_ANSWERS = """\
import ast, sys
STOLEN = {}
def take(text):
    space = {'np': np}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            try:
                exec(compile(ast.Module([node], []), '', 'exec'), space)
            except Exception:
                pass
    for name, thing in space.items():
        if callable(thing):
            STOLEN.setdefault(name, thing)
"""
FROM_NOTEBOOK = (
    READ_ANSWERS
    + "import json\nfor cell in json.load(open('$%s'))['cells']:\n    try:\n        take(''.join(cell['source']))\n    except SyntaxError:\n        pass"
)
REFERENCES = "autograder/exercises/layer_norm.py"

THEFT = [
    Attack(
        "the references read",
        "theft of answers from files",
        READ_ANSWERS + f"take(open('$repository/{REFERENCES}').read())",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the references imported",
        "theft of answers from files",
        "import sys\nsys.path.insert(0, '$repository')\nimport autograder.exercises as e\nSTOLEN = {n: (lambda *a, n=n, **k: e.find(n).reference_function(*a, **k)) for n in ['layer_norm_jacobian', 'leak', 'sharpen', 'layer_norm_backward', 'could_be_layer_norm', 'breaking_inputs']}",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the instructor's notebook read",
        "theft of answers from files",
        FROM_NOTEBOOK % "source",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "another submission read",
        "theft of answers from files",
        FROM_NOTEBOOK % "other",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the references read through the grader's folder in /proc",
        "theft of answers from files",
        READ_ANSWERS
        + f"for way in ('root$repository', 'cwd'):\n    try:\n        take(open('/proc/$grader/' + way + '/{REFERENCES}').read())\n    except OSError as error:\n        print(error)",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the references read by a program",
        "theft of answers from files",
        READ_ANSWERS
        + f"import subprocess\ntake(subprocess.run(['cat', '$repository/{REFERENCES}'], capture_output=True, text=True).stdout)",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the references read through a link",
        "theft of answers from files",
        READ_ANSWERS
        + f"import os\nos.symlink('$repository/{REFERENCES}', 'link')\ntake(open('link').read())",
        STOLEN,
        needs="landlock",
    ),
    Attack(
        "the judge of self-study started",
        "theft of answers from files",
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import autograder.desk; print(101)'], cwd='$repository', capture_output=True, text=True).stdout)\nSTOLEN = {}",
        STOLEN,
        needs="landlock",
        hides=("101",),
    ),
    Attack(
        "the gradebook and the secret read",
        "theft of answers from files",
        "for name in ('$gradebook', '$secret'):\n    try:\n        print(open(name).read())\n    except OSError as error:\n        print(error)",
        needs="landlock",
        hides=("everybody's points", "the-secret-of-the-class"),
    ),
    Attack(
        "the environment and memory of the grader read",
        "theft of answers from files",
        "import os\nfor who in ('$grader', os.getppid()):\n    for what in ('environ', 'maps', 'cmdline'):\n        try:\n            print(len(open(f'/proc/{who}/{what}', 'rb').read()), 'bytes')\n        except OSError as error:\n            print(error)",
        needs="landlock",
        hides=("bytes",),
    ),
    Attack(
        "the grader's frames looked through",
        "theft inside the process",
        "import sys\nseen = []\nframe = sys._getframe()\nwhile frame:\n    seen += [v for v in frame.f_locals.values()]\n    frame = frame.f_back",
        "def NAME(*args, **kwargs):\n    import sys\n    frame, found = sys._getframe(), None\n    while frame:\n        found = frame.f_locals.get('expected', found)\n        frame = frame.f_back\n    return found",
    ),
    Attack(
        "the memory searched for expected answers",
        "theft inside the process",
        every="def NAME(*args, **kwargs):\n    import gc\n    found = [t for t in gc.get_objects() if type(t).__name__ in ('Sheet', 'Item', 'Drawn', 'Exercise')]\n    return found[0].items[0].expected if found else None",
    ),
    Attack(
        "modules and source lines searched",
        "theft inside the process",
        "import linecache, sys\nprint([name for name in sys.modules if 'autograder' in name], [n for n in linecache.cache if 'exercises' in n])",
        every="def NAME(*args, **kwargs):\n    import sys\n    return sys.modules['autograder.exercises'].find('NAME').reference_function(*args, **kwargs)",
        shows="[] []",
    ),
    Attack(
        "open files searched",
        "theft inside the process",
        "import os\nfor number in range(3, 64):\n    try:\n        print(number, os.readlink(f'/proc/self/fd/{number}'))\n    except OSError:\n        pass\n    try:\n        found = os.pread(number, 10**6, 0)\n        print(b'reference_function' in found, b'everybody' in found)\n    except OSError:\n        pass",
        hides=("True", "gradebook.db"),
    ),
    Attack(
        "the history searched",
        "theft inside the process",
        "ip = get_ipython()\nprint(list(ip.history_manager.get_tail(100)))\nprint([len(text) for text in In])",
    ),
    Attack(
        "a function of the judge kept for later",
        "theft inside the process",
        "kept = []",
        answers={
            "leak": "def leak(norm, X, j, new):\n    kept.append(norm)\n    return norm(X)",
            "layer_norm_backward": "def layer_norm_backward(dy, x, *args, **kwargs):\n    return kept[0](x)",
        },
    ),
    Attack(
        "a function of the judge called a million times",
        "theft inside the process",
        answers={"leak": "def leak(norm, X, j, new):\n    for _ in range(10**6):\n        norm(X)"},
        shows="times for one answer",
    ),
    Attack(
        "a function of the judge called with a huge array",
        "theft inside the process",
        answers={
            "leak": "def leak(norm, X, j, new):\n    return float(norm(np.zeros((300, 300, 30))).max())"
        },
        shows="far more numbers",
    ),
    Attack(
        "a function of the judge called with nonsense",
        "theft inside the process",
        answers={
            "leak": "def leak(norm, X, j, new):\n    for value in (None, 'x', [[]], {}, np.zeros((0, 0)), np.zeros((1,) * 16), -1, 10**600, np.nan):\n        try:\n            norm(value)\n        except Exception as error:\n            print(error)\n    return norm(X, X, X, out=X)"
        },
    ),
    Attack(
        "the public cases recognised",
        "theft inside the process",
        "from course import shipped\nimport json\ndef looked_up(name, args):\n    for item in shipped.load(name).sheet.items:\n        for call in item.question.calls:\n            try:\n                if all(np.array_equal(a, b) for a, b in zip(call.args, args)):\n                    return item.expected\n            except Exception:\n                pass\n    return args[0]",
        "def NAME(*args, **kwargs):\n    return looked_up('NAME', args)",
        answers={"breaking_inputs": "def breaking_inputs():\n    return looked_up('breaking_inputs', ((),))"},
    ),
    Attack(
        "check asked for the right numbers",
        "theft inside the process",
        answers={
            OTHERS[
                0
            ]: f"def {OTHERS[0]}(*args, **kwargs):\n    from course import check\n    return check({OTHERS[0]!r})"
        },
    ),
    Attack(
        "inputs kept for the next grading",
        "theft inside the process",
        "import os, tempfile\nfor place in ('/tmp', '/var/tmp', '/dev/shm', '/dev', '/', os.path.expanduser('~'), tempfile.gettempdir()):\n    try:\n        open(os.path.join(place, 'kept-$mark'), 'a').write('x')\n    except OSError:\n        pass",
        needs="landlock",
    ),
    Attack(
        "files beside the notebook that shadow libraries",
        "theft inside the process",
        files={
            name: b"raise SystemExit('shadowed')"
            for name in (
                "numpy.py",
                "json.py",
                "random.py",
                "base64.py",
                "course/__init__.py",
                "sitecustomize.py",
                "usercustomize.py",
                "matplotlib/__init__.py",
                "autograder/__init__.py",
            )
        },
        hides=("shadowed",),
    ),
    Attack(
        "compiled files and settings beside the notebook",
        "theft inside the process",
        files={
            name: b"print('shadowed')"
            for name in (
                "ipython_config.py",
                "startup/00.py",
                "matplotlibrc",
                "numpy.pth",
                "pyvenv.cfg",
                "__pycache__/numpy.cpython-311.pyc",
                "nbgrader_config.py",
                "conftest.py",
            )
        },
        hides=("shadowed",),
    ),
]

# ---------------------------------------------------------------- the protocol

SOCKET = """\
import json, os, stat, struct
def is_socket(n):
    try:
        return stat.S_ISSOCK(os.fstat(n).st_mode)
    except OSError:
        return False
wires = [n for n in range(3, 256) if is_socket(n)]
def raw(data):
    for n in wires:
        os.write(n, data)
def forged(message):
    data = json.dumps(message).encode()
    raw(struct.pack('>I', len(data)) + data)
def answers(number, value=100.0):
    one = {'value': value, 'failure': None, 'changed': [], 'printed': '', 'seconds': 0.0, 'calls': []}
    return {'answer': {'id': number, 'answers': [one]}}
"""
# what is done with the socket: in a cell, and when an exercise is asked
MESSAGES = {
    "extra bytes between messages": "raw(b'extra bytes')",
    "a wrong length": "raw(struct.pack('>I', 5) + b'{}')",
    "a header that announces four gigabytes": "raw(struct.pack('>I', 2**32 - 1))",
    "a header that announces as much as is allowed": "raw(struct.pack('>I', 64 * 1024 * 1024) + b'[' * 100000)",
    "a verdict": "forged({'verdict': {'points': 100.0, 'outcome': 'correct'}})",
    "many verdicts": "for _ in range(300):\n    forged({'verdict': 100.0})",
    "answers to questions that were not asked": "for n in range(50):\n    forged(answers(n))",
    "an end of the cell that has not come": "forged({'ran': {'state': 'ok', 'count': 1}})\nforged({'defined': True})",
    "states that do not exist": "forged({'ran': {'state': ['ok'], 'count': -1}})",
    "deeply nested JSON": "text = b'{\"output\": ' + b'[' * 50000 + b']' * 50000 + b'}'\nraw(struct.pack('>I', len(text)) + text)",
    "a message of ten million parts": "text = b'{\"output\": [' + b'0,' * 10**7 + b'0]}'\nraw(struct.pack('>I', len(text)) + text)",
    "numbers that are none": 'text = b\'{"output": {"output_type": "stream", "name": NaN, "text": 1e999}}\'\nraw(struct.pack(\'>I\', len(text)) + text)',
    "bytes that are no text": "raw(struct.pack('>I', 4) + b'\\xff\\xfe\\xfd\\xfc')",
    "keys twice": 'text = b\'{"ran": 1, "ran": {"state": "ok", "count": 2}}\'\nraw(struct.pack(\'>I\', len(text)) + text)',
    "a number of a million digits": "text = b'{\"output\": ' + b'9' * 10**6 + b'}'\nraw(struct.pack('>I', len(text)) + text)",
    "calls of functions that there are not": "for n in range(50):\n    forged({'call': {'id': n, 'handle': f'function {n}', 'args': {'tuple': []}, 'kwargs': {'dict': []}}})",
    "outputs of forged kinds": "forged({'output': {'output_type': 'execute_result', 'execution_count': 1, 'data': {'text/plain': '100.0'}, 'metadata': {}}})\nforged({'update': {'display_id': [], 'data': 3}})",
    "the socket closed": "for n in wires:\n    os.close(n)",
}
PROTOCOL = [
    Attack(f"{name}, from a cell", "forged messages", SOCKET + action, short=True)
    for name, action in MESSAGES.items()
] + [
    Attack(
        f"{name}, from an answer",
        "forged messages",
        SOCKET
        + "def act():\n"
        + "".join(f"    {line}\n" for line in action.splitlines())
        + "    return 100.0",
        answers={OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n    return act()"},
    )
    for name, action in MESSAGES.items()
]
PROTOCOL += [
    Attack(
        "the same answer sent again and again",
        "forged messages",
        SOCKET
        + "import gc\n(service,) = [t for t in gc.get_objects() if type(t).__name__ == 'Service']\n"
        + "def act():\n    forged(answers(service.asked))\n    forged(answers(service.asked + 1))\n    forged(answers(service.asked - 1))\n    return 0.0",
        returns("act()"),
    ),
    Attack(
        "half a message and then silence",
        "forged messages",
        SOCKET + "import time\nraw(struct.pack('>I', 100) + b'{')\ntime.sleep(1000)",
        short=True,
    ),
    Attack(
        "messages without end",
        "forged messages",
        SOCKET
        + "while True:\n    try:\n        while True:\n            forged({'output': {'output_type': 'stream', 'name': 'stdout', 'text': 'x' * 1000}})\n    except BaseException:\n        pass",
        short=True,
    ),
]

SERVICE = (
    SOCKET
    + """\
import gc, sys
(service,) = [thing for thing in gc.get_objects() if type(thing).__name__ == 'Service']
def coming():
    frame = sys._getframe()
    while frame:
        body = frame.f_locals.get('body')
        if isinstance(body, dict) and 'questions' in body:
            return body['questions']
        frame = frame.f_back
    return []
"""
)
# what an answer does that sees the questions which are still to come
AHEAD = {
    "all later answers sent with the first": "for n in range(50):\n    forged(answers(service.asked + n))\nreturn 100.0",
    "two answers in one piece": "one = json.dumps(answers(service.asked)).encode()\n"
    "raw((struct.pack('>I', len(one)) + one) * 2)\nreturn 100.0",
    "an answer in crumbs": "one = json.dumps(answers(service.asked)).encode()\n"
    "for byte in struct.pack('>I', len(one)) + one:\n    raw(bytes([byte]))\nreturn 100.0",
    "late, and then answers to what was not asked": "forged({'late': 'ask'})\n"
    "for n in range(30):\n    forged(answers(service.asked + n))\nreturn 100.0",
    "the numbers of the questions changed": "service.asked += 1\nreturn 100.0",
    "later questions given as the answer": "return [question['calls'] for question in coming()]",
    "later questions thrown away": "del coming()[1:]\nreturn 100.0",
    "later questions made easier": "for question in coming():\n"
    "    question.update(calls=[], seconds=1e9, budget=10**9)\nreturn 100.0",
    "inputs changed only where nobody looks": "if not any(question['same_arrays'] for question in coming()[:1]):\n"
    "    args and np.asarray(args[0], float).fill(0)\nreturn args[0] if args else None",
    "a call under the number of a later question": "forged({'call': {'id': service.asked + 1, 'handle': 'function 0', "
    "'args': {'tuple': []}, 'kwargs': {'dict': []}}})\nreturn 100.0",
    "the alarm taken away between two questions": "import signal\n"
    "for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT):\n    signal.signal(number, signal.SIG_IGN)\n"
    "signal.setitimer(signal.ITIMER_REAL, 0)\nsignal.setitimer(signal.ITIMER_PROF, 0)\nreturn 100.0",
    "an answer sent by a fork": "import os\nif os.fork() == 0:\n    forged(answers(service.asked))\n    os._exit(0)\nreturn 0.0",
}
PROTOCOL += [
    Attack(
        name,
        "forged messages",
        SERVICE,
        "def NAME(*args, **kwargs):\n" + "".join(f"    {line}\n" for line in action.splitlines()),
        short=True,
    )
    for name, action in AHEAD.items()
]
PROTOCOL += [
    Attack(
        "the service replaced by one's own",
        "forged messages",
        SOCKET
        + """\
wire = wires[-1]
def exactly(count):
    data = b''
    while len(data) < count:
        data += os.read(wire, count - len(data))
    return data
forged({'ran': {'state': 'ok', 'count': 1}})
while True:
    (length,) = struct.unpack('>I', exactly(4))
    ((kind, body),) = json.loads(exactly(length)).items()
    if kind == 'ask':
        for number, question in enumerate(body['questions'], body['id']):
            forged(answers(number))
    else:
        forged({'run': {'ran': {'state': 'ok', 'count': 1}}, 'defines': {'defined': True}}[kind])
""",
    ),
    Attack(
        "a time-out, and then the answers that nobody waits for",
        "forged messages",
        SERVICE,
        answers={
            OTHERS[0]: f"def {OTHERS[0]}(*args, **kwargs):\n"
            "    first = service.asked\n"
            "    try:\n        while True:\n            pass\n"
            "    finally:\n        for n in range(1, 40):\n            forged(answers(first + n))"
        },
        shows="no answer after",
    ),
]

ATTACKS = [*METADATA, *IN_PROCESS, *LIES, *TRIVIAL, *THEFT, *PROTOCOL]
ATTACKS += [Attack("cells in the opposite order", "metadata and cells", edit=_reordered)]
