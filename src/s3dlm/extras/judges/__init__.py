"""Learned verifiers: reward models, process rewards, likelihoods, and language models as judges."""
