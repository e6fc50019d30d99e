"""Text and ids: a thin wrapper around a fast tokenizer of transformers.

Nothing of a model's own code is needed for this: a tokenizer.json, or the vocab.json and merges.txt
of the Qwen family, contains everything. The chat template is rendered to text and then encoded,
since what `apply_chat_template` returns otherwise changed between transformers 4 and 5.

Importing transformers takes as long as importing torch. So the tokenizer of `tiny` is read with `tokenizers`
alone; its files are known to hold nothing that changes what transformers makes of them.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from s3dlm.answers import grids
from s3dlm.errors import ModelError, PromptError, short_repr
from s3dlm.models.base import Tokenizer, Turn, quoted
from s3dlm.models.folder import BUNDLED, check_file, read_json

STEPS = 3_000_000  # lines of Python that rendering a chat template may take, about a second
LARGEST_TOKENIZER = 256 * 2**20  # bytes of a tokenizer file


class TextTokenizer(Tokenizer):
    """The `Tokenizer` protocol over any that transformers can load."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def has_chat_template(self) -> bool:  # type: ignore[override]
        return bool(self.inner.chat_template)

    @property
    def backend(self) -> Any:
        return getattr(self.inner, "backend_tokenizer", None)

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
        text = quoted(turns)  # for models without a template
        if self.inner.chat_template:
            try:
                text = _bounded(self.inner.chat_template, self.inner.apply_chat_template)(
                    [{"role": turn.role, "content": turn.text} for turn in turns],
                    tokenize=False,
                    add_generation_prompt=True,
                    enable_thinking=False,  # Qwen3's else open a thought that was not trained
                )
                text.encode()
            except Exception as error:  # no system role, strict turns, or a broken template
                roles, why = ", ".join(turn.role for turn in turns), " ".join(str(error).split())
                raise PromptError(
                    f"the model's chat template does not support turns of {roles}: {why[:300]}; ask "
                    "in one user message"
                ) from error
        return self.encode(text) + (self.encode(prefill) if prefill else [])

    def end_ids(self, stated: object, tokens: Iterable[str]) -> frozenset[int]:
        """Ids that end an answer: those config.json states, those of `tokens` that exist, and the
        tokenizer's own end of text, or else its separator."""
        ids: list[Any] = stated if isinstance(stated, list) else [] if stated is None else [stated]
        for value in ids:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ModelError(
                    f"config.json: eos_token_id={short_repr(stated)} is not a token id"
                )
        known = self.inner.get_vocab()
        own = self.inner.eos_token_id
        own = self.inner.sep_token_id if own is None else own
        found = frozenset(ids) | {known[token] for token in tokens if token in known}
        return found if own is None else found | {int(own)}


class GridTokenizer(Tokenizer):
    """The digits of a Sudoku grid of n²×n² cells, then the mask, which is written as a dot, or in a model
    without masks the digits once more, as clues. A puzzle is no prompt: its clues stand on the canvas."""

    inner = None
    has_chat_template = False

    def __init__(self, order: int, *, masks: bool = True) -> None:
        self.order, self.columns = order, order**2
        self.marks = grids.CELL_MARKS[: self.columns] + "."
        self.clue = 0 if masks else self.columns  # between a digit and the same as a clue

    def encode(self, text: str) -> list[int]:
        cells = text.translate(str.maketrans(grids.BLANKS, "...", grids.RULING))
        if wrong := set(cells) - set(self.marks):
            raise PromptError(
                f"a grid of {self.columns}×{self.columns} cannot contain {min(wrong)!r}: it has "
                f"the marks {self.marks[0]} to {self.marks[-2]}, and dots for empty cells"
            )
        return [self.marks.index(mark) + self.clue for mark in cells]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.marks[token % self.clue if self.clue else token] for token in ids)

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return []

    def holes(self, question: str) -> tuple[str, str]:
        puzzle = grids.read_puzzle(question, self.order)
        return puzzle, re.sub("0+", lambda run: f"[[{len(run[0])}]]", puzzle)

    def end_ids(self, stated: object, tokens: Iterable[str]) -> frozenset[int]:
        return frozenset()


@functools.lru_cache(8)  # every prompt of a model is written by the same template
def _check_numbers(template: str) -> None:
    for _, kind, value in ImmutableSandboxedEnvironment().lex(template):
        if value == "**" or (kind in ("integer", "string") and re.search(r"\d{7}", value)):
            raise ValueError("it computes with huge numbers")


def _bounded(template: object, render: Callable[..., str]) -> Callable[..., str]:
    """`render`, which raises if the template loops for long or computes with huge numbers."""
    _check_numbers(str(template))
    steps = itertools.count()

    def count(*_: object) -> Any:
        if next(steps) > STEPS:
            raise ValueError(f"it takes more than {STEPS} steps")
        return count

    def bounded(*turns: Any, **how: Any) -> str:
        before = sys.gettrace()
        sys.settrace(count)  # of this thread alone
        try:
            return render(*turns, **how)
        finally:
            sys.settrace(before)

    return bounded


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> TextTokenizer:
    """The tokenizer of a model folder, from its data files alone unless its code is trusted."""
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json"):
        if (folder / name).exists():
            read_json(folder / name, LARGEST_TOKENIZER)
    for name in ("merges.txt", "chat_template.jinja"):
        if (folder / name).exists():
            check_file(folder / name, LARGEST_TOKENIZER)
    try:
        inner = _load(folder, trust_remote_code)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a broken file raises anything, even a panic in Rust
        line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise ModelError(f"the tokenizer in {folder} cannot be read: {line}") from error
    if inner is None:
        raise ModelError(f"{folder} has no tokenizer.json, nor vocab.json with merges.txt")
    return TextTokenizer(inner)


def _load(folder: Path, trusted: bool) -> Any:
    if folder == BUNDLED["tiny"]:
        return PlainTokenizer(folder)
    import transformers

    if (folder / "tokenizer.json").is_file():
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return transformers.Qwen2TokenizerFast.from_pretrained(folder)
    if (folder / "vocab.txt").is_file():
        return transformers.BertTokenizerFast.from_pretrained(folder)
    if trusted:
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return None


class PlainTokenizer:
    """What `TextTokenizer` uses of a tokenizer of transformers, for the files of `tiny`."""

    sep_token_id = None

    def __init__(self, folder: Path) -> None:
        stated = read_json(folder / "tokenizer_config.json")
        inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.inner = self.backend_tokenizer = inner
        self.chat_template = stated["chat_template"]
        self.eos_token_id = inner.token_to_id(stated["eos_token"])
        self.mask_token_id = inner.token_to_id(stated["mask_token"])

    def get_vocab(self) -> dict[str, int]:
        return self.inner.get_vocab()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self.inner.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], **_: object) -> str:
        """The text, with special tokens and as it stands."""
        return self.inner.decode(ids, skip_special_tokens=False)

    def apply_chat_template(self, messages: list[dict[str, str]], **given: Any) -> str:
        """The text of a conversation."""
        return _compiled(self.chat_template).render(messages=messages, **given)


@functools.lru_cache(1)
def _compiled(template: str) -> Template:
    return ImmutableSandboxedEnvironment().from_string(template)
