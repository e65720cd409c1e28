"""Tests of the comparison of backbones before and after relaxation."""

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

from model.relax.geometry import BackboneGeometry, backbone_geometry


@pytest.fixture
def chain(root: Path) -> list[gemmi.Residue]:
    """Return the residues of a crystal structure, without hydrogens."""
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1gbt.cif.gz"))
    structure.setup_entities()
    return [residue.clone() for residue in structure[0][0].get_polymer()]


def atom(residue: gemmi.Residue, name: str) -> gemmi.Atom:
    return residue.find_atom(name, "*")


def turn(residues: list[gemmi.Residue], origin: np.ndarray, axis: np.ndarray, degrees: float) -> None:
    """Rotate residues about an axis through a point."""
    axis = axis / np.linalg.norm(axis)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    angle = np.radians(degrees)
    rotation = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    for residue in residues:
        for each in residue:
            position = origin + rotation @ (np.array(each.pos.tolist()) - origin)
            each.pos = gemmi.Position(*position)


def test_crystal_structure_is_regular(chain: list[gemmi.Residue]) -> None:
    geometry = backbone_geometry([chain])
    assert replace(geometry, longest_bond=0.0) == BackboneGeometry(0, 0, 0, 0, 0.0)
    assert geometry.longest_bond == pytest.approx(1.36, abs=0.03)
    assert geometry.worse_than(geometry) == []


@pytest.mark.parametrize(("degrees", "twisted"), [(20, 0), (45, 1), (135, 1), (180, 0)])
def test_twisted_peptides_are_counted(chain: list[gemmi.Residue], degrees: float, twisted: int) -> None:
    before = backbone_geometry([chain])
    carbon, nitrogen = (np.array(atom(chain[k], n).pos.tolist()) for k, n in ((50, "C"), (51, "N")))
    turn(chain[51:], carbon, nitrogen - carbon, degrees)
    after = backbone_geometry([chain])
    assert after.twisted == twisted
    assert ("twisted peptides 0 to 1" in after.worse_than(before)) == bool(twisted)
    # phi and psi do not change
    assert (after.bonds, after.mirrored, after.phi_psi) == (0, 0, 0)


def test_stretched_bonds_are_counted(chain: list[gemmi.Residue]) -> None:
    before = backbone_geometry([chain])
    carbon, nitrogen = (np.array(atom(chain[k], n).pos.tolist()) for k, n in ((50, "C"), (51, "N")))
    shift = 0.1 * (nitrogen - carbon) / np.linalg.norm(nitrogen - carbon)
    for residue in chain[51:]:
        for each in residue:
            each.pos = gemmi.Position(*(np.array(each.pos.tolist()) + shift))
    after = backbone_geometry([chain])
    assert (after.bonds, after.twisted) == (1, 0)
    assert after.longest_bond == pytest.approx(np.linalg.norm(nitrogen - carbon) + 0.1, abs=1e-3)
    assert after.worse_than(before) == ["stretched peptides 0 to 1"]


def test_mirrored_residues_and_unusual_angles_are_counted(chain: list[gemmi.Residue]) -> None:
    for residue in chain:
        for each in residue:
            each.pos = gemmi.Position(-each.pos.x, each.pos.y, each.pos.z)
    geometry = backbone_geometry([chain])
    assert geometry.mirrored == sum(residue.name != "GLY" for residue in chain)
    assert geometry.phi_psi > 0.4 * len(chain)
    assert (geometry.twisted, geometry.bonds) == (0, 0)


def test_ends_of_chains_are_not_bonded(chain: list[gemmi.Residue]) -> None:
    assert backbone_geometry([chain[:50], chain[60:]]).bonds == 0
    assert backbone_geometry([chain[:50] + chain[60:]]).bonds == 1
