"""Model-written text is untrusted: nothing raises, values stay in range, time stays linear, length is bounded."""

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s3dlm
from s3dlm.answers import TASK_KINDS, extract, mathverify, normalise
from s3dlm.answers.delimiters import MAX_TEXT
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.search.score import Verify, verify
from s3dlm.verifier import Score, Verifier, for_task
from s3dlm.verifier.base import adapt, score_texts
from s3dlm.verifier.weights import PAPER

SIZE = 10_000
GOLDS = {"number": 18.0, "math": r"\frac12", "choice": "B", "expression": [[1, 2, 3], 6],
         "grid": "1234341221434321", "text": "yes"}  # fmt: skip
PROMPTS = (
    "",
    "Numbers: [49, 55, 53]\nTarget: 51",
    "Solve the following Sudoku puzzle: 4320004330100004\n",
    "What?\nA. one\nB. two\nC. three",
)


REPEATED = (  # what a careless pattern would choke on
    "9**", "{", "\\boxed{", "\\boxed{1 ", "\\boxed{}", "=", "= ", "1+1=2 ", "1 + ", "9", "1.", "(", "\\frac{1}{2}",
    "\\frac{1}{", "answer is ", "<answer>", "</answer>", "#", "<|endoftext|>", "<|endoftext|> \n", "<|eot_id|> x",
    "<|mdm_mask|>", "A B C D ", "A. ", "-", "1%", "$", "\\", "\n", "٣ + ٤ = ٧ ", "\\boxed{１８} ", "²³¹ = ²",
    "\u200f\u202e1 + 1 = 2", "\0", "\ud800\\boxed{\udfff}", "🦆", "1|", "word ", "1" + " " * 100 + "=",
    "75 + 20 = each 15 + word = 4 9 Step 6 = 15 ",
)  # fmt: skip


def monsters(n):
    """Texts of about n characters."""
    return {ascii(atom): atom * (n // len(atom)) for atom in REPEATED} | {
        "power tower in a box": "\\boxed{" + "9**" * 9 + "9}",
        "nested box": "\\boxed{" + "{" * n,
        "balanced braces": "\\boxed{" + "{" * (n // 2) + "}" * (n // 2) + "}",
        "long sum": "1+" * (n // 2) + "1=2",
        "digits and equals": "9" * n + "=" + "9" * n,
        "commas": "1,000" + ",000" * (n // 4),
        "spaces": "1" + " " * n + "+" + " " * n + "1",
        "spaces around equals": "1 + 1" + " " * n + "=" + " " * n + "2",
        "answer without end": "answer" + " " * n,
        "fences": "<answer>" + "```" + " " * n,
        "NUL in a box": "\\boxed{\0}",
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
        (score,) = score_texts(for_task(task, verifier), [(prompt, text, None)])
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


@pytest.mark.slow
@pytest.mark.parametrize("name", MONSTERS)
def test_a_long_text_of_anything_is_read(name):
    text = monsters(1_000_000)[name]
    assert all(_seconds(task, text) < 20 for task in TASKS)  # far above the usual
    extract("code", text)
    normalise("code", text)


def test_only_the_end_of_a_long_text_counts():
    early = "\\boxed{3} " + "x" * MAX_TEXT
    assert extract("number", early) is None
    assert extract("number", "x" * MAX_TEXT + " \\boxed{3}") == "3"
    assert [grade("number", early, "3", way) for way in ("fixed", "d1")] == [0.0, 0.0]
    scores = score_texts(for_task("gsm8k"), [("", early, None), ("", "x" * MAX_TEXT, None)])
    assert scores[0].parts == scores[1].parts


def test_every_verifier_gets_the_end_of_a_long_prompt_and_text():
    seen = []

    def judge(prompt, text, confidence):
        seen.extend((len(prompt), len(text)))
        return 0.5

    class Batched(Verifier):
        def score(self, prompt, text, confidence=None):
            return Score(judge(prompt, text, confidence), {}, [(0, 2)])

    for verifier in (adapt(judge), Batched()):
        (scores,) = verify([Verify(verifier, "q" * 10**6, [("t" * 10**6, 0.5), ("t", 0.5)], "")])
    cut = 10**6 - MAX_TEXT
    assert [[*score.spans] for score in scores] == [[(cut, cut + 2)], [(0, 2)]]  # of the whole text
    assert (len(seen), max(seen)) == (8, MAX_TEXT)


def test_verifiers_are_called_in_one_place():
    """Outside of verifier/ nobody calls `score` or `score_batch` of a verifier but `score_texts`."""
    for path in sorted(Path(s3dlm.__file__).parent.rglob("*.py")):
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        named = [f for f in calls if getattr(f, "attr", "") in ("score", "score_batch")]
        if path.parent.name not in ("verifier", "judges"):
            inside = {"self.inner.score_batch", "self.score_batch", "super().score_batch"}
            found = {ast.unparse(f) for f in named} - inside  # of a verifier
            assert all(name.endswith("scorer.score") for name in found), (path, found)


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
