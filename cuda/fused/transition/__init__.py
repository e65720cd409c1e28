"""The two-layer transition of the MSA and pair representations (Algorithms 9 and 15), and AlphaFold 3's.

`swiglu_transition` is Algorithm 11 of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from cuda.fused.transition.reference import (
    SwigluTransitionWeights,
    TransitionWeights,
    add_transition,
    swiglu_transition,
    transition,
)

__all__ = [
    "SwigluTransitionWeights",
    "TransitionWeights",
    "add_transition",
    "swiglu_transition",
    "transition",
]
