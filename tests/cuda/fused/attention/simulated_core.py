"""The attention core kernel for Hopper in the Gluon simulator."""

import pytest
import torch

from cuda.fused.attention import hopper_core
from tests.cuda.fused.gluon_simulator import SimulatedKernel


def replace_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the simulator run the kernel, with PyTorch in place of its functions of GPU instructions."""
    kernel = SimulatedKernel(
        hopper_core,
        "attention_kernel",
        _zeros=torch.zeros_like,
        _to_float32=torch.Tensor.float,
        _pairs=lambda tile: tile,
        _to_logits=torch.Tensor.float,
        _reciprocal=torch.reciprocal,
    )
    monkeypatch.setattr(hopper_core, "attention_kernel", kernel)
