"""The LM Evaluation Harness: s3dlm models as an lm-eval model, and its tasks."""
