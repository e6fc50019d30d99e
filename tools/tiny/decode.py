"""Greedy decoding for validation: low-confidence order at temperature 0, prompts of one length together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from s3dlm.models.transformer import Transformer
from tools.tiny.tokenizer import END, MASK, chat


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the canvas is filled."""

    gen_length: int = 64
    steps: int = 32
    block_length: int = 64


@torch.inference_mode()
def fill(model: Transformer, prompts: Tensor, how: Decoding) -> Tensor:
    """The canvases (rows, gen_length) after LLaDA's low-confidence decoding."""
    rows, start = prompts.shape
    canvas = torch.full((rows, how.gen_length), model.mask_id)
    tokens = torch.cat((prompts, canvas), 1)
    blocks = how.gen_length // how.block_length
    for block in range(blocks):
        left = start + block * how.block_length
        for step in range(how.steps // blocks, 0, -1):
            open_ = tokens[:, left : left + how.block_length] == model.mask_id
            count = -(-int(open_[0].sum()) // step)
            logits = model.head(model.encode(tokens)[:, left : left + how.block_length])
            logits[..., model.mask_id] = -torch.inf
            confidence, guess = logits.softmax(-1).max(-1)
            chosen = confidence.masked_fill(~open_, -1.0).topk(count, -1).indices + left
            tokens.scatter_(1, chosen, guess.gather(1, chosen - left))
    return tokens[:, start:]


def generate(
    model: Transformer, tokenizer: Tokenizer, questions: list[str], how: Decoding
) -> list[str]:
    """The response to each question, up to the first end-of-text."""
    assert tokenizer.token_to_id(MASK) == model.mask_id
    end = tokenizer.token_to_id(END)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch([chat(q) for q in questions])]
    groups: dict[int, list[int]] = defaultdict(list)
    for number, ids in enumerate(encoded):
        groups[len(ids)].append(number)
    answers = [""] * len(questions)
    for numbers in groups.values():
        for part in (numbers[i : i + 32] for i in range(0, len(numbers), 32)):
            filled = fill(model, torch.tensor([encoded[i] for i in part]), how)
            for number, ids in zip(part, filled.tolist(), strict=True):
                stop = ids.index(end) if end in ids else len(ids)
                answers[number] = tokenizer.decode(ids[:stop])
    return answers
