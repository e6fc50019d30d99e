"""The reference of settings, written from the code: `python -m s3dlm.integrations.reference FILE`.

What a setting means stands beside it in settings.py as a comment; a test compares the page with what
this writes, so that neither can fall behind the other.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import sys
import tokenize
from pathlib import Path

from s3dlm import settings as source
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings

CHOICES = {
    "method": "METHODS", "policy": "POLICIES", "resampling": "RESAMPLERS",
    "selection": "SELECTIONS", "tilt": "TILTS", "siblings": "SIBLINGS",
}  # fmt: skip

PLAIN = {"method": "a row of the last table", "seed": "same seed, same answer"}  # need no comment

HEAD = """\
# Settings

All that decides a run's result, apart from the model, the prompt and the verifier. The same names are
fields of `s3dlm.Settings`, keys of `--model_args` in lm-evaluation-harness, arguments of transformers'
`generate` and fields of a request to the server; the common ones are flags of `s3dlm generate` and
`s3dlm eval`. This page is written by `python -m s3dlm.integrations.reference docs/settings.md`.
"""

METHOD_HEAD = """\
## Methods
The knobs are the settings that change a method besides those of every decoding (lengths, steps, policy,
temperature, seed). Rows are what it forwards at most in T steps; equal and finished ones are saved, and what
is left of them on tiny is in [beyond.md](beyond.md).

| method | what it is | paper | knobs | rows at most |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page as Markdown."""
    meanings = {**_comments(), **PLAIN}
    rows = [
        f"| `{field.name}` | {_value(field.default)} | {meanings[field.name]} |"
        for field in dataclasses.fields(Settings)
    ]
    lists = [
        f"- `{name}`: " + ", ".join(f"`{one}`" for one in getattr(source, table))
        for name, table in CHOICES.items()
    ]
    methods = [
        f"| `{name}` | {method.summary} | {method.source} | {_names(method.knobs())} | "
        f"{method.most_rows()} |"
        for name, method in METHODS.items()
    ]
    parts = [
        HEAD,
        "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n",
        "## Names that are allowed\n" + "\n".join(lists) + "\n",
        METHOD_HEAD + "\n".join(methods) + "\n",
    ]
    return "\n".join(parts)


def _comments() -> dict[str, str]:
    """The comment beside each field of `Settings`."""
    code = inspect.getsource(source)
    by_line: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            by_line[token.start[0]] = token.string.lstrip("# ").replace("|", "\\|")
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.end_lineno or node.lineno
            lines = [by_line[at] for at in range(node.lineno, last + 1) if at in by_line]
            found[node.target.id] = " ".join(lines)
    return found


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


def _value(default: object) -> str:
    return "–" if default is None else f"`{default}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
