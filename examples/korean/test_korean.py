"""The rules of the Korean study; the weights are not needed."""

from __future__ import annotations

import pytest

from examples.korean.rules import Rules, Sentence, sentences, violations

WORD = Sentence("w", ("어제 친구와", "먹고 집에", "들어왔다."), (4, 2), 9, word="정말")
STARTS = Sentence("s", WORD.known, (4, 2), 9, starts=("가", "다"))
GOOD = "어제 친구와 정말 좋은 점심을 먹고 집에 다시 들어왔다."


def broken(sentence: Sentence, text: str) -> dict[str, list[str]]:
    """The rules that a text breaks, and the characters to blame."""
    found = violations(sentence, text)
    return {rule: [text[a:b] for a, b in spans] for rule, (misses, spans) in found if misses}


def test_there_are_200_different_sentences() -> None:
    made = sentences()
    assert len({(sentence.known, sentence.word, sentence.starts) for sentence in made}) == 200
    assert len({sentence.name for sentence in made}) == 200


def test_a_sentence_that_keeps_all_rules_satisfies() -> None:
    score = Rules(WORD).score("", GOOD)
    assert (score.total, list(score.spans)) == (1.0, [])
    assert score.total >= Rules.satisfied_at


@pytest.mark.parametrize(
    ("text", "rule", "blamed"),
    [
        (GOOD.replace("점심을", "점심를"), "object particle", ["점심를"]),
        (GOOD.replace("점심을", "사과을"), "object particle", ["사과을"]),
        (GOOD.replace("점심을", "점심 을"), "loose particle", ["을"]),
        (GOOD.replace("좋은", "lunch"), "hangul", list("lunch")),
        (GOOD.replace("다시", "정말"), "repetition", ["정말", "정말"]),
        (GOOD.replace("다시", "집에"), "repetition", ["집에"]),
        (GOOD.replace("정말", "아주"), "required word", []),
    ],
)
def test_each_rule_names_what_breaks_it(text: str, rule: str, blamed: list[str]) -> None:
    assert broken(WORD, text)[rule] == blamed
    assert Rules(WORD).score("", text).total < 1


def test_the_acrostic_and_the_number_of_syllables() -> None:
    assert broken(STARTS, GOOD) == {"acrostic": ["정말"]}
    assert not broken(STARTS, GOOD.replace("정말", "가끔"))
    longer = GOOD.replace("정말", "정말 오랫동안")
    assert "syllables" in broken(WORD, longer)


def test_a_text_without_the_known_words_is_wrong_as_a_whole() -> None:
    assert broken(WORD, "안녕") == {"known words": ["안녕"]}
