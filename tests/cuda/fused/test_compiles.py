"""Every launch for the network's shapes compiles for Hopper GPUs, fits in shared memory and does not spill.

Needs no GPU: a replacement of each kernel passes the arguments of a launch to Triton's compiler instead of
running it. Registers that spill are in the stack of the compiled kernel.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends import nvidia  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from benchmarks import contest  # noqa: E402
from benchmarks.contest import GateFirstWeights  # noqa: E402
from cuda.fused import launch, row_sums  # noqa: E402
from cuda.fused.attention import (  # noqa: E402
    AttentionWeights,
    biases,
    hopper_bias_gradient,
    hopper_core,
    hopper_projections,
)
from cuda.fused.attention import hopper as hopper_attention  # noqa: E402
from cuda.fused.attention import hopper_backward as hopper_attention_backward  # noqa: E402
from cuda.fused.attention import triton as attention  # noqa: E402
from cuda.fused.attention import triton_backward as attention_backward  # noqa: E402
from cuda.fused.chunking import chunk_budget  # noqa: E402
from cuda.fused.global_attention import triton as global_attention  # noqa: E402
from cuda.fused.layer_norm import triton as layer_norm  # noqa: E402
from cuda.fused.outer_product_mean import (  # noqa: E402
    OuterProductMeanWeights,
    kernel_arguments,
)
from cuda.fused.outer_product_mean import hopper as hopper_outer_product_mean  # noqa: E402
from cuda.fused.outer_product_mean import triton as outer_product_mean  # noqa: E402
from cuda.fused.outer_product_mean import triton_training as outer_product_training  # noqa: E402
from cuda.fused.pair_bias import triton as pair_bias  # noqa: E402
from cuda.fused.residual_norm import GatedUpdate  # noqa: E402
from cuda.fused.residual_norm import triton as residual_norm  # noqa: E402
from cuda.fused.swiglu import triton as swiglu  # noqa: E402
from cuda.fused.transition import TransitionWeights  # noqa: E402
from cuda.fused.transition import hopper as hopper_transition  # noqa: E402
from cuda.fused.transition import hopper_backward as hopper_transition_backward  # noqa: E402
from cuda.fused.transition import triton as transition  # noqa: E402
from cuda.fused.transition import triton_backward as transition_backward  # noqa: E402
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights  # noqa: E402
from cuda.fused.triangle_multiplication import hopper as hopper_triangle_multiplication  # noqa: E402
from cuda.fused.triangle_multiplication import triton as triangle_multiplication  # noqa: E402
from cuda.fused.triangle_multiplication import triton_training as triangle_training  # noqa: E402
from cuda.fused.window_attention import triton as window_attention  # noqa: E402

CUOBJDUMP = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
SHARED_BYTES = 227 * 1024
TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int32: "i32",
    torch.int64: "i64",
}
pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"),
    pytest.mark.skipif(not CUOBJDUMP.is_file(), reason="cuobjdump is not part of this Triton"),
]


def stack_bytes(cubin: bytes) -> int:
    """Return the bytes of stack that each thread of a compiled kernel needs."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (stack,) = re.findall(r"\bSTACK:(\d+)", usage)
    return int(stack)


