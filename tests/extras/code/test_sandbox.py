"""The sandbox seen from the parent: values, verdicts, what is refused, and that all of it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from s3dlm.errors import SandboxError, SettingsError
from s3dlm.extras.code.sandbox import CodeResult, Sandbox, SandboxLimits
from s3dlm.extras.code.sandbox.confine import MECHANISMS
from s3dlm.extras.code.sandbox.runner import PROTECTIONS, UNSAFE
from s3dlm.extras.code.sandbox.values import decode, encode, equal_values
from tests.extras.code import needs_sandbox
from tests.extras.code.hostile import processes, with_command_line

# Nothing here takes long; a busy machine may.
PATIENT = SandboxLimits(seconds=60)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(PATIENT)) as one:
        if missing := one.missing():
            pytest.skip(f"this machine does not offer {missing}")
        yield one


VALUES = [
    None, True, 0, -7, 10**40, -(10**5000), 1.5, float("inf"), 1 + 2j, "é\ud800\n", b"\x00\xff",
    [], [1, [2, [3]]], (1,), ((), [()]), {1, 2}, frozenset({"a"}), {"b": 1, "a": [2]}, {(1, 2): {3: None}},
]  # fmt: skip


@pytest.mark.parametrize(
    "value", VALUES, ids=lambda value: repr(value)[:30] if value != VALUES[5] else "big"
)
def test_plain_values_cross_the_wall_unchanged(value: object) -> None:
    back = decode(encode(value), resolve=lambda ref: None)
    assert back == value
    assert type(back) is type(value)
    assert equal_values(encode(value), encode(back))


def test_what_is_the_same_and_what_is_not() -> None:
    left, right = encode({"b": 1, "a": 2}), encode({"a": 2, "b": 1})
    assert left != right  # the order is kept, and does not count
    assert equal_values(left, right)
    assert list(decode(left, resolve=lambda ref: None)) == ["b", "a"]  # type: ignore[call-overload]
    assert equal_values(encode(0.1 + 0.2), encode(0.3))
    for one, other in [(1, 2), ([1], (1,)), ([1], [1, 2]), ("1", 1), ({1: 2}, {1: 3}), (None, 0)]:
        assert not equal_values(encode(one), encode(other))


def test_expressions_are_evaluated_in_order(sandbox: Sandbox) -> None:
    source = (
        "import math\nseen = []\ndef f(x):\n    seen.append(x)\n    return math.sqrt(x), len(seen)"
    )
    values = sandbox.evaluate(source, ["f(4)", "f(9)", "f(-1)", "f(16)"])
    assert values[0] == CodeResult({"tuple": [2.0, 1]})
    assert values[1] == CodeResult({"tuple": [3.0, 2]})
    assert values[2].error == "ValueError: math domain error"
    assert values[2].line == 5
    assert values[3].ok


def test_a_program_may_ask_about_its_own_descriptors_and_limits(sandbox: Sandbox) -> None:
    """The filter narrows these system calls; it does not refuse them."""
    source = "import os, resource"
    asked = ["os.get_blocking(0)", "os.get_terminal_size(0)", "resource.getrlimit(7)[0]"]
    blocking, terminal, files = sandbox.evaluate(source, asked)
    assert blocking.ok
    assert "Inappropriate ioctl" in terminal.error  # and not: not permitted
    assert files == CodeResult(sandbox.limits.open_files)


def test_a_program_that_does_not_load_has_no_values(sandbox: Sandbox) -> None:
    outcomes = sandbox.evaluate("import numpy", ["1", "2"])
    assert [one.error for one in outcomes] == ["ModuleNotFoundError: No module named 'numpy'"] * 2
    assert sandbox.evaluate("def f(:", ["1"])[0].error.startswith("SyntaxError")
    assert sandbox.evaluate("x = 1", []) == []


def test_what_was_computed_before_the_time_ran_out_is_kept(sandbox: Sandbox) -> None:
    source = "import time\ndef f(x):\n    while x: time.sleep(1)\n    return x"
    outcomes = sandbox.evaluate(source, ["f(0)", "f(1)", "f(0)"], seconds=2.0)
    assert [one.error for one in outcomes] == ["", "took too long", "took too long"]


@needs_sandbox
def test_results_have_a_bound() -> None:
    with closing(Sandbox(SandboxLimits(output_bytes=1000, seconds=60))) as one:
        outcomes = one.evaluate("", ["'x' * 400", "'x' * 400", "'x' * 400", "1"])
    assert [outcome.error for outcome in outcomes] == ["", "", *["returned too much"] * 2]


NODE = "class Node:\n    def __init__(self, v): self.v, self.next = v, None\n"
TOTAL = "def total(n): return n.v + (total(n.next) if n.next else 0)"
LINKED = "a = Node(1)\na.next = Node(2)\nassert total(a) == 3\nassert a.next.v == 2"


@pytest.mark.parametrize(
    ("source", "tests", "passed"),
    [
        ("def f(x): return x + 1", "assert f(1) == 2", True),
        ("def f(x): return x + 1", "assert f(1) == 3", False),
        ("def f(x): return x + 1", "", True),
        ("def g(x): return x + 1", "assert f(1) == 2", False),  # no such function
        ("def f(x): x.append(1)", "y = [0]\nf(y)\nassert y == [0, 1]", True),  # in place
        ("def f(x): x['b'] = 1", "y = {'a': 0}\nf(y)\nassert list(y) == ['a', 'b']", True),
        ("def f(x):\n    yield x\n    yield 2", "assert list(f(1)) == [1, 2]", True),
        ("def f(x): raise KeyError(x)", "try: f(1)\nexcept KeyError: pass\nelse: raise Exception", True),
        ("def f(x): return {1: (2, {3})}", "assert f(0) == {1: (2, {3})}", True),
        ("def f(*, key=1): return key", "assert f(key=[2]) == [2]", True),
        ("def f(x): raise StopIteration", "assert list(map(f, [1])) == []", False),
        ("import os\ndef f(x): os._exit(0)", "try: f(1)\nexcept: pass", False),  # gone is not passed
        ("class f:\n    def __init__(self, x): self.x = x", "y = f(3)\ny.x += 1\nassert y.x == 4", True),
        ("class f:\n    def __init__(self, x): self.x = x", "assert f(1) == f(1)", False),
        (NODE + TOTAL, LINKED, True),  # its objects can be handed back to it
    ],
)  # fmt: skip
def test_verdicts(sandbox: Sandbox, source: str, tests: str, passed: bool) -> None:
    remote = ["Node", "total"] if source.startswith(NODE) else ["f"]
    assert sandbox.test(source, tests, remote=remote).passed is passed


def test_the_names_of_the_setup_belong_to_the_tests(sandbox: Sandbox) -> None:
    source = "def helper(x): return 0\ndef f(x): return 7"
    setup = "def helper(x): return 7\ndef f(x): pass"
    assert sandbox.test(source, "assert f(1) == helper(1)", setup=setup, remote=["f"]).passed


def test_draws_and_hashes_are_the_same_every_time(sandbox: Sandbox) -> None:
    source = "import random\ndef f(): return [random.random() for _ in range(3)], list({'a', 'b', 'c', 'd'})"
    first = sandbox.evaluate(source, ["f()"])
    assert first[0].ok
    assert first == sandbox.evaluate(source, ["f()"])


def test_a_launcher_that_was_killed_is_replaced(sandbox: Sandbox) -> None:
    killed = sandbox._running().process
    killed.kill()
    killed.wait()
    assert sandbox.evaluate("", ["1 + 1"]) == [CodeResult(2)]


@pytest.mark.parametrize(
    ("without", "missing"),
    [(MECHANISMS, set(PROTECTIONS)), (("seccomp",), {"no dangerous system calls"})],
)
def test_a_missing_protection_is_named_and_refused(
    without: tuple[str, ...], missing: set[str]
) -> None:
    with closing(Sandbox(without=without)) as bare:
        assert missing <= set(bare.missing())
        words = r"no dangerous system calls .*seccomp: switched off.*allow_unprotected"
        for call in (lambda: bare.evaluate("", ["1"]), lambda: bare.test("", "")):
            with pytest.raises(SandboxError, match=words):
                call()


def test_the_risk_can_be_accepted_and_closing_ends_the_launcher() -> None:
    bare = Sandbox(PATIENT, without=MECHANISMS, allow_unprotected=True)
    assert bare.evaluate("", ["1 + 1", "[0] * 10 ** 12"])[0] == CodeResult(2)
    assert bare.evaluate("while True: pass", ["1"], seconds=0.3)[0].error == "took too long"
    process = bare._running().process
    bare.close()
    assert process.returncode == 0
    bare.close()


def test_without_a_filter_the_namespace_still_ends_everything() -> None:
    source = "import os, time\ndef f():\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)\n    return 1"
    with closing(Sandbox(PATIENT, without=("seccomp",), allow_unprotected=True)) as one:
        if "namespaces" in one._running().off:
            pytest.skip("this machine has no namespaces")
        assert one.evaluate(source, ["f()"]) == [CodeResult(1)]
        assert processes(one) == []


def test_nothing_outlives_a_parent_that_is_killed(sandbox: Sandbox) -> None:
    code = (
        "from s3dlm.extras.code.sandbox import SandboxLimits, Sandbox\n"
        "s = Sandbox(SandboxLimits(seconds=60))\n"
        "print(s._running().process.pid, flush=True)\n"
        "s.evaluate('while True: pass', ['1'])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    launcher = Path(f"/proc/{parent.stdout.readline().strip()}")
    line = (launcher / "cmdline").read_bytes()
    until(lambda: len(with_command_line(line)) >= 3)  # launcher, supervisor and confined process
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not with_command_line(line))


def until(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 900
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_descriptor_is_lost(sandbox: Sandbox) -> None:
    sandbox.evaluate("", ["1"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        sandbox.evaluate("", ["1"])
        sandbox.test("def f(): pass", "f()", remote=["f"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("value", ["1", "0"])
def test_the_environment_can_accept_the_risk(value: str) -> None:
    code = "from s3dlm.extras.code.sandbox import shared; print(int(shared().allow_unprotected))"
    environment = {**os.environ, UNSAFE: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == value


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"seconds": 1e9}, {"memory_mb": 1}, {"threads": 0}]
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="is not allowed"):
        SandboxLimits(**limits)  # type: ignore[arg-type]
