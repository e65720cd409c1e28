"""Triangle multiplicative update of the pair representation, outgoing and incoming (Algorithms 11 and 12).

`gate_first_triangle_multiplication` is the form of GPU MODE's contest, without biases and with the gate
before the output projection.
"""

from cuda.fused.triangle_multiplication.reference import (
    GateFirstWeights,
    TriangleMultiplicationWeights,
    add_triangle_multiplication,
    gate_first_triangle_multiplication,
    triangle_multiplication,
)

__all__ = [
    "GateFirstWeights",
    "TriangleMultiplicationWeights",
    "add_triangle_multiplication",
    "gate_first_triangle_multiplication",
    "triangle_multiplication",
]
