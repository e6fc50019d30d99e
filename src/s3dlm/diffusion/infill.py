r"""Text with holes: `6 + 12 =[[2]]. So the answer is[[4]].`, and the process that fills them.

A hole is a number of tokens. `\[[` stands for the characters `[[`, and of backslashes before `[[` two
stand for one: `\\[[4]]` is a backslash before a hole, `\\\[[` one before the characters. `]]` outside a
hole is plain text, and so is a backslash anywhere else.

A hole has exactly as many tokens as it says. So tokens that end an answer are not predicted, in any
hole, and the text ends where its last known token or its last hole ends. Known texts and holes lie on
the canvas, behind the prompt; holes are filled block by block, as an answer is, `gen_length / steps`
tokens per step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from s3dlm.diffusion.decoding import Decoding
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import PromptError, SettingsError, short_repr
from s3dlm.models.base import Model
from s3dlm.search.particles import Ints

HOLES_REMEDY = r"write [[16]] for 16 tokens, and \[[ for the characters [[ themselves"

_SIZE = re.compile(r"\s*([0-9]{1,9})\s*")


@dataclass(frozen=True, slots=True)
class Template:
    """Known texts and the holes between them."""

    known: tuple[str, ...]  # one more than there are holes
    lengths: tuple[int, ...]  # tokens of each hole

    @classmethod
    def parse(cls, text: str) -> Template:
        """The template that a text describes, or an error that says what is wrong with it."""
        known, lengths, place = [""], [], 0
        while (start := text.find("[[", place)) >= 0:
            before = text[place:start].rstrip("\\")
            slashes = start - place - len(before)
            known[-1] += before + "\\" * (slashes // 2)
            if slashes % 2:
                known[-1] += "[["
                place = start + 2
                continue
            inside, place = _inside(text, start)
            lengths.append(_length(inside))
            known.append("")
        known[-1] += text[place:]
        if not lengths:
            raise PromptError(f"the text {short_repr(text)} has no hole; {HOLES_REMEDY}")
        return cls(tuple(known), tuple(lengths))

    def row(self, encode: Callable[[str], list[int]], hole: int) -> list[int]:
        """The tokens of the text; `hole` stands where nothing is known. Each known text is encoded by
        itself."""
        known = [encode(text) if text else [] for text in self.known]
        for text, ids in zip(self.known, known, strict=True):
            if hole in ids:
                raise PromptError(
                    f"the known text {short_repr(text)} contains the model's mask token, which stands for "
                    f"a token not yet known; {HOLES_REMEDY}"
                )
        row = list(known[0])
        for size, ids in zip(self.lengths, known[1:], strict=True):
            row += [hole] * size + ids
        return row


def _inside(text: str, start: int) -> tuple[str, int]:
    """What stands in the hole that begins here, and where the text goes on."""
    end = text.find("]]", start)
    inside = text[start + 2 : end]
    if end < 0:
        raise PromptError(
            f"the hole {short_repr(text[start : start + 20])} has no closing ]]; {HOLES_REMEDY}"
        )
    if "[[" in inside:
        raise PromptError(
            f"the hole {short_repr(text[start : end + 2])} contains another; holes cannot be nested: {HOLES_REMEDY}"
        )
    return inside, end + 2


def _length(inside: str) -> int:
    """Tokens of a hole."""
    hole = short_repr(f"[[{inside}]]")
    if not inside.strip():
        raise PromptError(f"the hole {hole} is empty and says no number of tokens; {HOLES_REMEDY}")
    size = _SIZE.fullmatch(inside)
    if size is None or int(size[1]) < 1:
        raise PromptError(f"the hole {hole} is not a number of tokens, at least 1; {HOLES_REMEDY}")
    return int(size[1])


def infilling(
    process: MaskedDiffusion, text: str, model: Model, decoding: Decoding
) -> MaskedDiffusion:
    """The process on the canvas that the text describes."""
    if process.mask_id in process.prompt:
        raise PromptError(
            "the prompt contains the model's mask token, and nothing is filled in there; write holes "
            "into the text to infill, as in [[16]]"
        )
    row = template_row(text, process.mask_id, model, process.prompt.size)
    endless = replace(
        process,
        reader=replace(process.reader, end_ids=np.empty(0, dtype=np.int64)),
        sampling=replace(process.sampling, suppressed=tuple(process.reader.end_ids.tolist())),
    )
    tokens_per_step = -(-decoding.gen_length // decoding.steps)
    # A block as long as an answer means one block, however long the text is.
    whole = decoding.block_length == decoding.gen_length
    block = row.size if whole else decoding.block_length
    return endless.with_given(row, block, tokens_per_step)


def template_row(text: str, hole: int, model: Model, before: int) -> Ints:
    """The tokens of a text with holes, if they fit the model behind so many others."""
    template = Template.parse(text)
    _check_room(sum(template.lengths), before, model)  # before a row of any length is built
    row = np.asarray(template.row(model.tokenizer.encode, hole), dtype=np.int64)
    _check_room(row.size, before, model)
    if model.denoiser.whole and row.size != model.denoiser.context:
        raise PromptError(
            f"the text with its holes has {row.size} tokens, but {model.name} reads exactly "
            f"{model.denoiser.context}; {HOLES_REMEDY}"
        )
    return row


def check_support(model: Model, decoding: Decoding) -> None:
    """Refuse a model that cannot fill holes, and a setting that would change nothing."""
    if model.denoiser.causal_block is not None:
        raise SettingsError(
            f"{model.name} is block-causal: it sees no text behind the block that it fills, so it "
            "cannot fill holes; choose a model that reads in both directions, such as LLaDA or Dream"
        )
    if decoding.end_tokens == "last":
        raise SettingsError(
            "end_tokens='last' changes nothing in infilling, which never predicts end tokens; leave "
            "it out"
        )


def _check_room(length: int, before: int, model: Model) -> None:
    context = model.denoiser.context
    if before + length > context:
        raise PromptError(
            f"the text with its holes has at least {length} tokens and the prompt has {before}, but "
            f"{model.name} reads at most {context} in all; shorten the holes, the text or the prompt"
        )
