"""Confidence scores computed from logits: pLDDT, PAE and pTM (supplement sections 1.9.6 and 1.9.7)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.heads import PAE_BINS, aligned_error_edges


@dataclass(frozen=True)
class AlignedError:
    """The predicted aligned error (PAE) and the pTM derived from it.

    Args:
        pae: [N, N] float32, Å; entry (i, j) is the expected error of residue j when aligned on residue i.
        max_pae: largest possible PAE, Å.
        ptm: predicted TM-score, 0 to 1.
    """

    pae: np.ndarray
    max_pae: float
    ptm: float


def compute_plddt(logits: torch.Tensor) -> np.ndarray:
    """Compute the expected lDDT-CA of each residue.

    Args:
        logits: [N, bins]; the bins divide the range 0 to 1 evenly.

    Returns:
        [N] float64, 0 to 100.
    """
    bins = logits.shape[-1]
    centers = (torch.arange(bins, dtype=torch.float64, device=logits.device) + 0.5) / bins
    return (torch.softmax(logits.double(), dim=-1) @ centers * 100.0).cpu().numpy()


def compute_aligned_error(
    pair: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor], budget: int | None = None
) -> AlignedError:
    """Compute PAE and pTM.

    pTM is the maximum over the aligned residue i of the mean over j of the expectation of
    1 / (1 + (error / d0)²), with d0 of Zhang and Skolnick (2004) for max(N, 19) residues.

    Args:
        pair: [N, N, Z], pair representation.
        head: computes logits [n, N, 64] for n rows [n, N, Z]; called for a few rows at a time to save memory.
        budget: maximum number of intermediate elements in memory at once; does not affect the result.
    """
    length = pair.shape[0]
    edges = aligned_error_edges(pair.device).double()
    step = edges[1] - edges[0]
    centers = torch.cat([edges + step / 2, edges[-1:] + 1.5 * step])  # the last bin has no upper edge
    d0 = 1.24 * (max(length, 19) - 15) ** (1.0 / 3.0) - 1.8
    values = torch.stack([centers, 1.0 / (1.0 + (centers / d0).square())], dim=1)  # [64, 2]
    pae = torch.empty(length, length, device=pair.device)
    per_residue = values.new_empty(length)
    # factor 16: intermediates are float64, while the budget counts elements of the trunk's dtype
    for rows in row_slices(pair, 16 * length * PAE_BINS, budget):
        logits = head(pair[rows].float())  # [n, N, 64]
        expected = torch.softmax(logits.double(), dim=-1) @ values  # [n, N, 2]
        pae[rows] = expected[..., 0].float()
        per_residue[rows] = expected[..., 1].mean(dim=-1)
    return AlignedError(pae.cpu().numpy(), float(centers[-1]), float(per_residue.max()))
