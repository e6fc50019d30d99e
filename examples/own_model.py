"""Your own model: a denoiser has `encode` and `head`, a tokenizer `encode`, `decode` and `chat`.

This one is a table: it has read a few sentences and prefers, at every position, the letters it saw
there. Replace `LetterTable` by a wrapper around your network.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

import s3dlm
from s3dlm.models.base import Tokenizer

MASK, END = 256, 257
SENTENCES = ["the cat sat on the mat", "the cow sat on the hat", "the cat ate all the ham"]


class LetterTable(s3dlm.Denoiser):
    """A denoiser whose features are its logits."""

    mask_id, vocabulary, context = MASK, 258, 256

    def __init__(self, prompt_length: int) -> None:
        self.table = torch.zeros(self.context, self.vocabulary)
        for sentence in SENTENCES:
            for place, letter in enumerate([*sentence.encode(), END]):
                self.table[prompt_length + place, letter] += 3.0
        self.table[prompt_length + 22 :, END] += 3.0

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.table[: tokens.shape[1]].expand(len(tokens), -1, -1)

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


class Bytes(Tokenizer):
    """One token per byte, and no template."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


def is_english(question: str, text: str, confidence: float | None) -> float:
    """The share of words that are words, of six at least."""
    words = text.split()
    known = {word for sentence in SENTENCES for word in sentence.split()}
    return sum(word in known for word in words) / max(len(words), 6)


prompt = "Say something: "
model = s3dlm.Model("letters", LetterTable(len(prompt)), Bytes(), frozenset({END}))
for method in ("baseline", "s3"):
    search = {"particles": 16, "branching": 4, "lam": 40.0, "selection": "best_seen"}
    result = s3dlm.generate(
        model, prompt, method=method, verifier=is_english, gen_length=24, steps=24,
        block_length=24, policy="random", temperature=1.0, **(search if method == "s3" else {}),
    )  # fmt: skip
    print(f"{method:9} {is_english(prompt, result.text, None):.2f}  {result.text}")
