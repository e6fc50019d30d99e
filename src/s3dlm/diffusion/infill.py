r"""Text with holes: `6 + 12 =[[2]]. So the answer is[[4-16]].`, and the processes that fill them.

A hole is a number of tokens, or a range of them. A range is tried at several lengths, each with a
search of its own: at all of them if they are few, else at `LENGTHS` that grow by equal factors from
the first to the last. Equal factors, because one token more changes a hole of 4 and not one of 32;
few, because each costs as much as a whole search. `\[[` stands for the characters `[[`, and of
backslashes before `[[` two stand for one: `\\[[4]]` is a backslash before a hole, `\\\[[` one before
the characters. `]]` outside a hole is plain text, and so is a backslash anywhere else.

A hole has exactly as many tokens as it says. So tokens that end an answer are not predicted, in any
hole, and the text ends where its last known token or its last hole ends. Known texts and holes lie on
the canvas, behind the prompt; holes are filled block by block, as an answer is, `gen_length / steps`
tokens per step.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import PromptError, SettingsError, short_repr
from s3dlm.models.base import Model
from s3dlm.settings import Settings

LENGTHS = 4  # that a range is tried at
MOST_TRIALS = 16  # combinations of lengths: two ranges, and not three
REMEDY = (
    r"write [[16]] for 16 tokens, [[4-32]] for a range, and \[[ for the characters [[ themselves"
)

_SIZE = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")


@dataclass(frozen=True, slots=True)
class Template:
    """Known texts and the holes between them."""

    known: tuple[str, ...]  # one more than there are holes
    lengths: tuple[tuple[int, ...], ...]  # of each hole, those that are tried

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
            lengths.append(_lengths(inside))
            known.append("")
        known[-1] += text[place:]
        if not lengths:
            raise PromptError(f"the text {short_repr(text)} has no hole; {REMEDY}")
        template = cls(tuple(known), tuple(lengths))
        if template.count > MOST_TRIALS:
            raise PromptError(
                f"the ranges of the holes make {short_repr(template.count)} combinations of lengths; at most "
                f"{MOST_TRIALS} are tried: use fewer or narrower ranges (each is tried at up to "
                f"{LENGTHS} lengths), or numbers"
            )
        return template

    @property
    def count(self) -> int:
        """Combinations of lengths."""
        return math.prod(map(len, self.lengths))

    @property
    def most(self) -> int:
        """Tokens of all holes at their longest."""
        return sum(map(max, self.lengths))

    def rows(self, encode: Callable[[str], list[int]], hole: int) -> Iterator[list[int]]:
        """The tokens of the text at every combination of lengths, the shortest first; `hole` stands
        where nothing is known. Each known text is encoded by itself."""
        known = [encode(text) if text else [] for text in self.known]
        for text, ids in zip(self.known, known, strict=True):
            if hole in ids:
                raise PromptError(
                    f"the known text {short_repr(text)} contains the model's mask token, which stands for "
                    f"a token not yet known; {REMEDY}"
                )
        for sizes in sorted(itertools.product(*self.lengths), key=sum):
            row = list(known[0])
            for size, ids in zip(sizes, known[1:], strict=True):
                row += [hole] * size + ids
            yield row


def _inside(text: str, start: int) -> tuple[str, int]:
    """What stands in the hole that begins here, and where the text goes on."""
    end = text.find("]]", start)
    inside = text[start + 2 : end]
    if end < 0:
        raise PromptError(
            f"the hole {short_repr(text[start : start + 20])} has no closing ]]; {REMEDY}"
        )
    if "[[" in inside:
        raise PromptError(
            f"the hole {short_repr(text[start : end + 2])} contains another; holes cannot be nested: {REMEDY}"
        )
    return inside, end + 2


def _lengths(inside: str) -> tuple[int, ...]:
    """The lengths that a hole is tried at."""
    hole = short_repr(f"[[{inside}]]")
    if not inside.strip():
        raise PromptError(f"the hole {hole} is empty and says no number of tokens; {REMEDY}")
    size = _SIZE.fullmatch(inside)
    if size is None:
        raise PromptError(f"the hole {hole} is not a number of tokens; {REMEDY}")
    first = int(size[1])
    last = first if size[2] is None else int(size[2])
    if first < 1 or last < first:
        raise PromptError(
            f"the hole {hole} is not allowed: a hole has at least 1 token, and a range goes from "
            f"the smaller to the larger number; {REMEDY}"
        )
    if last - first < LENGTHS:
        return tuple(range(first, last + 1))
    growth = (last / first) ** (1 / (LENGTHS - 1))
    return tuple(sorted({round(first * growth**step) for step in range(LENGTHS)}))


def infilling(
    process: MaskedDiffusion, text: str, model: Model, settings: Settings
) -> list[MaskedDiffusion]:
    """The process on each canvas that the text describes."""
    template = Template.parse(text)
    budget = settings.budget
    if budget is not None and budget < 2 * template.count:
        raise SettingsError(
            f"budget={budget} is too small for {template.count} combinations of lengths, which need "
            f"2 forward passes each; give at least {2 * template.count}, or fewer lengths"
        )
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
    wrong = [row.size for row in rows if row.size != model.denoiser.context]
    if model.denoiser.whole and wrong:
        raise PromptError(
            f"the text with its holes has {wrong[0]} tokens, but {model.name} reads exactly "
            f"{model.denoiser.context}; {REMEDY}"
        )
    endless = replace(
        process,
        reader=replace(process.reader, end_ids=np.empty(0, dtype=np.int64)),
        sampling=replace(process.sampling, suppressed=tuple(process.reader.end_ids.tolist())),
    )
    tokens_per_step = -(-settings.gen_length // settings.steps)
    # A block as long as an answer means one block, however long the text is.
    whole = settings.block_length == settings.gen_length
    blocks = [row.size if whole else settings.block_length for row in rows]
    pairs = zip(rows, blocks, strict=True)
    return [endless.with_given(row, block, tokens_per_step) for row, block in pairs]


def check_support(model: Model, settings: Settings) -> None:
    """Refuse a model that cannot fill holes, and a setting that would change nothing."""
    if model.denoiser.causal_block is not None:
        raise SettingsError(
            f"{model.name} is block-causal: it sees no text behind the block that it fills, so it "
            "cannot fill holes; choose a model that reads in both directions, such as LLaDA or Dream"
        )
    if settings.end_tokens == "last":
        raise SettingsError(
            "end_tokens='last' changes nothing in infilling, which never predicts end tokens; leave "
            "it out"
        )


def _check_room(length: int, process: MaskedDiffusion, model: Model) -> None:
    before, context = process.prompt.size, model.denoiser.context
    if before + length > context:
        raise PromptError(
            f"the text with its holes has at least {length} tokens and the prompt has {before}, but "
            f"{model.name} reads at most {context} in all; shorten the holes, the text or the prompt"
        )
