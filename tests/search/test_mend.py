"""Screening in a search: what it reads, what it costs, what it refuses, and that it fits with the rest."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.cli import main as cli
from s3dlm.diffusion.blocks import TextReader
from s3dlm.errors import SettingsError, VerifierError
from s3dlm.job import Job
from s3dlm.models import registry
from s3dlm.search.methods import METHODS
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.verifier import HOLE, Score, compose
from tests.fakes import END, MASK, ByteTokenizer, events_of, fake_model
from tests.server.live import serving

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL: dict[str, Any] = {
    "gen_length": 32, "steps": 16, "block_length": 32, "temperature": 1.5, "lam": 8.0,
}  # fmt: skip


class Vowels:
    """Dislikes what is known and is a digit; remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(0.5)

    def score_partial(self, prompt: str, text: str) -> Score:
        self.seen.append(text)
        return Score(1 / (1 + sum(letter.isdigit() for letter in text)))


def run(verifier: object, method: str = "s3", **options: Any) -> tuple[list[Step], s3dlm.Result]:
    usual = {name: value for name, value in SMALL.items() if name in Settings(method).active}
    lam = {"lam": 8.0} if "lam" in METHODS[method].uses else {}
    settings = Settings(method, **{**usual, **lam, **options})
    *steps, result = events_of(fake_model(), QUESTION, settings=settings, verifier=verifier)
    assert isinstance(result, s3dlm.Result)
    return steps, result  # type: ignore[return-value]


def digits(steps: list[Step]) -> int:
    return int(np.isin(steps[-1].tokens[steps[-1].survivor], list(b"0123456789")).sum())


def test_children_are_chosen_by_what_is_known_of_them_and_only_they_are_forwarded() -> None:
    verifier, model = Vowels(), fake_model()
    settings = Settings("s3", **SMALL, particles=4, branching=1, screen=16)
    *steps, result = events_of(model, QUESTION, settings=settings, verifier=verifier)
    assert all(len(step.tokens) == 4 and step.nfe <= 4 for step in steps)  # type: ignore[union-attr]
    assert result.nfe == model.denoiser.rows_seen <= 1 + 16 * 4  # type: ignore[union-attr, attr-defined]
    assert len(verifier.seen) == len(set(verifier.seen)) > 4 * 16
    assert max(map(len, verifier.seen)) <= 32
    plain, _ = run(Vowels(), particles=4, branching=1)
    assert digits(steps) < digits(plain) / 2  # type: ignore[arg-type]


def test_a_child_descends_from_the_canvas_that_it_continues() -> None:
    for options in ({"child_sampling": "distinct"}, {"cadence": "block", "block_length": 8}, {}):
        steps, _ = run(Vowels(), particles=4, branching=2, screen=8, **options)
        for before, step in itertools.pairwise(steps):
            parents = before.tokens[before.survivor][step.parent]
            known = parents != MASK
            assert (step.tokens[known] == parents[known]).all()


@pytest.mark.parametrize("method", [m for m, row in METHODS.items() if "screen" in row.uses])
def test_every_row_that_branches_or_samples_particles_can_be_screened(method: str) -> None:
    steps, result = run(Vowels(), method, screen=8, particles=2, branching=2)
    again, same = run(Vowels(), method, screen=8, particles=2, branching=2)
    assert result.text == same.text
    assert len(steps) == len(again)
    children = max(len(step.tokens) for step in steps)
    assert children <= 4


def test_those_that_differ_still_differ() -> None:
    class Content(Vowels):
        def score_partial(self, prompt: str, text: str) -> Score:
            return Score(1.0)

    steps, _ = run(
        Content(), particles=8, branching=1, screen=16, temperature=4.0, child_sampling="distinct"
    )
    first = steps[0].tokens
    assert len({row.tobytes() for row in first}) == len(first) == 8


def test_budget_rounds_and_moves_go_on() -> None:
    for options in ({"budget": 40}, {"rounds": 2, "remask": "random"}):
        steps, result = run(Vowels(), "revise", screen=8, **options)
        assert result.nfe <= options.get("budget", 10**6)
        assert steps[-1].round > 0


def test_batched_is_unbatched() -> None:
    settings = Settings("revise", **SMALL, screen=8, verifier="checker")
    questions = [f"Target: {n} Numbers: 6, 4, 12" for n in (24, 22, 8)]
    alone = [
        s3dlm.generate(fake_model(), q, task="countdown", settings=settings) for q in questions
    ]
    many = s3dlm.generate_batch(fake_model(), questions, task="countdown", settings=settings)
    assert [(r.text, r.nfe) for r in alone] == [(r.text, r.nfe) for r in many]


