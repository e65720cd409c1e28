"""A predicted structure with its confidence scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from model.structure import Structure

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
        positions: [A, 3] float32, Å.
        plddt: [N] float64, 0 to 100.
    """

    positions: np.ndarray
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


def complex_confidence(ptm: float | None, iptm: float | None) -> float:
    """Return AlphaFold-Multimer's confidence in a complex, 0.8 ipTM + 0.2 pTM; missing values count as 0."""
    return 0.8 * (iptm or 0.0) + 0.2 * (ptm or 0.0)


@dataclass(frozen=True, eq=False)
class AllAtomScores:
    """The confidence scores that only all-atom networks have, of N tokens and C chains.

    Args:
        iptm: predicted TM-score of the interfaces; None for a single chain.
        chain_ptm: float64 [C].
        chain_pair_iptm: float64 [C, C], symmetric, NaN on the diagonal.
        pde: float32 [N, N], Å.
        has_clash: whether two polymer chains clash badly.
        fraction_disordered: share of exposed protein residues.
        contact_probs: float32 [N, N], probability of a contact; None if the network predicts none.
        gpde: mean of pde weighted by the probability of a contact, Å; None without.
    """

    iptm: float | None
    chain_ptm: np.ndarray
    chain_pair_iptm: np.ndarray
    pde: np.ndarray
    has_clash: bool
    fraction_disordered: float
    contact_probs: np.ndarray | None = None
    gpde: float | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted structure of any molecules with its confidence scores, as arrays on the CPU.

    Every network returns it, and all writers take it. N is the number of tokens (residues, and atoms of
    ligands), A that of atoms.

    Args:
        structure: the molecules.
        positions: float32 [A, 3], Å.
        plddt: float64 [N], 0 to 100.
        atom_plddt: float64 [A], 0 to 100; None for networks that predict it for residues only.
        ptm: 0 to 1, or None for networks without a PAE head.
        pae: float32 [N, N], Å, or None for networks without a PAE head; the row is the token that is aligned.
        ranking_score: the score of the network's authors, by which models are ranked; None without.
        num_recycles: number of passes after the first.
        tolerances: change of the CA distances in each recycle, Å.
        extras: the requested additional results, in the order of EXTRAS.
        passes: the structure after each pass; empty without the extra "recycles".
        results: float32 results of the last pass, keyed as by `AlphaFold.forward`; all of them with the extra
            "all", else those of the extras "single" and "pair".
        scores: further scores of a complex; None for a single chain, and for all-atom networks.
        all_atom: further scores of all-atom networks; None for others.
    """

    structure: "Structure"
    positions: np.ndarray
    plddt: np.ndarray
    atom_plddt: np.ndarray | None = None
    ptm: float | None = None
    pae: np.ndarray | None = None
    ranking_score: float | None = None
    num_recycles: int = 0
    tolerances: tuple[float, ...] = ()
    extras: tuple[Extra, ...] = ()
    passes: tuple[PassStructure, ...] = ()
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    scores: ComplexScores | None = None
    all_atom: AllAtomScores | None = None

    def after_pass(self, index: int) -> "Prediction":
        """Return the prediction with the structure and pLDDT after a pass of `passes`."""
        structure = self.passes[index]
        return replace(self, positions=structure.positions, plddt=structure.plddt)

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return len(self.structure.chains)

    @property
    def mean_plddt(self) -> float:
        """The mean of pLDDT over what the network predicts it for, atoms or residues, 0 to 100."""
        return float((self.plddt if self.atom_plddt is None else self.atom_plddt).mean())

    @property
    def b_factors(self) -> np.ndarray:
        """The pLDDT of each atom, float64 [A]."""
        return self.plddt[self.structure.atom_token] if self.atom_plddt is None else self.atom_plddt

    @property
    def iptm(self) -> float | None:
        """The ipTM of all chains; None for a single chain."""
        scores = self.all_atom or self.scores
        return None if scores is None else scores.iptm

    @property
    def aatype(self) -> np.ndarray:
        """Index of each residue in `msa.base.residues.RESTYPE_NAMES`, int64 [R]."""
        return self.structure.aatype

    @property
    def atom_positions(self) -> np.ndarray:
        """Positions of the atoms of amino acids in the order of `ATOM37`, float32 [R, 37, 3]; 0 without."""
        positions = np.zeros((len(self.structure.residue_code), 37, 3), np.float32)
        positions[self.structure.atom_residue, self.structure.atom37] = self.positions
        return positions

    @cached_property
    def chain_pair_pae_min(self) -> np.ndarray:
        """The smallest PAE between the tokens of each two chains, float64 [C, C]; rows are aligned on."""
        assert self.pae is not None
        groups = [np.flatnonzero(self.structure.token_chain == chain) for chain in range(self.num_chains)]
        return np.array(
            [[float(self.pae[np.ix_(first, second)].min()) for second in groups] for first in groups]
        )
