"""Outputs that already exist, as the field's tools write them.

Three sorts of files: plain JSON lines (a question, an output and maybe a gold answer per line),
`samples_*.jsonl` of lm-eval (`--log_samples`), and `*_generations.json` of d1 and HEX. Several outputs
to one question are several rows.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from s3dlm import tasks
from s3dlm.answers import TASK_KINDS
from s3dlm.answers.delimiters import find_boxed
from s3dlm.answers.kinds import find_kind, kind_of
from s3dlm.errors import RecordError, short_repr
from s3dlm.inputs import opened, read_json_lines
from s3dlm.search.select import SELECTIONS, Survivor

# The names by which the field writes its files.
QUESTION_KEYS = ("question", "prompt", "problem", "input")
OUTPUT_KEYS = ("output", "text", "generation", "generations", "response", "completion")
GOLD_KEYS = ("gold", "answer", "answerKey", "ground_truth", "target", "solution")
VERDICT_KEYS = ("passed", "pass@1")  # what another harness made of the same output

# What a choice among the outputs to one question is called here, and in a search.
RULES = {
    "vote": "majority",
    "weighted vote": "weighted",
    "best by verifier": "verified",
    "agreement": "agreement",
}


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output to one question, and the line of the file it stands on."""

    line: int
    question: str
    output: str
    gold: object = None
    confidence: float | None = None
    verdict: bool | None = None  # another harness's


def kind_of_task(task: str) -> str:
    """The kind of answer of a task, also of one that another package adds."""
    return TASK_KINDS[task] if task in TASK_KINDS else kind_of(tasks.get(task).answer)


def read_rows(path: str | Path, task: str) -> tuple[list[OutputRow], int]:
    """The outputs of a file that belong to a task, and how many belong to others."""
    kind, rows, skipped = kind_of_task(task), list[OutputRow](), 0
    filters = dict[object, object]()
    for number, data in _objects(Path(path)):
        if str(data.get("task", task)) != task:
            skipped += 1
            continue
        if "resps" in data:
            # lm-eval writes a line per filter, with the same outputs on each.
            name = data.get("filter")
            if filters.setdefault(str(data.get("doc_id")), name) != name:
                continue
            data = _from_lm_eval(data, kind)
        place = f"{path}, line {number}"
        question, gold = _first(data, QUESTION_KEYS), _first(data, GOLD_KEYS)
        if find_kind(kind).runs and (problem := _problem(task, data)) is not None:
            question, gold = problem
        if kind == "math" and isinstance(gold, str) and (boxed := find_boxed(gold)):
            gold = boxed.content  # a whole solution
        outputs = _first(data, OUTPUT_KEYS)
        texts = outputs if isinstance(outputs, list) and outputs else [outputs]
        if not isinstance(question, str) or not all(isinstance(text, str) for text in texts):
            raise RecordError(
                f"{place} has the keys {sorted(data)}; it needs a text under "
                "'question' and a text (or a list of texts) under 'output'"
            )
        confidence, verdict = data.get("confidence"), _first(data, VERDICT_KEYS)
        number_or_none = confidence is None or isinstance(confidence, int | float)
        if not number_or_none or isinstance(confidence, bool):
            raise RecordError(f"{place}: confidence={short_repr(confidence)} is not a number")
        judged = verdict == 1 if verdict in (0, 1) and len(texts) == 1 else None
        rows += [OutputRow(number, question, t, gold, confidence, judged) for t in texts]
    if not rows:
        other = f"({skipped} of other tasks)"
        raise RecordError(f"{str(path)!r} has no output of task {task!r} {other}")
    return rows, skipped


def _first(data: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((data[key] for key in keys if data.get(key) is not None), None)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with their numbers."""
    whole: object = None
    if path.suffix == ".json":
        broken = (OSError, ValueError, RecursionError)  # JSON lines, or nothing
        with contextlib.suppress(*broken), opened(path) as file:
            whole = json.loads(file.read())
    if isinstance(whole, dict | list):
        shared = whole if isinstance(whole, dict) else {}
        rows = shared.get("generations", [shared]) if shared else whole
        for number, row in enumerate(rows if isinstance(rows, list) else [], 1):
            if not isinstance(row, dict):
                raise RecordError(f"{path}, entry {number} is no JSON object; give another file")
            yield number, row
    else:
        yield from read_json_lines(path)


def _from_lm_eval(data: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A line of lm-eval as a plain one: the question and gold of its document, all its responses."""
    doc, arguments, texts = data.get("doc"), data.get("arguments"), list[object]()
    waiting: list[object] = [data["resps"]]
    while waiting and len(texts) < 10_000:
        each = waiting.pop()
        waiting.extend(reversed(each)) if isinstance(each, list) else texts.append(each)
    doc = doc if isinstance(doc, dict) else {}
    own, target = _first(doc, ("answer", "solution")), data.get("target")
    # A document's own answer may be the number of an option; a target may be a whole solution.
    gold = own if kind == "math" or target is None else target
    made = {**doc, **data, "output": texts, "gold": target if gold is None else gold}
    while isinstance(arguments, list | dict) and arguments:
        arguments = next(iter(arguments.values() if isinstance(arguments, dict) else arguments))
    return made if _first(made, QUESTION_KEYS) is not None else {**made, "question": arguments}


def _problem(task: str, data: Mapping[str, Any]) -> tuple[str, object] | None:
    """Prompt and hidden tests of a problem that is graded by tests: in the line itself, or by its `task_id`."""
    source = tasks.get(task).source if task not in TASK_KINDS else None
    if source is None or ("gold" in data and isinstance(data["gold"], dict)):
        return None
    if "test" in data or "test_list" in data:
        return source.parse(data)
    return _problems(task).get(str(data.get("task_id")))


@lru_cache(maxsize=4)
def _problems(task: str) -> dict[str, tuple[str, object]]:
    source = tasks.get(task).source
    rows = source.package() if source and source.package else ()
    parsed = ((str(row["task_id"]), source.parse(row)) for row in rows if source)
    return {name: problem for name, problem in parsed if problem is not None}


def choices(
    question: Sequence[int], outputs: Sequence[tuple[str | None, float, bool]]
) -> dict[str, list[float]]:
    """By rule, for every output (its answer, score and whether it is right): is what the rule chooses
    for its question right? A single output stands for itself, the oracle knows what is right."""
    floor = min(0.0, min(score for _, score, _ in outputs))
    groups: dict[int, list[Survivor]] = {}
    for place, (number, (answer, score, _)) in enumerate(zip(question, outputs, strict=True)):
        weight = math.log(score - floor + 1e-9)
        # The place stands where a search has the NLL, so ties go to the first.
        groups.setdefault(number, []).append(Survivor("", answer, 0, score, {}, weight, place, 0.0))
    made = {"single": [float(right) for _, _, right in outputs]}
    for rule, name in RULES.items():
        best = {n: int(SELECTIONS[name].choose(group).nll) for n, group in groups.items()}
        made[rule] = [float(outputs[best[number]][2]) for number in question]
    solved = {number for number, (_, _, right) in zip(question, outputs, strict=True) if right}
    return {**made, "oracle": [float(number in solved) for number in question]}
