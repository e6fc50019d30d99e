"""What verifiers that are neural networks share: loading one by name, and judging in batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s3dlm.errors import VerifierError
from s3dlm.verifier.base import Score, Verifier
from s3dlm.verifier.calibration import Calibration

BATCH = 8
MAX_TOKENS = 4096


class Pretrained(Verifier):
    """A verifier around a transformers model; texts of similar length share a batch."""

    auto_class = ""  # of transformers, for `load`
    batched = True

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        calibration: Calibration,
        batch_size: int = BATCH,
    ) -> None:
        self.name, self.model, self.tokenizer = name, model.eval(), tokenizer
        self.calibration, self.batch_size = calibration, batch_size
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if getattr(model.config, "pad_token_id", None) is None:
            model.config.pad_token_id = tokenizer.pad_token_id

    @classmethod
    def load(cls, name: str, **settings: Any) -> Any:
        """The verifier around a model of the hub, a folder, or a GGUF file (`FOLDER/FILE.gguf`)."""
        model, tokenizer = load(cls.auto_class, name)
        return cls(name, model, tokenizer, **settings)

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The score of one text."""
        return self.score_batch([prompt], [text], [confidence])[0]

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        """One score per text, in order."""
        order = sorted(range(len(texts)), key=lambda at: len(prompts[at]) + len(texts[at]))
        found: dict[int, Score] = {}
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            scores = self.judge([prompts[at] for at in chosen], [texts[at] for at in chosen])
            found |= dict(zip(chosen, scores, strict=True))
        return [found[at] for at in range(len(texts))]

    def judge(self, prompts: list[str], texts: list[str]) -> list[Score]:
        """The scores of one batch."""
        raise NotImplementedError

    def prefix(self, prompt: str) -> list[int]:
        """The tokens of a prompt up to where the text begins, by the chat template if there is one."""
        if getattr(self.tokenizer, "chat_template", None):
            turns = [{"role": "user", "content": prompt}]
            prompt = self.tokenizer.apply_chat_template(
                turns, add_generation_prompt=True, tokenize=False
            )
        else:
            prompt = prompt + "\n"
        return self.ids(prompt)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, without any that a tokenizer would add."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def logits(self, rows: list[list[int]]) -> Any:
        """The model's logits for rows of tokens, padded on the right."""
        import torch

        rows = [row[-MAX_TOKENS:] or [self.tokenizer.pad_token_id] for row in rows]
        width = max(map(len, rows))
        padding = self.tokenizer.pad_token_id
        ids = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            return self.model(ids.to(device), attention_mask=mask.to(device)).logits.float().cpu()


def load(auto_class: str, name: str) -> tuple[Any, Any]:
    """A model and its tokenizer; code from the hub is never run."""
    import transformers

    path, extra = name, {}
    if name.endswith(".gguf"):
        path, extra = str(Path(name).parent), {"gguf_file": Path(name).name}
    try:
        model = getattr(transformers, auto_class).from_pretrained(path, **extra)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **extra)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0][:300]
        raise VerifierError(
            f"the verifier model {name!r} cannot be loaded as {auto_class}: {reason}; give the name "
            "of such a model on the hub, its folder, or a GGUF file (which needs the packages gguf "
            "and accelerate)"
        ) from error
    return model, tokenizer
