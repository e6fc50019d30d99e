"""The cost of a run before it starts: NFE, time and dollars, from a model's shape and a GPU's peak.

The floating-point operations of a forward pass follow from the network's shape; the share of the
GPU's peak that is reached has to be assumed. UTILISATION is chosen so that the estimate agrees with a
published run: the authors of LLaDA report three hours for GSM8K with 512 tokens and 512 steps on
eight A100 (github.com/ML-GSAI/LLaDA, issue 112).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import RecordError, SettingsError, unknown_name
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

    def operations(self, length: int, read: float) -> float:
        """Per forward pass: body on all positions, attention, and logits where they are read."""
        block = 2 * self.width * (self.width + self.keys) + 3 * self.width * self.feed
        body = 2.0 * self.layers * block * length
        attention = 4.0 * self.layers * self.width * length * length
        return body + attention + 2.0 * self.width * self.vocabulary * read

    def parameters(self) -> float:
        block = 2 * self.width * (self.width + self.keys) + 3 * self.width * self.feed
        return self.layers * block + 2.0 * self.width * self.vocabulary


# From the models' own config.json.
SHAPES = {
    "GSAI-ML/LLaDA-8B-Instruct": Shape(4096, 32, 12288, 4096, 126464),
    "GSAI-ML/LLaDA-8B-Base": Shape(4096, 32, 12288, 4096, 126464),
    "GSAI-ML/LLaDA-1.5": Shape(4096, 32, 12288, 4096, 126464),
    "Dream-org/Dream-v0-Instruct-7B": Shape(3584, 28, 18944, 512, 152064),
    "Dream-org/Dream-v0-Base-7B": Shape(3584, 28, 18944, 512, 152064),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: dense bfloat16 peak by data sheet, memory, and a typical price per hour."""

    peak: float  # floating-point operations per second
    memory: float  # bytes
    dollars: float  # per hour; prices differ, so `--dollars` replaces this


CARDS = {
    "A100": Gpu(312e12, 80e9, 1.80),
    "H100": Gpu(989e12, 80e9, 2.50),
    "L40S": Gpu(362e12, 48e9, 1.00),
    "RTX4090": Gpu(165e12, 24e9, 0.40),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the estimate."""

    gpus: int
    seconds: float
    dollars: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a run, with the figures behind it."""

    samples: int
    nfe_per_sample: float
    nfe: float
    operations_per_pass: float
    passes_per_second: float  # of one GPU
    weights_bytes: float
    fits: bool
    costs: tuple[Cost, ...]


def estimate(
    model: str,
    settings: Settings,
    samples: int,
    *,
    card: str = "H100",
    gpus: Sequence[int] = GPUS,
    prompt_tokens: int = PROMPT_TOKENS,
    share: float = 1.0,
    utilisation: float = UTILISATION,
    dollars: float | None = None,
) -> Estimate:
    """Samples are independent, so a cluster takes as long as its busiest GPU."""
    shape, gpu = _shape(model), _card(card)
    _positive(samples=samples, prompt_tokens=prompt_tokens, share=share, utilisation=utilisation)
    per_sample = settings.most_nfe * share
    length = prompt_tokens + settings.gen_length
    # Logits are read at masked positions only: all of them at first, none at the end.
    operations = shape.operations(length, settings.gen_length / 2)
    rate = gpu.peak * utilisation / operations
    price = gpu.dollars if dollars is None else dollars
    _positive(dollars=price)
    costs = []
    for count in gpus:
        _positive(gpus=count)
        seconds = math.ceil(samples / count) * per_sample / rate
        costs.append(Cost(count, seconds, seconds * count * price / 3600))
    weights = 2 * shape.parameters()
    return Estimate(
        samples=samples,
        nfe_per_sample=per_sample,
        nfe=samples * per_sample,
        operations_per_pass=operations,
        passes_per_second=rate,
        weights_bytes=weights,
        fits=weights * 1.15 < gpu.memory,  # activations need a tenth on top
        costs=tuple(costs),
    )


def measured_share(folder: Path, method: str) -> float:
    """Measured NFE divided by Algorithm 1's, in the records of a run."""
    from s3dlm.evaluation import manifest, records

    specs = {c.spec for c in manifest.read(folder).conditions if c.value("method") == method}
    found = [record for record in records.read(folder) if record.spec in specs]
    if not found:
        raise RecordError(f"{folder} has no record of method={method!r}; give a run that has one")
    return sum(record.nfe for record in found) / sum(record.nfe_logical for record in found)


def _shape(model: str) -> Shape:
    if model not in SHAPES:
        raise SettingsError(
            unknown_name("model", model, SHAPES)
            + "; measure small models instead: s3dlm eval --limit 10"
        )
    return SHAPES[model]


def _card(name: str) -> Gpu:
    if name not in CARDS:
        raise SettingsError(unknown_name("gpu", name, CARDS))
    return CARDS[name]


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise SettingsError(f"{name}={value!r} is not allowed; give a number above 0")
