"""The one place where the implementation of the heavy operations is chosen."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cuda.fused import attention, layer_norm, outer_product_mean, transition, triangle_multiplication


@dataclass(frozen=True)
class Kernels:
    """One implementation of each heavy operation; signatures are those of `cuda.fused`."""

    layer_norm: Callable[..., torch.Tensor]
    attention: Callable[..., torch.Tensor]
    global_attention: Callable[..., torch.Tensor]
    triangle_multiplication: Callable[..., torch.Tensor]
    transition: Callable[..., torch.Tensor]
    outer_product_mean: Callable[..., torch.Tensor]


REFERENCE = Kernels(
    layer_norm=layer_norm.layer_norm,
    attention=attention.attention,
    global_attention=attention.global_attention,
    triangle_multiplication=triangle_multiplication.triangle_multiplication,
    transition=transition.transition,
    outer_product_mean=outer_product_mean.outer_product_mean,
)


def select_kernels(name: str) -> Kernels:
    """The operations of an implementation.

    Args:
        name: "reference", plain PyTorch on any device.

    Raises:
        ValueError: there is no such implementation.
    """
    if name != "reference":
        raise ValueError(f"no kernels are called {name!r}; there is 'reference'")
    return REFERENCE
