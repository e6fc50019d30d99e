"""Learned verifiers by name: `reward:MODEL`, `prm:MODEL`, `likelihood:MODEL`, `judge:URL#MODEL`.

A calibration may follow: `reward:MODEL?slope=0.5&intercept=-1` maps the raw score x to
1 / (1 + exp(−(0.5 x − 1))). Models are loaded when first named, once per process.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.verifier.base import Verifier

if TYPE_CHECKING:
    from s3dlm.verifier.calibration import Logistic

KINDS = ("reward", "prm", "likelihood", "judge")
SPELLINGS = ("reward:MODEL", "prm:MODEL", "likelihood:MODEL", "judge:URL#MODEL")


def is_learned(name: str) -> bool:
    """Whether a verifier's name has the form of a learned one."""
    kind, colon, rest = name.partition(":")
    return kind in KINDS and bool(colon) and bool(rest)


@lru_cache(maxsize=8)
def learned(name: str) -> Verifier:
    """The learned verifier of a name; the same name gives the same one."""
    kind, _, rest = name.partition(":")
    rest, _, options = rest.rpartition("?") if "?" in rest else (rest, "", "")
    calibration = _calibration(name, options)
    if kind == "judge":
        from s3dlm.verifier.judge import EndpointJudge

        url, _, model = rest.partition("#")
        return EndpointJudge(url, model, calibration)
    if kind == "reward":
        from s3dlm.verifier.reward import RewardModel as Model
    elif kind == "prm":
        from s3dlm.verifier.process_reward import ProcessRewardModel as Model  # type: ignore[assignment]
    else:
        from s3dlm.verifier.likelihood import Likelihood as Model  # type: ignore[assignment]
    made: Verifier = Model.load(rest, calibration=calibration)
    return made


def _calibration(name: str, options: str) -> Logistic | None:
    from s3dlm.verifier.calibration import Logistic

    if not options:
        return None
    given: dict[str, float] = {}
    for key, value in parse_qsl(options, keep_blank_values=True):
        if key not in ("slope", "intercept"):
            raise SettingsError(
                f"in {name!r}: {unknown_name('option', key, ('slope', 'intercept'))}"
            )
        try:
            given[key] = float(value)
        except ValueError:
            given[key] = math.nan
        if not math.isfinite(given[key]):
            raise SettingsError(f"in {name!r}: {key}={value!r} is not a number")
    return Logistic(**given)
