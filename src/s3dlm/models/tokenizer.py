"""Text and ids: a thin wrapper around a fast tokenizer of transformers.

Nothing of a model's own code is needed for this: a tokenizer.json, or the vocab.json and merges.txt
of the Qwen family, says everything. The chat template is rendered to text and then encoded, since
what `apply_chat_template` returns otherwise changed between transformers 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from s3dlm.errors import ModelError, PromptError
from s3dlm.models.base import Turn, quoted


class TextTokenizer:
    """The `Tokenizer` protocol over any tokenizer transformers can load."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.inner.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.inner.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.converse([Turn("user", user)], prefill)

    def converse(self, turns: Sequence[Turn], prefill: str = "") -> list[int]:
        return self.encode(self._opened(turns)) + (self.encode(prefill) if prefill else [])

    def _opened(self, turns: Sequence[Turn]) -> str:
        """The conversation up to the assistant's first word; without a template, the bare text."""
        if not self.inner.chat_template:
            return quoted(turns)
        from jinja2 import TemplateError

        messages = [{"role": one.role, "content": one.text} for one in turns]
        try:
            text: str = self.inner.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:  # some models have no system role, or want strict turns
            roles = ", ".join(one.role for one in turns)
            raise PromptError(
                f"the model's chat template cannot write turns of {roles}: {error}; ask in one "
                "user message"
            ) from error
        return text

    def end_ids(self, stated: int | list[int] | None, tokens: Iterable[str]) -> frozenset[int]:
        """Ids that end an answer: those config.json states, and those of `tokens` that exist."""
        ids = [stated] if isinstance(stated, int) else list(stated or ())
        known = self.inner.get_vocab()
        return frozenset(ids) | {known[token] for token in tokens if token in known}


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> TextTokenizer:
    """The tokenizer of a model folder, from its data files alone unless its code is trusted."""
    import transformers

    try:
        if (folder / "tokenizer.json").is_file():
            return TextTokenizer(transformers.PreTrainedTokenizerFast.from_pretrained(folder))
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return TextTokenizer(transformers.Qwen2TokenizerFast.from_pretrained(folder))
        if trust_remote_code:
            return TextTokenizer(
                transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
            )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"the tokenizer in {folder} cannot be read: {error}") from error
    raise ModelError(f"{folder} has no tokenizer.json, nor vocab.json with merges.txt")
