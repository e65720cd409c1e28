"""A predicted structure with its confidence scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

# what a prediction can contain in addition: the structure of every pass, the single representation, the pair
# representation, all results of the last pass
Extra = Literal["recycles", "single", "pair", "all"]
EXTRAS: tuple[Extra, ...] = ("recycles", "single", "pair", "all")


@dataclass(frozen=True)
class PassStructure:
    """The structure after one pass.

    Args:
        atom_positions: [N, 37, 3] float32, Å.
        plddt: [N] float64, 0 to 100.
    """

    atom_positions: np.ndarray
    plddt: np.ndarray


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
        extras: what was requested in addition, in the order of EXTRAS.
        passes: the structure after each pass; empty without the extra "recycles".
        results: float32 results of the last pass, keyed as by `AlphaFold.forward`; all of them with the extra
            "all", else those of the extras "single" and "pair".
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
    extras: tuple[Extra, ...] = ()
    passes: tuple[PassStructure, ...] = ()
    results: Mapping[str, np.ndarray] = field(default_factory=dict)

    def after_pass(self, index: int) -> "Prediction":
        """Return the prediction with the structure and pLDDT after a pass of `passes`."""
        structure = self.passes[index]
        return replace(self, atom_positions=structure.atom_positions, plddt=structure.plddt)

    @property
    def mean_plddt(self) -> float:
        """The mean of pLDDT over all residues, 0 to 100."""
        return float(self.plddt.mean())
