"""Kernels that numba compiles for the CPU: the decorator, vectors and threads."""
