"""How others decode, written plainly from the definitions: full logits, full softmax, no sharing.

These are yardsticks. They use the same network and the same schedule as ours, so the ratios measure
the way of decoding and nothing else.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from s3dlm.diffusion.blocks import reveals
from s3dlm.job import Job, prepare
from s3dlm.models.base import Model
from s3dlm.search.resample import ssp
from s3dlm.search.smc import S3
from s3dlm.settings import Settings
from s3dlm.verifier import Verifier


def gumbel(logits: Tensor, temperature: float) -> Tensor:
    """LLaDA's noise: float64 over the whole vocabulary of every position."""
    if temperature == 0:
        return logits
    logits = logits.to(torch.float64)
    noise = (-torch.log(torch.rand_like(logits))) ** temperature
    return logits.exp() / noise


class Loop:
    """LLaDA's generate.py for a batch of copies of one prompt."""

    def __init__(
        self, model: Model, prompt: str, settings: Settings, task: str | None = None
    ) -> None:
        self.model, self.settings = model, settings
        self.prompt = prepare(model, Job(prompt, task, settings)).process.prompt.tolist()
        self.mask = model.denoiser.mask_id
        self.schedule = reveals(
            settings.decoding.gen_length, settings.decoding.steps, settings.decoding.block_length
        )

    def start(self, rows: int) -> Tensor:
        canvas = [self.mask] * self.settings.decoding.gen_length
        return torch.tensor([self.prompt + canvas] * rows)

    def logits(self, x: Tensor) -> Tensor:
        features = self.model.denoiser.encode(x)
        flat = self.model.denoiser.head(features.flatten(0, 1))
        return flat.view(*x.shape, -1).float()

    def step(self, x: Tensor, index: int) -> Tensor:
        """Propose: forward, sample everywhere, keep the most confident of the open block."""
        reveal = self.schedule[index]
        logits = self.logits(x)
        logits[..., self.mask] = -torch.inf
        drawn = gumbel(logits, self.settings.decoding.temperature).argmax(-1)
        probability = torch.softmax(logits.to(torch.float64), dim=-1)
        confidence = probability.gather(-1, drawn[..., None])[..., 0]
        confidence[:, : len(self.prompt) + reveal.start] = -torch.inf
        confidence[:, len(self.prompt) + reveal.stop :] = -torch.inf
        confidence = torch.where(x == self.mask, confidence, -torch.inf)
        x = x.clone()
        for row in range(len(x)):
            chosen = confidence[row].topk(reveal.count).indices
            x[row, chosen] = drawn[row, chosen]
        return x

    @torch.inference_mode()
    def decode(self, rows: int = 1) -> Tensor:
        x = self.start(rows)
        for index in range(len(self.schedule)):
            x = self.step(x, index)
        return x[:, len(self.prompt) :]


class LiteralAlgorithm1(Loop):
    """The paper's pseudo-code as written: for each particle, for each child, propose, look ahead."""

    def __init__(
        self,
        model: Model,
        prompt: str,
        settings: Settings,
        verifier: Verifier,
        task: str | None = None,
    ) -> None:
        super().__init__(model, prompt, settings, task)
        self.question, self.verifier = prompt, verifier
        self.rng = np.random.default_rng(settings.decoding.seed)

    def text(self, tokens: list[int]) -> str:
        ends = [place for place, token in enumerate(tokens) if token in self.model.end_ids]
        return self.model.tokenizer.decode(tokens[: ends[0]] if ends else tokens)

    @torch.inference_mode()
    def search(self) -> list[str]:
        method = self.settings.search
        assert isinstance(method, S3)
        particles = [self.start(1) for _ in range(method.particles)]
        for index in range(len(self.schedule)):
            children, scores = [], []
            for particle in particles:
                for _ in range(method.branching):
                    child = self.step(particle, index)  # first forward: propose
                    logits = self.logits(child)  # second forward: look ahead
                    clean = torch.where(child == self.mask, logits.argmax(-1), child)
                    text = self.text(clean[0, len(self.prompt) :].tolist())
                    children.append(child)
                    scores.append(self.verifier.score(self.question, text).total)
            offspring = ssp(method.lam * np.array(scores), len(particles), self.rng)
            particles = [
                child
                for child, count in zip(children, offspring, strict=True)
                for _ in range(count)
            ]
        return [self.text(one[0, len(self.prompt) :].tolist()) for one in particles]
