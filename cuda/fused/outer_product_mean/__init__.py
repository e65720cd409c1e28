"""The outer product mean, from the MSA to the pair representation (Algorithm 10)."""

from cuda.fused.outer_product_mean.reference import OuterProductMeanWeights, outer_product_mean

__all__ = ["OuterProductMeanWeights", "outer_product_mean"]
