"""The seam between any diffusion language model and the rest of the package.

A denoiser is split in two so that no logits are computed that are not needed: `encode` runs the
body on whole rows, `head` turns the features of chosen positions into logits. A model that only
gives logits is a denoiser whose features *are* its logits and whose head is the identity.

`Denoiser` and `Tokenizer` are base classes: what a model must have is abstract, everything else has a
default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from s3dlm.errors import ModelError
from s3dlm.tasks.base import Prompt, Task
from s3dlm.tasks.prompts import Prompts
from s3dlm.verifier.calibration import Calibrations

if TYPE_CHECKING:  # listing models must not wait for torch
    import torch
    from torch import Tensor

    from s3dlm.models.lora import Adapter


EVERY_METHOD = "*"  # a key of `Defaults.settings`


@dataclass(frozen=True, slots=True)
class Noise:
    """How a model of uniform noise is decoded, as its authors do it."""

    entropy_bound: float = 0.1  # of the accepted tokens without the largest, in nats
    stability: int = (
        1  # a block is finished when its likeliest text has not changed for so many steps
    )
    confidence: float = 0.005  # and the mean entropy is below this
    cooling: float = 0.5  # the last step's temperature as a share of the first one's
    canvas: int | None = None  # tokens of every block, however many are asked for


@dataclass(frozen=True, slots=True)
class Past:
    """What rows continue from: keys and values of positions that are not run again."""

    layers: Tensor  # (layers, 2, rows, heads, padded length, head)
    lengths: Tensor  # (rows,) without padding
    starts: Tensor  # (rows,) where the rows continue: behind all of it, or in its middle
    padded: bool = True  # whether any length is below the padded one


class Denoiser:
    """Tokens in, logits out, and the id that stands for "not yet known"."""

    mask_id: int  # −1 without masks
    vocabulary: int  # logits per position
    context: int  # the most tokens a row may have

    diffusion: str = "masked"  # its kind, a name in `search.particles.PROCESSES`
    noise: Noise = Noise()  # how uniform noise is removed
    conditioned: int = 0  # width of what the last prediction tells the next one: `expected`
    reads_prefix: bool = False  # whether it sees nothing behind the open block; it has a `reader`
    device: torch.device | str = "cpu"  # where `encode` and `head` want their tensors
    tokens_at_once: int = 16384  # the largest useful batch, padding included
    causal_block: int | None = None  # blocks of this size, from the row's start, see no later one
    # Whether such blocks count from the prompt's end instead, with all before the open one read causally.
    causal_prefix: bool = False
    shift: bool = False  # a position is predicted by the features of the one before it
    text_vocabulary: int | None = None  # ids from here on are never predicted
    whole: bool = False  # whether every row has as many tokens as the context

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Features of every position: (rows, length) int64 → (rows, length, width).

        `keys` (rows, length) is False where a row is padding, which no position may attend to;
        rows are padded on the right, so positions count from zero in every row. None: no padding.
        """
        raise NotImplementedError

    def encode_some(self, tokens: Tensor, keys: Tensor | None, wanted: Tensor) -> Tensor:
        """As `encode`, with what is `wanted`: flat positions (n,) of the rows, beyond which no features
        are read."""
        return self.encode(tokens, keys)

    def head(self, features: Tensor) -> Tensor:
        """Logits of chosen positions: (n, width) → (n, vocabulary)."""
        raise NotImplementedError

    def head_in_place(self, positions: int) -> Callable[[Tensor], Tensor]:
        """A `head` for at most so many positions that may return the same memory every time."""
        return self.head

    def encode_after(
        self, tokens: Tensor, keys: Tensor | None, past: Any, opening: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Features, not shifted, of rows that continue from cached ones (`Past`), and
        each layer's new keys and values. With a `causal_prefix`, `opening` (rows,) is where among
        these tokens the open block begins; None: with the first of them."""
        raise NotImplementedError

    def reader(self) -> Any:
        """What runs the rows of a search in the place of `encode`, with the members of
        `cache.PrefixCache`; None: nothing does."""
        return None

    def expected(self, weights: Tensor) -> Tensor:
        """What is kept of a prediction to condition the next: (n, vocabulary) probabilities → (n, any)."""
        raise NotImplementedError

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        """Its weights by name, for fingerprints; by default those of the first module in it."""
        for holder in (self, *vars(self).values()):
            if hasattr(holder, "state_dict"):
                return list(holder.state_dict().items())
        return []


class Wrapper(Denoiser):
    """A denoiser that runs another one in its own way, and is like it in everything else, but for the
    `reader`: that would run the other one in its place."""

    def __init__(self, inner: Denoiser) -> None:
        self.inner = inner
        for name in Denoiser.__annotations__:
            setattr(self, name, getattr(inner, name))

    def head(self, features: Tensor) -> Tensor:
        return self.inner.head(features)

    def head_in_place(self, positions: int) -> Callable[[Tensor], Tensor]:
        return self.inner.head_in_place(positions)

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        return self.inner.tensors()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str  # system, user or assistant
    text: str


class Tokenizer:
    """Text to ids and back, and the model's own way of writing a conversation."""

    columns: int | None = None  # of the grid whose cells are the tokens; None: they are a text
    has_chat_template: bool = True  # without one `chat` is the bare text
    backend: Any = None  # the `tokenizers.Tokenizer` behind it, without which it follows no grammar

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens stay visible as their own text."""
        raise NotImplementedError

    def chat(self, user: str, prefill: str = "") -> list[int]:
        """Ids of one user turn and the opened assistant turn, `prefill` being its first words."""
        raise NotImplementedError

    def converse(self, turns: Sequence[Turn], prefill: str = "") -> list[int]:
        """As `chat`, with the turns before the last one, which is the user's; by default all of
        them are quoted in one user turn."""
        return self.chat(quoted(turns), prefill)

    def holes(self, question: str) -> tuple[str, str] | None:
        """A question that is a text with holes itself, such as a puzzle: in its plain form, and as a
        text to infill. None: it is a prompt like any other."""
        return None


def quoted(turns: Sequence[Turn]) -> str:
    """A conversation as one user turn: instructions first, then the question, after a transcript if
    there were other turns before it."""
    instructions = [turn.text for turn in turns if turn.role == "system"]
    spoken = [turn for turn in turns if turn.role != "system"]
    if len(spoken) == 1:
        return "\n\n".join([*instructions, spoken[0].text])
    lines = [f"{turn.role.capitalize()}: {turn.text}" for turn in spoken]
    return "\n\n".join([*instructions, *lines])


@dataclass(frozen=True, slots=True)
class Loading:
    """How `load` wants a checkpoint, once names have become devices, dtypes and adapters."""

    device: torch.device
    dtype: torch.dtype
    mask_id: int | None = None  # for models whose files do not state it
    trusted: bool = False  # whether Python files of its repository may run
    adapter: Adapter | None = None  # what is added to its weights
    block: int | None = None  # overrules the size of its causal blocks; 0: none
    progress: bool = False  # whether a bar is shown while large weights are read


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a model recommends when the user says nothing: how to word prompts, tasks, settings."""

    prompt_style: str = "d1"
    tasks: tuple[str, ...] = ("gsm8k", "math500", "arc", "truthfulqa", "aime")
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By method name, by "task:NAME", by both as in "revise task:NAME", and under "*" for all."""
    prompts: Prompts | None = None  # the user's own, instead of those of the style

    def prompt(self, task: Task, question: str) -> Prompt:
        """How a question of a task is asked."""
        if self.prompts is None:
            return task.render(question, self.prompt_style)
        return self.prompts.render(task.name, question)

    @property
    def wording(self) -> str:
        """What the prompts are called in a report."""
        return self.prompt_style if self.prompts is None else self.prompts.name

    def layers(self, method: str, task: str | None, like: str = "") -> list[Mapping[str, Any]]:
        """The settings recommended for a method, each over those before: those of the method that it is
        like, if there is one, then its own; a task's come last."""
        both = (like, method)
        keys = (EVERY_METHOD, *both, f"task:{task}", *(f"{each} task:{task}" for each in both))
        return [self.settings.get(key, {}) for key in keys]


@dataclass(frozen=True, slots=True)
class Model:
    """A denoiser with its tokenizer: what `load` returns and `generate` takes."""

    name: str
    denoiser: Denoiser
    tokenizer: Tokenizer
    end_ids: frozenset[int]  # tokens that end an answer: end of text, end of turn
    defaults: Defaults = field(default_factory=Defaults)  # what it recommends
    revision: str | None = None  # the hub's commit, if it came from there
    calibrations: Calibrations = field(default_factory=Calibrations)  # for `Result.p_correct`

    def __post_init__(self) -> None:
        for part, base in ((self.denoiser, Denoiser), (self.tokenizer, Tokenizer)):
            if not isinstance(part, base):
                raise ModelError(
                    f"{type(part).__name__} cannot be the {base.__name__.lower()} of a model; make it "
                    f"a subclass of s3dlm.models.base.{base.__name__}"
                )

    def __repr__(self) -> str:
        size = sum(tensor.numel() for _, tensor in self.denoiser.tensors())
        parameters = f", {size:,} parameters" if size else ""
        return (
            f"Model({self.name!r}, {type(self.denoiser).__name__}{parameters}, "
            f"vocabulary {self.denoiser.vocabulary:,}, context {self.denoiser.context:,})"
        )

    def _repr_html_(self) -> str:
        tasks = ", ".join(self.defaults.tasks)
        return f"<p><b>{escape(self.name)}</b> {escape(repr(self))}<br>tasks: {escape(tasks)}</p>"
