"""A budget is never exceeded, a satisfied verifier ends the search, and moves hide what they say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from itertools import pairwise

import numpy as np
import pytest

import s3dlm
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import SettingsError, VerifierError
from s3dlm.job import Job, prepare
from s3dlm.search.methods import METHODS
from s3dlm.search.remask import ACCEPT_RULES, REMASKINGS, Moved, Remasking, Text
from s3dlm.search.step import Step
from s3dlm.settings import Settings, only_used, schema
from s3dlm.verifier import Score, for_task
from tests.fakes import END, MASK, events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 64, "temperature": 1.0, "lam": 8.0}
HALF = Settings("revise", remask="random")
ADAPTIVE = {"reveal": "threshold", "reveal_threshold": 0.6}


def small(method: str, **options: object) -> Settings:
    used = only_used(method, {**SMALL, **options}, SMALL)
    return Settings(method, **{**used, **options})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Wants:
    """Satisfied by a text that has these words."""

    words: str
    satisfied_at: float | None = 0.9

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        at = -1 if self.words in text else text.find("=")
        return Score(1.0 if self.words in text else 0.3, spans=((at, at + 2),) if at >= 0 else ())


def run(settings: Settings, verifier: object = None) -> tuple[list[Step], s3dlm.Result, int]:
    model = fake_model()
    *steps, result = events_of(
        model, QUESTION, task="countdown", settings=settings, verifier=verifier
    )
    assert isinstance(result, s3dlm.Result)
    return steps, result, model.denoiser.rows_seen  # type: ignore[attr-defined, return-value]


@pytest.mark.parametrize("decoding", [{}, ADAPTIVE], ids=["schedule", "adaptive"])
@pytest.mark.parametrize("budget", [2, 7, 60])
@pytest.mark.parametrize("method", METHODS)
def test_a_budget_is_a_hard_limit_and_there_is_always_an_answer(
    method: str, budget: int, decoding: dict[str, object]
) -> None:
    if decoding and "reveal" in METHODS[method].fixed:
        return
    settings = small(method, budget=budget, **decoding)
    steps, result, forwarded = run(settings)
    assert result.nfe == forwarded <= budget
    assert result.nfe == sum(step.nfe + step.start_nfe for step in steps)
    assert result.nfe <= settings.most_nfe <= budget
    assert result.text
    assert result.stopped in ("finished", "satisfied", "budget")
    assert not (steps[-1].tokens[steps[-1].survivor] == MASK).any()
    before = 0
    for step in steps:
        begins = step.index == 0 and step.round == 0
        assert step.parent.min() >= -1
        assert begins or step.parent.max() < before
        before = step.survivor.size


@pytest.mark.parametrize("method", ["s3", "revise", "verified_best_of_k", "fk_max", "prism"])
def test_a_satisfied_verifier_ends_the_search_at_once(method: str) -> None:
    _, result, forwarded = run(small(method, budget=150), Wants("24"))
    assert result.stopped == "satisfied"
    assert "24" in result.text
    assert result.nfe == forwarded < 150
    _, never, _ = run(small(method, budget=150, stop_when="never"), Wants("24"))
    # A given number of rounds may end before the budget does.
    assert never.stopped == ("finished" if Settings(method).rounds else "budget")
    assert never.nfe > result.nfe


@dataclass(frozen=True)
class Doubts(Wants):
    """Likes the text, and yet doubts its first character."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return replace(super().score(prompt, text, confidence), spans=((0, 1),))


def test_a_text_that_is_doubted_does_not_satisfy() -> None:
    _, result, _ = run(small("revise", budget=60, rounds=0), Doubts("24"))
    assert result.stopped == "budget"
    assert "24" in result.text


def test_a_greedy_answer_that_satisfies_is_all_that_is_paid_for() -> None:
    greedy = run(small("baseline", temperature=0.0))[1]
    _, result, forwarded = run(small("revise", budget=400), Wants(greedy.text))
    assert (result.stopped, result.text) == ("satisfied", greedy.text)
    assert forwarded <= greedy.nfe


def test_a_verifier_that_names_no_threshold_never_stops_early() -> None:
    settings = small("revise", budget=120, rounds=0)
    _, result, _ = run(settings, Wants("24", satisfied_at=None))
    assert result.stopped == "budget"
    assert result.nfe > 100


