"""What is known of a model's answers: how score, agreement and confidence relate to being right.

`s3dlm calibrate` writes a file `calibration.json` beside the weights; for a few models the package
has one itself. A calibration belongs to weights: if the folder's weights are not those it was
fitted on, it is not used. Reading it needs no torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.errors import ModelError
from s3dlm.models.defaults import TINY
from s3dlm.models.folder import read_json, shards

FILE = "calibration.json"
BUNDLED = Path(__file__).parent / "calibrated"  # for models whose weights are elsewhere
_READ = 2**20  # bytes of each end of a weight file; training changes all of them


@dataclass(frozen=True, slots=True)
class Fit:
    """The calibration of one method on one task, and what it was worth on questions it never saw."""

    task: str
    method: str
    verifier: str  # whose score it reads
    weights: Mapping[str, float]  # of a logistic curve: intercept, score, agreement, confidence
    questions: int = 0
    answers: int = 0
    accuracy: float = 0.0
    brier: float = 0.0  # cross-fitted over questions

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is a calibration of; there is one for each."""
        return (self.task, self.method, self.verifier)


@dataclass(frozen=True, slots=True)
class Calibrations:
    """All fits of one model."""

    fits: tuple[Fit, ...] = ()
    fingerprint: str | None = None  # of the weights, as an evaluation computes it
    signature: str | None = None  # of the weight files, cheap enough for every load

    def find(self, task: str | None, method: str, verifier: str | None) -> Fit | None:
        """The fit for a task and method whose scores are this verifier's; None: any verifier's."""
        for fit in self.fits:
            if (fit.task, fit.method) == (task, method) and verifier in (None, fit.verifier):
                return fit
        return None

    def updated(self, new: Iterable[Fit]) -> Calibrations:
        """With some fits added or replaced."""
        fits = {fit.key: fit for fit in (*self.fits, *new)}
        return dataclasses.replace(self, fits=tuple(fits[key] for key in sorted(fits)))

    def to_text(self) -> str:
        """The file's text; numbers have six digits."""
        rows = [json.dumps(_rounded(dataclasses.asdict(fit))) for fit in self.fits]
        head = json.dumps({"fingerprint": self.fingerprint, "signature": self.signature})
        return f'{head[:-1]}, "fits": [\n ' + ",\n ".join(rows) + "\n]}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read_calibrations(path: Path) -> Calibrations:
    """A calibration file; none is an empty one."""
    if not path.is_file():
        return Calibrations()
    data = read_json(path)
    try:
        fits = tuple(Fit(**one) for one in data["fits"])
        for fit in fits:
            dict(fit.weights)
        return Calibrations(fits, data.get("fingerprint"), data.get("signature"))
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(
            f"{path} is not a calibration ({type(error).__name__}: {error}); remove it, or write "
            "it again with `s3dlm calibrate`"
        ) from error


def calibrations_in(folder: Path, name: str = "") -> Calibrations:
    """The calibrations of a checkpoint folder, else the bundled ones of a model's name.

    Those of a folder whose weights have changed since are left out.
    """
    if not (folder / FILE).is_file():
        return read_calibrations(bundled(name))
    found = read_calibrations(folder / FILE)
    if found.signature not in (None, signature(folder)):
        return Calibrations()
    return found


def bundled(name: str) -> Path:
    """Where the package keeps the calibration of a model of the hub, if it has one."""
    return BUNDLED / f"{name.replace('/', '--')}.json"


def folder_of(name: str) -> Path | None:
    """The folder of a model's weights on this disk."""
    if name == "tiny":
        return TINY
    if Path(name).is_dir():
        return Path(name)
    from s3dlm.models.hub import HUB_ID, cached_folder

    return cached_folder(name) if HUB_ID.fullmatch(name) else None


def signature(folder: Path) -> str | None:
    """A hash of both ends of every weight file; None where there is none."""
    digest = hashlib.sha256()
    try:
        files = shards(folder)
    except ModelError:
        return None
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_READ))
            file.seek(max(0, size - _READ))
            digest.update(file.read(_READ))
    return digest.hexdigest()[:16]
