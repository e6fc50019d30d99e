"""What sort of answer each task asks for: the one table by which the rest of the folder decides."""

from __future__ import annotations

from typing import Literal, get_args

from s3dlm.errors import SettingsError, unknown_name

Kind = Literal["number", "math", "choice", "expression", "grid", "code", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TASK_KINDS: dict[str, Kind] = {
    "gsm8k": "number",
    "arithmetic": "number",
    "chain": "number",
    "math500": "math",
    "aime": "math",
    "arc": "choice",
    "truthfulqa": "choice",
    "truthfulqa_mc": "choice",
    "choice": "choice",
    "countdown": "expression",
    "sudoku": "grid",
    "sudoku9": "grid",
    "general": "text",
}

_ALL: dict[str, Kind] = {**TASK_KINDS, **{kind: kind for kind in KINDS}}


def kind_of(kind_or_task: str) -> Kind:
    """The kind of answer a task asks for; a kind names itself."""
    try:
        return _ALL[kind_or_task]
    except KeyError:
        raise SettingsError(unknown_name("task", kind_or_task, _ALL)) from None
