"""What a weighting of one's own is told: how far the search is, so that it can listen late."""

from __future__ import annotations

import numpy as np
import pytest

import s3dlm
from s3dlm.search.weigh import WEIGHTS, Weighting, WeightInputs
from s3dlm.settings import Settings
from tests.fakes import events_of, fake_model


@pytest.mark.parametrize("reveal", ["schedule", "threshold"])
def test_it_knows_how_much_of_the_search_is_done(
    reveal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, bool]] = []

    def listen(now: WeightInputs) -> np.ndarray:
        told.append((now.done, now.last))
        return now.lam * now.done * now.score

    monkeypatch.setitem(WEIGHTS, "listening", Weighting(listen))
    row = s3dlm.Method(branches=True, weight="listening", defaults={"resampling": "ssp"})
    steps = {"steps": 8} if reveal == "schedule" else {}
    settings = Settings(row, gen_length=32, block_length=32, reveal=reveal, **steps)
    list(
        events_of(fake_model(), "Target: 24 Numbers: 6, 4, 12", task="countdown", settings=settings)
    )
    done = [share for share, _ in told]
    assert done == sorted(done)
    assert 0 < done[0] < 1
    assert [share == 1.0 for share in done] == [last for _, last in told]
    if reveal == "schedule":
        assert done == [step / 8 for step in range(1, 9)]
