"""Inputs of the all-atom network (AlphaFold 3 as OpenFold3 implements it)."""
