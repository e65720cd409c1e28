"""A predicted structure with its confidence scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

# additional results of a prediction: the structures after all passes, the single representation, the pair
# representation, all results of the last pass, the PAE of all pairs as ModelCIF
Extra = Literal["recycles", "single", "pair", "all", "pairwise"]
EXTRAS: tuple[Extra, ...] = ("recycles", "single", "pair", "all", "pairwise")

# Å, between CB atoms (CA of glycine)
CONTACT_DISTANCE = 8.0


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
class InterfaceContacts:
    """Pairs of residues of different chains within CONTACT_DISTANCE, in the order of the residues.

    Args:
        first: [K] int64, indices of residues of the earlier chain.
        second: [K] int64, indices of residues of the later chain.
        distance: [K] float32, Å.
        pae: [K, 2] float32, Å: of `second` when aligned on `first`, then of `first` when aligned on `second`.
        total: number of all contacts; larger than K if only the closest are kept.
    """

    first: np.ndarray
    second: np.ndarray
    distance: np.ndarray
    pae: np.ndarray
    total: int


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """The scores of C chains, and of pairs of them, that depend on PAE, pLDDT and contacts.

    Pairs of chains are rows and columns, [C, C] float64, with NaN on the diagonal.

    Args:
        ipsae: the row is the chain that is aligned on.
        pdockq: symmetric, 0 without a contact.
        pdockq2: the row is the chain that is aligned on; 0 without a contact.
        lis: mean of LIS in both directions; 0 without a PAE below 12 Å.
        ilis: symmetric, 0 without a contact of such a PAE.
        pae_min: the smallest PAE, Å; the row is the chain that is aligned on.
        per_chain_pdockq2: [C] float64, pDockQ2 of each chain with all others.
        contacts: contacts between chains.
    """

    ipsae: np.ndarray
    pdockq: np.ndarray
    pdockq2: np.ndarray
    lis: np.ndarray
    ilis: np.ndarray
    pae_min: np.ndarray
    per_chain_pdockq2: np.ndarray
    contacts: InterfaceContacts

    def best(self) -> dict[str, float]:
        """Return the best value among the pairs of chains of each score by which people filter."""
        digits = {"ipsae": 4, "pdockq": 4, "pdockq2": 4, "lis": 4, "ilis": 4}
        highest = {name: round(float(np.nanmax(getattr(self, name))), n) for name, n in digits.items()}
        return highest | {"pae_min": round(float(np.nanmin(self.pae_min)), 2)}


@dataclass(frozen=True, kw_only=True)
class ComplexScores(PairScores):
    """The confidence scores of a complex of C chains, in the order of the chains.

    Pairs of chains are rows and columns, with NaN on the diagonal.

    Args:
        ptm: pTM of the whole complex.
        iptm: ipTM of the whole complex.
        per_chain_ptm: [C] float64, pTM of each chain alone.
        pairwise_iptm: [C, C] float64, ipTM of two chains; symmetric.
        actifptm: actifpTM of the whole complex.
        pairwise_actifptm: [C, C] float64, actifpTM of two chains; symmetric, 0 without a confident contact.
    """

    ptm: float
    iptm: float
    per_chain_ptm: np.ndarray
    pairwise_iptm: np.ndarray
    actifptm: float
    pairwise_actifptm: np.ndarray

    @property
    def ranking_confidence(self) -> float:
        """The confidence by which models of a complex are ranked."""
        return complex_confidence(self.ptm, self.iptm)


def complex_confidence(ptm: float | None, iptm: float | None) -> float:
    """Return AlphaFold-Multimer's confidence in a complex, 0.8 ipTM + 0.2 pTM; missing values count as 0."""
    return 0.8 * (iptm or 0.0) + 0.2 * (ptm or 0.0)


@dataclass(frozen=True)
class Prediction:
    """A predicted structure and its confidence scores, as arrays on the CPU.

    Args:
        aatype: [N] int64, indices into `msa.base.residues.RESTYPE_NAMES`.
        residue_index: [N] int64, 0-based; restarts at 0 in every chain.
        atom_positions: [N, 37, 3] float32, Å.
        atom_mask: [N, 37] float32, 1 for the atoms of the residue type.
        plddt: [N] float64, 0 to 100.
        ptm: 0 to 1, or None for networks without a PAE head.
        pae: [N, N] float32, Å, or None for networks without a PAE head.
        max_pae: largest possible PAE, Å, or None.
        num_recycles: number of passes after the first.
        tolerances: change of the CA distances in each recycle, Å.
        extras: the requested additional results, in the order of EXTRAS.
        passes: the structure after each pass; empty without the extra "recycles".
        results: float32 results of the last pass, keyed as by `AlphaFold.forward`; all of them with the extra
            "all", else those of the extras "single" and "pair".
        asym_id: [N] int64, 1-based number of the chain of each residue; None for a single chain.
        scores: confidence scores of a complex; None for a single chain.
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
    asym_id: np.ndarray | None = None
    scores: ComplexScores | None = None

    def after_pass(self, index: int) -> "Prediction":
        """Return the prediction with the structure and pLDDT after a pass of `passes`."""
        structure = self.passes[index]
        return replace(self, atom_positions=structure.atom_positions, plddt=structure.plddt)

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return 1 if self.asym_id is None else len(np.unique(self.asym_id))

    @property
    def mean_plddt(self) -> float:
        """The mean of pLDDT over all residues, 0 to 100."""
        return float(self.plddt.mean())
