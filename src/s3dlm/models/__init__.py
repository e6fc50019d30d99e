"""Diffusion language models: the protocol, the native transformer, and how to load one."""
