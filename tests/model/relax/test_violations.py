"""Tests of the violations of structures, compared with those of the training loss."""

from pathlib import Path

import gemmi
import numpy as np
import pytest
import torch

from model import residue_constants
from model.relax.violations import find_violations
from model.residue_tables import residue_rows
from model.training.alphafold2.violations import between_residue_clashes, peptide_bond_violations
from msa.base.residues import ATOM14_NAMES, RESTYPE_NAMES


def fragment(root: Path, first: int = 20, count: int = 25) -> list[gemmi.Residue]:
    """Return consecutive residues of a real chain, without hydrogens."""
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1gbt.cif.gz"))
    structure.remove_alternative_conformations()
    structure.remove_hydrogens()
    structure.setup_entities()
    return [residue.clone() for residue in structure[0][0].get_polymer()][first : first + count]


def atom14(residues: list[gemmi.Residue]) -> tuple[torch.Tensor, torch.Tensor]:
    aatype = [RESTYPE_NAMES.index(residue.name) for residue in residues]
    positions = np.zeros((len(residues), 14, 3), np.float32)
    for k, residue in enumerate(residues):
        names = ATOM14_NAMES[residue.name]
        for atom in residue:
            if atom.name in names:
                positions[k, names.index(atom.name)] = atom.pos.tolist()
    return torch.from_numpy(positions)[None], torch.tensor(aatype)[None]


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
def test_counts_match_the_training_loss(root: Path, noise: float) -> None:
    residues = fragment(root)
    rng = np.random.default_rng(0)
    for residue in residues:
        for atom in residue:
            atom.pos = gemmi.Position(*(np.array(atom.pos.tolist()) + rng.normal(0, noise, 3)))
    found = find_violations([residues])
    positions, aatype = atom14(residues)
    ones = torch.ones(aatype.shape)
    exists = residue_rows(residue_constants.atom14_mask, aatype)
    radii = residue_rows(residue_constants.vdw_radii, aatype)
    _, violated = peptide_bond_violations(positions, aatype, exists, ones)
    _, clashes = between_residue_clashes(positions, exists, radii, ones)
    assert found.clashes == int(clashes.item())
    assert (found.bonds + found.angles > 0) == bool(violated.any())
    if noise == 0.0:
        assert found.total == 0
        assert found.residues == frozenset()
    else:
        assert found.total > 0
        violating = {k for k in range(len(residues) - 1) if violated[0, k]}
        assert violating <= found.residues


def test_clash_names_both_residues(root: Path) -> None:
    residues = fragment(root)
    residues[15].find_atom("CB", "*").pos = residues[3].find_atom("CA", "*").pos
    found = find_violations([residues])
    assert found.clashes > 0
    assert {3, 15} <= found.residues


def test_residues_of_different_chains_are_not_bonded(root: Path) -> None:
    residues = fragment(root)
    separate = find_violations([residues[:10], residues[12:]])
    assert separate.bonds == 0
    together = find_violations([[*residues[:10], *residues[12:]]])
    assert together.bonds == 1
    assert {9, 10} <= together.residues
