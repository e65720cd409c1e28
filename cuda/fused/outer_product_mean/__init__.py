"""The outer product mean, from the MSA to the pair representation (Algorithm 10).

The algorithm number is that of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

from cuda.fused.outer_product_mean.reference import OuterProductMeanWeights

__all__ = ["OuterProductMeanWeights"]
