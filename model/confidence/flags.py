"""Flags of a structure: chains that clash, and the share of residues that look disordered.

Both are AlphaFold 3's (supplement of Abramson et al., Nature 630, 493, 2024, section 5.9.2).
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch

from model.confidence.surface import exposed_share, largest_area, van_der_waals_radius
from model.structure import EntityKind, Structure
from msa.base.residues import RESTYPE_NAMES, RESTYPES

# Å; two chains clash if more than this number or share of their atoms are closer
_CLASH_DISTANCE = 1.1
_CLASHES, _CLASHING_SHARE = 100, 0.5


def clash(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return whether two chains have many atoms within 1.1 Å, a bool scalar; positions are [n, 3], Å."""
    clashes = (torch.cdist(first, second) < _CLASH_DISTANCE).sum()
    return clashes > min(_CLASHES, _CLASHING_SHARE * min(len(first), len(second)))


def chains_clash(chains: Sequence[torch.Tensor]) -> bool:
    """Return True if two chains clash, given the positions of each, [n, 3] in Å."""
    boxes = [(atoms.amin(0), atoms.amax(0)) for atoms in chains]
    for a, b in combinations(range(len(chains)), 2):
        (low, high), (other_low, other_high) = boxes[a], boxes[b]
        if bool((torch.maximum(low, other_low) - torch.minimum(high, other_high) > _CLASH_DISTANCE).any()):
            continue
        if bool(clash(chains[a], chains[b])):
            return True
    return False


def structure_flags(structure: Structure, positions: np.ndarray) -> dict[str, Any]:
    """Return `has_clash` and `fraction_disordered` of the proteins; positions are float32 [A, 3], Å."""
    import gemmi  # networks start without it

    kinds = [structure.kind(index) == EntityKind.PROTEIN for index in range(len(structure.chains))]
    atoms = np.flatnonzero(np.array(kinds)[structure.atom_chain])
    residue, chain = structure.atom_residue[atoms], structure.atom_chain[atoms]
    types = np.array([_RESTYPE_INDEX.get(str(code), -1) for code in structure.residue_code])[residue]
    letters = [RESTYPES[kind] if kind >= 0 else "" for kind in types]
    elements = [gemmi.Element(str(name)).atomic_number for name in structure.atom_element[atoms]]
    names = structure.atom_name[atoms].tolist()
    radii = np.array(list(map(van_der_waals_radius, elements, names, letters)), np.float32)
    points = positions[atoms].astype(np.float32)
    share = exposed_share(points, radii, chain, structure.residue_number[residue], largest_area(types))
    by_chain = [torch.from_numpy(points[chain == number]) for number in np.unique(chain)]
    return {"has_clash": chains_clash(by_chain), "fraction_disordered": round(share, 4)}


_RESTYPE_INDEX = {name: index for index, name in enumerate(RESTYPE_NAMES[: len(RESTYPES)])}
