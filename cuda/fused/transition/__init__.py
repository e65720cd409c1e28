"""The two-layer transition of the MSA and pair representations (Algorithms 9 and 15)."""

from cuda.fused.transition.reference import TransitionWeights, transition

__all__ = ["TransitionWeights", "transition"]
