"""Searches by structure, and the superposition of their hits."""
