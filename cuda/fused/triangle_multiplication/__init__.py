"""Triangle multiplicative update of the pair representation, outgoing and incoming (Algorithms 11 and 12).

Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights

__all__ = ["TriangleMultiplicationWeights"]
