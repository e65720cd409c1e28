"""The weights of training samples: chains and interfaces of complexes, by cluster and kind of molecule.

Section 2.5.1 of the supplement of Abramson et al., Nature 630, 493 (2024): a sample is drawn for a chain or
an interface, in proportion to β / N · (3 n_protein + 3 n_nucleic + n_ligand), where N is the size of its
cluster, n the numbers of its chains of each kind, and β 1/2 for chains and 1 for interfaces.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from features.assembly.atoms import Atoms
from features.assembly.job import Ligand
from features.chemistry.residue_classes import MoleculeKind

# chains whose atoms come closer have an interface, Å
INTERFACE_DISTANCE = 5.0
CHAIN_WEIGHT, INTERFACE_WEIGHT = 0.5, 1.0
KIND_WEIGHTS = {
    MoleculeKind.PROTEIN: 3.0,
    MoleculeKind.RNA: 3.0,
    MoleculeKind.DNA: 3.0,
    MoleculeKind.LIGAND: 1.0,
}


@dataclass(frozen=True)
class ChainOrInterface:
    """A chain or an interface that samples are drawn for."""

    entry: int
    chains: tuple[int, ...]
    kinds: tuple[MoleculeKind, ...]
    cluster: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True)
class ChainContacts:
    """The chains of a complex that have resolved atoms, and which of them touch.

    Attributes:
        molecules: its sequence, or its component codes joined by "-".
        contacts: pairs of chains that have an interface, by their indices.
    """

    chains: tuple[int, ...]
    kinds: tuple[MoleculeKind, ...]
    molecules: tuple[str, ...] = field(repr=False)
    contacts: tuple[tuple[int, int], ...] = field(repr=False)

    @classmethod
    def of(cls, atoms: Atoms, positions: np.ndarray, resolved: np.ndarray) -> "ChainContacts":
        """Return the chains of a complex with positions [A, 3], Å, and resolved, bool [A]."""
        points = [positions[(atoms.chain == number) & resolved] for number in range(len(atoms.chains))]
        present = [number for number in range(len(points)) if len(points[number])]
        contacts = [
            pair for pair in combinations(present, 2) if _are_in_contact(points[pair[0]], points[pair[1]])
        ]
        chains = [atoms.chains[number] for number in present]
        molecules = [
            "-".join(chain.entity.codes) if isinstance(chain.entity, Ligand) else chain.entity.sequence
            for chain in chains
        ]
        return cls(tuple(present), tuple(chain.kind for chain in chains), tuple(molecules), tuple(contacts))

    @property
    def proteins(self) -> list[str]:
        """The sequences of the proteins."""
        pairs = zip(self.kinds, self.molecules, strict=True)
        return [molecule for kind, molecule in pairs if kind == MoleculeKind.PROTEIN]

    def chains_and_interfaces(self, entry: int, clusters: Mapping[str, str]) -> list[ChainOrInterface]:
        """Return the chains and interfaces that samples are drawn for.

        Args:
            entry: index of the complex.
            clusters: clusters of protein sequences. Others are clusters of their own, and so are nucleic
                acids and kinds of ligands.
        """
        own: dict[int, tuple[MoleculeKind, tuple[str, str]]] = {}
        for chain, kind, molecule in zip(self.chains, self.kinds, self.molecules, strict=True):
            known = clusters.get(molecule) if kind == MoleculeKind.PROTEIN else None
            own[chain] = kind, (kind.name, molecule) if known is None else ("cluster", known)
        groups = [(chain,) for chain in self.chains] + list(self.contacts)
        return [
            ChainOrInterface(
                entry,
                group,
                tuple(own[chain][0] for chain in group),
                tuple(sorted(own[chain][1] for chain in group)),
            )
            for group in groups
        ]


def _are_in_contact(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two sets of points [m, 3] and [n, 3] come within INTERFACE_DISTANCE."""
    low, high = second.min(axis=0) - INTERFACE_DISTANCE, second.max(axis=0) + INTERFACE_DISTANCE
    near = first[((first >= low) & (first <= high)).all(axis=1)]
    return any(bool((np.square(second - point).sum(axis=1) < INTERFACE_DISTANCE**2).any()) for point in near)


def sample_probabilities(items: Sequence[ChainOrInterface]) -> np.ndarray:
    """Return the probability of each chain and interface, [n]."""
    sizes = Counter(item.cluster for item in items)
    weights = [
        (CHAIN_WEIGHT if len(item.chains) == 1 else INTERFACE_WEIGHT)
        / sizes[item.cluster]
        * sum(KIND_WEIGHTS[kind] for kind in item.kinds)
        for item in items
    ]
    return np.array(weights) / sum(weights)
