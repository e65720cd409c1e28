"""The device and the implementation that kernel tests run on."""

import os

import torch

from cuda.fused.dispatch import kernel_implementation

# Triton's interpreter runs kernels on CPU tensors; it must be enabled before the kernels are imported
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
IMPLEMENTATION = "triton" if INTERPRETED or not torch.cuda.is_available() else kernel_implementation("cuda")
