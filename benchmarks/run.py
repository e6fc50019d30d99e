"""`make bench`: every figure a ratio, measured side by side in one run, interleaved and repeated.

Machines are noisy, so nothing here is a number of seconds: two ways of doing the same thing take
turns, and what is reported is the median of their ratios with its spread. Writes
`benchmarks/results.json` and the table in `docs/performance.md`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import s3dlm
from benchmarks import models
from benchmarks.memory import peak_bytes
from benchmarks.peers import LiteralAlgorithm1, Loop
from s3dlm.models.base import Model
from s3dlm.settings import Settings
from s3dlm.tasks.problems import problems
from s3dlm.verifier import for_task

ROOT = Path(__file__).parent.parent
TASKS = ("arithmetic", "countdown", "sudoku", "choice")
TINY = Settings(gen_length=64, steps=32, block_length=64)
WIDE = Settings(gen_length=64, steps=16, block_length=64, temperature=0.7)
MARK = "<!-- results -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One ratio."""

    name: str
    target: str
    median: float
    low: float
    high: float
    repeats: int
    met: bool | None
    note: str = ""


def ratio(
    name: str,
    target: str,
    over: Callable[[int], object],
    under: Callable[[int], object],
    repeats: int,
    *,
    note: str = "",
) -> Figure:
    """Median of time(over) / time(under), taken in turns after one warm-up of each."""
    over(0)
    under(0)
    ratios = []
    for repeat in range(repeats):
        pair = [(over, 0), (under, 1)]
        seconds = [0.0, 0.0]
        for function, place in pair if repeat % 2 else reversed(pair):
            started = time.perf_counter()
            function(repeat)
            seconds[place] = time.perf_counter() - started
        ratios.append(seconds[0] / seconds[1])
    return figure(name, target, ratios, note=note)


def figure(name: str, target: str, values: list[float], *, note: str = "") -> Figure:
    ordered = sorted(values)
    median = statistics.median(ordered)
    done = Figure(
        name, target, median, ordered[0], ordered[-1], len(ordered), met(target, median), note
    )
    print(f"{name:70} {median:8.3f}  ({ordered[0]:.3f}–{ordered[-1]:.3f})  target {target or '–'}")
    return done


def met(target: str, value: float) -> bool | None:
    if not target:
        return None
    sign, bound = target.split()
    return value <= float(bound) if sign == "≤" else value >= float(bound)


