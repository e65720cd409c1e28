"""The triangle multiplication kernels for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.triangle_multiplication import (
    TriangleMultiplicationWeights,
    hopper,
    hopper_kernels,
    reference,
)
from tests.cuda.fused.gluon_simulator import SimulatedKernel, SimulatedTensor

Compare = Callable[..., None]


def gated(values: SimulatedTensor, gates: SimulatedTensor) -> Any:
    """Compute what the GPU instructions of `gated` compute."""
    return values * (1 + gates.tanh())


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernels in the simulator."""
    for name in ("operands_kernel", "finish_kernel"):
        monkeypatch.setattr(hopper, name, SimulatedKernel(hopper_kernels, name, gated=gated))
    monkeypatch.setattr(hopper, "check_tensors", lambda *_: None)


def random_weights(channels: int) -> TriangleMultiplicationWeights:
    generator = torch.Generator().manual_seed(channels)
    shapes = TriangleMultiplicationWeights(
        *[(channels,)] * 2, *[(channels, channels), (channels,)] * 4, *[(channels,)] * 2,
        *[(channels, channels), (channels,)] * 2,
    )  # fmt: skip
    return TriangleMultiplicationWeights(
        *(
            (torch.randn(shape, generator=generator) * (channels**-0.5 if len(shape) == 2 else 1)).bfloat16()
            for shape in shapes
        )
    )


@pytest.mark.parametrize(
    ("length", "channels", "outgoing", "masked", "swapped", "add"),
    [
        (1, 64, True, False, False, False),
        (17, 64, False, True, False, True),
        (64, 64, True, False, True, True),
        pytest.param(70, 128, True, True, True, False, marks=pytest.mark.slow),
        pytest.param(65, 128, False, False, False, True, marks=pytest.mark.slow),
    ],
)
def test_matches_float64(
    length: int, channels: int, outgoing: bool, masked: bool, swapped: bool, add: bool, compare: Compare
) -> None:
    generator = torch.Generator().manual_seed(length)
    pair = (3 + torch.randn(length, length, channels, generator=generator)).bfloat16()
    mask = (torch.rand(length, length, generator=generator) > 0.3).bfloat16() if masked else None
    if swapped:
        pair = pair.transpose(0, 1)
    weights = random_weights(channels)
    double = TriangleMultiplicationWeights(*(w.double() for w in weights))
    exact_mask = None if mask is None else mask.double()
    exact = reference.triangle_multiplication(pair.double(), double, exact_mask, outgoing=outgoing)
    plain = reference.triangle_multiplication(pair, weights, mask, outgoing=outgoing)
    if add:
        exact, plain = exact + pair.double(), plain + pair
    result = hopper.triangle_multiplication(pair, weights, mask, outgoing=outgoing, add=add)
    assert (result is pair) == add
    compare(result, plain, exact)


@pytest.mark.parametrize("outgoing", [True, False])
def test_rows_of_the_pair_representation(outgoing: bool, compare: Compare) -> None:
    length, channels = 17, 64
    generator = torch.Generator().manual_seed(length)
    pair = (3 + torch.randn(length, length, channels, generator=generator)).bfloat16()
    mask = (torch.rand(length, length, generator=generator) > 0.3).bfloat16()
    weights = random_weights(channels)
    double = TriangleMultiplicationWeights(*(w.double() for w in weights))
    exact = pair.double() + reference.triangle_multiplication(
        pair.double(), double, mask.double(), outgoing=outgoing
    )
    plain = reference.triangle_multiplication(pair.clone(), weights, mask, outgoing=outgoing, add=True)
    parts = [slice(0, 5), slice(5, 17)]
    factors = [hopper.project_rows(pair[part], weights, mask[part]) for part in parts]
    left, right = torch.cat(factors, dim=1).split(channels)  # each [M, N, P]
    assert not left[:, :, length:].any() and not right[:, :, length:].any()
    product = left.new_full(left.shape, torch.nan)
    product[..., :length] = left @ right.mT if outgoing else right[..., :length].mT @ left[..., :length]
    for part in parts:
        hopper.add_product(pair[part], product[:, part].contiguous(), weights)
    compare(pair, plain, exact)
