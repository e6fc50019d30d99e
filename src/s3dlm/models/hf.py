"""Models we have not written ourselves: any function to logits, and whatever transformers loads.

Their features are their logits and their head is the identity. Code from a model's repository runs
only when the caller says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.base import Model
from s3dlm.models.folder import read_json, shards
from s3dlm.models.tokenizer import TextTokenizer, load_tokenizer

SDPA = {None: None, "auto": None, "math": "eager", "eager": "eager", "sdpa": "sdpa"}


class LogitsModel:
    """A `Denoiser` from a function (rows, length) → (rows, length, vocabulary).

    The function needs no notion of padding: rows of one length run together, without any.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], mask_id: int, vocabulary: int, context: int
    ) -> None:
        self.function = function
        self.mask_id, self.vocabulary, self.context = mask_id, vocabulary, context

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        if keys is None or bool(keys.all()):
            return self.function(tokens)
        lengths = keys.sum(1)
        logits: Tensor | None = None
        for length in sorted(set(lengths.tolist())):
            rows = (lengths == length).nonzero()[:, 0]
            part = self.function(tokens[rows, :length])
            if logits is None:
                logits = part.new_zeros(*tokens.shape, self.vocabulary)
            logits[rows, :length] = part
        assert logits is not None  # an empty batch has no padding, so it returned above
        return logits

    def head(self, features: Tensor) -> Tensor:
        return features


class TransformersModel:
    """A `Denoiser` around a model that transformers loaded; padding goes into its attention mask."""

    def __init__(self, inner: Any, mask_id: int, vocabulary: int, context: int) -> None:
        self.inner = inner
        self.mask_id, self.vocabulary, self.context = mask_id, vocabulary, context

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        mask = None if keys is None else keys.long()
        output = self.inner(input_ids=tokens, attention_mask=mask)
        logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
        return logits

    def head(self, features: Tensor) -> Tensor:
        return features


def load_with_transformers(
    name: str,
    folder: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """A model of a family that is not native."""
    config = read_json(folder / "config.json")
    if attention not in SDPA:
        raise SettingsError(f"attention={attention!r} is for native models; here: eager or sdpa")
    _refuse_foreign_code(name, config, trust_remote_code)
    shards(folder)  # refuses pickles
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if SDPA[attention] is not None:
        options["attn_implementation"] = SDPA[attention]
    loader = _loader(config, trust_remote_code)
    try:
        inner = loader.from_pretrained(folder, trust_remote_code=trust_remote_code, **options)
    except (OSError, ValueError, KeyError, AttributeError, ImportError) as error:
        raise ModelError(f"transformers cannot load {name}: {error}") from error
    return _model(name, inner.to(device).eval(), tokenizer)


def _refuse_foreign_code(name: str, config: Mapping[str, Any], trusted: bool) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind = config.get("model_type")
    if not trusted and kind not in CONFIG_MAPPING_NAMES:
        raise ModelError(
            f"{name} is of model_type {kind!r}, which is neither native (llada, Dream) nor part of "
            "transformers; pass trust_remote_code=True if you want to run its repository's own code"
        )


def _loader(config: Mapping[str, Any], trusted: bool) -> Any:
    """The auto class that gives logits: the repository's own choice, else masked, else causal."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    offered = config.get("auto_map") or {}
    for choice in ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel"):
        if trusted and choice in offered:
            return getattr(transformers, choice)
    if config.get("model_type") in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return transformers.AutoModelForMaskedLM
    return transformers.AutoModelForCausalLM


def _model(name: str, inner: Any, tokenizer: TextTokenizer) -> Model:
    config = inner.config
    mask_id = getattr(config, "mask_token_id", None)
    mask_id = tokenizer.inner.mask_token_id if mask_id is None else mask_id
    if mask_id is None:
        raise ModelError(
            f"{name} names no mask token, so it is no masked diffusion model; if it is one, wrap it "
            "yourself: s3dlm.models.hf.LogitsModel(function, mask_id, vocabulary, context)"
        )
    context = next(
        (
            int(value)
            for key in ("max_position_embeddings", "max_sequence_length", "n_positions")
            if isinstance(value := getattr(config, key, None), int)
        ),
        2048,
    )
    denoiser = TransformersModel(inner, int(mask_id), int(config.vocab_size), context)
    ends = tokenizer.end_ids(getattr(config, "eos_token_id", None), ())
    return Model(name, denoiser, tokenizer, ends)
