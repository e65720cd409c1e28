"""Tests of recorded launches and of their compilation without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

from cuda.fused import layer_norm  # noqa: E402
from cuda.fused.compilation import KernelVariant, record_variants  # noqa: E402
from cuda.fused.gpu_model import GpuModel, gpu_model  # noqa: E402
from cuda.fused.layer_norm.triton import layer_norm as triton_layer_norm  # noqa: E402

H200, A100 = GpuModel("NVIDIA H200", (9, 0)), GpuModel("NVIDIA A100-SXM4-40GB", (8, 0))
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
)


def variants_of(gpu: GpuModel, *inputs: torch.Tensor) -> list[KernelVariant]:
    """Return the variants of layer normalisation for some inputs."""
    found: list[KernelVariant] = []
    with record_variants(gpu, found.append):
        for x in inputs:
            weights = x.new_zeros(x.shape[-1])
            assert triton_layer_norm(x, weights, weights).shape == x.shape
    return found


def test_a_launch_is_recorded_once() -> None:
    x = torch.zeros(5, 64)
    (variant,) = variants_of(H200, x, x)
    assert (variant.module, variant.name) == ("cuda.fused.layer_norm.triton", "_layer_norm")
    assert variant.description()["signature"]["x"] == "*fp32"


def test_numbers_of_rows_share_a_variant_and_dtypes_do_not() -> None:
    inputs = [torch.zeros(rows, 64) for rows in (1, 7, 16, 4096)]
    assert len(variants_of(H200, *inputs)) == 1
    assert len(variants_of(H200, *inputs, inputs[0].bfloat16())) == 2


def test_the_gpu_model_selects_tuned_launches() -> None:
    x = torch.zeros(5, 64, dtype=torch.bfloat16)
    tuned, default = (variants_of(gpu, x)[0].description()["options"]["num_warps"] for gpu in (H200, A100))
    assert (tuned, default) == (1, 4)


def test_nothing_is_assumed_outside_of_a_recording() -> None:
    variants_of(H200, torch.zeros(5, 64))
    assert gpu_model("cpu") is None
    with pytest.raises(ValueError, match="does not support cpu tensors"):
        layer_norm.layer_norm(torch.zeros(5, 64), torch.zeros(64), torch.zeros(64), implementation="triton")


_KEYS = """
from cuda.fused.attention import triton_core as attention
from cuda.fused.compilation import compute_cache_keys
from cuda.fused.layer_norm import triton as layer_norm
compute_cache_keys(layer_norm)
compute_cache_keys(attention)
for kernel, callee in [
    (layer_norm._layer_norm, layer_norm.load_normalised),
    (attention.recompute_blocks, attention._attend_block),
    (attention.attend_blocks, attention.sigmoid),
]:
    constants = set(callee.used_global_vals)
    print(kernel.hash is not None, bool(constants), constants <= set(kernel.used_global_vals))
"""


def test_keys_of_kernels_always_include_the_constants_of_the_functions_they_call() -> None:
    # in a process of its own, because keys are computed once
    run = subprocess.run([sys.executable, "-c", _KEYS], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"] * 9


_COMPILE = """
import sys, torch
from cuda.fused import compilation
from cuda.fused.gpu_model import GpuModel
from cuda.fused.layer_norm.triton import layer_norm
gpu, found = GpuModel("NVIDIA H200", (9, 0)), []
with compilation.record_variants(gpu, found.append):
    layer_norm(torch.zeros(5, 64), torch.zeros(64), torch.zeros(64))
print([compilation.compile_variant(found[0], gpu) for _ in range(2)])
"""


@pytest.mark.slow
def test_a_variant_is_compiled_with_its_launcher_once(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    for expected in ("[True, False]", "[False, False]"):
        run = subprocess.run(
            [sys.executable, "-c", _COMPILE], capture_output=True, text=True, env=environment, check=True
        )
        assert run.stdout.strip() == expected
    names = {path.name.partition(".")[0] for path in tmp_path.rglob("*.*")}
    assert {"_layer_norm", "__triton_launcher", "cuda_utils"} <= names
    assert list(tmp_path.rglob("_layer_norm.cubin"))
