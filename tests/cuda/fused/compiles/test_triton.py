"""Every launch of Triton kernels compiles for Hopper GPUs, fits in shared memory and does not spill."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused import row_sums
from cuda.fused.attention import triton as attention
from cuda.fused.attention import triton_backward as attention_backward
from cuda.fused.chunking import chunk_budget
from cuda.fused.layer_norm import triton as layer_norm
from cuda.fused.outer_product_mean import triton as outer_product_mean
from cuda.fused.outer_product_mean import triton_training as outer_product_training
from cuda.fused.pair_bias import triton as pair_bias
from cuda.fused.residual_norm import GatedUpdate
from cuda.fused.residual_norm import triton as residual_norm
from cuda.fused.swiglu import triton as swiglu
from cuda.fused.transition import TransitionWeights
from cuda.fused.transition import triton as transition
from cuda.fused.transition import triton_backward as transition_backward
from cuda.fused.triangle_multiplication import triton as triangle_multiplication
from cuda.fused.triangle_multiplication import triton_training as triangle_training
from cuda.fused.window_attention import triton as window_attention
from tests.cuda.fused.compiles.compiled_kernel import (
    COMPILE_MARKS,
    SHARED_BYTES,
    CompiledKernel,
    attention_weights,
    check,
    outer_product_mean_launches,
    transition_launches,
    triangle_multiplication_launches,
)

pytestmark = COMPILE_MARKS


@pytest.mark.parametrize("channels", [64, 128, 256, 384])
def test_layer_norm(channels: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(layer_norm, "_layer_norm")
    weight = torch.empty(channels, dtype=torch.bfloat16)
    layer_norm.layer_norm(torch.empty(64, 64, channels, dtype=torch.bfloat16), weight, weight)
    check(kernel, 1)


@pytest.mark.parametrize("channels, width", [(128, 256), (768, 1536)])
def test_conditioned_transition(channels: int, width: int, compiled: Callable[..., CompiledKernel]) -> None:
    norm, product = compiled(residual_norm, "_residual_norm"), compiled(swiglu, "_swiglu")
    x, conditions = torch.empty(5, 64, channels), torch.empty(64, 4 * channels)
    scale, shift, gate, _ = conditions.split(channels, dim=1)
    update = GatedUpdate(x, gate, torch.ones(64))
    for each in (None, update, update._replace(mask=None)):
        residual_norm.residual_norm(x, scale, shift, each, torch.float16)
    residual_norm.add_gated(x, update)
    swiglu.swiglu(torch.empty(5, 64, 2 * width, dtype=torch.float16), 2**-6)
    check(norm, 4)
    check(product, 1)


def test_window_attention(compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(window_attention, "_window_attention")
    query = torch.empty(5, 100, 256, dtype=torch.float16)
    starts = torch.zeros(4, dtype=torch.int64)
    window_attention.window_attention(query, query, torch.empty(4, 4, 32, 128), starts)
    check(kernel, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "channels, factor, is_gated",
    [
        (64, 2, False),
        (64, 2, True),
        (64, 4, False),
        (64, 4, True),
        (128, 4, False),
        (128, 4, True),
        (256, 4, False),
    ],
)
def test_transition(
    channels: int, factor: int, is_gated: bool, dtype: torch.dtype, compiled: Callable[..., CompiledKernel]
) -> None:
    kernel = compiled(transition, "_transition")
    x = torch.empty(64, 64, channels, dtype=dtype)
    transition_launches(transition, x, factor, is_gated)
    check(kernel, 2, max_stack=304 if channels == 256 else 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels", [64, 256])
def test_outer_product_mean(
    channels: int,
    dtype: torch.dtype,
    compiled: Callable[..., CompiledKernel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = [compiled(outer_product_mean, name) for name in ("_factors", "_outer")]
    outer_product_mean_launches(outer_product_mean, 64, channels, dtype)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [256, 100])
def test_outer_product_mean_backward(
    length: int, dtype: torch.dtype, compiled: Callable[..., CompiledKernel]
) -> None:
    kernel = compiled(outer_product_training, "sum_over_pairs")
    outer, gradient = (torch.empty(6, *shape, dtype=dtype) for shape in ((1024, length), (length, 128)))
    total = outer_product_training.OutputGradient(1024, 128, 6, outer)
    total.add(outer, gradient)
    total.add(outer, gradient)
    check(kernel, 2)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("channels, heads, width", [(64, 8, 8), (64, 4, 16), (128, 4, 32), (256, 8, 32)])
def test_attention(
    channels: int, heads: int, width: int, masked: bool, biased: bool, compiled: Callable[..., Any]
) -> None:
    kernels = [compiled(attention, name) for name in ("attend_blocks", "recompute_blocks", "_output")]
    compiled(layer_norm, "_layer_norm")
    weights = attention_weights(channels, heads, width)
    x = torch.zeros(48, 64, channels, dtype=torch.bfloat16).transpose(0, 1)
    mask = torch.ones(64, 48, dtype=torch.bfloat16) if masked else None
    bias = torch.empty(heads, 48, 48, dtype=torch.bfloat16) if biased else None
    with chunk_budget(2**40):
        attention.attention(x, weights, mask, bias)
        attention.attention(x, weights, mask, bias, add=True)
    for kernel in kernels:
        check(kernel, 2, max_stack=24 if masked else 0)


def test_attention_of_tokens(compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(attention, "attend_blocks")
    projected, gated = (torch.empty(5, 80, n * 16 * 64, dtype=torch.float16) for n in (4, 1))
    gating_bias = torch.zeros(16, 64, dtype=torch.float16)
    attention.attend(projected, gating_bias, None, torch.empty(16, 80, 96, dtype=torch.float16), gated)
    check(kernel, 1, max_stack=48)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels, heads", [(64, 4), (128, 4), (128, 8)])
def test_pair_bias(
    channels: int, heads: int, dtype: torch.dtype, compiled: Callable[..., CompiledKernel]
) -> None:
    kernel = compiled(pair_bias, "_pair_bias")
    pair, norm = torch.empty(50, 50, channels, dtype=dtype), torch.empty(channels, dtype=dtype)
    weights = torch.empty(channels, heads, dtype=dtype)
    pair_bias.pair_bias(pair, norm, norm, weights)
    pair_bias.pair_bias(pair.transpose(0, 1), norm, norm, weights)
    check(kernel, 2)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication(channels: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernels = [compiled(triangle_multiplication, name) for name in ("_operands", "_finish")]
    triangle_multiplication_launches(triangle_multiplication, channels)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("length", [64, 128, 192, 256, 384, 200])
@pytest.mark.parametrize("heads, width", [(8, 8), (4, 16), (4, 32), (8, 32), (2, 64)])
def test_attention_backward(
    length: int, heads: int, width: int, compiled: Callable[..., CompiledKernel]
) -> None:
    names = ("prepare_gradient", "key_gradients", "query_gradients", "row_gradients", "tile_gradients")
    prepare, *kernels = (compiled(attention_backward, name) for name in names)
    rows, inner = 2, heads * width
    projected = torch.empty(rows, length, 4 * inner, dtype=torch.bfloat16)
    gated = projected[..., :inner].contiguous()
    bias = torch.empty(1, heads, length, length, dtype=torch.bfloat16)
    gating_bias = torch.empty(heads, width, dtype=torch.bfloat16)
    statistics = torch.empty(rows, heads, length), torch.empty(rows, heads, length)
    mask = torch.ones(rows, length)
    for some_bias in (bias, None):
        attention_backward.attend_backward(gated, projected, gating_bias, mask, some_bias, gated, statistics)
    check(prepare, 2)
    for kernel in kernels:
        # the tile of 128 queries and keys, and that of 256 queries, spill
        assert max(kernel.stack, default=0) <= 312
        assert max(kernel.shared, default=0) <= SHARED_BYTES


def test_attention_rows_of_several_blocks_without_a_mask(
    compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prepare_gradient", "tile_gradients"):
        compiled(attention_backward, name)
    kernel = compiled(attention_backward, "row_gradients")
    row = {"QUERIES": 16, "KEYS": 32, "STAGES": 2, "PRECISION": "ieee", "num_warps": 4}
    choose = attention_backward.choose_launch
    monkeypatch.setattr(
        attention_backward, "choose_launch", lambda *names, **sizes: choose(*names, **sizes) | {"row": row}
    )
    rows, length, heads, width = 2, 64, 4, 32
    projected = torch.empty(rows, length, 4 * heads * width, dtype=torch.bfloat16)
    gated = projected[..., : heads * width].contiguous()
    gating_bias = torch.empty(heads, width, dtype=torch.bfloat16)
    statistics = torch.empty(rows, heads, length), torch.empty(rows, heads, length)
    attention_backward.attend_backward(gated, projected, gating_bias, None, None, gated, statistics)
    check(kernel, 1)


@pytest.mark.parametrize("channels", [64, 128, 256])
def test_transition_backward(channels: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(transition_backward, "transition_gradients")
    c, w = channels, 4 * channels
    shapes = [(c,), (c,), (c, w), (w,), (w, c), (c,)]
    weights = TransitionWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    x = torch.empty(100, c, dtype=torch.bfloat16)
    transition_backward.transition_backward(x, x, weights)
    check(kernel, 1)


def test_sums_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CompiledKernel(row_sums.sum_blocks)
    monkeypatch.setattr(row_sums, "sum_blocks", kernel)
    row_sums.sum_rows(torch.empty(1000, 640))
    check(kernel, 2)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication_with_gradients(
    channels: int, compiled: Callable[..., CompiledKernel]
) -> None:
    names = ("gate_factors", "normalise_product", "gate_update")
    kernels = [compiled(triangle_training, name + end) for name in names for end in ("", "_backward")]
    c = channels
    normed, mask = torch.empty(1, 32, 32, c, dtype=torch.bfloat16), torch.ones(1, 32, 32)
    shapes = [(c, 5 * c), (5 * c,), (c,), (c,), (c, c), (c,)]
    weights = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
    saved = triangle_training.update(normed, mask, *weights, True)
    triangle_training.update_backward(
        normed.flatten(0, 2), normed, mask, weights[0], weights[2], weights[4], saved, True
    )
    for kernel in kernels:
        check(kernel, 1)
