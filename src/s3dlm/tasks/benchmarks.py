"""The bundled benchmarks: one row of data each, and the few functions that read their files.

Published sets are asked in d1's and HEX's format, in our own words. `truthfulqa` asks all 817 questions of the CSV,
the best answer among up to seven wrong ones; `truthfulqa_mc` is the variant that HEX evaluates, with
three wrong options, which leaves 684. The order of their options depends on the question's text
alone, so it is the same for everybody.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import cast

from s3dlm.tasks.base import DataRow, DataSource, Task

OPTION_LETTERS = "ABCDEFGH"  # the letters that verifier and answer extraction know


def lettered(stem: str, options: Sequence[str]) -> str:
    """A multiple-choice question in the layout of d1 and HEX."""
    lines = [f"{letter}. {text}" for letter, text in zip(OPTION_LETTERS, options, strict=False)]
    return "\n".join([stem, "", "Options:", *lines, "", "Choose ONE letter."])


def shuffled(correct: str, wrong: Sequence[str], key: str) -> tuple[list[str], str]:
    """Options in an order that depends on `key` alone, and the letter of the correct one."""
    options = [correct, *wrong]
    order = list(range(len(options)))
    random.Random(key).shuffle(order)
    return [options[i] for i in order], OPTION_LETTERS[order.index(0)]


def parse_gsm8k(row: DataRow) -> tuple[str, object]:
    """The gold answer is the number after `####`, without thousands commas and `$`."""
    gold = str(row["answer"]).rsplit("####", 1)[-1].strip()
    return str(row["question"]), float(gold.replace(",", "").replace("$", ""))


def parse_math(row: DataRow) -> tuple[str, object]:
    """The gold answer stays LaTeX: grading decides what equals it."""
    return str(row["problem"]), str(row["answer"])


def parse_arc(row: DataRow) -> tuple[str, object]:
    """Numeric labels (1–4) become letters, which verifier and grading expect."""
    choices = cast("Mapping[str, Sequence[str]]", row["choices"])
    labels = [str(label) for label in choices["label"]]
    gold = OPTION_LETTERS[labels.index(str(row["answerKey"]))]
    return lettered(str(row["question"]), choices["text"]), gold


def parse_truthfulqa(row: DataRow, most_wrong: int = len(OPTION_LETTERS) - 1) -> tuple[str, object]:
    """Wrong answers are a list on the hub, and text with semicolons in the CSV."""
    stem = str(row.get("Question", row.get("question"))).strip()
    best = str(row.get("Best Answer", row.get("best_answer"))).strip()
    options, gold = shuffled(best, _wrong(row)[:most_wrong], key=stem)
    return lettered(stem, options), gold


def _wrong(row: DataRow) -> list[str]:
    raw = row.get("Incorrect Answers", row.get("incorrect_answers"))
    parts = raw.split(";") if isinstance(raw, str) else cast("Sequence[str]", raw)
    return [part.strip() for part in parts if part.strip()]


def parse_truthfulqa_mc(row: DataRow) -> tuple[str, object] | None:
    """Exactly four options; a row of the ready-made multiple-choice set is used unchanged."""
    if "label" in row:
        choices = cast("Sequence[str]", row["choices"])
        return lettered(str(row["question"]), choices), OPTION_LETTERS[int(str(row["label"]))]
    return parse_truthfulqa(row, 3) if len(_wrong(row)) >= 3 else None


def parse_countdown(row: DataRow) -> tuple[str, object]:
    """d1's rows are `"30,100,93"` and `"23"`; the gold answer is the numbers and the target."""
    numbers = [int(part) for part in str(row["input"]).split(",")]
    target = int(str(row["output"]))
    return f"Numbers: {numbers}\nTarget: {target}", [numbers, target]


def parse_sudoku(row: DataRow) -> tuple[str, object]:
    """Data sets write empty cells as 0 or as a dot; the question always has zeros."""
    puzzle = str(row.get("Puzzle", row.get("question"))).replace(".", "0")
    solution = str(row.get("Solution", row.get("answer")))
    return f"Solve the following Sudoku puzzle: {puzzle}\n", solution


ANSWER_FORM = (
    "Answer in exactly this form:\n"
    "<reasoning>\nyour reasoning here\n</reasoning>\n<answer>\n{answer}\n</answer>"
)
_MATHS = (
    "You are an expert in mathematics. Solve the problem step by step, and put the final answer "
    "inside \\boxed{}.\n" + ANSWER_FORM.format(answer="\\boxed{your answer}")
)
_SCIENCE = (
    "You are an expert in science. Read the question and its options, reason step by step, "
    "and put the letter of the ONE best option inside \\boxed{}.\n"
    + ANSWER_FORM.format(answer="\\boxed{letter}")
)
_TRUTH = (
    "You are a careful assistant who states only what is true. Read the question and its options, "
    "reason step by step, and put the letter of the ONE truthful option inside \\boxed{}.\n"
    + ANSWER_FORM.format(answer="\\boxed{letter}")
)
_COUNTDOWN = (
    "Using only the numbers given, write an arithmetic expression that equals the target. "
    "Use each number exactly once, with +, -, * and / and brackets as you need. Reason step "
    "by step, then put the expression alone, without an equals sign, inside \\boxed{}.\n"
    + ANSWER_FORM.format(answer="\\boxed{expression}")
)
_SUDOKU = (
    "Solve this {size}×{size} Sudoku. The grid is given row by row as a string of {cells} digits "
    "in which 0 is an empty cell. Fill it so that each row, each column and each {box}×{box} box "
    "holds every digit from 1 to {size} exactly once. Reason step by step, then give the filled "
    "grid as a string of {cells} digits.\n" + ANSWER_FORM.format(answer="{cells}-digit string")
)

