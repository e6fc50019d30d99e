"""A model's tokens as grammars see them, and the ways to the end of a text.

A way is found on a copy of the matcher, by what closes a text soonest: a quote inside a string, a bracket
elsewhere, then a digit rather than a letter; or by short texts of the regular expressions in the grammar. It
need not be the shortest there is, but it is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from s3dlm.models.base import Model

Ids = tuple[int, ...]
Words = NDArray[np.int32]  # a bit for each token

FARTHEST = 4096  # tokens of a way to the end
STRAIGHT = 256  # choices after which a quick way seems to go in circles
WIDTH, WORK = 32, 4000  # tokens that are tried at a fork of the shortest way; those of all trials

# Characters in the order in which they end a text soonest, inside a string and elsewhere.
CLOSING = ("\"}])>';/,:", "}])>\"';/,:")
LETTERS = "ntfaeioubcdghjklmpqrsvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
OTHERS = f"@._=0123456789{LETTERS}-+*!?#%&|~^$`\\[(<{{ \n"
FREE = "~"  # where this may stand, the text is free
RUN = 1000  # bytes that follow by necessity, after which a text seems never to end


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """A model's tokens as bytes."""

    tokenizer: LLTokenizer
    possible: Words  # tokens that the model can write at all
    orders: tuple[Ids, Ids]  # single characters, those that end a text soonest first
    free: int | None  # the token that stands only where the text is free
    ends: Ids
    bytes_: Ids  # one for each byte; none if no text can be forced for ever
    samples: tuple[Ids, ...] = ()  # short texts of the grammar's expressions
    quote: Ids = ()  # of JSON, which needs no such text where a string may end

    @property
    def end(self) -> int:
        """The token that ends a text when it must end."""
        return self.ends[0]

    @classmethod
    def of(cls, model: Model) -> Vocabulary:
        """The vocabulary of a model."""
        backend, ends = model.tokenizer.backend, tuple(sorted(model.end_ids))
        if backend is None or not ends:
            missing = "no end token" if backend is not None else "a tokenizer of another kind"
            raise SettingsError(
                f"{model.name} cannot follow a grammar: it has {missing}; leave the grammar out"
            )
        network = model.denoiser
        return _vocabulary(
            backend, network.vocabulary, network.text_vocabulary, network.mask_id, ends
        )


