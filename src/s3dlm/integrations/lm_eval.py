"""Our models as a model of lm-evaluation-harness, so that its tasks and tables work with a search.

Texts come from the engine, batched; likelihoods from the Monte Carlo bound (likelihood.py). Of a
request's options, stop strings, the limit on new tokens and the chat template are applied. Decoding
is set in `--model_args` alone: a task's own `temperature: 0` would switch the search off.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from s3dlm import engine, tasks
from s3dlm.errors import MissingExtraError, SettingsError, unknown_name
from s3dlm.integrations import likelihood
from s3dlm.models.base import Model, Tokenizer
from s3dlm.models.defaults import Defaults, defaults_of
from s3dlm.settings import Settings, declarations, only_used
from s3dlm.verifier import Score, Verifier, WrappedVerifier, as_verifier, for_task

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
except ImportError as error:
    raise MissingExtraError("lm-eval", "eval") from error

log = logging.getLogger("lm_eval.s3dlm")  # the harness shows loggers below its own name

# Our task for a task of the harness: sets verifier and answer format; others are general text.
KNOWN_TASKS = {
    "gsm8k": "gsm8k", "gsm8k_cot": "gsm8k", "gsm8k_cot_zeroshot": "gsm8k",
    "gsm8k_platinum": "gsm8k", "minerva_math500": "math500", "hendrycks_math500": "math500",
    "arc_challenge_chat": "arc", "aime24": "aime24",
}  # fmt: skip
OWN = "s3dlm_"  # prefix of our bundled tasks
QUESTION_FIELDS = ("question", "problem", "query", "input")
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


@dataclasses.dataclass(frozen=True, slots=True)
class RenderedTokenizer(Tokenizer):
    """A tokenizer for prompts to which the chat template was already applied."""

    inner: Any

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.inner.encode(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.inner.decode(ids)
        return text

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


class AskedVerifier(WrappedVerifier):
    """Gives a verifier the question alone instead of the rendered prompt with its examples."""

    def __init__(self, inner: Verifier, question: str) -> None:
        super().__init__(inner)
        self.question = question

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        return self.inner.score_batch([self.question] * len(prompts), texts, confidences)


@register_model("s3dlm")
class S3dlmLM(TemplateLM):  # type: ignore[misc]
    """`--model s3dlm --model_args model=tiny,method=s3,particles=4,branching=2`."""

    def __init__(
        self,
        model: str | Model = "tiny",
        *,
        task: str | None = None,
        verifier: str | None = None,
        mc_samples: int = likelihood.SAMPLES,
        check_greedy: bool = True,
        max_rows: int = 64,
        dtype: str | None = None,
        trust_remote_code: bool = False,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        defaults = defaults_of(model) if isinstance(model, str) else model.defaults
        self.settings = _settings(defaults, settings)
        self.given_task, self.given_verifier = task, verifier
        self.mc_samples, self.check_greedy = int(mc_samples), bool(check_greedy)
        self.max_rows = _max_rows(batch_size, self.settings, int(max_rows))
        self.model = _load(model, _device(device), dtype, trust_remote_code)
        rendered = RenderedTokenizer(self.model.tokenizer)
        self.rendered = dataclasses.replace(
            self.model, tokenizer=rendered, defaults=Defaults(prompt_style="tiny")
        )
        self._templated = False

    # Properties that the harness reads

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers, if there is one."""
        return getattr(self.model.tokenizer, "inner", None)

    @property
    def tokenizer_name(self) -> str:
        return self.model.name.replace("/", "__")

    @property
    def eot_token_id(self) -> int:
        return min(self.model.end_ids)

    @property
    def max_length(self) -> int:
        return self.model.denoiser.context

    @property
    def batch_size(self) -> int:
        return max(1, self.max_rows // _children(self.settings))

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        return self.model.tokenizer.encode(string)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template itself, for the harness's records."""
        if not chat_template or self.tokenizer is None:
            return ""
        return str(self.tokenizer.chat_template or "")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation with the chat template; without a generation prompt its last turn stays open."""
        self._templated = True
        if self.tokenizer is not None and self.tokenizer.chat_template:
            text: str = self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
            return text
        return _plain_chat(self.model, chat_history)

    # Texts

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """One search per request, batched; each result is cached when it is done."""
        self._warn_if_bare()
        found: list[str] = [""] * len(requests)
        bar = _progress(len(requests), disable_tqdm)
        for index, event in engine.run(self.rendered, self._jobs(requests), max_rows=self.max_rows):
            if not isinstance(event, engine.Result):
                continue
            context, options = requests[index].args
            found[index] = _until(event.text, options.get("until"))
            self.cache_hook.add_partial("generate_until", (context, options), found[index])
            bar.update(1)
        bar.close()
        return found

    def _jobs(self, requests: Sequence[Any]) -> Iterator[engine.Job]:
        seen: collections.Counter[str] = collections.Counter()
        for request in requests:
            context, options = request.args
            repeat = seen[context]
            seen[context] += 1
            task = self._task(request.task_name)
            yield engine.Job(
                question=context,
                task=task,
                settings=_limited(self.settings, options),
                # A task's `repeats` sends the same prompt again for another sample.
                sample_id=f"{context}#{repeat}" if repeat else None,
                verifier=AskedVerifier(self._verifier(task), _question(request, context)),
            )

    def _task(self, name: str | None) -> str | None:
        if self.given_task is not None:
            return self.given_task
        name = name or ""
        return name.removeprefix(OWN) if name.startswith(OWN) else KNOWN_TASKS.get(name)

    def _verifier(self, task: str | None) -> Verifier:
        if self.given_verifier is not None:
            return as_verifier(self.given_verifier)
        weights = tasks.get(task).verifier if task is not None else "general"
        return for_task(weights, self.settings.method.verifier)

    def _warn_if_bare(self) -> None:
        if self.tokenizer is not None and self.tokenizer.chat_template and not self._templated:
            log.warning(
                "%s was trained on conversations; without --apply_chat_template it reads bare text",
                self.model.name,
            )

    # Likelihoods

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        found = []
        bar = _progress(len(requests), disable_tqdm)
        for asked, context, continuation in requests:
            value = self._likelihood(context, continuation)
            greedy = self.check_greedy and likelihood.is_greedy(self.model, context, continuation)
            found.append((value, greedy))
            self.cache_hook.add_partial("loglikelihood", asked, found[-1])
            bar.update(1)
        bar.close()
        return found

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Whole texts, in independent windows of the model's context."""
        found = []
        for request in requests:
            (text,) = request.args
            ids, width = self.model.tokenizer.encode(text), self.max_length
            windows = [ids[first : first + width] for first in range(0, len(ids), width)]
            found.append(sum(self._likelihood([], window) for window in windows))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), found[-1])
        return found

    def _likelihood(self, context: Sequence[int], continuation: Sequence[int]) -> float:
        return likelihood.log_likelihood(
            self.model, context, continuation, samples=self.mc_samples, seed=self.settings.seed
        )


