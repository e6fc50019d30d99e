"""A grammar in one model's tokens, and what one search knows of it.

`Structure` says which tokens may follow a text and which must, and it knows a way to the end of every text on a
canvas. As long as that way fits into what is left of the canvas, every answer is complete. A way is found by
trying closing tokens on a copy of the matcher, and kept with the text.

All is bounded, since grammars come from clients: what the compiler may spend, each mask, and all the work for
one search. Compiled grammars are kept, so that the next request with the same one finds it ready.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.diffusion.grammar import Grammar
from s3dlm.errors import SettingsError
from s3dlm.extras.structure.closing import (
    FARTHEST,
    Ids,
    Vocabulary,
    Words,
    forced,
    ids,
    in_tokens,
    mask,
    options,
    quick,
    shortest,
)
from s3dlm.extras.structure.samples import samples

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from llguidance._lib import JsonCompileOptions

LIMITS = {  # of the compiler: about 100 ms to compile, and 10 ms for a mask
    "max_grammar_size": 50_000, "initial_lexer_fuel": 100_000, "max_lexer_states": 20_000,
    "step_lexer_fuel": 20_000, "step_max_items": 20_000, "max_items_in_row": 1000,
    "precompute_large_lexemes": False, "verbose_errors": False,
}  # fmt: skip
JSON_OPTIONS: JsonCompileOptions = {  # fixed, whatever a schema says under x-guidance
    "whitespace_flexible": False, "whitespace_pattern": None, "item_separator": ",",
    "key_separator": ":", "lenient": False, "coerce_one_of": False,
    # Not \b and \f: a model that writes \boxed or \frac means neither.
    "json_allowed_escapes": '"\\nrtu',
}  # fmt: skip
SECONDS = 30.0  # of the processor, for the grammar of one search
COMPILED = 64  # grammars that are kept compiled
NEAR, TRIED = 3, 16  # positions to spare below which tokens are tried one by one, and how many
MATCHERS, WAYS = 256, 1 << 16  # texts whose matcher and whose way to the end are kept


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A grammar in a model's tokens, before the first of them."""

    vocabulary: Vocabulary
    matcher: LLMatcher
    shortest: Ids  # of all texts that were found


@lru_cache(COMPILED)
def compiled(vocabulary: Vocabulary, grammar: Grammar) -> Compiled:
    """A grammar in a model's tokens; what cannot be compiled within the limits is refused."""
    from llguidance import LLMatcher, LLParserLimits

    try:
        source, limits = source_of(grammar), LLParserLimits(**LIMITS)  # type: ignore[arg-type]
        matcher = LLMatcher(vocabulary.tokenizer, source, log_level=0, limits=limits)
        why = matcher.get_error()
    except ValueError as error:
        why = str(error)
    if why:
        raise SettingsError(
            f"the {grammar.kind} grammar cannot be used: {' '.join(why.split())[:300]}"
        )
    if grammar.kind != "lark":  # one expression alone, and those of JSON, end before what follows
        vocabulary = replace(vocabulary, bytes_=())
    texts, quotes = in_tokens(vocabulary, samples(grammar)), in_tokens(vocabulary, ['"'])
    quote = quotes[0] if grammar.kind == "json" else ()
    vocabulary = replace(vocabulary, samples=texts, quote=quote)
    way = next((each for each in vocabulary.samples if _ends(matcher, each)), None)
    way = shortest(vocabulary, matcher) if way is None else way
    if way is None:
        raise SettingsError(
            f"no end of the {grammar.kind} grammar was found within {FARTHEST} tokens; give a grammar whose "
            "end is easier to reach"
        )
    return Compiled(vocabulary, matcher, way)


def source_of(grammar: Grammar) -> str:
    """A grammar as llguidance reads it; white space between the parts of JSON is fixed."""
    from llguidance import LLMatcher

    if grammar.kind == "json":
        return LLMatcher.grammar_from_json_schema(grammar.text, overrides=JSON_OPTIONS)
    known = {"regex": LLMatcher.grammar_from_regex, "lark": LLMatcher.grammar_from_lark}
    return known[grammar.kind](grammar.text)


