"""DiffusionGemma with random weights, against transformers' own `generate` and forward passes."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationConfig,
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
)

import s3dlm
from s3dlm.engine import Job
from s3dlm.errors import ModelError, SettingsError
from s3dlm.extras.diffusion_gemma import DiffusionGemma, noise_of
from s3dlm.job import prepare
from s3dlm.models.base import Loading, Model, Noise
from s3dlm.models.forward import Forward
from s3dlm.models.lora import Adapter
from s3dlm.search.particles import Canvas, CanvasPredictions
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer
from tests.models.checkpoints import write_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in torchao

CANVAS, VOCABULARY = 16, 512
SETTINGS = {"temperature": 0.8, "gen_length": 32, "block_length": 16, "steps": 12}


class Bytes(ByteTokenizer):
    """Every id is a byte, so that random texts can be read."""

    def decode(self, ids: Any) -> str:
        return "".join(chr(32 + token % 90) for token in ids)


def config() -> Any:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 32, "global_head_dim": 32, "num_global_key_value_heads": 2,
             "sliding_window": 64, "num_experts": 4, "top_k_experts": 2,
             "moe_intermediate_size": 32}  # fmt: skip
    seen = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    return transformers.DiffusionGemmaConfig(
        text_config=sizes, vision_config=seen, canvas_length=CANVAS, boi_token_id=500,
        eoi_token_id=501, image_token_id=502,
    )  # fmt: skip


@cache
def network() -> Any:
    torch.manual_seed(0)
    inner = transformers.DiffusionGemmaForBlockDiffusion(config()).eval().requires_grad_(False)
    random = torch.Generator().manual_seed(1)
    for name, weight in inner.named_parameters():
        if weight.ndim > 1:
            weight.normal_(0.0, 0.4 if "embed" in name else 0.05, generator=random)
    return inner


def model(**noise: Any) -> Model:
    denoiser = DiffusionGemma(network(), Noise(canvas=CANVAS, **noise))
    return Model("gemma", denoiser, Bytes(), frozenset())


class Numbers:
    """transformers' random numbers, drawn as a process draws its own."""

    def __init__(self, seed: int, length: int) -> None:
        self.rng, self.length, self.block, self.sampled = (
            np.random.default_rng(seed),
            length,
            0,
            True,
        )
        self.drawn = self.rng.integers(0, VOCABULARY, (1, length))
        self.first = True

    def initialize_canvas(self, *_: Any, **__: Any) -> Tensor:
        if self.sampled and not self.first:  # noise after a step
            self.drawn = self.rng.integers(0, VOCABULARY, (1, self.length))
        elif not self.first:  # a new block
            self.block += 1
        self.first = self.sampled = False
        at = slice(CANVAS * self.block, CANVAS * (self.block + 1))
        return torch.from_numpy(self.drawn[:, at].copy())

    def multinomial(self, weights: Tensor, num_samples: int) -> Tensor:
        self.sampled = True
        uniforms = torch.from_numpy(self.rng.random((1, CANVAS, 1))[0].astype(np.float32))
        edges = weights.cumsum(1)
        return torch.searchsorted(edges, uniforms * edges[:, -1:], right=True)


def ours(chosen: Model, question: str, seed: int, **settings: Any) -> tuple[list[int], int]:
    """One canvas after the other, each step a forward pass; the answer and how many passes."""
    job = Job(question, settings=Settings("baseline", **{**SETTINGS, **settings}))
    process, rng = prepare(chosen, job).process, np.random.default_rng(seed)
    forward, canvas, passes = Forward(chosen.denoiser), process.start(1, rng), 0
    while process.is_open(canvas).all():
        (value,) = forward([process.ask(canvas, passes, rng)])
        prediction = CanvasPredictions(value, np.zeros(1, np.int64))
        canvas = process.expand(canvas, prediction, np.zeros(1, np.int64), passes, rng)
        passes += 1
    return canvas.tokens[0].tolist(), passes


CASES: list[tuple[int, str, dict[str, Any], dict[str, Any]]] = [
    (0, "why?", {}, {}),
    (1, "a longer question, which has more tokens", {}, {}),
    (2, "why?" * 30, {}, {}),  # longer than the sliding window
    (3, "why?", {"entropy_bound": 1.0}, {}),
    (4, "why?", {"entropy_bound": 4.0}, {}),
    (5, "why?", {"stability": 0, "confidence": 6.0}, {}),
    (6, "why?", {"stability": 1, "confidence": 6.0, "entropy_bound": 50.0}, {}),
    (7, "why?", {"stability": 2, "confidence": 6.0, "entropy_bound": 50.0}, {"steps": 20}),
    (8, "why?", {"cooling": 0.2}, {"temperature": 1.5}),
    (9, "why?", {}, {"gen_length": 16, "steps": 5}),
]


