"""`make bench`: every figure a ratio, measured side by side in one run, interleaved and repeated.

Machines are noisy, so nothing here is a number of seconds: two ways of doing the same thing take
turns, and what is reported is the median of their ratios with its spread. Writes
`benchmarks/results.json` and the table of docs/appendix/performance.md, a CSV file.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

import s3dlm
from benchmarks import models
from benchmarks.measure import (
    Canned,
    Figure,
    exponent,
    figure,
    ratio,
    recorded,
    timed,
    with_denoiser,
)
from benchmarks.memory import peak_bytes
from benchmarks.models import question_of
from benchmarks.peers import LiteralAlgorithm1, Loop
from benchmarks.plain_decoding import plain_decoding
from s3dlm.models.base import Model
from s3dlm.models.folder import defaults_of
from s3dlm.settings import Settings
from s3dlm.verifier import for_task

ROOT = Path(__file__).parent.parent
TINY = Settings.recommended(defaults_of("tiny"), "s3")
WIDE = Settings("s3", gen_length=64, steps=8, block_length=64, temperature=0.7)
RESULTS = ROOT / "benchmarks" / "results.json"
TABLE = ROOT / "docs" / "appendix" / "performance-all-measurements.csv"


def search(model: Model, settings: Settings) -> Callable[[int], object]:
    def run(index: int) -> object:
        task, question = question_of(model, index)
        return s3dlm.generate(model, question, task=task, settings=settings.replace(seed=index))

    return run


def overhead(name: str, target: str, model: Model, settings: Settings, repeats: int) -> Figure:
    """A whole search against the same encode and head calls with nothing around them."""
    values = []
    for repeat in range(repeats):
        listened, recorder = recorded(model)
        search(listened, settings)(repeat)  # the warm-up, too
        bare = timed(recorder.replay)
        whole = timed(functools.partial(search(model, settings), repeat))
        bare = (bare + timed(recorder.replay)) / 2
        values.append(whole / bare)
    return figure(name, target, values)


def surroundings(model: Model, settings: Settings, repeats: int) -> Figure:
    """What a search costs if all around its forwards is run by itself, again and again, so that no
    forward sweeps it out of the caches."""
    values = []
    for repeat in range(repeats):
        listened, recorder = recorded(model)
        search(listened, settings)(repeat)
        again = functools.partial(search(with_denoiser(model, Canned(recorder)), settings), repeat)
        around = min(timed(again) for _ in range(5))
        values.append(1 + around / timed(recorder.replay))
    return figure(
        "the same if all around the forwards ran by itself, in warm caches, tiny", "", values
    )


def strict_overhead(model: Model, settings: Settings, repeats: int) -> Figure:
    """Against forwards that keep their memory for logits as we do."""
    listened, recorder = recorded(model)
    search(listened, settings)(0)
    room = recorder.room()
    return ratio(
        "the same against forwards that write all logits into the same memory, wide",
        "",
        lambda index: search(model, settings)(0),
        lambda index: recorder.replay(room=room),
        repeats,
    )


def batching_gain(model: Model, repeats: int) -> Figure:
    """How much faster a row is in a batch: the most that batching can give to a search of one row."""
    tokens = torch.full((10, 96), model.denoiser.mask_id)

    @torch.inference_mode()
    def alone(index: int) -> None:
        for row in tokens:
            model.denoiser.encode(row[None])

    @torch.inference_mode()
    def together(index: int) -> None:
        model.denoiser.encode(tokens)

    name = "ten rows of 96 tokens one at a time / in one forward, tiny"
    return ratio(name, "", alone, together, 4 * repeats)


def tiny_figures(model: Model, repeats: int) -> Iterable[Figure]:
    ours, best_of_k = search(model, TINY), search(model, TINY.replace(method="best_of_k"))

    def peers(index: int) -> object:
        task, question = question_of(model, index)
        return Loop(model, question, TINY.replace(seed=index), task).decode(rows=8)

    def literal(index: int) -> object:
        task, question = question_of(model, index)
        verifier = for_task(task or "general")
        settings = TINY.replace(seed=index)
        return LiteralAlgorithm1(model, question, settings, verifier, task).search()

    yield overhead("s3 / bare forwards of the same rows, tiny", "≤ 1.25", model, TINY, repeats)
    yield surroundings(model, TINY, repeats)
    yield ratio("s3 / best-of-K as peers run it, tiny, K = 8", "≤ 0.4", ours, peers, repeats)
    yield ratio("s3 / our own best_of_k, tiny, K = 8", "≤ 1.0", ours, best_of_k, repeats)
    yield ratio("literal Algorithm 1 / s3, tiny", "≥ 6", literal, ours, max(4, repeats // 4))
    yield from batched(model, max(3, repeats // 4))


def batched(model: Model, repeats: int) -> Iterable[Figure]:
    """Throughput of 32 prompts together against one after another; then of their forwards alone,
    which no way of packing can exceed by more than it saves around them."""

    def together(model: Model, count: int) -> None:
        jobs = [
            s3dlm.Job(question, task, TINY)
            for task, question in (question_of(model, index) for index in range(32))
        ]
        for first in range(0, 32, count):
            for _ in s3dlm.run(model, jobs[first : first + count], max_rows=256):
                pass

    listened, one_by_one = recorded(model)
    together(listened, 1)
    listened, all_at_once = recorded(model)
    together(listened, 32)
    yield ratio(
        "32 prompts one at a time / batched, s3, tiny",
        "≥ 3",
        lambda index: together(model, 1),
        lambda index: together(model, 32),
        repeats,
    )
    yield ratio(
        "their bare forwards one at a time / batched",
        "",
        lambda index: one_by_one.replay(),
        lambda index: all_at_once.replay(),
        repeats,
    )
    yield batching_gain(model, repeats)


def options(model: Model, repeats: int) -> Iterable[Figure]:
    """What the options of `load` buy on this machine; above 1 is faster."""
    plain = search(model, TINY)
    half = search(s3dlm.load("tiny", dtype="bfloat16"), TINY)
    yield ratio("s3, tiny: float32 / bfloat16", "", plain, half, max(4, repeats // 4))


def wide_figures(model: Model, repeats: int) -> Iterable[Figure]:
    greedy = WIDE.replace(method="baseline", temperature=0.0, steps=16)

    def ours(index: int) -> object:
        return s3dlm.generate(model, "question", settings=greedy)

    def llada(index: int) -> torch.Tensor:
        return Loop(model, "question", greedy).decode()

    *_, last = s3dlm.stream(model, "question", settings=greedy)
    assert last.tokens[0].tolist() == llada(0)[0].tolist(), "both loops write the same tokens"
    few = max(3, repeats // 5)
    many = max(3, repeats // 2)  # small differences
    yield overhead("s3 / bare forwards of the same rows, wide", "≤ 1.05", model, WIDE, many)
    yield strict_overhead(model, WIDE, many)
    yield ratio("LLaDA-style loop / our baseline, wide, same tokens", "≥ 2", llada, ours, few)
    listened, recorder = recorded(model)
    s3dlm.generate(listened, "question", settings=greedy)
    name = "LLaDA-style loop / the bare forwards of our baseline, wide"
    yield ratio(name, "", llada, lambda index: recorder.replay(), few)
    half = models.wide(torch.bfloat16)

    def reduced(index: int) -> object:
        return s3dlm.generate(half, "question", settings=greedy)

    yield ratio("baseline, wide: float32 / bfloat16", "", ours, reduced, few)
    name = "peak memory above weights: s3 / LLaDA-style batch of K, wide"
    yield figure(name, "≤ 0.4", [peak_bytes("s3") / peak_bytes("llada")])


def block_figures(repeats: int) -> Iterable[Figure]:
    """What the exact cache of prompt and finished blocks buys a block-causal model."""
    both = [models.block_causal(cache=cache) for cache in (False, True)]
    greedy = Settings("baseline", gen_length=512, steps=256, block_length=32, temperature=0.0)
    searched = Settings(
        "s3", gen_length=512, steps=32, block_length=32, particles=2, temperature=0.7
    )
    prompt = "A question of some length, as people ask them."
    for name, settings in (("baseline", greedy), ("s3", searched)):
        whole, cached = (functools.partial(_last_tokens, model, prompt, settings) for model in both)
        assert whole(0) == cached(0), "both write the same tokens"
        title = f"{name}, block-causal, 512 tokens: without cache / with, same tokens"
        yield ratio(title, "≥ 3", whole, cached, max(3, repeats // 5))


def _last_tokens(model: Model, prompt: str, settings: Settings, index: int) -> list[list[int]]:
    steps = list(s3dlm.stream(model, prompt, settings=settings))
    found: list[list[int]] = steps[-1].tokens.tolist()
    return found


def growth(repeats: int = 3) -> Iterable[Figure]:
    """Time must not grow faster than the rows, nor much faster than rows × length."""
    model = models.tiny(context=1024)  # far beyond what it was trained on; only time is looked at
    _, question = question_of(model, 1)
    by_children = [TINY.replace(particles=count // 2) for count in (4, 8, 16, 32, 64)]
    by_length = [
        TINY.replace(gen_length=length, steps=length // 2) for length in (64, 128, 256, 512)
    ]

    def slope(runs: list[Settings], tokens: bool) -> float:
        results = [s3dlm.generate(model, question, task="countdown", settings=one) for one in runs]
        sizes = [one.nfe * (one.settings.decoding.gen_length if tokens else 1) for one in results]
        return exponent([float(size) for size in sizes], [one.seconds for one in results])

    rows = [slope(by_children, tokens=False) for _ in range(repeats)]
    yield figure("growth: exponent of time over rows, N·b from 4 to 64, tiny", "≤ 1.1", rows)
    length = [slope(by_length, tokens=True) for _ in range(repeats)]
    name = "growth: exponent of time over rows × length, gen_length 64 to 512, tiny"
    yield figure(name, "≤ 1.2", length)


def rows(figures: Iterable[Figure]) -> Iterator[tuple[str, ...]]:
    """The table as people read it."""
    yield ("figure", "median", "spread", "target", "met")
    for one in figures:
        verdict = "–" if one.met is None else "yes" if one.met else "no"
        spread = f"{one.low:.2f}–{one.high:.2f} ({one.repeats})"
        yield (one.name, f"{one.median:.2f}", spread, one.target, verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument(
        "--only", choices=["tiny", "growth", "options", "once", "blocks", "wide"], default=None
    )
    chosen = parser.parse_args()
    small = models.tiny()
    parts: dict[str, Callable[[], Iterable[Figure]]] = {
        "tiny": lambda: tiny_figures(small, chosen.repeats),
        "growth": growth,
        "options": lambda: options(small, chosen.repeats),
        "once": lambda: plain_decoding(small, models.wide(), chosen.repeats),
        "blocks": lambda: block_figures(chosen.repeats),
        "wide": lambda: wide_figures(models.wide(), chosen.repeats),
    }
    figures: list[Figure] = []
    for name, part in parts.items():
        if chosen.only in (None, name):
            print(f"— {name}", flush=True)
            figures += part()
    write(figures)


def write(figures: list[Figure]) -> None:
    """The table and its data; figures that were not measured this time stay as they were."""
    old = json.loads(RESULTS.read_text())["figures"] if RESULTS.exists() else []
    known = {one["name"]: Figure(**one) for one in old} | {one.name: one for one in figures}
    figures = list(known.values())
    machine = {
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    data = {"machine": machine, "figures": [asdict(one) for one in figures]}
    RESULTS.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows(figures))


if __name__ == "__main__":
    main()
