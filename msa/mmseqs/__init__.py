"""Databases of MMseqs2."""
