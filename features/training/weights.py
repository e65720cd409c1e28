"""The weights of training samples: chains and interfaces of complexes, by cluster and kind of molecule.

Section 2.5.1 of the supplement of Abramson et al., Nature 630, 493 (2024): a sample is drawn for a chain or
an interface, in proportion to β / N · (3 n_protein + 3 n_nucleic + n_ligand), where N is the size of its
cluster, n the numbers of its chains of each kind, and β 1/2 for chains and 1 for interfaces.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from features.assembly.atoms import Atoms
from features.assembly.job import Ligand, Polymer
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
# A cluster of a chain. An interface's is the pair of its chains' clusters, whatever their order.
Cluster = Hashable


@dataclass(frozen=True)
class Place:
    """A chain or an interface that samples are drawn for.

    Attributes:
        entry: index of the complex.
        chains: index of the chain, or of both chains of an interface.
        kinds: their kinds.
        cluster: its cluster.
    """

    entry: int
    chains: tuple[int, ...]
    kinds: tuple[MoleculeKind, ...]
    cluster: Cluster = field(repr=False)


def chain_cluster(entity: Polymer | Ligand, clusters: Mapping[str, str]) -> Cluster:
    """Return the cluster of a chain.

    Args:
        entity: its molecule.
        clusters: clusters of protein sequences; others are clusters of their own, and so are nucleic acids
            and kinds of ligands.
    """
    if isinstance(entity, Ligand):
        return ("ligand", *entity.codes)
    if entity.kind == MoleculeKind.PROTEIN and entity.sequence in clusters:
        return ("protein", clusters[entity.sequence])
    return (entity.kind.name, entity.sequence)


def places_of(
    entry: int,
    atoms: Atoms,
    positions: np.ndarray,
    resolved: np.ndarray,
    clusters: Mapping[str, str] | None = None,
) -> list[Place]:
    """Return the chains of a complex with resolved atoms, and their interfaces.

    Args:
        entry: index of the complex.
        atoms: its atoms.
        positions: [A, 3], Å.
        resolved: bool [A].
        clusters: see `chain_cluster`.
    """
    own = [chain_cluster(chain.entity, clusters or {}) for chain in atoms.chains]
    members = [positions[(atoms.chain == number) & resolved] for number in range(len(atoms.chains))]
    present = [number for number, points in enumerate(members) if len(points)]
    places = [Place(entry, (number,), (atoms.chains[number].kind,), (own[number],)) for number in present]
    for rank, first in enumerate(present):
        for second in present[rank + 1 :]:
            if _touch(members[first], members[second]):
                kinds = atoms.chains[first].kind, atoms.chains[second].kind
                cluster = tuple(sorted((own[first], own[second]), key=repr))
                places.append(Place(entry, (first, second), kinds, cluster))
    return places


def _touch(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two sets of points [m, 3] and [n, 3] come within INTERFACE_DISTANCE."""
    low, high = second.min(axis=0) - INTERFACE_DISTANCE, second.max(axis=0) + INTERFACE_DISTANCE
    near = first[((first >= low) & (first <= high)).all(axis=1)]
    return any(bool((np.square(second - point).sum(axis=1) < INTERFACE_DISTANCE**2).any()) for point in near)


def sample_probabilities(places: Sequence[Place]) -> np.ndarray:
    """Return the probability of each chain and interface, [n]."""
    sizes = Counter(place.cluster for place in places)
    weights = [
        (CHAIN_WEIGHT if len(place.chains) == 1 else INTERFACE_WEIGHT)
        / sizes[place.cluster]
        * sum(KIND_WEIGHTS[kind] for kind in place.kinds)
        for place in places
    ]
    return np.array(weights) / sum(weights)
