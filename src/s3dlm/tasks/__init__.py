"""The benchmarks, looked up by name."""

from __future__ import annotations

from collections.abc import Sequence

from s3dlm.errors import short_repr
from s3dlm.tasks.base import NONE as NONE
from s3dlm.tasks.base import PROMPT_STYLES as PROMPT_STYLES
from s3dlm.tasks.base import TASKS as TASKS
from s3dlm.tasks.base import Prompt as Prompt
from s3dlm.tasks.base import Sample as Sample
from s3dlm.tasks.base import Task as Task
from s3dlm.tasks.base import get as get
from s3dlm.tasks.base import of_question as of_question
from s3dlm.tasks.benchmarks import BENCHMARKS
from s3dlm.tasks.data import Loaded as Loaded
from s3dlm.tasks.data import load as load
from s3dlm.tasks.data import require_file as require_file
from s3dlm.tasks.data import task_of_file

for _task in BENCHMARKS:
    TASKS.register(_task.name, _task)
for _mark in (".jsonl", ".csv"):
    TASKS.files[_mark] = task_of_file


def names() -> list[str]:
    """Every task that `get` finds by name."""
    return list(TASKS)


def outside(model: str, known: Sequence[str], given: str | None, question: object) -> str | None:
    """Why a model would write nonsense: every task that it knows has a form, and no task was given and
    the question has none of these forms. None: it may well answer."""
    small = given is None and all(get(name).form is not None for name in known)
    if not small or of_question(None, question, known) is not None:
        return None
    kinds = f"{model} knows {len(known)} kinds of question"
    return f"{kinds}, and {short_repr(question)} is not one of them"
