"""Hooks of `make docs`: fences as readers see them, and the page of commands, which is written from the program."""

from __future__ import annotations

import re
from typing import Any

import typer
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from s3dlm.cli.main import app

MARKED = re.compile(r"^(```\w+) \w+$", re.MULTILINE)  # the second word is for tests/test_docs.py
EXAMPLES = re.compile(r"(?:^s3dlm .*\n)+", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Every command with its options, as `--help` has them."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="s3dlm")
    text = EXAMPLES.sub(
        lambda found: f"```console\n{found[0]}```\n", text.replace("$ s3dlm", "s3dlm")
    )
    page = text.replace("# `s3dlm`", "# Commands", 1)
    files.append(File.generated(config, "commands.md", content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return MARKED.sub(r"\1", markdown)
