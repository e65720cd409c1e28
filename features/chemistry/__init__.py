"""Residues, elements and components."""
