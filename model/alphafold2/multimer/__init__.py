"""Modules and inputs of AlphaFold-Multimer."""
