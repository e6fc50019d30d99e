"""What is refused, and in which words: what was given, what is allowed, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import s3dlm
from s3dlm import answers, tasks
from s3dlm.answers.grading import grade
from s3dlm.errors import S3dlmError
from s3dlm.job import Job, prepare
from s3dlm.models.base import Turn
from s3dlm.search.method import Method
from s3dlm.settings import Settings
from s3dlm.verifier import as_verifier, compose, for_task
from tests.fakes import QUESTION, Judge, fake_model
from tests.fuzz import check_line


def made(**values: Any) -> Settings:
    return Settings(**{"method": "s3", **values})


def ask(prompt: Any = "x", model: Any = None, **how: Any) -> Any:
    return s3dlm.generate(model or fake_model(), prompt, **how)


def fill(text: Any, prompt: str = QUESTION, model: Any = None, **how: Any) -> Any:
    how = {"method": "baseline", **how}
    return s3dlm.infill(model or fake_model(), text, prompt=prompt, **how)


def screened(**how: Any) -> Any:
    how = {"method": "mend", "screen": 8, "verifier": "checker", **how}
    return ask(QUESTION, task="countdown", **how)


def load(name: str, **how: Any) -> Any:
    return tasks.load(tasks.get(name), **how)


def in_blocks(steps: int) -> Any:
    model = fake_model()
    model.denoiser.causal_block = 8
    return fill("a [[4]] b", model=model, gen_length=16, block_length=16, steps=steps)


def judged(value: Any) -> Any:
    return as_verifier(lambda p, t, c: value).score("q", "text")


REFUSED: dict[str, list[tuple[Callable[[], object], list[str]]]] = {
    "settings": [
        (lambda: made(particles=0), ["particles=0", "from 1 to"]),
        (lambda: made(particles=2.5), ["particles=2.5", "whole number"]),
        (lambda: made(particles=True), ["particles=True"]),
        (lambda: made(lam=float("nan")), ["lam=nan"]),
        (lambda: made(lam=-1.0), ["lam=-1.0", "from 0 up"]),
        (lambda: made(lam=10**400), ["bits)", "from 0 up"]),
        (lambda: made(temperature="hot"), ["temperature='hot'"]),
        (lambda: made(steps=1, block_length=32), ["steps=1", "4 blocks", "from 4 to 128"]),
        (lambda: made(steps=200), ["steps=200", "from 2 to 128"]),
        (lambda: made(gen_length=32, block_length=64, steps=16), ["block_length=64 is longer than gen_length=32; leave"]),
        (lambda: made(particels=8), ["did you mean 'particles'"]),
        (lambda: made(method="greedy", temperature=1.0), ["temperature=1.0", "decides it: it is 0.0"]),
        (lambda: made(method="baseline", lam=2.0), ["lam=2.0", "'baseline'", "s3"]),
        (lambda: made(method="s3_paper", lam=2.0), ["lam=2.0 is not a setting of method='s3_paper'"]),
        (lambda: made(policy="low-confidence"), ["did you mean 'low_confidence'"]),
        (lambda: made(resampling="spp"), ["resampling='spp'", "did you mean 'ssp'"]),
        (lambda: made(ess_threshold=1.5), ["ess_threshold=1.5", "from 0 to 1"]),
        (lambda: made(verifier=""), ["verifier=''", "a name"]),
        (lambda: made(method="x" * 900_000), ["..."]),
        (lambda: made(method=3), ["method=3", "a name such as"]),
        (lambda: made(reveal=["x"]), ["reveal=['x']", "one of: schedule"]),
        (lambda: made().replace(reveal=["x"]), ["reveal=['x']"]),
        (lambda: made(method="adaptive_vote", decided_at=1.0), ["decided_at=1.0 is not allowed"]),
        (lambda: made(method="best_of_k", selection="verified"), ["selection='verified' needs scores"]),
        (lambda: made(child_sampling="filled", ess_threshold=0.5), ["exclude each other"]),
        (lambda: made(method="fk_max", child_sampling="filled", ess_threshold=None), ["only a method that branches"]),
        (lambda: Settings.from_json({"particle": 3}), ["did you mean 'particles'"]),
        (lambda: Settings.from_json(["s3"]), ["give a dictionary of settings"]),
        (lambda: Settings("gone.py:Mine"), ["there is no file gone.py; give FILE.py:NAME"]),
    ],
    "a question": [
        (lambda: ask(5), ["prompt=5 is not a text", "as a string"]),
        (lambda: ask([{"role": "user", "content": "hi"}]), ["is not a text", "conversation"]),
        (lambda: ask(""), ["is empty"]),
        (lambda: ask("2 \ud83d 3"), ["'\\ud83d' at position 2", "errors='replace'"]),
        (lambda: prepare(fake_model(), Job("q", earlier=(Turn("user", "\ud800"),))), ["half of a character"]),
        (lambda: ask("x" * 600), ["the prompt has 601 tokens", "at most 512", "to 384 tokens"]),
        (lambda: ask(model=3.5), ["model=3.5 is not a model; give a name"]),
        (lambda: ask(settings={"particles": 3}), ["not a s3dlm.Settings", "as keywords"]),
        (lambda: ask(settings=Settings(), particles=3), ["were both given"]),
        (lambda: ask(method="best_off"), ["did you mean 'best_of_k'"]),
        (lambda: ask(task="countdwn"), ["did you mean 'countdown'"]),
        (lambda: s3dlm.generate_batch(fake_model(), "why?"), ["list of prompts"]),
    ],
    "a text with holes": [
        (lambda: fill("no hole"), ["has no hole", "[[16]]"]),
        (lambda: fill(r"only \[[3]]"), ["has no hole"]),
        (lambda: fill("a [[]] b"), ["is empty", "[[16]]"]),
        (lambda: fill("a [[0]] b"), ["at least 1"]),
        (lambda: fill("a [[2-5]] b"), ["[[2-5]]", "not a number of tokens", r"\[["]),
        (lambda: fill("a [[3 b"), ["no closing ]]"]),
        (lambda: fill("a [[3 [[4]] b"), ["nested"]),
        (lambda: fill("a [[999999999]]"), ["999999999 tokens", "reads at most 512"]),
        (lambda: fill("a [[460]]" + "b" * 100), ["reads at most 512 in all", "and the prompt has"]),
        (lambda: fill(5), ["infill=5 is not a text"]),
        (lambda: fill("[[2]]", "x" * 600), ["at least 2 tokens and the prompt has", "512 in all"]),
        (lambda: fill("a [[2]]", "x <|mdm_mask|> y", "tiny"), ["the prompt contains the model's mask token"]),
        (lambda: fill("a <|mdm_mask|> [[2]]", "x", "tiny"), ["contains the model's mask token"]),
        (lambda: fill("[[2]]", "", task="countdown"), ["give a question, which task='countdown' needs"]),
        (lambda: fill("[[2]]", end_tokens="last"), ["end_tokens='last' changes nothing"]),
        (lambda: in_blocks(16), ["block-causal"]),
        (lambda: in_blocks(1), ["block-causal"]),  # however the settings suit its blocks
    ],
    "a verifier": [
        (lambda: compose({"structure": 0.5}), ["add up to 0.5"]),
        (lambda: compose({"structure": 0.7, "arithmetic": 0.7}), ["add up to 1.4"]),
        (lambda: compose({"structure": 1.5, "arithmetic": -0.5}), ["'arithmetic' is -0.5"]),
        (lambda: compose({"structure": float("nan")}), ["is nan"]),
        (lambda: compose({"structure": True}), ["is True"]),
        (lambda: compose({"structure": "1"}), ["is '1'"]),
        (lambda: compose({"beauty": 1.0}), ["part='beauty' is unknown"]),
        (lambda: compose({}), ["add up to 0"]),
        (lambda: compose({"structure": 1.0}, form="prose"), ["form='prose' is unknown; choose one of"]),
        (lambda: compose({"structure": 1.0}, constraint="chess"), ["'chess' is unknown; choose one of"]),
        (lambda: for_task("gsm8"), ["did you mean 'gsm8k'"]),
        (lambda: for_task("gsm8k", "papr"), ["verifier='papr'"]),
        (lambda: as_verifier("nobody"), ["verifier='nobody'"]),
        (lambda: ask(verifier="cheker"), ["did you mean 'checker'"]),
        (lambda: ask(verifier=3), ["is not a verifier", "a function", "derived from s3dlm.Verifier"]),
        (lambda: as_verifier(type("Foreign", (), {"score": judged})()), ["derived from s3dlm.Verifier"]),
        *[(lambda value=value: judged(value), ["finite number"]) for value in (None, "high", float("nan"), float("inf"), [1])],
    ],
    "partial texts": [
        (lambda: screened(verifier="paper"), ["does not for this task; choose checker or checker_solver"]),
        (lambda: screened(verifier=Judge()), ["score_partial"]),
        (lambda: screened(lam=0.0), ["screen=8 with lam=0 changes nothing"]),
        (lambda: screened(screen=1), ["screen=1 with lam=30 changes nothing"]),
        (lambda: screened(screen=1001), ["screen=1001"]),
        (lambda: screened(method="s3"), ["screen=8 is not a setting of method='s3'"]),
        (lambda: ask(method="vgb", verifier=Judge()), ["verifier 'Judge' reads none"]),
    ],
    "a task": [
        (lambda: tasks.get("gsmk8"), ["did you mean 'gsm8k'"]),
        (lambda: tasks.get("gsm8k").render("?", "d2"), ["choose one of: d1, tiny"]),
        (lambda: load("countdown"), ["countdown_cd3_test.jsonl", "--data DIR"]),
        (lambda: load("countdown", prompt_style="tiny", limit=1000), ["limit=1000 is more than the", "test problems"]),
        (lambda: load("countdown", prompt_style="tiny", split="train"), ["split='train' is unknown; choose one of: test, val"]),
        (lambda: load("gsm8k", split="validation"), ["no split 'validation'"]),
        (lambda: load("choice", limit=0), ["from 1 up"]),
        (lambda: answers.extract("gsm9k", "text"), ["task='gsm9k'"]),
        (lambda: grade("gsm8k", "x", 1, "d2"), ["grading='d2'"]),
        (lambda: grade("countdown", r"\boxed{1+1}", 3), ["Countdown gold"]),
        (lambda: grade("code", "def f(): pass", "42"), ["is no code gold"]),
    ],
    "a method": [
        (lambda: s3dlm.register_method({"branches": True}), ["register_method got", "give a subclass of s3dlm.Method"]),
        (lambda: s3dlm.register_method(type("Mine", (Method,), {"name": "my method"})), ["use letters, digits and _"]),
        (lambda: s3dlm.register_method(type("Mine", (Method,), {"name": "s3"})), ["'s3' exists", "replace=True"]),
    ],
}  # fmt: skip
CASES = [(call, words) for cases in REFUSED.values() for call, words in cases]


@pytest.mark.parametrize(("call", "words"), CASES, ids=[words[0][:40] for _, words in CASES])
def test_what_is_refused_is_named_with_what_is_allowed(
    call: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(S3dlmError) as caught:
        call()
    check_line(str(caught.value), words)
    for word in words:
        assert word in str(caught.value)
