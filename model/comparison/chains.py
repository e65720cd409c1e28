"""Chains of proteins to compare, and the pairs of residues and chains of a model and its reference."""

from dataclasses import dataclass

import numpy as np
from Bio.Align import PairwiseAligner, substitution_matrices

from model.comparison.scores import superpose

_MIN_IDENTITY = 0.7
_MIN_ALIGNED = 3


@dataclass(frozen=True, eq=False)
class ProteinChain:
    """A chain of a protein.

    Args:
        name: the chain id.
        sequence: one letter per residue.
        residues: the heavy atoms of each residue, name → coordinates (3,), Å.
    """

    name: str
    sequence: str
    residues: list[dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class ChainPair:
    """A chain of the reference with its chain of the model.

    Args:
        model: the chain of the model.
        reference: the chain of the reference.
        residues: (N, 2), indices of paired residues in the model and the reference.
    """

    model: ProteinChain
    reference: ProteinChain
    residues: np.ndarray

    def atoms(self, names: tuple[str, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates (N, 3) of the atoms that both have, of the model and the reference."""
        pairs = [
            (self.model.residues[i][name], xyz)
            for i, j in self.residues
            for name, xyz in self.reference.residues[j].items()
            if (names is None or name in names) and name in self.model.residues[i]
        ]
        both = np.array(pairs).reshape(-1, 2, 3)
        return both[:, 0], both[:, 1]


def align(model: ProteinChain, reference: ProteinChain) -> np.ndarray | None:
    """Return indices (N, 2) of residues paired by sequence; None if the sequences differ too much."""
    aligner = PairwiseAligner(mode="global", open_gap_score=-11, extend_gap_score=-1, end_gap_score=0)
    aligner.substitution_matrix = substitution_matrices.load("BLOSUM62")
    if min(len(model.sequence), len(reference.sequence)) < _MIN_ALIGNED:
        return None
    first = aligner.align(model.sequence, reference.sequence)[0]
    blocks = [np.stack([np.arange(*a), np.arange(*b)], axis=1) for a, b in zip(*first.aligned, strict=True)]
    pairs = np.concatenate(blocks) if blocks else np.zeros((0, 2), int)
    same = sum(model.sequence[i] == reference.sequence[j] for i, j in pairs)
    return pairs if len(pairs) >= _MIN_ALIGNED and same >= _MIN_IDENTITY * len(pairs) else None


def map_chains(model: list[ProteinChain], reference: list[ProteinChain]) -> list[ChainPair]:
    """Return pairs of chains: those that fit best after superposing any one pair.

    Each candidate pair is superposed; the others are then assigned, nearest first. The mapping with
    most pairs, then with the largest sum of 1 / (1 + (d / 8 Å)²) over CA atoms, is returned.
    """
    aligned: dict[tuple[str, str], np.ndarray | None] = {}
    candidates = []
    for a in model:
        for b in reference:
            key = a.sequence, b.sequence
            if key not in aligned:
                aligned[key] = align(a, b)
            pairs = aligned[key]
            if pairs is not None:
                pair = ChainPair(a, b, pairs)
                coordinates = pair.atoms(("CA",))
                if len(coordinates[0]) >= _MIN_ALIGNED:
                    candidates.append((pair, *coordinates))
    best: tuple[int, float] = (0, 0.0)
    mapping: list[ChainPair] = []
    for _, moved, fixed in candidates:
        rotation, shift = superpose(moved, fixed)
        fits = []
        for index, (_, a_xyz, b_xyz) in enumerate(candidates):
            squared = ((a_xyz @ rotation + shift - b_xyz) ** 2).sum(-1)
            fits.append((float((1 / (1 + squared / 64)).sum()), index))
        chosen, total = [], 0.0
        used: set[tuple[str, str]] = set()
        for fit, index in sorted(fits, key=lambda item: (-item[0], item[1])):
            pair = candidates[index][0]
            sides = {("model", pair.model.name), ("reference", pair.reference.name)}
            if not sides & used:
                used |= sides
                chosen.append(pair)
                total += fit
        if (len(chosen), total) > best:
            best, mapping = (len(chosen), total), chosen
    names = [chain.name for chain in reference]
    return sorted(mapping, key=lambda pair: names.index(pair.reference.name))
