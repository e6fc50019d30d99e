"""The folder that transformers' `custom_generate` takes: a few lines that call custom_generate.py."""

from __future__ import annotations

from pathlib import Path

STUB = '''\
"""Search at inference time for masked diffusion models; the code is in the package s3dlm.

    model.generate(ids, custom_generate=FOLDER, trust_remote_code=True, tokenizer=tokenizer)
"""

from s3dlm.integrations.custom_generate import generate as _generate


def generate(model, **arguments):
    return _generate(model, **arguments)
'''


def export(folder: Path) -> Path:
    """Write the folder that `custom_generate` takes; returns the file with the function."""
    target = folder / "custom_generate"
    target.mkdir(parents=True, exist_ok=True)
    (target / "requirements.txt").write_text("s3dlm\n", encoding="utf-8")
    path = target / "generate.py"
    path.write_text(STUB, encoding="utf-8")
    return path
