"""Pretend GPUs, for machines without one.

`PretendTensor` says that it lives on cuda:0, or on another card, and computes on CPU. Every operation passes through one
function, which refuses what CUDA would refuse (tensors of two devices in one operation, `numpy()`)
and counts what would make the host wait: copies to the host, values read by Python, and operations
whose output has a size that only the device knows.

Inside `pretend_gpu()` everything that names a CUDA device gives pretend tensors.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "bincount"}

syncs: Counter[str] = Counter()  # what made the host wait, and where


class DeviceError(RuntimeError):
    """What a real GPU would not have done."""


class PretendTensor(torch.Tensor):
    """A tensor that claims to be on a GPU; its values are in `inner`, on CPU."""

    inner: torch.Tensor
    card: int
    device = property(lambda self: torch.device("cuda", self.card))  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor, card: int = 0) -> PretendTensor:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, requires_grad=False,
            storage_offset=inner.storage_offset(),
        )  # fmt: skip
        made.inner, made.card = inner, card
        return made  # type: ignore[no-any-return]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PretendTensor({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        _refuse_two_devices(name, tensors)
        mask = name == "index" and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if mask or name in WAITING:
            count_sync(name)
        found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if name.endswith("_") and not name.endswith("__"):
            return args[0]
        if "out" in kwargs:
            return kwargs["out"]
        card = next((one.card for one in tensors if isinstance(one, PretendTensor)), 0)
        return tree_map(partial(_outer, card=card), found)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, PretendTensor) else value


def _outer(value: Any, card: int) -> Any:
    return PretendTensor(value, card) if isinstance(value, torch.Tensor) else value


def _refuse_two_devices(name: str, tensors: list[torch.Tensor]) -> None:
    host = [one for one in tensors if not isinstance(one, PretendTensor) and one.dim() > 0]
    if host and len(host) < len(tensors) and name != "copy_":
        shapes = [tuple(one.shape) for one in host]
        raise DeviceError(f"{name}: CUDA tensors together with CPU tensors of shapes {shapes}")
    cards = {one.card for one in tensors if isinstance(one, PretendTensor) and one.dim() > 0}
    if len(cards) > 1 and name != "copy_":
        raise DeviceError(f"{name}: tensors of the cards {cards}")


def count_sync(name: str) -> None:
    """Note what waited, and the line of the package that made it wait."""
    where = "?"
    for frame in reversed(traceback.extract_stack(limit=40)):
        if "/s3dlm/" in frame.filename:
            where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
            break
    syncs[f"{name} at {where}"] += 1


class _NamedDevice(TorchFunctionMode):
    """What names a device: factories, `.to`, `.cpu`, and what only the host can have."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        pretend = bool(args) and isinstance(args[0], PretendTensor)
        target = _device(args, kwargs) if name == "to" else None
        if pretend and name == "numpy":
            raise DeviceError("numpy() of a CUDA tensor")
        if pretend and (name in ("cpu", "tolist") or (target and target.type == "cpu")):
            count_sync(name)
            return args[0].inner.tolist() if name == "tolist" else args[0].inner.clone()
        if target and target.type == "cuda":
            kinds = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, torch.dtype)]
            moved = _inner(args[0]).detach().to(*kinds[:1] or [args[0].dtype]).clone()
            return PretendTensor(moved, target.index or 0)
        if name == "scaled_dot_product_attention":
            kernels.append(kwargs | {"query": args[0], "key": args[1]})
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs) | {"device": "cpu"})
            return tree_map(partial(_outer, card=torch.device(device).index or 0), found)
        return func(*args, **kwargs)


def _device(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that a call of `.to` names, or that of a tensor in it."""
    for value in (*args[1:], *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(value, (str, torch.device)):
            return torch.device(value)
    return None


kernels: list[dict[str, Any]] = []  # arguments of every attention call


class _Event:
    """A CUDA event whose clock ticks one millisecond with every recording."""

    now = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        _Event.now += 1
        self.at = _Event.now

    def elapsed_time(self, other: _Event) -> float:
        return float(other.at - self.at)


@contextmanager
def pretend_gpu(free_memory: int = 8 << 30) -> Iterator[Counter[str]]:
    """Yields the counter of host syncs."""
    syncs.clear()
    kernels.clear()
    with (
        mock.patch.object(torch.cuda, "Event", _Event),
        mock.patch.object(torch.cuda, "mem_get_info", return_value=(free_memory, 1 << 40)),
        mock.patch.object(torch.cuda, "empty_cache"),
        # Inference mode does not know tensors that wrap others.
        mock.patch.object(torch.inference_mode, "__enter__"),
        mock.patch.object(torch.inference_mode, "__exit__", return_value=None),
        torch.no_grad(),
        _NamedDevice(),
    ):
        yield syncs


def to_gpu(module: Any, card: int = 0) -> Any:
    """Move a module's parameters and buffers to a pretend GPU."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                moved = PretendTensor(parameter.data, card)
                part._parameters[name] = torch.nn.Parameter(moved, requires_grad=False)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = PretendTensor(buffer, card)
    return module
