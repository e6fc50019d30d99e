"""The processes that fill a text with holes: one for every combination of lengths.

A hole has exactly as many tokens as it says. So tokens that end an answer are not predicted, in any
hole, and the text ends where its last known token or its last hole ends. Known texts and holes lie on
the canvas, behind the prompt; at a given pace, `gen_length / steps` tokens per step, holes are filled
block by block, as an answer is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from s3dlm.diffusion import MaskedDiffusion
from s3dlm.errors import PromptError, SettingsError
from s3dlm.holes import Template
from s3dlm.models.base import Model
from s3dlm.settings import Settings


def infilling(
    process: MaskedDiffusion, text: str, model: Model, settings: Settings
) -> list[MaskedDiffusion]:
    """The process on each canvas that the text describes."""
    template = Template.parse(text)
    _check(template, model, settings)
    room = model.denoiser.context - process.prompt.size
    _check_room(template.most, room, process, model)
    rows = [
        np.asarray(row, dtype=np.int64)
        for row in template.rows(model.tokenizer.encode, process.mask_id)
    ]
    _check_room(max(row.size for row in rows), room, process, model)
    ends = tuple(process.end_ids.tolist())
    endless = replace(
        process,
        end_ids=np.empty(0, dtype=np.int64),
        sampling=replace(process.sampling, suppressed=ends),
    )
    pace = -(-settings.gen_length // settings.steps)
    return [endless.with_given(row, settings.block_length, pace) for row in rows]


def _check(template: Template, model: Model, settings: Settings) -> None:
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
    budget = settings.method.budget
    if budget is not None and budget < 2 * template.count:
        raise SettingsError(
            f"budget={budget} is too small for {template.count} combinations of lengths, which need "
            f"2 forward passes each; give at least {2 * template.count}, or fewer lengths"
        )


def _check_room(length: int, room: int, process: MaskedDiffusion, model: Model) -> None:
    if length > room:
        before = f" after a prompt of {process.prompt.size}" if process.prompt.size else ""
        raise PromptError(
            f"the text with its holes has {length} tokens or more, but {model.name} reads at most "
            f"{model.denoiser.context}{before}; make the holes or the text shorter"
        )
