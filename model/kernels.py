"""The one place where the implementation of the heavy operations is chosen."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec

import torch

from cuda.fused import (
    attention,
    layer_norm,
    outer_product_mean,
    pair_bias,
    transition,
    triangle_multiplication,
)


@dataclass(frozen=True)
class Kernels:
    """One implementation of each heavy operation; signatures are those of `cuda.fused`."""

    layer_norm: Callable[..., torch.Tensor]
    pair_bias: Callable[..., torch.Tensor]
    add_attention: Callable[..., torch.Tensor]
    global_attention: Callable[..., torch.Tensor]
    add_triangle_multiplication: Callable[..., torch.Tensor]
    add_transition: Callable[..., torch.Tensor]
    add_outer_product_mean: Callable[..., torch.Tensor]


REFERENCE = Kernels(
    layer_norm=layer_norm.layer_norm,
    pair_bias=pair_bias.pair_bias,
    add_attention=attention.add_attention,
    global_attention=attention.global_attention,
    add_triangle_multiplication=triangle_multiplication.add_triangle_multiplication,
    add_transition=transition.add_transition,
    add_outer_product_mean=outer_product_mean.add_outer_product_mean,
)

# The operations that have a Triton kernel, and where; "fused" takes the reference for all others. Named and
# not imported, because Triton comes with torch's CUDA wheels only.
FUSED = {
    "layer_norm": "cuda.fused.layer_norm.kernel",
    "pair_bias": "cuda.fused.pair_bias.kernel",
    "add_attention": "cuda.fused.attention.kernel",
    "global_attention": "cuda.fused.attention.global_kernel",
    "add_triangle_multiplication": "cuda.fused.triangle_multiplication.kernel",
    "add_transition": "cuda.fused.transition.kernel",
    "add_outer_product_mean": "cuda.fused.outer_product_mean.kernel",
}


def best_kernels(device: torch.device | str) -> str:
    """What "auto" stands for: "fused" on a CUDA device if Triton is there, otherwise "reference"."""
    on_cuda = torch.device(device).type == "cuda"
    return "fused" if on_cuda and find_spec("triton") is not None else "reference"


def slower_for(capability: tuple[int, int], triton_version: str) -> str:
    """What a version of Triton costs on a GPU of this compute capability; nothing is an empty string."""
    from cuda.fused.hopper import TRITON, held_back

    if not held_back(capability, triton_version):
        return ""
    return f"the fastest kernels for this GPU need Triton {TRITON}x, so slower ones run"


def select_kernels(name: str, device: torch.device | str = "cpu") -> Kernels:
    """The operations of an implementation.

    Args:
        name: "reference", plain PyTorch on any device; "fused", Triton kernels for the operations in FUSED,
            which take what their docstrings say and nothing else; or "auto", see `best_kernels`.
        device: where the network runs.

    Raises:
        ValueError: there is no such implementation.
        ModuleNotFoundError: "fused" was asked for and Triton is not installed.
    """
    if name == "auto":
        name = best_kernels(device)
    if name == "reference":
        return REFERENCE
    if name != "fused":
        raise ValueError(f"no kernels are called {name!r}; there are 'auto', 'fused' and 'reference'")
    return replace(REFERENCE, **{field: getattr(import_module(at), field) for field, at in FUSED.items()})
