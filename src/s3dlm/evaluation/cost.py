"""What a run costs before it starts: samples, NFE at most, and seconds and dollars on a GPU.

The floating-point operations of a forward pass follow from the network's shape; the share of the
GPU's peak that is reached has to be assumed. UTILISATION is chosen so that the estimate agrees with a
published run: the authors of LLaDA report three hours for GSM8K with 512 tokens and 512 steps on
eight A100 (github.com/ML-GSAI/LLaDA, issue 112).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm import tasks
from s3dlm.errors import SettingsError, short_repr, unknown_name
from s3dlm.evaluation import manifest, records
from s3dlm.evaluation.plan import Condition
from s3dlm.models.folder import defaults_of
from s3dlm.settings import Settings

UTILISATION = 0.3
PROMPT_TOKENS = 256  # d1's instruction, a GSM8K question and the chat template, rounded up
GPUS = (1, 8, 64)


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a transformer that decide its cost."""

    width: int
    layers: int
    feed: int  # width of the feed-forward part
    keys: int  # width of keys and values; equal to `width` without grouped queries
    vocabulary: int

    @property
    def block(self) -> int:
        return 2 * self.width * (self.width + self.keys) + 3 * self.width * self.feed

    @property
    def parameters(self) -> float:
        return self.layers * self.block + 2.0 * self.width * self.vocabulary

    def operations(self, settings: Settings) -> float:
        """Per forward pass: body on all positions, attention, and logits where they are read, which
        is at masked positions only: all of them at first, none at the end."""
        length = PROMPT_TOKENS + settings.decoding.gen_length
        attention = 4.0 * self.layers * self.width * length * length
        logits = self.width * self.vocabulary * settings.decoding.gen_length
        return 2.0 * self.layers * self.block * length + attention + logits


_LLADA = Shape(4096, 32, 12288, 4096, 126464)  # from the models' own config.json
_DREAM = Shape(3584, 28, 18944, 512, 152064)
MODEL_SHAPES = {
    "GSAI-ML/LLaDA-8B-Instruct": _LLADA,
    "GSAI-ML/LLaDA-8B-Base": _LLADA,
    "GSAI-ML/LLaDA-1.5": _LLADA,
    "Dream-org/Dream-v0-Instruct-7B": _DREAM,
    "Dream-org/Dream-v0-Base-7B": _DREAM,
}
# Dense bfloat16 peak by data sheet, bytes of memory, a typical price per hour in dollars.
CARDS = {
    "A100": (312e12, 80e9, 1.80),
    "H100": (989e12, 80e9, 2.50),
    "L40S": (362e12, 48e9, 1.00),
    "RTX4090": (165e12, 24e9, 0.40),
}


def problem_count(task: str, prompt_style: str, limit: int | None) -> int:
    """How many problems a run of a task has; what is published is not loaded to count it."""
    row = tasks.get(task)
    count = None if row.source is None else row.source.subset or row.source.count
    if count is None or (row.bundled and prompt_style == "tiny"):
        return len(tasks.load(row, prompt_style=prompt_style, limit=limit).samples)
    return min(count, limit or count)


def shares(folder: Path) -> dict[str, float]:
    """Measured NFE divided by Algorithm 1's, by method, in the records of a run that has begun."""
    if not (folder / records.RECORDS).is_file():
        return {}
    method_of = {c.spec: c.settings.method for c in manifest.read(folder).conditions}
    nfe, logical = Counter[str](), Counter[str]()
    for record in records.read(folder):
        nfe[method_of[record.spec]] += record.nfe
        logical[method_of[record.spec]] += record.nfe_logical
    return {method: nfe[method] / most for method, most in logical.items() if most}


def estimate(
    model: str,
    conditions: Sequence[Condition],
    limit: int | None,
    seeds: int,
    gpu: str = "H100",
    measured: Mapping[str, float] | None = None,
) -> dict[str, object]:
    """The cost of all conditions: per condition and in sum; without a known shape in NFE alone.

    `limit` is of problems per task. `gpu` is a card, or CARD=DOLLARS for another price per hour.
    Samples are independent, so a cluster takes as long as its busiest GPU.
    """
    name, _, price = gpu.partition("=")
    if name not in CARDS:
        raise SettingsError(unknown_name("gpu", name, CARDS))
    if price and not (re.fullmatch(r"\d+(\.\d+)?", price) and float(price)):
        raise SettingsError(f"gpu={short_repr(gpu)} is not allowed; give CARD=DOLLARS: H100=2.20")
    peak, memory, usual = CARDS[name]
    dollars = float(price or usual)
    shape = MODEL_SHAPES.get(model.partition("@")[0].rstrip("/"))
    seconds, total = dict.fromkeys(GPUS, 0.0), 0.0
    style, rows = defaults_of(model).prompt_style, []
    counts = {task: problem_count(task, style, limit) for task in {c.task for c in conditions}}
    for condition in conditions:
        settings, samples = condition.settings, condition.count(counts[condition.task], seeds)
        nfe = settings.most_nfe * (measured or {}).get(settings.method, 1.0)
        total += samples * nfe
        each = nfe * shape.operations(settings) / (peak * UTILISATION) if shape else 0.0
        row = {"task": condition.task, "method": condition.label, "samples": samples, "nfe": nfe}
        rows.append({**row, "main": condition.main, "seconds": samples * each})
        for cards in GPUS:
            seconds[cards] += math.ceil(samples / cards) * each
    costs: dict[str, object] = {"model": model, "gpu": name, "conditions": rows, "nfe": total}
    if shape:
        costs["costs"] = [
            {"gpus": cards, "seconds": time, "dollars": time * cards * dollars / 3600}
            for cards, time in seconds.items()
        ]
        costs["fits"] = 2 * shape.parameters * 1.15 < memory  # activations come on top
    return costs


def parts(conditions: Sequence[Mapping[str, Any]], how: str, most: int = 20) -> list[str]:
    """The conditions of an estimate in words; if there are many, by method."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in conditions:
        task = f"{row['task']}, " if len(conditions) <= most else ""
        name = f"{task}{row['method']}" + ("" if row["main"] else ", sweeps")
        groups.setdefault(name, []).append(row)
    lines = []
    for name, rows in groups.items():
        count = sum(row["samples"] for row in rows)
        nfe = sum(row["samples"] * row["nfe"] for row in rows) / count
        seconds = sum(row["seconds"] for row in rows)
        took = f", {in_words(seconds)}" if seconds else ""
        lines.append(f"{name}: {count:,} samples, {how} {nfe:,.0f} passes each{took}")
    return lines


def in_words(seconds: float) -> str:
    """Hours, or minutes."""
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
