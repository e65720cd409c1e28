"""The network's heavy operations: one folder each, with its plain PyTorch reference."""
