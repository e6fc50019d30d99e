"""Structured output in figures: `python -m benchmarks.structure [--schemas 200] [--problems 50]`.

Schemas by chance on the bundled `tiny` and on a random network of LLaDA's shape with its tokens: share of valid
answers, passes per token, and time of the grammar; and accuracy on arithmetic as free text and as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import replace

import torch

import s3dlm
from benchmarks.structure.schemas import schema
from s3dlm import tasks
from s3dlm.diffusion.closing import Vocabulary
from s3dlm.diffusion.grammar import Grammar
from s3dlm.diffusion.structure import compiled
from s3dlm.models.base import Model
from s3dlm.models.transformer import Transformer

QUESTION = (
    "Zoe has 9 packs of 5 shells. She buys 8 packs of 6. How many shells does she have in the end?"
)
ROOM, LONGEST = 16, 128  # tokens beyond the shortest answer, and of the longest canvas
ANSWER = {
    "type": "object",
    "properties": {"steps": {"type": "string"}, "answer": {"type": "integer"}},
    "required": ["steps", "answer"],
    "additionalProperties": False,
}


def untrained(tiny: Model) -> Model:
    """A network of LLaDA's shape with random weights."""
    torch.manual_seed(0)
    network = tiny.denoiser
    assert isinstance(network, Transformer)
    return replace(tiny, name="random", denoiser=Transformer(network.config).eval())


def schemas(model: Model, count: int) -> None:
    """Print what answers by schemas cost, greedy."""
    from jsonschema import Draft202012Validator

    asked = valid = tokens = passes = 0
    seconds = own = 0.0
    for seed in range(count):
        wanted = schema(random.Random(seed))
        needed = len(compiled(Vocabulary.of(model), Grammar.of(wanted)).shortest)
        if needed + ROOM > LONGEST:
            continue
        begun = time.perf_counter()
        found = s3dlm.generate(
            model, QUESTION, method="greedy", grammar=wanted, gen_length=needed + ROOM
        )
        seconds, own = seconds + time.perf_counter() - begun, own + found.timings["search"]
        asked, tokens, passes = asked + 1, tokens + len(found.token_ids), passes + found.nfe
        valid += Draft202012Validator(wanted).is_valid(json.loads(found.text))
    print(
        f"{model.name}: {valid} of {asked} valid; {passes / tokens:.2f} passes per token; outside the model "
        f"{own / seconds:.0%} of the time, {1000 * own / passes:.2f} ms per pass"
    )


def accuracy(model: Model, count: int) -> None:
    """Print accuracy on arithmetic, free and as JSON, without search and with it."""
    samples = tasks.load(tasks.get("arithmetic"), limit=count).samples
    for method in ("greedy", "s3", "revise"):
        free = formed = passes = 0
        for sample in samples:
            text = s3dlm.generate(model, sample.question, method=method)
            free += text.answer == sample.gold
            made = s3dlm.generate(
                model, sample.question, method=method, grammar=ANSWER, gen_length=96,
                block_length=96,
            )  # fmt: skip
            formed += str(made.parsed["answer"]) == sample.gold
            passes += made.nfe
        total = len(samples)
        print(
            f"arithmetic, {method}: free text {free / total:.0%}, JSON {formed / total:.0%} "
            f"({passes / total:.1f} passes), {total} problems"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--problems", type=int, default=50)
    given = parser.parse_args()
    tiny = s3dlm.load("tiny")
    for model in (tiny, untrained(tiny)):
        schemas(model, given.schemas)
    free = s3dlm.generate(tiny, QUESTION, method="greedy")
    print(f"tiny, free text: {free.nfe / max(1, len(free.token_ids)):.2f} passes per token")
    accuracy(tiny, given.problems)


if __name__ == "__main__":
    main()
