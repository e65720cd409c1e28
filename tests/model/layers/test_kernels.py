"""Tests of the network's choice of kernels; Triton is imported only if GPU kernels are requested."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks.random_parameters import random_parameters
from cuda.fused import dispatch
from model.alphafold2.modules.config import ModelConfig
from model.checkpoints.alphafold2 import build_network
from model.layers.kernels import REFERENCE, InPlace, best_kernels, select_kernels

NO_TRITON = """
import sys
sys.modules["triton"] = None  # as if it were not installed
from model.alphafold2.network import AlphaFold
from model.layers.kernels import REFERENCE, select_kernels
assert select_kernels("reference") == REFERENCE
assert select_kernels("auto", "cpu") == REFERENCE
try:
    select_kernels("fused")
except ModuleNotFoundError as error:
    print(error.name)
"""


OPERATIONS = [field.name for field in fields(REFERENCE) if field.name not in ("fused", "rows")]
ROW_OPERATIONS = [field.name for field in fields(REFERENCE.rows)]


def module_of(operation: Callable[..., torch.Tensor]) -> str:
    return operation.operation.__module__ if isinstance(operation, InPlace) else operation.__module__


def test_reference_is_plain_pytorch() -> None:
    assert select_kernels("reference", "cuda") == REFERENCE
    assert not REFERENCE.fused
    for name in OPERATIONS:
        assert module_of(getattr(REFERENCE, name)).endswith(".reference")
    for name in ROW_OPERATIONS:
        assert getattr(REFERENCE.rows, name).__module__.endswith(".reference")


def test_auto_is_the_reference_on_cpu_or_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_kernels("auto") == REFERENCE and best_kernels("cpu") == "reference"
    monkeypatch.setattr(dispatch, "triton_installed", lambda: False)
    assert select_kernels("auto", "cuda:0") == REFERENCE and best_kernels("cuda:0") == "reference"


@pytest.mark.parametrize(("hopper", "expected"), [(False, "triton"), (True, "hopper")])
def test_fused_is_the_best_implementation_for_the_gpu(
    hopper: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(dispatch, "hopper_available", lambda device: hopper)
    fused = select_kernels("fused", "cuda")
    assert fused.fused
    for name in OPERATIONS:
        module = module_of(getattr(fused, name))
        # these have no kernels for Hopper
        only_triton = name in ("layer_norm", "pair_bias")
        assert module.split(".")[-1] == ("triton" if only_triton else expected)
    assert select_kernels("auto", "cuda") == select_kernels(expected, "cuda") == fused
    assert best_kernels("cuda") == "fused"


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="'fast'; expected fused, auto, reference, triton, hopper"):
        select_kernels("fast")


def test_reference_works_without_triton(root: Path) -> None:
    run = subprocess.run([sys.executable, "-c", NO_TRITON], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == "triton\n", run.stderr


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_gpu_kernels_reject_cpu_tensors(tiny_config: ModelConfig) -> None:
    network = build_network(tiny_config, random_parameters(tiny_config), kernels="fused")
    x = torch.zeros(3, tiny_config.evoformer.pair.channels)
    with pytest.raises(ValueError, match="does not support cpu tensors"):
        network.evoformer.evoformer_iteration[0].pair_transition(x)
