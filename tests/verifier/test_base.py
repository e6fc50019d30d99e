"""A verifier's optional parts have defaults, and nothing that stands around a verifier loses one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

import pytest

import s3dlm
from s3dlm.extras.lm_eval.model import AskedVerifier
from s3dlm.verifier import Score, Verifier, WrappedVerifier, as_verifier
from s3dlm.verifier.json_format import JsonFormat, JsonVerifier
from tests.fakes import fake_model

ANY_JSON = JsonFormat({})


class Whole(Verifier):
    """Overrides every optional part."""

    name = "whole"
    satisfied_at = 0.5
    batched = compares_texts = rescores = True

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(confidence or 0.0, {prompt: 1.0})

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        rows = zip(prompts, texts, confidences, strict=True)
        return [self.score(*row) for row in rows]

    def rescore(self, score: Score, confidence: float | None) -> Score:
        return Score(confidence or 0.0, score.parts)


class Foreign:
    """No base class, and `score` alone."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(0.25)


class ForeignWhole:
    satisfied_at, compares_texts = 0.5, True
    score, score_batch, rescore = Whole.score, Whole.score_batch, Whole.rescore


class ForeignStrict:
    """Which method scores depends on its state; its methods need a confidence."""

    strict = False

    @property
    def score(self) -> Callable[[str, str, float | None], Score]:
        return self._strict if self.strict else self._kind

    def _strict(self, prompt: str, text: str, confidence: float | None) -> Score:
        return Score(0.0)

    def _kind(self, prompt: str, text: str, confidence: float | None) -> Score:
        return Score(1.0)


class ForeignRemade:
    """Holds what cannot be pickled, and is built anew instead."""

    def __init__(self) -> None:
        self.score = lambda prompt, text, confidence: Score(0.4)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return ForeignRemade, ()


class Least(Verifier):
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(len(text) / 10)


def test_only_score_must_be_written() -> None:
    least = Least()
    assert least.score_batch(["q", "q"], ["a", "ab"], [None, 1.0]) == [Score(0.1), Score(0.2)]
    assert (least.satisfied_at, least.batched, least.compares_texts, least.rescores) == (
        None, False, False, False,
    )  # fmt: skip
    with pytest.raises(TypeError, match="score"):
        type("Nothing", (Verifier,), {})()


def test_a_wrapper_passes_every_member_on() -> None:
    assert set(vars(WrappedVerifier)) >= {name for name in vars(Verifier) if name[0] != "_"}


@pytest.mark.parametrize(
    "wrapped",
    [
        WrappedVerifier(Whole()),
        AskedVerifier(Whole(), "q"),
        JsonVerifier(ANY_JSON, Whole()),
        as_verifier(ForeignWhole()),  # type: ignore[arg-type]
    ],
)
def test_a_wrapper_loses_nothing(wrapped: Verifier) -> None:
    assert wrapped.satisfied_at == pytest.approx(0.85 if isinstance(wrapped, JsonVerifier) else 0.5)
    assert (wrapped.batched, wrapped.compares_texts, wrapped.rescores) == (True, True, True)
    alone = wrapped.score("q", "{}", 0.9)
    assert wrapped.score_batch(["q", "q"], ["{}", "[]"], [0.9, 0.9])[0] == alone
    lower = wrapped.rescore(wrapped.score("q", "{}", 0.9), 0.1)
    assert lower.total == pytest.approx(wrapped.score("q", "{}", 0.1).total)
    assert lower.parts == alone.parts


def test_an_object_is_adapted_once_while_it_is_used() -> None:
    foreign = Foreign()
    adapted = as_verifier(foreign)  # type: ignore[arg-type]
    assert as_verifier(foreign) is adapted  # type: ignore[arg-type]
    assert (adapted.name, adapted.batched, adapted.rescores) == ("Foreign", False, False)
    assert adapted.score_batch(["q"], ["a"], [None]) == [Score(0.25)]


class Content(Verifier):
    satisfied_at = 0.0

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(0.5)


def test_methods_of_an_object_are_looked_up_at_each_call() -> None:
    judge = ForeignStrict()
    verifier = as_verifier(judge)
    assert verifier.score("q", "a") == Score(1.0)
    judge.strict = True
    assert verifier.score("q", "a", confidence=0.5) == Score(0.0)


def test_of_an_adapted_object_only_the_object_is_pickled() -> None:
    again = pickle.loads(pickle.dumps(as_verifier(ForeignRemade())))
    assert again.score("q", "a") == Score(0.4)


def test_a_budget_with_a_json_form_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonFormat, "progress", lambda self, text: 1.0)
    runs = [
        s3dlm.generate(
            fake_model(), "q", method="s3", budget=500, gen_length=16, steps=4,
            block_length=16, verifier=verifier,
        )
        for verifier in (Content(), JsonVerifier(ANY_JSON, Content()))
    ]  # fmt: skip
    assert [run.stopped for run in runs] == ["satisfied", "satisfied"]
    assert runs[0].nfe == runs[1].nfe


def test_a_function_can_do_no_more_than_score() -> None:
    """So its texts may be verified one by one and its scores be kept."""
    plain = as_verifier(lambda prompt, text, confidence: 0.5)
    assert plain.satisfied_at is None
    assert (plain.compares_texts, plain.batched, plain.rescores, plain.reads_partial) == (
        False,
    ) * 4
