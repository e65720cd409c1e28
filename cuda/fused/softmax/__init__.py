"""Softmax of attention logits with their scale, mask and bias, for where logits are wanted in memory."""

from cuda.fused.softmax.reference import softmax

__all__ = ["softmax"]
