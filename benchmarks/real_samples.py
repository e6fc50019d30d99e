"""Real outputs of diffusion models, several to a question: what a choice among them is worth.

`S3DLM_DATA=folder python -m benchmarks.real_samples [verifier]` prints two Markdown tables, of
`dlm_samples_gsm8k.jsonl` (model, question, sample, output, gold) and of `dlm_samples_humaneval.jsonl`
(model, task_id, output, and lm-eval's verdict `passed`). How well grading reads is measured against a plain
reader who shares no line with the package: the number that a careful human takes for the final answer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

from s3dlm.answers.grading import grade
from s3dlm.evaluation.outputs import read_rows
from s3dlm.evaluation.score import ScoreReport, score_file

RULES = ("single", "vote", "weighted vote", "best by verifier", "agreement", "oracle")
# Words after which somebody else speaks, or another question is asked.
_ELSE = re.compile(
    r"<\|\w+\|>|\n\s*(?:Question|Q|Problem|Human|User)\s*\d*\s*:|You are an? (?:AI|helpful) assistant"
)
_NUMERAL = r"(-?)\s?(?:\\?\$)?(-?)(\d[\d,]*(?:\.\d+)?|\.\d+)"
# Where answers stand, most explicit first; of several the last one counts, of `####` the first.
_BOX = re.compile(r"boxed\{((?:[^{}\n]|\{[^{}\n]*\})*\d(?:[^{}\n]|\{[^{}\n]*\})*)\}")
_TAG = re.compile(r"<answer>([^<]*\d[^<]*)")
_HASHES = re.compile(rf"####\s*({_NUMERAL})")
_PHRASE = re.compile(r"[Aa]nswer\s*(?:is|:|=)+\s*:?\s*([^\n]*?\d[^\n]*)")


def plain_reader(output: str) -> Fraction | None:
    """The number that somebody who reads a text takes for its final answer."""
    text = output.strip()
    other = _ELSE.search(text)
    text = text[: other.start()] if other and other.start() else text
    for pattern, place in ((_BOX, -1), (_TAG, -1), (_HASHES, 0), (_PHRASE, -1)):
        if found := pattern.findall(text):
            content = found[place] if isinstance(found[place], str) else found[place][0]
            content = re.sub(r"\{,\}|,\\!", ",", content)
            if pattern is _PHRASE:
                content = re.split(r"\.(?:\s|$)", content)[0]
            if (value := _number(content.rpartition("=")[2], 0)) is not None:
                return value
    return _number(re.sub(r"<<[^>\n]*(?:>>|$)", "", text), -1)


def _number(text: str, place: int) -> Fraction | None:
    found = list(re.finditer(_NUMERAL, text))
    if not found:
        return None
    sign, inner, digits = found[place].groups()
    before = text[: found[place].start()].rstrip()
    negative = bool(inner) or (bool(sign) and not re.search(r"[\d)%\w]$", before))
    value = Fraction(digits.replace(",", "")) if len(digits) < 40 else None
    return -value if negative and value is not None else value


def agreement(path: Path, model: str) -> float:
    """How often grading `fixed` and the plain reader give the same verdict on a model's outputs."""
    rows = [row for row in read_rows(path, "gsm8k", "model")[0] if row.group == f"model={model}"]
    same = [
        (plain_reader(row.output) == Fraction(str(row.gold).replace(",", "")))
        == (grade("gsm8k", row.output, row.gold, "fixed", row.question) == 1.0)
        for row in rows
    ]
    return sum(same) / len(same)


def table(report: ScoreReport, last: str, figures: dict[str, str]) -> str:
    """A row for each model of a report."""
    lines = [f"| outputs | questions | {' | '.join(RULES)} | pair accuracy | texts | {last} |"]
    lines += ["|---" * (len(RULES) + 5) + "|"]
    for section in report.sections[1:]:
        name = section.name.removeprefix("model=")
        chosen = [section.selection[rule] for rule in RULES if rule in section.selection]
        cells = [f"{100 * (e.value or 0):.1f} ({100 * (e.low or 0):.0f}–{100 * (e.high or 0):.0f})" for e in chosen]  # fmt: skip
        pairs = section.components[0].pair_accuracy
        told = (
            "–" if pairs.value is None else f"{pairs.value:.3f} ({pairs.low:.2f}–{pairs.high:.2f})"
        )
        rest = [told, f"{section.distinct:.1f}", figures.get(name, "")]
        lines.append(f"| {name} | {section.questions} | {' | '.join([*cells, *rest])} |")
    return "\n".join(lines)


def main(verifier: str = "checker") -> None:
    folder = Path(os.environ["S3DLM_DATA"])
    maths, code = folder / "dlm_samples_gsm8k.jsonl", folder / "dlm_samples_humaneval.jsonl"
    report = score_file(maths, "gsm8k", verifier=verifier, by="model")
    models = [section.name.removeprefix("model=") for section in report.sections[1:]]
    figures = {model: f"{agreement(maths, model):.3f}" for model in models}
    print(f"GSM8K, verifier {verifier}\n")
    print(table(report, "as a plain reader", figures))
    programs = score_file(code, "humaneval", by="model")
    print(f"\nHumanEval, verifier code; verdicts equal to lm-eval's: {programs.agreement:.4f}\n")
    passed: dict[str, list[bool]] = {}
    for line in code.read_text().splitlines():
        row = json.loads(line)
        passed.setdefault(row["model"], []).append(row["passed"] == 1)
    shares = {model: f"{100 * sum(some) / len(some):.1f}" for model, some in passed.items()}
    print(table(programs, "pass@1 by lm-eval", shares))


if __name__ == "__main__":
    main(*sys.argv[1:])
