"""The search engine for NVIDIA GPUs, built on the kernels of cuda.alignment; see "GPUs" in docs/search.md."""
