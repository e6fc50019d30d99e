"""The gate before hours are spent: ten minutes that tell a wrong prompt, kernel or decoding from a true difference.

`s3dlm reproduce --check` asks four things of a model and machine, and says of each whether it passes, differs or was
not checked: prompts beside transformers' own tokenizer, logits beside the CPU in float32, greedy texts beside recorded ones
of another program, and how many hours the sizes take at the speed that it measures.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm import engine, tasks
from s3dlm.answers.grading import grade
from s3dlm.errors import RecordError, S3dlmError
from s3dlm.evaluation import cost, paper
from s3dlm.evaluation.outputs import read_rows
from s3dlm.evaluation.plan import recommendations
from s3dlm.evaluation.statistics import wilson
from s3dlm.job import Job, prepare
from s3dlm.models.base import Model
from s3dlm.models.folder import BUNDLED, find_folder
from s3dlm.settings import Settings
from s3dlm.tasks import Sample

TASK, PUBLISHED_ACCURACY = "gsm8k", 0.6929  # d1's recorded greedy outputs, 128 tokens
GREEDY: Mapping[str, Any] = {
    "gen_length": 128,
    "steps": 64,
    "block_length": 32,
    "reveal": "schedule",
}
PROMPTS_SHOWN = 3  # prompts
EQUAL = 0.75  # of the texts: batches and kernels flip a few near-ties in bfloat16
CLOSE = 0.05  # mean distance of log-probabilities up to which bfloat16 explains it


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was checked, its verdict (pass, differs or not checked), and what was found."""

    name: str
    verdict: str
    found: str


def checks(
    model: Model, load: Callable[..., Model], samples: Sequence[Sample], recorded: Path | None
) -> Iterator[Check]:
    """Every check, as it is known.

    Args:
        model: On the device that the hours will be spent on.
        load: How it is loaded again, onto the CPU in float32.
        samples: Questions of GSM8K.
        recorded: Outputs of 128 tokens, in any form that `read_rows` takes.
    """
    jobs = [_job(model, sample) for sample in samples]
    yield _guarded("prompts", lambda: _prompts(model, jobs[:PROMPTS_SHOWN]))
    yield _guarded("logits", lambda: _logits(model, load, jobs[0]))
    started = time.perf_counter()
    results = engine.generate_batch(
        model, [s.question for s in samples], task=TASK, settings=jobs[0].settings,
        sample_ids=[s.id for s in samples],
    )  # fmt: skip
    seconds = time.perf_counter() - started
    texts = [result.text for result in results]
    yield _guarded("greedy texts", lambda: _texts(model, samples, texts, recorded))
    speed = sum(result.nfe for result in results) / seconds
    yield Check("speed", "pass", f"{speed:,.1f} forward passes per second; {_hours(model, speed)}")


def _job(model: Model, sample: Sample) -> Job:
    return Job(
        sample.question, TASK, Settings.for_model(model, "greedy", TASK, **GREEDY), sample.id
    )


def _guarded(name: str, check: Callable[[], tuple[str, str]]) -> Check:
    """What cannot be checked here is said, and ends nothing."""
    try:
        return Check(name, *check())
    except (S3dlmError, OSError, ImportError, MemoryError, RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        return Check(name, "not checked", f"{type(error).__name__}: {words}")


def _prompts(model: Model, jobs: Sequence[Job]) -> tuple[str, str]:
    import transformers

    folder = BUNDLED.get(model.name) or find_folder(model.name)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    shown, verdict = [], "pass"
    for job in jobs:
        prompt = model.defaults.prompt(tasks.get(TASK), job.question)
        turns = [{"role": "user", "content": prompt.user}]
        if prompt.system:
            turns.insert(0, {"role": "system", "content": prompt.system})
        text = theirs.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        wanted = theirs(text + prompt.prefill, add_special_tokens=False)["input_ids"]
        made = prepare(model, job).process.prompt.tolist()
        if made != wanted:
            verdict = "differs"
        alike = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(made, wanted, strict=False)
        )
        at = len(list(alike))
        equal = "as transformers has them" if made == wanted else (
            f"{len(wanted)} by transformers, other from number {at} on: {made[at : at + 8]} and {wanted[at : at + 8]}"
        )  # fmt: skip
        whole = text + prompt.prefill
        shown.append(
            f"  {whole[:48]!r} … {whole[-72:]!r}\n  {len(made)} ids, {equal}: {_ends(made)}"
        )
    return verdict, "\n".join([model.defaults.wording, *shown])


