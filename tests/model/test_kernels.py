"""Tests of the choice of kernels, which needs Triton for "fused" only."""

import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from model import kernels
from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.kernels import FUSED, REFERENCE, select_kernels
from model.parameters import random_parameters

NO_TRITON = """
import sys
sys.modules["triton"] = None  # as if it were not installed
from model.alphafold import AlphaFold
from model.kernels import REFERENCE, select_kernels
assert select_kernels("reference") is REFERENCE
assert select_kernels("auto", "cpu") is REFERENCE
try:
    select_kernels("fused")
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_reference_kernels_are_plain_pytorch() -> None:
    assert select_kernels("reference", "cuda") is REFERENCE
    for field in fields(REFERENCE):
        assert getattr(REFERENCE, field.name).__module__.endswith(".reference")


def test_auto_is_the_reference_without_cuda_or_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_kernels("auto") is REFERENCE
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert select_kernels("auto", "cuda:0") is REFERENCE


def test_fused_uses_the_kernels_in_the_table() -> None:
    pytest.importorskip("triton")
    fused = select_kernels("fused")
    for field in fields(REFERENCE):
        expected = FUSED.get(field.name, getattr(REFERENCE, field.name).__module__)
        assert getattr(fused, field.name).__module__ == expected
    assert select_kernels("auto", "cuda") == fused


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'fast'.*'auto', 'fused' and 'reference'"):
        select_kernels("fast")


def test_without_triton_only_fused_fails(root: Path) -> None:
    run = subprocess.run([sys.executable, "-c", NO_TRITON], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == "triton\n", run.stderr


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_fused_kernels_reject_cpu_tensors(tiny_config: ModelConfig) -> None:
    network = AlphaFold.from_parameters(tiny_config, random_parameters(tiny_config), kernels="fused")
    x = torch.zeros(3, tiny_config.evoformer.pair.channels)
    with pytest.raises(ValueError, match="no cpu tensors"):
        network.evoformer.evoformer_iteration[0].pair_transition(x)
