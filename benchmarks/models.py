"""The models of the benchmarks: the shipped one, one whose vocabulary is LLaDA's, a block-causal one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch

import s3dlm
from s3dlm import tasks
from s3dlm.models.base import Model, Tokenizer
from s3dlm.models.transformer import Transformer, TransformerConfig

TASKS = ("arithmetic", "countdown", "sudoku", "choice")
WIDE_VOCABULARY = 126_464  # LLaDA-8B's
WIDE_MASK = 126_336


def tiny(context: int | None = None) -> Model:
    model = s3dlm.load("tiny")
    if context is not None:
        model.denoiser.context = context
    return model


def wide(dtype: torch.dtype = torch.float32) -> Model:
    """Random weights, real vocabulary: wide enough that head and softmax weigh as they do at 8 B."""
    config = TransformerConfig(
        vocabulary=WIDE_VOCABULARY,
        width=768,
        layers=6,
        heads=12,
        hidden=2048,
        mask_id=WIDE_MASK,
        context=1024,
    )
    return _random("wide", config, dtype)


def block_causal(*, cache: bool) -> Model:
    """Random weights, in blocks of 32 as LLaDA2 and Fast-dLLM v2."""
    config = TransformerConfig(
        vocabulary=4096,
        width=384,
        layers=6,
        heads=6,
        key_value_heads=2,
        hidden=1024,
        mask_id=4095,
        context=1024,
        causal_block=32,
    )
    model = _random("block-causal", config, torch.float32)
    assert isinstance(model.denoiser, Transformer)
    if not cache:
        model.denoiser.reader = lambda: None  # type: ignore[method-assign]
    return model


def _random(name: str, config: TransformerConfig, dtype: torch.dtype) -> Model:
    torch.manual_seed(0)
    network = Transformer(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.05)
    network = network.to(dtype)
    return replace(tiny(), name=name, denoiser=network, end_ids=frozenset(), tokenizer=Letters())


@functools.cache
def questions(task: str) -> list[str]:
    samples = tasks.load(tasks.get(task), prompt_style="tiny", limit=32).samples
    return [sample.question for sample in samples]


def question_of(model: Model, index: int) -> tuple[str | None, str]:
    """The four tasks in turn."""
    if model.name == "wide":
        return None, f"question number {index}"
    task = TASKS[index % len(TASKS)]
    return task, questions(task)[index // len(TASKS) % 32]


class Letters(Tokenizer):
    """Bytes in, letters out: what a random model writes must only be readable, not sensible."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(one % 997) for one in ids)

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)
