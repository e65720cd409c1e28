"""Gated attention within windows in plain PyTorch."""

import torch
import torch.nn.functional as F


def window_attention(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Compute gated attention within windows; see `cuda.fused.window_attention.window_attention`."""
    windows, heads, queries, keys = bias.shape
    atoms = query.shape[1]
    q, gate = query.chunk(2, dim=-1)
    index = (starts[:, None] + torch.arange(keys, device=starts.device)).clamp(max=atoms - 1)  # [W, K]
    q = F.pad(q, (0, 0, 0, windows * queries - atoms)).unflatten(1, (windows, queries))
    q, k, v = (
        x.unflatten(-1, (heads, -1)).transpose(-2, -3) for x in (q, *key[:, index].chunk(2, dim=-1))
    )  # [S, W, H, Q or K, D]
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    weights = (logits + bias).softmax(dim=-1).to(q.dtype)
    attended = (weights @ v).transpose(-2, -3).flatten(-2).flatten(1, 2)[:, :atoms]
    return attended * torch.sigmoid(gate)
