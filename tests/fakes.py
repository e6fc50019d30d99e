"""A denoiser and tokenizer small enough to know by heart, so that tests of the search are fast."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import s3dlm
from s3dlm import Result, Step
from s3dlm.models.base import Defaults, Denoiser, Model, Tokenizer
from s3dlm.settings import Settings
from s3dlm.verifier import Score, Verifier
from s3dlm.verifier.base import Spans

MASK, END = 256, 257


class ByteTokenizer(Tokenizer):
    """One token a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        if max(ids, default=0) < MASK:
            return bytes(ids).decode(errors="replace")
        special = {MASK: b"<|mdm_mask|>", END: b"<|endoftext|>"}
        return b"".join(special.get(i, bytes([i % 256])) for i in ids).decode(errors="replace")

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(f"{user}\n{prefill}")


@lru_cache(10_000)
def _noise(key: int) -> np.ndarray:
    return np.random.default_rng(key).random(FakeDenoiser.vocabulary, dtype=np.float32)


class FakeDenoiser(Denoiser):
    """Prefers the bytes of some texts; which one depends a little on what is already revealed.

    Features are the logits. They depend on the row alone, exactly, whatever it is batched with.
    """

    mask_id, vocabulary = MASK, 258

    def __init__(
        self, texts: Sequence[str], *, context: int = 512, noise: float = 2.0, push: float = 4.0
    ) -> None:
        self.context = context
        self.noise, self.push = noise, push
        self.texts = [np.array([*text.encode(), *[END] * context][:context]) for text in texts]
        self.rows_seen = 0
        self.calls = 0

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        self.rows_seen += len(tokens)
        self.calls += 1
        lengths = [tokens.shape[1]] * len(tokens) if keys is None else keys.sum(1).tolist()
        logits = np.zeros((*tokens.shape, self.vocabulary), dtype=np.float32)
        for row, length, out in zip(tokens.numpy(), lengths, logits, strict=True):
            self._fill(row[:length], out[:length])
        return torch.from_numpy(logits)

    def _fill(self, row: np.ndarray, logits: np.ndarray) -> None:
        # The canvas follows the prompt; without the prompt, as in guidance, nothing is likely.
        start = int(np.argmax(row == ord("\n"))) + 1 if ord("\n") in row else row.size
        canvas = row[start:]
        known = canvas != MASK
        logits[:] = self.noise * _noise(int(((np.arange(row.size) + 1) * (row + 7)).sum()))
        places = np.arange(start, row.size)
        for index, text in enumerate(self.texts):
            agree = int((text[: canvas.size] == canvas)[known].sum())
            logits[places, text[: canvas.size]] += self.push + 0.06 * agree - 0.2 * index

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


COUNTDOWN = (
    "6 + 12 = 18. 18 + 4 = 22. <answer>6 + 12 + 4</answer>",
    "12 - 6 = 6. 6 * 4 = 24. <answer>(12 - 6) * 4</answer>",
    "4 * 12 = 40. 40 - 6 = 34. <answer>4 * 12 - 6</answer>",
)


def fake_model(texts: Sequence[str] = COUNTDOWN, **options: float) -> Model:
    return Model(
        "fake",
        FakeDenoiser(texts, **options),
        ByteTokenizer(),
        frozenset({END}),
        Defaults(prompt_style="tiny"),
    )  # type: ignore[arg-type]


class Judge(Verifier):
    """Judges as it is told, and remembers what it was shown.

    Args:
        total: Of a text, or of all.
        doubts: Where a text looks wrong.
        satisfied_at: As of any verifier.
    """

    def __init__(
        self,
        total: float | Callable[[str], float] = 0.5,
        doubts: Callable[[str], Spans] = lambda text: (),
        satisfied_at: float | None = None,
    ) -> None:
        self.total, self.doubts, self.satisfied_at = total, doubts, satisfied_at
        self.seen: dict[str, float] = {}

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        self.seen[text] = self.total(text) if callable(self.total) else self.total
        return Score(self.seen[text], spans=self.doubts(text))


QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL: dict[str, Any] = {
    "gen_length": 64, "steps": 16, "block_length": 32, "temperature": 1.0, "lam": 8.0,
}  # fmt: skip
ADAPTIVE = {"reveal": "threshold", "reveal_threshold": 0.3}


def small(method: str, usual: dict[str, Any] = SMALL, **options: Any) -> Settings:
    """Settings for a quick run: those of the usual ones that the method has, and these."""
    short = {"gen_length": 6, "steps": 6, "block_length": 6} if method == "vgb" else {}
    return Settings.over(method, [{**usual, **short}], options)


def plain(result: Result) -> dict[str, object]:
    """A result without its times."""
    data = dataclasses.asdict(result)
    del data["seconds"], data["timings"]
    return data


def events_of(*args: Any, **options: Any) -> Iterator[Step | Result]:
    """The steps of a search, then its result."""
    return s3dlm.stream(*args, **options).events


def search(
    settings: Settings, model: Model | None = None, question: str = QUESTION,
    task: str | None = "countdown", **options: Any,
) -> tuple[list[Step], Result]:  # fmt: skip
    """The steps of a search and its result; what they tell of are the passes that the model made."""
    model = fake_model() if model is None else model
    before = model.denoiser.rows_seen  # type: ignore[attr-defined]
    *steps, result = events_of(model, question, task=task, settings=settings, **options)
    assert isinstance(result, Result)
    told = sum(step.nfe + step.start_nfe for step in steps)
    assert result.nfe == told == model.denoiser.rows_seen - before  # type: ignore[attr-defined]
    return steps, result


def assert_same_search(one: Result, other: Result) -> None:
    """Both found the same, in every text, score, weight and likelihood, whatever it cost."""
    for name in ("text", "answer", "nfe_logical", "survivors"):
        assert getattr(one, name) == getattr(other, name)
