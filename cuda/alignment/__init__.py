"""GPU kernels for sequence alignment, written with numba.cuda.

`gapless` scores targets without gaps, `top_k` selects the best-scoring targets of a query, and
`smith_waterman` computes gapped alignments.
"""