@pytest.mark.parametrize(("seed", "question", "noise", "settings"), CASES)
def test_an_answer_is_that_of_generate_token_for_token(
    monkeypatch: pytest.MonkeyPatch, seed: int, question: str, noise: dict[str, Any],
    settings: dict[str, Any],
) -> None:  # fmt: skip
    values, chosen = {**SETTINGS, **settings}, model(**noise)
    made = chosen.denoiser.noise
    found, passes = ours(chosen, question, seed, **settings)
    length = values["gen_length"]
    numbers = Numbers(seed, length)
    monkeypatch.setattr(EntropyBoundSampler, "initialize_canvas", numbers.initialize_canvas)
    monkeypatch.setattr(torch, "multinomial", numbers.multinomial)
    prompt = chosen.tokenizer.chat(question)
    output = network().generate(
        torch.tensor([prompt]),
        generation_config=DiffusionGemmaGenerationConfig(
            max_new_tokens=length, max_denoising_steps=values["steps"] // (length // CANVAS),
            sampler_config=EntropyBoundSamplerConfig(entropy_bound=made.entropy_bound),
            t_max=values["temperature"], t_min=values["temperature"] * made.cooling,
            stability_threshold=made.stability, confidence_threshold=made.confidence,
        ),
    )  # fmt: skip
    assert found == output.sequences[0, len(prompt) :].tolist()
    assert passes == round(length / float(output.tokens_per_forward[0]))


def test_vectors_condition_as_full_logits_do() -> None:
    denoiser, inner = model().denoiser, network()
    tokens = torch.randint(0, VOCABULARY, (3, CANVAS), generator=torch.Generator().manual_seed(2))
    logits = torch.randn(3, CANVAS, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 3
    prefix = list(range(20))
    vectors = denoiser.expected(logits.flatten(0, 1).softmax(-1)).view(3, CANVAS, -1)
    features = denoiser.encode_canvas(prefix, tokens, vectors)
    got = denoiser.head(features.flatten(0, 1)).view(3, CANVAS, -1)
    past = transformers.DynamicCache(config=inner.config.get_text_config(decoder=True))
    inner.model.encoder(input_ids=torch.tensor([prefix]), past_key_values=past)
    past.batch_repeat_interleave(3)
    expected = inner(
        decoder_input_ids=tokens, past_key_values=past, self_conditioning_logits=logits
    ).logits
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(denoiser.head(denoiser.encode_canvas(prefix, tokens, None)), got)


def test_children_inherit_what_conditions_them_and_the_memo_knows_it() -> None:
    chosen, rng = model(), np.random.default_rng(0)
    process = prepare(chosen, Job("why?", settings=Settings("baseline", **SETTINGS))).process
    forward, parents = Forward(chosen.denoiser), process.start(2, rng)
    (value,) = forward([process.ask(parents, 0, rng)])
    which = np.array([0, 0, 1])
    prediction = CanvasPredictions(value, which)
    children = process.expand(parents.take(which), prediction, np.array([0, 1, 0]), 0, rng)
    assert not np.array_equal(value.vectors[0], value.vectors[1])
    for state, parent in zip(children.state, which, strict=True):
        np.testing.assert_array_equal(state.vectors, value.vectors[parent])
    first, copied = children.keys()[0], children.take(np.array([0, 2, 0]))  # as by resampling
    assert [key == first for key in Canvas.keys(copied)] == [True, False, True]
    np.testing.assert_array_equal(copied.state[2].vectors, value.vectors[0])
    other = children.state[2]  # the same tokens and noise, conditioned by another prediction
    copied.state[1] = dataclasses.replace(copied.state[0], vectors=other.vectors, told=other.told)
    copied.tokens[1] = copied.tokens[0]
    assert [key == first for key in Canvas.keys(copied)] == [True, False, True]
    (found,) = forward([process.ask(copied, 1, rng)])
    np.testing.assert_allclose(found.top_logp[0], found.top_logp[2], atol=1e-5)
    assert not np.allclose(found.top_logp[0], found.top_logp[1], atol=1e-4)


def test_a_row_of_a_batch_is_the_single_run_but_for_rounding_and_the_prefix_is_read_once() -> None:
    denoiser = model().denoiser
    tokens = torch.randint(0, VOCABULARY, (4, CANVAS), generator=torch.Generator().manual_seed(4))
    before, seen = list(range(30)), list[int]()
    hook = network().model.encoder.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    together = denoiser.encode_canvas(before, tokens, None)
    for row in range(4):
        single = denoiser.encode_canvas(before, tokens[row : row + 1], None)[0]
        torch.testing.assert_close(single, together[row], atol=1e-5, rtol=1e-5)
    assert seen == [30]
    denoiser.encode_canvas([*before, *range(CANVAS)], tokens, None)  # what follows joins it
    hook.remove()
    assert seen == [30, CANVAS]


@pytest.mark.parametrize("method", ["s3", "revise", "best_of_k", "tilting"])
def test_every_kind_of_method_runs_and_company_changes_nothing(method: str) -> None:
    chosen = model(entropy_bound=1.0)
    usual = {**SETTINGS, "steps": 6, "particles": 2, "budget": 14, "look_aheads": 2}
    settings = Settings.over(method, [usual], {})
    questions = ["question 1", "another, longer question"]
    together = s3dlm.generate_batch(chosen, questions, settings=settings)
    alone = [s3dlm.generate(chosen, one, settings=settings) for one in questions]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert all(one.nfe <= 14 for one in alone)


def test_64_concurrent_requests_answer_as_each_alone() -> None:
    chosen = model(entropy_bound=2.0)
    settings = Settings("s3", **{**SETTINGS, "gen_length": 16, "steps": 2}, particles=2)
    questions = [f"question {i}" + " and more" * (i % 5) for i in range(64)]
    together = s3dlm.generate_batch(chosen, questions, settings=settings, max_rows=1000)
    for index in range(0, 64, 13):
        alone = s3dlm.generate(chosen, questions[index], settings=settings)
        assert (together[index].token_ids, together[index].nfe) == (alone.token_ids, alone.nfe)


def test_a_checkpoint_loads_by_its_model_type(tmp_path: Path) -> None:
    from s3dlm.extras import diffusion_gemma

    network().save_pretrained(tmp_path)
    write_tokenizer(tmp_path, None)
    how = Loading(torch.device("cpu"), torch.float32)
    loaded = diffusion_gemma.load("gemma", tmp_path, how)
    tokens = torch.zeros(1, CANVAS, dtype=torch.long)
    before, after = (one.denoiser.encode_canvas([1, 2], tokens, None) for one in (model(), loaded))
    torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-5)
    assert loaded.defaults.settings["*"]["steps"] == CANVAS
    with pytest.raises(SettingsError, match="has no mask"):
        diffusion_gemma.load("gemma", tmp_path, dataclasses.replace(how, mask_id=3))
    adapter = Adapter("mine", None, {}, {}, {})
    with pytest.raises(
        SettingsError, match=r"adapter='mine' cannot be merged into gemma: .* leave it out"
    ):
        diffusion_gemma.load("gemma", tmp_path, dataclasses.replace(how, adapter=adapter))


