"""`python -m s3dlm.lm_eval`: the command line of lm-evaluation-harness, with our model and tasks.

The harness has no plugins, so this module imports our model before the harness looks for
`--model s3dlm`. `run`, `ls`, `validate` and all their options are its own.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from s3dlm.errors import MissingExtraError, S3dlmError

TASKS = Path(__file__).parent / "integrations" / "lm_eval_tasks"


def main() -> None:
    """Run the harness; our own errors are one line and exit code 2."""
    try:
        _run()
    except S3dlmError as error:
        print(f"s3dlm: {error}", file=sys.stderr)
        sys.exit(2)


def _run() -> None:
    try:
        from lm_eval._cli import HarnessCLI
        from lm_eval.utils import setup_logging
    except ImportError as error:
        raise MissingExtraError("lm-eval", "eval") from error
    import s3dlm.integrations.lm_eval  # noqa: F401  registers the model

    setup_logging()
    command = HarnessCLI()
    arguments = command.parse_args()
    if hasattr(arguments, "include_path"):
        own = [str(TASKS)]
        arguments.include_path = [*own, arguments.include_path] if arguments.include_path else own
    if _only_ours(getattr(arguments, "tasks", None)):
        _skip_the_index()
    command.execute(arguments)


def _only_ours(wanted: Any) -> bool:
    names = wanted.split(",") if isinstance(wanted, str) else [*(wanted or ())]
    names = [name for group in names for name in str(group).split(",")]
    return bool(names) and all((TASKS / f"{name}.yaml").is_file() for name in names)


def _skip_the_index() -> None:
    """Reading the harness's thousands of task files takes longer than a small run."""
    import lm_eval.tasks

    lm_eval.tasks.TaskManager = functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)


if __name__ == "__main__":
    main()