# --- what is refused, and errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"verifier": "paper"}, "'paper' does not for this task; choose checker or checker_solver"),
        ({"verifier": lambda prompt, text, confidence: 0.5}, "score_partial"),
        ({"lam": 0.0}, "screen=8 changes nothing with lam=0"),
        ({"screen": 1}, "screen=1 changes nothing"),
        ({"screen": 1001}, "screen=1001"),
        ({"method": "particle_gibbs"}, "changes nothing in method='particle_gibbs'"),
        ({"method": "greedy"}, "changes nothing in method='greedy'"),
    ],
)
def test_screening_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    given = {"method": "s3", "screen": 8, "verifier": "checker", **options}
    with pytest.raises(SettingsError, match=words):
        s3dlm.generate(fake_model(), QUESTION, task="countdown", **given)


@pytest.mark.parametrize("value", [Score(1.5), Score(float("nan")), None, ValueError("zebra")])
def test_a_bad_partial_score_ends_its_own_search_and_names_the_place(value: object) -> None:
    class Bad(Vowels):
        def score_partial(self, prompt: str, text: str) -> Score:
            if isinstance(value, Exception):
                raise value
            return value  # type: ignore[return-value]

    settings = Settings("s3", **SMALL, screen=8)
    batcher = s3dlm.engine.Batcher(fake_model())
    keys = [batcher.add(Job(QUESTION, settings=settings, verifier=v)) for v in (Vowels(), Bad())]
    ends: dict[int, Any] = {}
    while batcher.running:
        ends |= {k: e for k, e in batcher.step() if not isinstance(e, Step)}
    assert isinstance(ends[keys[0]], s3dlm.Result)
    assert isinstance(ends[keys[1]], VerifierError)
    message = str(ends[keys[1]])
    assert "'Bad'" in message
    assert "screening before step 2 of 16" in message
    assert HOLE in message


def test_judges_of_a_composed_verifier_are_asked() -> None:
    made = compose({"own": 0.5, "arithmetic": 0.5}, judges={"own": Vowels()})  # type: ignore[dict-item]
    assert made.reads_partial
    assert made.score_partial("", "12").total == pytest.approx(1 / 3)
    assert not compose({"arithmetic": 1.0}).reads_partial


# --- reading a canvas


def reader(**more: Any) -> TextReader:
    return TextReader(ByteTokenizer().decode, MASK, np.array([END]), **more)


def test_a_canvas_is_read_with_a_hole_for_every_masked_token() -> None:
    tokens = np.array([*b"ab", MASK, MASK, *b"c", END, MASK])
    assert reader().read_partial(tokens) == f"ab{HOLE}{HOLE}c"
    assert reader(answer_length=3).read_partial(tokens) == f"ab{HOLE}"
    assert reader().read_partial(tokens[:2]) == "ab" == reader().read(tokens[:2])
    endless = TextReader(ByteTokenizer().decode, MASK, np.empty(0, np.int64), given=tokens)
    assert endless.read_partial(tokens).endswith(HOLE)  # a text with holes has no end of its own


@pytest.mark.parametrize("told_apart", [True, False])
def test_half_a_character_beside_a_hole_is_a_hole(told_apart: bool) -> None:
    """Also where the tokenizer does not spell the mask out."""
    decode = (
        ByteTokenizer().decode if told_apart else lambda ids: bytes(ids).decode(errors="replace")
    )
    masks = MASK if told_apart else 0
    euro = list("€".encode())
    read = TextReader(decode, masks, np.array([END])).read_partial
    assert read(np.array([*b"x", *euro, masks])) == f"x€{HOLE}"
    assert read(np.array([*b"x", *euro[:1], masks, *b"y"])) == f"x{HOLE}{HOLE}y"
    assert read(np.array([masks, *euro[2:], *b"y"])) == f"{HOLE}{HOLE}y"
    assert read(np.array([*b"x", 0xFF, *b"y", masks])) == f"x\ufffdy{HOLE}"  # it stays broken


# --- one answer wherever it is asked for


def test_python_command_line_and_server_give_the_same_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, question = s3dlm.load("tiny"), "Target: 15 Numbers: 10, 1, 6"
    options = {"screen": 8, "lam": 10.0, "budget": 24}
    expected = s3dlm.generate(model, question, task="countdown", method="revise", **options)  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "load", lambda name, **_: model)
    words = ["generate", question, "--task", "countdown", "--method", "revise", "--json"]
    words += ["--set", "screen=8", "--lam", "10", "--budget", "24"]
    monkeypatch.setattr("sys.argv", ["s3dlm", *words])
    cli.main()
    told = json.loads(capsys.readouterr().out)
    with serving(model, defaults={}) as live:
        same: dict[str, Any] = {"model": "tiny", "task": "countdown", "method": "revise", **options}
        reply = live.ask(question, **same)
        wide = live.ask(question, **{**same, "screen": 1000})
    assert told["text"] == expected.text
    assert reply.json()["choices"][0]["text"] == expected.text
    assert wide.status_code == 400
    assert "particles × screen" in wide.text
