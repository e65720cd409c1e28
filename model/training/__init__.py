"""Training of networks on experimental structures: data, differentiable form, losses, trainer."""
