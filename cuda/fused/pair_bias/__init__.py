"""What attention adds to its logits: a projection of the normalised pair representation to heads."""

from cuda.fused.pair_bias.reference import pair_bias

__all__ = ["pair_bias"]
