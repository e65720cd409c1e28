"""The training form of AlphaFold2."""
