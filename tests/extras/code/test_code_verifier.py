"""The verifier of code: each check moves the score the way it should, names its doubt, runs little."""

from __future__ import annotations

import pytest

from s3dlm.errors import VerifierError
from s3dlm.extras.code import tasks as task
from s3dlm.extras.code.examples import Example, examples
from s3dlm.extras.code.sandbox import Sandbox, SandboxLimits
from s3dlm.extras.code.verifier import CodeVerifier
from s3dlm.verifier import HOLE, as_verifier, for_task
from s3dlm.verifier.base import takes_many, wanted
from tests.extras.code import needs_package, needs_sandbox

pytestmark = needs_sandbox

HEAD = 'def double(x: int) -> int:\n    """Twice x.\n    >>> double(2)\n    4\n    >>> double(-3)\n    -6\n    """\n'
PROSE = "Write a function to double.\nYour code should pass this test:\nassert double(2) == 4"
RIGHT, WRONG = "    return 2 * x", "    return x * x"


@pytest.fixture
def verifier() -> CodeVerifier:
    return CodeVerifier(Sandbox(SandboxLimits(seconds=4.0)), seconds=4.0)


def test_it_is_found_by_its_name() -> None:
    assert for_task("code", "checker") is for_task("code", "paper") is as_verifier("code")


@pytest.mark.parametrize(
    ("question", "parameters", "value"),
    [
        (HEAD, "x", 1.0),
        (HEAD, "y", 0.5),  # as many of another name
        (HEAD, "x, y=1", 0.5),
        (HEAD, "*all", 0.5),
        (HEAD, "", 0.0),
        (HEAD, "x, y", 0.0),
        (HEAD, "y, *, z", 0.0),
        (PROSE, "x", 1.0),
        (PROSE, "x, y", 0.0),  # the example gives it one
        ("Write a function `double`.", "x, y", 1.0),  # nothing says how many
    ],
)
def test_a_function_is_judged_by_the_parameters_that_it_takes(
    verifier: CodeVerifier, question: str, parameters: str, value: float
) -> None:
    text = f"def double({parameters}):\n    return 4\n"
    assert verifier.score(question, text).parts["signature"] == value


@pytest.mark.parametrize("text", ["    return 2 *", "    if x:", "    return 2 *\n"])
def test_a_doubt_at_the_end_of_a_line_is_its_last_character(
    verifier: CodeVerifier, text: str
) -> None:
    end = len(text.rstrip())
    assert [*verifier.score(HEAD, text).spans] == [(end - 1, end)]


def test_texts_are_ranked_as_they_should_be(verifier: CodeVerifier) -> None:
    texts = [
        RIGHT,
        WRONG,  # right for one of two examples
        "    return 3 * x",  # runs, but is wrong
        "    return 2 * y",  # an undefined name
        "def double():\n    return 4",  # other parameters
        "Twice the number is easy to compute.",
    ]
    totals = [verifier.score(HEAD, text, 0.5).total for text in texts]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals)
    assert all(0 <= total <= 1 for total in totals)
    assert verifier.score(HEAD, RIGHT).total == 1.0
    assert verifier.score(HEAD, "").total == 0.0


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (RIGHT, []),
        ("    return 2 * y", ["y"]),
        ("    y = x\n    return 2 * y + z - zz", ["z", "zz"]),
        ("```python\ndef double(x):\n    return 2 * x x\n```", ["x"]),
        ("    y = (x\n    return y", ["(x"]),
        ("    s = 'ééé' + z", ["z"]),  # columns are characters, not bytes
        ("    s = '\x0b\x1c\x85\u2028'\n    return z", ["z"]),  # these end no line
        ("def double():\n    return 4", ["def double"]),
        ("    y = [x]\n    return y[1]", ["return y[1]"]),  # raised when it ran
        ("def double(x):\n    a = 1\n\n\n    b = = 2\n    return a\n", ["= 2"]),
    ],
)
def test_it_names_the_characters_in_doubt(
    verifier: CodeVerifier, text: str, doubt: list[str]
) -> None:
    spans = verifier.score(HEAD, text).spans
    assert [text[start:end] for start, end in spans] == doubt


