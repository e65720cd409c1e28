"""The AlphaFold2 network."""
