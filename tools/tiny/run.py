"""One training run of tiny: data-parallel workers that can be stopped and resumed at any step."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tokenizers import Tokenizer

import s3dlm
from s3dlm.models.transformer import Transformer, TransformerConfig
from tools.tiny.data import Batch, Encoder, Feed
from tools.tiny.decode import Decoding, generate
from tools.tiny.grade import right
from tools.tiny.optimiser import optimisers
from tools.tiny.problems import GENERATORS, problems, stream
from tools.tiny.start import start
from tools.tiny.tokenizer import SIZE, build, save

SHIPPED = Path(__file__).parents[2] / "src" / "s3dlm" / "models" / "tiny"
GREEDY = {task: Decoding() for task in GENERATORS}
GREEDY["chain"] = Decoding(gen_length=144, steps=72, block_length=144)
MASK_ID = 1


def tokenizer_for(folder: Path) -> Tokenizer:
    """The folder's tokenizer; where there is none it is made, from training problems only."""
    if not (folder / "tokenizer.json").exists():
        texts = [
            text
            for task in GENERATORS
            for problem in islice(stream(task, "train", 0), 8000)
            for text in (problem.question, problem.response)
        ]
        save(build(texts), folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def load(folder: Path) -> Transformer:
    network = s3dlm.load(str(folder), device="cpu").denoiser
    return network.eval()  # type: ignore[attr-defined]


def loss_of(
    model: Transformer, encode: Callable[[torch.Tensor], torch.Tensor], batch: Batch
) -> torch.Tensor:
    """Weighted cross-entropy a row; the head runs on masked positions only."""
    weight = batch.weight.flatten()
    where = weight.nonzero()[:, 0]
    logits = model.head(encode(batch.tokens).flatten(0, 1)[where])
    each = F.cross_entropy(logits, batch.target.flatten()[where], reduction="none")
    return (each * weight[where]).sum() / len(batch.tokens)


class Run:
    """A training run that can be put down and taken up again at any step."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.rank = args, rank
        args.out.mkdir(parents=True, exist_ok=True)
        self.tokenizer = tokenizer_for(args.out)
        self.config = TransformerConfig(
            vocabulary=SIZE,
            width=args.width,
            layers=args.layers,
            heads=args.heads,
            hidden=args.hidden,
            mask_id=MASK_ID,
            context=512,
            tied=True,
        )
        self.model = Transformer(self.config)
        start(self.model, torch.Generator().manual_seed(args.seed))
        self.optimisers = optimisers(self.model, args.matrix_rate, args.rest_rate)
        self.rates = [group["lr"] for o in self.optimisers for group in o.param_groups]
        self.mean = {name: value.clone() for name, value in self.model.state_dict().items()}
        encoder = Encoder(self.tokenizer)
        self.stages = [
            [
                Feed(task, encoder, int(size), args.seed, rank, args.workers)
                for task, size in (item.split("=") for item in sizes.split(","))
            ]
            for sizes in (args.drills, args.tokens)
        ]
        self.encode = (
            torch.compile(self.model.encode, dynamic=True) if args.compile else self.model.encode
        )
        self.step, self.seen, self.losses = 0, 0, {}
        self.resume()

    def resume(self) -> None:
        path = self.args.out / "checkpoint.pt"
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.mean = state["mean"]
            for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(kept)
            self.step, self.seen = state["step"], state["seen"]
            places = state["places"][self.rank] if self.rank < len(state["places"]) else {}
            for name, feed in self.named_feeds():
                if name in places:
                    feed.seek(*places[name])
            self.say(f"resumed at step {self.step}")

    def named_feeds(self) -> list[tuple[str, Feed]]:
        return [
            (f"{stage} {feed.task}", feed)
            for stage, feeds in enumerate(self.stages)
            for feed in feeds
        ]

    def say(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)

    def save(self) -> None:
        places: list[dict[str, tuple[int, int]]] = [{}] * self.args.workers
        dist.all_gather_object(places, {name: feed.place for name, feed in self.named_feeds()})
        if self.rank:
            return
        state = {
            "model": self.model.state_dict(),
            "mean": self.mean,
            "step": self.step,
            "seen": self.seen,
            "config": asdict(self.config),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "places": places,
        }
        part = self.args.out / "checkpoint.part"
        torch.save(state, part)
        part.replace(self.args.out / "checkpoint.pt")

    def rate(self) -> float:
        """Warm up, hold, and fall linearly over the last share."""
        warm = min(1.0, (self.step + 1) / 100)
        left = (self.args.steps - self.step) / (self.args.steps * self.args.decay)
        return min(warm, max(0.0, left))

    def share_gradients(self, stop: bool) -> bool:
        """The mean gradient of all workers; whether any of them wants to stop rides along."""
        gradients = [value.grad for value in self.model.parameters() if value.grad is not None]
        flat = torch.cat(
            [gradient.flatten() for gradient in gradients] + [torch.tensor([float(stop)])]
        )
        dist.all_reduce(flat)
        start = 0
        for gradient in gradients:
            part = flat[start : start + gradient.numel()]
            gradient.copy_(part.view_as(gradient) / self.args.workers)
            start += gradient.numel()
        return bool(flat[-1] > 0)

    def advance(self, stop: bool) -> bool:
        """One step: each task on one of the workers, then both optimisers, then the running mean."""
        feeds = self.stages[self.step >= self.args.drill_steps]
        workers, total = self.args.workers, sum(feed.size for feed in feeds)
        for feed in feeds[(self.step + self.rank) % workers :: workers]:
            batch = feed.next()
            loss = loss_of(self.model, self.encode, batch)
            (loss * workers * feed.size / total).backward()
            self.seen += batch.tokens.numel() * workers
            kept = self.losses.get(feed.task, loss.item())
            self.losses[feed.task] = 0.98 * kept + 0.02 * loss.item()
        stopped = self.share_gradients(stop)
        factor, rates = self.rate(), iter(self.rates)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = next(rates) * factor
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        keep = min(0.998, 1 - 1 / (1 + self.step / 10))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.mean[name].lerp_(value, 1 - keep)
        return stopped

    def averaged(self) -> Transformer:
        model = Transformer(self.config)
        model.load_state_dict(self.mean)
        return model.eval()

    def validate(self, begun: float) -> None:
        """Decode validation problems, each worker some of the tasks."""
        model, count = self.averaged(), self.args.validate_count
        report = {
            task: sum(marks(model, self.tokenizer, task, "validation", count)) / count
            for task in list(GENERATORS)[self.rank :: self.args.workers]
        }
        parts: list[dict[str, float]] = [{}] * self.args.workers
        dist.all_gather_object(parts, report)
        report = {task: part[task] for task in GENERATORS for part in parts if task in part}
        shown = "  ".join(f"{task} {share:.1%}" for task, share in report.items())
        self.say(f"step {self.step}  {self.seen / 1e6:.1f} M tokens  {shown}")
        line = {
            "step": self.step,
            "tokens": self.seen,
            "seconds": round(time.monotonic() - begun),
            "losses": self.losses,
            "accuracy": report,
        }
        if self.rank == 0:
            with (self.args.out / "curve.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    def run(self) -> None:
        begun = time.monotonic()
        first, tokens, stop = self.step, self.seen, False
        while self.step < self.args.steps and not stop:
            late = time.monotonic() - begun > self.args.minutes * 60
            stop = self.advance(late or (self.args.out / "stop").exists())
            if self.step % 20 == 0:
                self.progress(begun, first, tokens)
            if self.step % self.args.validate_steps == 0:
                self.save()
                self.validate(begun)
        self.save()
        if not stop:
            self.validate(begun)

    def progress(self, begun: float, first: int, tokens: int) -> None:
        seconds = time.monotonic() - begun
        left = (self.args.steps - self.step) * seconds / (self.step - first)
        losses = "  ".join(f"{task} {loss:.3f}" for task, loss in self.losses.items())
        speed = (self.seen - tokens) / seconds
        self.say(
            f"step {self.step}/{self.args.steps}  {self.seen / 1e6:.1f} M tokens  {speed:.0f}/s  "
            f"ETA {left / 60:.0f} min  {losses}"
        )


def marks(
    model: Transformer, tokenizer: Tokenizer, task: str, split: str, count: int
) -> list[bool]:
    """Which of a split's first problems greedy decoding answers right."""
    asked = problems(task, split, count)
    answers = generate(model, tokenizer, [problem.question for problem in asked], GREEDY[task])
    return [right(*pair) for pair in zip(asked, answers, strict=True)]
