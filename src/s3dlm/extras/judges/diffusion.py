"""`orm:ADAPTER`: a reward model that is a diffusion model with a LoRA adapter and a head on its features.

As published with arXiv 2609.35472 for Dream and LLaDA: the features of the text's tokens are averaged
(or the last one is taken), and a small head gives a reward. Process reward models of that kind also get
the share of masked tokens; complete texts have none. The base model is loaded a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.errors import VerifierError
from s3dlm.extras.judges.learned import BATCH
from s3dlm.models import registry
from s3dlm.models.lora import read_adapter
from s3dlm.models.transformer import Transformer
from s3dlm.verifier.base import Score, Verifier
from s3dlm.verifier.calibration import sigmoid

HEADS = ("reward_head.", "step_proj.")


class DiffusionReward(Verifier):
    """A loaded diffusion model and an adapter's head."""

    def __init__(self, name: str, **loading: Any) -> None:
        self.name = name
        base, _, place = name.partition(":")[2].rpartition("+")
        adapter = read_adapter(place)
        self.head = {k: t.float() for k, t in adapter.whole.items() if k.startswith(HEADS)}
        body = {k: t for k, t in adapter.whole.items() if k not in self.head}
        base = base or adapter.base or ""
        if not (base and self.head) or adapter.config.get("causal"):
            raise VerifierError(
                f"{place} is no reward model on a bidirectional diffusion model: it needs a base model, "
                "`reward_head` weights and no causal readout; for other reward models use reward:MODEL"
            )
        self.last = adapter.config.get("pool_strategy") == "last_token"
        self.model = registry.load(base, adapter=replace(adapter, whole=body), **loading)
        if not isinstance(self.model.denoiser, Transformer):
            raise VerifierError(f"{base} does not run natively, so {name} cannot read its features")
        self.network = self.model.denoiser

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return self.score_batch([prompt], [text], [confidence])[0]

    @torch.inference_mode()
    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        tokenizer, network, scores = self.model.tokenizer, self.network, list[Score]()
        both = [
            (tokenizer.chat(p), tokenizer.encode(strip_end_tokens(t)))
            for p, t in zip(prompts, texts, strict=True)
        ]
        for start in range(0, len(both), BATCH):
            rows = both[start : start + BATCH]
            ids = [torch.tensor(prefix + body, device=network.device) for prefix, body in rows]
            tokens = pad_sequence(ids, batch_first=True)
            keys = pad_sequence([torch.ones_like(row, dtype=torch.bool) for row in ids], True)
            features = network.body(tokens, keys).float().cpu()
            for row, (prefix, body) in enumerate(rows):
                answer = features[row, len(prefix) : len(prefix) + len(body)]
                reward = self._reward(answer[-1:] if self.last else answer) if body else -100.0
                scores.append(Score(sigmoid(reward), {"reward": reward}))
        return scores

    def _reward(self, features: Tensor) -> float:
        x = features.mean(0)
        if "step_proj.0.weight" in self.head:  # sin 0 and cos 0: nothing is masked
            half = self.head["step_proj.0.weight"].shape[1] // 2
            step = torch.cat((torch.zeros(half), torch.ones(half)))
            x = torch.cat((x, F.gelu(self._linear("step_proj.0", step))))
        if "reward_head.weight" in self.head:
            return float(self._linear("reward_head", x))
        return float(self._linear("reward_head.2", F.gelu(self._linear("reward_head.0", x))))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.head[f"{name}.weight"], self.head[f"{name}.bias"])
