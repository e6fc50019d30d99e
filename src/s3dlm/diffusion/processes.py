"""From a job to its process of masked diffusion: an answer, or a text with holes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.diffusion.blocks import Blocks, TextReader, reveals
from s3dlm.diffusion.decoding import Decoding
from s3dlm.diffusion.infill import check_support, infilling
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import SettingsError
from s3dlm.models.base import Model
from s3dlm.models.packing import Sampling
from s3dlm.search.particles import Ints
from s3dlm.search.select import SELECTIONS

if TYPE_CHECKING:
    from s3dlm.job import Job


def masked(model: Model, job: Job, prompt: Ints) -> MaskedDiffusion:
    """The process of a job for a model of masked diffusion."""
    method, decoding, denoiser = job.settings.search, job.settings.decoding, model.denoiser
    if job.infill is not None:
        check_support(model, decoding)
    # Whether somebody reads the clean texts of every step.
    scored = method.verified == "every step" or method.budget is not None
    end_ids = tuple(sorted(model.end_ids))
    block = decoding.block_length
    process = MaskedDiffusion(
        prompt=prompt,
        schedule=reveals(decoding.gen_length, decoding.steps, block, decoding.reveal),
        blocks=Blocks(block),
        decoding=decoding,
        draws=method.draws,
        sampled_looks=method.looks - 1,
        look_ahead_wanted=scored or SELECTIONS[method.selection].from_steps,
        reader=TextReader(model.tokenizer.decode, denoiser.mask_id, np.array(end_ids, np.int64)),
        label=job.label,
        sampling=Sampling(
            top_k=decoding.top_k,
            top_p=decoding.top_p,
            tempered=decoding.probabilities == "sampled",
            guidance=decoding.guidance,
            suppressed=end_ids if decoding.end_tokens == "never" else (),
            deferred=end_ids if decoding.end_tokens == "last" else (),
        ),
    )
    if job.infill is not None:
        return infilling(process, job.infill, model, decoding)
    if denoiser.causal_block is not None:
        return _in_blocks(process, model, decoding, denoiser.causal_block)
    return process


def _in_blocks(
    process: MaskedDiffusion, model: Model, decoding: Decoding, model_block: int
) -> MaskedDiffusion:
    """The process for a model that fills its own blocks, which no setting can make longer."""
    length, block = decoding.gen_length, min(decoding.block_length, model_block)
    least = -(-length // block)
    if decoding.steps < least:
        raise SettingsError(
            f"steps={decoding.steps} cannot fill gen_length={length} with {model.name}, which takes "
            f"at least one step per block of {block}; choose steps from {least} to {length}"
        )
    prompt = process.prompt.size
    counted = 0 if model.denoiser.causal_prefix else prompt
    process = replace(
        process,
        blocks=Blocks(block, model_block, counted % model_block),
        reader=replace(process.reader, answer_length=length),
        steps_per_block=min(block, decoding.steps * block // length),
        first_token_first=model.denoiser.shift,
    )
    room = model.denoiser.context - prompt
    return process.scheduled(min(length + -(counted + length) % model_block, room))
