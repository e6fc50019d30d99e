"""d1's prompts for `--prompts`, read from a checkout of d1 or HEX, whose texts are not copied here.

    git clone https://github.com/dllm-reasoning/d1
    python -m tools.d1_prompts d1 > d1.toml
    s3dlm reproduce --model GSAI-ML/LLaDA-8B-Instruct --prompts d1.toml

Both ask in one user turn, the instruction, a blank line and the question, and open the assistant's turn with
`<reasoning>`. The instruction of a task is the constant `…SYSTEM_PROMPT` of `eval/TASK.py`.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path

from s3dlm.errors import SettingsError
from s3dlm.tasks.base import PREFILL
from s3dlm.tasks.prompts import PLACE

FILES = {  # of the checkout's folder eval/: our tasks
    "gsm8k": ("gsm8k",),
    "math500": ("math500",),
    "countdown": ("countdown",),
    "sudoku": ("sudoku",),
    "arc": ("arc",),
    "arc_c": ("arc",),
    "truthfulqa": ("truthfulqa", "truthfulqa_mc"),
}


def instruction(path: Path) -> str | None:
    """The text of the file's constant for prompts; nothing of the file is run."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named = node.targets[0].id.endswith("SYSTEM_PROMPT")
            if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return node.value.value
    return None


def prompts(checkout: Path) -> str:
    """The file of prompts as TOML."""
    tables = []
    for path in sorted((checkout / "eval").glob("*.py")):
        text = instruction(path) if path.stem in FILES else None
        for task in FILES[path.stem] if text is not None else ():
            user = json.dumps(f"{text}\n\n{PLACE}", ensure_ascii=False)  # also a string of TOML
            tables.append(f"[{task}]\nuser = {user}\nprefill = {json.dumps(PREFILL)}\n")
    if not tables:
        raise SettingsError(
            f"{checkout} has no eval/TASK.py with a constant …SYSTEM_PROMPT; give the folder of a "
            f"checkout of d1 (files: {', '.join(FILES)})"
        )
    return "\n".join(tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(), help="default: .")
    try:
        print(prompts(parser.parse_args().checkout), end="")
    except SettingsError as error:
        sys.exit(f"error: {error}")
