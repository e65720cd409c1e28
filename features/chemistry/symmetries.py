"""Symmetries of components: orders of their atoms that no experiment can tell apart."""

import numpy as np

from features.chemistry.components import Component
from features.chemistry.errors import InvalidMolecule
from features.chemistry.molecules import build_molecule


def equivalent_orders(component: Component, kept: np.ndarray | None = None, most: int = 1000) -> np.ndarray:
    """Return the orders of a component's atoms that map each atom and bond to one of the same kind.

    Args:
        component: the component; handedness does not count, as in RDKit's symmetry-corrected RMSD.
        kept: bool [A], the atoms that are part of the structure; by default all.
        most: largest number of orders that are searched.

    Returns:
        int64 [P, n] for n atoms in the structure, the index of each atom's equivalent among them. The first
        order is the identity.
    """
    kept = np.ones(len(component), bool) if kept is None else kept
    identity = np.arange(len(component))
    try:
        molecule = build_molecule(component, chiral=False)
        found = molecule.GetSubstructMatches(molecule, uniquify=False, maxMatches=most, useChirality=False)
    except InvalidMolecule:
        found = ()
    orders = np.array([identity, *found])[:, kept]
    index = np.where(kept, np.cumsum(kept) - 1, -1)
    orders = index[orders]
    # ascending, which puts the identity first
    return np.unique(orders[(orders >= 0).all(axis=1)], axis=0)
