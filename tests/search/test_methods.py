"""What holds for every method, whatever it does: one test drives all that are registered."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.engine import Batcher, Job
from s3dlm.errors import SettingsError
from s3dlm.search.methods import METHODS
from s3dlm.search.particles import Predict
from s3dlm.search.smc import S3
from s3dlm.settings import Settings, has, schema
from tests.fakes import (
    ADAPTIVE,
    MASK,
    QUESTION,
    FakeDenoiser,
    events_of,
    fake_model,
    plain,
    search,
    small,
)

QUESTIONS = [QUESTION, "Target: 22 Numbers: 6, 4, 12", "Target: 42 Numbers: 12, 4, 6 please"]
PACES = [
    pytest.param(method, pace, id=f"{method}-{'adaptive' if pace else 'schedule'}")
    for method in METHODS
    for pace in ({}, ADAPTIVE)
    if not pace or has(METHODS.find(method), "reveal")
]
# Other ways to make children, which descend from the particles that they name, too.
WAYS = [("s3", {"child_sampling": "filled"}), ("mend", {"screen": 8, "verifier": "checker"})]


@pytest.mark.parametrize(("method", "options"), [*PACES, *WAYS])
def test_every_method_keeps_the_contract(method: str, options: dict[str, Any]) -> None:
    settings = small(method, **options)
    steps, result = search(settings, fake_model(push=7.0, noise=4.0))
    assert result.nfe <= result.nfe_logical <= settings.most_nfe
    found, length = settings.search, settings.decoding.gen_length
    before = np.full((100, length), MASK)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        assert step.index < step.total
        assert step.tokens.shape == step.clean.shape == (len(step.parent), length)
        assert step.parent.max() < len(before)
        assert step.survivor.max() < len(step.tokens)
        parents = before[step.parent]
        assert not found.final or (step.tokens == parents)[parents != MASK].all()
        before = step.tokens[step.survivor]
        assert step.weight.sum() == pytest.approx(1)
        assert 1 - 1e-9 <= step.ess <= len(step.tokens) + 1e-9
        assert math.isfinite(step.log_normaliser)
        if following is None or (following.index == 0 and method != "hex"):
            assert not (step.tokens[step.survivor] == MASK).any()
        elif following.index:
            assert following.index == step.index + 1
    if found.selection != "temporal":  # it may choose a text that was only looked at
        assert fake_model().tokenizer.decode(result.token_ids) == result.text
        assert all(-50 < value <= 0 for value in result.token_logprobs)
        assert len(result.token_ids) == len(result.token_logprobs)
        assert any(result.token_logprobs)
        assert found.selection == "best_seen" or result.text in [s.text for s in result.survivors]
    assert QUESTION in result.prompt
    scored = [not np.isnan(step.score).any() for step in steps]
    assert scored[-1] == (found.verified != "never")
    if found.verified != "every step":
        assert not any(scored[:-1]) or found.repeats


SCHEDULED = [
    method
    for method, row in ((name, METHODS.find(name)) for name in METHODS)
    if row.cost in ("1 + T·N·b", "1 + T") and row.__module__.startswith("s3dlm.search.")
]


@pytest.mark.parametrize("method", SCHEDULED)
def test_a_search_under_a_schedule_costs_what_algorithm_1_says(method: str) -> None:
    settings = small(method)
    steps, result = search(settings)
    most = settings.search.size * settings.search.children
    assert settings.most_nfe == 1 + 16 * most == result.nfe_logical
    assert len(result.survivors) == settings.search.size
    assert [step.index for step in steps] == list(range(16))
    masked = [int((step.tokens == MASK).sum(axis=1).max()) for step in steps[-16:]]
    assert masked == sorted(masked, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_says_what_it_costs_at_most(method: str) -> None:
    settings = small(method)
    formula = Settings(method).search.cost.replace("·", "*").replace("²", "**2")
    sizes = {"T": settings.decoding.steps, "N": getattr(settings.search, "particles", 1)}
    sizes |= {
        "b": getattr(settings.search, "branching", 1),
        "B": 2,
        "L": settings.decoding.gen_length,
    }
    sizes["rounds"] = getattr(settings.search, "rounds", 0)
    assert eval(formula, {}, sizes) == settings.most_nfe
    passes = settings.search.passes(settings.decoding.steps, settings.decoding)
    assert settings.replace(guidance=1.0).most_nfe == settings.most_nfe + passes


@pytest.mark.parametrize("method", [name for name in METHODS if name != "vgb"])
def test_a_method_says_how_many_texts_it_has_verified_at_most(method: str) -> None:
    """By the model as judge each is a pass; what reads partial texts cannot be the model."""
    settings, seen = small(method), list[str]()

    def judge(question: str, text: str, confidence: float | None) -> float:
        seen.append(text)
        return 0.5

    search(settings, verifier=judge)
    most = settings.search.texts(settings.decoding.steps)
    assert len(seen) <= most
    assert bool(seen) == bool(most) == (settings.search.verified != "never")
    if most:
        judged = settings.replace(verifier="self").most_nfe
        assert judged == settings.replace(verifier="paper").most_nfe + most


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_result_and_another_seed_another(method: str) -> None:
    def outcome(seed: int) -> s3dlm.Result:
        return search(small(method, seed=seed))[1]

    first = outcome(0)
    assert plain(outcome(0)) == plain(first)
    if method not in ("greedy", "unmaskfork"):
        assert any(outcome(n).survivors[0].nll != first.survivors[0].nll for n in range(1, 6))


@pytest.mark.parametrize(("method", "pace"), PACES)
def test_batched_is_unbatched_and_watched_is_unwatched(method: str, pace: dict[str, Any]) -> None:
    settings = small(method, **pace)
    batched = s3dlm.generate_batch(
        fake_model(), QUESTIONS, task="countdown", settings=settings, max_rows=1000
    )
    alone = [search(settings, question=question)[1] for question in QUESTIONS]
    assert [plain(one) for one in batched] == [plain(one) for one in alone]


def test_batched_prompts_share_forward_passes() -> None:
    model, settings = fake_model(), small("s3")
    s3dlm.generate_batch(model, QUESTIONS, task="countdown", settings=settings, max_rows=1000)
    assert model.denoiser.calls <= 16 + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "resampled"),
    [
        ({}, range(16)),
        ({"ess_threshold": 0.0}, []),
        ({"cadence": "block"}, [7, 15]),
        ({"cadence": "block", "ess_threshold": 0.0}, []),
    ],
    ids=str,
)
def test_a_step_resamples_where_it_branches_and_below_its_threshold(
    options: dict[str, Any], resampled: Sequence[int]
) -> None:
    steps, result = search(small("s3", **options))
    assert len(result.survivors) == 4
    assert [step.index for step in steps if step.resampled] == list(resampled)


def steps_of(sampling: str, **options: Any) -> list[s3dlm.Step]:
    return search(small("s3", child_sampling=sampling, **options))[0]


def test_filled_children_never_repeat_each_other_while_they_are_open() -> None:
    for step in steps_of("filled"):
        open_ = step.tokens[(step.tokens == MASK).any(axis=1)]
        assert len({row.tobytes() for row in open_}) == len(open_) == step.nfe


def test_filled_uses_more_of_the_budget_than_distinct_and_distinct_more_than_none() -> None:
    """At a low temperature most parents have nothing new to offer."""
    nfe = {
        sampling: sum(
            step.nfe for seed in range(4) for step in steps_of(sampling, seed=seed, temperature=0.3)
        )
        for sampling in ("independent", "distinct", "filled")
    }
    assert nfe["independent"] < nfe["distinct"] <= nfe["filled"]


def test_a_finished_answer_is_never_forwarded_again() -> None:
    texts = ["<answer>6 * 4</answer>"]
    settings = Settings("best_of_k", gen_length=96, steps=96, block_length=32)
    steps, result = search(settings, fake_model(texts))
    assert sum(step.nfe for step in steps[32:]) == 0  # the first block holds the whole answer
    assert {one.text for one in result.survivors} == {texts[0]}


def test_a_removed_job_leaves_the_batch_and_changes_nobody() -> None:
    settings, batcher = small("s3"), Batcher(fake_model())
    keys = [batcher.add(Job(question, "countdown", settings)) for question in QUESTIONS]
    batcher.step()
    batcher.remove(keys[1])
    results = {}
    while batcher.running:
        results |= {key: event for key, event in batcher.step() if isinstance(event, s3dlm.Result)}
    assert sorted(results) == [keys[0], keys[2]]
    alone = s3dlm.generate(fake_model(), QUESTIONS[2], task="countdown", settings=settings)
    assert plain(results[keys[2]]) == plain(alone)


def test_the_mask_is_never_produced_even_by_a_model_that_wants_to() -> None:
    class Eager(FakeDenoiser):
        def head(self, features):  # type: ignore[no-untyped-def]
            logits = features.clone()
            logits[:, self.mask_id] = 50.0
            return logits

    model = dataclasses.replace(fake_model(), denoiser=Eager(["6 * 4"]))
    *steps, _ = events_of(model, QUESTION, settings=small("s3"))
    assert not (steps[-1].tokens == MASK).any()


# --- settings

VALUES: dict[str, list[object]] = {
    "particles": [7], "branching": [5], "lam": [60.0], "verifier": ["checker", "paper"],
    "look_aheads": [1, 9], "ess_threshold": [0.1, 0.95], "rounds": [0, 3],
    "budget": [9, 3],  # one answer takes six passes here
    "remask_fraction": [0.1], "restart_fraction": [1.0], "temperature": [3.0], "gen_length": [30],
    "steps": [12], "block_length": [24], "reveal_threshold": [0.2], "top_k": [2], "top_p": [0.5],
    "position_temperature": [1.0], "guidance": [1.0], "seed": [1], "adds_up": [False],
    **{name: rules["enum"] for name, rules in schema().items() if "enum" in rules},
}  # fmt: skip
# What these change is shown elsewhere: it takes canvases that come back, a satisfied verifier, or a vote that is decided.
ELSEWHERE = {"memo", "stop_when", "decided_at", "method"}
BESIDE: dict[str, dict[str, Any]] = {
    "reveal_threshold": {"reveal": "threshold"},
    "remask_fraction": {"remask": "random"},
    "look_aheads": {"verifier": "paper"},
    "resampling": {"ess_threshold": 1.0},
}
TEXTS = ("6+4=11. <answer>6+4<", "6*4=25. <answer>6*4<", "12+4=15 <answer>12-4<")
# Two blocks, so that a block's end is not the end; texts short enough for many runs.
SHORT = {"gen_length": 24, "steps": 6, "block_length": 12, "temperature": 0.9, "lam": 8.0}
NO_CHANCE = {("unmaskfork", "seed"), ("unmaskfork", "selection"), ("vgb", "verifier")}
NO_CHANCE |= {("revise", "look_aheads"), ("restarts", "look_aheads")}  # test_look_aheads.py


def outcome(method: str, seed: int, given: dict[str, Any]) -> dict[str, object]:
    model = fake_model(TEXTS, noise=2.0, push=6.5)
    settings = small(method, SHORT, **{"seed": seed, **given})
    result = s3dlm.generate(model, QUESTION, task="countdown", settings=settings)
    return {name: getattr(result, name) for name in ("text", "survivors", "nfe", "stopped")}


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("greedy", "mend")])
def test_every_setting_of_a_method_changes_what_it_does(method: str) -> None:
    row = METHODS.find(method)
    for name in schema().keys() - ELSEWHERE:
        if not has(row, name) or (method, name) in NO_CHANCE:
            continue
        beside = {n: v for n, v in BESIDE.get(name, {}).items() if has(row, n)}
        assert any(
            outcome(method, seed, {**beside, name: value}) != outcome(method, seed, beside)
            for seed in range(40)  # most differ on the first
            for value in VALUES[name]
            if allowed(method, name, value)
        ), (method, name)


def allowed(method: str, name: str, value: object) -> bool:
    try:
        small(method, SHORT, **{name: value})
    except SettingsError:
        return False
    return True


@pytest.mark.parametrize("reveal", ["schedule", "threshold"])
def test_a_potential_of_ones_own_knows_how_much_of_the_search_is_done(reveal: str) -> None:
    told: list[tuple[float, bool]] = []

    class Late(S3):
        """Listens to the verifier late."""

        name = "late"

        def potential(self, children, looked):  # type: ignore[no-untyped-def]
            told.append((children.done, children.last))
            return self.lam * children.done * looked.score

    steps = {"steps": 8} if reveal == "schedule" else {}
    search(small(Late, gen_length=32, block_length=32, reveal=reveal, **steps))  # type: ignore[arg-type]
    done = [share for share, _ in told]
    assert done == sorted(done)
    assert 0 < done[0] < 1
    assert [share == 1.0 for share in done] == [last for _, last in told]
    assert reveal != "schedule" or done == [step / 8 for step in range(1, 9)]


def test_a_greedy_answer_passes_three_coroutines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt, the method's search and the forward pass; nothing wraps anything else."""
    depths: list[list[str]] = []
    waits = Predict.__await__

    def counted(request: Predict) -> Any:
        frame: Any = sys._getframe(1)
        found = []
        while frame is not None:
            if frame.f_code.co_flags & inspect.CO_COROUTINE:
                found.append(frame.f_code.co_name)
            frame = frame.f_back
        depths.append(found)
        return waits(request)

    monkeypatch.setattr(Predict, "__await__", counted)
    search(small("greedy"))
    assert depths
    assert all(found[-1] == "attempt" and len(found) <= 4 for found in depths)
    assert sum(len(found) > 3 for found in depths) == 1  # the first look is asked for by `begin`
