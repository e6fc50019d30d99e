"""Fill missing antibody loops with several methods at equal NFE, and let the other model judge them.

    python -m examples.antibody.compare run sapiens runs/antibody
    python -m examples.antibody.compare judge sapiens runs/antibody
    python -m examples.antibody.report runs/antibody

Every result is one line of JSON, written when it is known; a second call does what is missing. Runs of
different methods may go on side by side (`--methods`), each with one thread.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import s3dlm
from examples.antibody import models
from examples.antibody.frameworks import TEST, TUNING, Loop
from examples.antibody.moves import Moves
from examples.antibody.rules import Rules

OTHER = {"sapiens": "antiberty", "antiberty": "sapiens"}
BUDGET = 48  # forward passes per loop, the most of every method but greedy
RESIDUES_PER_STEP = 2
SAMPLED = {"temperature": 1.0, "budget": BUDGET}
ONE_BY_ONE = {"method": "verified_best_of_k", "particles": 1, "branching": 1, **SAMPLED}
MOVES = {"method": Moves, "remask_fraction": 0.08, **SAMPLED}  # about one residue at a time

# What each method adds to its own defaults. All share verifier, budget and stopping rule; restarts
# and moves are made one by one, so that they stop as soon as they can. Only the fixed batch of samples
# begins with no greedy loop and never stops early.
METHODS: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "vote": {"method": "best_of_k", **SAMPLED},
    "verified": ONE_BY_ONE,
    "verified_batch": {"method": "verified_best_of_k", "branching": 1, "temperature": 1.0},
    "s3": {"method": "s3", "lam": 10.0, "selection": "best_seen", **SAMPLED},
    "revise": {"method": "revise", "rounds": 0, **SAMPLED},  # as many rounds as the budget pays for
    "restarts": {"method": "restarts", **SAMPLED},
    "moves_random": {**MOVES, "remask": "random"},
    "moves": MOVES,
    # Faster paces: more samples for the same NFE, which ignore more of how residues depend on each other.
    "verified_four": {**ONE_BY_ONE, "per_step": 4},
    "moves_four": {**MOVES, "per_step": 4},
    "verified_one_step": {**ONE_BY_ONE, "per_step": 99},
    "moves_one_step": {**MOVES, "per_step": 99},
}


def settings(method: str, loop: Loop) -> s3dlm.Settings:
    """A method's settings for a loop: one block, a few residues per step."""
    own = dict(METHODS[method])
    steps = -(-loop.length // own.pop("per_step", RESIDUES_PER_STEP))
    size = {"gen_length": loop.length, "block_length": loop.length, "steps": steps}
    if method == "verified_batch":  # equal canvases share about a third of the passes
        size["particles"] = 3 * BUDGET // (2 * (steps - 1))
    return s3dlm.Settings(**own, **size)


def fill(model: s3dlm.Model, method: str, loops: list[Loop]) -> Iterator[dict[str, Any]]:
    """One record per loop, in the order in which they are finished."""
    jobs = [
        s3dlm.Job(one.chain, settings=settings(method, one), sample_id=one.name, verifier=Rules())
        for one in loops
    ]
    for index, event in s3dlm.run(model, jobs, max_rows=8):
        if isinstance(event, s3dlm.Result):
            score = Rules().score(loops[index].chain, event.text)
            yield {
                "loop": loops[index].name,
                "method": method,
                "text": event.text,
                "nfe": event.nfe,
                "score": score.total,
                "parts": dict(score.parts),
                "settings": event.settings.hash(),
            }


@torch.inference_mode()
def pseudo_log_likelihood(model: s3dlm.Model, chain: str, loop: str) -> float:
    """Mean log-probability of each residue of a loop, given all others."""
    prompt, own = model.tokenizer.chat(chain), model.tokenizer.encode(loop)
    rows = torch.tensor([prompt + own] * len(own))
    place = torch.arange(len(own))
    rows[place, len(prompt) + place] = model.denoiser.mask_id
    logits = model.denoiser.encode(rows)[place, len(prompt) + place]
    logp = model.denoiser.head(logits).log_softmax(-1)
    return float(logp[place, torch.tensor(own)].mean())


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file; a last line that was cut off is left out."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def resume(path: Path) -> list[dict[str, Any]]:
    """The records of a file that is about to grow; a line that was cut off is deleted."""
    records = read(path)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return records


def append(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def run(model: s3dlm.Model, folder: Path, methods: list[str], loops: list[Loop]) -> None:
    for method in methods:
        path = folder / f"{method}.jsonl"
        done = {(one["loop"], one["settings"]) for one in resume(path)}
        left = [one for one in loops if (one.name, settings(method, one).hash()) not in done]
        for record in fill(model, method, left):
            append(path, record)
        print(
            f"{method}: {len(left)} loops filled, {len(loops) - len(left)} were there", flush=True
        )


def judge(model: s3dlm.Model, folder: Path, methods: list[str], loops: list[Loop]) -> None:
    """Pseudo-likelihoods of all filled loops; loops that several methods found are judged once."""
    path, chains = folder / "judged.jsonl", {one.name: one.chain for one in loops}
    known = {(one["loop"], one["text"]) for one in resume(path)}
    for method in methods:
        for one in read(folder / f"{method}.jsonl"):
            key = (one["loop"], one["text"])
            if key not in known and one["loop"] in chains:
                value = pseudo_log_likelihood(model, chains[one["loop"]], one["text"])
                append(path, {"loop": key[0], "text": key[1], "pll": value})
                known.add(key)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill antibody loops, or judge filled ones.")
    parser.add_argument("action", choices=["run", "judge"])
    parser.add_argument("model", choices=list(OTHER), help="the model that fills the loops")
    parser.add_argument("folder", type=Path, help="for records and converted weights")
    parser.add_argument("--methods", default=",".join(METHODS), help="names, separated by commas")
    parser.add_argument(
        "--every", type=int, default=1, help="only every n-th loop; 3 has all genes"
    )
    parser.add_argument(
        "--tuning", action="store_true", help="the loops that settings are tuned on"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    name = given.model if given.action == "run" else OTHER[given.model]
    model = models.load(name, given.folder / "weights")
    records = given.folder / (given.model + "-tuning" * given.tuning)
    records.mkdir(parents=True, exist_ok=True)
    loops = (TUNING if given.tuning else TEST)[:: given.every]
    {"run": run, "judge": judge}[given.action](model, records, given.methods.split(","), loops)


if __name__ == "__main__":
    main()
