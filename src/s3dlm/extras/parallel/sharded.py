"""One network in parts on several devices (tensor parallelism), for models larger than one of them.

`torchrun` starts one process per device. Each has some heads of every layer and some of the inner width of
every feed-forward layer and expert; embedding, norms, routers and the head are whole everywhere. The first
process reads the files, deals out the parts and runs the command. The others run every forward pass with
it until it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.base import Wrapper
from s3dlm.models.family import TransformerConfig
from s3dlm.models.transformer import Transformer

HOST = torch.device("cpu")
PATIENCE = timedelta(days=365)  # a server may be idle; torchrun ends what others left behind
SPLIT = {"qkv", "out", "gate_up", "down", "shared_gate_up", "shared_down"}  # parameters in parts


def join(device: torch.device) -> torch.device:
    """The device of this process among those that `torchrun` started; only the first returns."""
    if "RANK" not in os.environ:
        raise SettingsError(
            "tensor_parallel=true needs one process per device; start the command by `torchrun "
            "--nproc-per-node 2 --no-python s3dlm …`"
        )
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    if dist.get_rank():
        _follow(device)
    atexit.register(_end)
    return device


def _end() -> None:
    """End the others, then the process group: its threads must not outlive Python."""
    _tell(None)
    dist.destroy_process_group()


def _tell(what: Any) -> Any:
    """What the first process says to all; None is the end."""
    told = [what]
    dist.broadcast_object_list(told, src=0, device=HOST)
    return told[0]


@torch.inference_mode()
def _follow(device: torch.device) -> None:
    """Run with the first process whatever it runs, and end with it: signals are for the first."""
    with contextlib.suppress(ValueError):  # in another thread than the main one
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, signal.SIG_IGN)
    network: Any = None
    while (told := _tell(None)) is not None:
        if network is None:
            config, dtype = told
            with torch.device("meta"):
                network = Transformer(config)
            network = network.to(dtype).to_empty(device="cpu").requires_grad_(False)
            deal(network, device)
        else:
            tokens, keys = told
            network.encode(tokens.to(device), None if keys is None else keys.to(device))
    # At once: a thread of the process group may outlive Python's end, and then aborts the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Sharded(Wrapper):
    """The first process's part of a network, through which the others are told every pass."""

    def __init__(self, network: Transformer, device: torch.device) -> None:
        _check(network.config, dist.get_world_size())
        _tell((network.config, network.embedding.weight.dtype))
        deal(network, device)
        super().__init__(network)  # without a cache: others have their own heads' part of it

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        if tokens.shape[1] <= self.context:  # else it is refused here, before anyone waits
            _tell((tokens.to(HOST), None if keys is None else keys.to(HOST)))
        try:
            return self.inner.encode(tokens, keys)
        except torch.OutOfMemoryError as error:  # the others are in the middle of the pass
            raise ModelError(
                "out of memory in one part of the network; use a smaller batch or more devices"
            ) from error

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        for name, tensor in self.inner.tensors():
            yield name, tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def __reduce__(self) -> Any:
        raise TypeError("a network whose parts are in several processes cannot be copied")


def _check(config: TransformerConfig, parts: int) -> None:
    sizes = {"heads": config.heads, "key_value_heads": config.kv_heads, "hidden": config.hidden}
    if config.experts is not None:
        sizes |= {"hidden of experts": config.experts.hidden, "shared": config.experts.shared}
    if config.grid is not None:
        raise SettingsError("tensor_parallel=true is not for models of grids; leave it out")
    for name, size in sizes.items():
        if size % parts:
            raise SettingsError(
                f"{name}={size} of this model cannot be dealt to {parts} processes; start a number "
                "that divides it"
            )


def deal(network: Transformer, device: torch.device) -> None:
    """Replace the weights of the first process's network by every process's part, on its device."""
    parts, first = dist.get_world_size(), dist.get_rank() == 0
    mesh = init_device_mesh(device.type, (parts,))
    for name, parameter in network.named_parameters():
        if not SPLIT & {*name.split(".")}:
            parameter.data = parameter.data.to(device)
            dist.broadcast(parameter.data, 0)
    blocks: Iterable[Any] = network.blocks
    for block in blocks:
        queries, keys = block.heads * block.size, block.kv_heads * block.size
        plan: dict[str, ParallelStyle] = {"qkv": ColwiseParallel(), "out": RowwiseParallel()}
        stacked: list[tuple[nn.Module, str, int, tuple[int, ...]]] = [
            (block.qkv, "weight", 0, (queries, keys, keys))
        ]
        if block.qkv.bias is not None:
            stacked.append((block.qkv, "bias", 0, (queries, keys, keys)))
        if block.mixture is None:
            plan |= {"gate_up": ColwiseParallel(), "down": RowwiseParallel()}
            stacked.append((block.gate_up, "weight", 0, (block.down.in_features,) * 2))
        else:
            plan["mixture"] = ExpertParts()
            stacked.append((block.mixture, "gate_up", 1, (block.mixture.experts.hidden,) * 2))
            if block.mixture.experts.shared:
                shared = (block.mixture.experts.shared,) * 2
                stacked.append((block.mixture, "shared_gate_up", 0, shared))
        for module, name, dim, sections in stacked if first else ():
            weight = getattr(module, name)
            weight.data = weight.data.index_select(dim, _order(sections, parts))
        parallelize_module(block, mesh, plan)
        block.heads, block.kv_heads = block.heads // parts, block.kv_heads // parts


def _order(sections: Sequence[int], parts: int) -> Tensor:
    """An order of stacked rows in which each of the equal parts has its share of every section."""
    rows = torch.split(torch.arange(sum(sections)), [*sections])
    shares = [section.chunk(parts) for section in rows]
    return torch.cat([share for part in zip(*shares, strict=True) for share in part])


class ExpertParts(ParallelStyle):
    """Some of the inner width of every expert; the sums of all processes are added up."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, dim in (("gate_up", 1), ("down", 2), ("shared_gate_up", 0), ("shared_down", 1)):
            weight = getattr(module, name)
            if weight is not None:
                part = distribute_tensor(weight, device_mesh, [Shard(dim)]).to_local()
                setattr(module, name, nn.Parameter(part, requires_grad=False))
        module.register_forward_hook(partial(_add_up, group=device_mesh.get_group()))
        return module


def _add_up(module: nn.Module, given: Any, output: Tensor, *, group: Any) -> Tensor:
    dist.all_reduce(output, group=group)
    return output
