"""A verifier needs `score` alone; a function is one, too; spans say where it doubts."""

from __future__ import annotations

import pickle

import pytest

from s3dlm.verifier import Score, Verifier, as_verifier, compose, for_task
from s3dlm.verifier.base import MAX_TEXT, score_texts, takes_many

TEXT = "Step 1: 12 + 7 = 20. Then 3 * 4 = 13. Therefore the answer is \\boxed{19}."
MEMBERS = {name for name in vars(Verifier) if name[0] != "_"}


class Least(Verifier):
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(len(text) / 10)


def test_a_verifier_has_few_members_of_which_only_score_must_be_written() -> None:
    assert {
        "name", "satisfied_at", "compares_texts", "score_partial", "model_judge", "score", "score_batch",
    } == MEMBERS  # fmt: skip
    least = Least()
    assert least.score_batch(["q", "q"], ["a", "ab"], [None, 1.0]) == [Score(0.1), Score(0.2)]
    assert not takes_many(least)
    with pytest.raises(TypeError, match="score"):
        type("Nothing", (Verifier,), {})()


def half(prompt: str, text: str, confidence: float | None) -> float:
    return 0.5


half.satisfied_at = 0.9  # type: ignore[attr-defined]


def test_a_function_is_adapted_once_and_pickled_as_itself_and_an_object_needs_the_class() -> None:
    adapted = as_verifier(half)
    assert as_verifier(half) is adapted
    assert (adapted.name, adapted.satisfied_at, takes_many(adapted)) == ("half", 0.9, False)
    assert adapted.score("q", "12345", 0.25) == Score(0.5, {"custom": 0.5})
    assert for_task("gsm8k") is as_verifier(for_task("gsm8k", "paper"))
    assert pickle.loads(pickle.dumps(adapted)) is adapted
    least = Least()
    assert as_verifier(least) is least


def test_a_text_that_comes_again_with_another_confidence_is_read_once() -> None:
    reads: list[str] = []
    found = compose({"confidence": 0.4, "reachability": 0.6})
    parts = [
        (name, lambda parsed, name=name, part=part: reads.append(name) or part(parsed), weight)
        for name, part, weight in found.parts
    ]
    counting = type(found)(tuple(parts))
    for confidence in (0.9, None, 0.0, 0.37, 2.0):
        assert counting.score("q", TEXT, confidence) == found.score("q", TEXT, confidence)
    assert sorted({*reads}) == sorted(name for name, _, _ in parts)
    assert len(reads) == len(parts) + 4  # the confidence each time
    own = compose(
        {"mine": 1.0}, judges={"mine": lambda prompt, text, confidence: confidence or 0.0}
    )
    assert [own.score("q", TEXT, c).total for c in (0.25, 0.75)] == [0.25, 0.75]


@pytest.mark.parametrize("name", ["paper", "checker"])
def test_spans_are_the_equalities_that_do_not_hold_found_when_someone_asks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"\n  {TEXT}<|eot_id|>"
    score = for_task("gsm8k", name).score("Of 12 and 7, 3 times 4", text)
    assert [text[start:end] for start, end in score.spans] == ["12 + 7 = 20", "3 * 4 = 13"]
    assert not for_task("gsm8k", name).score("3 and 4", "3 + 4 = 7").spans
    again = pickle.loads(pickle.dumps(score))
    assert (again.total, again.parts, [*again.spans]) == (score.total, score.parts, [*score.spans])
    asked: list[str] = []
    monkeypatch.setattr(
        "s3dlm.verifier.composite.wrong_equalities", lambda text: asked.append(text) or []
    )
    late = for_task("gsm8k").score(name, "1 + 1 = 3")
    assert asked == []
    assert (list(late.spans), len(late.spans), asked) == ([], 0, ["1 + 1 = 3"])


def test_a_partial_text_goes_to_its_own_reader_and_is_cut_like_a_whole_one() -> None:
    seen = []

    class Both(Verifier):
        def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
            return Score(0.25)

        def score_partial(self, prompt: str, text: str) -> Score:  # type: ignore[override]
            seen.append((prompt, text))
            return Score(0.75)

    rows = [("?" + "q" * MAX_TEXT, "!" + "t" * MAX_TEXT, None)]
    assert [score.total for score in score_texts(Both(), rows, partial=True)] == [0.75]
    assert seen == [("q" * MAX_TEXT, "t" * MAX_TEXT)]
    assert [score.total for score in score_texts(Both(), rows)] == [0.25]
