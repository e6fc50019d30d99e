"""A reward model as verifier: a transformers sequence classifier with one or two labels."""

from __future__ import annotations

from typing import Any

from s3dlm.errors import VerifierError
from s3dlm.verifier.base import Score
from s3dlm.verifier.calibration import Calibration, Logistic
from s3dlm.verifier.pretrained import BATCH, Pretrained


class RewardModel(Pretrained):
    """Scores the whole text; stated calibration: the sigmoid of the reward.

    With two labels the reward is the logit of label 1 minus that of label 0.
    """

    auto_class = "AutoModelForSequenceClassification"

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        calibration: Calibration | None = None,
        batch_size: int = BATCH,
    ) -> None:
        labels = model.config.num_labels
        if labels not in (1, 2):
            raise VerifierError(
                f"the reward model {name!r} has {labels} labels; give one with 1 label (a reward) "
                "or 2 (bad, good)"
            )
        super().__init__(name, model, tokenizer, calibration or Logistic(), batch_size)

    def judge(self, prompts: list[str], texts: list[str]) -> list[Score]:
        """The calibrated reward of each text; the reward itself is the part `reward`."""
        rows = [self.prefix(p) + self.ids(t) for p, t in zip(prompts, texts, strict=True)]
        logits = self.logits(rows)
        rewards = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        return [Score(self.calibration(one), {"reward": one}) for one in rewards.tolist()]
