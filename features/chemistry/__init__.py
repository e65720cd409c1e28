"""Molecules: residue classes, elements, components of the Chemical Component Dictionary, conformers."""
