"""What kernel tests share, and Triton's interpreter, which runs kernels on CPU tensors.

The interpreter has to be chosen before kernels are imported, so where there is no GPU the files of kernel
tests run in processes of their own, which test_interpreter.py starts.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
collect_ignore_glob = [] if INTERPRETED or torch.cuda.is_available() else ["test_*_kernel.py"]

if INTERPRETED:
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        # its scalars are arrays of one element, which int() no longer takes
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index


# the interpreter's products of bfloat16 are wrong
@pytest.fixture(params=["float32", "float16"] + ([] if INTERPRETED else ["bfloat16"]))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each dtype that kernels can be tested in here."""
    return getattr(torch, request.param)


@pytest.fixture(params=[1, 2, 17, 63, 64, 65, 100] + ([] if INTERPRETED else [255, 257, 509]))
def length(request: pytest.FixtureRequest) -> int:
    """Lengths beside the sizes of tiles."""
    return request.param


@pytest.fixture(params=["normal", "Cauchy"])
def draw(request: pytest.FixtureRequest, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    """Draws a tensor of the dtype: normal numbers or, where asked for, long-tailed ones within float16."""

    def drawn(*shape: int, seed: int = 0, tailed: bool = False, scale: float = 1.0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed + sum(shape))
        x = torch.randn(shape, generator=generator)
        if tailed and request.param == "Cauchy":
            x = (x / torch.randn(shape, generator=generator)).clamp(-3e4, 3e4)
        return (scale * x).to(DEVICE, dtype)

    return drawn


@pytest.fixture
def compare() -> Callable[..., None]:
    """Compares a kernel with float64: at most twice plain PyTorch's error in the same dtype, and 1e-6 of the
    largest number, as float32 sums in another order may differ by more than their errors."""

    def compared(ours: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
        assert ours.shape == exact.shape and ours.dtype == plain.dtype and exact.dtype == torch.float64
        allowed = 2 * (plain.double() - exact).abs().max() + 1e-6 * exact.abs().max().clamp(min=1)
        assert (ours.double() - exact).abs().max() <= allowed

    return compared
