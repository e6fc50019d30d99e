"""The model as judge of its own texts: how much more probable is Yes than No, as in Prism.

A text is shown with its question in one user turn that asks whether it is right; the answer is a single
masked token. Its logits say Yes or No: the largest among a few spellings of each, and the two against
each other. The text may try to talk the judge round, and a model that was never taught to judge knows
nothing here, so this verifier is never a default of a task (docs/verifier.md has what it is worth).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from s3dlm.errors import PromptError, SettingsError, VerifierError
from s3dlm.models.base import Model
from s3dlm.models.packing import Prediction, Rows
from s3dlm.verifier.base import SELF, Score, Verifier

YES_OR_NO = (
    "Here are a problem and a proposed solution.\n\nProblem:\n{prompt}\n\nProposed solution:\n{text}"
    "\n\nIs the solution right, and its final answer correct? Answer with one word: Yes or No."
)
LONGEST_SHOWN = 2000  # characters of a text that are shown, the last ones
YES, NO = ("Yes", " Yes", "YES"), ("No", " No", "NO")


class SelfJudge(Verifier):
    """P(Yes) against P(No) at the masked answer to a question about the text; one pass per text."""

    name = SELF

    def __init__(self, model: Model) -> None:
        self.model, self.model_judge = model, self
        tokenizer = model.tokenizer
        if model.denoiser.mask_id < 0:
            raise SettingsError(
                f"verifier='self' reads an answer at a mask, and {model.name} has none; choose another "
                "verifier (s3dlm list verifiers)"
            )
        if not tokenizer.has_chat_template:
            raise SettingsError(
                f"verifier='self' asks the model a question, and the tokenizer of {model.name} has no "
                "chat template; choose another verifier (s3dlm list verifiers), or a chat version"
            )
        # A word of several tokens is told by its first one, if that is not shared by the other word.
        yes, no = (
            {ids[0] for word in words if (ids := tokenizer.encode(word))} for words in (YES, NO)
        )
        self.yes, self.no = sorted(yes - no), sorted(no - yes)
        if not (self.yes and self.no):
            raise SettingsError(
                f"verifier='self' reads Yes or No from one token, and the tokenizer of {model.name} "
                "begins both with the same one; choose another verifier (s3dlm list verifiers)"
            )

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        raise VerifierError(
            "verifier 'self' judges only inside a search, by the model that searches"
        )

    def ask(self, prompt: str, text: str, place: str) -> Rows:
        """The question about a text, and a mask for its answer; what is too long loses its beginning."""
        denoiser, chat, shown = (
            self.model.denoiser,
            self.model.tokenizer.chat,
            text[-LONGEST_SHOWN:],
        )
        while len(ids := chat(YES_OR_NO.format(prompt=prompt, text=shown))) >= denoiser.context:
            if not shown:
                raise PromptError(
                    f"verifier='self' has to show the question, which takes {len(ids)} tokens, and "
                    f"{self.model.name} reads {denoiser.context}; shorten it or choose another verifier"
                )
            shown = shown[(len(shown) + 1) // 2 :]
        return Rows(
            prompt=np.array(ids, dtype=np.int64),
            canvas=np.array([[denoiser.mask_id]]),
            masked=np.ones((1, 1), dtype=np.bool_),
            start=np.zeros(1, np.int64),
            stop=np.ones(1, np.int64),
            uniforms=np.zeros((1, 1, 1)),
            temperature=0.0,
            look_ahead=False,
            statistics=False,
            label=f"the judging of a text at {place}",
            asked=np.array([[[*self.yes, *self.no]]]),
        )

    def read(self, prediction: Prediction) -> Score:
        assert prediction.asked_logp is not None
        logp: Any = prediction.asked_logp[0, 0]
        yes, no = logp[: len(self.yes)].max(), logp[len(self.yes) :].max()
        value = 1 / (1 + math.exp(min(float(no - yes), 700.0)))
        return Score(value, {SELF: value})