def test_with_a_budget_votes_of_all_rounds_count() -> None:
    once = run(small("best_of_k"))[1]
    _, often, _ = run(small("best_of_k", budget=4 * once.nfe))
    assert len(often.survivors) > len(once.survivors)


def test_more_budget_finds_no_worse_text() -> None:
    """The verifier's best over three seeds, which is what `revise` returns."""
    verifier = replace(for_task("countdown", "checker"), satisfied_at=None)  # type: ignore[type-var]
    totals = []
    for budget in (10, 25, 60):
        given = {"budget": budget, "rounds": 0, "remask": "all"}
        texts = [run(small("revise", seed=seed, **given), verifier)[1].text for seed in range(3)]
        totals.append(sum(verifier.score(QUESTION, text, 0.9).total for text in texts))
    assert totals[0] <= totals[1] + 0.05
    assert totals[1] <= totals[2] + 0.05
    assert totals[0] < totals[2]


TEXT = Text(
    logp=np.array([-1, -9, -2, -8, -3, -7, -4, -6, -5, 0.0]),
    movable=np.arange(10) < 8,
    doubt=np.where(np.isin(np.arange(10), (4, 5)), 0.9, 0.0),
    order=np.array([1, 4, 2, 2, 3, 4, 1, 3, 0, 0]),
)


def test_hidings_choose_what_they_say() -> None:
    rng = np.random.default_rng(0)
    drawn = {
        name: [np.flatnonzero(rule.hide(TEXT, HALF, rng)).tolist() for _ in range(60)]
        for name, rule in REMASKINGS.items()
    }
    assert all(one == list(range(8)) for one in drawn["all"])
    assert {tuple(one) for one in drawn["doubted"]} == {(4,), (5,), (4, 5)}
    assert {tuple(one) for one in drawn["from_doubt"]} == {(4, 5, 6, 7)}
    assert {tuple(one) for one in drawn["from_doubt_or_earlier"]} == {
        tuple(range(n, 8)) for n in range(5)
    }
    assert drawn["from_doubt_or_earlier"].count([4, 5, 6, 7]) > 20
    least_sure = [1, 3, 5, 7, 6, 4, 2, 0]
    assert all(set(one) == set(least_sure[: len(one)]) for one in drawn["unsure"])
    assert len({tuple(one) for one in drawn["random"]}) > 30
    assert all(one and max(one) < 8 for name in drawn for one in drawn[name] if name != "weighted")


def test_rules_by_order_hide_what_was_revealed_since_and_not_what_stands_behind() -> None:
    rng = np.random.default_rng(0)

    def drawn(name: str) -> list[tuple[int, ...]]:
        hidden = (REMASKINGS[name].hide(TEXT, HALF, rng) for _ in range(200))
        return [tuple(np.flatnonzero(one).tolist()) for one in hidden]

    since, second, first = (1, 4, 5, 7), (1, 2, 3, 4, 5, 7), tuple(range(8))
    assert set(drawn("since")) == {since}  # 4 was revealed by step 3, 5 by step 4
    sooner = drawn("sooner")
    assert set(sooner) == {since, second, first}
    assert sooner.count(since) > 100
    by_step = [1, 5, 4, 7, 2, 3, 0, 6]
    assert {frozenset(one) for one in drawn("latest")} == {
        frozenset(by_step[:count]) for count in range(1, 9)
    }
    certain = replace(TEXT, doubt=np.zeros(10))
    assert not REMASKINGS["since"].hide(certain, HALF, rng).any()
    assert not REMASKINGS["sooner"].hide(certain, HALF, rng).any()


def test_weighted_hides_each_token_as_likely_as_it_is_doubtful() -> None:
    rng, times = np.random.default_rng(0), 4_000
    text = replace(TEXT, doubt=np.array([0, 0.5, 0.9, 1.0, 0.05, 0, 0, 0, 0, 0]))
    hidden = np.mean([REMASKINGS["weighted"].hide(text, HALF, rng) for _ in range(times)], axis=0)
    expected = np.array([0.1, 0.5, 0.9, 1.0, 0.1, 0.1, 0.1, 0.1, 0, 0])
    assert (np.abs(hidden - expected) < 5 * np.sqrt(0.25 / times)).all()
    assert (hidden[expected == 1.0] == 1.0).all()
    assert (hidden[expected == 0.0] == 0.0).all()


