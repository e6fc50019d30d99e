"""`python -m s3dlm.extras.lm_eval`: the harness's own command with s3dlm's model and tasks."""

import sys

from s3dlm.errors import MissingExtraError

try:
    from s3dlm.extras.lm_eval.model import main
except MissingExtraError as error:
    print(f"s3dlm: {error}", file=sys.stderr)
    sys.exit(2)

main()
