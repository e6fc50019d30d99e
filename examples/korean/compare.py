"""Fill Korean sentences under exact rules with several methods at equal NFE; another model judges them.

    python -m examples.korean.compare run runs/korean
    python -m examples.korean.compare judge runs/korean --judge gemma-3-270m.gguf
    python -m examples.korean.compare report runs/korean

Every result is one line of JSON, written when it is known; a second call does what is missing. `--every 5`
does a part. `judge` needs `gguf` and `accelerate` and a causal model that reads Korean as a GGUF file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import s3dlm
from examples.antibody.compare import append, read, resume
from examples.antibody.moves import Moves
from examples.korean import model as albert
from examples.korean.rules import Rules, Sentence, sentences, violations
from s3dlm.cli.options import print_table
from s3dlm.evaluation.statistics import bootstrap

BUDGET = 32
OWN = {"required word", "acrostic"}  # a sentence has one of them
SIZE = {"gen_length": 8, "block_length": 8, "steps": 8}  # one token per step, one block
SAMPLED = {"temperature": 1.0, "budget": BUDGET}
ONE_BY_ONE = {"method": "verified_best_of_k", "particles": 1, "branching": 1, **SAMPLED}
METHODS: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "verified_batch": {"method": "verified_best_of_k", "particles": 6, "branching": 1,
                       "temperature": 1.0},
    "s3": {"method": "s3", "lam": 10.0, "selection": "best_seen", **SAMPLED},
    "verified": ONE_BY_ONE,
    "restarts": {"method": "restarts", **SAMPLED},
    "revise": {"method": "revise", "rounds": 0, **SAMPLED},
    "moves": {"method": Moves, "remask_fraction": 0.2, **SAMPLED},
}  # fmt: skip


def run(folder: Path, methods: list[str], chosen: list[Sentence]) -> None:
    model = albert.load(folder / "weights")
    for method in methods:
        path = folder / f"{method}.jsonl"
        done = {record["name"] for record in resume(path)}
        left = [sentence for sentence in chosen if sentence.name not in done]
        settings = s3dlm.Settings(**METHODS[method], **SIZE)
        jobs = [
            s3dlm.Job(
                "", settings=settings, sample_id=sentence.name, verifier=Rules(sentence),
                infill=sentence.template,
            )
            for sentence in left
        ]  # fmt: skip
        for index, event in s3dlm.run(model, jobs, max_rows=8):
            if isinstance(event, s3dlm.Result):
                score = Rules(left[index]).score("", event.text)
                record = {"name": left[index].name, "text": event.text.removesuffix(" [SEP]")}
                append(path, {**record, "nfe": event.nfe, "score": score.total})
        print(f"{method}: {len(left)} sentences filled", flush=True)


@torch.inference_mode()
def judge(folder: Path, methods: list[str], gguf: Path) -> None:
    """The mean log-probability per token of every filled sentence under a causal model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    network = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    path = folder / "judged.jsonl"
    known = {record["text"] for record in resume(path)}
    for method in methods:
        for record in read(folder / f"{method}.jsonl"):
            if record["text"] in known:
                continue
            own = tokenizer(record["text"], add_special_tokens=False).input_ids
            ids = torch.tensor([[tokenizer.bos_token_id, *own]])
            logp = network(ids).logits[0, :-1].log_softmax(-1)
            value = float(logp.gather(1, ids[0, 1:, None]).mean())
            append(path, {"text": record["text"], "logp": value})
            known.add(record["text"])


def report(folder: Path, methods: list[str]) -> None:
    """Share of sentences that keep all rules, and all but their own one; passes; the judge's opinion."""
    logp = {record["text"]: record["logp"] for record in read(folder / "judged.jsonl")}
    asked, rows = {sentence.name: sentence for sentence in sentences()}, []
    for method in methods:
        records = read(folder / f"{method}.jsonl")
        if not records:
            continue
        broken = [
            {
                rule
                for rule, (misses, _) in violations(asked[record["name"]], record["text"])
                if misses
            }
            for record in records
        ]
        fluent = [logp[record["text"]] for record in records if record["text"] in logp]
        nfe = f"{np.mean([record['nfe'] for record in records]):.1f}"
        cells = (_share(not each for each in broken), _share(not each - OWN for each in broken))
        judged = "–"
        if fluent:
            opinion, _ = bootstrap([fluent])
            judged = f"{opinion.value:.2f} ({opinion.low:.2f} to {opinion.high:.2f})"
        rows.append((method, str(len(records)), *cells, nfe, judged))
    columns = ("method", "sentences", "all rules", "all but its own", "NFE", "log p per token")
    print_table(columns, rows, "Korean")


def _share(kept: Iterable[bool]) -> str:
    value, _ = bootstrap([[float(each) for each in kept]])
    return f"{100 * value.value:.0f} % ({100 * value.low:.0f}–{100 * value.high:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["run", "judge", "report"])
    parser.add_argument("folder", type=Path, help="for records and converted weights")
    parser.add_argument("--methods", default=",".join(METHODS), help="separated by commas")
    parser.add_argument("--every", type=int, default=1, help="only every n-th sentence")
    parser.add_argument("--judge", type=Path, help="a GGUF file of a causal model")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    methods = given.methods.split(",")
    if given.action == "run":
        run(given.folder, methods, sentences()[:: given.every])
    elif given.action == "report":
        report(given.folder, methods)
    elif given.judge is None or not given.judge.is_file():
        parser.error(f"--judge {given.judge} is no file; give a causal model as GGUF")
    else:
        judge(given.folder, methods, given.judge)


if __name__ == "__main__":
    main()
