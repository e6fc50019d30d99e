"""One model on several devices: copies that share the rows of a pass, or parts of one network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from s3dlm.errors import SettingsError
from s3dlm.extras.parallel.copies import Copies
from s3dlm.extras.parallel.sharded import Sharded, join
from s3dlm.models.base import Model
from s3dlm.models.device import device_of, dtype_of
from s3dlm.models.transformer import Transformer


def load_copies(load: Callable[..., Model], options: dict[str, Any]) -> Model:
    """The model once per device, as one."""
    devices: str | Sequence[str] = options["devices"]
    names = devices.split(",") if isinstance(devices, str) else list(devices)
    kinds = {device_of(name.strip() or None).type for name in names}
    if len(kinds) != 1 or not all(names) or options["device"] is not None:
        raise SettingsError(
            f"devices={devices!r} with device={options['device']!r} is not allowed; give devices of "
            "one kind, as in devices=cuda:0,cuda:1, and no device"
        )
    models = [load(**options | {"device": name.strip(), "devices": None}) for name in names]
    if len(models) == 1:
        return models[0]
    return replace(models[0], denoiser=Copies([model.denoiser for model in models]))


def load_parts(load: Callable[..., Model], options: dict[str, Any]) -> Model:
    """The model in as many parts as torchrun has started processes."""
    others = ("devices", "quantize", "dual_cache")
    unfit = [name for name in others if options[name] not in (None, False)]
    if unfit or options["device"] not in (None, "cpu", "cuda"):
        raise SettingsError(
            "tensor_parallel=true cannot be had with other ways to place or change weights; leave out "
            f"{', '.join(unfit) or 'the number of the device'}"
        )
    device = join(device_of(options["device"]))
    dtype = str(dtype_of(options["dtype"], device))
    model = load(**options | {"device": "cpu", "dtype": dtype, "tensor_parallel": False})
    if not isinstance(model.denoiser, Transformer):
        raise SettingsError(f"tensor_parallel=true is for native models; {model.name!r} is none")
    return replace(model, denoiser=Sharded(model.denoiser, device))
