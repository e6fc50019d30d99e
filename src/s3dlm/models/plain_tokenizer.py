"""A model's tokenizer read with `tokenizers` alone, for those that need no more.

Importing transformers takes as long as importing torch, and most tokenizer.json files hold all that it
would make of them. What they do not hold, or what is not known to change nothing, is left to
transformers (`read_plain` returns None): results are the same either way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from s3dlm.models.folder import check_file, read_json

NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")
WITHOUT_EFFECT = {  # entries of tokenizer_config.json that change neither ids nor texts as we use them
    "tokenizer_class", "model_max_length", "clean_up_tokenization_spaces", "padding_side",
    "truncation_side", "add_bos_token", "add_eos_token", "auto_map", "name_or_path",
    "model_input_names", "processor_class", "errors", "backend", "is_local", "use_fast",
    "tokenizer_file", "special_tokens_map_file", "legacy", "trust_remote_code",
}  # fmt: skip
OFF = ("add_prefix_space", "split_special_tokens")  # they may be there, but not be true
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
SPECIAL = dict.fromkeys(FLAGS, False) | {"special": True}  # what a bare name becomes
LARGEST_TEMPLATE = 2**20  # bytes


class PlainTokenizer:
    """What `TextTokenizer` uses of a tokenizer of transformers."""

    def __init__(self, inner: Tokenizer, named: Mapping[str, str], template: str | None) -> None:
        self.inner = self.backend_tokenizer = inner
        self.named, self.chat_template = named, template
        self.eos_token_id, self.sep_token_id, self.mask_token_id = (
            inner.token_to_id(named[name]) if name in named else None
            for name in ("eos_token", "sep_token", "mask_token")
        )

    def get_vocab(self) -> dict[str, int]:
        return self.inner.get_vocab()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self.inner.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], **_: object) -> str:
        """The text, with special tokens and as it stands."""
        return self.inner.decode(ids, skip_special_tokens=False)

    def apply_chat_template(self, messages: list[dict[str, str]], **given: Any) -> str:
        """The text of a conversation."""
        values = {"tools": None, "documents": None, **self.named, **given}
        return _compiled(self.chat_template or "").render(messages=messages, **values)


def read_plain(folder: Path) -> PlainTokenizer | None:
    """The tokenizer of a model folder, unless transformers might make something else of it."""
    if not (folder / "tokenizer.json").is_file():
        return None
    stored = read_json(folder / "tokenizer.json", 2**28)
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    older = [folder / "special_tokens_map.json", folder / "added_tokens.json"]
    if (folder / "additional_chat_templates").exists() or (
        "added_tokens_decoder" not in config and any(file.exists() for file in older)
    ):
        return None
    if stored.get("truncation") or stored.get("padding") or any(config.get(key) for key in OFF):
        return None
    if config.keys() - {
        *NAMED,
        *TOKEN_LISTS,
        *WITHOUT_EFFECT,
        *OFF,
        "added_tokens_decoder",
        "chat_template",
    }:
        return None
    added = {token["content"]: token for token in stored.get("added_tokens", ())}
    named = {name: config[name] for name in NAMED if config.get(name) is not None}
    tokens = [*named.values(), *(token for name in TOKEN_LISTS for token in config.get(name) or ())]
    decoder = config.get("added_tokens_decoder") or {}
    if any(added.get(t["content"], {}).get("id") != int(at) for at, t in decoder.items()):
        return None
    if not all(_is_there(token, added) for token in [*tokens, *decoder.values()]):
        return None
    template = config.get("chat_template")
    if (folder / "chat_template.jinja").is_file():
        check_file(folder / "chat_template.jinja", LARGEST_TEMPLATE)
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if not isinstance(template, str | None) or re.search(r"%-?\s*generation", template or ""):
        return None
    texts = {name: t["content"] if isinstance(t, dict) else t for name, t in named.items()}
    return PlainTokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")), texts, template)


def _is_there(token: Any, added: Mapping[str, Any]) -> bool:
    """Whether tokenizer.json has the very token, so that adding it again would change nothing."""
    wanted = token if isinstance(token, dict) else SPECIAL | {"content": token}
    there = added.get(str(wanted.get("content")), {})
    return all(there.get(flag) == wanted.get(flag, SPECIAL[flag]) for flag in FLAGS)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """The environment that chat templates are written for; templates come from others, so it is a
    sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _json
    environment.globals |= {
        "raise_exception": _refuse, "dict": lambda *given, **n: dict(*given, **n),
        "strftime_now": lambda form: datetime.now().strftime(form),
    }  # fmt: skip
    return environment.from_string(template)
