"""Speed × accuracy of the caches for models that read both ways: `python -m benchmarks.fast [problems]`.

On `tiny`, test problems of four tasks, in blocks of 16: our exact path, the approximations, and Fast-dLLM's
published rule run literally. Tokens that went through the network say what a busy machine cannot blur. On the
wide network of random weights: processor time, and how many tokens of the answer stay what they were.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

import s3dlm
from benchmarks.models import TASKS, question_of, wide
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.models.base import Model
from s3dlm.models.folder import defaults_of
from s3dlm.models.layers import rms_norm
from s3dlm.settings import Settings

BLOCK = 16
SCHEDULE, ADAPTIVE = {"reveal": "schedule"}, {"reveal": "threshold"}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exact, schedule": ({}, SCHEDULE),
    "exact, adaptive": ({}, ADAPTIVE),
    "dual cache, adaptive": ({"dual_cache": 0}, ADAPTIVE),
    "dual cache every 2, adaptive": ({"dual_cache": 2}, ADAPTIVE),
}


def counted(model: Model) -> list[int]:
    """A list that grows by the tokens of every forward of the model's body."""
    network: Any = model.denoiser
    inner, seen = network.body, []

    def body(tokens: Any, *rest: Any, **more: Any) -> Any:
        seen.append(tokens.numel())
        return inner(tokens, *rest, **more)

    network.body = body
    return seen


@torch.inference_mode()
def fast_dllm(network: Any, prompt: list[int], length: int, block: int, least: float) -> list[int]:
    """Fast-dLLM's decoding with its dual cache, as its paper states it: a whole pass opens a block and
    leaves keys and values; later passes run the block among them; each reveals every token of the block
    whose probability reaches the threshold, and at least the likeliest one."""
    row = torch.tensor([*prompt, *[network.mask_id] * length])
    for start in range(len(prompt), len(row), block):
        inside, kept = slice(start, min(start + block, len(row))), None
        while bool((row[inside] == network.mask_id).any()):
            if kept is None:
                features, kept = network.encode_after(row[None], None, None)
                x = features[0, inside]
            else:
                x = network.embedding(row[inside])
                cos, sin, scale = network.rope(len(row), x.device, None)
                for layer, pair in zip(network.blocks, kept, strict=True):
                    around = [
                        torch.cat((t[:, :, :start], t[:, :, inside.stop : len(row)]), 2)
                        for t in pair
                    ]
                    rope = (cos[inside], sin[inside], scale)
                    x = layer(x, (1, len(x)), rope, None, torch.stack(around))
                x = rms_norm(x, network.norm, network.config.norm_epsilon)
            logits = network.head(x).float()
            logits[:, network.mask_id] = -torch.inf
            sure, best = logits.softmax(-1).max(-1)
            masked = row[inside] == network.mask_id
            sure = torch.where(masked, sure, -1.0)
            chosen = (sure >= least) & masked
            chosen[sure.argmax()] = True
            row[inside] = torch.where(chosen, best, row[inside])
    return [int(token) for token in row[len(prompt) :]]


def on_tiny(count: int) -> None:
    samples = {
        task: tasks.load(tasks.get(task), prompt_style="tiny", limit=count).samples
        for task in TASKS
    }

    def right(task: str, texts: list[str]) -> list[float]:
        pairs = zip(samples[task], texts, strict=True)
        return [float(grade(task, t, s.gold, question=s.question) == 1.0) for s, t in pairs]

    print("method | row | accuracy | against exact, adaptive | NFE | tokens a problem | time")
    for method in ("greedy", "s3", "revise"):
        base: list[list[float]] = []
        lines = []
        for name, (how, settings) in ROWS.items():
            model = s3dlm.load("tiny", **how)
            tokens, start, nfe = counted(model), time.process_time(), 0.0
            found = []
            for task in TASKS:
                chosen = Settings.recommended(defaults_of("tiny"), method, task)
                chosen = chosen.replace(block_length=BLOCK, **settings)
                questions = [sample.question for sample in samples[task]]
                results = s3dlm.generate_batch(model, questions, task=task, settings=chosen)
                nfe += sum(result.nfe for result in results)
                found.append(right(task, [result.text for result in results]))
            spent = time.process_time() - start
            base = found if name == "exact, adaptive" else base
            lines.append((name, found, nfe, sum(tokens), spent))
        if method == "greedy":
            lines.append(literal(samples, right))
        for name, found, nfe, run, spent in lines:
            gaps = [
                [a - b for a, b in zip(*pair, strict=True)]
                for pair in zip(found, base, strict=True)
            ]
            gain, _ = bootstrap(gaps)
            problems = count * len(TASKS)
            print(
                f"{method} | {name} | {100 * np.mean(found):.1f} | {100 * gain.value:+.1f} "
                f"[{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] | {nfe / problems:.1f} | "
                f"{run / problems:.0f} | {1000 * spent / problems:.0f} ms",
                flush=True,
            )


def literal(samples: Any, right: Any) -> tuple[str, list[list[float]], float, int, float]:
    """Fast-dLLM's rule, with its threshold of 0.9, on the same problems."""
    model = s3dlm.load("tiny")
    network: Any = model.denoiser
    passes, start, found = counted(model), time.process_time(), []
    inner, steps = network.head, 0

    def head(features: Any) -> Any:
        nonlocal steps
        steps += 1
        passes.append(len(features))
        return inner(features)

    network.head = head
    for task in TASKS:
        length = Settings.recommended(defaults_of("tiny"), "greedy", task).decoding.gen_length
        texts = []
        for sample in samples[task]:
            ids = fast_dllm(network, model.tokenizer.chat(sample.question), length, BLOCK, 0.9)
            end = next((i for i, token in enumerate(ids) if token in model.end_ids), len(ids))
            texts.append(model.tokenizer.decode(ids[:end]))
        found.append(right(task, texts))
    return ("Fast-dLLM's rule, literally", found, steps, sum(passes), time.process_time() - start)


def on_wide() -> None:
    settings = Settings(
        "baseline", gen_length=128, steps=64, block_length=32, temperature=0.0, reveal="schedule"
    )
    base: dict[int, str] = {}
    for name, every in (("exact", None), ("dual cache", 0), ("dual cache every 4", 4)):
        model = wide()
        network: Any = model.denoiser
        network.dual_cache = every
        tokens, start, same = counted(model), time.process_time(), []
        for index in range(2):
            _, question = question_of(model, index)
            text = s3dlm.generate(model, question, settings=settings).text
            base.setdefault(index, text)
            same += [a == b for a, b in zip(text.split(), base[index].split(), strict=False)]
        spent = time.process_time() - start
        print(
            f"wide | {name} | {100 * np.mean(same):.0f} % of tokens as exact | {sum(tokens) / 2:.0f} "
            f"tokens run | {spent / 2:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=40, help="per task")
    on_tiny(parser.parse_args().problems)
    on_wide()
