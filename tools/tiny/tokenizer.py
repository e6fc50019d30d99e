"""Builds tiny's tokenizer: byte-level BPE, one token a digit, at most 512 entries.

Compute is tokens, so the frequent words of the tasks become whole tokens. Ordinary BPE would spend
most of so small a vocabulary on the merges leading up to each word; with `ignore_merges` a
whole word needs none. Every byte stays in the vocabulary, so any text encodes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

MASK, END, TURN, START = "<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>", "<|startoftext|>"
ROLES = ("system", "user", "assistant")
SPECIALS = (END, MASK, TURN, START, *(f"<|{role}|>" for role in ROLES))
SIZE = 512
MERGES = 48  # spent on letter pairs, for words that are not in the vocabulary

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

# A digit is always a token of its own. The blank before a number goes with its first digit, or
# stands alone before a single digit, so numbers up to 99 are two tokens long whatever their value:
# a diffusion model must place what comes after a number before it knows the number.
_PIECES = (
    r" ?(?:Start with|Multiply by|Divide by)|\n[0-9](?=[0-9])|\n(?=[0-9])|"
    r" [0-9](?=[0-9:])| (?=[0-9])|[0-9]"
    r"| ?\\boxed\{(?=[0-9][0-9])| ?\\boxed|\}\.| ?</?[a-z]+>|\n[A-D]\."
    r"| ?[A-Za-z]+| ?[^\sA-Za-z0-9]|\s"
)


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def build(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer whose whole words are those that save the most tokens over these texts."""
    corpus = list(texts)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + MERGES, initial_alphabet=alphabet, show_progress=False
    )
    base.train_from_iterator(corpus, trainer)
    learned = json.loads(base.to_str())["model"]
    entries = [*SPECIALS, *sorted(learned["vocab"], key=learned["vocab"].__getitem__)]
    entries += _best_words(corpus, base, set(entries), SIZE - len(entries))
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    merges = [tuple(pair) for pair in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def _best_words(corpus: list[str], base: Tokenizer, known: set[str], count: int) -> list[str]:
    pre_tokenizer = base.pre_tokenizer
    uses = Counter(piece for text in corpus for piece, _ in pre_tokenizer.pre_tokenize_str(text))
    model = base.model
    saved = {
        piece: number * (len(model.tokenize(piece)) - 1)
        for piece, number in uses.items()
        if piece not in known
    }
    return sorted(saved, key=lambda piece: (-saved[piece], piece))[:count]


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """The files that transformers reads, without the network and without foreign code."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
        "bos_token": START,
        "eos_token": END,
        "pad_token": END,
        "mask_token": MASK,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def chat(question: str) -> str:
    """The prompt of one user turn, exactly as the chat template writes it."""
    return f"<|user|>{question}{TURN}<|assistant|>"
