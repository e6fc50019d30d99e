"""Rules for Korean sentences that can be checked exactly, as a verifier, and 200 sentences with holes.

Four rules hold for every sentence: what is filled in is Hangul, no word comes twice, no particle stands
alone as a word, and the object particle follows the sound before it (을 after a consonant, 를 after a
vowel). Each sentence has two more: how many syllables are filled in, and either a word that must occur
or the syllables with which the two holes must begin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from s3dlm import Score, Verifier

Span = tuple[int, int]
FINALS = 28  # of each pair of first consonant and vowel; the first has no final consonant
PARTICLES = frozenset(
    [*"은는이가을를에의와과도로만", "에서", "에게", "으로", "까지", "부터", "처럼"]
)
ENDING_LIKE_PARTICLES = frozenset(["마을", "가을", "노을", "고을"])
_WORD = re.compile(r"\S+")
_FOREIGN = re.compile(r"[^\s가-힣]")

# A sentence with two holes each; `_` is a hole.
FRAMES = (
    ("어제 친구와", 4, "먹고 집에", 2, "들어왔다."),
    ("우리 가족은 주말마다", 4, "함께", 2, "좋아한다."),
    ("나는 아침에 일어나서", 4, "마시고", 2, "나갔다."),
    ("선생님은 학생들에게", 4, "가르치고", 2, "말했다."),
    ("동생은 학교가 끝나면", 4, "놀다가", 3, "돌아온다."),
    ("할머니는 시장에서", 4, "사서", 3, "만들었다."),
    ("비가 오는 날이면", 4, "들으며", 2, "생각한다."),
    ("그 배우는 새 영화에서", 4, "연기해", 2, "받았다."),
    ("여름이 되면 사람들은", 4, "가서", 2, "즐긴다."),
    ("의사는 환자에게", 4, "권하고", 2, "설명했다."),
    ("아버지는 퇴근 후에", 4, "보면서", 2, "쉰다."),
    ("도서관에서 나는", 4, "읽다가", 2, "잠들었다."),
    ("그 회사는 올해", 4, "개발해서", 2, "팔았다."),
    ("아이들은 공원에서", 4, "타고", 2, "웃었다."),
    ("겨울 산을 오르면", 4, "보이고", 2, "느낀다."),
    ("기자는 현장에서", 4, "만나", 2, "물었다."),
    ("우리는 기차를 타고", 4, "가면서", 2, "이야기했다."),
    ("어머니는 저녁마다", 4, "끓이고", 2, "부른다."),
    ("그 화가는 오랫동안", 4, "그렸고", 2, "남겼다."),
    ("농부는 봄이 오면", 4, "심고", 2, "기다린다."),
)
WORDS = ("정말", "함께", "새로운", "다시", "많은")
STARTS = (("가", "다"), ("나", "더"), ("바", "아"), ("사", "오"), ("하", "자"))
SYLLABLES = (11, 12, 13, 14, 15)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with holes, and what is asked of it."""

    name: str
    known: tuple[str, str, str]
    holes: tuple[int, int]  # tokens
    syllables: int  # filled in, one more or less counts too
    word: str = ""
    starts: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        before, between, after = self.known
        return f"{before}[[{self.holes[0]}]]{between}[[{self.holes[1]}]]{after}[SEP]"

    def filled(self, text: str) -> list[Span] | None:
        """Where the holes of a text are; None if the known words are not all there."""
        spans, start = [], len(self.known[0])
        for known in self.known[1:]:
            stop = text.find(known, start)
            if stop < 0:
                return None
            spans.append((start, stop))
            start = stop + len(known)
        return spans


def sentences() -> list[Sentence]:
    """All 200: every frame with every requirement."""
    made = []
    for frame, (before, first, between, second, after) in enumerate(FRAMES):
        for kind in range(10):
            asked = {"word": WORDS[kind]} if kind < 5 else {"starts": STARTS[kind - 5]}
            made.append(
                Sentence(
                    f"{frame + 1}-{kind + 1}", (before, between, after), (first, second),
                    SYLLABLES[(frame + kind) % 5], **asked,  # type: ignore[arg-type]
                )
            )  # fmt: skip
    return made


class Rules(Verifier):
    """The share of rules that a filled sentence keeps, with a little for a near miss; 1 is all."""

    name = "korean rules"
    satisfied_at = 1.0

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        found = dict(violations(self.sentence, text))
        parts = {rule: 1 / (1 + misses) for rule, (misses, _) in found.items()}
        spans = sorted({span for _, spans in found.values() for span in spans})
        return Score(sum(parts.values()) / len(parts), parts, spans)


def violations(sentence: Sentence, text: str) -> Iterator[tuple[str, tuple[float, list[Span]]]]:
    """Of every rule, how far the text is from keeping it, and which characters are to blame."""
    holes = sentence.filled(text)
    if holes is None:
        yield "known words", (1, [(0, len(text))])
        return
    words = [match.span() for start, stop in holes for match in _WORD.finditer(text, start, stop)]
    foreign = [match.span() for a, b in holes for match in _FOREIGN.finditer(text, a, b)]
    yield "hangul", (len(foreign), foreign)
    count = Counter(match[0].strip(".") for match in _WORD.finditer(text))
    twice = [(a, b) for a, b in words if count[text[a:b]] > 1]
    yield "repetition", (len(twice), twice)
    alone = [(a, b) for a, b in words if text[a:b] in PARTICLES]
    yield "loose particle", (len(alone), alone)
    wrong = [(a, b) for a, b in words if _wrong_object(text[a:b])]
    yield "object particle", (len(wrong), wrong)
    syllables = sum("가" <= letter <= "힣" for a, b in holes for letter in text[a:b])
    outside = max(0, abs(syllables - sentence.syllables) - 1)
    yield "syllables", (outside, words if outside else [])
    if sentence.word:
        missing = sentence.word not in text.split()
        yield "required word", (missing, [])
    else:
        firsts = [next((w for w in words if a <= w[0] < b), (a, b)) for a, b in holes]
        pairs = zip(firsts, sentence.starts, strict=True)
        others = [(a, b) for (a, b), start in pairs if not text[a:b].startswith(start)]
        yield "acrostic", (len(others), others)


def _wrong_object(word: str) -> bool:
    """Whether a word ends in the object particle that does not fit the syllable before it."""
    if len(word) < 2 or word[-1] not in "을를" or word in ENDING_LIKE_PARTICLES:
        return False
    before = ord(word[-2]) - ord("가")
    if not 0 <= before < 11172:
        return False
    return (before % FINALS > 0) != (word[-1] == "을")
