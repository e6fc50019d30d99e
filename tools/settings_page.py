"""The reference of settings and methods: `python -m tools.settings_page`.

Everything is read off the settings' schema, and a test compares the page with what this writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from s3dlm.search.methods import METHODS, find_method
from s3dlm.settings import DECODING, FIRST, Settings, allowed, names, schema

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Everything that decides a run's result, apart from the model, the prompt and the verifier. The same names
are keywords of `s3dlm.generate` and `s3dlm.Settings`, options of `s3dlm generate` (those of the first three
tables with `-` for `_`, all of them as `--set NAME=VALUE`), keys of `--model_args` in
lm-evaluation-harness, and fields of a request to the server. A
setting that is left out has the value that the model recommends for the method (`s3dlm.json` beside the
weights), else the method's own, else the default below. A setting that a method does not have is refused.

This page is written by `python -m tools.settings_page`.
"""

METHOD_HEAD = """\
## Methods
`method` names a row of this table; `s3dlm.register_method` adds one (examples/own_method.py). Every method
takes the settings of decoding as well. The last column is the most forward passes in T steps (B blocks, L tokens); equal and
finished answers are not forwarded again.

| method | description | paper | settings of its own | passes at most |
|---|---|---|---|---|
"""

SIX = ("method", *FIRST)
TABLES = {  # group, and whether forms show it
    "Search": ("search", True),
    "Decoding": ("decoding", True),
    "More settings of the search": ("search", False),
    "More settings of decoding": ("decoding", False),
}


def page() -> str:
    """The whole page as Markdown."""
    rest = [(name, one) for name, one in schema().items() if name not in SIX]
    tables = [_table("The six that matter most", SIX)]
    for title, which in TABLES.items():
        tables.append(
            _table(title, [name for name, one in rest if (one["group"], one["shown"]) == which])
        )
    methods = []
    for name in METHODS:
        row = find_method(name)
        used = [one for one in names(row) if one not in DECODING]
        methods.append(
            f"| `{name}` | {row.summary} | {row.source} | {_names(used)} | "
            f"{Settings(name).search.cost} |\n"
        )
    return "\n".join([HEAD, *tables, METHOD_HEAD + "".join(methods)])


def _table(title: str, settings: Iterable[str]) -> str:
    head = f"## {title}\n| setting | default | meaning | allowed |\n|---|---|---|---|\n"
    return head + "".join(map(_row, settings))


def _row(name: str) -> str:
    one = schema()[name]
    default = "–" if one["default"] is None else f"`{one['default']}`"
    choices = _names(one["enum"]) if "enum" in one else allowed(name)
    choices = "[a method](#methods)" if name == "method" else choices
    return f"| `{name}` | {default} | {one['description']} | {choices} |\n"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
