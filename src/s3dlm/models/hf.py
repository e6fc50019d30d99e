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

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.base import Denoiser, Model
from s3dlm.models.families import FAMILIES
from s3dlm.models.family import Config, find_mask_id
from s3dlm.models.folder import read_json, shards
from s3dlm.models.tokenizer import MASKED_LM_CHAT, TextTokenizer, load_tokenizer

ATTENTION = {None: None, "auto": None, "math": "eager", "eager": "eager", "sdpa": "sdpa"}
CPU_LOGITS, GPU_LOGITS = 1 << 28, 1 << 30  # bytes of logits of one forward pass
TOLERANCE = 1e-2  # between a row and the same row padded, relative to its largest logit


class LogitsModel(Denoiser):
    """A `Denoiser` from a function (rows, length) → (rows, length, vocabulary).

    The function needs no notion of padding: rows of one length run together, without any.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        mask_id: int,
        vocabulary: int,
        context: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.function, self.device = function, torch.device(device)
        self.mask_id, self.vocabulary, self.context = mask_id, vocabulary, context
        self.tokens_at_once = tokens_that_fit(vocabulary, self.device)

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        if keys is None or bool(keys.all()):
            return self.function(tokens)
        lengths = keys.sum(1).tolist()
        logits: Tensor | None = None
        for length in sorted(set(lengths)):
            rows = [row for row, own in enumerate(lengths) if own == length]
            part = self.function(tokens[rows, :length])
            if logits is None:
                logits = part.new_zeros(*tokens.shape, self.vocabulary)
            logits[rows, :length] = part
        assert logits is not None  # an empty batch has no padding, so it returned above
        return logits

    def head(self, features: Tensor) -> Tensor:
        return features


class TransformersModel(Denoiser):
    """A `Denoiser` around a model that transformers loaded; padding goes into its attention mask."""

    def __init__(self, inner: Any, mask_id: int, vocabulary: int, context: int) -> None:
        self.inner = inner
        self.mask_id, self.vocabulary, self.context = mask_id, vocabulary, context

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return next(self.inner.parameters()).device  # type: ignore[no-any-return]

    @property
    def tokens_at_once(self) -> int:  # type: ignore[override]
        return tokens_that_fit(self.vocabulary, self.device)

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        # Without a mask some models of transformers guess one from the ids of the tokens.
        mask = torch.ones_like(tokens) if keys is None else keys.long()
        output = self.inner(input_ids=tokens, attention_mask=mask)
        logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
        return logits

    def head(self, features: Tensor) -> Tensor:
        return features


def tokens_that_fit(vocabulary: int, device: torch.device) -> int:
    """The largest batch whose logits, all of them in float32, fit the room for them."""
    room = CPU_LOGITS if device.type == "cpu" else GPU_LOGITS
    return max(16, room // (4 * vocabulary))


def load_with_transformers(
    name: str,
    folder: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str | None = None,
    trust_remote_code: bool = False,
    mask_id: int | None = None,
) -> Model:
    """A model of a family that is not native."""
    config = read_json(folder / "config.json")
    if attention not in ATTENTION:
        raise SettingsError(f"attention={attention!r} is for native models; here: eager or sdpa")
    refuse_unknown(name, config, trust_remote_code)
    shards(folder)  # refuses pickles
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    mask_id = find_mask_id(config, name, tokenizer.inner, None, mask_id)
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if ATTENTION[attention] is not None:
        options["attn_implementation"] = ATTENTION[attention]
    inner = _from_pretrained(name, folder, config, trust_remote_code, options)
    return _model(name, inner.to(device).eval(), tokenizer, mask_id)


def refuse_unknown(name: str, config: Config, trusted: bool) -> None:
    """Only masked language models of transformers load without their own code."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    kind = str(config.get("model_type"))[:60]
    if trusted or kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return
    native = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    what = f"{name} is of model_type {kind!r}, which is not supported"
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        what = f"{name} is of model_type {kind!r}, a plain causal model and not a diffusion model"
    raise ModelError(
        f"{what}; supported are {native}, and masked language models of transformers (bert, "
        "roberta, modernbert, …); trust_remote_code=True runs the repository's own code"
    )


def _from_pretrained(
    name: str, folder: Path, config: Config, trusted: bool, options: dict[str, Any]
) -> Any:
    loader = _loader(config, trusted)
    try:
        inner, info = loader.from_pretrained(
            folder, trust_remote_code=trusted, output_loading_info=True, **options
        )
    except Exception as error:  # the configs and the code of others fail in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise ModelError(f"transformers cannot load {name}: {reason}") from error
    missing = [str(key) for key in info.get("missing_keys", ())]
    wrong = [str(key) for key in info.get("mismatched_keys", ())]
    if missing or wrong:
        first = ", ".join([*missing, *wrong][:5])
        raise ModelError(
            f"the weights of {name} do not fit its config.json: {len(missing)} tensors are missing "
            f"and {len(wrong)} have the wrong shape, first {first}; they would be random"
        )
    return inner


def _loader(config: Config, trusted: bool) -> Any:
    """The auto class that gives logits: the repository's own choice, else the masked one."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    offered = config.get("auto_map") or {}
    for choice in ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel"):
        if trusted and choice in offered:
            return getattr(transformers, choice)
    if config.get("model_type") in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return transformers.AutoModelForMaskedLM
    return transformers.AutoModelForCausalLM


def _model(name: str, inner: Any, tokenizer: TextTokenizer, mask_id: int) -> Model:
    config = inner.config
    if not tokenizer.inner.chat_template and "chat" in Path(name).name.lower():
        tokenizer.inner.chat_template = MASKED_LM_CHAT
    denoiser = TransformersModel(inner, mask_id, int(config.vocab_size), _context(inner))
    check_denoiser(name, denoiser)
    ends = tokenizer.end_ids(getattr(config, "eos_token_id", None), ())
    return Model(name, denoiser, tokenizer, ends)


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
            "cannot fill masks; diffusion models are listed by `s3dlm models`"
        )
    padded = torch.cat((row, row[:, :4]), 1)
    keys = torch.arange(padded.shape[1], device=row.device)[None] < length
    kept = denoiser.encode(padded, keys).float()[:, :length]
    if bool((kept - logits).abs().max() > TOLERANCE * logits.abs().max().clamp(min=1.0)):
        raise ModelError(
            f"{name} gives other predictions when a row is padded, so its results would depend on "
            "the batch; its code does not use the attention mask that it is given"
        )