def test_its_decoding_is_read_from_its_files() -> None:
    noise, settings = noise_of({"t_max": 1.0, "t_min": 0.3, "max_denoising_steps": 20}, 64)
    assert noise == Noise(cooling=0.3, canvas=64)
    assert settings == {"temperature": 1.0, "steps": 20, "gen_length": 64, "block_length": 64}
    with pytest.raises(ModelError, match="t_min must be the smaller"):
        noise_of({"t_max": 0.1}, 64)


def test_what_is_for_masks_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"guidance=1\.0 is for masked diffusion"):
        s3dlm.generate(model(), "why?", method="baseline", guidance=1.0)


def test_holes_are_filled_and_what_is_given_stays() -> None:
    chosen = dataclasses.replace(model(entropy_bound=3.0), tokenizer=Bytes())
    result = s3dlm.infill(chosen, "ab[[6]]cd", method="best_of_k", particles=2, **SETTINGS)
    assert result.token_ids[:2] == (97, 98)
    assert result.token_ids[-2:] == (99, 100)
    assert len(result.token_ids) == 10


@pytest.mark.filterwarnings("ignore")  # what the harness's own packages leave behind
def test_the_harness_reads_its_answers_but_no_likelihood() -> None:
    pytest.importorskip("lm_eval")
    from s3dlm.extras.lm_eval.model import S3dlmLM

    chosen = dataclasses.replace(model(entropy_bound=1.0), tokenizer=ByteTokenizer())
    harness = S3dlmLM(chosen, method="s3", particles=2, **{**SETTINGS, "steps": 4})
    questions = ["why?", "why not?"]
    contexts = [harness.apply_chat_template([{"role": "user", "content": q}]) for q in questions]
    asked = [
        SimpleNamespace(args=(text, {"until": []}), task_name="mine", doc={}) for text in contexts
    ]
    expected = [s3dlm.generate(chosen, q, settings=harness.settings).text for q in questions]
    assert harness.generate_until(asked) == expected
    with pytest.raises(SettingsError, match="choose tasks that generate text"):
        harness._loglikelihood_tokens([(("why?", "1"), [1, 2], [3])])
