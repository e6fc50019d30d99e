"""Models that are not native: any function to logits, and masked language models of transformers.

Their features are their logits and their head is the identity. Code from a model's repository runs
only when the caller allows it. A checkpoint that is not native is checked when it is loaded: a plain
causal model, random weights or attention to padding would else give bad answers without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser, Loading, Model
from s3dlm.models.device import logits_room
from s3dlm.models.families import FAMILIES
from s3dlm.models.family import find_mask_id
from s3dlm.models.folder import read_json, shards
from s3dlm.models.tokenizer import load_tokenizer

CPU_PASS = 1 << 28  # bytes of logits of one forward pass on CPU
TOLERANCE = 1e-2  # between a row and the same row padded, relative to its largest logit


class LogitsModel(Denoiser):
    """A `Denoiser` from a function (rows, length) → (rows, length, vocabulary).

    The function needs no notion of padding: rows of one length run together, without any.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        mask_id: int,
        vocabulary: int,
        context: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.function, self.device = function, torch.device(device)
        self.mask_id, self.vocabulary, self.context = mask_id, vocabulary, context
        room = CPU_PASS if self.device.type == "cpu" else logits_room(self.device)
        self.tokens_at_once = max(16, room // (4 * vocabulary))  # all logits, in float32

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        if keys is None or bool(keys.all()):
            whole: Tensor = self.function(tokens)
            return whole
        lengths, parts = keys.sum(1), {}
        for length in sorted(set(lengths.tolist())):
            parts[length] = self.function(tokens[lengths == length, :length])
        logits: Tensor = next(iter(parts.values())).new_zeros(*tokens.shape, self.vocabulary)
        for length, part in parts.items():
            logits[lengths == length, :length] = part
        return logits

    def head(self, features: Tensor) -> Tensor:
        return features


class TransformersModel(LogitsModel):
    """A `Denoiser` around a model that transformers loaded; padding goes into its attention mask."""

    def __init__(self, inner: Any, mask_id: int, vocabulary: int, context: int) -> None:
        super().__init__(inner, mask_id, vocabulary, context, next(inner.parameters()).device)

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        # Without a mask some models of transformers guess one from the ids of the tokens.
        mask = torch.ones_like(tokens) if keys is None else keys.long()
        output = self.function(input_ids=tokens, attention_mask=mask)
        logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
        return logits


def load_with_transformers(name: str, folder: Path, how: Loading) -> Model:
    """A model of a family that is not native."""
    config = read_json(folder / "config.json")
    loader = _find_loader(name, config, how.trusted)
    tokenizer = load_tokenizer(folder, trust_remote_code=how.trusted)
    mask_id = find_mask_id(config, name, tokenizer.inner, None, how.mask_id)
    inner = pretrained(loader, name, folder, how)
    denoiser = TransformersModel(inner, mask_id, int(inner.config.vocab_size), _context(inner))
    check_denoiser(name, denoiser)
    ends = tokenizer.end_ids(getattr(inner.config, "eos_token_id", None), ())
    return Model(name, denoiser, tokenizer, ends)


def pretrained(loader: Any, name: str, folder: Path, how: Loading) -> Any:
    """A network of transformers with all of its weights, and those of an adapter.

    Args:
        loader: The class whose `from_pretrained` is called.
        name: What errors call it.
        folder: Where its files are.
        how: How `load` wants it.
    """
    shards(folder)  # refuses pickles
    try:
        network, info = loader.from_pretrained(
            folder,
            dtype=how.dtype,
            use_safetensors=True,
            trust_remote_code=how.trusted,
            output_loading_info=True,
        )
    except Exception as error:  # the configs and the code of others fail in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise ModelError(f"transformers cannot load {name}: {reason}") from error
    missing, wrong = (list(info.get(kind, ())) for kind in ("missing_keys", "mismatched_keys"))
    if missing or wrong:
        raise ModelError(
            f"the weights of {name} do not fit its config.json: {len(missing)} tensors are missing "
            f"and {len(wrong)} have the wrong shape, first "
            f"{', '.join(map(str, [*missing, *wrong][:5]))}; they would be random"
        )
    if how.adapter is not None:
        how.adapter.merge(dict(network.named_parameters()))
    return network.to(how.device).eval().requires_grad_(False)


def _find_loader(name: str, config: dict[str, Any], trusted: bool) -> Any:
    """The auto class that gives logits: the repository's own choice if its code is trusted, else the
    masked one; other models do not load."""
    import transformers
    from transformers.models.auto import modeling_auto

    kind, offered = str(config.get("model_type"))[:60], config.get("auto_map") or {}
    for choice in ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel"):
        if trusted and choice in offered:
            return getattr(transformers, choice)
    if kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return transformers.AutoModelForMaskedLM
    if trusted:
        return transformers.AutoModelForCausalLM
    native = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    reason = "which is not supported"
    if kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        reason = "a plain causal model and not a diffusion model"
    raise ModelError(
        f"{name} is of model_type {kind!r}, {reason}; supported are {native}, and masked language "
        "models of transformers (bert, roberta, modernbert, …); trust_remote_code=True runs the "
        "repository's own code"
    )


def _context(inner: Any) -> int:
    """The most positions a row may have; RoBERTa's table of positions begins with unused rows."""
    for name, module in inner.named_modules():
        reserved = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and reserved is not None:
            return int(module.num_embeddings) - int(reserved) - 1
    names = ("max_position_embeddings", "max_sequence_length", "n_positions")
    stated = (getattr(inner.config, name, None) for name in names)
    return next((value for value in stated if isinstance(value, int)), 2048)


@torch.inference_mode()
def check_denoiser(name: str, denoiser: TransformersModel) -> None:
    """Refuse a model whose predictions ignore later tokens, or change with padding."""
    length = min(12, denoiser.context - 4)
    usable = [i for i in range(denoiser.vocabulary) if i != denoiser.mask_id][4 : 4 + length + 2]
    if length < 3 or len(usable) < length + 2:
        raise ModelError(f"{name} has too small a vocabulary or context to be checked")
    row = torch.tensor([usable[:length]], device=denoiser.device)
    row[0, 1] = denoiser.mask_id
    other = row.clone()
    other[0, -1] = usable[-1]
    logits, changed = denoiser.encode(row).float(), denoiser.encode(other).float()
    if not bool(logits.isfinite().all()):
        raise ModelError(f"{name} returns NaN or infinite logits; check the weights and dtype")
    if torch.equal(logits[:, :-1], changed[:, :-1]):
        raise ModelError(
            f"{name} is a causal model: its predictions do not depend on later tokens, so it "
            "cannot fill masks; diffusion models are listed by `s3dlm list models`"
        )
    padded = torch.cat((row, row[:, :4]), 1)
    keys = torch.arange(padded.shape[1], device=row.device)[None] < length
    kept = denoiser.encode(padded, keys).float()[:, :length]
    if bool((kept - logits).abs().max() > TOLERANCE * logits.abs().max().clamp(min=1.0)):
        raise ModelError(
            f"{name} gives other predictions when a row is padded, so its results would depend on "
            "the batch; its code does not use the attention mask that it is given"
        )
