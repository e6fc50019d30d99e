"""A model of lm-evaluation-harness, so that its tasks and tables work with a search.

    python -m s3dlm.extras.lm_eval run --model s3dlm --model_args model=tiny --tasks s3dlm_choice

The harness has no plugins; importing this module registers the model. `run`, `ls`, `validate` and all
their options are the harness's own.

Texts come from the engine, batched; likelihoods from the Monte Carlo bound (likelihood.py). Of a
request's options, stop strings, the limit on new tokens and the chat template are applied. Decoding
is set in `--model_args` alone: a task's own `temperature: 0` would switch the search off.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from s3dlm import engine, tasks
from s3dlm.errors import MissingExtraError, S3dlmError, SettingsError
from s3dlm.extras.lm_eval import likelihood
from s3dlm.models.base import Defaults, Model, Tokenizer
from s3dlm.models.folder import defaults_of
from s3dlm.models.registry import load
from s3dlm.settings import Settings
from s3dlm.verifier import as_verifier, for_task, own

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from tqdm import tqdm  # type: ignore[import-untyped]
except ImportError as error:
    raise MissingExtraError("lm-eval", "eval") from error

logger = logging.getLogger("lm_eval.s3dlm")  # the harness shows loggers below its own name

TASK_FILES = Path(__file__).parent / "tasks"
PREFIX = "s3dlm_"  # of our bundled tasks
# Our task for a task of the harness: sets verifier and answer format; others are general text.
KNOWN_TASKS = {
    "gsm8k": "gsm8k", "gsm8k_cot": "gsm8k", "gsm8k_cot_zeroshot": "gsm8k",
    "gsm8k_platinum": "gsm8k", "minerva_math500": "math500", "hendrycks_math500": "math500",
    "arc_challenge_chat": "arc", "aime": "aime", "aime24": "aime", "aime25": "aime",
}  # fmt: skip
QUESTION_FIELDS = ("question", "problem", "query", "input")
LENGTH_OPTIONS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


class RenderedTokenizer(Tokenizer):
    """A tokenizer for prompts to which the chat template was already applied."""

    has_chat_template = False

    def __init__(self, inner: Tokenizer) -> None:
        self.encode, self.decode = inner.encode, inner.decode  # type: ignore[method-assign]

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


@register_model("s3dlm")
class S3dlmLM(TemplateLM):  # type: ignore[misc]
    """`--model s3dlm --model_args model=tiny,method=s3,particles=4,branching=2`."""

    def __init__(
        self,
        model: str | Model = "tiny",
        *,
        task: str | None = None,
        verifier: str | None = None,
        mc_samples: int = likelihood.MASK_SAMPLES,
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
        self.settings = Settings.recommended(defaults, **settings)
        self.children = self.settings.search.size * self.settings.search.children  # per step
        own_file = verifier is not None and own.is_file(verifier)  # the user's command names it
        self.given_task = task
        self.given_verifier = own.from_file(verifier or "") if own_file else verifier
        self.mc_samples, self.check_greedy = int(mc_samples), bool(check_greedy)
        prompts = int(batch_size or 1) if str(batch_size).isdigit() else 1  # else "auto"
        self.max_rows = prompts * self.children if prompts > 1 else int(max_rows)
        if device == "cuda:0" and not torch.cuda.is_available():
            device = "cpu"  # the harness passes cuda:0 by default
        if isinstance(model, str):
            model = load(
                model,
                device=device,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                progress=False,
            )
        self.model = model
        tokenizer, bare = RenderedTokenizer(model.tokenizer), Defaults(prompt_style="tiny")
        self.rendered = dataclasses.replace(model, tokenizer=tokenizer, defaults=bare)
        self._templated = False

    # --- what the harness reads
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
        return max(1, self.max_rows // self.children)

    def tok_encode(self, string: str, **_: Any) -> list[int]:
        return self.model.tokenizer.encode(string)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation with the chat template; without a generation prompt its last turn stays open."""
        self._templated = True
        if self.tokenizer is not None and self.tokenizer.chat_template:
            how = {"continue_final_message": not add_generation_prompt, "tokenize": False}
            return str(
                self.tokenizer.apply_chat_template(
                    chat_history, add_generation_prompt=add_generation_prompt, **how
                )
            )
        roles = [turn["role"] for turn in chat_history]
        if roles not in (["user"], ["user", "assistant"]):
            raise SettingsError(
                f"{self.model.name} has no chat template for the turns {', '.join(roles)}; it "
                "supports one user turn: leave out --system_instruction and use "
                "--fewshot_as_multiturn false"
            )
        ids = self.model.tokenizer.chat(*(turn["content"] for turn in chat_history))
        return self.model.tokenizer.decode(ids)

    # --- texts
    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """One search per request, batched; each result is cached when it is done."""
        if self.tokenizer is not None and self.tokenizer.chat_template and not self._templated:
            logger.warning(
                "%s was trained on conversations; without --apply_chat_template it reads bare text",
                self.model.name,
            )
        texts: list[str] = [""] * len(requests)
        with _progress(len(requests), disable_tqdm) as bar:
            jobs = self._jobs(requests)
            for index, event in engine.run(self.rendered, jobs, max_rows=self.max_rows):
                if isinstance(event, engine.Result):
                    context, options = requests[index].args
                    texts[index] = _until(event.text, options.get("until"))
                    self.cache_hook.add_partial("generate_until", (context, options), texts[index])
                    bar.update(1)
        return texts

    def _jobs(self, requests: Sequence[Any]) -> Iterator[engine.Job]:
        seen: collections.Counter[str] = collections.Counter()
        for request in requests:
            context, options = request.args
            seen[context] += 1
            name, task = request.task_name or "", self.given_task
            if task is None:
                ours = name.startswith(PREFIX)
                task = name.removeprefix(PREFIX) if ours else KNOWN_TASKS.get(name)
            if self.given_verifier is not None:
                verifier = as_verifier(self.given_verifier)
            else:
                weights = tasks.get(task).verifier if task is not None else "general"
                verifier = for_task(weights, self.settings.verifier)
            yield engine.Job(
                question=context,
                task=task,
                settings=_limited(self.settings, options),
                # A task's `repeats` sends the same prompt again for another sample.
                sample_id=f"{context}#{seen[context] - 1}" if seen[context] > 1 else None,
                verifier=verifier,
                judged_for=_question(request, context),  # without its examples
            )

    # --- likelihoods
    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        values = []
        with _progress(len(requests), disable_tqdm) as bar:
            for request, context, text in requests:
                value = self._likelihood(context, text)
                greedy = self.check_greedy and likelihood.is_greedy(self.model, context, text)
                values.append((value, greedy))
                self.cache_hook.add_partial("loglikelihood", request, values[-1])
                bar.update(1)
        return values

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Whole texts, in independent windows of the model's context."""
        values = []
        for request in requests:
            (text,) = request.args
            ids, width = self.model.tokenizer.encode(text), self.max_length
            windows = [ids[first : first + width] for first in range(0, len(ids), width)]
            values.append(sum(self._likelihood([], window) for window in windows))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), values[-1])
        return values

    def _likelihood(self, context: Sequence[int], text: Sequence[int]) -> float:
        samples, seed = self.mc_samples, self.settings.decoding.seed
        return likelihood.log_likelihood(self.model, context, text, samples=samples, seed=seed)


