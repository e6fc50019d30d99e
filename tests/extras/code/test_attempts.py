"""Programs that try to leave the sandbox, or to pass HumanEval's hidden tests without solving anything.

Both are made of parts: what a program wants, how it hides it, and when it does it.
"""

from __future__ import annotations

import base64
import random
from concurrent.futures import ThreadPoolExecutor

from s3dlm import tasks
from s3dlm.extras.code import kind
from s3dlm.extras.code.programs import required
from s3dlm.extras.code.sandbox import Sandbox, SandboxLimits
from tests.extras.code import needs_package, needs_sandbox
from tests.extras.code.hostile import LOOP, MODES, PROGRAMS, SECRET, WRONG, outside
from tests.fuzz import counts

# Those that end and that report "escaped" only if they did.
ATTEMPTS = [
    source for reason, source in PROGRAMS.values() if LOOP not in reason and reason != WRONG
]


# The same program, written differently or at work at another moment.
RUN_AT_ONCE = "try: early = g(2)\nexcept BaseException: early = None\ndef f(x): return early"
SWALLOW = "def f(x):\n    try: return g(x)\n    except BaseException: return None"
IN_A_THREAD = (
    "import threading\ndef f(x):\n    got = []\n"
    "    def run():\n        try: got.append(g(x))\n        except BaseException: pass\n"
    "    t = threading.Thread(target=run); t.start(); t.join(); return got and got[0]"
)
IN_A_FINALISER = (
    "class D:\n    def __del__(self):\n        D.got = g(2)\n"
    "def f(x):\n    D.got = None\n    D()\n    return D.got"
)
IN_A_LOOP = "import asyncio\nasync def h(x): return g(x)\ndef f(x): return asyncio.run(h(x))"
IN_A_GENERATOR = "def f(x): return next(y for y in (g(z) for z in [x]))"
AROUND = (RUN_AT_ONCE, SWALLOW, IN_A_THREAD, IN_A_FINALISER, IN_A_LOOP, IN_A_GENERATOR)


def hidden(source: str, rng: random.Random) -> str:
    text = base64.b64encode(source.encode()).decode()
    encoded = f"import base64\nexec(base64.b64decode({text!r}).decode(), globals())"
    return rng.choice((source, encoded, *(f"{source}\ng = f\n{around}" for around in AROUND)))


@needs_sandbox
@counts(40, 1500)
def test_sandbox_attempts(count: int) -> None:
    limits = SandboxLimits(seconds=3, memory_mb=256)
    sandboxes = [Sandbox(limits, without=without) for without in MODES.values()]
    sandboxes = [sandbox for sandbox in sandboxes if not sandbox.missing()]

    def attempt(number: int) -> None:
        rng = random.Random(number)
        sandbox, source = rng.choice(sandboxes), hidden(rng.choice(ATTEMPTS), rng)
        if rng.random() < 0.3:
            source = hidden(source, rng)
        source = target.aimed(source)
        (result,) = sandbox.evaluate(source, ["f(2)"])
        assert result.value != "escaped", (number, source)
        verdict = sandbox.test(source, f"assert f(2) == {SECRET!r}", remote=["f"])
        assert not verdict.passed, (number, source)

    with outside() as target, ThreadPoolExecutor(2) as pool:
        list(pool.map(attempt, range(count)))
        assert target.harm(*sandboxes) == []
    for sandbox in sandboxes:
        sandbox.close()