class Structure:
    """A compiled grammar for one search.

    A text is a tuple of tokens from the start of the answer. Every text that a canvas holds has its way to
    the end, which fits on the canvas.

    Args:
        grammar: In the model's tokens.
        length: Tokens of the longest answer.
    """

    def __init__(self, grammar: Compiled, length: int) -> None:
        needed = len(grammar.shortest)
        if needed > length:
            raise SettingsError(
                f"the shortest answer that was found for the grammar has {needed} tokens, and gen_length is "
                f"{length}; choose gen_length={needed} or more (max_tokens)"
            )
        self.vocabulary, self.length, self.end = grammar.vocabulary, length, grammar.vocabulary.end
        self._root = grammar.matcher
        self._matchers: dict[bytes, LLMatcher] = {}
        self._ways: dict[bytes, Ids | None] = {_key(()): grammar.shortest}
        self._seconds = self._entered = 0.0
        self.begun = self.forced(())  # what must stand at the beginning of every text

    def __enter__(self) -> None:
        self._entered = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._seconds += time.thread_time() - self._entered
        if self._seconds > SECONDS:
            raise SettingsError(
                f"the grammar took more than {SECONDS:g} s of work; give a simpler one, or search less"
            )

    def allowed(self, text: Ids) -> Words:
        """The tokens that may follow a text so that the end stays in reach."""
        matcher, way = self._matcher(text), self._known(text)
        words = mask(self.vocabulary, matcher)
        self._check(matcher)
        if len(text) + len(way) + NEAR <= self.length:
            return words
        near = options(self.vocabulary, matcher, TRIED)
        kept = [token for token in near if self.taken(text, (token,))]
        bits = np.zeros(words.size * 32, np.uint8)
        bits[[*kept, *self._onward(text)]] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)

    def taken(self, text: Ids, tokens: Ids) -> int:
        """How many of the tokens a text takes so that the end stays in reach."""
        tokens = tokens[: self.length - len(text)]
        taken, less = self._matcher(text).validate_tokens(list(tokens)), 1
        while taken > 0:
            way = self.way(text, tokens[:taken])
            if way is not None and len(text) + taken + len(way) <= self.length:
                break
            taken, less = taken - less, 2 * less
        return max(0, taken)

    def grown(self, text: Ids, tokens: Ids) -> tuple[Ids, int]:
        """The text with as many sampled tokens as it takes, but at least one more, and with all that must
        follow; and how many of the sampled ones it took."""
        plain = self._plain(tokens)
        count = self.taken(text, plain)
        now = text + plain[:count]
        if count == len(plain) < len(tokens) and not self._known(now):
            return (*now, self.end), count + 1
        return self.forced(now if count else text + self._onward(text)), count

    def completed(self, text: Ids, tokens: Ids) -> tuple[Ids, int]:
        """The text with as many predicted tokens as it takes, to its end; and how many it took."""
        plain = self._plain(tokens)
        count = self.taken(text, plain)
        now = text + plain[:count]
        return now + self._known(now), count

    def forced(self, text: Ids) -> Ids:
        """The text with all that must follow."""
        while len(text) < self.length:
            matcher = self._matcher(text)
            self._check(matcher)
            step = tuple(forced(self.vocabulary, matcher))
            if step:
                text += step[: self.taken(text, step)] or self._onward(text)
                continue
            only = [self.end] if matcher.is_stopped() else ids(self.allowed(text)).tolist()
            if len(only) > 1:
                break
            text += tuple(only)
            if only == [self.end]:
                break
        return text

    def way(self, text: Ids, more: Ids = ()) -> Ids | None:
        """The way to the end of a text, followed by more tokens; None if there is none."""
        key = _key(text + more)
        if key not in self._ways:
            matcher, before = self._matcher(text, more), self._ways.get(_key(text)) or ()
            # Often it is the last part of the way that led on from before.
            parts = (before[start:] for start in range(len(before), -1, -1))
            found = next((part for part in parts if _ends(matcher, part)), None)
            self.remember(text + more, quick(self.vocabulary, matcher) if found is None else found)
        return self._ways[key]

    def remember(self, text: Ids, way: Ids | None) -> None:
        """Keep a way to the end of a text."""
        if len(self._ways) > WAYS:
            del self._ways[next(iter(self._ways))]
        self._ways[_key(text)] = way

    def _onward(self, text: Ids) -> Ids:
        """The next token on the way to the end of a text."""
        step = self._known(text)[:1]
        if step:
            self.way(text, step)  # the rest of the way, which is kept with the longer text
        return step or (self.end,)

    def _known(self, text: Ids) -> Ids:
        """The way to the end of a text that a canvas holds."""
        way = self.way(text)
        if way is None:
            raise SettingsError("the grammar became too complex: no end of a text was found again")
        return way

    def _plain(self, tokens: Ids) -> Ids:
        """The tokens before the first that ends a text."""
        return tuple(takewhile(lambda token: token not in self.vocabulary.ends, tokens))

    def _matcher(self, text: Ids, more: Ids = ()) -> LLMatcher:
        """Behind a text; not to be changed."""
        key = _key(text + more)
        matcher = self._matchers.pop(key, None)
        if matcher is None:
            matcher = (self._matcher(text) if more else self._root).deep_copy()
            matcher.consume_tokens(list(more or text))
        self._matchers[key] = matcher
        if len(self._matchers) > MATCHERS:
            del self._matchers[next(iter(self._matchers))]
        return matcher

    def _check(self, matcher: LLMatcher) -> None:
        if why := matcher.get_error():
            raise SettingsError(f"the grammar became too complex: {' '.join(why.split())[:300]}")


def _ends(matcher: LLMatcher, way: Ids) -> bool:
    """Whether these tokens end a text."""
    if matcher.validate_tokens(list(way)) < len(way):
        return False
    after = matcher.deep_copy()
    after.consume_tokens(list(way))
    return after.is_accepting()


def _key(text: Ids) -> bytes:
    return blake2b(np.array(text, np.int64).tobytes(), digest_size=16).digest()
