"""Gated self-attention along one axis of a two-dimensional representation, and its global variant.

`attention` serves MSA row attention with pair bias (Algorithm 7), MSA column attention (Algorithm 8) and
triangle attention around starting and ending nodes (Algorithms 13 and 14); `global_attention` serves the
global column attention of the extra MSA stack (Algorithm 19). Algorithm numbers are those of the supplement
of Jumper et al., Nature 596, 583 (2021).
"""

from cuda.fused.attention.reference import AttentionWeights, add_attention, attention, global_attention

__all__ = ["AttentionWeights", "add_attention", "attention", "global_attention"]
