"""Accuracy over forward passes for every method in one frame: `python -m benchmarks.frontier`.

`entries.py` says what is compared, `stages.py` tunes on validation and runs the test split, `curves.py`
reads the records as curves and compares them at equal NFE, `tables.py`, `lengths.py`, `pictures.py` and `page.py`
show them.
"""
