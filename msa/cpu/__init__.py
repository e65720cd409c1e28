"""The CPU engine: gapless filter and gapped alignment with SIMD vectors and threads."""
