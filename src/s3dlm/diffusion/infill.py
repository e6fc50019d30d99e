"""The processes that fill a text with holes: one for every combination of lengths.

A hole has exactly as many tokens as it says. So tokens that end an answer are not predicted, in any
hole, and the text ends where its last known token or its last hole ends. Known texts and holes lie on
the canvas, behind the prompt; at a given pace, `gen_length / steps` tokens per step, holes are filled
block by block, as an answer is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from s3dlm.diffusion.holes import Template
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.settings import Settings


def infilling(
    process: MaskedDiffusion, text: str, model: Model, settings: Settings
) -> list[MaskedDiffusion]:
    """The process on each canvas that the text describes."""
    template = Template.parse(text)
    _check_budget(template, settings)
    if process.mask_id in process.prompt:
        raise PromptError(
            "the prompt contains the model's mask token, and nothing is filled in there; write holes "
            "into the text to infill, as in [[16]]"
        )
    _check_room(template.most, process, model)  # before rows of any length are built
    rows = [
        np.asarray(row, dtype=np.int64)
        for row in template.rows(model.tokenizer.encode, process.mask_id)
    ]
    _check_room(max(row.size for row in rows), process, model)
    ends = tuple(process.end_ids.tolist())
    endless = replace(
        process,
        end_ids=np.empty(0, dtype=np.int64),
        sampling=replace(process.sampling, suppressed=ends),
    )
    pace = -(-settings.gen_length // settings.steps)
    return [endless.with_given(row, settings.block_length, pace) for row in rows]


def check_support(model: Model, settings: Settings) -> None:
    """Refuse a model that cannot fill holes, and a setting that would change nothing."""
    if getattr(model.denoiser, "causal_block", None) is not None:
        raise SettingsError(
            f"{model.name} is block-causal: it sees no text behind the block that it fills, so it "
            "cannot fill holes; choose a model that reads in both directions, such as LLaDA or Dream"
        )
    if settings.end_tokens == "last":
        raise SettingsError(
            "end_tokens='last' changes nothing in infilling, which never predicts end tokens; leave "
            "it out"
        )


def _check_budget(template: Template, settings: Settings) -> None:
    budget = settings.method.budget
    if budget is not None and budget < 2 * template.count:
        raise SettingsError(
            f"budget={budget} is too small for {template.count} combinations of lengths, which need "
            f"2 forward passes each; give at least {2 * template.count}, or fewer lengths"
        )


def _check_room(length: int, process: MaskedDiffusion, model: Model) -> None:
    before, context = process.prompt.size, model.denoiser.context
    if before + length > context:
        raise PromptError(
            f"the text with its holes has at least {length} tokens and the prompt has {before}, but "
            f"{model.name} reads at most {context} in all; shorten the holes, the text or the prompt"
        )