@pytest.mark.parametrize(
    "body",
    [
        "    return sum([x for _ in range(2)])",
        "    def inner():\n        nonlocal x\n        x += x\n    inner()\n    return x",
        "    import operator as op\n    return op.mul(2, x)",
        "    try:\n        return 2 * x\n    except Exception as error:\n        raise error",
        "    return (lambda a, *b, **c: a + a)(x)",
        "    if (y := x):\n        pass\n    return y + y",
        "    class C:\n        two = 2\n        def get(self): return C.two\n    return C().get() * x",
        "    global total\n    total = x\n    return total + total",
        "    return double.__name__ and 2 * x",
        "    match x:\n        case int(y): return 2 * y",
        "    del_ = [x]\n    for y in del_: pass\n    return 2 * y",
        "from math import *\ndef double(x):\n    return int(floor(2 * x))",
    ],
)
def test_defined_names_are_not_doubted(verifier: CodeVerifier, body: str) -> None:
    score = verifier.score(HEAD, body)
    assert (score.total, score.spans) == (1.0, ())


def test_a_text_is_scored_by_the_share_that_parses(verifier: CodeVerifier) -> None:
    whole = "def double(x):\n    a = x\n    b = a\n    c = b\n    return a + c"
    texts = (whole, whole + "\n    d = (", "def double(x")
    parts = [verifier.score(HEAD, text).parts["parses"] for text in texts]
    assert parts[0] == 1.0
    assert 0.3 < parts[1] < 0.5
    assert parts[2] == 0.0


ADD = "def add(a, b):\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (f"{ADD}    if a:\n        {HOLE}", True),
        (f"{ADD}    return (a +\n{HOLE}", True),
        (f'{ADD}    """Adds\n{HOLE}', True),
        (f"def add(a, b)\n    return{HOLE}", False),
        (f"{ADD}    x = = 1\n{HOLE}", False),
        (f"{ADD}    x = = {HOLE}", True),  # the line is not whole
        (f"    return a +* b\n{HOLE}", False),
        (f"    return a + b\n{HOLE}", True),
        (f"Here is the function:\n{HOLE}", True),  # no code yet
        (f"```python\n{ADD}    return a + b\n```\nIt {HOLE}", True),
        (f"{ADD}{'(' * 5000}\n{HOLE}", False),
        (f"{ADD}    return a + b\n", True),
    ],
)
def test_a_partial_text_is_wrong_when_no_line_can_mend_it(
    verifier: CodeVerifier, text: str, right: bool
) -> None:
    assert verifier.score_partial(ADD, text).total == (1.0 if right else 0.5)
    if not right:  # and the whole text that it may become is judged alike
        assert verifier.score(ADD, text.replace(HOLE, "a")).parts["parses"] < 1.0


def test_examples_are_read_from_many_notations() -> None:
    text = (
        'def f(a, b=0):\n    """\n    >>> f([1,\\n2]) # not on one line\n    >>> f(1, 2)\n    3\n'
        "    f(2) == 4\n    f('a(') => \"x\"\n    f([]) ➞ []\n    f(3) -> 9.\n    f(4) returns None\n"
        "    f(5) should return {'k': (1,)}.\n    f(6) = true\n    f(\n      7) == 8\n    f(x) == 1\n"
        '    f(9) == 1 + 2 = 3\n    """\n'
    )
    assert {one.expression: one.expected for one in examples(text)} == {
        "f(1, 2)": 3,
        "f(2)": 4,
        "f('a(')": "x",
        "f([])": [],
        "f(3)": 9,
        "f(4)": None,
        "f(5)": {"dict": [["k", {"tuple": [1]}]]},
        "f(6)": True,
        "f(7)": 8,
    }
    assert examples(PROSE) == (Example("double(2)", 4),)
    assert examples("assert math.isclose(f(1), 2)") == ()  # needs what only the tests import
    assert examples("What is 1 + 1?") == ()


