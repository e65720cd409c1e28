"""Residues, elements, and components with their conformers."""
