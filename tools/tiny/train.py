"""Trains, continues and evaluates `tiny`, the masked diffusion model that ships with the package.

python -m tools.tiny.train train --out RUN      start a run, or resume the one in RUN
python -m tools.tiny.train export --out RUN     put RUN's averaged weights into the package
python -m tools.tiny.train evaluate             measure them on test problems
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from s3dlm.models.families import LLADA_NAMES
from s3dlm.models.transformer import Transformer, TransformerConfig
from tools.networks import export, llada_config
from tools.tiny.problems import GENERATORS, problems
from tools.tiny.run import GREEDY, SHIPPED, Run, load, marks, tokenizer_for

END_ID = 0
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--steps", type=int, default=8000)
    train.add_argument("--decay", type=float, default=0.95, help="last share of steps, rate → 0")
    train.add_argument("--width", type=int, default=128)
    train.add_argument("--layers", type=int, default=4)
    train.add_argument("--heads", type=int, default=4)
    train.add_argument("--hidden", type=int, default=384)
    train.add_argument("--matrix-rate", type=float, default=0.008)
    train.add_argument("--rest-rate", type=float, default=2e-3)
    train.add_argument(
        "--tokens",
        default="chain=1280,arithmetic=768,repeat=256,letters=512,choice=640,equations=256,countdown=320,"
        "sudoku=256",
        help="tokens of each task and drill in one step; neighbours go to different workers",
    )
    train.add_argument(
        "--drills",
        default="letters=1024,choice=512,equations=256,repeat=512",
        help="the same for the first steps, in which look-ups are learned",
    )
    train.add_argument("--drill-steps", type=int, default=736, help="how many these are")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument(
        "--minutes", type=float, default=1e9, help="stop after this long; so does a file RUN/stop"
    )
    train.add_argument("--validate-steps", type=int, default=400)
    train.add_argument("--validate-count", type=int, default=32)
    train.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    train.add_argument("--compile", action="store_true", help="faster after some minutes")
    export = commands.add_parser("export")
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--to", type=Path, default=SHIPPED, help="folder for the weights")
    evaluate = commands.add_parser("evaluate")
    evaluate.add_argument("--folder", type=Path, default=SHIPPED, help="folder of the weights")
    evaluate.add_argument("--count", type=int, default=500)
    evaluate.add_argument("--split", default="test")
    evaluate.add_argument("--tasks", default=",".join(GENERATORS))
    evaluate.add_argument("--workers", type=int, default=2)
    evaluate.add_argument("--record", action="store_true", help="write accuracy.json")
    return parser.parse_args()


def export_run(out: Path, to: Path) -> None:
    """Write a run's averaged weights in LLaDA's format, halved to fp16, beside their tokenizer."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    model = Transformer(TransformerConfig(**state["config"]))
    model.load_state_dict(state["mean"])
    tensors = {name: value.half() for name, value in export(model, LLADA_NAMES).items()}
    to.mkdir(parents=True, exist_ok=True)
    weights = to / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    config = llada_config(model.config, END_ID)
    (to / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copyfile(out / name, to / name)
    size = weights.stat().st_size / 1e6
    print(f"step {state['step']}, {state['seen'] / 1e6:.1f} M tokens: {size:.1f} MB written")


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z = 1.96
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return round((middle - reach) / scale, 4), round((middle + reach) / scale, 4)


def marks_of(folder: Path, task: str, split: str, count: int) -> list[bool]:
    """The marks of a folder's weights, for a process of its own."""
    torch.set_num_threads(1)
    return marks(load(folder), tokenizer_for(folder), task, split, count)


def summary(task: str, split: str, found: list[bool]) -> dict[str, object]:
    """Accuracy, its interval, and right and asked of each group of problems."""
    share = sum(found) / len(found)
    groups: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for problem, mark in zip(problems(task, split, len(found)), found, strict=True):
        groups[problem.group][0] += mark
        groups[problem.group][1] += 1
    by_length = dict(sorted(groups.items(), key=lambda item: (len(item[0]), item[0])))
    record: dict[str, object] = {
        "accuracy": round(share, 4),
        "interval": wilson(share, len(found)),
        "first_16": sum(found[:16]),
    }
    return record | ({} if set(groups) == {""} else {"groups": by_length})


def evaluate(args: argparse.Namespace) -> None:
    """Greedy accuracy of a folder's weights, recorded beside them with --record."""
    tasks = args.tasks.split(",")
    jobs = [(args.folder, task, args.split, args.count) for task in tasks]
    record: dict[str, object] = {}
    with torch.multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        for task, found in zip(tasks, pool.starmap(marks_of, jobs, 1), strict=True):
            record[task] = summary(task, args.split, found) | {"decoding": asdict(GREEDY[task])}
            print(task, json.dumps(record[task]), flush=True)
    if args.record:
        whole = {"split": args.split, "count": args.count, "tasks": record}
        (args.folder / "accuracy.json").write_text(json.dumps(whole, indent=2) + "\n")


def work(rank: int, args: argparse.Namespace) -> None:
    """One worker. Single threads that meet once per step beat threads that meet per operation."""
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
        tokenizer_for(args.out)
        torch.multiprocessing.spawn(work, (args,), nprocs=args.workers)  # type: ignore[attr-defined]
    elif args.command == "export":
        export_run(args.out, args.to)
    else:
        evaluate(args)


if __name__ == "__main__":
    main()
