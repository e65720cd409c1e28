"""Atoms of two ligands that correspond, in all orders that their bonds allow."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np

from model.comparison.chains import Ligand
from model.comparison.scores import distances

MAX_ORDERS = 10_000
_BOND_TOLERANCE = 0.4  # Å, beyond the sum of covalent radii


def equivalent_orders(model: Ligand, reference: Ligand) -> np.ndarray:
    """Return the orders (K, N) of a model's atoms in which elements and bonds are those of a reference.

    Atoms are bonded if they are no further apart than their covalent radii allow. If both ligands have the
    same names of atoms, the model has the bonds of the reference. At most `MAX_ORDERS` are returned, none if
    the ligands differ.
    """
    if Counter(model.elements) != Counter(reference.elements):
        return np.zeros((0, len(reference.names)), int)
    bonds = _bonds(reference)
    if sorted(model.names) == sorted(reference.names) and len(set(model.names)) == len(model.names):
        place = [model.names.index(name) for name in reference.names]
        found = np.array(list(islice(_isomorphisms(reference, bonds, reference, bonds), MAX_ORDERS)))
        return np.array(place)[found]
    found = np.array(list(islice(_isomorphisms(model, _bonds(model), reference, bonds), MAX_ORDERS)), int)
    return found.reshape(-1, len(reference.names))


def _bonds(ligand: Ligand) -> list[set[int]]:
    """Return the atoms to which each atom is bonded."""
    longest = ligand.radii[:, None] + ligand.radii + _BOND_TOLERANCE
    near = (distances(ligand.positions, ligand.positions) < longest) & ~np.eye(len(ligand.names), dtype=bool)
    return [set(np.nonzero(row)[0].tolist()) for row in near]


def _isomorphisms(
    model: Ligand, model_bonds: list[set[int]], reference: Ligand, bonds: list[set[int]]
) -> Iterator[list[int]]:
    """Yield, for each order, the atom of the model for each of the reference."""
    route = _route(bonds)
    mapping: dict[int, int] = {}
    used: set[int] = set()

    def extend(step: int) -> Iterator[list[int]]:
        if step == len(route):
            yield [mapping[atom] for atom in range(len(route))]
            return
        atom = route[step]
        placed = [mapping[other] for other in bonds[atom] if other in mapping]
        candidates = model_bonds[placed[0]] if placed else range(len(route))
        for candidate in sorted(candidates):
            if (
                candidate not in used
                and model.elements[candidate] == reference.elements[atom]
                and len(model_bonds[candidate]) == len(bonds[atom])
                and all(candidate in model_bonds[other] for other in placed)
            ):
                mapping[atom] = candidate
                used.add(candidate)
                yield from extend(step + 1)
                used.remove(mapping.pop(atom))

    yield from extend(0)


def _route(bonds: list[set[int]]) -> list[int]:
    """Return all atoms in an order in which each follows a bonded one, where there is one."""
    route: list[int] = []
    for start in range(len(bonds)):
        front = [] if start in route else [start]
        while front:
            atom = front.pop()
            if atom not in route:
                route.append(atom)
                front += sorted(bonds[atom])
    return route