def _ends(ids: Sequence[int]) -> str:
    """The first and the last ids of a prompt."""
    first, last = (" ".join(map(str, part)) for part in (ids[:8], ids[-8:]))
    return f"{first} … {last}" if len(ids) > 16 else " ".join(map(str, ids))


def _logits(model: Model, load: Callable[..., Model], job: Job) -> tuple[str, str]:
    import torch

    on_cpu = torch.device(model.denoiser.device).type == "cpu"
    if on_cpu and next(iter(model.denoiser.tensors()))[1].dtype == torch.float32:
        return "not checked", "the model is on the CPU in float32 itself"
    row = [
        *prepare(model, job).process.prompt.tolist(),
        *[model.denoiser.mask_id] * GREEDY["gen_length"],
    ]
    found = []
    for each in (model, load(device="cpu", dtype="float32")):
        network = each.denoiser
        with torch.inference_mode():
            features = network.encode(torch.tensor([row], device=network.device))[0]
            found.append(
                network.head(features[-GREEDY["gen_length"] :]).float().cpu().log_softmax(-1)
            )
    best = found[1].argmax(-1, keepdim=True)
    gap = (found[0].gather(-1, best) - found[1].gather(-1, best)).abs().mean().item()
    same = (found[0].argmax(-1, keepdim=True) == best).float().mean().item()
    words = (
        f"{same:.1%} of the likeliest tokens equal, log-probabilities {gap:.4f} apart in the mean"
    )
    return ("pass" if gap <= CLOSE else "differs"), words


def _texts(
    model: Model, samples: Sequence[Sample], texts: Sequence[str], recorded: Path | None
) -> tuple[str, str]:
    kind = tasks.get(TASK).answer
    right = sum(
        grade(kind, text, one.gold, paper.GRADING, one.question) == 1.0
        for text, one in zip(texts, samples, strict=True)
    )
    share = wilson(right / len(texts), len(texts))
    accuracy = (
        f"accuracy {share.value:.0%} [{share.low:.0%}, {share.high:.0%}] on {len(texts)} questions, "
        f"{PUBLISHED_ACCURACY:.2%} published for LLaDA-8B-Instruct"
    )
    if recorded is None:
        return "not checked", f"{accuracy}; --recorded FILE compares texts"
    known: dict[str, list[str]] = {}  # perhaps of several lengths
    for row in read_rows(recorded, TASK)[0]:
        known.setdefault(row.question.strip(), []).append(_plain(model, row.output))
    pairs = [
        (_plain(model, text), known[one.question.strip()])
        for text, one in zip(texts, samples, strict=True)
        if one.question.strip() in known
    ]
    if not pairs:
        raise RecordError(f"{recorded} has none of these questions")
    other = [(ours, theirs[0]) for ours, theirs in pairs if ours not in theirs]
    words = f"{len(pairs) - len(other)} of {len(pairs)} texts equal; {accuracy}"
    for ours, theirs in other[:1]:
        words += f"; first difference: {ours[:60]!r}, recorded {theirs[:60]!r}"
    return ("pass" if len(other) <= (1 - EQUAL) * len(pairs) else "differs"), words


def _plain(model: Model, text: str) -> str:
    """A text up to its first end token, however that was written."""
    for token in model.end_ids:
        text = text.partition(model.tokenizer.decode([token]) or "\0")[0]
    return text.strip()


def _hours(model: Model, speed: float) -> str:
    names, hours = [n for n in model.defaults.tasks if n != "aime"], []
    for name, size in paper.SIZES.items():
        used = names if size.left_out else list(model.defaults.tasks)
        asked: Any = dict.fromkeys(used)
        plan = paper.reproduction(asked, recommendations(model), range(size.seeds), size)
        passes = cost.estimate(model.name, plan.conditions, size.problems, size.seeds).nfe
        hours.append(f"{name} {cost.in_words(passes / speed)}")
    return f"at most {', '.join(hours)} at this speed"