def _question(request: Any, context: str) -> str:
    """The question without examples and template, if the document has it."""
    doc = request.doc if isinstance(request.doc, Mapping) else {}
    texts = [text for field in QUESTION_FIELDS if isinstance(text := doc.get(field), str)]
    return next((text for text in texts if text.strip() and text.strip() in context), context)


def _limited(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """A shorter canvas if the request allows fewer tokens, with as many tokens per step."""
    limit = next(
        (int(options[name]) for name in LENGTH_OPTIONS if options.get(name) is not None), None
    )
    if limit is None or limit >= settings.decoding.gen_length:
        return settings
    block, same_pace = min(settings.decoding.block_length, limit), settings.decoding.steps * limit
    steps = max(-(-same_pace // settings.decoding.gen_length), -(-limit // block))
    sizes = {"gen_length": limit, "block_length": block, "steps": steps}
    return settings.replace(**settings.effective(sizes))


def _until(text: str, stops: str | Sequence[str] | None) -> str:
    stops = [stops] if isinstance(stops, str) else stops or ()
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))]


def _progress(total: int, disabled: bool) -> Any:
    return tqdm(total=total, desc="s3dlm", disable=disabled or total < 2)


def main() -> None:
    import lm_eval.tasks
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    setup_logging()
    command = HarnessCLI()
    arguments = command.parse_args()
    if hasattr(arguments, "include_path"):
        given = [arguments.include_path] if arguments.include_path else []
        arguments.include_path = [str(TASK_FILES), *given]
    requested = getattr(arguments, "tasks", None) or ()
    names = ",".join([requested] if isinstance(requested, str) else map(str, requested)).split(",")
    if all((TASK_FILES / f"{name}.yaml").is_file() for name in names):
        # Reading the harness's thousands of task files takes longer than a small run.
        manager = lm_eval.tasks.TaskManager
        lm_eval.tasks.TaskManager = functools.partial(manager, include_defaults=False)
    try:
        command.execute(arguments)
    except S3dlmError as error:
        print(f"s3dlm: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
