"""Every launch of the model's shapes compiles for Hopper, fits its shared memory and spills next to nothing.

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
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from cuda.fused.layer_norm import kernel as layer_norm  # noqa: E402
from cuda.fused.outer_product_mean import OuterProductMeanWeights  # noqa: E402
from cuda.fused.outer_product_mean import kernel as outer_product_mean  # noqa: E402
from cuda.fused.transition import SwigluTransitionWeights, TransitionWeights  # noqa: E402
from cuda.fused.transition import kernel as transition  # noqa: E402

PTXAS = Path(nvidia.__file__).parent / "bin" / "ptxas"
SHARED_BYTES = 227 * 1024
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
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
        signature, constants, attributes = {}, {}, {}
        for i, name in enumerate(names):
            value = arguments[name]
            signature[name] = "constexpr"
            if isinstance(value, TensorDescriptor):
                signature[name] = f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)}>"
            elif isinstance(value, torch.Tensor):
                signature[name] = f"*{TYPES[value.dtype]}"
                attributes[(i,)] = [["tt.divisibility", 16]]
            # as the launcher does, except that launches of one row are not of interest
            elif type(value) is int and value != 1 and name not in named:
                signature[name] = "i32"
                if value % 16 == 0:
                    attributes[(i,)] = [["tt.divisibility", 16]]
            else:
                constants[(i,)] = value
        source = ASTSource(self.function, signature, constants, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        command = [str(PTXAS), "-v", "--gpu-name=sm_90a", "-", "-o", os.devnull]
        log = subprocess.run(command, input=compiled.asm["ptx"], capture_output=True, text=True, check=True)
        self.spilled += [int(count) for count in re.findall(r"(\d+) bytes spill stores", log.stderr)]
        self.shared.append(compiled.metadata.shared)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Puts a stand-in in place of a kernel, and lets its module take tensors of the CPU."""

    def replaced(module: Any, name: str) -> Compiled:
        stand_in = Compiled(getattr(module, name))
        monkeypatch.setattr(module, name, stand_in)
        monkeypatch.setattr(module, "check_tensors", lambda *_: None)
        return stand_in

    return replaced


def check(kernel: Compiled, launches: int, spilled: int = 0) -> None:
    assert len(kernel.spilled) == len(kernel.shared) == launches
    assert max(kernel.spilled) <= spilled
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
    check(kernel, 3)


@pytest.mark.parametrize("channels", [64, 256])
def test_outer_product_mean(
    channels: int, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [compiled(outer_product_mean, name) for name in ("_factors", "_outer")]
    monkeypatch.setattr(outer_product_mean, "_multiprocessors", lambda device: 4)
    c, e, z = channels, 32, 128
    shapes = [(c,), (c,), (c, e), (e,), (c, e), (e,), (e, e, z), (z,)]
    weights = OuterProductMeanWeights(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    msa = torch.empty(16, 64, c, dtype=torch.bfloat16)
    outer_product_mean.outer_product_mean(msa, weights, torch.ones(16, 64))
    for kernel in kernels:
        check(kernel, 1)
