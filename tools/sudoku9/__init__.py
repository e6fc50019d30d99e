"""The bundled model of 9×9 Sudoku grids: its grids and puzzles, and its training."""
