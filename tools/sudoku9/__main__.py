"""Trains `sudoku9`, the bundled masked diffusion model of 9×9 grids, and puts it into the package.

python -m tools.sudoku9 train --out RUN      start a run, or resume the one in RUN
python -m tools.sudoku9 export --out RUN     put RUN's averaged weights into the package
python -m tools.sudoku9 puzzles --blanks 50  print open puzzles, for FILE.jsonl:sudoku9_open

With --noise uniform, `train` and `export` make `noisy9`, its sister without masks (noisy.py), which starts
from the weights of `sudoku9`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from s3dlm.models.families import LLADA_NAMES
from s3dlm.models.registry import load
from s3dlm.models.transformer import Transformer, TransformerConfig
from tools.networks import export, initialise, llada_config
from tools.sudoku9 import noisy
from tools.sudoku9.grids import grids
from tools.sudoku9.problems import open_puzzles
from tools.tiny.optimiser import optimisers
from tools.tiny.problems.base import SPLITS

SHIPPED = Path(__file__).parents[2] / "src" / "s3dlm" / "models"
NAMES = {"mask": "sudoku9", "uniform": "noisy9"}
NOISES = tuple(NAMES)
MASK_ID = 9  # the digits 1 to 9 come before it
CONFIG = TransformerConfig(
    vocabulary=10, text_vocabulary=9, mask_id=MASK_ID, width=64, layers=5, heads=4, hidden=128,
    context=81, grid=3,
)  # fmt: skip
MANY = 40  # blanks: three quarters of the grids have at least these
WARM = 50  # steps until the rate is full


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--grids", type=int, default=96_000, help="each is seen once")
    train.add_argument("--batch", type=int, default=64)
    train.add_argument("--matrix-rate", type=float, default=0.02)
    train.add_argument("--rest-rate", type=float, default=4e-3)
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--noise", choices=NOISES, default="mask")
    export = commands.add_parser("export")
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--to", type=Path)
    export.add_argument("--noise", choices=NOISES, default="mask")
    puzzles = commands.add_parser("puzzles")
    puzzles.add_argument("--blanks", type=int, required=True)
    puzzles.add_argument("--split", choices=SPLITS, default="test")
    puzzles.add_argument("--count", type=int, default=200)
    return parser.parse_args()


def hidden(rows: int, generator: torch.Generator) -> Tensor:
    """(rows, 81) which cells are masked: a random number of them, often many."""
    many = torch.rand(rows, generator=generator) < 0.75
    share = torch.rand(rows, generator=generator)
    count = torch.where(many, MANY + share * (82 - MANY), 1 + share * (MANY - 1)).long()
    order = torch.rand(rows, 81, generator=generator).argsort(1).argsort(1)
    return order < count[:, None]


def fresh(seed: int) -> Transformer:
    """A network with its first weights."""
    model = Transformer(CONFIG)
    initialise(model, torch.Generator().manual_seed(seed))
    return model


def loss_of(
    model: Transformer, cells: Tensor, masked: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """LLaDA's loss: the cross-entropy of masked cells, each weighted by one over their number."""
    weight = (masked / masked.sum(1, keepdim=True)).flatten()
    where = weight.nonzero()[:, 0]
    features = model.encode(cells.masked_fill(masked, MASK_ID)).flatten(0, 1)[where]
    logits = model.head(features)[:, :MASK_ID]
    each = F.cross_entropy(logits, cells.flatten()[where], reduction="none")
    return (each * weight[where]).sum() / len(cells)


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    begun, steps = time.monotonic(), args.grids // args.batch
    model, loss_of_grids = fresh(args.seed), loss_of
    if args.noise == "uniform":
        model, loss_of_grids = noisy.start(load("sudoku9", device="cpu").denoiser), noisy.loss_of
    made = optimisers(model, args.matrix_rate, args.rest_rate)
    rates = [(group, group["lr"]) for optimiser in made for group in optimiser.param_groups]
    mean = {name: value.clone() for name, value in model.state_dict().items()}
    step, recent, path = 0, 2.2, args.out / "checkpoint.pt"
    args.out.mkdir(parents=True, exist_ok=True)
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        mean, step = state["mean"], state["step"]
        for optimiser, kept in zip(made, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
    rates = [(group, rate) for (_, rate), group in zip(rates, groups(made), strict=True)]
    source = islice(grids("train", args.seed), step * args.batch, None)
    while step < steps:
        generator = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
        digits = [[int(mark) - 1 for mark in grid] for grid in islice(source, args.batch)]
        cells, masked = torch.tensor(digits), hidden(args.batch, generator)
        loss = loss_of_grids(model, cells, masked, generator)
        loss.backward()
        for group, rate in rates:
            group["lr"] = rate * min(1.0, (step + 1) / WARM, (steps - step) / (0.8 * steps))
        for optimiser in made:
            optimiser.step()
            optimiser.zero_grad()
        step, recent = step + 1, 0.98 * recent + 0.02 * loss.item()
        with torch.no_grad():
            for name, value in model.state_dict().items():
                mean[name].lerp_(value, max(0.005, 1 / (1 + step / 10)))
        if step % 50 == 0 or step == steps:
            minutes = (time.monotonic() - begun) / 60
            print(f"step {step}/{steps}  loss {recent:.4f}  {minutes:.1f} minutes", flush=True)
            kept = [optimiser.state_dict() for optimiser in made]
            torch.save(
                {"model": model.state_dict(), "mean": mean, "step": step, "optimisers": kept},
                args.out / "checkpoint.part",
            )
            (args.out / "checkpoint.part").replace(path)


def groups(made: list[torch.optim.Optimizer]) -> list[dict[str, object]]:
    """The groups of parameters; loading an optimiser's state replaces them."""
    return [group for optimiser in made for group in optimiser.param_groups]


def export_run(out: Path, to: Path, config: TransformerConfig) -> None:
    """Write a run's averaged weights in LLaDA's format, halved to fp16."""
    model = Transformer(config)
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    model.load_state_dict(state["mean"])
    tensors = {name: value.half() for name, value in export(model, LLADA_NAMES).items()}
    to.mkdir(parents=True, exist_ok=True)
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    (to / "model.safetensors").chmod(0o644)
    (to / "config.json").write_text(json.dumps(llada_config(model.config, None), indent=2) + "\n")
    size = sum(value.numel() for value in tensors.values())
    print(f"step {state['step']}: {size:,} parameters written; {asdict(config)}")


def main() -> None:
    torch.set_num_threads(1)
    args = arguments()
    if args.command == "train":
        train(args)
    elif args.command == "export":
        config = CONFIG if args.noise == "mask" else noisy.CONFIG
        export_run(args.out, args.to or SHIPPED / NAMES[args.noise], config)
    else:
        for row in islice(open_puzzles(args.split, (args.blanks,)), args.count):
            print(json.dumps({"question": row["question"], "gold": row["gold"]}))


if __name__ == "__main__":
    main()
