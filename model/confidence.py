"""Confidence scores from the heads' logits: pLDDT, PAE and pTM (supplement sections 1.9.6 and 1.9.7)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.heads import PAE_BINS, aligned_error_edges


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


def aligned_error(
    pair: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor], budget: int | None = None
) -> AlignedError:
    """PAE and pTM.

    pTM follows Zhang and Skolnick's d0 for max(N, 19) residues, averages over j the expectation of
    1 / (1 + (error / d0)²), and takes the best aligned residue i.

    Args:
        pair: [N, N, Z].
        head: gives logits [n, N, 64] of rows [n, N, Z], so that there are never those of all rows.
        budget: elements of intermediates alive at once; the result does not depend on it.
    """
    length = pair.shape[0]
    edges = aligned_error_edges(pair.device).double()
    step = edges[1] - edges[0]
    centers = torch.cat([edges + step / 2, edges[-1:] + 1.5 * step])  # the last bin is open
    d0 = 1.24 * (max(length, 19) - 15) ** (1.0 / 3.0) - 1.8
    values = torch.stack([centers, 1.0 / (1.0 + (centers / d0).square())], dim=1)  # [64, 2]
    pae = torch.empty(length, length, device=pair.device)
    per_residue = values.new_empty(length)
    # float64 beside a trunk in bfloat16
    for rows in row_slices(pair, 16 * length * PAE_BINS, budget):
        logits = head(pair[rows].float())  # [n, N, 64]
        expected = torch.softmax(logits.double(), dim=-1) @ values  # [n, N, 2]
        pae[rows] = expected[..., 0].float()
        per_residue[rows] = expected[..., 1].mean(dim=-1)
    return AlignedError(pae.cpu().numpy(), float(centers[-1]), float(per_residue.max()))
