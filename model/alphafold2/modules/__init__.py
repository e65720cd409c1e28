"""Modules of AlphaFold2."""
