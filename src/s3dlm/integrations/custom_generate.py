"""The search behind `model.generate(..., custom_generate=FOLDER)` of transformers.

Token ids in, token ids out, in transformers' own output class, with its streamers.
`python -m s3dlm.integrations.custom_generate FOLDER` writes the few lines that transformers loads; they
call `generate` here.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from s3dlm import engine
from s3dlm.errors import ModelError, PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.models.defaults import Defaults, defaults_of
from s3dlm.models.hf import LogitsModel
from s3dlm.models.tokenizer import TextTokenizer
from s3dlm.settings import Settings

# Arguments of transformers that do not apply to a search: refused, or ignored without harm.
UNUSED = {
    "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "assistant_model",
    "negative_prompt_ids", "negative_prompt_attention_mask",
}  # fmt: skip
CONTEXTS = ("max_position_embeddings", "max_sequence_length", "n_positions")
HARMLESS = {"synced_gpus", "do_sample", "use_cache", "pad_token_id"}


@dataclasses.dataclass
class SearchOutput(GenerateDecoderOnlyOutput):  # type: ignore[misc]
    """The output class of transformers, with the results of the searches."""

    sequences: Tensor  # (prompts, prompt + gen_length)
    results: tuple[engine.Result, ...] | None = None


class PromptText(str):
    """A prompt's text together with its ids, so that nothing is lost by decoding."""

    ids: list[int]

    @classmethod
    def of(cls, ids: list[int], tokenizer: Any) -> PromptText:
        text = cls(tokenizer.decode(ids, skip_special_tokens=True).strip() or "(no text)")
        text.ids = ids
        return text


class IdsTokenizer(TextTokenizer):
    """The tokenizer of transformers, for prompts that are already ids."""

    has_chat_template = False

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return user.ids if isinstance(user, PromptText) else self.encode(user + prefill)


@torch.inference_mode()
def generate(
    model: Any,
    inputs: Tensor | None = None,
    *,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    tokenizer: Any = None,
    generation_config: Any = None,
    max_new_tokens: int | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    mask_token_id: int | None = None,
    shift_logits: bool | None = None,
    task: str | None = None,
    verifier: Any = None,
    streamer: Any = None,
    return_dict_in_generate: bool | None = None,
    max_rows: int = 64,
    **kwargs: Any,
) -> Tensor | SearchOutput:
    """Search for the answer to every prompt; settings of the search are keyword arguments."""
    ids = input_ids if inputs is None else inputs
    if ids is None or ids.dim() != 2 or ids.shape[1] == 0:
        raise PromptError("generate needs input_ids of the shape (prompts, tokens)")
    length = max_new_tokens or getattr(generation_config, "max_new_tokens", 0)
    settings = _settings(model, task, kwargs, length)
    if tokenizer is None:
        raise SettingsError("the verifier reads text: pass tokenizer=… to generate")
    if eos_token_id is None:
        eos_token_id = model.config.eos_token_id
    wrapped = as_model(model, tokenizer, eos_token_id, mask_token_id, shift_logits)
    kept = torch.ones_like(ids) if attention_mask is None else attention_mask  # without padding
    rows = [row[mask.bool()].tolist() for row, mask in zip(ids, kept, strict=True)]
    prompts = [PromptText.of(row, tokenizer) for row in rows]
    jobs = [engine.Job(text, task, settings, verifier=verifier) for text in prompts]
    if streamer is not None:
        streamer.put(ids.cpu())
    results: dict[int, engine.Result] = {}
    for index, event in engine.run(wrapped, jobs, max_rows=max_rows):
        if isinstance(event, engine.Result):
            results[index] = event
        elif hasattr(streamer, "put_draft"):
            # The look-ahead of the heaviest child, up to its first end token.
            tokens = event.clean[int(event.weight.argmax())].tolist()
            ends = (at for at, token in enumerate(tokens) if token in wrapped.end_ids)
            streamer.put_draft(value=torch.tensor([tokens[: next(ends, None)]], dtype=torch.int64))
    end = min(wrapped.end_ids, default=wrapped.denoiser.mask_id)
    canvas = torch.full((len(jobs), settings.gen_length), end)
    for index, result in results.items():
        # A method may choose a text of an earlier step, whose ids are gone.
        chosen = result.token_ids or wrapped.tokenizer.encode(result.text)[: settings.gen_length]
        canvas[index, : len(chosen)] = torch.tensor(chosen)
    if streamer is not None:
        streamer.put(canvas)
        streamer.end()
    sequences = torch.cat([ids, canvas.to(ids.device)], dim=1)
    if return_dict_in_generate is None:
        return_dict_in_generate = getattr(generation_config, "return_dict_in_generate", False)
    found = tuple(results[index] for index in range(len(jobs)))
    return SearchOutput(sequences, results=found) if return_dict_in_generate else sequences