_GRID = re.compile("[0-9.]{81}")
_STORY = re.compile(  # as tiny was taught: numbers below 100, and one of these questions at the end
    r"[A-Z][a-z]{1,20} (?:has|buys) (?:[^\n?\d]|\d{1,2}(?!\d)){2,500}\. How many (?:[a-z]{1,20} )?"
    r"does [A-Za-z ]{1,20} (?:have now|have in the end|get)\?"
)
_CHAIN = re.compile(r"Start with \d+\.(?: Step \d+: (?:Add|Subtract|Multiply by|Divide by) \d+\.)+")

# name, title, verifier, kind of answer, instruction, source
BENCHMARKS = (
    Task(
        "gsm8k", "GSM8K", "gsm8k", "gsm8k", _MATHS,  # Cobbe et al. 2021
        DataSource(
            ("gsm8k_test.jsonl", "gsm8k.jsonl"), parse_gsm8k, 1319,
            ("openai/gsm8k", "main", "test"),
        ),
    ),
    Task(
        "math500", "MATH-500", "math500", "math500", _MATHS,  # the split of Lightman et al.
        DataSource(
            ("math500_test.jsonl", "math500.jsonl"), parse_math, 500,
            ("HuggingFaceH4/MATH-500", "default", "test"),
        ),
    ),
    Task(
        "arc", "ARC-C", "arc", "arc", _SCIENCE,  # ARC-Challenge, Clark et al. 2018
        DataSource(
            ("arc_challenge_test.jsonl", "arc.jsonl"), parse_arc, 1172,
            ("allenai/ai2_arc", "ARC-Challenge", "test"),
        ),
    ),
    Task(
        "truthfulqa", "TruthfulQA", "truthfulqa", "truthfulqa", _TRUTH,  # Lin et al. 2022
        DataSource(
            ("truthfulqa.csv", "TruthfulQA.csv"), parse_truthfulqa, 817,
            ("truthfulqa/truthful_qa", "generation", "validation"),
        ),
    ),
    Task(
        "truthfulqa_mc", "TruthfulQA-MC", "truthfulqa", "truthfulqa", _TRUTH,
        DataSource(
            ("truthfulqa_mc.jsonl", "truthfulqa.csv", "TruthfulQA.csv"), parse_truthfulqa_mc, 684,
            ("EleutherAI/truthful_qa_mc", "multiple_choice", "validation"),
        ),
    ),
    Task(
        "aime", "AIME 2024", "aime", "aime", _MATHS,
        DataSource(
            ("aime24_test.jsonl", "aime.jsonl"), parse_math, 30,
            ("HuggingFaceH4/aime_2024", "default", "train"),
        ),
    ),
    Task(
        "countdown", "Countdown", "countdown", "countdown", _COUNTDOWN,
        DataSource(("countdown_cd3_test.jsonl", "countdown.jsonl"), parse_countdown, 256),
        bundled=True, form=re.compile(r"Target: \d+ Numbers: \d+(?:, \d+)+"),
    ),
    Task(
        "sudoku", "Sudoku 4×4", "sudoku", "sudoku", _SUDOKU.format(size=4, cells=16, box=2),
        DataSource(("sudoku_4x4_test.csv", "sudoku.csv"), parse_sudoku, 500, subset=256),
        bundled=True, form=re.compile("Solve the 4x4 Sudoku: [0-4]{16}"),
    ),
    Task(
        "sudoku9", "Sudoku 9×9", "sudoku9", "sudoku9", _SUDOKU.format(size=9, cells=81, box=3),
        DataSource(
            ("sudoku_9x9_test.csv", "sudoku9.csv"), parse_sudoku,
            hub=("sapientinc/sudoku-extreme", "default", "test"),
        ),
        bundled=True, form=_GRID,
    ),
    Task(
        "sudoku9_open", "Sudoku 9×9, open", "sudoku9", "sudoku9",
        _SUDOKU.format(size=9, cells=81, box=3), bundled=True, form=_GRID,
    ),
    Task("arithmetic", "Arithmetic", "arithmetic", "arithmetic", _MATHS, bundled=True, form=_STORY),
    Task("chain", "Chain", "chain", "chain", _MATHS, bundled=True, form=_CHAIN),
    Task(
        "choice", "Choice", "choice", "choice", _SCIENCE, bundled=True,
        form=re.compile(r"Which [^\n]{1,200}\?(?:\n[A-D]\. [^\n]{1,100}){2,4}"),
    ),
)  # fmt: skip