def test_a_doubt_of_a_half_is_no_place_to_begin() -> None:
    rng = np.random.default_rng(0)
    text = replace(TEXT, doubt=np.array([0.5, 0, 0.3, 0, 0.6, 0, 0, 0, 0, 0]))
    assert np.flatnonzero(REMASKINGS["from_doubt"].hide(text, HALF, rng)).tolist() == [4, 5, 6, 7]
    assert np.flatnonzero(REMASKINGS["doubted"].hide(text, HALF, rng)).tolist() == [4]


def test_doubted_hides_no_more_than_the_share_allows() -> None:
    rng, seen = np.random.default_rng(0), set()
    doubted = np.isin(np.arange(20), (2, 3, 9, 15))
    text = Text(np.zeros(20), np.ones(20, np.bool_), doubted * 1.0, np.zeros(20, np.int64))
    for _ in range(200):
        little = Settings("revise", remask="doubted", remask_fraction=0.05)
        hidden = REMASKINGS["doubted"].hide(text, little, rng).nonzero()[0].tolist()
        assert 1 <= len(hidden) <= 2
        assert set(hidden) <= {2, 3, 9, 15}
        seen.update(hidden)
    assert seen == {2, 3, 9, 15}


@pytest.mark.parametrize("text", ["€€€€ 2 + 2 = 5", "6 × 7 = 41", "plain 2 + 2 = 5"])
def test_a_doubt_marks_its_own_characters_whatever_their_bytes(text: str) -> None:
    process = prepare(fake_model(), Job("q")).process
    tokens = np.full(64, END)
    tokens[: len(text.encode())] = list(text.encode())
    start = text.index("2 +" if "2 +" in text else "41")
    _, marked = process.remaskable(tokens, ((start, len(text)),))
    assert bytes(tokens[marked > 0].tolist()).decode() == text[start:]
    _, weighed = process.remaskable(tokens, ((start, len(text), 0.4), (start, start + 1, 0.7)))
    assert weighed[marked > 0].tolist() == [0.7, *[0.4] * (len(text[start:]) - 1)]
    with pytest.raises(VerifierError, match=r"weight 1\.5; give a number from 0 to 1"):
        process.remaskable(tokens, ((0, 1, 1.5),))


def test_rules_of_keeping() -> None:
    rng = np.random.default_rng(0)
    tokens = np.arange(5)[:, None]
    scores, origin = (np.array([0.2, 0.95]), np.array([0.9, 0.1, 0.95])), np.array([0, 1, 1])
    nobody, last = np.zeros(3, np.bool_), np.array([False, True, False])
    keep = {
        (name, left.any()): rule(Moved(*scores, origin, tokens, left), 3, 1000.0, rng).tolist()
        for name, rule in ACCEPT_RULES.items()
        for left in (nobody, last)
    }
    assert keep["replace", False] == keep["replace", True] == [2, 3, 4]
    assert keep["metropolis", False] == [2, 1, 4]  # better, worse, equal
    assert keep["metropolis", True] == [2, 3, 4]  # worse, and yet the one before is given up
    assert set(keep["resample", False]) == {1, 4}
    assert keep["resample", True] == [4, 4, 4]


def test_moves_without_a_verifier_never_call_one() -> None:
    def refuse(prompt: str, text: str, confidence: float | None) -> float:
        raise AssertionError("called")

    settings = small("baseline", rounds=3, remask="unsure")
    steps, result, _ = run(settings, refuse)
    assert max(step.round for step in steps) == 3
    assert result.stopped == "finished"


@pytest.mark.parametrize(
    ("restart_fraction", "expected"), [(0.0, {False}), (1.0, {True}), (0.5, {True, False})]
)
def test_a_share_of_the_particles_of_a_later_round_begins_afresh(
    restart_fraction: float, expected: set[bool]
) -> None:
    settings = small(
        "revise",
        budget=150,
        particles=8,
        restart_fraction=restart_fraction,
        temperature=1.0,
        **ADAPTIVE,
    )
    steps, _, _ = run(settings, Wants("never said"))
    begun = [step for before, step in pairwise(steps) if before.round != step.round]
    assert {bool(parent < 0) for step in begun for parent in step.parent.tolist()} == expected


def test_fresh_starts_need_moves_beside_them() -> None:
    with pytest.raises(SettingsError, match="counts only beside remask"):
        Settings("revise", remask="all", restart_fraction=0.5)


