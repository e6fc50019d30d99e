"""A process reward model as verifier: a transformers token classifier that judges every step.

The convention is that of TRL's PRM trainer: the steps of a text are separated by a mark (a line break),
and the label at the end of a step says whether it is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from s3dlm.errors import SettingsError, VerifierError, unknown_name
from s3dlm.verifier.base import Score
from s3dlm.verifier.calibration import Calibration, Logistic
from s3dlm.verifier.pretrained import BATCH, Pretrained

SUMMARIES: Mapping[str, Callable[[list[float]], float]] = {
    "min": min,
    "mean": fmean,
    "last": lambda steps: steps[-1],
}
_STEP = re.compile(r"[^\n]*\S[^\n]*")


class ProcessRewardModel(Pretrained):
    """Scores each line; the total is the weakest step, and steps below one half are in doubt.

    Stated calibration: the sigmoid of a step's logit (label 1 minus label 0 when there are two).
    """

    auto_class = "AutoModelForTokenClassification"

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        calibration: Calibration | None = None,
        summary: str = "min",
        separator: str = "\n",
        batch_size: int = BATCH,
    ) -> None:
        if summary not in SUMMARIES:
            raise SettingsError(unknown_name("summary", summary, SUMMARIES))
        if model.config.num_labels not in (1, 2):
            raise VerifierError(
                f"the process reward model {name!r} has {model.config.num_labels} labels; give one "
                "with 1 label or 2 (wrong step, right step)"
            )
        super().__init__(name, model, tokenizer, calibration or Logistic(), batch_size)
        self.summary, self.separator = summary, separator

    def judge(self, prompts: list[str], texts: list[str]) -> list[Score]:
        """The weakest step of each text, all summaries as parts, and the doubtful steps' places."""
        rows, ends = [], []
        for prompt, text in zip(prompts, texts, strict=True):
            row, places = self.prefix(prompt), []
            for step in _STEP.finditer(text):
                row = row + self.ids(step[0].strip() + self.separator)
                places.append((len(row) - 1, step.span()))
            rows.append(row)
            ends.append(places)
        logits = self.logits(rows)
        return [self._score(logits[at], places, rows[at]) for at, places in enumerate(ends)]

    def _score(
        self, logits: Any, places: list[tuple[int, tuple[int, int]]], row: list[int]
    ) -> Score:
        shift = max(len(row) - logits.shape[0], 0)  # what was cut off at the front
        steps, spans = [], []
        for at, span in places:
            labels = logits[max(at - shift, 0)].tolist()
            chance = self.calibration(labels[0] if len(labels) == 1 else labels[1] - labels[0])
            steps.append(chance)
            if chance < 0.5:
                spans.append(span)
        if not steps:
            return Score(0.0, dict.fromkeys(SUMMARIES, 0.0))
        parts = {name: float(summary(steps)) for name, summary in SUMMARIES.items()}
        return Score(parts[self.summary], parts, tuple(spans))
