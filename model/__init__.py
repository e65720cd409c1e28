"""Networks in PyTorch, their parameters and training, and predicted structures with scores."""
