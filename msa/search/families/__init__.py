"""Families of hits, from which profiles are made."""
