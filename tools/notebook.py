"""Runs examples/first_search.ipynb and stores what its cells print and show: python -m tools.notebook"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_search.ipynb"


def outputs_of(cell: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """A cell as a notebook runs it: what it prints, and the value of its last expression."""
    code = ast.parse(cell)
    last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # type: ignore[attr-defined]
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        found.append({**shown, "data": data})
    return found


def main() -> None:
    notebook, names = json.loads(NOTEBOOK.read_text()), dict[str, Any]()
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = outputs_of("".join(cell["source"]), names, number)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
