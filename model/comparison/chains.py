"""Molecules to compare, and the pairs of residues and chains of a model and its reference."""

import re
from dataclasses import dataclass, field

import gemmi
import numpy as np

from model.comparison.superposition import superpose

# heavy atoms of a residue, name → coordinates (3,), Å
Residue = dict[str, np.ndarray]

_MIN_ALIGNED = 3
_MIN_IDENTITY = 0.7  # of aligned residues
_MIN_COVERAGE = 0.3  # of the shorter chain
_OPEN_GAP = -4
_EXTEND_GAP = -1
_FIT_SCALE = 8.0  # Å


@dataclass(frozen=True, eq=False)
class ComparedChain:
    """A chain of a protein or nucleic acid.

    Args:
        name: the chain id.
        trace: the atom that represents a residue, CA or C3'.
        names: the name of each residue.
        breaks: for each residue but the last, whether it is not bonded to the next one.
        residues: the atoms of each residue.
    """

    name: str
    trace: str
    names: list[str]
    breaks: list[bool]
    residues: list[Residue]

    def __len__(self) -> int:
        return len(self.residues)


@dataclass(frozen=True, eq=False)
class ComparedLigand:
    """A ligand or an ion.

    Args:
        name: chain, component and number.
        names: names of its heavy atoms.
        elements: their elements.
        radii: (N,), their covalent radii in Å.
        positions: (N, 3), Å.
    """

    name: str
    names: list[str]
    elements: list[str]
    radii: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, eq=False)
class ComparedMolecules:
    """The molecules of a structure."""

    chains: list[ComparedChain]
    ligands: list[ComparedLigand] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ChainPair:
    """A chain of the reference with its chain of the model.

    Args:
        model: the chain of the model.
        reference: the chain of the reference.
        residues: (N, 2), indices of paired residues in the model and the reference.
    """

    model: ComparedChain
    reference: ComparedChain
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

    def trace(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates (N, 3) of the CA or C3' atoms that both have, of the model and the reference."""
        return self.atoms((self.reference.trace,))


def align(model: ComparedChain, reference: ComparedChain) -> np.ndarray | None:
    """Return indices (N, 2) of residues paired by sequence; None if the sequences differ too much.

    Gaps open freely at the ends, and where the chain with more breaks has one.
    """
    is_swapped = sum(model.breaks) > sum(reference.breaks)
    query, target = (reference, model) if is_swapped else (model, reference)
    scoring = gemmi.AlignmentScoring()
    scoring.gapo, scoring.gape = _OPEN_GAP, _EXTEND_GAP
    gaps = [0, *(0 if broken else _OPEN_GAP for broken in target.breaks), 0]
    cigar = gemmi.align_string_sequences(query.names, target.names, gaps, scoring).cigar_str()
    i = j = 0
    pairs = []
    for count, kind in re.findall(r"(\d+)([MID])", cigar):
        length = int(count)
        if kind == "M":
            pairs += [(i + k, j + k) for k in range(length)]
        i += length if kind in "MI" else 0
        j += length if kind in "MD" else 0
    indices = np.array(pairs, int).reshape(-1, 2)[:, :: -1 if is_swapped else 1]
    same = sum(model.names[i] == reference.names[j] for i, j in indices)
    least = max(_MIN_ALIGNED, _MIN_COVERAGE * min(len(model), len(reference)))
    return indices if len(indices) >= least and same >= _MIN_IDENTITY * len(indices) else None


def map_chains(model: list[ComparedChain], reference: list[ComparedChain]) -> list[list[ChainPair]]:
    """Return the possible pairs of chains, the best first; empty if no sequence is that of another.

    Each pair of chains of one sequence is superposed, and the others are assigned, nearest first. Best are
    most pairs, then the largest sum of 1 / (1 + (d / 8 Å)²) over CA or C3' atoms.
    """
    pairs = _candidates(model, reference)
    if not pairs:
        return []
    traces = [pair.trace() for pair in pairs]
    starts = np.cumsum([0, *(len(moved) for moved, _ in traces[:-1])])
    every = [np.concatenate(xyz) for xyz in zip(*traces, strict=True)]
    order = {chain.name: k for k, chain in enumerate(reference)}
    mappings: dict[tuple[int, ...], tuple[int, float]] = {}
    for moved, fixed in traces:
        rotation, shift = superpose(moved, fixed)
        squared = ((every[0] @ rotation + shift - every[1]) ** 2).sum(-1)
        fits = np.add.reduceat(1 / (1 + squared / _FIT_SCALE**2), starts)
        chosen: list[int] = []
        used: set[tuple[str, str]] = set()
        for index in np.argsort(-fits, kind="stable").tolist():
            sides = {("model", pairs[index].model.name), ("reference", pairs[index].reference.name)}
            if not sides & used:
                used |= sides
                chosen.append(index)
        chosen.sort(key=lambda index: order[pairs[index].reference.name])
        quality = len(chosen), float(fits[chosen].sum())
        mappings[tuple(chosen)] = max(quality, mappings.get(tuple(chosen), (0, 0.0)))
    best_first = sorted(mappings, key=lambda chosen: mappings[chosen], reverse=True)
    return [[pairs[index] for index in chosen] for chosen in best_first]


def _candidates(model: list[ComparedChain], reference: list[ComparedChain]) -> list[ChainPair]:
    """Return the pairs of chains whose sequences and traces can be compared."""
    aligned: dict[tuple[tuple[str | bool, ...], ...], np.ndarray | None] = {}
    pairs = []
    for a in model:
        for b in reference:
            if a.trace != b.trace:
                continue
            key = tuple(a.names), tuple(b.names), tuple(a.breaks), tuple(b.breaks)
            if key not in aligned:
                aligned[key] = align(a, b)
            indices = aligned[key]
            if indices is not None:
                pair = ChainPair(a, b, indices)
                pairs += [pair] if len(pair.trace()[0]) >= _MIN_ALIGNED else []
    return pairs
