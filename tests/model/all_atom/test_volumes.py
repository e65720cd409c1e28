"""Overlaps of volumes, compared with RDKit's index of shapes and with distances."""

import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from rdkit import Chem
from rdkit.Chem.rdShapeHelpers import ShapeTverskyIndex

from foldcli.outputs.all_atom.restraints import build_restraints
from model.all_atom.checks import check_structure
from model.all_atom.volumes import overlap_share, volume_overlaps
from tests.molecules import molecules, reference_positions

PAIR = ">A|protein\nWKR\n>L|ccd\nIBP\n>M|ccd\nGOL\n>Z|ccd\nZN\n"


def molecule(elements: list[str], positions: np.ndarray) -> Chem.Mol:
    """Return atoms without bonds."""
    result = Chem.RWMol()
    for element in elements:
        result.AddAtom(Chem.Atom(element))
    conformer = Chem.Conformer(len(positions))
    conformer.SetPositions(np.ascontiguousarray(positions))
    result.AddConformer(conformer)
    return result.GetMol()


def placed(chain: int, distance: float) -> np.ndarray:
    """Return positions in which a chain's centre has a distance from that of the ligand L."""
    atoms, structure = molecules(PAIR)
    positions = reference_positions(atoms).astype(np.float64)
    own, other = structure.atom_chain == 1, structure.atom_chain == chain
    positions[other] += positions[own].mean(axis=0) - positions[other].mean(axis=0) + [distance, 0, 0]
    return positions


@pytest.mark.parametrize("distance", [0.0, 2.0, 4.0, 6.0])
def test_shares_are_those_of_rdkit(distance: float) -> None:
    structure = molecules(PAIR)[1]
    positions, table = placed(0, distance), Chem.GetPeriodicTable()
    elements = [str(element).capitalize() for element in structure.atom_element]
    radii = 0.8 * np.array([table.GetRvdw(element) for element in elements])
    own, other = (np.flatnonzero(structure.atom_chain == chain) for chain in (1, 0))
    # both place their grids differently
    shifts = np.random.default_rng(1).normal(size=(10, 3))
    pairs = [((positions + shift)[own], (positions + shift)[other]) for shift in shifts]
    ours = [overlap_share(first, radii[own], second, radii[other]) for first, second in pairs]
    theirs = [
        ShapeTverskyIndex(
            molecule([elements[row] for row in own], first),
            molecule([elements[row] for row in other], second),
            alpha=1, beta=0, vdwScale=0.8,
        )
        for first, second in pairs
    ]  # fmt: skip
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=4e-3)
    assert np.std(ours) < 0.01


@pytest.mark.parametrize(("chain", "name"), [(0, "A"), (2, "M"), (3, "Z")])
def test_overlaps_with_each_kind_of_neighbour(chain: int, name: str) -> None:
    atoms, structure = molecules(PAIR)
    restraints = build_restraints(atoms, structure)
    inside = check_structure(structure, placed(chain, 0.0), restraints)
    failures = [failure for failure in inside.failures if failure.check == "volume_overlap"]
    partners = {failure.atoms[1][0] for failure in failures if failure.atoms[0].startswith("L:")}
    assert partners == {name}
    for failure in failures:
        assert failure.value > failure.limit == 0.075 and len(failure.atoms) == 2
    beside = check_structure(structure, placed(chain, 12.0), restraints)
    labels = [failure.atoms for failure in beside.failures if failure.check == "volume_overlap"]
    assert not any(label[0].startswith("L:") for label in labels)


def test_a_covalent_ligand_does_not_overlap_with_what_it_is_bonded_to() -> None:
    from tests.molecules import GLYCAN

    atoms, structure = molecules(GLYCAN)
    positions = reference_positions(atoms).astype(np.float64)
    bonds = structure.bonds[:, :2]
    ((end, start),) = [
        sorted(bond, key=lambda row: structure.atom_chain[row])
        for bond in bonds.tolist()
        if structure.atom_chain[bond[0]] != structure.atom_chain[bond[1]]
    ]
    sugar = structure.atom_chain == 1
    outward = positions[end] - positions[~sugar].mean(axis=0)
    positions[sugar] += positions[end] - positions[start] + 1.4 * outward / np.linalg.norm(outward)
    radii = build_restraints(atoms, structure).van_der_waals
    bonded = list(volume_overlaps(structure, positions, radii))
    assert all(end not in pair for pair, _ in bonded)
