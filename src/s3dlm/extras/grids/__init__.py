"""Grids, such as 9×9 Sudoku: a method of their own for the bundled model."""
