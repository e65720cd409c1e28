"""A check of layer normalisation and attention on this machine, with a small fixed input."""

import numpy as np
import torch

from cuda.fused.attention import AttentionWeights
from model.layers.kernels import REFERENCE, Kernels

_ROWS, _LENGTH, _CHANNELS, _HEADS, _WIDTH = 3, 37, 32, 2, 16


def differences_from_numpy(kernels: Kernels) -> dict[str, float]:
    """Compare operations in float32 on the CPU with their formulas evaluated by NumPy in float64.

    Returns the maximum absolute difference by operation; results are of order 1.
    """
    arrays = _arrays()
    results = _run_operations(kernels, {key: torch.from_numpy(array) for key, array in arrays.items()})
    exact = _exact_results(arrays)
    return {key: float(np.abs(results[key].numpy() - exact[key]).max()) for key in exact}


def errors_against_float64(
    kernels: Kernels, device: torch.device | str, dtype: torch.dtype
) -> dict[str, tuple[float, float]]:
    """Measure the errors of operations and of plain PyTorch on a device, relative to float64 on the CPU.

    Returns the maximum absolute errors of the kernel and of plain PyTorch by operation; results are of order
    1.
    """
    rounded = {key: torch.from_numpy(array).to(device, dtype) for key, array in _arrays().items()}
    exact = _run_operations(REFERENCE, {key: value.double().cpu() for key, value in rounded.items()})
    results, reference = _run_operations(kernels, rounded), _run_operations(REFERENCE, rounded)

    def error(result: torch.Tensor, expected: torch.Tensor) -> float:
        return float((result.double().cpu() - expected).abs().max())

    return {key: (error(results[key], value), error(reference[key], value)) for key, value in exact.items()}


def _arrays() -> dict[str, np.ndarray]:
    """Return inputs and weights in float32, from a fixed seed."""
    random = np.random.default_rng(0)
    shapes = {
        "x": (_ROWS, _LENGTH, _CHANNELS),
        "norm_scale": (_CHANNELS,),
        "norm_offset": (_CHANNELS,),
        "query": (_CHANNELS, _HEADS, _WIDTH),
        "key": (_CHANNELS, _HEADS, _WIDTH),
        "value": (_CHANNELS, _HEADS, _WIDTH),
        "gating": (_CHANNELS, _HEADS, _WIDTH),
        "gating_bias": (_HEADS, _WIDTH),
        "output": (_HEADS, _WIDTH, _CHANNELS),
        "output_bias": (_CHANNELS,),
        "pair_bias": (_HEADS, _LENGTH, _LENGTH),
    }
    arrays = {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    for key in ("query", "key", "value", "gating", "output"):
        arrays[key] *= np.float32(_CHANNELS**-0.5)
    return arrays


def _run_operations(kernels: Kernels, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return layer normalisation and gated attention with a pair bias, computed by an implementation."""
    normed = kernels.layer_norm(tensors["x"], tensors["norm_scale"], tensors["norm_offset"])
    weights = AttentionWeights(*(tensors[field] for field in AttentionWeights._fields))
    attention = kernels.add_attention(tensors["x"].clone(), weights, None, tensors["pair_bias"])
    return {"layer normalisation": normed, "attention": attention}


def _exact_results(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the results of `_run_operations` in float64, computed from the formulas with NumPy."""
    a = {key: array.astype(np.float64) for key, array in arrays.items()}
    x = a["x"]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    normed = normed * a["norm_scale"] + a["norm_offset"]
    query, key, value, gating = (
        np.einsum("blc,chd->bhld", normed, a[k]) for k in ("query", "key", "value", "gating")
    )
    logits = np.einsum("bhid,bhjd->bhij", query, key) * _WIDTH**-0.5 + a["pair_bias"]
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    attended = np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), value)
    gated = attended / (1 + np.exp(-(gating + a["gating_bias"][:, None])))
    update = np.einsum("bhld,hdo->blo", gated, a["output"]) + a["output_bias"]
    return {"layer normalisation": normed, "attention": x + update}
