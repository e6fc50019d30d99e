"""Answers by schemas, seeds and methods, each of which must be valid: the guarantee, tried out."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jsonschema import Draft202012Validator, ValidationError

import s3dlm
from benchmarks.structure.schemas import schema
from s3dlm.diffusion.grammar import Grammar
from s3dlm.engine import events
from s3dlm.extras.structure.closing import Vocabulary
from s3dlm.extras.structure.structure import compiled
from s3dlm.job import Job
from s3dlm.models.base import Model
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.search.step import Step
from s3dlm.settings import Settings

QUESTION = (
    "Zoe has 9 packs of 5 shells. She buys 8 packs of 6. How many shells does she have in the end?"
)
SMALL = {"particles": 2}
TURNS = {**SMALL, "look_aheads": 2, "budget": 20}
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {}, "greedy": {}, "s3": {**SMALL, "branching": 2}, "best_of_k": SMALL, "hex": {},
    "tilting": SMALL, "revise": TURNS, "temporal_vote": {}, "restarts": TURNS,
    "adaptive_vote": {"budget": 12}, "particle_gibbs": SMALL, "twisted": SMALL, "prism": {},
}  # fmt: skip
TASK = "arithmetic"  # of the question
LONGEST = 100  # tokens of a canvas
ROWS, PORTION = 256, 130  # canvases in one pass; triples that are tried together
SPARE = (0, 0, 1, 2, 4, 8, 20, 40)  # tokens beyond the shortest instance


def shortest(model: Model, grammar: Any) -> int:
    """Tokens of the shortest answer that was found for a grammar."""
    return len(compiled(Vocabulary.of(model), Grammar.of(grammar)).shortest)


def untrained(tiny: Model, name: str = "random", **shape: Any) -> Model:
    """A network with random weights, of LLaDA's shape or another, with the tokens of `tiny`."""
    torch.manual_seed(0)
    network = tiny.denoiser
    assert isinstance(network, Transformer)
    config = replace(network.config, **shape)
    return replace(tiny, name=name, denoiser=Transformer(config).requires_grad_(False).eval())


@cache
def models() -> list[Model]:
    """`tiny`, and small networks with random weights: bidirectional and block-causal ones."""
    tiny, small = s3dlm.load("tiny"), {"width": 32, "layers": 1, "hidden": 64}
    sdar = {"causal_block": 4, "key_value_heads": 2, "qk_norm": True}
    fast = {"causal_block": 8, "qkv_bias": True, "shift": True}
    return [
        tiny,
        untrained(tiny, "LLaDA-shaped", **small),
        untrained(tiny, "SDAR-shaped", **small, **sdar),
        untrained(tiny, "Fast-dLLM-shaped", **small, **fast),
    ]


@dataclass(frozen=True, slots=True)
class Triple:
    """What is asked: with room for the shortest instance of the schema, and a little more or none."""

    seed: int
    schema: dict[str, Any]
    method: str
    length: int  # tokens of the canvas

    @classmethod
    def of(cls, model: Model, seed: int) -> Triple:
        rng = random.Random(seed)
        wanted, method = schema(rng), list(METHODS)[seed % len(METHODS)]
        length = max(2, shortest(model, wanted) + rng.choice(SPARE))
        return cls(seed, wanted, method, length)

    def job(self, model: Model) -> Job:
        """As `generate` would make it."""
        own = {} if self.method == "greedy" else {"temperature": 1.0}
        settings = Settings.for_model(
            model, self.method, TASK, gen_length=self.length, reveal="threshold",
            seed=self.seed, **own,
            **METHODS[self.method],
        )  # fmt: skip
        return Job(QUESTION, TASK, settings, grammar=self.schema)

    def wrong(self, result: Any) -> str:
        """What is wrong with the answer, or with one that it was chosen from; nothing if all are valid."""
        if not isinstance(result, Result):
            return f"{type(result).__name__}: {result}"
        validator = Draft202012Validator(self.schema)
        try:
            for text in (result.text, *(survivor.text for survivor in result.survivors)):
                validator.validate(json.loads(text))
        except (ValueError, ValidationError) as error:
            return f"{type(error).__name__}: {str(error)[:200]} in {text!r}"
        return ""


def triples(model: Model, seeds: range) -> list[Triple]:
    """One for each seed, but for canvases that are too long to be tried."""
    made = (Triple.of(model, seed) for seed in seeds)
    return [triple for triple in made if triple.length <= LONGEST]


def failures(model: Model, asked: Sequence[Triple]) -> list[str]:
    """Answer them together, and say what is wrong with which."""
    found = []
    for index, event in events(model, [triple.job(model) for triple in asked], ROWS):
        if event is not None and not isinstance(event, Step):
            triple = asked[index]
            if why := triple.wrong(event):
                found.append(f"seed {triple.seed}, {model.name}, {triple.method}: {why}")
    return found


def run(count: int, first: int = 0) -> int:
    """Try at least so many, each portion with another model, print what failed, and return how many did."""
    known, done, failed = models(), 0, 0
    for model, start in zip(itertools.cycle(known), itertools.count(first, PORTION)):
        asked = triples(model, range(start, start + PORTION))
        wrong = failures(model, asked)
        done, failed = done + len(asked), failed + len(wrong)
        print(
            *wrong,
            f"{done - failed} of {done} valid, up to seed {start + PORTION - 1}",
            sep="\n",
            flush=True,
        )
        if done >= count:
            return failed
    raise AssertionError
