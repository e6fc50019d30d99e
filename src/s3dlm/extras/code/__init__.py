"""Code: tasks, verifier, grading and the sandbox that runs what a model wrote."""
