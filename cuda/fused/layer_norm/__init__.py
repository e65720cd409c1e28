"""Layer normalisation over the last axis."""

from cuda.fused.layer_norm.reference import layer_norm

__all__ = ["layer_norm"]
