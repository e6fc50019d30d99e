"""How a name becomes a model.

A name is `tiny` or `sudoku9` (bundled with the package), a name another package registered under the entry point
group `s3dlm.models`, a local folder, or a hub id. Nothing heavy is imported before `load` is called,
so that listing names stays instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from s3dlm.errors import ModelError, SettingsError, short_repr, unknown_name
from s3dlm.inputs import Registry, find_entry_points, load_entry_point
from s3dlm.models.base import Model
from s3dlm.models.defaults import BUNDLED, EVERY_METHOD, FILE, defaults_in
from s3dlm.models.families import find_family
from s3dlm.models.folder import find_folder, read_json, revision_of
from s3dlm.models.known import ENTRY_POINTS, KNOWN
from s3dlm.tasks.prompts import read as read_prompts
from s3dlm.verifier.calibration import calibrations_in

if TYPE_CHECKING:
    import torch

    from s3dlm.models.lora import Adapter

# What loads checkpoints whose config.json has this model_type and that no family describes; it is called
# as (name, folder, *, device, dtype, attention, mask_id, trusted, adapter) and returns a Model.
MODEL_TYPES: Registry[Callable[..., Model]] = Registry("model_type", "s3dlm.model_types", object)
# Ways to use several devices, by the option of `load` that asks for them: (load, options) → Model.
PLACEMENTS: Registry[Callable[..., Model]] = Registry("placement", "s3dlm.placements", object)
DTYPES = ("float32", "bfloat16", "float16")


def check_name(name: str) -> None:
    """Refuse what can name no model, before anything is read or loaded."""
    names = [*KNOWN, *find_entry_points(ENTRY_POINTS)]
    if name not in names and "/" not in name and not Path(name).is_dir():
        raise ModelError(unknown_name("model", name, names) + " A folder or a hub id will do, too")


def load(
    name: str,
    *,
    device: str | None = None,
    devices: str | Sequence[str] | None = None,
    tensor_parallel: bool = False,
    dtype: str | None = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
    compile: bool = False,
    prefix_cache: bool | None = None,
    progress: bool = True,
    revision: str | None = None,
    mask_id: int | None = None,
    block: int | None = None,
    adapter: str | Adapter | None = None,
    quantize: str | None = None,
    dual_cache: int | None = None,
    fast: bool = False,
    prompts: str | None = None,
) -> Model:
    """A model by name; by default on the GPU in bfloat16 if there is one, else on CPU in float32.

    `devices`, such as ["cuda:0", "cuda:1"], shares the rows of each forward pass among copies.
    `tensor_parallel` splits the network among the processes of torchrun; only the first returns.
    `attention` picks PyTorch's kernel: auto, math, flash, efficient or cudnn. `compile` hands the
    network's body to torch.compile: the first forward passes are slow, and rows may differ in their
    last bits from those of the plain network. `prefix_cache` reads prompt and finished blocks once;
    it is exact, and on by default, for block-causal models only. `revision` pins a commit of the
    hub; so does "owner/name@revision", wherever a model is named. `mask_id` is for models whose
    files do not state it. `block` makes a model block-causal with blocks of this size (bd3lm
    checkpoints of A2D do not state theirs); 0 makes it bidirectional. `adapter` is a LoRA adapter, a
    folder or a hub id, that is merged into the weights. `quantize`, int8 or int4, keeps the weights of
    a native network in so many bits (`pip install s3dlm[quantize]`); int4 computes in bfloat16.
    `dual_cache`, an approximation for models that read both ways, runs open blocks alone, and the whole
    row when a block opens and every so many passes (0: never). `fast`: that, and reveal="threshold". `prompts` is a TOML file with prompt templates by task.
    """
    options: dict[str, Any] = {**locals()}
    for way in ("tensor_parallel", "devices"):
        if options[way] not in (None, False):
            return PLACEMENTS.find(way)(load, options)
    check_name(name)
    own = None if prompts is None else read_prompts(prompts)
    plugin = None if name in KNOWN else find_entry_points(ENTRY_POINTS).get(name)
    if plugin is not None:
        if adapter is not None:
            raise SettingsError(f"adapter={adapter!r} is for checkpoints; {name!r} is a plugin")
        _only_native(name, quantize)
        model = cast(Any, load_entry_point(plugin, object))(device=device, dtype=dtype)
        if not isinstance(model, Model):
            kind = type(model).__name__
            raise ModelError(f"the plugin for {name!r} returned a {kind}, not a Model")
    else:
        folder = BUNDLED.get(name) or find_folder(name, revision, code=trust_remote_code)
        if name in BUNDLED and not (folder / "model.safetensors").is_file():
            raise ModelError(
                f"this installation of s3dlm lacks the weights of {name!r}; reinstall the package, "
                f"or train them with tools/{name}"
            )
        config = read_json(folder / "config.json")
        family = find_family(config)
        width = config.get("d_model", config.get("hidden_size"))
        kind = f"{family.name}-{width}".lower() if family else ""
        place = device_of(device)
        dtype = "bfloat16" if dtype is None and quantize == "int4" else dtype
        options = {"device": place, "dtype": dtype_of(dtype, place), "attention": attention}
        options |= {"mask_id": mask_id, "trusted": trust_remote_code}
        if isinstance(adapter, str):
            from s3dlm.models import lora

            adapter = lora.read(adapter)
        options["adapter"] = adapter
        if (kind_of_model := str(config.get("model_type"))) in MODEL_TYPES:
            _only_native(name, quantize)
            model = MODEL_TYPES.find(kind_of_model)(name, folder, **options)
        elif family is None:
            from s3dlm.models.hf import load_with_transformers

            _only_native(name, quantize)
            model = load_with_transformers(name, folder, **options)
        else:
            from s3dlm.models.checkpoint import load_native

            options |= {"block": block, "progress": progress, "quantize": quantize}
            model = load_native(name, folder, family, **options)
        model = replace(
            model,
            defaults=defaults_in(folder) if (folder / FILE).is_file() else model.defaults,
            revision=revision_of(folder),
            calibrations=calibrations_in(folder, name.partition("@")[0], kind),
        )
    if own is not None:
        model = replace(model, defaults=replace(model.defaults, prompts=own))
    return _with_caches(model, compile, prefix_cache, dual_cache, fast)


def _with_caches(
    model: Model, compile: bool, prefix_cache: bool | None, dual_cache: int | None, fast: bool
) -> Model:
    """The model with what shortens its forward passes: caches, compilation, adaptive reveal."""
    name, network = model.name, cast(Any, model.denoiser)
    both_ways = network.prefix_cache is not None and network.causal_block is None
    fits = both_ways and not (compile or prefix_cache)
    if dual_cache is not None and not (fits and type(dual_cache) is int and dual_cache >= 0):
        raise SettingsError(
            f"dual_cache={short_repr(dual_cache)} is not allowed: it is a whole number from 0 up, for "
            "native models that read both ways, without compile and prefix_cache; leave it out"
        )
    if fast:
        if fits and prefix_cache is None:
            dual_cache = dual_cache or 0
        asked = {**model.defaults.settings.get(EVERY_METHOD, {}), "reveal": "threshold"}
        settings = {**model.defaults.settings, EVERY_METHOD: asked}
        model = replace(model, defaults=replace(model.defaults, settings=settings))
    if dual_cache is not None:
        network.dual_cache = dual_cache
    if prefix_cache and (compile or network.prefix_cache is None):
        raise SettingsError(
            f"prefix_cache=True is not supported for {name!r} with compile={compile}; it works "
            "with native models that are not compiled: leave one of the two out"
        )
    if network.prefix_cache is not None and (prefix_cache is not None or compile):
        network.prefix_cache = bool(prefix_cache)
    if compile:
        import torch

        network.encode = torch.compile(network.encode, dynamic=True)
    return model


def _only_native(name: str, quantize: str | None) -> None:
    if quantize is not None:
        raise SettingsError(
            f"quantize={quantize!r} is for native models, and {name!r} is none: leave it out; "
            "`s3dlm list models` says which families are native"
        )


def device_of(name: str | None) -> torch.device:
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"device={name!r} is unknown; use cpu, cuda, cuda:1, mps …") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(f"device={name!r}, but PyTorch sees no GPU here; use device='cpu'")
    return device


def dtype_of(name: str | None, device: torch.device) -> torch.dtype:
    import torch

    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    short = str(name).removeprefix("torch.")
    if short not in DTYPES:
        raise SettingsError(unknown_name("dtype", name, DTYPES))
    return cast("torch.dtype", getattr(torch, short))
