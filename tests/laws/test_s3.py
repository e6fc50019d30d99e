"""S³ against the paper's Algorithm 1 as it stands on one page, on the toy that can be enumerated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import s3dlm
from examples.s3_in_one_page import s3
from tests.laws.toy import LENGTH, MASK, TOY, ToyDenoiser, reward, score

Canvas = tuple[int, ...]
Run = tuple[list[Canvas], Canvas]  # the survivors and the answer of one search
RUNS = 700


def literal_s3(steps: int, n: int, b: int, lam: float, rng: np.random.Generator) -> Run:
    """The example, which a reader takes for the algorithm."""
    best, particles = s3(
        toy_logits, MASK, LENGTH, steps, lambda x: reward(tuple(x.tolist())), tuple,
        N=n, b=b, lam=lam, temperature=1.0, rng=rng,
    )  # fmt: skip
    return [tuple(x.tolist()) for x, _ in particles], tuple(best.tolist())


def toy_logits(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(ToyDenoiser.logits(tuple(x.tolist())))


def library_s3(steps: int, n: int, b: int, lam: float, runs: int) -> list[Run]:
    """As many searches through the public interface, side by side."""
    results = s3dlm.generate_batch(
        TOY, ["toy"] * runs, sample_ids=range(runs), method="s3", verifier=score, temperature=1.0,
        gen_length=LENGTH, block_length=LENGTH, steps=steps, particles=n, branching=b, lam=lam,
        max_rows=256,
    )  # fmt: skip
    read = (([tuple(map(int, x.text)) for x in r.survivors], r.text) for r in results)
    return [(survivors, tuple(map(int, text))) for survivors, text in read]


def discrepancy(one: Sequence[Sequence[Canvas]], other: Sequence[Sequence[Canvas]]) -> float:
    """How far two samples of runs differ in how often each text occurs: the mean of z², which is about 1
    for two samples of one distribution. Texts too rare for a z count as one."""
    seen = Counter(text for runs in (one, other) for run in runs for text in set(run))
    column = {
        text: 1 + place for place, (text, count) in enumerate(seen.most_common()) if count >= 20
    }

    def shares(runs: Sequence[Sequence[Canvas]]) -> np.ndarray:
        table = np.zeros((len(runs), len(column) + 1))
        for row, run in zip(table, runs, strict=True):
            for text in run:
                row[column.get(text, 0)] += 1 / len(run)
        return table

    first, second = shares(one), shares(other)
    variance = first.var(0) / len(one) + second.var(0) / len(other)
    z = (first.mean(0) - second.mean(0)) / np.sqrt(np.maximum(variance, 1e-12))
    return float(np.square(z).mean())


CASES = [(2, 2, 2, 3.0), (2, 4, 2, 8.0), (4, 1, 4, 5.0), (4, 3, 2, 3.0), (4, 4, 3, 2.0)]


@pytest.mark.parametrize(("steps", "n", "b", "lam"), CASES)
def test_s3_is_algorithm_1(steps: int, n: int, b: int, lam: float) -> None:
    rng = np.random.default_rng([steps, n, b])
    literal = [literal_s3(steps, n, b, lam, rng) for _ in range(2 * RUNS)]
    ours = library_s3(steps, n, b, lam, RUNS)
    parts: dict[str, Callable[[Run], Sequence[Canvas]]] = {
        "survivors": lambda run: run[0],
        "vote": lambda run: [run[1]],
    }
    found = {
        name: discrepancy([part(run) for run in ours], [part(run) for run in literal])
        for name, part in parts.items()
    }
    assert max(found.values()) < 2.0, f"not Algorithm 1: mean z² is {found}, should be about 1"


def test_the_comparison_notices_another_lambda() -> None:
    """Else agreement would say nothing: λ = 3 and λ = 5 are told apart."""
    rng = np.random.default_rng(0)
    literal = [literal_s3(4, 3, 2, 5.0, rng)[0] for _ in range(2 * RUNS)]
    ours = [survivors for survivors, _ in library_s3(4, 3, 2, 3.0, RUNS)]
    assert discrepancy(ours, literal) > 2.5


def test_more_children_than_are_verified_in_one_go_are_all_scored() -> None:
    ((survivors, answer),) = library_s3(2, 80, 2, 3.0, 1)
    assert len(survivors) == 80
    assert answer in survivors
