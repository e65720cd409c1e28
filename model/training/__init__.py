"""Training of a network on experimental chains: data, differentiable form, losses, trainer."""