def as_model(
    model: Any,
    tokenizer: Any,
    eos_token_id: int | Sequence[int] | None = None,
    mask_token_id: int | None = None,
    shift_logits: bool | None = None,
) -> Model:
    """A model of transformers as one of ours; prompts of one length are batched without padding."""
    config = model.config
    named = [getattr(part, "mask_token_id", None) for part in (config, tokenizer)]
    mask = next((token for token in (mask_token_id, *named) if token is not None), None)
    if mask is None:
        raise ModelError(
            f"{type(model).__name__} has no mask token, so it is not a masked diffusion model; if "
            "it is one, pass mask_token_id=…"
        )
    shift = str(config.model_type).lower() == "dream" if shift_logits is None else shift_logits

    def logits(tokens: Tensor) -> Tensor:
        output = model(tokens)
        values: Tensor = output.logits if hasattr(output, "logits") else output[0]
        # Dream predicts the token at the next position.
        return torch.cat((values[:, :1], values[:, :-1]), dim=1) if shift else values

    sizes = [getattr(config, name, None) for name in CONTEXTS]
    context = next((size for size in sizes if isinstance(size, int)), 2048)
    denoiser = LogitsModel(logits, int(mask), int(config.vocab_size), context, model.device)
    ends = {eos_token_id} if isinstance(eos_token_id, int) else {*(eos_token_id or ())}
    bare = Defaults(prompt_style="tiny")  # which adds nothing: these prompts are complete
    return Model(type(model).__name__, denoiser, IdsTokenizer(tokenizer), frozenset(ends), bare)


def _settings(
    model: Any, task: str | None, kwargs: Mapping[str, Any], length: int | None
) -> Settings:
    """Settings by name over what the checkpoint recommends; `max_new_tokens` alone means the
    paper's two tokens per step."""
    for name in UNUSED & kwargs.keys():
        if kwargs[name] is not None:
            raise SettingsError(f"{name} is not supported by a search; leave it out")
    overrides = {k: v for k, v in kwargs.items() if k not in UNUSED | HARMLESS}
    if length and "gen_length" not in overrides:
        blocks = -(-length // int(overrides.get("block_length", length)))
        overrides = {"gen_length": length, "steps": max(length // 2, blocks), **overrides}
    defaults = defaults_of(str(getattr(model.config, "_name_or_path", "")))
    return Settings.recommended(defaults, overrides.pop("method", "s3"), task, **overrides)


STUB = '''\
"""Search at inference time for masked diffusion models; the code is in the package s3dlm.

    model.generate(ids, custom_generate=FOLDER, trust_remote_code=True, tokenizer=tokenizer)
"""

from s3dlm.integrations.custom_generate import generate as _generate


def generate(model, **arguments):
    return _generate(model, **arguments)
'''


def export(folder: Path) -> Path:
    """Write the folder that `custom_generate` takes; returns the file with the function."""
    path = folder / "custom_generate" / "generate.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name("requirements.txt").write_text("s3dlm\n", encoding="utf-8")
    path.write_text(STUB, encoding="utf-8")
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m s3dlm.integrations.custom_generate FOLDER")
    print(export(Path(sys.argv[1])))
