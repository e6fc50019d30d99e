"""Model-written text is untrusted: nothing raises, values stay in range, time stays linear."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3dlm.answers import TASK_KINDS, extract, mathverify, normalise
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.verifier import for_task
from s3dlm.verifier.weights import PAPER

SIZE = 20_000
GOLDS = {"number": 18.0, "math": r"\frac12", "choice": "B", "expression": [[1, 2, 3], 6],
         "grid": "1234341221434321", "text": "yes"}  # fmt: skip
PROMPTS = (
    "",
    "Numbers: [49, 55, 53]\nTarget: 51",
    "Solve the following Sudoku puzzle: 4320004330100004\n",
    "What?\nA. one\nB. two\nC. three",
)


def monsters(n):
    """Texts of about n characters that a careless pattern would choke on."""
    return {
        "powers": "9**" * (n // 3),
        "power tower in a box": "\\boxed{" + "9**" * 9 + "9}",
        "nested braces": "{" * n,
        "nested box": "\\boxed{" + "{" * n,
        "balanced braces": "\\boxed{" + "{" * (n // 2) + "}" * (n // 2) + "}",
        "unclosed boxes": "\\boxed{" * (n // 7),
        "boxes with gaps": "\\boxed{1 " * (n // 9),
        "empty boxes": "\\boxed{}" * (n // 8),
        "equals signs": "=" * n,
        "spaced equals signs": "= " * (n // 2),
        "equations": "1+1=2 " * (n // 6),
        "long sum": "1+" * (n // 2) + "1=2",
        "sum without end": "1 + " * (n // 4),
        "digits": "9" * n,
        "digits and equals": "9" * n + "=" + "9" * n,
        "commas": "1,000" + ",000" * (n // 4),
        "dots": "1." * (n // 2),
        "spaces": "1" + " " * n + "+" + " " * n + "1",
        "spaces around equals": "1 + 1" + " " * n + "=" + " " * n + "2",
        "spaces, spread": ("1" + " " * 100 + "=") * (n // 102),
        "brackets": "(" * n,
        "fracs": "\\frac{1}{2}" * (n // 11),
        "open fracs": "\\frac{1}{" * (n // 9),
        "answers": "answer is " * (n // 10),
        "answer without end": "answer" + " " * n,
        "answer tags": "<answer>" * (n // 8),
        "closing tags": "</answer>" * (n // 9),
        "hashes": "#" * n,
        "fences": "<answer>" + "```" + " " * n,
        "end tokens": "<|endoftext|>" * (n // 13),
        "end tokens and space": "<|endoftext|> \n" * (n // 15),
        "end tokens inside": "<|eot_id|> x" * (n // 12),
        "masks": "<|mdm_mask|>" * (n // 12),
        "letters": "A B C D " * (n // 8),
        "options": "A. " * (n // 3),
        "minus signs": "-" * n,
        "percent signs": "1%" * (n // 2),
        "dollar signs": "$" * n,
        "backslashes": "\\" * n,
        "line breaks": "\n" * n,
        "Arabic digits": "٣ + ٤ = ٧ " * (n // 10),
        "full-width digits": "\\boxed{１８} " * (n // 11),
        "superscripts": "²³¹ = ²" * (n // 7),
        "right-to-left marks": "\u200f\u202e1 + 1 = 2" * (n // 11),
        "NUL": "\x00" * n,
        "NUL in a box": "\\boxed{\x00}",
        "lone surrogates": "\ud800\\boxed{\udfff}" * (n // 9),
        "emoji": "🦆" * n,
        "grid cells": "1|" * (n // 2),
        "repeated words": "word " * (n // 5),
        "garbled steps": "75 + 20 = each 15 + word = 4 9 Step 6 = 15 " * (n // 43),
    }  # fmt: skip


MONSTERS = monsters(SIZE)
SMALL = monsters(SIZE // 10)


@pytest.fixture(autouse=True)
def _no_child_process(monkeypatch):
    """Formulas are compared by spelling here; the child has tests of its own."""
    monkeypatch.setattr(mathverify, "available", lambda: False)


def judge(task, text, prompt):
    """Everything that reads a model's text."""
    for verifier in ("paper", "checker"):
        score = for_task(task, verifier).score(prompt, text)
        assert 0.0 <= score.total <= 1.0
        assert all(-1e-9 <= value <= 1 + 1e-9 for value in score.parts.values()), score
        assert all(0 <= start < end <= len(text) for start, end, *_ in score.spans)
    answer = extract(task, text, prompt)
    if answer is not None:
        normalise(task, answer)
    for grading in GRADINGS:
        assert 0.0 <= grade(task, text, GOLDS[TASK_KINDS[task]], grading, prompt) <= 1.0


TASKS = ("gsm8k", "math500", "arc", "countdown", "sudoku", "general")


def test_these_tasks_are_all_there_is():
    assert {TASK_KINDS[task] for task in TASKS} == set(TASK_KINDS.values())
    assert set(PAPER) == set(TASK_KINDS)


@pytest.mark.parametrize("name", MONSTERS)
def test_time_grows_with_the_length_of_a_text_and_no_faster(name):
    """Linear is 10×; a quadratic pattern would show as 100×. A busy machine may spoil some attempts."""
    for task in TASKS:
        assert any(_is_quick(task, name) for _ in range(10)), task


def _is_quick(task, name):
    """Processor time of this thread, so that a busy machine does not count."""
    small, large = (_seconds(task, sized[name]) for sized in (SMALL, MONSTERS))
    return large < 40 * max(small, 2e-4)


def _seconds(task, text):
    for verifier in ("paper", "checker"):  # else the second reading would take no time
        for_task(task, verifier)._read.cache_clear()
    start = time.thread_time()
    judge(task, text, PROMPTS[1])
    return time.thread_time() - start


PIECES = st.sampled_from(
    ["\\boxed{", "}", "{", "<answer>", "</answer>", "####", "answer is ", "=", "+", "-", "*", "/", "(",
     ")", "18", "1,200", "0.5", "%", "$", "\\frac", "\\times", "\\text{ ", "\\sqrt", "x", "A", "B.", " ",
     "\n", "step", "therefore", "<|eot_id|>", "<|mdm_mask|>", "1234341221434321", "٣", "\x00", "\u202e",
     "².", "−", "×", "\\", "\\left", "^\\circ", "_", ",", ".", "</", "```"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(PROMPTS) | TEXTS, st.sampled_from(sorted(TASK_KINDS)))
def test_any_text_and_any_prompt_raise_nothing(text, prompt, task):
    judge(task, text, prompt)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.sampled_from(sorted(TASK_KINDS)))
def test_a_score_does_not_depend_on_what_was_scored_before(text, task):
    verifier = for_task(task)
    first = verifier.score("q", text)
    verifier.score("q", text[::-1])
    verifier._read.cache_clear()
    assert verifier.score("q", text) == first
