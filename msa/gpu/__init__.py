"""The search engine on NVIDIA GPUs, built on the kernels of cuda.alignment; see docs/search.md, GPUs."""
