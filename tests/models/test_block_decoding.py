"""Block-causal decoding against the samplers of its authors, written here plainly, on the networks of
transformers: no cache, whole rows, a mask that is written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.models.base import Model, Wrapper
from s3dlm.models.registry import load
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.search.methods import METHODS
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.trace import TraceEncoder
from tests.fakes import ByteTokenizer, FakeDenoiser, events_of, fake_model
from tests.models.checkpoints import moe_tensors, write_folder
from tests.models.references import CASES, attending, in_bytes, reference
from tests.models.test_families import MOE_CASES

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


def bd3lm(logits: Logits, prompt: list[int], length: int, block: int, steps: int) -> list[int]:
    """dllm's sampler appends a block of masks to what is finished, and fills it in equal shares."""
    x = list(prompt)
    while len(x) - len(prompt) < length:
        x += [MASK] * block
        while MASK in x:
            places = [i for i, token in enumerate(x) if token == MASK]
            best = logits(x).softmax(-1).max(-1)
            for i in sorted(places, key=lambda i: -float(best.values[i]))[: block // steps]:
                x[i] = int(best.indices[i])
    return x[len(prompt) :]


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


def llada21(
    logits: Logits, prompt: list[int], length: int, block: int, least: float, edit: float
) -> tuple[list[int], int]:
    """LLaDA2.1: as above, and every pass also replaces revealed tokens by surer ones; a full block is
    edited until nothing changes, at most 16 times. The answer, and how many tokens were replaced."""
    total, replaced = -(-(len(prompt) + length) // block) * block, 0
    x = prompt + [MASK] * (total - len(prompt))
    for start in range(len(prompt) // block * block, total, block):
        rounds = 0
        while True:
            places = [i for i in range(start, start + block) if x[i] == MASK]
            rounds += not places
            if rounds > 16:
                break
            best = logits(x[: start + block]).softmax(-1).max(-1)
            p, token = best.values.tolist(), best.indices.tolist()
            chosen = [i for i in places if p[i] > least]
            if places and not chosen:
                chosen = [max(places, key=lambda i: p[i])]
            edits = [
                i
                for i in range(max(start, len(prompt)), start + block)
                if x[i] not in (MASK, token[i]) and p[i] > edit
            ]
            for i in chosen + edits:
                x[i] = token[i]
            replaced += len(edits)
            if not places and not edits:
                break
    return x[len(prompt) :][:length], replaced


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
    ("case", "per_block"),  # None: all above a threshold
    [("sdar", None), ("sdar, 16", None), ("sdar_moe", None), ("sdar", 1), ("sdar", 2), ("sdar, 16", 6)],
)  # fmt: skip
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_sdars_sampler(case: str, per_block: int | None, prompt: int) -> None:
    block, ids = CASES[case].block, ByteTokenizer().chat(question(prompt))
    assert block
    least = 0.05 if per_block is None else None
    how: dict[str, Any] = {"reveal": "threshold", "reveal_threshold": least}
    if per_block is not None:
        how = {"steps": -(-LENGTH * per_block // block), "block_length": min(block, LENGTH)}
    expected = sdar(logits_of(case, block), ids, LENGTH, block, per_block or block, least)
    assert ours(in_bytes(case), prompt, **how) == expected


@pytest.mark.parametrize(("block", "per_block"), [(8, 1), (8, 4), (4, 4)])
@pytest.mark.parametrize("prompt", [8, 40])
def test_greedy_is_bd3lms_sampler(block: int, prompt: int, per_block: int) -> None:
    """It pads prompts on the left to whole blocks; these need no padding."""
    ids, model = ByteTokenizer().chat(question(prompt)), in_bytes("a2d-qwen3", block)
    expected = bd3lm(logits_of("a2d-qwen3", block), ids, LENGTH, block, per_block)
    assert ours(model, prompt, steps=LENGTH // block * per_block) == expected


@pytest.mark.parametrize("small", [8, 2])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_fast_dllm_v2s_sampler(small: int, prompt: int) -> None:
    case, ids = "fast-dllm v2, 8", ByteTokenizer().chat(question(prompt))
    expected = fast_dllm_v2(logits_of(case, 8), ids, LENGTH, 8, small, 0.05)
    rule = {"reveal": "threshold", "reveal_threshold": 0.05}
    assert ours(in_bytes(case), prompt, block_length=small, **rule) == expected


def check_edits(
    logits: Logits, model: Model, block: int, edit: float, prompts: Sequence[int] = (15, 32)
) -> None:
    replaced, rule = 0, {"reveal": "threshold", "reveal_threshold": 0.05}
    for prompt in prompts:
        ids = ByteTokenizer().chat(question(prompt))
        expected, some = llada21(logits, ids, LENGTH, block, 0.05, edit)
        assert ours(model, prompt, edit_threshold=edit, **rule) == expected
        replaced += some
    assert replaced > 0


@pytest.mark.parametrize(("case", "edit"), [("sdar", 0.08), ("sdar, 16", 0.03)])
def test_greedy_is_llada21s_sampler_with_edits(case: str, edit: float) -> None:
    block = CASES[case].block
    assert block
    check_edits(logits_of(case, block), in_bytes(case), block, edit)


def test_a_mixture_of_llada2_edits_as_its_sampler(tmp_path: Path) -> None:
    """Its network's logits are proven in test_families; here they come from whole rows, uncached."""
    config = MOE_CASES["llada2"] | {"max_position_embeddings": 128}
    loaded = load(str(write_folder(tmp_path / "llada2", config, moe_tensors(config))))
    model = dataclasses.replace(loaded, tokenizer=ByteTokenizer(), end_ids=frozenset())
    network = model.denoiser
    assert isinstance(network, Transformer)

    @torch.inference_mode()
    def logits(row: list[int]) -> Tensor:
        values = network(torch.tensor([row]))[0].double()
        values[:, network.config.mask_id] = -torch.inf
        return values

    check_edits(logits, model, 8, 0.02, [15])


def test_edits_are_refused_where_they_cannot_be_made() -> None:
    with pytest.raises(SettingsError, match="needs reveal='threshold'"):
        s3dlm.generate(in_bytes("sdar"), "why?", edit_threshold=0.9, gen_length=16, steps=8)
    settings = Settings("s3", edit_threshold=0.9, reveal="threshold")
    with pytest.raises(SettingsError, match="not supported by tiny, which has no blocks"):
        s3dlm.generate("tiny", "why?", settings=settings)


def test_a_search_edits_too_and_batched_is_unbatched() -> None:
    model, settings = searched(
        "sdar", "particle_gibbs", reveal="threshold", reveal_threshold=0.1, edit_threshold=0.1
    )
    questions = [question(length) for length in (16, 30)]
    together = s3dlm.generate_batch(model, questions, settings=settings)
    alone = [s3dlm.generate(model, one, settings=settings) for one in questions]
    assert [plain(one) for one in together] == [plain(one) for one in alone]
    unchanged = settings.replace(edit_threshold=None)
    assert [one.text for one in alone] != [
        s3dlm.generate(model, one, settings=unchanged).text for one in questions
    ]


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


def plain(result: Result) -> list[Any]:
    data = [(one.text, one.nll, one.score, one.tokens) for one in result.survivors]
    return [result.text, result.nfe, data]


@pytest.mark.parametrize(
    ("method", "case", "reveal"),
    [
        *((method, "sdar, 16", "schedule") for method in METHODS),
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


class WholeRows(Wrapper):
    """A network that keeps no keys and values."""

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.inner.encode(tokens, keys)


@pytest.mark.parametrize(
    ("case", "method", "reveal"),
    [
        ("sdar", "particle_gibbs", "schedule"),
        ("sdar, 16", "hex", "dream"),
        ("fast-dllm v2, 8", "revise", "threshold"),
        ("fast-dllm v2, 8", "s3", "schedule"),
    ],
)
def test_the_cache_changes_nothing(case: str, method: str, reveal: str) -> None:
    model, settings = searched(case, method, reveal=reveal, reveal_threshold=0.1)
    whole = dataclasses.replace(model, denoiser=WholeRows(model.denoiser))
    for length in (16, 30):
        one, other = (
            s3dlm.generate(m, question(length), settings=settings) for m in (model, whole)
        )
        assert (one.text, one.nfe) == (other.text, other.nfe)
        np.testing.assert_allclose(
            [s.nll for s in one.survivors], [s.nll for s in other.survivors], atol=1e-5
        )


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


def test_the_most_forward_passes_count_whole_blocks_and_edits() -> None:
    class NeverContent(FakeDenoiser):
        """Always sure of another token than the one that stands there."""

        causal_block = 8

        def _fill(self, row: Any, logits: Any) -> None:
            logits[:] = 0
            logits[np.arange(row.size), np.where(row != 97, 97, 98)] = 30

    model = dataclasses.replace(fake_model(), denoiser=NeverContent(["x"]))
    settings = Settings(
        "baseline", gen_length=16, block_length=8, reveal="threshold", edit_threshold=0.9
    )
    result = s3dlm.generate(model, "question", settings=settings)
    assert settings.most_nfe < result.nfe <= settings.most_nfe_in_blocks(8)
    plain = Settings("baseline", gen_length=8, block_length=8, steps=8)
    result = s3dlm.generate(model, "quest", settings=plain)
    assert result.nfe <= plain.most_nfe_in_blocks(8) <= 20