def test_a_batch_is_scored_as_each_text_alone(verifier: CodeVerifier) -> None:
    rows = [(HEAD, RIGHT, 0.1), (PROSE, RIGHT, 0.2), (HEAD, "    return x * x", None)]
    prompts, texts, confidences = zip(*rows, strict=True)
    assert verifier.score_batch(prompts, texts, confidences) == [verifier.score(*r) for r in rows]
    assert takes_many(verifier)  # so that a server does not wait for its programs


def test_a_program_runs_once_however_it_is_wrapped(verifier: CodeVerifier) -> None:
    whole = f"def double(x):\n{RIGHT}"
    for text in (
        whole,
        f"Sure:\n```python\n{whole}\n```",
        f"{whole}\n```\nok",
        f"Hi!\n\n{whole}\n\nBye.",
    ):
        verifier.score(HEAD, text, 0.3)
        verifier.score(HEAD, text, 0.7)
    assert verifier.executed == 1


def test_what_cannot_work_is_not_run(verifier: CodeVerifier) -> None:
    for text in ("", "prose", "    return y", "def double():\n    return 1", "    return ("):
        verifier.score(HEAD, text)
    verifier.score("def f(x):\n", "    return x")  # nothing to try it on
    assert verifier.executed == 0


def test_a_program_that_never_ends_costs_its_time_once() -> None:
    verifier = CodeVerifier(seconds=0.5)
    for text in ("    while True: pass", "    while True: pass\n"):
        assert verifier.score(HEAD, text).parts["examples"] == 0.0
    assert verifier.executed == 1


ODD = {
    "deep minus": "    return " + "-" * 9000 + "1",
    "deep lambda": "    return " + "lambda:" * 2500 + "1",
    "deep attribute": "    return x" + ".a" * 9000,
    "long sum": "    return " + "1+" * 9000 + "1",
    "long condition": "    if x: pass\n" + "    elif x: pass\n" * 1200,
    "huge number": "    return " + "9" * 19000,
    "huge constant": "    return 'a' * 10 ** 9",
    "many parameters": "def double(" + ",".join(f"a{i}" for i in range(3000)) + "): pass",
    "same parameter twice": "def double(x, x): pass",
    "nonlocal": "    nonlocal x",
    "yield outside": "def double(x): return 4\nx = yield",
    "tabs and spaces": "\tif x:\n        return 4",
    "null": "    return '\0'",
    "lone carriage return": "def double(x):\r    return z",
    "surrogate": "    return '\ud800'",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_texts_get_a_score(text: str) -> None:
    score = CodeVerifier(seconds=0.5).score(HEAD, text)
    assert 0 <= score.total < 1
    assert all(0 <= start < end <= len(text) for start, end in score.spans)


@needs_package
def test_reference_solutions_look_good_and_stubs_do_not() -> None:
    verifier = for_task("code")
    for row in list(task.from_package())[::16]:
        prompt = str(row["prompt"])
        good = verifier.score(prompt, str(row["canonical_solution"])).total
        stub = verifier.score(prompt, "    return 'stub'").total
        assert good > stub if examples(prompt) else good >= stub


def test_no_program_is_run_for_nobody(verifier: CodeVerifier) -> None:
    """A batch of looping programs ends with the first of them if nobody waits for it any more."""
    token = wanted.set(lambda: verifier.executed < 1)
    try:
        with pytest.raises(VerifierError, match="nobody waits"):
            verifier.score_batch([HEAD] * 3, [RIGHT, WRONG, "    return 3 * x"], [None] * 3)
    finally:
        wanted.reset(token)
    assert verifier.executed == 1
