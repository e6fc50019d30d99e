"""Trains, continues and evaluates `tiny`, the masked diffusion model that ships with the package.

python tools/train_tiny.py train --out RUN            start, or continue what RUN holds
python tools/train_tiny.py train --out RUN --init     start from the shipped weights
python tools/train_tiny.py export --out RUN           put RUN's averaged weights into the package
python tools/train_tiny.py evaluate                   measure them on held-out problems
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tiny_tokenizer
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from tiny_data import Batch, Encoder, Feed
from tiny_decode import Decoding, generate
from tiny_grade import right
from tiny_optimiser import optimisers
from tokenizers import Tokenizer

from s3dlm.models import family, llada
from s3dlm.models.checkpoint import load_network
from s3dlm.models.transformer import Transformer, TransformerConfig
from s3dlm.tasks.problems import GENERATORS, problems, stream

SHIPPED = Path(__file__).parent.parent / "src" / "s3dlm" / "models" / "tiny"
GREEDY = Decoding()
END_ID, MASK_ID, TURN_ID, START_ID = range(4)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--init", action="store_true", help="start from the shipped weights")
    train.add_argument("--steps", type=int, default=7000)
    train.add_argument("--decay", type=float, default=0.95, help="last share of steps, rate → 0")
    train.add_argument("--width", type=int, default=128)
    train.add_argument("--layers", type=int, default=6)
    train.add_argument("--heads", type=int, default=4)
    train.add_argument("--hidden", type=int, default=384)
    train.add_argument("--matrix-rate", type=float, default=0.02)
    train.add_argument("--rest-rate", type=float, default=4e-3)
    train.add_argument(
        "--tokens",
        default="arithmetic=3072,countdown=2304,sudoku=256,choice=2048,drill=2048",
        help="tokens of each task in one step",
    )
    train.add_argument("--seed", type=int, default=0)
    train.add_argument(
        "--minutes", type=float, default=1e9, help="stop after this long; so does a file RUN/stop"
    )
    train.add_argument("--validate-steps", type=int, default=600)
    train.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    train.add_argument("--compile", action="store_true", help="a third faster after two minutes")
    train.add_argument("--validate-count", type=int, default=48)
    export = commands.add_parser("export")
    export.add_argument("--out", type=Path, required=True)
    evaluate = commands.add_parser("evaluate")
    evaluate.add_argument("--count", type=int, default=500)
    evaluate.add_argument("--split", default="test")
    evaluate.add_argument("--tasks", default=",".join(GENERATORS))
    evaluate.add_argument("--gen-length", type=int, default=64)
    evaluate.add_argument("--steps", type=int, default=0, help="0: half of gen_length")
    evaluate.add_argument("--block-length", type=int, default=64)
    evaluate.add_argument("--workers", type=int, default=2)
    evaluate.add_argument("--record", action="store_true", help="write accuracy.json")
    return parser.parse_args()


def tokenizer_for(folder: Path) -> Tokenizer:
    """The shipped tokenizer; made once, from training problems only."""
    if not (folder / "tokenizer.json").exists():
        texts = [
            text
            for task in GENERATORS
            for problem in islice(stream(task, "train", 0), 8000)
            for text in (problem.question, problem.response)
        ]
        tiny_tokenizer.save(tiny_tokenizer.build(texts), folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


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
        self.tokenizer = tokenizer_for(SHIPPED)
        self.config = TransformerConfig(
            vocabulary=tiny_tokenizer.SIZE,
            width=args.width,
            layers=args.layers,
            heads=args.heads,
            hidden=args.hidden,
            mask_id=MASK_ID,
            context=512,
        )
        self.model = Transformer(self.config)
        self.model.initialise(torch.Generator().manual_seed(args.seed))
        self.optimisers = optimisers(self.model, args.matrix_rate, args.rest_rate)
        self.rates = [group["lr"] for o in self.optimisers for group in o.param_groups]
        self.mean = {name: value.clone() for name, value in self.model.state_dict().items()}
        encoder = Encoder(self.tokenizer)
        sizes = dict(item.split("=") for item in args.tokens.split(","))
        self.feeds = [
            Feed(task, encoder, int(size) // args.workers, args.seed, rank, args.workers)
            for task, size in sizes.items()
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
            for feed in self.feeds:
                if feed.task in state["places"][self.rank]:
                    feed.seek(*state["places"][self.rank][feed.task])
            self.say(f"resumed at step {self.step}")
        elif self.args.init:
            self.model.load_state_dict(load_shipped().state_dict())
            self.mean = {name: value.clone() for name, value in self.model.state_dict().items()}

    def say(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)

    def save(self) -> None:
        places: list[dict[str, tuple[int, int]]] = [{}] * self.args.workers
        dist.all_gather_object(places, {feed.task: feed.place for feed in self.feeds})
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
        """One step: a micro-batch of every task, then both optimisers, then the running mean."""
        for feed in self.feeds:
            batch = feed.next()
            loss = loss_of(self.model, self.encode, batch)
            (loss * feed.size / sum(each.size for each in self.feeds)).backward()
            self.seen += batch.tokens.numel() * self.args.workers
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
            task: sum(marks(model, self.tokenizer, task, "validation", count, GREEDY)) / count
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
            if self.step % 50 == 0:
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
    model: Transformer, tokenizer: Tokenizer, task: str, split: str, count: int, how: Decoding
) -> list[bool]:
    """Which of a split's first problems greedy decoding answers right."""
    asked = problems(task, split, count)
    answers = generate(model, tokenizer, [problem.question for problem in asked], how)
    return [right(*pair) for pair in zip(asked, answers, strict=True)]


