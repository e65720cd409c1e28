"""Baselines of predictions: an ideal helix, and contacts by mean-field DCA."""

import numpy as np
import torch

HELIX_RISE, HELIX_RADIUS, HELIX_TURN = 1.5, 2.3, np.deg2rad(100.0)  # Å, Å, per residue


def ideal_helix(length: int) -> torch.Tensor:
    """Return the CA atoms of a helix, [length, 3] in Å."""
    index = np.arange(length)
    points = [
        HELIX_RADIUS * np.cos(HELIX_TURN * index),
        HELIX_RADIUS * np.sin(HELIX_TURN * index),
        HELIX_RISE * index,
    ]
    return torch.from_numpy(np.stack(points, axis=1).astype(np.float32))


def mean_field_dca(tokens: np.ndarray, weights: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return the contact scores [length, length] of mean-field DCA (Morcos et al. 2011) with APC.

    The pseudocount is 0.5. Gaps and unknown residues are the state that is left out.

    Args:
        tokens: [rows, length], 0 to 21.
        weights: [rows].
        device: where to compute, in float64.
    """
    states, pseudocount = 20, 0.5
    length = tokens.shape[1]
    one_hot = torch.from_numpy((tokens[..., None] == np.arange(states)).reshape(len(tokens), -1))
    x = one_hot.to(device, torch.float64)  # [rows, length * states]
    weight = torch.from_numpy(weights / weights.sum()).to(device)
    uniform = 1.0 / (states + 1)
    single = (1 - pseudocount) * (weight @ x) + pseudocount * uniform
    joint = (1 - pseudocount) * (x.T @ (weight[:, None] * x)) + pseudocount * uniform**2
    blocks = joint.view(length, states, length, states)
    position = torch.arange(length, device=device)
    blocks[position, :, position] = torch.diag_embed(single.view(length, states))
    coupling = -torch.linalg.inv(joint - single[:, None] * single[None])
    coupling = coupling.view(length, states, length, states).transpose(1, 2)
    # shifted to the gauge in which rows and columns, the left-out state included, sum to zero
    padded = torch.nn.functional.pad(coupling, (0, 1, 0, 1))
    padded = padded - padded.mean(dim=2, keepdim=True) - padded.mean(dim=3, keepdim=True)
    padded = padded + coupling.sum(dim=(2, 3), keepdim=True) / (states + 1) ** 2
    norm = padded[:, :, :states, :states].square().sum(dim=(2, 3)).sqrt()
    norm.fill_diagonal_(0)
    average = norm.sum(dim=1) / (length - 1)
    score = norm - average[:, None] * average[None] / average.mean()
    return (score - score.min()).float()
