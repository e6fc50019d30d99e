"""How the search behaves, each question a small study: `python -m benchmarks.behaviour`.

`exact.py` measures distances from the exact target on a model small enough to enumerate, `steps.py`
watches searches step by step, `grids.py` varies settings; `__main__.py` runs them and draws the figures
of docs/appendix/behaviour.md.
"""
