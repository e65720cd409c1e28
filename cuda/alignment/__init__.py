"""GPU alignment kernels in numba.cuda."""
