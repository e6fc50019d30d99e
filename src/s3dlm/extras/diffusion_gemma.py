"""DiffusionGemma through transformers: uniform noise, text only.

Its encoder reads what stands before the open block once, causally, and its decoder reads blocks of
random and accepted tokens against that cache, which it does not change; so all particles of a prompt
share one. Self-conditioning needs softmax(logits) · embedding, one vector of the hidden size per position
(2,816 numbers where the logits are 262,144), so those vectors travel with a particle.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.base import EVERY_METHOD, Defaults, Denoiser, Loading, Model, Noise
from s3dlm.models.folder import read_json
from s3dlm.models.hf import pretrained
from s3dlm.models.packing import Batch, Ints, Rows
from s3dlm.models.tokenizer import load_tokenizer

PREFIX_BYTES = 1 << 30  # of prefixes whose keys and values are kept
FILE = "generation_config.json"
ENDS = ("<eos>", "<end_of_turn>", "<turn|>")


class DiffusionGemma(Denoiser):
    """A `Denoiser` around `DiffusionGemmaForBlockDiffusion`."""

    mask_id, diffusion, reads_prefix = -1, "uniform", True

    def __init__(self, inner: Any, noise: Noise) -> None:
        text = inner.config.text_config
        self.inner, self.noise = inner, noise
        self.vocabulary, self.context = int(text.vocab_size), int(text.max_position_embeddings)
        self.conditioned = int(text.hidden_size)
        self.first = int(text.bos_token_id or 0)  # where there is no prompt
        self.limit = float(inner.final_logit_softcapping)
        self.device = next(inner.parameters()).device
        self.tokens_at_once = 4096
        self._prefixes: dict[tuple[int, ...], Any] = {}

    def reader(self) -> OpenBlocks:
        return OpenBlocks(self)

    def encode_canvas(
        self, prefix: Sequence[int], tokens: Tensor, vectors: Tensor | None
    ) -> Tensor:
        """Features (rows, block, width) of open blocks (rows, block) behind one prefix; with the
        `expected` vectors (rows, block, any) of their last prediction, if any."""
        prefix = prefix or [self.first]
        decoder, cache = self.inner.model.decoder, self._cache(prefix)
        if cache.layers[0].keys.shape[0] != len(tokens):
            cache = copy.deepcopy(cache)
            cache.batch_repeat_interleave(len(tokens))
        place = len(prefix) + torch.arange(tokens.shape[1], device=tokens.device)
        # The decoder makes the vectors from logits; here they come ready.
        hook = decoder.self_conditioning.register_forward_pre_hook(
            lambda _, given: (
                given[0],
                given[0].new_zeros(()) if vectors is None else vectors.to(given[0]),
            )
        )
        try:
            output = decoder(
                decoder_input_ids=tokens, past_key_values=cache,
                decoder_position_ids=place[None].to(torch.int32),
            )  # fmt: skip
        finally:
            hook.remove()
        features: Tensor = output.last_hidden_state
        return features

    def _cache(self, prefix: Sequence[int]) -> Any:
        """Keys and values of a prefix: kept, or those of the longest kept one and what follows it."""
        key = tuple(prefix)
        if key in self._prefixes:
            self._prefixes[key] = self._prefixes.pop(key)  # the latest used
            return self._prefixes[key]
        before = [known for known in self._prefixes if known == key[: len(known)]]
        start = max(before, key=len, default=())
        if start:
            cache = copy.deepcopy(self._prefixes[start])
        else:
            from transformers import DynamicCache

            cache = DynamicCache(config=self.inner.config.get_text_config(decoder=True))
        ids = torch.tensor([key[len(start) :]], device=self.device)
        place = torch.arange(len(start), len(key), device=self.device, dtype=torch.int32)[None]
        self.inner.model.encoder(input_ids=ids, past_key_values=cache, position_ids=place)
        self._prefixes[key] = cache
        held = {known: _size(one) for known, one in self._prefixes.items()}
        for known in list(held)[:-1]:
            if sum(held.values()) > PREFIX_BYTES:
                del held[known], self._prefixes[known]
        return cache

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.inner.lm_head(features).float()
        capped: Tensor = (logits / self.limit).tanh() * self.limit
        return capped

    def expected(self, weights: Tensor) -> Tensor:
        table = self.inner.model.decoder.embed_tokens
        mean = weights.to(table.weight.dtype) @ table.weight
        scaled: Tensor = mean * table.embed_scale.to(mean.dtype)
        return scaled


class OpenBlocks:
    """Runs the open blocks of rows, those that have one prefix together."""

    exact = False  # what a pass says of a canvas depends on its last prediction, too

    def __init__(self, denoiser: DiffusionGemma) -> None:
        self.denoiser = denoiser
        self.requests: Sequence[Rows] = ()

    def begin(self, requests: Sequence[Rows]) -> None:
        self.requests = requests

    def run_length(self, request: int, count: int) -> int:
        return int(self.requests[request].uniforms.shape[1])

    def encode(self, batch: Batch) -> tuple[Tensor, Ints]:
        """Features of the open blocks, and how many positions are before each."""
        behind: dict[tuple[int, ...], list[int]] = {}
        known, blocks, vectors = [], [], []
        for place, (index, row) in enumerate(batch):
            request = self.requests[index]
            start = int(request.start[row])
            blocks.append(torch.from_numpy(request.canvas[row, start : request.stop[row]]))
            before = (*request.prompt.tolist(), *request.canvas[row, :start].tolist())
            known.append(len(before))
            behind.setdefault((len(blocks[-1]), *before), []).append(place)
            vectors.append(None if request.vectors is None else request.vectors[row])
        width = max(len(block) for block in blocks)
        features = None
        for (size, *prefix), places in behind.items():
            blank = np.zeros((size, self.denoiser.conditioned), np.float32)
            told = [vectors[place] for place in places]
            stacked = np.stack([blank if one is None else one for one in told])
            found = self.denoiser.encode_canvas(
                prefix,
                torch.stack([blocks[place] for place in places]).to(self.denoiser.device),
                torch.from_numpy(stacked).to(self.denoiser.device),
            )
            if features is None:
                features = found.new_zeros(len(batch), width, found.shape[2])
            features[places, :size] = found
        assert features is not None
        return features, np.array(known)


def _size(cache: Any) -> int:
    return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in cache.layers)


def noise_of(stated: dict[str, Any], canvas: int) -> tuple[Noise, dict[str, Any]]:
    """How a generation_config.json says that the model is decoded, and the settings that follow."""
    stated = {name: value for name, value in stated.items() if value is not None}
    sampler = stated.get("sampler_config", {})
    hot, cold = float(stated.get("t_max", 0.8)), float(stated.get("t_min", 0.4))
    if not 0 <= cold < hot:
        raise ModelError(f"{FILE} has t_min={cold:g} and t_max={hot:g}; t_min must be the smaller")
    noise = Noise(
        entropy_bound=float(sampler.get("entropy_bound", 0.1)),
        stability=int(stated.get("stability_threshold", 1)),
        confidence=float(stated.get("confidence_threshold", 0.005)),
        cooling=cold / hot,
        canvas=canvas,
    )
    steps = int(stated.get("max_denoising_steps", 48))
    settings = {"temperature": hot, "steps": min(steps, canvas), "gen_length": canvas}
    return noise, settings | {"block_length": canvas}


def load(name: str, folder: Path, how: Loading) -> Model:
    """A checkpoint whose model_type is diffusion_gemma."""
    from transformers import DiffusionGemmaForBlockDiffusion

    if how.mask_id is not None:
        raise SettingsError(f"{name} has no mask; got mask_id={how.mask_id}: leave it out")
    if how.adapter is not None:
        raise SettingsError(
            f"adapter={how.adapter.name!r} cannot be merged into {name}: its encoder and its decoder share "
            "their weights, and an adapter changes each by itself; leave it out"
        )
    tokenizer = load_tokenizer(folder, trust_remote_code=how.trusted)
    inner = pretrained(DiffusionGemmaForBlockDiffusion, name, folder, how)
    stated = read_json(folder / FILE) if (folder / FILE).is_file() else {}
    noise, settings = noise_of(stated, int(inner.config.canvas_length))
    denoiser = DiffusionGemma(inner, noise)
    ends = tokenizer.end_ids(stated.get("eos_token_id"), ENDS)
    return Model(name, denoiser, tokenizer, ends, Defaults(settings={EVERY_METHOD: settings}))
