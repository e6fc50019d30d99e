"""Search at inference time for diffusion language models."""
