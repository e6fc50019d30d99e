"""Real outputs of diffusion models, several to a question: what a choice among them is worth.

`S3DLM_DATA=folder python -m benchmarks.real_samples [verifier]` prints two Markdown tables, of
`dlm_samples_gsm8k.jsonl` (model, question, sample, output, gold) and of `dlm_samples_humaneval.jsonl`
(model, task_id, output, and lm-eval's verdict `passed`). How well grading reads is measured against a plain
reader who shares no line with the package: the number that a careful human takes for the final answer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Mapping
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


def by_model(path: Path, folder: Path) -> dict[str, Path]:
    """The samples of each model, in a file of their own."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found.setdefault(json.loads(line)["model"], []).append(line)
    files = {model: folder / f"{path.stem}-{n}.jsonl" for n, model in enumerate(found)}
    for model, file in files.items():
        file.write_text("\n".join(found[model]), encoding="utf-8")
    return files


def agreement(path: Path) -> float:
    """How often grading `fixed` and the plain reader give the same verdict on a model's outputs."""
    rows, _ = read_rows(path, "gsm8k")
    same = [
        (plain_reader(row.output) == Fraction(str(row.gold).replace(",", "")))
        == (grade("gsm8k", row.output, row.gold, "fixed", row.question) == 1.0)
        for row in rows
    ]
    return sum(same) / len(same)


def table(reports: Mapping[str, ScoreReport], last: str, figures: Mapping[str, str]) -> str:
    """A row for each model."""
    lines = [f"| outputs | questions | {' | '.join(RULES)} | pair accuracy | texts | {last} |"]
    lines += ["|---" * (len(RULES) + 5) + "|"]
    for name, report in reports.items():
        chosen = [report.selection[rule] for rule in RULES if rule in report.selection]
        cells = [f"{100 * (e.value or 0):.1f} ({100 * (e.low or 0):.0f}–{100 * (e.high or 0):.0f})" for e in chosen]  # fmt: skip
        pairs = report.components[0].pair_accuracy
        told = (
            "–" if pairs.value is None else f"{pairs.value:.3f} ({pairs.low:.2f}–{pairs.high:.2f})"
        )
        rest = [told, f"{report.distinct:.1f}", figures[name]]
        lines.append(f"| {name} | {report.questions} | {' | '.join([*cells, *rest])} |")
    return "\n".join(lines)


def main(verifier: str) -> None:
    data = Path(os.environ["S3DLM_DATA"])
    with tempfile.TemporaryDirectory() as folder:
        maths = by_model(data / "dlm_samples_gsm8k.jsonl", Path(folder))
        code = by_model(data / "dlm_samples_humaneval.jsonl", Path(folder))
        read = {
            model: score_file(path, "gsm8k", verifier=verifier) for model, path in maths.items()
        }
        figures = {model: f"{agreement(path):.3f}" for model, path in maths.items()}
        print(f"GSM8K, verifier {verifier}\n")
        print(table(read, "as a plain reader", figures))
        run = {model: score_file(path, "humaneval") for model, path in code.items()}
        shares = {}
        for model, path in code.items():
            passed = [json.loads(line)["passed"] == 1 for line in path.read_text().splitlines()]
            shares[model] = f"{100 * sum(passed) / len(passed):.1f}"
    alike = sum((each.agreement or 0.0) * each.outputs for each in run.values())
    total = sum(each.outputs for each in run.values())
    print(f"\nHumanEval, verifier code; verdicts equal to lm-eval's: {alike / total:.4f}\n")
    print(table(run, "pass@1 by lm-eval", shares))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verifier", nargs="?", default="checker")
    main(parser.parse_args().verifier)
