"""A replacement of kernels that compiles their launches, and launches that several kernels have.

Needs no GPU. Registers that spill are in the stack of the compiled kernel.
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
import triton
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from cuda.fused import launch, row_sums
from cuda.fused.attention import AttentionWeights
from cuda.fused.outer_product_mean import OuterProductMeanWeights, kernel_arguments
from cuda.fused.transition import TransitionWeights
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights

CUOBJDUMP = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
SHARED_BYTES = 227 * 1024
TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int32: "i32",
    torch.int64: "i64",
}
COMPILE_MARKS = [
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


def attention_weights(channels: int, heads: int, width: int) -> AttentionWeights:
    shapes: list[tuple[int, ...]] = [(channels,), (channels,), *[(channels, heads, width)] * 4]
    shapes += [(heads, width), (heads, width, channels), (channels,)]
    return AttentionWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))


def empty_weights(kind: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Any:
    """Return weights of the given shapes, without values."""
    return kind(*(torch.empty(shape, dtype=dtype) for shape in shapes))


def outer_product_mean_launches(
    module: Any, length: int, channels: int, dtype: torch.dtype
) -> OuterProductMeanWeights:
    """Add outer product means of an alignment, with and without a mask, and return the weights."""
    c, e, z = channels, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights: OuterProductMeanWeights = empty_weights(OuterProductMeanWeights, shapes, dtype)
    msa, pair = torch.empty(16, length, c, dtype=dtype), torch.empty(length, length, z, dtype=dtype)
    module.add_outer_product_mean(pair, msa, weights, torch.ones(16, length))
    module.add_outer_product_mean(pair, msa, weights)
    return weights


def transition_launches(module: Any, x: torch.Tensor, factor: int, is_gated: bool) -> None:
    """Compute a transition, and add one to its input."""
    c, w = x.shape[-1], factor * x.shape[-1]
    v = w * (1 + is_gated)
    weights = empty_weights(TransitionWeights, [(c,), (c,), (c, v), (v,), (w, c), (c,)], x.dtype)
    module.transition(x, weights)
    module.transition(x, weights, add=True)


def triangle_multiplication_launches(module: Any, channels: int) -> None:
    """Compute the outgoing update with a mask, and add the incoming one without."""
    c = channels
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = empty_weights(TriangleMultiplicationWeights, shapes, torch.bfloat16)
    pair = torch.empty(48, 48, c, dtype=torch.bfloat16)
    module.triangle_multiplication(pair, weights, pair[..., 0], outgoing=True)
    module.triangle_multiplication(pair, weights, outgoing=False, add=True)
