"""`python -m s3dlm.extras.lm_eval`: the harness's own command with s3dlm's model and tasks."""

from s3dlm.extras.lm_eval.model import main

main()
