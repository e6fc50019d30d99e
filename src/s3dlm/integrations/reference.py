"""The reference of settings and methods: `python -m s3dlm.integrations.reference docs/settings.md`.

Everything is read off the declarations, and a test compares the page with what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from s3dlm.declare import Declaration
from s3dlm.search.methods import METHODS
from s3dlm.settings import declarations

HEAD = """\
# Settings

Everything that decides a run's result, apart from the model, the prompt and the verifier. The same names
are keywords of `s3dlm.generate` and `s3dlm.Settings`, options of `s3dlm generate` (with `-` for `_`), keys
of `--model_args` in lm-evaluation-harness, arguments of transformers' `generate`, and fields of a request
to the server. A setting that is left out has the value that the model recommends for the method
(`s3dlm.json` beside the weights), else the method's own, else the default below. A setting that a method
does not use is refused, with the reason.

This page is written by `python -m s3dlm.integrations.reference docs/settings.md`.
"""

METHOD_HEAD = """\
## Methods
`method` names a row of this table; `s3dlm.register_method` adds one (examples/own_method.py). "Search
settings" are those that change what the method does. NFE is the most it can take in T steps; equal and
finished answers are not forwarded again.

| method | description | paper | search settings | NFE at most |
|---|---|---|---|---|
"""

GROUPS = {"method": "Search", "decoding": "Decoding"}


def page() -> str:
    """The whole page as Markdown."""
    tables = [
        f"## {title}\n| setting | default | meaning | allowed |\n|---|---|---|---|\n"
        + "".join(_row(one) for one in declarations().values() if one.group == group)
        for group, title in GROUPS.items()
    ]
    methods = [
        f"| `{name}` | {row.summary} | {row.source} | {_names(list(row.settings()))} | "
        f"{row.nfe_formula()} |\n"
        for name, row in METHODS.items()
    ]
    return "\n".join([HEAD, *tables, METHOD_HEAD + "".join(methods)])


def _row(one: Declaration) -> str:
    default = "–" if one.default is None else f"`{one.default}`"
    allowed = _names(list(one.choices)) if one.choices else one.allowed
    return f"| `{one.name}` | {default} | {one.help} | {allowed} |\n"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
