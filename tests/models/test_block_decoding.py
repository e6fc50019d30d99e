"""Block-causal decoding against the samplers of its authors, written here plainly, on the networks of
transformers: no cache, whole rows, a mask that is written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.models.base import Model
from s3dlm.result import Result
from s3dlm.search.methods import METHODS
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.trace import TraceEncoder
from tests.fakes import ByteTokenizer, FakeDenoiser, events_of, fake_model, plain
from tests.models.references import CASES, attending, in_bytes, reference

MASK, LENGTH = 259, 40
Logits = Callable[[list[int]], Tensor]  # of every position of a row


def logits_of(case: str, block: int) -> Logits:
    """Of the network of transformers, in which no position sees what is behind its block."""

    def run(row: list[int]) -> Tensor:
        number = torch.arange(len(row)) // block
        logits = attending(reference(case), row, number[:, None] < number[None, :])
        logits[:, MASK] = -torch.inf
        return logits.double()

    return run


def question(length: int) -> str:
    """A question whose prompt has this many tokens."""
    return ("What is it? " * 9)[: length - 1]


# --- the authors' samplers, greedy


def sdar(
    logits: Logits, prompt: list[int], length: int, block: int, steps: int, least: float | None
) -> list[int]:
    """SDAR and LLaDA2: whole blocks from the one that holds the prompt's end; a step reveals its share
    of a block, or with a threshold all that is above it if that is more."""
    total = -(-(len(prompt) + length) // block) * block
    x = prompt + [MASK] * (total - len(prompt))
    shares = [block // steps + (step < block % steps) for step in range(steps)]
    for start in range(len(prompt) // block * block, total, block):
        for share in shares:
            places = [i for i in range(start, start + block) if x[i] == MASK]
            if not places:
                break
            best = logits(x[: start + block]).softmax(-1).max(-1)
            sure = sorted(places, key=lambda i: -float(best.values[i]))
            above = [i for i in places if least is not None and float(best.values[i]) > least]
            for i in above if len(above) >= share and above else sure[:share]:
                x[i] = int(best.indices[i])
    return x[len(prompt) :][:length]


def fast_dllm_v2(
    logits: Logits, prompt: list[int], length: int, block: int, small: int, least: float
) -> list[int]:
    """Position i is predicted by i − 1. A finished block predicts the first token of the next one; the
    others are revealed part by part, the best one and all above the threshold."""
    x = list(prompt)
    while len(x) - len(prompt) < length:
        if len(x) % block == 0:
            x.append(int(logits(x)[-1].argmax()))
        x += [MASK] * (-len(x) % block)
        for start in range(len(x) - block, len(x), small):
            while places := [i for i in range(start, start + small) if x[i] == MASK]:
                whole = logits(x)
                best = torch.cat((whole[:1], whole[:-1])).softmax(-1).max(-1)
                top = max(places, key=lambda i: float(best.values[i]))
                for i in places:
                    if i == top or float(best.values[i]) > least:
                        x[i] = int(best.indices[i])
    return x[len(prompt) :][:length]


def ours(model: Model, prompt: int, **options: Any) -> list[int]:
    settings = Settings("baseline", temperature=0.0, gen_length=LENGTH, **options)
    *steps, result = events_of(model, question(prompt), settings=settings)
    assert isinstance(result, Result)
    tokens: list[int] = steps[-1].tokens[0, :LENGTH].tolist()
    assert MASK not in tokens
    assert result.survivors[0].tokens == LENGTH
    return tokens


PROMPTS = [8, 23, 61]  # that end with a block of 4 and 8, within one, and far on


@pytest.mark.parametrize(
    ("case", "block", "per_block"),  # None: all above a threshold
    [
        ("sdar", 4, None), ("sdar, 16", 16, None), ("sdar_moe", 4, None), ("sdar", 4, 1), ("sdar", 4, 2), ("sdar, 16", 16, 6),
        ("a2d-qwen3", 8, 1), ("a2d-qwen3", 8, 4), ("a2d-qwen3", 4, 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_sdars_sampler(case: str, block: int, per_block: int | None, prompt: int) -> None:
    """dllm's for bd3lm checkpoints pads prompts on the left to whole blocks, and is else the same."""
    if case == "a2d-qwen3":
        prompt -= prompt % block
    ids = ByteTokenizer().chat(question(prompt))
    least = 0.05 if per_block is None else None
    how: dict[str, Any] = {"reveal": "threshold", "reveal_threshold": least}
    if per_block is not None:
        how = {"steps": -(-LENGTH * per_block // block), "block_length": min(block, LENGTH)}
    expected = sdar(logits_of(case, block), ids, LENGTH, block, per_block or block, least)
    model = in_bytes(case, None if CASES[case].block else block)
    assert ours(model, prompt, **how) == expected


@pytest.mark.parametrize("small", [8, 2])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_fast_dllm_v2s_sampler(small: int, prompt: int) -> None:
    case, ids = "fast-dllm v2, 8", ByteTokenizer().chat(question(prompt))
    expected = fast_dllm_v2(logits_of(case, 8), ids, LENGTH, 8, small, 0.05)
    rule = {"reveal": "threshold", "reveal_threshold": 0.05}
    assert ours(in_bytes(case), prompt, block_length=small, **rule) == expected


# --- search


SMALL: dict[str, Any] = {
    "gen_length": 24, "steps": 12, "block_length": 8, "particles": 3, "temperature": 1.0,
}  # fmt: skip
ENDING = 65  # a token that random networks like well enough to end some answers


def searched(case: str, method: str, **options: Any) -> tuple[Model, Settings]:
    model = dataclasses.replace(in_bytes(case), end_ids=frozenset({ENDING}))
    if method in ("lookum", "unmaskfork"):  # they reveal by the schedule, whose steps then count
        options = {}
    if (
        method == "prism"
    ):  # the question that it asks the model by default is longer than the context
        options["verifier"] = "paper"
    return model, Settings.over(method, [{**SMALL, **options}], {})


@pytest.mark.parametrize(
    ("method", "case", "reveal"),
    [
        *((method, "sdar, 16", "schedule") for method in METHODS),
        ("s3", "nemotron", "schedule"),
        *((method, "fast-dllm v2, 8", "threshold") for method in ("s3", "revise", "prism")),
    ],
)
def test_every_method_fills_blocks_and_batched_is_unbatched(
    case: str, method: str, reveal: str
) -> None:
    model, settings = searched(case, method, reveal=reveal, reveal_threshold=0.1)
    questions = [question(length) for length in (16, 30)]
    if method == "vgb":
        with pytest.raises(SettingsError, match="block-causal"):
            s3dlm.generate(model, questions[0], settings=settings)
        return
    together = s3dlm.generate_batch(model, questions, settings=settings)
    alone = [s3dlm.generate(model, one, settings=settings) for one in questions]
    assert [plain(one) for one in together] == [plain(one) for one in alone]
    assert all(0 <= one.tokens <= 24 for result in alone for one in result.survivors)


@pytest.mark.parametrize("case", ["sdar, 16", "fast-dllm v2, 8"])
@pytest.mark.parametrize(("length", "reveal"), [(13, "schedule"), (16, "threshold")])
def test_the_look_ahead_is_complete_up_to_the_open_blocks_end(
    case: str, reveal: str, length: int
) -> None:
    model, settings = searched(case, "s3", reveal=reveal, reveal_threshold=0.1)
    model = dataclasses.replace(model, end_ids=frozenset())
    block, seen = CASES[case].block, list[str]()
    assert block

    def verifier(asked: str, text: str, confidence: float) -> float:
        seen.append(text)
        return len(text) % 7 / 7

    *steps, _ = events_of(model, question(length), settings=settings, verifier=verifier)
    for step in steps:
        assert isinstance(step, Step)
        for canvas, clean in zip(step.tokens, step.clean, strict=True):
            hidden, unknown = np.flatnonzero(canvas == MASK), np.flatnonzero(clean == MASK)
            if not hidden.size:
                assert not unknown.size
                continue
            end = (length + hidden[0]) // block * block + block - length
            assert unknown.tolist() == list(range(end, canvas.size))
            assert (clean == canvas)[canvas != MASK].all()
    assert {len(text) for text in seen} - {24}  # texts grow block by block
    encoder = TraceEncoder(model)
    assert -1 in encoder.event(steps[0])["clean"][0]  # a trace says that nothing is known there


def test_too_few_steps_for_the_models_blocks_are_refused() -> None:
    model = in_bytes("sdar")
    with pytest.raises(SettingsError, match="one step per block of 4; choose steps from 10 to 40"):
        s3dlm.generate(
            model, "why?", method="baseline", gen_length=40, steps=5, block_length=40, temperature=0
        )


def test_an_answer_never_exceeds_the_context_or_the_length_asked_for() -> None:
    model = in_bytes("sdar, 16")
    settings = Settings("baseline", gen_length=5, steps=5, block_length=5, temperature=0)
    result = s3dlm.generate(model, question(101), settings=settings)
    assert result.survivors[0].tokens == 5
    context = model.denoiser.context
    long = ("What is it? " * 99)[: context - 6]
    assert s3dlm.generate(model, long, settings=settings).survivors[0].tokens == 5


def test_a_text_that_is_not_whole_is_never_the_answer() -> None:
    """A look-ahead ends with the open block; `revise` chooses among all that it saw."""
    text = "The quick brown fox jumps over the lazy dog, runs home and sleeps for a week."

    class SureOfTheBeginning(FakeDenoiser):
        causal_block = 16

        def _fill(self, row: Any, logits: Any) -> None:
            super()._fill(row, logits)
            start = int(np.argmax(row == ord("\n"))) + 1
            logits[start : start + 32] *= 3.0

    fake = fake_model()
    model = dataclasses.replace(fake, denoiser=SureOfTheBeginning([text], noise=3.0, push=6.0))
    for method in ("revise", "temporal_vote"):
        settings = Settings(method, gen_length=80, steps=40, block_length=16, temperature=0.7)
        assert len(s3dlm.generate(model, "q", settings=settings).text) >= 70


def test_the_most_forward_passes_count_whole_blocks() -> None:
    class Endless(FakeDenoiser):
        causal_block = 8

        def _fill(self, row: Any, logits: Any) -> None:
            logits[:, 97] = np.arange(row.size)  # the surest last, so that no block ends early

    model = dataclasses.replace(fake_model(), denoiser=Endless(["x"]))
    settings = Settings("baseline", gen_length=8, block_length=8, steps=8)
    result = s3dlm.generate(model, "quest", settings=settings)
    assert settings.most_nfe < result.nfe <= settings.most_nfe_in_blocks(8) <= 20