class CompiledKernel:
    """A replacement for a kernel that compiles each launch instead of running it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.stack: list[int] = []
        self.shared: list[int] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.compile

    def compile(self, *positional: Any, **named: Any) -> None:
        names = self.function.arg_names
        options = {name: value for name, value in named.items() if name not in names}
        arguments = dict(zip(names, positional, strict=False)) | {
            n: v for n, v in named.items() if n in names
        }
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}

        def type_of(value: Any, path: tuple[int, ...], fixed: bool) -> Any:
            if isinstance(value, tuple):
                return tuple(type_of(part, (*path, k), fixed) for k, part in enumerate(value))
            if isinstance(value, GluonDescriptor):
                return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)},{value.layout!r}>"
            if isinstance(value, TensorDescriptor):
                return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)}>"
            unspecialised = self.function.params[path[0]].do_not_specialize
            if isinstance(value, torch.Tensor):
                if not unspecialised:
                    attributes[path] = [["tt.divisibility", 16]]
                return f"*{TYPES[value.dtype]}"
            if type(value) is float and not fixed:
                return "fp32"
            # as Triton's launcher specialises, except for launches of a single row
            if type(value) is int and (value != 1 or unspecialised) and not fixed:
                if value % 16 == 0 and not unspecialised:
                    attributes[path] = [["tt.divisibility", 16]]
                return "i32"
            constants[path] = value
            return "constexpr"

        signature = {name: type_of(arguments[name], (i,), name in named) for i, name in enumerate(names)}
        language = GluonASTSource if self.function.is_gluon() else ASTSource
        source = language(self.function, signature, constants, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        self.stack.append(stack_bytes(compiled.asm["cubin"]))
        self.shared.append(compiled.metadata.shared)


@pytest.fixture(params=[launch.DEFAULT, "NVIDIA H200"], autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each launch table."""
    monkeypatch.setattr(launch, "_device_name", lambda device: request.param)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompiledKernel]:
    """Return a function that replaces a kernel of a module, and has the module accept CPU tensors."""
    # sums of partial gradients are compiled by a test of their own
    monkeypatch.setattr(row_sums, "sum_blocks", MagicMock())

    def replace(module: Any, name: str) -> CompiledKernel:
        replacement = CompiledKernel(getattr(module, name))
        monkeypatch.setattr(module, name, replacement)
        for checked in (module, kernel_arguments):
            monkeypatch.setattr(checked, "check_tensors", lambda *_: None, raising=False)
        return replacement

    return replace


def check(kernel: CompiledKernel, launches: int, max_stack: int = 0) -> None:
    """Check the number of launches, and the bytes of their stacks and shared memory.

    Launches that spill were measured to be the fastest ones nevertheless.
    """
    assert len(kernel.stack) == len(kernel.shared) == launches
    assert max(kernel.stack) <= max_stack
    assert max(kernel.shared) <= SHARED_BYTES


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
    c, w = channels, factor * channels
    v = w * (1 + is_gated)
    shapes = [(c,), (c,), (c, v), (v,), (w, c), (c,)]
    weights = TransitionWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    x = torch.empty(64, 64, channels, dtype=dtype)
    transition.transition(x, weights)
    transition.transition(x, weights, add=True)
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
    c, e, z = channels, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights = OuterProductMeanWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    msa = torch.empty(16, 64, c, dtype=dtype)
    pair = torch.empty(64, 64, z, dtype=dtype)
    outer_product_mean.add_outer_product_mean(pair, msa, weights, torch.ones(16, 64))
    outer_product_mean.add_outer_product_mean(pair, msa, weights)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outer_product_mean_on_hopper(
    dtype: torch.dtype, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_outer_product_mean, "outer_product_kernel")
    compiled(outer_product_mean, "_factors")
    c, e, z = 256, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights = OuterProductMeanWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    msa, pair = torch.empty(16, 100, c, dtype=dtype), torch.empty(100, 100, z, dtype=dtype)
    hopper_outer_product_mean.add_outer_product_mean(pair, msa, weights, torch.ones(16, 100))
    hopper_outer_product_mean.add_outer_product_mean(pair, msa, weights)
    factors = msa[None, ..., :e].contiguous()
    hopper_outer_product_mean.project_outer(factors, factors, weights.output.flatten(0, 1))
    check(kernel, 3)


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
    c, w = channels, 4 * channels
    v = w * (1 + is_gated)
    shapes = [(c,), (c,), (c, v), (v,), (w, c), (c,)]
    weights = TransitionWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    x = torch.empty(48, 48, channels, dtype=dtype)
    hopper_transition.transition(x, weights)
    hopper_transition.transition(x, weights, add=True)
    check(kernel, 2, max_stack=16 if channels == 256 else 0)


