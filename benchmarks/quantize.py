"""What weights in 8 and 4 bits cost and save: `python -m benchmarks.quantize [problems per task]`.

First a stack of two layers of LLaDA-8B's size with random weights, in bfloat16: bytes of the layers,
error of the logits, processor time of a forward pass, whole and small weights taking turns. Then `tiny`:
test problems of four tasks, greedy and `revise`, against float32 on the same problems.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
from torch import Tensor

import s3dlm
from benchmarks.models import TASKS
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.extras.quantize import QUANTIZATIONS, quantize_weights
from s3dlm.models.base import Model
from s3dlm.models.device import stored
from s3dlm.models.folder import defaults_of
from s3dlm.models.transformer import Transformer, TransformerConfig
from s3dlm.settings import Settings

REPEATS = 7
LAYERS = TransformerConfig(
    vocabulary=8192, width=4096, layers=2, heads=32, hidden=12288, mask_id=0, context=1024,
    tied=False,
)  # fmt: skip


def size(network: Transformer) -> int:
    """Bytes of the layers, embeddings and head left out."""
    named = stored(network.blocks.state_dict().items())
    return sum(tensor.nbytes for _, tensor in named)


def right(model: Model, task: str, count: int, settings: Settings) -> list[bool]:
    samples = tasks.load(tasks.get(task), prompt_style="tiny", limit=count).samples
    questions = [sample.question for sample in samples]
    results = s3dlm.generate_batch(model, questions, task=task, settings=settings)
    return [
        grade(task, result.text, sample.gold, question=sample.question) == 1.0
        for sample, result in zip(samples, results, strict=True)
    ]


def logits(network: Transformer, tokens: Tensor) -> Tensor:
    return network.head(network.encode(tokens).flatten(0, 1)).float()


def full_size() -> None:
    torch.manual_seed(0)
    whole = Transformer(LAYERS).requires_grad_(False).eval()
    for parameter in whole.parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=0.02)
    whole = whole.bfloat16()
    small = {
        k: quantize_weights(copy.deepcopy(whole), k, torch.device("cpu")) for k in QUANTIZATIONS
    }
    networks = {"bfloat16": whole, **small}
    sizes = {name: size(network) / 2**20 for name, network in networks.items()}
    with torch.inference_mode():
        for rows in (1, 8):
            tokens = torch.randint(1, LAYERS.vocabulary, (rows, 96))
            expected = logits(whole, tokens)
            times: dict[str, list[float]] = {name: [] for name in networks}
            for _ in range(REPEATS):
                for name, network in networks.items():
                    start = time.process_time()
                    network.encode(tokens)
                    times[name].append(time.process_time() - start)
            for name, network in networks.items():
                error = (logits(network, tokens) - expected).norm() / expected.norm()
                ratios = [a / b for a, b in zip(times[name], times["bfloat16"], strict=True)]
                print(
                    f"{rows} × 96 tokens, {name:8}: layers {sizes[name]:.0f} MiB, error "
                    f"{error:.4f}, time / bfloat16 {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f}–{max(ratios):.2f})",
                    flush=True,
                )


def accuracy(count: int) -> None:
    loads: dict[str, dict[str, str]] = {"float32": {}, "bfloat16": {"dtype": "bfloat16"}}
    loads |= {kind: {"quantize": kind} for kind in QUANTIZATIONS}
    for method in ("greedy", "revise"):
        base: list[list[bool]] = []
        for name, how in loads.items():
            model = s3dlm.load("tiny", **how)  # type: ignore[arg-type]
            found = [
                right(model, task, count, Settings.recommended(defaults_of("tiny"), method, task))
                for task in TASKS
            ]
            base = base or found
            share = 100 * sum(map(sum, found)) / (count * len(TASKS))
            gains = [
                [float(new) - float(old) for new, old in zip(*pair, strict=True)]
                for pair in zip(found, base, strict=True)
            ]
            gain, _ = bootstrap(gains)
            print(
                f"{method:6} {name:8}: {share:.1f} %, against float32 {100 * gain.value:+.1f} "
                f"[{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=100, help="per task")
    problems = parser.parse_args().problems
    full_size()
    accuracy(problems)
