"""From text to program: every step of docs/appendix/code.md, and texts that are not code at all."""

from __future__ import annotations

import time

import pytest

from s3dlm import answers
from s3dlm.extras.code.programs import canonical, program, required, source_in, tree_of

HEAD = 'import math\n\n\ndef helper(x):\n    return x\n\n\ndef area(r: float) -> float:\n    """Area of a circle.\n    >>> area(0)\n    0.0\n    """\n'
PROSE = (
    "Write a function to add two numbers.\nYour code should pass this test:\nassert add(1, 2) == 3"
)
WHOLE = "def area(r):\n    return math.pi * r ** 2"
BODY = "    return math.pi * r ** 2"


def lines(source: str | None) -> list[str]:
    return [line for line in (source or "").splitlines() if line.strip()]


def test_what_a_question_requires() -> None:
    wanted = required(HEAD)
    assert wanted.before.endswith("return x\n\n\n")
    assert wanted.head.startswith("def area(r")
    for question, name in (
        (HEAD, "area"),
        (f"Complete this:\n```python\n{HEAD}```\nThanks.", "area"),
        (PROSE, "add"),
        ("assert set(f(1)) == {1}", "f"),
        ("assert math.isclose(g(1), 1)", "g"),
        ("assert sum(10, 15) == 6", "sum"),
        ("What is 1 + 1?", ""),
    ):
        assert required(question).name == name


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        BODY,
        BODY.strip(),  # the first line lost its indentation
        f"```python\n{WHOLE}\n```",
        f"```\n{WHOLE}\n```",
        f"~~~python\n{WHOLE}\n~~~",
        f"```python\n{WHOLE}",  # never closed
        f"{WHOLE}\n```\nThis works.",  # opened by the prompt
        f"Sure! Here is the function:\n\n```python\n{WHOLE}\n```\nIt uses pi.",
        f"Sure! Here is the function:\n\n{WHOLE}\n\nIt uses pi.",
        f"import the module first, then\n\n{WHOLE}",  # prose that looks like code
        f"First an example:\n```python\nprint(area(1))\n```\nand the function:\n```python\n{WHOLE}\n```",
        f"{WHOLE}\n```\nUsage:\n```python\nprint(area(2))\n```",
        "- the code:\n  ```python\n  def area(r):\n      return math.pi * r ** 2\n  ```",
        f"{WHOLE}\n\nprint(area(1))\nassert area(0) == 0\nif __name__ == '__main__':\n    input()",
        f"{BODY}\n\nprint(area(1))\n\ndef other():\n    pass",
        f"{WHOLE}<|endoftext|><|endoftext|>",
        f"{BODY}<|eot_id|>and then garbage def area(",
        f"[BEGIN]\n{WHOLE}\n[DONE]\nanother task",
        WHOLE.replace("\n", "\r\n"),
    ],
)
def test_all_these_hold_the_same_function(text: str) -> None:
    found = source_in(text, HEAD)
    assert tree_of(found) is not None
    # What the question gives is in front.
    assert (lines(found)[0], lines(found)[-1]) == ("import math", BODY)
    assert "def helper" in found
    assert not any(word in found for word in ("print(", "input("))


@pytest.mark.parametrize("text", ["", "   \n\t", "<|endoftext|>", "```python\n```", "```"])
def test_no_code_is_no_program(text: str) -> None:
    assert source_in(text, HEAD) is None
    assert answers.extract("code", text, HEAD) is None


def test_a_question_without_code_needs_a_whole_function() -> None:
    whole = "def add(a, b):\n    return a + b\n"
    assert source_in("I do not know.", PROSE) is None
    assert source_in(f"Well:\n{whole}", PROSE) == whole
    assert lines(source_in(whole.replace("add", "plus"), PROSE))[0].startswith("def plus")
    assert lines(source_in(f"import os\nX = 1\n@dec\n{whole}", PROSE))[0] == "import os"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("import os\n\ndef add(a, b):\n    return a + b", "import os"),  # code in front parses
        ("from now on (\n\ndef add(a, b):\n    return a + b", "def add(a, b):"),  # prose does not
        ("import it with\nimport os\ndef add(a, b):\n    return a + b", "import os"),
        ("def add(a, b):\n    return a + b +", "def add(a, b):"),  # nothing in front to parse
        ("@cache\ndef add(a, b):\n    return a + b", "@cache"),
    ],
)
def test_a_program_begins_with_the_first_line_from_which_all_in_front_of_it_parses(
    text: str, first: str
) -> None:
    found = program(text, PROSE)
    assert lines(found.attempted)[0] == first


def test_the_longest_part_that_parses_is_kept() -> None:
    whole = "def add(a, b):\n    c = a + b\n    return c"
    found = program(f"{whole}\n\nThis is how it works (more or less", PROSE)
    assert lines(found.source) == whole.split("\n")
    assert not found.whole
    assert 0.5 < found.share < 1
    assert lines(source_in(f"{whole} +", PROSE)) == whole.split("\n")[:2]


@pytest.mark.parametrize(
    "text",
    [
        f"Sure:\n```python\n{WHOLE}\n```",
        BODY,
        BODY.strip(),
        "x\n  def area(r):\n      return math.pi",
    ],
)
def test_positions_lead_back_to_the_text(text: str) -> None:
    found = program(text, HEAD)
    tree = tree_of(found.source)
    value = tree.body[-1].body[-1].value  # type: ignore[attr-defined]
    start = found.position(value.lineno, value.col_offset)
    assert text[start:].startswith("math.pi")
    assert found.position(1) is None or found.given == 0


def test_layout_comments_and_docstrings_make_no_difference() -> None:
    one = 'def f(x):\n    """Doc."""\n    # comment\n    return (x+1)\n'
    assert canonical(one) == canonical("def f(x):\n\n    return x + 1")
    assert canonical(one) != canonical("def f(x):\n    return x + 2")
    assert canonical("def f(x:\n\n  1") == "def f(x:\n  1"
    assert answers.normalise("code", one) == canonical(one)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000,
        "-" * 20_000 + "1",
        "def area(r):\n" + "\n".join(f"{' ' * i}if r:" for i in range(4, 400)),
        "def area(r):\n    return " + "[" * 150 + "]" * 150,
        "x = (\n" * 5000,
        "```\n" * 5000,
        "def area(r):\n    return '\\d \x00'",
        "def area(r):\n    return '\\d'",  # an escape Python warns of
        "é" * 30_000,
        "def area(r): return " + "+".join(["r"] * 9000),
        "\n".join("def area(" for _ in range(2000)),
        "'''" * 3001,
    ],
)
def test_odd_texts_are_read_in_bounded_time(text: str) -> None:
    started = time.process_time()
    found = source_in(text, HEAD)
    canonical(found or text)
    assert time.process_time() - started < 5


def test_the_first_fenced_piece_that_holds_a_header_is_the_code_of_a_question() -> None:
    question = (
        'Data:\n```\n1 2 3\n```\nComplete:\n```python\ndef double(x):\n    """Twice."""\n```\n'
    )
    assert required(question).name == "double"
    assert required(question).stub is not None
