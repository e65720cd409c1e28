"""The search engine on NVIDIA GPUs, around the kernels of cuda.alignment; docs/search.md, GPUs."""
