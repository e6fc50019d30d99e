"""One text, read once for all components.

The components share what is dear to find (the answer and its place, the lower-case text, the
words), so that scoring stays a few tens of microseconds: it runs for every child of every step.
"""

from __future__ import annotations

from s3dlm.answers.delimiters import Found, find
from s3dlm.answers.text import strip_end_tokens


class Reading:
    """A prompt and a text without its trailing end tokens; the rest is found when first asked for."""

    __slots__ = ("_answer", "_lower", "_words", "confidence", "prompt", "text")

    def __init__(self, prompt: str, text: str, confidence: float | None = None) -> None:
        self.prompt = prompt
        self.text = strip_end_tokens(text)
        self.confidence = confidence
        self._answer: Found | bool | None = False
        self._lower: str | None = None
        self._words: list[str] | None = None

    @property
    def answer(self) -> Found | None:
        """The final answer by the cascade, and where it stands."""
        if self._answer is False:
            self._answer = find(self.text)
        return self._answer  # type: ignore[return-value]

    @property
    def lower(self) -> str:
        """The text in lower case."""
        if self._lower is None:
            self._lower = self.text.lower()
        return self._lower

    @property
    def words(self) -> list[str]:
        """The text cut at white space."""
        if self._words is None:
            self._words = self.text.split()
        return self._words
