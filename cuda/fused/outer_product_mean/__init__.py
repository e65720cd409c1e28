"""The outer product mean, from the MSA to the pair representation (Algorithm 10)."""

from cuda.fused.outer_product_mean.reference import (
    OuterProductMeanWeights,
    add_outer_product_mean,
    outer_product_mean,
)

__all__ = ["OuterProductMeanWeights", "add_outer_product_mean", "outer_product_mean"]
