"""Refinement of predicted structures: regular peptide bonds and no clashes, without a force field."""
