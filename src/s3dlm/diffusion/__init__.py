"""Masked diffusion: how a canvas is denoised. It stands in the registry of processes like any other kind."""

from s3dlm.diffusion.processes import masked
from s3dlm.search.particles import PROCESSES

PROCESSES.register("masked", masked)
