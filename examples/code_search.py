"""A search for a program: the verifier runs the examples of the prompt in the sandbox at every step.

The model is a toy that knows which pieces of code may appear where, and slightly prefers the wrong
ones. Hidden tests grade the outcome; the search never sees them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

import s3dlm
from s3dlm.answers.grading import grade
from s3dlm.models.base import Defaults, Tokenizer

QUESTION = '''def spread(numbers: list) -> int:
    """The largest number minus the smallest.
    >>> spread([3, 1, 7])
    6
    >>> spread([5])
    0
    """
'''
HIDDEN = {
    "setup": "",
    "tests": "assert spread([2, 9, 4]) == 7\nassert spread([-1, -5]) == 4\n",
    "remote": ["spread"],
}
PLACES = [  # what the model would write at each place, and how much it likes it
    {"    return ": 9.0},
    {"sum": 3.0, "max": 2.8},
    {"(number)": 3.0, "(numbers)": 2.8},
    {" + ": 3.0, " - ": 2.8},
    {"len": 3.0, "min": 2.8},
    {"(numbers": 3.0, "(numbers)": 2.8},
]
PIECES = sorted({piece for place in PLACES for piece in place})
FIRST = 256  # the prompt is written in bytes, the answer in pieces
MASK, END = FIRST + len(PIECES), FIRST + len(PIECES) + 1


class Pieces(Tokenizer):
    """A tokenizer for the two."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(PIECES[i - FIRST] for i in ids if FIRST <= i < MASK)

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


class Toy(s3dlm.Denoiser):
    """A denoiser whose features are its logits."""

    mask_id, vocabulary, context = MASK, END + 1, 512

    def __init__(self, prompt_length: int) -> None:
        self.table = torch.full((self.context, self.vocabulary), -9.0)
        for index, place in enumerate(PLACES):
            for piece, liking in place.items():
                self.table[prompt_length + index, FIRST + PIECES.index(piece)] = liking
        self.table[prompt_length + len(PLACES) :, END] = 9.0

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.table[: tokens.shape[1]].expand(len(tokens), -1, -1)

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


defaults = Defaults(prompt_style="tiny")  # the bare question, as for any base model
model = s3dlm.Model("toy", Toy(len(QUESTION.encode())), Pieces(), frozenset({END}), defaults)
decoding = {"gen_length": 8, "steps": 8, "block_length": 8, "policy": "random", "temperature": 1.0}
search = {
    "particles": 16, "branching": 8, "lam": 10.0,
    "child_sampling": "filled", "selection": "best_seen",
}  # fmt: skip
for method, own in (("baseline", {}), ("s3", search)):
    settings = s3dlm.Settings(method=method, **decoding, **own)
    result = s3dlm.generate(model, QUESTION, task="humaneval", settings=settings)
    passed = grade("code", result.text, HIDDEN, question=QUESTION)
    print(f"{method:9} {'passed' if passed else 'failed'}  {result.text.strip()}")