def attention_weights(channels: int, heads: int, width: int) -> AttentionWeights:
    shapes: list[tuple[int, ...]] = [(channels,), (channels,), *[(channels, heads, width)] * 4]
    shapes += [(heads, width), (heads, width, channels), (channels,)]
    return AttentionWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))


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


def test_global_attention(compiled: Callable[..., CompiledKernel]) -> None:
    kernels = [compiled(global_attention, name) for name in ("_mean", "_softmax_sum", "_gate")]
    shared = torch.empty(64, 8, dtype=torch.bfloat16)
    weights = attention_weights(64, 8, 8)._replace(key=shared, value=shared)
    x = torch.empty(64, 48, 64, dtype=torch.bfloat16)
    global_attention.global_attention(x.transpose(0, 1), weights, x[..., 0].T)
    for kernel in kernels:
        check(kernel, 1)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication(channels: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernels = [compiled(triangle_multiplication, name) for name in ("_operands", "_finish")]
    c = channels
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    pair = torch.empty(48, 48, c, dtype=torch.bfloat16)
    triangle_multiplication.triangle_multiplication(pair, weights, pair[..., 0], outgoing=True)
    triangle_multiplication.triangle_multiplication(pair, weights, outgoing=False, add=True)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication_on_hopper(
    channels: int, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [
        compiled(hopper_triangle_multiplication, name) for name in ("operands_kernel", "finish_kernel")
    ]
    c = channels
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    pair = torch.empty(48, 48, c, dtype=torch.bfloat16)
    hopper_triangle_multiplication.triangle_multiplication(pair, weights, pair[..., 0], outgoing=True)
    hopper_triangle_multiplication.triangle_multiplication(pair, weights, outgoing=False, add=True)
    for kernel in kernels:
        check(kernel, 2, max_stack=8)


@pytest.mark.parametrize("channels", [128, 384])
def test_contest(
    channels: int, compiled: Callable[..., CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [compiled(contest, name) for name in ("operands_kernel", "finish_kernel")]
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    weights = GateFirstWeights(*(torch.empty(shape) for shape in shapes))
    x = torch.empty(2, 48, 48, c)
    contest.gate_first_triangle_multiplication(x, weights, x[..., 0])
    contest.gate_first_triangle_multiplication(x, weights)
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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [256, 384])
def test_attention_backward_on_hopper(
    length: int, masked: bool, compiled: Callable[..., CompiledKernel]
) -> None:
    row_kernel = compiled(hopper_attention_backward, "row_gradients_kernel")
    bias_kernel = compiled(hopper_bias_gradient, "bias_gradient_kernel")
    mask_kernel = compiled(biases, "mask_bias")
    rows, heads = 3, 4
    projected = torch.empty(rows, length, 512, dtype=torch.bfloat16)
    statistics = torch.empty(rows, heads, length)
    inputs = attention_backward.GradientInputs(
        projected,
        torch.empty(rows, length, 128, dtype=torch.bfloat16),
        statistics,
        statistics,
        torch.ones(1, length).expand(rows, length) if masked else None,
        torch.empty(1, heads, length, length, dtype=torch.bfloat16),
        projected.clone(),
    )
    hopper_attention_backward.write_gradients(inputs)
    check(bias_kernel, 1)
    assert len(row_kernel.stack) == (length == 256)
    assert len(mask_kernel.stack) == (masked or length == 256)
    for kernel in (row_kernel, mask_kernel):
        if kernel.stack:
            check(kernel, 1)


@pytest.mark.parametrize("length", [256, 300])
def test_relative_bias(length: int, compiled: Callable[..., CompiledKernel]) -> None:
    kernel = compiled(biases, "relate_bias")
    bias = torch.empty(4, length, length, dtype=torch.bfloat16)
    biases.relative_bias(bias, None)
    biases.relative_bias(bias, torch.ones(1, length).expand(3, length))
    check(kernel, 2)


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
