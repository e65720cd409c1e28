"""Every launch of the kernels for Hopper GPUs compiles, fits in shared memory and does not spill."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from benchmarks import contest_kernels
from benchmarks.contest_kernels import GateFirstWeights
from cuda.fused.attention import biases, hopper_core, hopper_projections
from cuda.fused.attention import hopper as hopper_attention
from cuda.fused.attention import triton as attention
from cuda.fused.outer_product_mean import hopper as hopper_outer_product_mean
from cuda.fused.outer_product_mean import triton as outer_product_mean
from cuda.fused.transition import hopper as hopper_transition
from cuda.fused.transition import hopper_backward as hopper_transition_backward
from cuda.fused.triangle_multiplication import hopper as hopper_triangle_multiplication
from tests.cuda.fused.compiles.compiled_kernel import (
    COMPILE_MARKS,
    CompiledKernel,
    attention_weights,
    check,
    outer_product_mean_launches,
    transition_launches,
    triangle_multiplication_launches,
)

pytestmark = COMPILE_MARKS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outer_product_mean_on_hopper(
    dtype: torch.dtype, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_outer_product_mean, "outer_product_kernel")
    compiled(outer_product_mean, "_factors")
    weights = outer_product_mean_launches(hopper_outer_product_mean, 100, 256, dtype)
    factors = torch.empty(1, 16, 100, 32, dtype=dtype)
    hopper_outer_product_mean.project_outer(factors, factors, weights.output.flatten(0, 1))
    check(kernel, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "channels, is_gated", [(64, False), (64, True), (128, False), (128, True), (256, False)]
)
def test_transition_on_hopper(
    channels: int,
    is_gated: bool,
    dtype: torch.dtype,
    compiled: Callable[..., CompiledKernel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = compiled(hopper_transition, "transition_kernel")
    x = torch.empty(48, 48, channels, dtype=dtype)
    transition_launches(hopper_transition, x, 4, is_gated)
    check(kernel, 2, max_stack=16 if channels == 256 else 0)


def test_attention_on_hopper(
    compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_core, "attention_kernel")
    compiled(biases, "relate_bias")
    for name in ("recompute_blocks", "_output"):
        compiled(attention, name)
    compiled(hopper_projections, "project_kernel")
    monkeypatch.setattr(hopper_attention, "MIN_LENGTH", 0)
    weights = attention_weights(128, 4, 32)
    x, bias = torch.empty(50, 50, 128, dtype=torch.bfloat16), torch.empty(4, 50, 50, dtype=torch.bfloat16)
    hopper_attention.attention(x, weights, None, bias)
    hopper_attention.attention(x.transpose(0, 1), weights, None, bias)
    check(kernel, 2)


@pytest.mark.parametrize("channels, heads, width", [(64, 8, 8), (64, 4, 16), (128, 4, 32), (256, 8, 32)])
def test_attention_projections_on_hopper(
    channels: int, heads: int, width: int, compiled: Callable[..., CompiledKernel]
) -> None:
    kernel = compiled(hopper_projections, "project_kernel")
    weights = attention_weights(channels, heads, width)
    x = torch.empty(50, 80, channels, dtype=torch.bfloat16)
    hopper_projections.project(x, weights)
    hopper_projections.project(x[:, :70], weights)
    check(kernel, 2)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication_on_hopper(
    channels: int, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [
        compiled(hopper_triangle_multiplication, name) for name in ("operands_kernel", "finish_kernel")
    ]
    triangle_multiplication_launches(hopper_triangle_multiplication, channels)
    for kernel in kernels:
        check(kernel, 2, max_stack=8)


@pytest.mark.parametrize("channels", [128, 384])
def test_contest(
    channels: int, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [compiled(contest_kernels, name) for name in ("operands_kernel", "finish_kernel")]
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    weights = GateFirstWeights(*(torch.empty(shape) for shape in shapes))
    x = torch.empty(2, 48, 48, c)
    contest_kernels.gate_first_triangle_multiplication(x, weights, x[..., 0])
    contest_kernels.gate_first_triangle_multiplication(x, weights)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [64, 128, 256])
def test_transition_backward_on_hopper(
    channels: int, dtype: torch.dtype, compiled: Callable[..., CompiledKernel]
) -> None:
    kernel = compiled(hopper_transition_backward, "transition_gradients_kernel")
    c, w = channels, 4 * channels
    x = torch.empty(100, c, dtype=dtype)
    widen, narrow = torch.empty(c, w, dtype=dtype), torch.empty(w, c, dtype=dtype)
    hopper_transition_backward.hidden_gradients(x, x, widen, torch.empty(w), narrow)
    # with 256 channels, LayerNorm's backward pass spills; the loop over hidden channels does not
    check(kernel, 1, max_stack=160 if channels == 256 else 0)


@pytest.mark.parametrize("length", [256, 300])
def test_relative_bias(length: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(biases, "relate_bias")
    bias = torch.empty(4, length, length, dtype=torch.bfloat16)
    biases.relative_bias(bias, None)
    biases.relative_bias(bias, torch.ones(1, length).expand(3, length))
    check(kernel, 2)
