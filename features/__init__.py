"""Alignments in, model inputs out: deterministic features, their cache, and the random draws of a seed."""