def _settings(defaults: Defaults, given: Mapping[str, Any]) -> Settings:
    fields = {"method", *declarations()}
    others = {"model", "task", "verifier", "mc_samples", "check_greedy", "max_rows", "dtype"}
    for key in given:
        if key not in fields:
            raise SettingsError(unknown_name("model_args", key, fields | others))
    return Settings.recommended(defaults, **given)


def _max_rows(batch_size: int | str | None, settings: Settings, default: int) -> int:
    """A batch size above 1 counts prompts; results do not depend on it."""
    text = str(batch_size or "")
    prompts = int(text) if text.isdigit() else 1
    return prompts * _children(settings) if prompts > 1 else default


def _children(settings: Settings) -> int:
    """Canvases per step."""
    return settings.method.size * settings.method.children


def _device(name: str | None) -> str | None:
    """The harness passes cuda:0 by default; a machine without one uses its CPU."""
    import torch

    if name == "cuda:0" and not torch.cuda.is_available():
        return "cpu"
    return name


def _load(model: str | Model, device: str | None, dtype: str | None, trusted: bool) -> Model:
    from s3dlm.models.registry import load

    if isinstance(model, Model):
        return model
    return load(model, device=device, dtype=dtype, trust_remote_code=trusted, progress=False)


def _plain_chat(model: Model, history: list[dict[str, str]]) -> str:
    """For tokenizers without a template: one user turn and the start of the assistant's."""
    user, *rest = history
    if user["role"] != "user" or len(rest) > 1 or any(one["role"] != "assistant" for one in rest):
        raise SettingsError(
            f"{model.name} has no chat template for the turns "
            f"{', '.join(one['role'] for one in history)}; it supports one user turn: leave out "
            "--system_instruction and use --fewshot_as_multiturn false"
        )
    prefill = rest[0]["content"] if rest else ""
    return model.tokenizer.decode(model.tokenizer.chat(user["content"], prefill))


def _question(request: Any, context: str) -> str:
    """The question without examples and template, if the document has it."""
    doc = request.doc if isinstance(request.doc, Mapping) else {}
    for field in QUESTION_FIELDS:
        text = doc.get(field)
        if isinstance(text, str) and text.strip() and text.strip() in context:
            return text
    return context


def _limited(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """A shorter canvas if the request allows fewer tokens, with as many tokens per step."""
    limit = next((int(options[name]) for name in LIMITS if options.get(name) is not None), None)
    if limit is None or limit >= settings.gen_length:
        return settings
    block = min(settings.block_length, limit)
    pace = -(-settings.steps * limit // settings.gen_length)
    steps = max(pace, -(-limit // block))
    sizes = {"gen_length": limit, "block_length": block, "steps": steps}
    return settings.replace(**only_used(settings.method, sizes, reveal=settings.reveal))


def _until(text: str, stops: str | Sequence[str] | None) -> str:
    """The text before the first stop string."""
    stops = [stops] if isinstance(stops, str) else stops or ()
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))]


def _progress(total: int, disabled: bool) -> Any:
    from tqdm import tqdm  # type: ignore[import-untyped]

    return tqdm(total=total, desc="s3dlm", disable=disabled or total < 2)
