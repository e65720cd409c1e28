"""AlphaFold2 in PyTorch: parameters, network, recycling, and structure files."""
