"""The CPU engine: gapless filter and gapped alignment, vectorised with numba, threaded over targets."""
