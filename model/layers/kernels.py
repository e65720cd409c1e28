"""The network's choice of an implementation for each heavy operation, made once when the network is built."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cuda.fused.dispatch import (
    HOPPER_TRITON,
    IMPLEMENTATIONS,
    hopper_disabled,
    implementation_module,
    kernel_implementation,
    resolve_implementation,
    triton_installed,
)

_compiled_kernels: list[str] = []
# the operations whose kernels a prediction launches
_OPERATIONS = (
    "layer_norm",
    "pair_bias",
    "attention",
    "triangle_multiplication",
    "transition",
    "outer_product_mean",
)


@dataclass(frozen=True)
class InPlace:
    """An operation that adds its update to its first argument; equal for equal operations."""

    operation: Callable[..., torch.Tensor]

    def __call__(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Return the changed first argument."""
        return self.operation(*arguments, add=True, **options)


@dataclass(frozen=True)
class RowKernels:
    """Operations on some rows of the pair representation, or some residues, for `model.parallel`.

    Signatures are those of the modules `triton` of `cuda.fused`.
    """

    pair_bias: Callable[..., torch.Tensor]
    project_rows: Callable[..., torch.Tensor]
    add_product: Callable[..., torch.Tensor]
    project_residues: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    add_contraction: Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Kernels:
    """One implementation of each heavy operation.

    Signatures are those of the modules `reference` of `cuda.fused`. The operations compute without gradients;
    those whose names begin with `add` change their first argument in place. `fused` is True if operations
    with gradients run fused kernels, too; see the modules `differentiable` of `cuda.fused`.
    """

    layer_norm: Callable[..., torch.Tensor]
    pair_bias: Callable[..., torch.Tensor]
    add_attention: Callable[..., torch.Tensor]
    add_triangle_multiplication: Callable[..., torch.Tensor]
    add_transition: Callable[..., torch.Tensor]
    add_outer_product_mean: Callable[..., torch.Tensor]
    fused: bool
    rows: RowKernels


def select_kernels(name: str, device: torch.device | str = "cpu") -> Kernels:
    """Return the operations of an implementation.

    Args:
        name: "fused", the fastest GPU kernels for the device, or a name that
            `cuda.fused.dispatch.resolve_implementation` accepts: "auto", "reference", "triton" or "hopper".
            GPU kernels raise ValueError for tensors that they do not support.
        device: the device that the network runs on.

    Raises:
        ValueError: the implementation does not exist or does not support this device.
        ModuleNotFoundError: GPU kernels are requested, but Triton is not installed.
    """
    if name != "fused" and name not in IMPLEMENTATIONS:
        raise ValueError(f"unknown kernels {name!r}; expected fused, {', '.join(IMPLEMENTATIONS)}")
    implementation = kernel_implementation(device) if name == "fused" else name
    module = partial(implementation_module, implementation=implementation, device=device)
    if implementation in ("triton", "hopper") and triton_installed():
        # deferred: Triton is optional
        from cuda.fused.compilation import compute_cache_keys, report_compilations

        report_compilations(_compiled_kernels.append)
        for operation in _OPERATIONS:
            compute_cache_keys(module(operation))
    fused = resolve_implementation(implementation, device) != "reference"
    return Kernels(
        layer_norm=module("layer_norm").layer_norm,
        pair_bias=module("pair_bias").pair_bias,
        add_attention=InPlace(module("attention").attention),
        add_triangle_multiplication=InPlace(module("triangle_multiplication").triangle_multiplication),
        add_transition=InPlace(module("transition").transition),
        add_outer_product_mean=module("outer_product_mean").add_outer_product_mean,
        fused=fused,
        rows=RowKernels(
            pair_bias=module("pair_bias").pair_bias,
            project_rows=module("triangle_multiplication").project_rows,
            add_product=module("triangle_multiplication").add_product,
            project_residues=module("outer_product_mean").project_residues,
            add_contraction=module("outer_product_mean").add_contraction,
        ),
    )


REFERENCE = select_kernels("reference")


def compiled_kernels() -> tuple[str, ...]:
    """Return the names of the kernels that this process had to compile for launches, in order."""
    return tuple(_compiled_kernels)


def best_kernels(device: torch.device | str) -> str:
    """Return the choice of "auto": "fused" on a GPU if Triton is installed, otherwise "reference"."""
    return "reference" if resolve_implementation("auto", device) == "reference" else "fused"


def slower_kernels_warning(capability: tuple[int, int], triton_version: str) -> str:
    """Return a warning if Triton's version rules out the fastest kernels of a GPU, or an empty string."""
    if not hopper_disabled(capability, triton_version):
        return ""
    return f"the fastest kernels for this GPU need Triton {HOPPER_TRITON}x, so slower ones run"
