"""Chains of known structure, as templates are read, stored and used."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from features.chemistry.residues import CA, atom_maps, encode_query
from msa.base.residues import ATOM37

MIN_RESIDUES = 10
"""Shorter chains cannot be templates: AlphaFold2 rejects alignments with fewer residues."""
BACKBONE = ("N", "CA", "C", "O", "CB")
BACKBONE_ATOMS = np.isin(ATOM37, BACKBONE)


@dataclass(frozen=True, eq=False)
class TemplateChain:
    """One protein chain with its coordinates.

    Args:
        id: entry and chain, such as 1abc_A; without white space.
        sequence: residues as letters, those without coordinates included.
        positions: float32 [residues, 37, 3], Å, in AlphaFold2's atom37 order; 0 for absent atoms.
        mask: bool [residues, 37], atoms that are present.
        release_date: first release of the entry, YYYY-MM-DD; None if unknown.
    """

    id: str
    sequence: str = field(repr=False)
    positions: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)
    release_date: str | None
    source: str

    @property
    def resolved(self) -> int:
        """Number of residues with a CA."""
        return int(np.count_nonzero(self.mask[:, CA]))

    def backbone(self) -> "TemplateChain":
        """Return the chain without side chains beyond CB."""
        mask = self.mask & BACKBONE_ATOMS
        return replace(self, positions=self.positions * mask[..., None], mask=mask)


def complete_atoms(sequence: str, backbone_only: bool = False) -> np.ndarray:
    """Return the atoms that each residue has if none is missing: bool [residues, 37].

    Args:
        sequence: residues as letters; unknown residues have no atoms.
        backbone_only: without side chains beyond CB.
    """
    exists = atom_maps(encode_query(sequence))["atom37_atom_exists"] > 0
    return exists & BACKBONE_ATOMS if backbone_only else exists


def distinct_chains(chains: Iterable[TemplateChain]) -> list[TemplateChain]:
    """Return one chain of each sequence: the one with most atoms, the first of equals, in order."""
    best: dict[str, TemplateChain] = {}
    for chain in chains:
        other = best.get(chain.sequence)
        if other is None or np.count_nonzero(chain.mask) > np.count_nonzero(other.mask):
            best[chain.sequence] = chain
    return list(best.values())
