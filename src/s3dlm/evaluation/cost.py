"""What a run costs before it starts: samples, forward passes at most, and hours on one GPU.

The floating-point operations of a forward pass follow from the network's shape; the share of the
GPU's peak that is reached has to be assumed. UTILISATION is chosen so that the estimate agrees with a
published run: the authors of LLaDA report three hours for GSM8K with 512 tokens and 512 steps on
eight A100 (github.com/ML-GSAI/LLaDA, issue 112).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from s3dlm import tasks
from s3dlm.evaluation.plan import Condition
from s3dlm.models.folder import defaults_of
from s3dlm.settings import Settings

UTILISATION = 0.3
PROMPT_TOKENS = 256  # d1's instruction, a GSM8K question and the chat template, rounded up


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
# Dense bfloat16 operations per second by data sheet.
CARDS = {"A100": 312e12, "H100": 989e12, "L40S": 362e12, "RTX4090": 165e12}


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a plan costs at most."""

    parts: dict[
        str, tuple[int, int]
    ]  # samples and forward passes, by method and whether it is a sweep
    seconds: dict[str, float]  # on one GPU, by card; empty for models of unknown shape

    @property
    def nfe(self) -> int:
        return sum(passes for _, passes in self.parts.values())

    def lines(self) -> Iterator[str]:
        """In words."""
        for name, (samples, nfe) in self.parts.items():
            yield f"{name}: {samples:,} samples, at most {nfe / samples:,.0f} passes each"
        yield f"in all: {sum(samples for samples, _ in self.parts.values()):,} samples, at most {self.nfe:,} passes"
        times = ", ".join(f"{card} {in_words(took)}" for card, took in self.seconds.items())
        known = ", ".join(MODEL_SHAPES)
        yield (
            f"on one GPU: {times}" if times else f"times are known for {known}; else run --limit 10"
        )


def problem_count(task: str, prompt_style: str, limit: int | None) -> int:
    """How many problems a run of a task has; what is published is not loaded to count it."""
    row = tasks.get(task)
    count = None if row.source is None else row.source.subset or row.source.count
    if count is None or (row.bundled and prompt_style == "tiny"):
        return len(tasks.load(row, prompt_style=prompt_style, limit=limit).samples)
    return min(count, limit or count)


def estimate(model: str, conditions: Sequence[Condition], limit: int | None, seeds: int) -> RunCost:
    """The cost of all conditions; `limit` is of problems per task."""
    shape = MODEL_SHAPES.get(model.partition("@")[0].rstrip("/"))
    style, operations = defaults_of(model).prompt_style, 0.0
    parts: dict[str, tuple[int, int]] = {}
    counts = {task: problem_count(task, style, limit) for task in {c.task for c in conditions}}
    for condition in conditions:
        samples = condition.count(counts[condition.task], seeds)
        nfe = samples * condition.settings.most_nfe
        operations += nfe * shape.operations(condition.settings) if shape else 0.0
        name = condition.label if condition.main else f"{condition.label}, sweeps"
        before = parts.get(name, (0, 0))
        parts[name] = (before[0] + samples, before[1] + nfe)
    peaks = CARDS if shape else {}
    return RunCost(parts, {c: operations / (peak * UTILISATION) for c, peak in peaks.items()})


def in_words(seconds: float) -> str:
    """Hours, or minutes."""
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
