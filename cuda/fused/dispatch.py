"""The choice between the implementations of an operation, and the check of its arguments' shapes.

An operation has a reference in plain PyTorch, kernels in Triton for any CUDA GPU, and most have kernels for
Hopper GPUs (compute capability 9.0). The Hopper kernels are written in Gluon, which Triton calls
experimental, so they run only with the version of Triton that they were tested with.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch

from cuda.fused.gpu_model import gpu_model

IMPLEMENTATIONS = ("auto", "reference", "triton", "hopper")
HOPPER_CAPABILITY = (9, 0)
HOPPER_TRITON = "3.6."


def resolve_implementation(implementation: str, device: torch.device | str) -> str:
    """Return the implementation that a name stands for on a device: "reference", "triton" or "hopper".

    "auto" is the fastest one for the device.

    Raises:
        ValueError: the name is unknown, or "hopper" is requested for another device or version of Triton.
    """
    if implementation not in IMPLEMENTATIONS:
        known = ", ".join(repr(name) for name in IMPLEMENTATIONS)
        raise ValueError(f"unknown implementation {implementation!r}; expected one of {known}")
    if implementation == "auto":
        on_cuda = torch.device(device).type == "cuda"
        return kernel_implementation(device) if on_cuda and triton_installed() else "reference"
    if implementation == "hopper" and not hopper_available(device):
        raise ValueError(f"Hopper kernels need a Hopper GPU and Triton {HOPPER_TRITON}x, not {device}")
    return implementation


def implementation_module(
    operation: str, implementation: str = "auto", device: torch.device | str = "cpu"
) -> ModuleType:
    """Return the module that implements an operation; its functions do not check shapes.

    An operation without kernels of its own for Hopper GPUs uses the Triton kernels there.

    Raises:
        ValueError: see `resolve_implementation`.
        ModuleNotFoundError: kernels are requested, but Triton is not installed.
    """
    return _import_implementation(operation, resolve_implementation(implementation, device))


@cache
def _import_implementation(operation: str, name: str) -> ModuleType:
    # imported when first used: Triton is optional, and Gluon differs between its versions
    package = f"cuda.fused.{operation}"
    if name == "hopper" and find_spec(f"{package}.hopper") is None:
        name = "triton"
    return import_module(f"{package}.{name}")


def kernel_implementation(device: torch.device | str) -> str:
    """Return "hopper" if the Hopper kernels run on a device, otherwise "triton"."""
    return "hopper" if hopper_available(device) else "triton"


@cache
def triton_installed() -> bool:
    """Return whether Triton can be imported; torch's CPU wheels come without it."""
    return find_spec("triton") is not None


def hopper_available(device: torch.device | str) -> bool:
    """Return whether the Hopper kernels run on a device."""
    gpu = gpu_model(device)
    return gpu is not None and _runs_hopper_kernels(gpu.capability)


@cache
def _runs_hopper_kernels(capability: tuple[int, int]) -> bool:
    if capability != HOPPER_CAPABILITY or not triton_installed():
        return False
    # deferred: Triton is optional
    import triton

    return not hopper_disabled(capability, triton.__version__)


def hopper_disabled(capability: tuple[int, int], triton_version: str) -> bool:
    """Return whether a GPU could run the Hopper kernels, but this version of Triton cannot compile them."""
    return capability == HOPPER_CAPABILITY and not triton_version.startswith(HOPPER_TRITON)


def needs_gradients(*tensors: torch.Tensor | None) -> bool:
    """Return whether the gradient of any of some tensors is being recorded."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def check_shapes(
    operation: str,
    tensors: dict[str, tuple[torch.Tensor | None, str]],
    weights: Sequence[torch.Tensor] = (),
    weight_axes: Sequence[str] = (),
) -> None:
    """Check that the shapes of an operation's arguments fit together.

    Args:
        operation: name for the error message.
        tensors: by argument name, a tensor and its axes, such as "B L C". Axes with the same letter have the
            same size, "*" has any size, and a leading "..." stands for any number of axes. None is skipped.
        weights: a NamedTuple of parameters.
        weight_axes: the axes of each of them.

    Raises:
        ValueError: a tensor has another number of axes, or sizes disagree.
    """
    sizes: dict[str, int] = {}
    fields = getattr(weights, "_fields", ())
    named = {name: (weight, axes) for name, weight, axes in zip(fields, weights, weight_axes, strict=True)}
    for name, (tensor, axes) in (tensors | named).items():
        if tensor is None:
            continue
        letters, shape = axes.split(), tuple(tensor.shape)
        if letters[0] == "...":
            letters = letters[1:]
            shape = shape[-len(letters) :]
        fits = len(shape) == len(letters) and all(
            letter == "*" or sizes.setdefault(letter, size) == size
            for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
            raise ValueError(
                f"{operation}: {name} has shape {list(tensor.shape)}, expected [{', '.join(axes.split())}] "
                f"with {known}"
            )
