"""A causal language model as verifier: how likely it finds the text after the prompt."""

from __future__ import annotations

import math
from typing import Any

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.verifier.base import Score
from s3dlm.verifier.calibration import Calibration
from s3dlm.verifier.pretrained import BATCH, Pretrained


class Likelihood(Pretrained):
    """Scores by the mean log-probability per token.

    Stated calibration: its exponential, the geometric mean of the token probabilities. A fitted one
    (`fit_logistic` on the part `log_likelihood`) turns it into a probability of being right.
    """

    auto_class = "AutoModelForCausalLM"

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        calibration: Calibration | None = None,
        batch_size: int = BATCH,
    ) -> None:
        super().__init__(name, model, tokenizer, calibration or math.exp, batch_size)

    def judge(self, prompts: list[str], texts: list[str]) -> list[Score]:
        """The score of each text; the mean log-probability is the part `log_likelihood`."""
        import torch

        prefixes = [self.prefix(prompt) for prompt in prompts]
        bodies = [self.ids(strip_end_tokens(text)) for text in texts]
        rows = [prefix + body for prefix, body in zip(prefixes, bodies, strict=True)]
        logits = self.logits(rows)
        scores = []
        for at, (row, body) in enumerate(zip(rows, bodies, strict=True)):
            length = min(len(row), logits.shape[1])
            body = body[-(length - 1) :] if length > 1 else []
            if not body:
                scores.append(Score(0.0, {"log_likelihood": -math.inf}))
                continue
            before = torch.log_softmax(logits[at, length - len(body) - 1 : length - 1], dim=-1)
            mean = before[torch.arange(len(body)), torch.tensor(body)].mean().item()
            scores.append(Score(min(self.calibration(mean), 1.0), {"log_likelihood": mean}))
        return scores