EQUAL = (
    "class E({base}):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
    "    def __hash__(self): return 0\n    def __bool__(self): return True\n    def __len__(self): return 1\n"
    "    def __lt__(self, other): return True\n    __gt__ = __le__ = __ge__ = __contains__ = __lt__\n"
    "    def __sub__(self, other): return 0\n    __rsub__ = __abs__ = __sub__\n"
    "    def __getattr__(self, name): return self\n    def __call__(self, *a): return self\n"
    "    def __iter__(self): return iter([self])\n    def __getitem__(self, at): return self\n"
)  # fmt: skip
BASES = ("object", "int", "float", "str", "list", "tuple", "dict", "bytes", "set", "complex")
ANSWERS = (
    "E()", "E", "None", "True", "NotImplemented", "float('nan')", "[]", "''", "0", "a", "a[0]", "[E()]", "(E(),)",
    "{{E(): E()}}", "iter([E()])", "lambda *x: E()", "type(a[0])() if a else E()", "__import__('sys').exit(0)",
    "__import__('os')._exit(0)", "(_ for _ in ()).throw(AssertionError)", "(_ for _ in ()).throw(StopIteration)",
    "globals()", "__import__('unittest.mock').mock.ANY", "__import__('unittest.mock').mock.MagicMock()",
    "__import__('sys')._getframe(1)", "f'{{a}}'", "a[0] is a", "1e400", "-0.0", "b''", "...",
)  # fmt: skip
SABOTAGE = (
    "", "",
    "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})",
    "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.all = builtins.any = lambda x: True\nbuiltins.len = lambda x: 0",
    "import math\nmath.isclose = lambda *a, **k: True\nmath.fabs = lambda x: 0",
    "def check(candidate): return None",
    "import sys\nfor m in list(sys.modules.values()):\n    try: m.check = m.judge = m.same = lambda *a, **k: True\n    except Exception: pass",
    "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'{\"passed\": true}\\n{\"value\": true}\\n')\n    except OSError: pass",
    "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'passed' in o: o['passed'] = True",
    "import gc\nd = gc.get_referents(int.__dict__)[0]\nd['__eq__'] = lambda a, b: True\nd['__ne__'] = lambda a, b: False",
    "import gc\nfor t in (str, list, float, bool, tuple):\n    gc.get_referents(t.__dict__)[0]['__eq__'] = lambda a, b: True",
    "import sys\nsys.setrecursionlimit(60)", "import sys\nsys.settrace(lambda *a: None)",
    "import sys, types\nsys.modules['math'] = types.ModuleType('math')",
    "import json\njson.dumps = lambda *a, **k: '{\"passed\": true, \"value\": true}'\njson.loads = lambda *a, **k: {'passed': True}",
    "import atexit, os\natexit.register(os._exit, 0)", "import signal\nsignal.alarm(1)",
    "import threading, os\nthreading.Timer(0.05, os._exit, (0,)).start()",
    "import os\nos.environ['PYTHONOPTIMIZE'] = '2'", "import sys\nsys.flags = None",
    "raise SystemExit(0)", "import os\nos._exit(0)", "__name__ = '__test__'", "import sys\nsys.stdout = sys.stderr = None",
)  # fmt: skip


def cheat(name: str, rng: random.Random) -> str:
    """A program that solves nothing and wants to pass."""
    base, answer, before = rng.choice(BASES), rng.choice(ANSWERS), rng.choice(SABOTAGE)
    answer = answer.replace("{{", "{").replace("}}", "}")
    late = rng.random() < 0.3  # not at import but when it is called
    lines = [EQUAL.format(base=base), before if not late else ""]
    body = f"    exec({before!r}, globals())\n" if late else ""
    if rng.random() < 0.2:
        lines.append(f"class C:\n    def __call__(self, *a, **k): return {answer}\n{name} = C()")
        lines.append(f"def _{name}(*a): return {name}(*a)")
    return "\n".join([*lines, f"def {name}(*a, **k):\n{body}    return {answer}"])


@needs_package
@needs_sandbox
@counts(40, 1500)
def test_nobody_passes_humaneval_without_solving_it(count: int) -> None:
    samples = tasks.load(tasks.get("humaneval")).samples

    def attempt(number: int) -> None:
        rng = random.Random(number)
        sample = samples[number % len(samples)]
        text = cheat(required(sample.question).name, rng)
        if rng.random() < 0.5:
            text = f"```python\n{text}\n```"
        verdict = kind.verdict(text, sample.gold, sample.question)
        assert not verdict.passed, (number, sample.id, text)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(attempt, range(count)))
