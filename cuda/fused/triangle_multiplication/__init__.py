"""Triangle multiplicative update of the pair representation, outgoing and incoming (Algorithms 11 and 12)."""

from cuda.fused.triangle_multiplication.reference import (
    TriangleMultiplicationWeights,
    triangle_multiplication,
)

__all__ = ["TriangleMultiplicationWeights", "triangle_multiplication"]
