"""The settings of decoding: how a canvas fills, whatever the search.

The rest of the settings, and what they are together, is in settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, model_validator

from s3dlm.diffusion.schedule import POLICIES
from s3dlm.errors import SettingsError
from s3dlm.search.options import FROZEN, OneOf, Share, Size, more, setting

PolicyName = Annotated[str, OneOf("policy", POLICIES)]


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others. If the length of the answer is given without a block length, the one
    below stays only where it divides the length; else the answer is one block."""
    values = {**below, **above}
    length, block = values.get("gen_length"), values.get("block_length")
    if "gen_length" not in above or "block_length" in above:
        return values
    if isinstance(length, int) and isinstance(block, int) and block > 0 and length % block:
        values["block_length"] = length
    return values


class Decoding(BaseModel):
    """How a canvas fills."""

    model_config = FROZEN

    temperature: float = setting(0.7, "sampling temperature; 0 is greedy", ge=0, le=100)
    gen_length: Size = setting(128, "tokens of the answer")
    steps: Size = setting(64, "denoising steps, shared out over the blocks")
    block_length: Size = setting(
        64,
        "tokens per block, filled from left to right; if it is not given and does not divide "
        "gen_length, the answer is one block",
    )
    policy: PolicyName = setting("low_confidence", "which masked positions are revealed first")
    reveal: Literal["schedule", "dream", "threshold"] = setting(
        "schedule",
        "how many positions a step reveals: by LLaDA's or Dream's schedule, or all whose sampled token "
        "is probable enough",
    )
    reveal_threshold: Share = setting(
        0.98, "with reveal=threshold: the least probability of a sampled token"
    )
    top_k: int | None = more(None, "sample among the k best tokens only", ge=1)
    top_p: Share | None = more(None, "sample among the best tokens that hold this much probability")
    probabilities: Literal["plain", "sampled"] = more(
        "plain",
        "which probability ranks a token: the model's plain one, or that of the distribution "
        "it is sampled from, after temperature, top_p and top_k, as in Dream",
    )
    position_temperature: float = more(
        0.0,
        "above 0, positions are drawn by softmax(rank / temperature) and not taken in order; "
        "alg_temp in Dream",
        ge=0,
    )
    guidance: float = more(
        0.0,
        "classifier-free guidance away from what is likely without the prompt; above 0 a canvas "
        "takes two forward passes",
        ge=0,
        le=100,
    )
    end_tokens: Literal["allowed", "last", "never"] = more(
        "allowed",
        "tokens that end the answer: allowed, revealed after all others of their block, or never "
        "predicted",
    )
    memo: int = more(
        128,
        "MiB of the model's work on canvases that a search keeps, so that none is forwarded twice; "
        "0: none",
        ge=0,
        le=1 << 20,
    )
    seed: int = setting(0, "same seed, same answer", ge=0, le=2**63 - 1)

    @property
    def adaptive(self) -> bool:
        """Whether every canvas is filled at its own pace, and not by a schedule."""
        return self.reveal == "threshold"

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        blocks = -(-self.gen_length // self.block_length)
        if self.block_length > self.gen_length:
            raise SettingsError(
                f"block_length={self.block_length} is longer than gen_length={self.gen_length}; leave it "
                f"out, or choose one from 1 to {self.gen_length}"
            )
        if not blocks <= self.steps <= self.gen_length:
            raise SettingsError(
                f"steps={self.steps} cannot fill gen_length={self.gen_length} in {blocks} blocks of "
                f"{self.block_length}: every block needs a step and every step reveals a token; choose "
                f"steps from {blocks} to {self.gen_length}, or another block_length"
            )
        return self

    def most_steps(self, block: int | None) -> int:
        """The most steps that a model with such blocks, if it has any, takes: a block-causal one
        fills its first and its last block whole, and may reveal the first token of a block by itself."""
        if block is None:
            return self.steps
        length, size = self.gen_length + block - 1, min(self.block_length, block)
        pace = max(1, min(size, self.steps * size // self.gen_length))
        blocks = -(-length // block) + 1
        return min(length, (-(-length // size) + 1) * pace) + blocks
