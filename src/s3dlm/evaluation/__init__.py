"""Evaluation as recorded data: run, resume, compare, report."""
