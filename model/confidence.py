"""Confidence scores from the heads' logits: pLDDT, PAE and pTM (supplement sections 1.9.6 and 1.9.7)."""

from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.heads import aligned_error_edges


@dataclass(frozen=True)
class AlignedError:
    """Predicted aligned error and what follows from it.

    Args:
        pae: [N, N] float32, Å: expected error of residue j when residue i is aligned.
        max_pae: the largest value it can have, Å.
        ptm: predicted TM-score, 0 to 1.
    """

    pae: np.ndarray
    max_pae: float
    ptm: float


def plddt(logits: torch.Tensor) -> np.ndarray:
    """Expected lDDT-CA of each residue.

    Args:
        logits: [N, bins]; bins divide 0 to 1 evenly.

    Returns:
        [N] float64, 0 to 100.
    """
    bins = logits.shape[-1]
    centers = (torch.arange(bins, dtype=torch.float64, device=logits.device) + 0.5) / bins
    return (torch.softmax(logits.double(), dim=-1) @ centers * 100.0).cpu().numpy()


def aligned_error(logits: torch.Tensor, budget: int | None = None) -> AlignedError:
    """PAE and pTM.

    pTM follows Zhang and Skolnick's d0 for max(N, 19) residues, averages over j the expectation of
    1 / (1 + (error / d0)²), and takes the best aligned residue i.

    Args:
        logits: [N, N, 64].
        budget: elements of intermediates alive at once; the result does not depend on it.
    """
    length = logits.shape[0]
    edges = aligned_error_edges(logits.device).double()
    step = edges[1] - edges[0]
    centers = torch.cat([edges + step / 2, edges[-1:] + 1.5 * step])  # the last bin is open
    d0 = 1.24 * (max(length, 19) - 15) ** (1.0 / 3.0) - 1.8
    values = torch.stack([centers, 1.0 / (1.0 + (centers / d0).square())], dim=1)  # [64, 2]
    pae = np.empty((length, length), np.float32)
    per_residue = np.empty(length)
    for rows in row_slices(logits, 4 * length * logits.shape[-1], budget):
        expected = torch.softmax(logits[rows].double(), dim=-1) @ values  # [n, N, 2]
        pae[rows] = expected[..., 0].cpu().numpy()
        per_residue[rows] = expected[..., 1].mean(dim=-1).cpu().numpy()
    return AlignedError(pae, float(centers[-1]), float(per_residue.max()))
