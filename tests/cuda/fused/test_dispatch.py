"""The choice of an implementation, and the check of shapes by an operation's public function."""

import pytest
import torch

from cuda.fused import dispatch
from cuda.fused.attention import attend
from cuda.fused.dispatch import check_shapes, resolve_implementation
from cuda.fused.layer_norm import layer_norm
from cuda.fused.layer_norm.reference import layer_norm as reference_layer_norm
from cuda.fused.transition import TransitionWeights, add_transition


def test_auto_depends_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_implementation("auto", "cpu") == "reference"
    monkeypatch.setattr(dispatch, "triton_installed", lambda: True)
    for hopper, expected in ((False, "triton"), (True, "hopper")):
        monkeypatch.setattr(dispatch, "hopper_available", lambda device, hopper=hopper: hopper)
        assert resolve_implementation("auto", "cuda:1") == expected
    assert resolve_implementation("auto", "cpu") == "reference"
    assert resolve_implementation("triton", "cpu") == "triton"


def test_unavailable_or_unknown_implementation_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"Hopper GPU and Triton 3\.6\.x, not cpu"):
        resolve_implementation("hopper", "cpu")
    with pytest.raises(ValueError, match=r"'fast'; expected one of 'auto', 'reference', 'triton', 'hopper'"):
        resolve_implementation("fast", "cpu")


def test_public_function_runs_the_reference_on_cpu() -> None:
    x, scale, offset = torch.randn(5, 7, 8), torch.randn(8), torch.randn(8)
    expected = reference_layer_norm(x, scale, offset)
    assert torch.equal(layer_norm(x, scale, offset), expected)
    assert torch.equal(layer_norm(x, scale, offset, implementation="reference"), expected)


def test_disagreeing_shapes_are_rejected() -> None:
    projected, gating_bias, pair_bias = torch.zeros(3, 5, 32), torch.zeros(2, 4), torch.zeros(2, 5, 5)
    assert attend(projected, gating_bias, pair_bias).shape == (3, 5, 8)
    with pytest.raises(
        ValueError, match=r"attention: pair_bias has shape \[3, 5, 5\], expected \[H, Q, \*\] with .*H = 2"
    ):
        attend(projected, gating_bias, torch.zeros(3, 5, 5))
    weights = TransitionWeights(*map(torch.zeros, [(8,), (8,), (8, 16), (16,), (16, 8), (8,)]))
    assert add_transition(torch.zeros(3, 5, 8), weights).shape == (3, 5, 8)
    with pytest.raises(ValueError, match=r"norm_scale has shape \[8\], expected \[C\] with C = 4"):
        add_transition(torch.zeros(3, 5, 4), weights)


def test_leading_axes_and_free_sizes() -> None:
    check_shapes("test", {"x": (torch.zeros(2, 3, 4), "... C"), "y": (torch.zeros(4, 9), "C *")})
    check_shapes("test", {"x": (torch.zeros(4), "... C"), "y": (None, "C")})
    with pytest.raises(ValueError, match="y has shape"):
        check_shapes("test", {"x": (torch.zeros(2, 4), "... C"), "y": (torch.zeros(4), "C *")})


def test_operation_without_hopper_kernels_uses_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(dispatch, "hopper_available", lambda device: True)
    for operation, expected in (("layer_norm", "triton"), ("transition", "hopper")):
        module = dispatch.implementation_module(operation, "hopper", "cuda")
        assert module.__name__ == f"cuda.fused.{operation}.{expected}"
