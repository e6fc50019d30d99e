"""Neural networks as verifiers: `reward:MODEL`, `prm:MODEL`, `likelihood:MODEL`.

`MODEL+ADAPTER` merges a LoRA adapter into the model. Process reward models follow the convention of TRL's
PRM trainer: the steps of a text are separated by a mark (a line break), and the label at the end of a
step says whether the step is right.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.errors import VerifierError
from s3dlm.verifier.base import Confidences, Score, Texts, Verifier
from s3dlm.verifier.calibration import sigmoid

BATCH = 8
MAX_TOKENS = 4096
AUTO_CLASSES = {
    "reward": "AutoModelForSequenceClassification",
    "prm": "AutoModelForTokenClassification",
    "likelihood": "AutoModelForCausalLM",
}
_STEP = re.compile(r"[^\n]*\S[^\n]*")


class LearnedVerifier(Verifier):
    """A transformers model as a verifier; texts of similar length share a batch.

    The kind says what the model judges. `reward`: the whole text, by the sigmoid of the reward; with two
    labels that is the logit of label 1 minus that of label 0. `prm`: each line in the same way; the total
    is the weakest line, and lines below one half are suspicious. `likelihood`: the geometric mean of the
    token probabilities.
    """

    def __init__(self, kind: str, name: str, model: Any, tokenizer: Any) -> None:
        if kind != "likelihood" and model.config.num_labels not in (1, 2):
            raise VerifierError(
                f"the model {name!r} has {model.config.num_labels} labels; {kind}:MODEL needs one "
                "with 1 label (a reward) or 2 (bad, good)"
            )
        self.kind, self.name, self.model, self.tokenizer = kind, name, model.eval(), tokenizer
        judges = {"reward": self._judge_texts, "prm": self._judge_steps}
        self._judge = judges.get(kind, self._judge_tokens)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if getattr(model.config, "pad_token_id", None) is None:
            model.config.pad_token_id = tokenizer.pad_token_id

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return self.score_batch([prompt], [text], [confidence])[0]

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        order = sorted(range(len(texts)), key=lambda at: len(prompts[at]) + len(texts[at]))
        scores: dict[int, Score] = {}
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            prefixes = [self.prefix(prompts[at]) for at in chosen]
            judged = self._judge(prefixes, [texts[at] for at in chosen])
            scores |= dict(zip(chosen, judged, strict=True))
        return [scores[at] for at in range(len(texts))]

    def _judge_texts(self, prefixes: list[list[int]], texts: list[str]) -> list[Score]:
        """The reward of each text as a probability; the reward itself is the part `reward`."""
        rows = [prefix + self.ids(text) for prefix, text in zip(prefixes, texts, strict=True)]
        rewards = map(_margin, self.logits(rows).tolist())
        return [Score(sigmoid(reward), {"reward": reward}) for reward in rewards]

    def _judge_steps(self, prefixes: list[list[int]], texts: list[str]) -> list[Score]:
        """The weakest step, and the places of suspicious ones."""
        rows, ends = [], []
        for row, text in zip(prefixes, texts, strict=True):
            places = []
            for step in _STEP.finditer(text):
                row = row + self.ids(step[0].strip() + "\n")
                places.append((len(row) - 1, step.span()))
            rows.append(row)
            ends.append(places)
        scores = []
        for row, places, logits in zip(rows, ends, self.logits(rows), strict=True):
            cut = max(len(row) - len(logits), 0)  # tokens cut off at the front
            ends_of_steps = [logits[max(at - cut, 0)].tolist() for at, _ in places]
            steps = [sigmoid(_margin(labels)) for labels in ends_of_steps]
            judged = zip(places, steps, strict=True)
            spans = tuple((*span, round(1.0 - step, 2)) for (_, span), step in judged if step < 0.5)
            weakest = min(steps, default=0.0)
            scores.append(Score(weakest, {"weakest_step": weakest}, spans))
        return scores

    def _judge_tokens(self, prefixes: list[list[int]], texts: list[str]) -> list[Score]:
        """The geometric mean of the probabilities; the mean of their logarithms is the part
        `log_likelihood`."""
        import torch

        bodies = [self.ids(strip_end_tokens(text)) for text in texts]
        rows = [prefix + body for prefix, body in zip(prefixes, bodies, strict=True)]
        scores = []
        for row, body, logits in zip(rows, bodies, self.logits(rows), strict=True):
            length = min(len(row), len(logits))
            body = body[-(length - 1) :] if length > 1 else []
            if not body:
                scores.append(Score(0.0, {"log_likelihood": -math.inf}))
                continue
            logp = torch.log_softmax(logits[length - len(body) - 1 : length - 1], dim=-1)
            mean = logp[torch.arange(len(body)), torch.tensor(body)].mean().item()
            scores.append(Score(min(math.exp(mean), 1.0), {"log_likelihood": mean}))
        return scores

    def prefix(self, prompt: str) -> list[int]:
        """The tokens of a prompt up to where the text begins, by the chat template if there is one."""
        if not getattr(self.tokenizer, "chat_template", None):
            return self.ids(prompt + "\n")
        render = self.tokenizer.apply_chat_template
        turns = [{"role": "user", "content": prompt}]
        return self.ids(render(turns, add_generation_prompt=True, tokenize=False))

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, without any that a tokenizer would add."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def logits(self, rows: list[list[int]]) -> Any:
        """The model's logits for rows of tokens, padded on the right."""
        import torch

        rows = [row[-MAX_TOKENS:] or [self.tokenizer.pad_token_id] for row in rows]
        width, padding = max(map(len, rows)), self.tokenizer.pad_token_id
        ids = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            return self.model(ids.to(device), attention_mask=mask.to(device)).logits.float().cpu()


