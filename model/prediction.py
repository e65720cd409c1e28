"""A predicted structure with its confidence scores."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Prediction:
    """A predicted structure and its confidence scores, as arrays on the CPU.

    Args:
        aatype: [N] int64, indices into `residue_constants.RESTYPE_NAMES`.
        residue_index: [N] int64, 0-based.
        atom_positions: [N, 37, 3] float32, Å.
        atom_mask: [N, 37] float32, 1 for the atoms of the residue type.
        plddt: [N] float64, 0 to 100.
        ptm: 0 to 1, or None for networks without a PAE head.
        pae: [N, N] float32, Å, or None for networks without a PAE head.
        max_pae: largest possible PAE, Å, or None.
        num_recycles: number of passes after the first.
        tolerances: change of the CA distances in each recycle, Å.
    """

    aatype: np.ndarray
    residue_index: np.ndarray
    atom_positions: np.ndarray
    atom_mask: np.ndarray
    plddt: np.ndarray
    ptm: float | None
    pae: np.ndarray | None
    max_pae: float | None
    num_recycles: int
    tolerances: tuple[float, ...]

    @property
    def mean_plddt(self) -> float:
        """The mean of pLDDT over all residues, 0 to 100."""
        return float(self.plddt.mean())
