"""The bundled benchmarks: one row of data each, and the few functions that read their files.

Published sets are asked with d1's and HEX's prompts. `truthfulqa` asks all 817 questions of the CSV,
the best answer among up to seven wrong ones; `truthfulqa_mc` is the variant that HEX evaluates, with
three wrong options, which leaves 684. The order of their options depends on the question's text
alone, so it is the same for everybody.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import cast

from s3dlm.tasks.base import FORMAT, Hub, Row, Source, Task

LETTERS = "ABCDEFGH"  # the letters that verifier and answer extraction know


def lettered(stem: str, options: Sequence[str]) -> str:
    """A multiple-choice question in the layout of d1 and HEX."""
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False)]
    return "\n".join([stem, "", "Options:", *lines, "", "Choose ONE letter."])


def shuffled(correct: str, wrong: Sequence[str], key: str) -> tuple[list[str], str]:
    """Options in an order that depends on `key` alone, and the letter of the correct one."""
    options = [correct, *wrong]
    order = list(range(len(options)))
    random.Random(key).shuffle(order)
    return [options[i] for i in order], LETTERS[order.index(0)]


def parse_gsm8k(row: Row, index: int) -> tuple[str, object]:
    """The gold answer is the number after `####`, without thousands commas and `$`."""
    gold = str(row["answer"]).rsplit("####", 1)[-1].strip()
    return str(row["question"]), float(gold.replace(",", "").replace("$", ""))


def parse_math(row: Row, index: int) -> tuple[str, object]:
    """The gold answer stays LaTeX: grading decides what equals it."""
    return str(row["problem"]), str(row["answer"])


def parse_arc(row: Row, index: int) -> tuple[str, object]:
    """Numeric labels (1–4) become letters, which verifier and grading expect."""
    choices = cast("Mapping[str, Sequence[str]]", row["choices"])
    labels = [str(label) for label in choices["label"]]
    gold = LETTERS[labels.index(str(row["answerKey"]))]
    return lettered(str(row["question"]), choices["text"]), gold


def _wrong(row: Row) -> list[str]:
    """The wrong answers of a TruthfulQA row: a list on the hub, text with semicolons in the CSV."""
    raw = row.get("Incorrect Answers", row.get("incorrect_answers"))
    parts = raw.split(";") if isinstance(raw, str) else cast("Sequence[str]", raw)
    return [part.strip() for part in parts if part.strip()]


def _truthful(row: Row, wrong: Sequence[str]) -> tuple[str, object]:
    stem = str(row.get("Question", row.get("question"))).strip()
    best = str(row.get("Best Answer", row.get("best_answer"))).strip()
    options, gold = shuffled(best, wrong, key=stem)
    return lettered(stem, options), gold


def parse_truthfulqa(row: Row, index: int) -> tuple[str, object]:
    """As many wrong answers as there are letters."""
    return _truthful(row, _wrong(row)[: len(LETTERS) - 1])


def parse_truthfulqa_mc(row: Row, index: int) -> tuple[str, object] | None:
    """Exactly four options; a row of the ready-made multiple-choice set is used unchanged."""
    if "label" in row:
        choices = cast("Sequence[str]", row["choices"])
        return lettered(str(row["question"]), choices), LETTERS[int(str(row["label"]))]
    wrong = _wrong(row)
    return _truthful(row, wrong[:3]) if len(wrong) >= 3 else None


def parse_countdown(row: Row, index: int) -> tuple[str, object]:
    """d1's rows are `"30,100,93"` and `"23"`; the gold answer is the numbers and the target."""
    numbers = [int(part) for part in str(row["input"]).split(",")]
    target = int(str(row["output"]))
    return f"Numbers: {numbers}\nTarget: {target}", [numbers, target]


def countdown_gold(gold: str) -> list[object]:
    """The gold answer of a generated problem, `target|numbers`, in the form that grading reads."""
    target, _, numbers = gold.partition("|")
    return [[int(part) for part in numbers.split(",")], int(target)]


def parse_sudoku(row: Row, index: int) -> tuple[str, object]:
    """Data sets write empty cells as 0 or as a dot; the question always has zeros."""
    puzzle = str(row.get("Puzzle", row.get("question"))).replace(".", "0")
    solution = str(row.get("Solution", row.get("answer")))
    return f"Solve the following Sudoku puzzle: {puzzle}\n", solution


