"""One test drives every row of the method table; equalities that must hold whatever the method."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import s3dlm
from s3dlm.engine import Batcher, Job
from s3dlm.job import prepare
from s3dlm.search.methods import METHODS
from s3dlm.search.particles import Canvas
from s3dlm.search.remask import positions
from s3dlm.search.resample import RESAMPLERS
from s3dlm.settings import Settings, only_used
from tests.fakes import COUNTDOWN, FakeDenoiser, events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 32, "temperature": 1.0}
OWN_LOOP = [
    name for name, row in METHODS.items() if row.ensemble not in ("none", "block_lengths", "sweeps")
]
QUESTIONS = [QUESTION, "Target: 22 Numbers: 6, 4, 12", "Target: 42 Numbers: 12, 4, 6 please"]


def one_round(method: str) -> dict[str, int]:
    return {"rounds": 0} if Settings(method).rounds else {}


def small(method: str, **options: object) -> Settings:
    """Settings for a quick run, without what the method does not use; a walk takes many moves."""
    options = {"gen_length": 10, **options} if method == "vgb" else options
    return Settings(method, **{**only_used(method, {**SMALL, **options}, SMALL), **options})


def plain(result: s3dlm.Result) -> dict[str, object]:
    """A result without its times."""
    data = dataclasses.asdict(result)
    del data["seconds"], data["timings"]
    return data


@pytest.mark.parametrize("method", [name for name in METHODS if name not in OWN_LOOP])
def test_every_method_keeps_the_contract(method: str) -> None:
    """Later rounds, which begin anew on what was hidden, have a test of their own."""
    model, settings = fake_model(), small(method, **one_round(method))
    plan = settings
    events = list(events_of(model, QUESTION, task="countdown", settings=settings))
    *steps, result = events
    assert isinstance(result, s3dlm.Result)
    searches = 4 if method == "hex" else plan.sweeps  # blocks of 4, 8, 16, 32
    assert [step.index for step in steps] == list(range(settings.steps)) * searches
    most = plan.size * plan.children
    share = 4 if method == "hex" else 1
    previous = plan.size
    for step in steps:
        children = len(step.tokens)
        previous = plan.size if step.index == 0 else previous
        assert children <= most
        assert step.tokens.shape == step.clean.shape == (children, settings.gen_length)
        assert step.survivor.size * share == plan.size
        assert step.parent.max() < previous
        previous = step.survivor.size
        assert step.weight.sum() == pytest.approx(1)
        assert 1 - 1e-9 <= step.ess <= children + 1e-9
        assert 1 <= step.unique_ancestors <= plan.size
        assert math.isfinite(step.log_normaliser)
        assert 0 <= step.nfe <= children
    masked = [int((step.tokens == 256).sum(axis=1).max()) for step in steps[-settings.steps :]]
    assert masked == sorted(masked, reverse=True)
    assert masked[-1] == 0
    assert len(result.survivors) == plan.size
    if plan.selection not in ("best_seen", "temporal"):  # these choose among other texts as well
        assert result.text in [one.text for one in result.survivors]
    assert result.nfe == model.denoiser.rows_seen  # type: ignore[attr-defined]
    starts = result.nfe - sum(step.nfe for step in steps)
    # searches that begin alike share their first canvas
    assert 1 <= starts <= searches
    assert starts == sum(step.start_nfe for step in steps)
    assert result.nfe <= result.nfe_logical <= settings.most_nfe
    assert settings.most_nfe == searches + plan.sweeps * settings.steps * most
    assert result.nfe_logical == settings.most_nfe
    scored = [not np.isnan(step.score).any() for step in steps]
    last = [step.index == settings.steps - 1 for step in steps]
    expected = {
        "every step": [True] * len(steps),
        "at the end": last,
        "never": [False] * len(steps),
    }
    assert scored == expected[plan.row.scored]


@pytest.mark.parametrize("method", OWN_LOOP)
@pytest.mark.parametrize("reveal", ["schedule", "threshold"])
def test_a_method_with_a_loop_of_its_own_keeps_the_contract(method: str, reveal: str) -> None:
    if reveal == "threshold" and "reveal" in METHODS[method].fixed:
        return
    for seed in range(3):
        model = fake_model(noise=4.0, context=1024)
        settings = small(method, seed=seed, **({} if reveal == "schedule" else {"reveal": reveal}))
        *steps, result = events_of(model, QUESTION, task="countdown", settings=settings)
        assert isinstance(result, s3dlm.Result)
        assert [step.index for step in steps] == list(range(len(steps)))
        previous = settings.size
        for step in steps:
            assert step.index < step.total
            assert step.tokens.shape == step.clean.shape == (len(step.parent), settings.gen_length)
            assert step.parent.max() < previous
            assert step.survivor.max() < len(step.tokens)
            previous = step.survivor.size
        assert not (steps[-1].tokens == 256).any()
        assert result.text in [one.text for one in result.survivors]
        assert result.nfe == model.denoiser.rows_seen  # type: ignore[attr-defined]
        assert result.nfe == sum(step.nfe + step.start_nfe for step in steps)
        assert result.nfe <= result.nfe_logical <= settings.most_nfe
        if METHODS[method].scored != "never":
            assert not np.isnan(steps[-1].score).any()


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_result_and_another_seed_another(method: str) -> None:
    def run(seed: int) -> s3dlm.Result:
        settings = small(method, seed=seed)
        return s3dlm.generate(fake_model(), QUESTION, task="countdown", settings=settings)

    first = run(0)
    assert plain(run(0)) == plain(first)
    if method in ("greedy", "unmaskfork"):
        return
    assert any(run(seed).survivors[0].nll != first.survivors[0].nll for seed in range(1, 6))


@pytest.mark.parametrize("method", METHODS)
def test_batched_is_unbatched(method: str) -> None:
    settings = small(method)
    batched = s3dlm.generate_batch(
        fake_model(), QUESTIONS, task="countdown", settings=settings, max_rows=1000
    )
    alone = [
        s3dlm.generate(fake_model(), question, task="countdown", settings=settings)
        for question in QUESTIONS
    ]
    assert [plain(one) for one in batched] == [plain(one) for one in alone]


def test_batched_prompts_share_forward_passes() -> None:
    model, settings = fake_model(), Settings(**SMALL)
    s3dlm.generate_batch(model, QUESTIONS, task="countdown", settings=settings, max_rows=1000)
    assert model.denoiser.calls <= settings.steps + 1  # type: ignore[attr-defined]


def test_the_order_and_the_size_of_batches_change_nothing() -> None:
    settings = Settings(**SMALL)
    results = []
    for max_rows, order in ((1, 1), (7, 1), (1000, -1)):
        found = s3dlm.generate_batch(
            fake_model(), QUESTIONS[::order], task="countdown", settings=settings, max_rows=max_rows
        )
        results.append([plain(one) for one in found[::order]])
    assert results[0] == results[1] == results[2]


def test_watched_is_unwatched(tmp_path: object) -> None:
    settings = Settings(**SMALL)
    quiet = s3dlm.generate(fake_model(), QUESTION, task="countdown", settings=settings)
    model = fake_model()
    events = s3dlm.write_trace(
        f"{tmp_path}/run.jsonl",
        model,
        events_of(model, QUESTION, task="countdown", settings=settings),
        question=QUESTION,
        settings=settings,
    )
    *_, watched = events
    assert isinstance(watched, s3dlm.Result)
    assert plain(watched) == plain(quiet)


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("ess_threshold", [None, 0.0, 0.5, 1.0])
def test_every_resampler_drives_the_loop(resampling: str, ess_threshold: float | None) -> None:
    settings = Settings(resampling=resampling, ess_threshold=ess_threshold, lam=5.0, **SMALL)
    *steps, result = events_of(fake_model(), QUESTION, task="countdown", settings=settings)
    assert isinstance(result, s3dlm.Result)
    assert len(result.survivors) == 4
    if ess_threshold is None:
        assert all(step.resampled for step in steps)
    if ess_threshold == 0.0:
        assert not any(step.resampled for step in steps)


@pytest.mark.parametrize(
    "policy", ["low_confidence", "random", "margin", "entropy", "left_to_right"]
)
def test_every_policy_drives_the_loop(policy: str) -> None:
    settings = Settings(policy=policy, **SMALL)
    result = s3dlm.generate(fake_model(), QUESTION, task="countdown", settings=settings)
    assert len(result.survivors) == 4


def test_a_finished_answer_is_never_forwarded_again() -> None:
    texts = ["<answer>6 * 4</answer>"]
    settings = Settings(method="best_of_k", gen_length=96, steps=96, block_length=32)
    model = fake_model(texts)
    *steps, result = events_of(model, QUESTION, task="countdown", settings=settings)
    assert isinstance(result, s3dlm.Result)
    assert sum(step.nfe for step in steps[32:]) == 0  # the first block holds the whole answer
    assert {one.text for one in result.survivors} == {texts[0]}


def test_the_search_moves_towards_what_the_verifier_likes() -> None:
    def likes_the_second_text(prompt: str, text: str, confidence: float | None) -> float:
        same = sum(a == b for a, b in zip(text, COUNTDOWN[1], strict=False))
        return same / len(COUNTDOWN[1])

    def mean_score(method: str) -> float:
        tilt = {"lam": 200.0} if method == "s3" else {}
        settings = Settings(method=method, **tilt, **SMALL)
        results = s3dlm.generate_batch(
            fake_model(), QUESTIONS, settings=settings, verifier=likes_the_second_text
        )
        scores = [one.score for result in results for one in result.survivors]
        return float(np.mean([0.0 if score is None else score for score in scores]))

    unguided, s3, top = map(mean_score, ("tilting", "s3", "top_n"))
    assert s3 > unguided + 0.04
    assert top > unguided + 0.02


def test_a_contradicted_text_is_hidden_from_its_first_wrong_equality_and_retried() -> None:
    model, settings = fake_model(), Settings(method="s3", rounds=2, remask="from_doubt", **SMALL)
    process = prepare(model, Job(QUESTION, "countdown", settings)).process
    text = "6 + 12 = 18. 18 + 4 = 23. So 23."
    tokens = np.array([[*text.encode(), *[257] * 32]])
    canvas = Canvas(tokens, np.full(tokens.shape, -0.5))
    _, suspicious = process.remaskable(tokens[0], [(13, 24)])
    assert suspicious.nonzero()[0].tolist() == list(range(13, 24))
    rng = np.random.default_rng(0)
    where = positions(process, canvas, [[(13, 24)]], settings, rng)
    resumed, remasked = process.remask(canvas, where)
    hidden = remasked.tokens[0] == 256
    assert hidden.nonzero()[0].tolist() == list(range(13, len(text) + 4))
    assert (remasked.logp[0][hidden] == 0).all()
    assert resumed.steps == -(-int(hidden.sum()) // 4)
    assert not positions(process, canvas, [()], settings, rng).any()

    *steps, result = events_of(model, QUESTION, task="countdown", settings=settings)
    assert isinstance(result, s3dlm.Result)
    assert len(steps) > settings.steps  # the fake model cannot calculate
    assert not (steps[-1].tokens == 256).any()
    assert result.nfe == model.denoiser.rows_seen <= result.nfe_logical  # type: ignore[attr-defined]


def test_a_removed_job_leaves_the_batch_and_changes_nobody() -> None:
    settings = Settings(**SMALL)
    batcher = Batcher(fake_model())
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
    *steps, _ = events_of(model, "hello", settings=Settings(**SMALL))
    assert not (steps[-1].tokens == 256).any()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_says_what_it_costs_at_most(method: str) -> None:
    settings = small(method, **only_used(method, {"steps": 32}))
    result = s3dlm.generate(fake_model(), QUESTION, task="countdown", settings=settings)
    formula = Settings(method).nfe_formula().replace("·", "*")
    sizes = {"T": settings.steps, "N": settings.particles, "b": settings.branching}
    sizes |= {"B": 2, "L": settings.gen_length}
    assert eval(formula, {}, sizes) == settings.most_nfe >= result.nfe_logical >= result.nfe
