"""Every launch of the model's shapes compiles for Hopper, fits its shared memory and spills nothing.

Needs no GPU: a stand-in takes the place of each compiled kernel, keeps what it is launched with, and gives it
to Triton's compiler and ptxas.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends import nvidia  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from cuda.fused import launch_table  # noqa: E402
from cuda.fused.attention import AttentionWeights, global_kernel, hopper_projections  # noqa: E402
from cuda.fused.attention import hopper as hopper_attention  # noqa: E402
from cuda.fused.attention import kernel as attention  # noqa: E402
from cuda.fused.launch_table import DEFAULT  # noqa: E402
from cuda.fused.layer_norm import kernel as layer_norm  # noqa: E402
from cuda.fused.outer_product_mean import OuterProductMeanWeights  # noqa: E402
from cuda.fused.outer_product_mean import hopper as hopper_outer_product_mean  # noqa: E402
from cuda.fused.outer_product_mean import kernel as outer_product_mean  # noqa: E402
from cuda.fused.pair_bias import hopper as hopper_pair_bias  # noqa: E402
from cuda.fused.pair_bias import kernel as pair_bias  # noqa: E402
from cuda.fused.softmax import kernel as softmax  # noqa: E402
from cuda.fused.transition import SwigluTransitionWeights, TransitionWeights  # noqa: E402
from cuda.fused.transition import hopper as hopper_transition  # noqa: E402
from cuda.fused.transition import kernel as transition  # noqa: E402
from cuda.fused.triangle_multiplication import (  # noqa: E402
    GateFirstWeights,
    TriangleMultiplicationWeights,
    hopper_gate_first,
)
from cuda.fused.triangle_multiplication import hopper as hopper_triangle_multiplication  # noqa: E402
from cuda.fused.triangle_multiplication import kernel as triangle_multiplication  # noqa: E402

PTXAS = Path(nvidia.__file__).parent / "bin" / "ptxas"
SHARED_BYTES = 227 * 1024
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int32: "i32"}
pytestmark = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
    pytest.mark.skipif(not PTXAS.is_file(), reason="Triton came without ptxas"),
]


class Compiled:
    """Stands in for a kernel: compiles each launch instead of running it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.spilled: list[int] = []
        self.shared: list[int] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.compile

    def compile(self, *given: Any, **named: Any) -> None:
        names = self.function.arg_names
        options = {name: value for name, value in named.items() if name not in names}
        arguments = dict(zip(names, given, strict=False)) | {n: v for n, v in named.items() if n in names}
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}

        def type_of(value: Any, path: tuple[int, ...], fixed: bool) -> Any:
            if isinstance(value, tuple):
                return tuple(type_of(part, (*path, k), fixed) for k, part in enumerate(value))
            if isinstance(value, GluonDescriptor):
                return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)},{value.layout!r}>"
            if isinstance(value, TensorDescriptor):
                return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)}>"
            if isinstance(value, torch.Tensor):
                attributes[path] = [["tt.divisibility", 16]]
                return f"*{TYPES[value.dtype]}"
            if type(value) is float and not fixed:
                return "fp32"
            # as the launcher does, except that launches of one row are not of interest
            if type(value) is int and value != 1 and not fixed:
                if value % 16 == 0:
                    attributes[path] = [["tt.divisibility", 16]]
                return "i32"
            constants[path] = value
            return "constexpr"

        signature = {name: type_of(arguments[name], (i,), name in named) for i, name in enumerate(names)}
        language = GluonASTSource if self.function.is_gluon() else ASTSource
        source = language(self.function, signature, constants, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        command = [str(PTXAS), "-v", "--gpu-name=sm_90a", "-", "-o", os.devnull]
        log = subprocess.run(command, input=compiled.asm["ptx"], capture_output=True, text=True, check=True)
        self.spilled += [int(count) for count in re.findall(r"(\d+) bytes spill stores", log.stderr)]
        self.shared.append(compiled.metadata.shared)


@pytest.fixture(params=[DEFAULT, "NVIDIA H200"], autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of each table."""
    monkeypatch.setattr(launch_table, "_device_name", lambda device: request.param)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Puts a stand-in in place of a kernel, and lets its module take tensors of the CPU."""

    def replaced(module: Any, name: str) -> Compiled:
        stand_in = Compiled(getattr(module, name))
        monkeypatch.setattr(module, name, stand_in)
        monkeypatch.setattr(module, "check_tensors", lambda *_: None, raising=False)
        return stand_in

    return replaced


def check(kernel: Compiled, launches: int, most_spilled: int = 0) -> None:
    """So many launches compiled; what spills is a launch that was measured to be the fastest all the same."""
    assert len(kernel.spilled) == len(kernel.shared) == launches
    assert max(kernel.spilled) <= most_spilled
    assert max(kernel.shared) <= SHARED_BYTES


@pytest.mark.parametrize("channels", [64, 128, 256, 384])
def test_layer_norm(channels: int, compiled: Callable[..., Compiled]) -> None:
    kernel = compiled(layer_norm, "_layer_norm")
    weight = torch.empty(channels, dtype=torch.bfloat16)
    layer_norm.layer_norm(torch.empty(64, 64, channels, dtype=torch.bfloat16), weight, weight)
    check(kernel, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels, factor", [(64, 2), (64, 4), (128, 4), (256, 4)])
def test_transition(
    channels: int, factor: int, dtype: torch.dtype, compiled: Callable[..., Compiled]
) -> None:
    kernel = compiled(transition, "_transition")
    c, w = channels, factor * channels
    shapes = [(c,), (c,), (c, w), (w,), (w, c), (c,)]
    weights = TransitionWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    x = torch.empty(64, 64, channels, dtype=dtype)
    transition.transition(x, weights)
    transition.add_transition(x, weights)
    swiglu = SwigluTransitionWeights(*weights[:2], weights.widen, weights.widen, weights.narrow)
    transition.swiglu_transition(x, swiglu)
    check(kernel, 3, most_spilled=272 if channels == 256 else 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels", [64, 256])
def test_outer_product_mean(
    channels: int, dtype: torch.dtype, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [compiled(outer_product_mean, name) for name in ("_factors", "_outer")]
    c, e, z = channels, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights = OuterProductMeanWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    msa = torch.empty(16, 64, c, dtype=dtype)
    outer_product_mean.outer_product_mean(msa, weights, torch.ones(16, 64))
    outer_product_mean.outer_product_mean(msa, weights)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outer_product_mean_on_hopper(
    dtype: torch.dtype, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_outer_product_mean, "_outer")
    compiled(outer_product_mean, "_factors")
    monkeypatch.setattr(outer_product_mean, "available", lambda x: True)
    c, e, z = 256, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights = OuterProductMeanWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    msa, pair = torch.empty(16, 100, c, dtype=dtype), torch.empty(100, 100, z, dtype=dtype)
    outer_product_mean.outer_product_mean(msa, weights, torch.ones(16, 100))
    outer_product_mean.add_outer_product_mean(pair, msa, weights)
    check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [64, 128, 256])
def test_transition_on_hopper(
    channels: int, dtype: torch.dtype, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_transition, "_transition")
    monkeypatch.setattr(transition, "check_tensors", lambda *_: None)
    monkeypatch.setattr(transition, "available", lambda x: True)
    c, w = channels, 4 * channels
    shapes = [(c,), (c,), (c, w), (w,), (w, c), (c,)]
    weights = TransitionWeights(*(torch.empty(shape, dtype=dtype) for shape in shapes))
    x = torch.empty(48, 48, channels, dtype=dtype)
    transition.transition(x, weights)
    transition.add_transition(x, weights)
    check(kernel, 2, most_spilled=20 if channels == 256 else 0)


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
    kernels = [compiled(attention, name) for name in ("attend_blocks", "attend_again", "_output")]
    compiled(layer_norm, "_layer_norm")
    weights = attention_weights(channels, heads, width)
    x = torch.zeros(48, 64, channels, dtype=torch.bfloat16).transpose(0, 1)
    mask = torch.ones(64, 48, dtype=torch.bfloat16) if masked else None
    bias = torch.empty(heads, 48, 48, dtype=torch.bfloat16) if biased else None
    attention.attention(x, weights, mask, bias, budget=2**40)
    attention.add_attention(x, weights, mask, bias, budget=2**40)
    for kernel in kernels:
        check(kernel, 2, most_spilled=16 if masked else 0)


def test_attention_on_hopper(compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled(hopper_attention, "attend_blocks")
    for name in ("attend_again", "_output"):
        compiled(attention, name)
    compiled(hopper_projections, "project_kernel")
    monkeypatch.setattr(attention, "available", lambda x: True)
    monkeypatch.setattr(attention, "SHORTEST_ON_HOPPER", 0)
    weights = attention_weights(128, 4, 32)
    x, bias = torch.empty(50, 50, 128, dtype=torch.bfloat16), torch.empty(4, 50, 50, dtype=torch.bfloat16)
    attention.attention(x, weights, None, bias)
    attention.attention(x.transpose(0, 1), weights, None, bias)
    # outside its loops
    check(kernel, 2, most_spilled=64)


@pytest.mark.parametrize("channels, heads, width", [(64, 8, 8), (64, 4, 16), (128, 4, 32), (256, 8, 32)])
def test_attention_projections_on_hopper(
    channels: int, heads: int, width: int, compiled: Callable[..., Compiled]
) -> None:
    kernel = compiled(hopper_projections, "project_kernel")
    weights = attention_weights(channels, heads, width)
    x = torch.empty(50, 80, channels, dtype=torch.bfloat16)
    hopper_projections.project(x, weights)
    hopper_projections.project(x[:, :70], weights)
    check(kernel, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels, heads", [(64, 4), (128, 4), (128, 8)])
def test_pair_bias(channels: int, heads: int, dtype: torch.dtype, compiled: Callable[..., Compiled]) -> None:
    kernel = compiled(pair_bias, "_pair_bias")
    pair, norm = torch.empty(50, 50, channels, dtype=dtype), torch.empty(channels, dtype=dtype)
    weights = torch.empty(channels, heads, dtype=dtype)
    pair_bias.pair_bias(pair, norm, norm, weights)
    pair_bias.pair_bias(pair.transpose(0, 1), norm, norm, weights)
    check(kernel, 2)


@pytest.mark.parametrize("heads", [4, 8])
def test_pair_bias_on_hopper(
    heads: int, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(hopper_pair_bias, "bias_kernel")
    monkeypatch.setattr(pair_bias, "check_tensors", lambda *_: None)
    monkeypatch.setattr(pair_bias, "available", lambda x: True)
    pair, norm = torch.empty(50, 50, 128, dtype=torch.bfloat16), torch.empty(128, dtype=torch.bfloat16)
    weights = torch.empty(128, heads, dtype=torch.bfloat16)
    pair_bias.pair_bias(pair, norm, norm, weights)
    pair_bias.pair_bias(pair.transpose(0, 1), norm, norm, weights)
    check(kernel, 2)


def test_global_attention(compiled: Callable[..., Compiled]) -> None:
    kernels = [compiled(global_kernel, name) for name in ("_mean", "_softmax_sum", "_gated")]
    shared = torch.empty(64, 8, dtype=torch.bfloat16)
    weights = attention_weights(64, 8, 8)._replace(key=shared, value=shared)
    x = torch.empty(64, 48, 64, dtype=torch.bfloat16)
    global_kernel.global_attention(x.transpose(0, 1), weights, x[..., 0].T)
    for kernel in kernels:
        check(kernel, 1)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication(channels: int, compiled: Callable[..., Compiled]) -> None:
    kernels = [compiled(triangle_multiplication, name) for name in ("_operands", "_finish")]
    c = channels
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    pair = torch.empty(48, 48, c, dtype=torch.bfloat16)
    triangle_multiplication.triangle_multiplication(pair, weights, pair[..., 0], outgoing=True)
    triangle_multiplication.add_triangle_multiplication(pair, weights, outgoing=False)
    for kernel in kernels:
        check(kernel, 2)


@pytest.mark.parametrize("channels", [64, 128])
def test_triangle_multiplication_on_hopper(
    channels: int, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [
        compiled(hopper_triangle_multiplication, name) for name in ("operands_kernel", "finish_kernel")
    ]
    monkeypatch.setattr(triangle_multiplication, "available", lambda x: True)
    c = channels
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    pair = torch.empty(48, 48, c, dtype=torch.bfloat16)
    triangle_multiplication.triangle_multiplication(pair, weights, pair[..., 0], outgoing=True)
    triangle_multiplication.add_triangle_multiplication(pair, weights, outgoing=False)
    for kernel in kernels:
        check(kernel, 2, most_spilled=32)


@pytest.mark.parametrize("channels", [128, 384])
def test_gate_first_triangle_multiplication(channels: int, compiled: Callable[..., Compiled]) -> None:
    kernels = [compiled(triangle_multiplication, name) for name in ("_operands", "_finish")]
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    weights = GateFirstWeights(*(torch.empty(shape) for shape in shapes))
    x = torch.empty(2, 48, 48, c)
    triangle_multiplication.gate_first_triangle_multiplication(x, weights, x[..., 0])
    for kernel in kernels:
        check(kernel, 1)


@pytest.mark.parametrize("channels", [128, 384])
def test_gate_first_triangle_multiplication_on_hopper(
    channels: int, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [
        compiled(hopper_gate_first, name)
        for name in ("gate_first_operands_kernel", "gate_first_finish_kernel")
    ]
    monkeypatch.setattr(triangle_multiplication, "check_tensors", lambda *_: None)
    monkeypatch.setattr(triangle_multiplication, "available", lambda x: True)
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    weights = GateFirstWeights(*(torch.empty(shape) for shape in shapes))
    x = torch.empty(2, 48, 48, c)
    triangle_multiplication.gate_first_triangle_multiplication(x, weights, x[..., 0])
    triangle_multiplication.gate_first_triangle_multiplication(x, weights)
    for kernel in kernels:
        check(kernel, 2, most_spilled=4)


@pytest.mark.parametrize("keys", [48, 1024, 5120])
def test_softmax(keys: int, compiled: Callable[..., Compiled]) -> None:
    kernel = compiled(softmax, "_softmax")
    logits = torch.empty(2, 8, 4, keys, dtype=torch.bfloat16)
    softmax.softmax(logits, 0.25, logits[:, 0, 0], logits[0])
    check(kernel, 1)
