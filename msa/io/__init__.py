"""Readers of sequences, structures and arrays, plain or compressed."""
