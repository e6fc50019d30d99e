"""Accuracy over forward passes for every method in one frame: `python -m benchmarks.frontier`.

`entries.py` says what is compared, `stages.py` tunes on validation and runs the test split, `curves.py`
compares curves at equal NFE, `tables.py` and `page.py` show them.
"""
