"""`foldcli warmup` as a user runs it, on a machine without a GPU."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from msa.gpu.device.devices import name_and_capability
from tests.networks import tiny_network, write_packaged_network

pytest.importorskip("triton")


def warmup(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foldcli", "warmup", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    environment["FOLDCLI_CACHE"] = str(cache)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def networks(tmp_path: Path) -> list[Path]:
    """Return two networks of the same few channels, but with the pair attention of published ones."""
    tiny = tiny_network()
    pair = replace(tiny.evoformer.pair, channels=128, attention_heads=4, attention_channels=32)
    stacks = {name: replace(getattr(tiny, name), pair=pair) for name in ("evoformer", "extra_msa")}
    for name in ("first", "second"):
        write_packaged_network(tmp_path / name, replace(tiny, name=name, template=None, **stacks))
    return [tmp_path / "first", tmp_path / "second"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cpu"), "--device cpu needs no kernels"),
        (("--gpu-name", "NVIDIA H200"), "--gpu-name needs --gpu-arch"),
        (("--gpu-arch", "90"), "expected an architecture such as sm_90, got '90'"),
        (("--gpu-arch", "sm_x"), "expected an architecture such as sm_90, got 'sm_x'"),
        (("--models", "6"), "expected model numbers from 1 to 5"),
        (("--gpu-arch", "sm_90", "--params", "x"), "neither `compact` nor the folder of a network"),
    ],
)
def test_wrong_arguments_are_usage_errors(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = warmup(*arguments, cache=tmp_path)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.skipif(name_and_capability(0) is not None, reason="for machines without a GPU")
def test_missing_gpu_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    result = warmup(cache=tmp_path)
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr == (
        "foldcli: error: there is no GPU number 0\nName the architecture of another GPU: --gpu-arch sm_90.\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_kernels_that_cannot_be_compiled_are_tried_again(tmp_path: Path, networks: list[Path]) -> None:
    for _ in range(2):
        result = warmup("--gpu-arch", "sm_10", "--params", str(networks[0]), cache=tmp_path / "cache")
        assert result.returncode == 4
        # Triton does not know the architecture, and crashes
        assert "not all kernels could be compiled: the compiler has crashed" in result.stderr
        assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("compiled-*"))


@pytest.mark.compile
def test_all_kernels_are_compiled_once_without_a_gpu(tmp_path: Path, networks: list[Path]) -> None:
    arguments = "--max-length", "0", "--gpu-arch", "sm_90", "--gpu-name", "NVIDIA H200", "--params"
    first, second, other = (
        warmup(*arguments, str(network), cache=tmp_path / "cache")
        for network in (networks[0], networks[0], networks[1])
    )
    assert first.returncode == second.returncode == other.returncode == 0, first.stderr
    assert "compiling GPU kernels; later runs reuse them" in first.stderr
    assert " kernels compiled, 0 found in the cache" in first.stderr
    assert all("all kernels of the network are in the cache" in run.stderr for run in (second, other))
    names = {path.name for path in (tmp_path / "cache/kernels/triton").rglob("*.cubin")}
    assert {"attention_kernel.cubin", "_transition.cubin", "_layer_norm.cubin"} <= names
