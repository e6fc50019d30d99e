"""How a canvas fills: schedules, masked diffusion, blocks, edits, holes."""
