"""How right a machine computes two of the network's operations, on a tiny case that is always the same."""

import numpy as np
import torch

from cuda.fused.attention import AttentionWeights
from model.kernels import REFERENCE, Kernels

_ROWS, _LENGTH, _CHANNELS, _HEADS, _WIDTH = 3, 37, 32, 2, 16


def differences_from_numpy(kernels: Kernels) -> dict[str, float]:
    """How far operations in float32 on the CPU are from their formulas in numpy and float64.

    Args:
        kernels: the operations.

    Returns:
        The largest difference by the operation's name; numbers are of size 1.
    """
    arrays = _arrays()
    found = _operations(kernels, {key: torch.from_numpy(array) for key, array in arrays.items()})
    exact = _by_numpy(arrays)
    return {key: float(np.abs(found[key].numpy() - exact[key]).max()) for key in exact}


def errors_against_float64(
    kernels: Kernels, device: torch.device | str, dtype: torch.dtype
) -> dict[str, tuple[float, float]]:
    """How far operations, and those of plain PyTorch there, are from float64 on the CPU.

    Args:
        kernels: the operations.
        device, dtype: where and in what they run.

    Returns:
        The largest error, and plain PyTorch's, by the operation's name; numbers are of size 1.
    """
    rounded = {key: torch.from_numpy(array).to(device, dtype) for key, array in _arrays().items()}
    exact = _operations(REFERENCE, {key: value.double().cpu() for key, value in rounded.items()})
    found, plain = _operations(kernels, rounded), _operations(REFERENCE, rounded)

    def error(one: torch.Tensor, right: torch.Tensor) -> float:
        return float((one.double().cpu() - right).abs().max())

    return {key: (error(found[key], right), error(plain[key], right)) for key, right in exact.items()}


def _arrays() -> dict[str, np.ndarray]:
    """Inputs and weights, float32, drawn anew but always the same."""
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


def _operations(kernels: Kernels, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Layer normalisation, and gated attention with a pair bias, by an implementation."""
    normed = kernels.layer_norm(tensors["x"], tensors["norm_scale"], tensors["norm_offset"])
    weights = AttentionWeights(*(tensors[field] for field in AttentionWeights._fields))
    added = kernels.add_attention(tensors["x"].clone(), weights, None, tensors["pair_bias"])
    return {"layer normalisation": normed, "attention": added}


def _by_numpy(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `_operations` gives, in float64, from the formulas."""
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