@pytest.mark.parametrize("budget", [3, 5, 8])
@pytest.mark.parametrize("method", ["hex", "particle_gibbs", "s3"])
def test_a_budget_holds_with_guidance_too(method: str, budget: int) -> None:
    _, result, forwarded = run(small(method, budget=budget, guidance=1.0))
    assert result.nfe == forwarded <= budget


def test_rounds_that_end_before_the_budget_are_finished() -> None:
    _, result, _ = run(small("revise", budget=10_000, rounds=1, stop_when="never"))
    assert result.stopped == "finished"
    assert result.nfe < 5_000


def test_metropolis_compares_a_text_with_the_one_that_it_descends_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[list[int]] = []
    metropolis = ACCEPT_RULES["metropolis"]

    def spy(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> object:
        compared.append(moved.origin.tolist())
        return metropolis(moved, size, lam, rng)

    monkeypatch.setitem(ACCEPT_RULES, "metropolis", spy)
    for seed in range(3):
        settings = small("s3", rounds=1, remask="random", accept="metropolis", seed=seed)
        steps = [step for step in run(settings)[0] if step.round == 1]
        origin = np.arange(4)
        for step in reversed(steps):
            origin = step.parent[step.survivor[origin]]
        assert compared[-1] == origin.tolist()
    assert any(origins != [0, 1, 2, 3] for origins in compared)


def test_moves_can_be_chosen_from_all_that_was_seen() -> None:
    settings = small("verified_best_of_k", rounds=2, remask="random", selection="best_seen")
    scored: list[float] = []

    def verifier(question: str, text: str, confidence: float) -> float:
        scored.append(len(text) % 7 / 7)
        return scored[-1]

    assert run(settings, verifier)[1].score == max(scored)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr("s3dlm.search.remask.REMASKINGS", REMASKINGS.copy())


def _third(text: Text, settings: Settings, rng: np.random.Generator) -> np.ndarray:
    return np.arange(text.logp.size) % 3 == 0


def test_a_registered_rule_is_a_rule_like_any_other(table: None) -> None:
    with pytest.raises(SettingsError, match="remask='third'"):
        small("revise", rounds=1, remask="third")
    s3dlm.register_remasking("third", Remasking(_third))
    assert "third" in schema()["remask"]["enum"]
    settings = small("best_of_k", rounds=1, remask="third", restart_fraction=0.5)
    assert Settings.from_json(settings.to_json()) == settings
    steps, _, _ = run(small("baseline", rounds=1, remask="third", steps=64))
    before, after = (
        [step for step in steps if step.round == number][at] for number, at in ((0, -1), (1, 0))
    )
    kept = np.arange(64) % 3 > 0
    assert (before.tokens[0, kept] == after.tokens[0, kept]).all()
    with pytest.raises(SettingsError, match="'third' exists; choose another name, or give replace"):
        s3dlm.register_remasking("third", Remasking(_third))
    s3dlm.register_remasking("third", Remasking(_third, by_doubt=True), replace=True)
    assert "verifier" in small("baseline", rounds=1, remask="third").active  # it asks one now
    with pytest.raises(SettingsError, match=r"got a function; give a s3dlm\.Remasking"):
        s3dlm.register_remasking("fourth", _third)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="use letters"):
        s3dlm.register_remasking("a rule", Remasking(_third))