@lru_cache(8)
def _vocabulary(
    backend: Any, size: int, text_size: int | None, mask_id: int, ends: Ids
) -> Vocabulary:
    from llguidance import LLTokenizer

    size = max(size, backend.get_vocab_size())
    try:
        tokenizer = LLTokenizer(backend.to_str(), n_vocab=size, eos_token=list(ends))
    except Exception as error:  # whatever the compiler of tokenizers says
        raise ModelError(f"the model's tokenizer cannot follow grammars: {error}") from error
    bits = np.zeros(-(-size // 32) * 32, np.uint8)
    bits[: size if text_size is None else text_size] = 1
    bits[mask_id] = 0
    single = {
        char: tokenizer.greedy_tokenize(char) for closing in CLOSING for char in closing + OTHERS
    }
    orders = [
        tuple(single[char][0] for char in closing + OTHERS if len(single[char]) == 1)
        for closing in CLOSING
    ]
    free = single[FREE][0] if len(single[FREE]) == 1 else None
    byte_of = {tokenizer.decode_bytes([token]): token for token in range(size)}
    possible = np.packbits(bits, bitorder="little").view(np.int32)
    bytes_ = tuple(token for read, token in byte_of.items() if len(read) == 1)
    return Vocabulary(tokenizer, possible, (orders[0], orders[1]), free, ends, bytes_)


def shortest(vocabulary: Vocabulary, matcher: LLMatcher) -> Ids | None:
    """A way to the end: the shortest of those that leave the quick one at a fork and are quick from there."""
    best, work = quick(vocabulary, matcher), 0
    now, path = matcher.deep_copy(), Ids()
    while best is not None and len(path) < len(best) and not now.is_accepting():
        step = forced(vocabulary, now)
        forks = [] if step else options(vocabulary, now, WIDTH)
        found = {}
        for token in forks if len(forks) > 1 and work < WORK else ():
            fork = now.deep_copy()
            fork.consume_token(token)
            rest = quick(vocabulary, fork)
            work += STRAIGHT if rest is None else len(rest)
            if rest is not None:
                found[token] = rest
        if found:
            token = min(found, key=lambda each: len(found[each]))
            best = min(best, (*path, token, *found[token]), key=len)
            step = [token]
        step = step or forks[:1]
        now.consume_tokens(step)
        path += tuple(step)
    return best


def quick(vocabulary: Vocabulary, matcher: LLMatcher) -> Ids | None:
    """The way to the end that takes the first closing token everywhere; if that goes round in circles,
    the one that writes texts of the grammar's expressions where they fit; then the one that takes what was taken
    least. None: there is none of `FARTHEST` tokens."""
    everything = len(vocabulary.orders[0])
    ways = (((), 1, STRAIGHT), (vocabulary.samples, 1, STRAIGHT), ((), everything, FARTHEST))
    for samples, width, most in ways:
        now, path, taken = matcher.deep_copy(), list[int](), Counter[int]()
        left = samples  # since the last other token; the same one may fit again and again
        while len(path) <= FARTHEST and taken.total() <= most and not now.is_error():
            if now.is_accepting():
                return merged(vocabulary, matcher, path)
            step = forced(vocabulary, now)
            if step:
                left = samples
            elif fits := _fitting(vocabulary, now, left):
                step, left = [*fits], tuple(each for each in left if each != fits)
            else:
                forks = options(vocabulary, now, width)
                step, left = sorted(forks, key=taken.__getitem__)[:1], samples
                taken.update(step)
            if not step or not now.consume_tokens(step):
                break
            path += step
    return None


def _fitting(vocabulary: Vocabulary, matcher: LLMatcher, samples: Sequence[Ids]) -> Ids:
    """The first of some texts that may follow; nothing if none may, or a string may end here."""
    if not samples or (vocabulary.quote and _takes(matcher, vocabulary.quote)):
        return ()
    return next((each for each in samples if _takes(matcher, each)), ())


def _takes(matcher: LLMatcher, tokens: Ids) -> bool:
    """Whether all of these tokens may follow."""
    return matcher.validate_tokens([*tokens]) == len(tokens)


def in_tokens(vocabulary: Vocabulary, texts: Iterable[str]) -> tuple[Ids, ...]:
    """Texts that are neither empty nor too long, in tokens."""
    read = vocabulary.tokenizer.greedy_tokenize
    return tuple(tuple(read(text)) for text in texts if 0 < len(text) <= FARTHEST)


def options(vocabulary: Vocabulary, matcher: LLMatcher, most: int) -> list[int]:
    """Some of the tokens that may follow, those first that end the text soonest."""
    free = vocabulary.free is not None and matcher.validate_tokens([vocabulary.free])
    order = vocabulary.orders[0 if free else 1]
    found = list(islice((token for token in order if matcher.validate_tokens([token])), most))
    return found or ids(mask(vocabulary, matcher))[:most].tolist()


def merged(vocabulary: Vocabulary, matcher: LLMatcher, path: list[int]) -> Ids:
    """The same text in as few tokens as the tokenizer knows to write it in."""
    tokenizer = vocabulary.tokenizer
    text = tokenizer.decode_bytes(path)
    found = [path, tokenizer.tokenize_bytes(text)]
    with suppress(UnicodeDecodeError):  # the end of a character whose beginning is on the canvas
        found.append(tokenizer.greedy_tokenize(text.decode()))
    fitting = [each for each in found if _takes(matcher, tuple(each))]
    return tuple(sorted(fitting, key=len)[0])


def forced(vocabulary: Vocabulary, matcher: LLMatcher) -> list[int]:
    """The tokens that must follow."""
    check_ends(vocabulary, matcher)
    return matcher.compute_ff_tokens()


def check_ends(vocabulary: Vocabulary, matcher: LLMatcher) -> None:
    """Refuse a text that must go on for ever, on which the compiler would work for ever: in the Lark grammar
    /a+/ "a" the expression takes every a, so another one must follow."""
    if not vocabulary.bytes_:
        return
    now = matcher.deep_copy()
    for _ in range(RUN):
        options = (token for token in vocabulary.bytes_ if now.validate_tokens([token]))
        following = list(islice(options, 2))
        if len(following) != 1 or now.is_accepting():
            return
        now.consume_tokens(following)
    raise SettingsError(
        "the lark grammar has a text that never ends: a regular expression takes what must follow it, as in "
        '/a+/ "a"; let it stop before that'
    )


def mask(vocabulary: Vocabulary, matcher: LLMatcher) -> Words:
    """The tokens that may follow."""
    check_ends(vocabulary, matcher)
    words = np.frombuffer(matcher.compute_bitmask(), np.int32)
    return words[: vocabulary.possible.size] & vocabulary.possible


def ids(words: Words) -> NDArray[np.int64]:
    """The tokens whose bits are set."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