def load(given: str) -> LearnedVerifier:
    """The verifier of a name `KIND:MODEL`: a model of the hub, a folder, or a GGUF file (`FOLDER/FILE.gguf`).

    Code from the hub is never run.
    """
    import transformers

    kind, _, name = given.partition(":")
    path, _, place = name.partition("+")
    extra: dict[str, Any] = {}
    if name.endswith(".gguf"):
        path, extra = str(Path(name).parent), {"gguf_file": Path(name).name}
    # models/ is reached by name, because a verifier needs none of it otherwise.
    from s3dlm.models.lora import read_adapter

    adapter = read_adapter(place) if place else None
    for head in ("score.weight", "classifier.weight"):
        if adapter is not None and head in adapter.whole:
            extra["num_labels"] = len(adapter.whole[head])
    try:
        auto_class = getattr(transformers, AUTO_CLASSES[kind])
        # A pickle runs code when it is opened; a GGUF file is none.
        model, found = auto_class.from_pretrained(
            path, output_loading_info=True,
            use_safetensors=None if "gguf_file" in extra else True, **extra,
        )  # fmt: skip
        extra.pop("num_labels", None)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **extra)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0][:300]
        raise VerifierError(
            f"the verifier model {name!r} cannot be loaded as {AUTO_CLASSES[kind]}: {reason}; "
            "give the name of such a model on the hub or its folder, with weights in safetensors "
            "(convert pickles with safetensors.torch.save_file), or a GGUF file (which needs "
            "the packages gguf and accelerate)"
        ) from error
    missing = set(found["missing_keys"]) - set(adapter.whole if adapter else ())
    if kind != "likelihood" and missing:  # transformers would score by random weights
        raise VerifierError(
            f"the verifier model {name!r} has no weights for {min(missing)}, so its scores would be "
            f"random; {kind}:MODEL needs a model that was trained with such a head, and "
            f"{kind}:MODEL+ADAPTER one here or in the adapter"
        )
    if adapter is not None:
        adapter.merge(dict(model.named_parameters()))
    return LearnedVerifier(kind, name, model, tokenizer)


def _margin(labels: list[float]) -> float:
    """The logit of the only label, or that of label 1 minus that of label 0."""
    return labels[0] if len(labels) == 1 else labels[1] - labels[0]
