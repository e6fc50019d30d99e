"""Structured output in figures: `python -m benchmarks.structure [--schemas 200] [--problems 50]`.

Random schemas on the bundled `tiny` and on a random network of LLaDA's shape with its tokens: share of valid
answers, passes per token, and time of the grammar; and accuracy on arithmetic as free text, as JSON, and as a
regular expression of the model's own words. `triples --count 10000` tries the guarantee instead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
import time

import s3dlm
from benchmarks.structure.schemas import schema
from benchmarks.structure.triples import QUESTION, run, shortest, untrained
from s3dlm import tasks
from s3dlm.models.base import Model

ROOM, LONGEST = 16, 128  # tokens beyond the shortest answer, and of the longest canvas
ANSWER = {
    "type": "object",
    "properties": {"steps": {"type": "string"}, "answer": {"type": "integer"}},
    "required": ["steps", "answer"],
    "additionalProperties": False,
}
WORDS = re.compile(r"[A-Za-z0-9 ,.=+*/-]+\\boxed\{[0-9]+\}\.?")  # as `tiny` writes an answer


def schemas(model: Model, count: int) -> None:
    """Print what answers by schemas cost, greedy."""
    from jsonschema import Draft202012Validator

    asked = valid = tokens = passes = 0
    seconds = own = processor = 0.0
    for seed in itertools.count():
        if asked == count:
            break
        wanted = schema(random.Random(seed))
        needed = shortest(model, wanted)
        if needed + ROOM > LONGEST:
            continue
        begun = time.process_time()
        found = s3dlm.generate(
            model, QUESTION, method="greedy", grammar=wanted, gen_length=needed + ROOM
        )
        processor += time.process_time() - begun
        seconds, own = seconds + sum(found.timings.values()), own + found.timings["search"]
        asked, tokens, passes = asked + 1, tokens + len(found.token_ids), passes + found.nfe
        valid += Draft202012Validator(wanted).is_valid(json.loads(found.text))
    print(
        f"{model.name}: {valid} of {asked} valid; {passes / tokens:.2f} passes per token; outside the model "
        f"{own / seconds:.0%} of the time, {1000 * processor * own / seconds / passes:.2f} ms of the processor "
        "per pass",
        flush=True,
    )


def free_text(model: Model) -> None:
    """Print what the same question costs without a grammar."""
    found = s3dlm.generate(model, QUESTION, method="greedy")
    print(
        f"{model.name}, free text: {found.nfe / max(1, len(found.token_ids)):.2f} passes per token"
    )


def accuracy(model: Model, count: int) -> None:
    """Print accuracy on arithmetic in three forms, without search and with it."""
    samples = tasks.load(tasks.get("arithmetic"), limit=count).samples
    for method in ("greedy", "s3", "revise"):
        free, words, fields = [], [], []
        for sample in samples:
            text = s3dlm.generate(model, sample.question, method=method)
            free.append(text.answer == sample.gold)
            text = s3dlm.generate(model, sample.question, method=method, grammar=WORDS)
            words.append(text.answer == sample.gold)
            made = s3dlm.generate(
                model, sample.question, method=method, grammar=ANSWER, gen_length=96,
                block_length=96,
            )  # fmt: skip
            fields.append(str(made.parsed["answer"]) == sample.gold)
        shares = (f"{sum(right) / len(samples):.0%}" for right in (free, words, fields))
        print(
            "arithmetic, {}: free text {}, expression {}, JSON {}, {} problems".format(
                method, *shares, len(samples)
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["figures", "triples"], default="figures")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--count", type=int, default=10_000, help="triples")
    parser.add_argument("--first", type=int, default=0, help="the first triple's seed")
    given = parser.parse_args()
    if given.what == "triples":
        sys.exit(run(given.count, given.first) > 0)
    tiny = s3dlm.load("tiny")
    for model in (tiny, untrained(tiny)):
        schemas(model, given.schemas)
        free_text(model)
    if given.problems:
        accuracy(tiny, given.problems)


if __name__ == "__main__":
    main()
