"""The fake model under a name, as another package would register it, for commands in processes."""

from __future__ import annotations

import os
from pathlib import Path

from s3dlm.models.base import Model
from tests.fakes import fake_model

ROOT = Path(__file__).parents[2]
TEXTS = (
    "16 + 4 = 20. Therefore the answer is A. <answer>A</answer>",
    "9 + 12 = 21. Therefore the answer is B. <answer>B</answer>",
)


def load(*, device: str | None = None, dtype: str | None = None) -> Model:
    return fake_model(TEXTS, context=2048)


def environment(folder: Path) -> dict[str, str]:
    """Variables under which `s3dlm.load("fake")` works in a new process."""
    info = folder / "fake_plugin-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[s3dlm.models]\nfake = tests.integrations.plugin:load\n"
    )
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