def load_shipped() -> Transformer:
    network = load_network(SHIPPED, llada.FAMILY, device=torch.device("cpu"), dtype=torch.float32)
    return network.eval()


def export_run(out: Path) -> None:
    """Put a run's averaged weights into the package, halved to fp16 on disk."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    model = Transformer(TransformerConfig(**state["config"]))
    model.load_state_dict(state["mean"])
    tensors = {name: value.half() for name, value in family.export(model, llada.NAMES).items()}
    save_file(tensors, SHIPPED / "model.safetensors", metadata={"format": "pt"})
    (SHIPPED / "model.safetensors").chmod(0o644)
    config = llada.write(model.config, END_ID)
    (SHIPPED / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    size = (SHIPPED / "model.safetensors").stat().st_size / 1e6
    print(f"step {state['step']}, {state['seen'] / 1e6:.1f} M tokens: {size:.1f} MB written")


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z = 1.96
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return round((middle - reach) / scale, 4), round((middle + reach) / scale, 4)


def shipped_marks(task: str, split: str, count: int, how: Decoding) -> list[bool]:
    """The marks of the shipped weights, for a process of its own."""
    torch.set_num_threads(1)
    return marks(load_shipped(), tokenizer_for(SHIPPED), task, split, count, how)


def evaluate(args: argparse.Namespace) -> None:
    """Greedy accuracy of the shipped weights, if wanted recorded beside them."""
    how = Decoding(args.gen_length, args.steps or args.gen_length // 2, args.block_length)
    record = {"split": args.split, "count": args.count, "decoding": asdict(how), "accuracy": {}}
    tasks = args.tasks.split(",")
    with torch.multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        jobs = [(task, args.split, args.count, how) for task in tasks]
        for task, found in zip(tasks, pool.starmap(shipped_marks, jobs, 1), strict=True):
            share = sum(found) / args.count
            low, high = wilson(share, args.count)
            record["accuracy"][task] = {
                "accuracy": round(share, 4),
                "interval": [low, high],
                "first_16": sum(found[:16]),
            }
            print(f"{task}  {share:.1%}  [{low:.1%}, {high:.1%}]", flush=True)
    if args.record:
        (SHIPPED / "accuracy.json").write_text(json.dumps(record, indent=2) + "\n")


def work(rank: int, args: argparse.Namespace) -> None:
    """One worker. Single threads that meet once a step are faster than threads that meet each operation."""
    torch.set_num_threads(1)
    meeting = f"file://{args.out.resolve()}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=args.workers)
    Run(args, rank).run()
    dist.destroy_process_group()


def main() -> None:
    args = arguments()
    if args.command == "train":
        args.out.mkdir(parents=True, exist_ok=True)
        for name in ("meeting", "stop"):
            (args.out / name).unlink(missing_ok=True)
        tokenizer_for(SHIPPED)
        torch.multiprocessing.spawn(work, (args,), nprocs=args.workers)
    elif args.command == "export":
        export_run(args.out)
    else:
        evaluate(args)


if __name__ == "__main__":
    main()