class Recorder:
    """A denoiser that remembers what it was asked, so that the bare forwards can be run again."""

    def __init__(self, model: Model) -> None:
        self.inner = model.denoiser
        self.mask_id, self.vocabulary = self.inner.mask_id, self.inner.vocabulary
        self.context = self.inner.context
        self.calls: list[tuple[str, tuple[torch.Tensor, ...]]] = []

    def encode(self, tokens: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
        self.calls.append(("encode", (tokens, keys)))  # type: ignore[arg-type]
        return self.inner.encode(tokens, keys)

    def head(self, features: torch.Tensor) -> torch.Tensor:
        self.calls.append(("head", (features,)))
        return self.inner.head(features)

    @torch.inference_mode()
    def replay(self) -> None:
        for name, arguments in self.calls:
            getattr(self.inner, name)(*arguments)


def overhead(name: str, target: str, model: Model, settings: Settings, repeats: int) -> Figure:
    """A whole search against the same encode and head calls with nothing around them."""
    values = []
    for repeat in range(repeats + 1):
        task, question = question_of(model, repeat)
        job = settings.replace(seed=repeat)
        recorder = Recorder(model)
        recorded = s3dlm.Model(model.name, recorder, model.tokenizer, model.end_ids, model.preset)
        s3dlm.generate(recorded, question, task=task, settings=job)
        bare = timed(recorder.replay)
        whole = timed(lambda: s3dlm.generate(model, question, task=task, settings=job))  # noqa: B023
        bare = (bare + timed(recorder.replay)) / 2
        if repeat:
            values.append(whole / bare)
    return figure(name, target, values)


def timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def question_of(model: Model, index: int) -> tuple[str | None, str]:
    if model.name != "tiny":
        return None, f"question number {index}"
    task = TASKS[index % len(TASKS)]
    return task, problems(task, "test", 32, 0)[index // len(TASKS) % 32].question


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def tiny_figures(model: Model, repeats: int) -> list[Figure]:
    s3, bok = TINY, TINY.replace(method="best_of_k")

    def ours(settings: Settings) -> Callable[[int], object]:
        def run(index: int) -> object:
            task, question = question_of(model, index)
            return s3dlm.generate(model, question, task=task, settings=settings.replace(seed=index))

        return run

    def peers(index: int) -> object:
        _, question = question_of(model, index)
        return Loop(model, question, s3.replace(seed=index)).decode(rows=8)

    def literal(index: int) -> object:
        task, question = question_of(model, index)
        verifier = for_task(task or "general")
        return LiteralAlgorithm1(model, question, s3.replace(seed=index), verifier).search()

    return [
        overhead("s3 / bare forwards of the same rows, tiny", "≤ 1.15", model, s3, repeats),
        ratio("s3 / best-of-K as peers run it, tiny, K = 8", "≤ 0.4", ours(s3), peers, repeats),
        ratio("s3 / our own best_of_k, tiny, K = 8", "≤ 1.0", ours(s3), ours(bok), repeats),
        ratio("literal Algorithm 1 / s3, tiny", "≥ 6", literal, ours(s3), max(2, repeats // 4)),
        packed(model, repeats),
    ]


def packed(model: Model, repeats: int) -> Figure:
    """Throughput of 32 prompts together against one after another."""
    prompts = [one.question for one in problems("countdown", "test", 32, 0)]

    def alone(index: int) -> None:
        for prompt in prompts:
            s3dlm.generate(model, prompt, task="countdown", settings=TINY)

    def together(index: int) -> None:
        s3dlm.generate_batch(model, prompts, task="countdown", settings=TINY, max_rows=128)

    count = max(2, repeats // 8)
    return ratio("32 prompts one at a time / packed, s3, tiny", "≥ 3", alone, together, count)


def wide_figures(model: Model, repeats: int) -> list[Figure]:
    greedy = WIDE.replace(method="baseline", temperature=0.0)

    def ours(index: int) -> object:
        return s3dlm.generate(model, "question", settings=greedy)

    def llada(index: int) -> object:
        return Loop(model, "question", greedy).decode()

    *_, last = (
        e for e in s3dlm.stream(model, "question", settings=greedy) if isinstance(e, s3dlm.Step)
    )
    assert last.tokens[0].tolist() == llada(0)[0].tolist(), (
        "the two loops must write the same tokens"
    )
    few = max(2, repeats // 6)
    return [
        overhead("s3 / bare forwards of the same rows, wide", "≤ 1.05", model, WIDE, few),
        ratio("LLaDA-style loop / our baseline, wide, same tokens", "≥ 2", llada, ours, few),
        memory(),
    ]


def memory() -> Figure:
    """Peak memory above the weights, each in a process of its own."""
    return figure(
        "peak memory above weights: s3 / LLaDA-style batch of K, wide",
        "≤ 0.4",
        [peak_bytes("s3") / peak_bytes("llada")],
    )


def growth(model: Model) -> list[Figure]:
    """Seconds a row must not grow with the number of rows, nor faster than the model's own cost."""
    children, by_children = [4, 8, 16, 32, 64], []
    for count in children:
        settings = TINY.replace(particles=count // 2, branching=2, temperature=1.0)
        _, question = question_of(model, 1)
        result = s3dlm.generate(model, question, task="countdown", settings=settings)
        by_children.append((result.nfe, result.seconds))
    lengths, by_length = [64, 128, 256, 512], []
    for length in lengths:
        settings = TINY.replace(gen_length=length, steps=length // 2, block_length=64)
        task, question = question_of(model, 1)
        if length + 64 > model.denoiser.context:
            break
        result = s3dlm.generate(model, question, task=task, settings=settings)
        by_length.append((result.nfe * length, result.seconds))
    rows = exponent([n for n, _ in by_children], [s for _, s in by_children])
    tokens = exponent([n for n, _ in by_length], [s for _, s in by_length])
    return [
        figure("growth: exponent of time over rows, N·b from 4 to 64, tiny", "≤ 1.1", [rows]),
        figure("growth: exponent of time over rows × length, tiny", "≤ 1.2", [tokens]),
    ]


def table(figures: list[Figure]) -> str:
    lines = ["| figure | median | spread | target | met |", "|---|---|---|---|---|"]
    for one in figures:
        verdict = "–" if one.met is None else "yes" if one.met else "**no**"
        spread = f"{one.low:.2f}–{one.high:.2f} ({one.repeats})"
        lines.append(f"| {one.name} | {one.median:.2f} | {spread} | {one.target} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--only", choices=["tiny", "wide", "growth"], default=None)
    options = parser.parse_args()
    figures: list[Figure] = []
    small = models.tiny()
    if options.only in (None, "tiny"):
        figures += tiny_figures(small, options.repeats)
    if options.only in (None, "growth"):
        figures += growth(small)
    if options.only in (None, "wide"):
        figures += wide_figures(models.wide(), options.repeats)
    if options.only is None:
        write(figures)


def write(figures: list[Figure]) -> None:
    machine = {
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    data = {"machine": machine, "figures": [asdict(one) for one in figures]}
    (ROOT / "benchmarks" / "results.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    )
    page = ROOT / "docs" / "performance.md"
    before, _, rest = page.read_text().partition(MARK)
    after = rest.partition(MARK)[2]
    page.write_text(f"{before}{MARK}\n{table(figures)}\n{MARK}{after}")


if __name__ == "__main__":
    main()