_MATHS = (
    "You are an expert in mathematics. Solve the problem step by step, and put the final answer "
    "inside \\boxed{}.\n" + FORMAT.format(answer="\\boxed{your answer}")
)
_SCIENCE = (
    "You are an expert in science. Read the question and its options, reason step by step, "
    "and put the letter of the ONE best option inside \\boxed{}.\n"
    + FORMAT.format(answer="\\boxed{letter}")
)
_TRUTH = (
    "You are a careful assistant who states only what is true. Read the question and its options, "
    "reason step by step, and put the letter of the ONE truthful option inside \\boxed{}.\n"
    + FORMAT.format(answer="\\boxed{letter}")
)
_COUNTDOWN = (
    "Using only the numbers given, write an arithmetic expression that equals the target. "
    "Use each number exactly once, with +, -, * and / and brackets as you need. Reason step "
    "by step, then put the expression alone, without an equals sign, inside \\boxed{}.\n"
    + FORMAT.format(answer="\\boxed{expression}")
)
_SUDOKU = (
    "Solve this {size}×{size} Sudoku. The grid is given row by row as a string of {cells} digits "
    "in which 0 is an empty cell. Fill it so that each row, each column and each {box}×{box} box "
    "holds every digit from 1 to {size} exactly once. Reason step by step, then give the filled "
    "grid as a string of {cells} digits.\n" + FORMAT.format(answer="{cells}-digit string")
)

# name, title, verifier, kind of answer, instruction, source, generated
TASKS = (
    Task(
        "gsm8k", "GSM8K", "gsm8k", "gsm8k", _MATHS,  # Cobbe et al. 2021
        Source(
            ("gsm8k_test.jsonl", "gsm8k.jsonl"), parse_gsm8k, 1319,
            Hub("openai/gsm8k", "main", "test"),
        ),
    ),
    Task(
        "math500", "MATH-500", "math500", "math500", _MATHS,  # the split of Lightman et al.
        Source(
            ("math500_test.jsonl", "math500.jsonl"), parse_math, 500,
            Hub("HuggingFaceH4/MATH-500", "default", "test"),
        ),
    ),
    Task(
        "arc", "ARC-C", "arc", "arc", _SCIENCE,  # ARC-Challenge, Clark et al. 2018
        Source(
            ("arc_challenge_test.jsonl", "arc.jsonl"), parse_arc, 1172,
            Hub("allenai/ai2_arc", "ARC-Challenge", "test"),
        ),
    ),
    Task(
        "truthfulqa", "TruthfulQA", "truthfulqa", "truthfulqa", _TRUTH,  # Lin et al. 2022
        Source(
            ("truthfulqa.csv", "TruthfulQA.csv"), parse_truthfulqa, 817,
            Hub("truthfulqa/truthful_qa", "generation", "validation"),
        ),
    ),
    Task(
        "truthfulqa_mc", "TruthfulQA-MC", "truthfulqa", "truthfulqa", _TRUTH,
        Source(
            ("truthfulqa_mc.jsonl", "truthfulqa.csv", "TruthfulQA.csv"), parse_truthfulqa_mc, 684,
            Hub("EleutherAI/truthful_qa_mc", "multiple_choice", "validation"),
        ),
    ),
    Task(
        "aime", "AIME 2024", "aime", "aime", _MATHS,
        Source(
            ("aime24_test.jsonl", "aime.jsonl"), parse_math, 30,
            Hub("HuggingFaceH4/aime_2024", "default", "train"),
        ),
    ),
    Task(
        "countdown", "Countdown", "countdown", "countdown", _COUNTDOWN,
        Source(("countdown_cd3_test.jsonl", "countdown.jsonl"), parse_countdown, 256),
        generated=True,
    ),
    Task(
        "sudoku", "Sudoku 4×4", "sudoku", "sudoku", _SUDOKU.format(size=4, cells=16, box=2),
        Source(("sudoku_4x4_test.csv", "sudoku.csv"), parse_sudoku, 500, subset=256),
        generated=True,
    ),
    Task(
        "sudoku9", "Sudoku 9×9", "sudoku", "sudoku", _SUDOKU.format(size=9, cells=81, box=3),
        Source(
            ("sudoku_9x9_test.csv", "sudoku9.csv"), parse_sudoku,
            hub=Hub("sapientinc/sudoku-extreme", "default", "test"),
        ),
    ),
    Task("arithmetic", "Arithmetic", "arithmetic", "arithmetic", _MATHS, generated=True),
    Task("chain", "Chain", "chain", "chain", _MATHS, generated=True),
    Task("choice", "Choice", "choice", "choice", _SCIENCE, generated=True),
)  # fmt: skip
