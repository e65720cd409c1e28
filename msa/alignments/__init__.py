"""Alignments: their rows, filters and file formats."""
