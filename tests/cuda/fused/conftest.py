"""Fixtures of kernel tests, and the selection of those that run in Triton's interpreter, on CPU tensors.

The interpreter must be enabled before kernels are imported. Without a GPU the kernel tests
(`*/test_*kernels.py`) are therefore not collected here: test_interpreter.py runs each of their functions in
another process, with a sample of its cases.

The folders are those of cuda/fused, and three more with such tests: `row_sums` of row_sums.py, `network` of a
whole network on the kernels, and `contest` of the kernels in benchmarks/contest_kernels.py.
"""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from tests.cuda.fused.environment import DEVICE, INTERPRETED

# for `benchmarks.contest`; last, so that an installed foldcli is tested rather than the checkout
sys.path.append(str(Path(__file__).parents[3]))

collect_ignore_glob = [] if INTERPRETED or torch.cuda.is_available() else ["*/test_*kernels.py"]

if INTERPRETED:
    from tests.cuda.fused import interpreter

    interpreter.install()


def sample_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return few cases of each test function that together contain every value of each of its parameters."""
    values = {}
    for item in items:
        parameters = item.callspec.params.items() if hasattr(item, "callspec") else [("", "")]
        values[item] = {(item.path, item.originalname, name, str(value)) for name, value in parameters}
    # in random order, so that values are combined in different ways
    left, kept = random.Random(0).sample(items, len(items)), []
    while left:
        kept.append(max(left, key=lambda item: len(values[item])))
        for item in left:
            values[item] -= values[kept[-1]] if item is not kept[-1] else set()
        left = [item for item in left if values[item] and item is not kept[-1]]
    return kept


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark kernel tests that run on a GPU; in the slow interpreter, keep a sample of their cases."""
    if INTERPRETED:
        kept = sample_cases(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    for item in items:
        is_kernel_test = Path(__file__).parent in item.path.parents and item.path.name.endswith("kernels.py")
        if is_kernel_test and not INTERPRETED:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Return each dtype that kernels are tested in."""
    return getattr(torch, request.param)


@pytest.fixture(params=[1, 17, 64, 65] if INTERPRETED else [1, 2, 17, 63, 64, 65, 100, 255, 257, 509])
def length(request: pytest.FixtureRequest) -> int:
    """Return lengths around and between the sizes of tiles."""
    return request.param


@pytest.fixture(params=["normal", "Cauchy"])
def draw(request: pytest.FixtureRequest, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    """Return a function that draws normal or, if `tailed`, long-tailed numbers within float16's range."""

    def drawn(*shape: int, seed: int = 0, tailed: bool = False, scale: float = 1.0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed + sum(shape))
        x = torch.randn(shape, generator=generator)
        if tailed and request.param == "Cauchy":
            x = (x / torch.randn(shape, generator=generator)).clamp(-3e4, 3e4)
        return (scale * x).to(DEVICE, dtype)

    return drawn


@pytest.fixture
def compare() -> Callable[..., None]:
    """Return a function that compares a kernel's result with float64.

    The error may be at most twice that of plain PyTorch in the same dtype, plus 1e-6 of the largest value,
    since float32 sums in different orders may differ by more than their errors.
    """

    def compared(result: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
        assert result.shape == exact.shape and result.dtype == plain.dtype and exact.dtype == torch.float64
        allowed = 2 * (plain.double() - exact).abs().max() + 1e-6 * exact.abs().max().clamp(min=1)
        assert (result.double() - exact).abs().max() <= allowed

    return compared
