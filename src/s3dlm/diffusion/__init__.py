"""Kinds of diffusion: how a canvas is denoised. Those of this package stand in the registry like any other."""

from s3dlm.diffusion.processes import masked
from s3dlm.diffusion.uniform import uniform
from s3dlm.search.particles import PROCESSES

PROCESSES.register("masked", masked)
PROCESSES.register("uniform", uniform)
