"""Loading a model from the command line: say so first, because torch and large weights take a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from s3dlm.models.base import Model


def load_model(name: str, *, quiet: bool = False, **how: Any) -> Model:
    """The model, announced on standard error before anything heavy is imported."""
    if not quiet:
        typer.echo(f"loading model {name} …", err=True)
    from s3dlm.models.registry import load

    return load(name, **how)
