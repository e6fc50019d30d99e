"""A user's own task: a JSONL file and the names of a profile and a kind of answer.

Each line is `{"question": …, "gold": …}`; "answer" is taken for "gold" where that is missing.
"""

from __future__ import annotations

import functools
from pathlib import Path

from s3dlm.errors import RecordError, SettingsError
from s3dlm.tasks.base import Row, Source, Task


def parse(row: Row, index: int) -> tuple[str, object]:
    """Only a question is needed to ask; without a gold answer nothing can be graded."""
    gold = row.get("gold", row.get("answer"))
    if "question" not in row or gold is None:
        raise RecordError(
            f"row {index + 1} has the fields {', '.join(sorted(row)) or 'none'}; a task needs "
            "'question' and 'gold' (or 'answer') in every row"
        )
    return str(row["question"]), gold


@functools.cache
def from_file(spec: str) -> Task:
    """The task of `FILE.jsonl:PROFILE[:ANSWER]`; the kind of answer is the profile's by default."""
    path, _, names = spec.partition(".jsonl:")
    if not names:
        raise SettingsError(
            f"task={spec!r} names a file without a verifier profile; write FILE.jsonl:PROFILE, "
            "for example problems.jsonl:gsm8k"
        )
    profile, _, answer = names.partition(":")
    file = Path(f"{path}.jsonl").resolve()
    return Task(
        name=file.stem,
        title=file.stem,
        profile=profile,
        answer=answer or profile,
        source=Source(files=(str(file),), parse=parse),
    )
