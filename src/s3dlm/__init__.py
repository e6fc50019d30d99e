"""Inference-time search for diffusion language models.

    import s3dlm
    model = s3dlm.load("tiny")
    result = s3dlm.generate(model, "Target: 45 Numbers: 8, 7, 11", task="countdown")

Names are imported when first used, so that `import s3dlm` costs nothing and the parts that need no
torch (answers, verifier) work without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3dlm.engine import Job as Job
    from s3dlm.engine import generate as generate
    from s3dlm.engine import generate_batch as generate_batch
    from s3dlm.engine import infill as infill
    from s3dlm.engine import run as run
    from s3dlm.engine import stream as stream
    from s3dlm.errors import S3dlmError as S3dlmError
    from s3dlm.evaluation import evaluate as evaluate
    from s3dlm.models.base import Denoiser as Denoiser
    from s3dlm.models.base import Model as Model
    from s3dlm.models.registry import load as load
    from s3dlm.result import Result as Result
    from s3dlm.search.methods import METHODS as METHODS
    from s3dlm.search.methods import Method as Method
    from s3dlm.search.methods import register_method as register_method
    from s3dlm.search.remask import Remasking as Remasking
    from s3dlm.search.remask import register_remasking as register_remasking
    from s3dlm.search.revise import Restarts as Restarts
    from s3dlm.search.revise import Revise as Revise
    from s3dlm.search.samples import BestOfK as BestOfK
    from s3dlm.search.samples import Greedy as Greedy
    from s3dlm.search.select import Survivor as Survivor
    from s3dlm.search.smc import S3 as S3
    from s3dlm.search.step import Step as Step
    from s3dlm.settings import Settings as Settings
    from s3dlm.tasks.base import Task as Task
    from s3dlm.trace import read_trace as read_trace
    from s3dlm.trace import write_trace as write_trace
    from s3dlm.verifier.base import Score as Score
    from s3dlm.verifier.base import Verifier as Verifier

__version__ = "0.3.0"

# fmt: off
_NAMES = {
    "engine": ("Job", "generate", "generate_batch", "infill", "run", "stream"),
    "errors": ("S3dlmError",),
    "evaluation": ("evaluate",),
    "models.base": ("Denoiser", "Model"),
    "models.registry": ("load",),
    "result": ("Result",),
    "search.methods": (
        "METHODS", "S3", "BestOfK", "Greedy", "Method", "Restarts", "Revise", "register_method",
    ),
    "search.remask": ("Remasking", "register_remasking"),
    "search.select": ("Survivor",),
    "search.step": ("Step",),
    "settings": ("Settings",),
    "tasks.base": ("Task",),
    "trace": ("read_trace", "write_trace"),
    "verifier.base": ("Score", "Verifier"),
}
# fmt: on
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*sorted(_HOMES), "__version__"]


if not TYPE_CHECKING:  # else every name would be right

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(f"s3dlm.{_HOMES[name]}"), name)
        raise AttributeError(f"module 's3dlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