def test_packages_offer_rules_through_entry_points(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("third", f"{__name__}:PACKAGED", "s3dlm.remaskings")
    monkeypatch.setattr("s3dlm.search.remask.find_entry_points", lambda group: {"third": entry})
    settings = Settings("revise", rounds=1, remask="third", remask_fraction=0.25)
    assert settings.remask_fraction == 0.25


PACKAGED = Remasking(_third)


@dataclass(frozen=True)
class Grades:
    """Scores by the text; says nothing of where it is wrong."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(sum(text.encode()) % 101 / 101, spans=((0, 1),))


@pytest.mark.parametrize("accept", ACCEPT_RULES)
def test_a_particle_without_gain_begins_afresh_after_so_many_rounds(accept: str) -> None:
    moves = {"remask": "random", "remask_fraction": 0.25, "restart_fraction": 0.0, "rounds": 30}
    settings = small("revise", particles=1, accept=accept, lam=1000.0, patience=3, **moves)
    steps, result, _ = run(settings, Grades())
    rounds: dict[int, list[Step]] = {}
    for step in steps:
        rounds.setdefault(step.round, []).append(step)
    best, stale, fresh_starts = -1.0, 0, 0
    for number, own in rounds.items():
        fresh = number > 0 and _fresh(own[0])
        assert fresh == (stale == 3)
        score = float(own[-1].score[0])
        if fresh or score > best:
            best, stale, fresh_starts = score, 0, fresh_starts + fresh
        else:
            stale += 1
    assert fresh_starts > 1
    assert result.stopped == "finished"
    impatient = run(settings.replace(patience=1), Grades())[0]
    assert sum(_fresh(step) for step in impatient if step.index == 0) > fresh_starts


def _fresh(step: Step) -> bool:
    return bool((step.tokens[0] == MASK).mean() > 0.5)


def test_patience_asks_the_verifier_and_needs_a_move() -> None:
    assert "verifier" in Settings("best_of_k", rounds=2, remask="random", patience=2).active
    with pytest.raises(SettingsError, match=r"patience=2 changes nothing .* beside remask"):
        Settings("revise", remask="all", patience=2)


MOVES = {"remask": "random", "remask_fraction": 0.25, "restart_fraction": 0.0, **ADAPTIVE}


@pytest.mark.parametrize(("below", "afresh"), [(0.9, False), (0.01, True)])
@pytest.mark.parametrize("memo", [0, 128])
@pytest.mark.parametrize("given", [{"budget": 90, "rounds": 0}, {"rounds": 3}])
def test_rounds_re_mask_only_where_the_first_look_ahead_is_unsure(
    given: dict[str, int], memo: int, below: float, afresh: bool
) -> None:
    settings = small("revise", particles=1, remask_below=below, memo=memo, **MOVES, **given)
    steps, result, forwarded = run(settings, Grades())
    later = [step for step in steps if step.round > 0 and step.index == 0]
    assert later
    assert all((step.parent < 0).all() == afresh for step in later)
    # The look at the start is paid for once, and counted.
    assert result.nfe == forwarded == sum(step.nfe + step.start_nfe for step in steps)
    plain = run(settings.replace(remask_below=1.0), Grades())[0]
    assert steps[0].start_nfe == plain[0].start_nfe + (memo == 0)


def test_a_careless_search_reveals_by_how_sure_its_first_look_ahead_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thresholds: list[float] = []
    changed = MaskedDiffusion.with_threshold

    def spy(process: MaskedDiffusion, least: float) -> MaskedDiffusion:
        thresholds.append(least)
        return changed(process, least)

    monkeypatch.setattr(MaskedDiffusion, "with_threshold", spy)
    settings = small("revise", particles=1, budget=60, rounds=0, careless=1.0, **MOVES)
    steps, _, _ = run(settings, Grades())
    (sure,) = thresholds
    assert 0 < sure < 1
    run(settings.replace(careless=0.5), Grades())
    assert thresholds[1] == pytest.approx(sure / 2)
    run(settings.replace(careless=100.0), Grades())
    assert thresholds[2] == 1.0
    run(settings.replace(remask_below=sure / 2), Grades())  # it is sure: nothing is careless
    assert len(thresholds) == 3
    given = run(settings.replace(careless=0.0, reveal_threshold=sure), Grades())[0]
    assert (given[0].tokens == steps[0].tokens).all()


def test_a_careless_search_needs_a_threshold() -> None:
    with pytest.raises(
        SettingsError, match=r"careless=1\.25 changes nothing with reveal='schedule'"
    ):
        Settings("revise", careless=1.25)
    with pytest.raises(SettingsError, match=r"careless=1.25 changes nothing .* beside remask"):
        Settings("revise", remask="all", careless=1.25, reveal="threshold")


def test_the_order_of_a_canvas_is_that_of_its_steps() -> None:
    known: list[np.ndarray] = []

    def spy(text: Text, settings: Settings, rng: np.random.Generator) -> np.ndarray:
        known.append(text.order)
        return np.arange(text.logp.size) < 7

    steps: list[Step]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REMASKINGS, "random", Remasking(spy))
        steps, _, _ = run(small("baseline", rounds=2, remask="random"))
    for number, order in enumerate(known):
        tokens = [step.tokens[0] for step in steps if step.round == number]
        if number == 0:
            assert (order == sum((one == MASK).astype(int) for one in tokens) + 1).all()
        else:  # what was hidden came after all that was not
            assert order[:7].min() > order[7:].max()
