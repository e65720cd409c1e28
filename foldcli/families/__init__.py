"""Families of networks, one module for each, behind one protocol (`base`)."""
