"""What test_sharded.py starts as two processes, as torchrun would; the first writes what it found."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.extras.parallel import sharded
from s3dlm.models.forward import Forward
from tests.models.networks import SHAPES, make_rows, random_network

CPU = torch.device("cpu")
ASKED = {"prompt": "Target: 45 Numbers: 8, 7, 11", "task": "countdown", "method": "s3"}


def logits_error(shape: str) -> float:
    """How far the logits of two parts are from those of the whole."""
    whole = random_network(**SHAPES[shape])
    tokens = torch.randint(0, 250, (3, 40), generator=torch.Generator().manual_seed(1))
    keys = torch.arange(40).expand(3, -1) < torch.tensor([[40], [33], [8]])
    expected = whole.head(whole.encode(tokens, keys))[keys]
    parts = copy.deepcopy(whole)
    sharded.deal(parts, CPU)
    assert parts.blocks[0].qkv.weight.to_local().shape[0] * 2 == whole.blocks[0].qkv.weight.shape[0]
    return float((parts.head(parts.encode(tokens, keys))[keys] - expected).abs().max())


def main(out: Path) -> None:
    rank = int(os.environ["RANK"])
    meeting = f"file://{out}.meeting"  # no port that another program could take
    torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=2)
    with torch.inference_mode():
        found: dict[str, Any] = {"errors": {shape: logits_error(shape) for shape in SHAPES}}
    # Only the first process comes back from here.
    model = s3dlm.load("tiny", device="cpu", tensor_parallel=True)
    result = s3dlm.generate(model, **ASKED)  # type: ignore[arg-type]
    found |= {"text": result.text, "nfe": result.nfe, "repr": repr(model)}
    long = Forward(model.denoiser)
    try:
        long([make_rows(model.denoiser.context)])
    except s3dlm.S3dlmError as error:
        found["long"] = str(error)
    try:
        sharded.Sharded(random_network(heads=3, width=48), CPU)
    except SettingsError as error:
        found["odd"] = str(error)
    out.write_text(json.dumps(found))
    sharded._tell(None)  # as at the end of Python, without the end of the process group: on a busy
    os._exit(0)  # machine a thread of it sometimes outlives Python and aborts the process


if __name__ == "__main__":
    main(Path(sys.argv[1]))
