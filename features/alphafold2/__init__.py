"""Inputs of AlphaFold2, made from alignments."""
