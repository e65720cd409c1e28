"""The refinement of predicted structures."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model import residue_constants
from model.alphafold2.modules.structure_module import (
    atom14_to_atom37_positions,
    frames_to_atom14_positions,
    torsion_angles_to_frames,
)
from model.layers.rigid import Rigid, rotation_from_quaternion
from model.prediction import PassStructure, Prediction
from model.refinement import kernels
from model.refinement.kernels import CA, FREEDOMS, Terms, Weights
from model.refinement.refine import WEIGHTS, bonded_residues, make_terms, refine
from model.residue_tables import residue_rows
from model.training.alphafold2.violations import between_residue_clashes, peptide_bond_violations
from msa.base.residues import RESTYPES
from tests.predictions import protein_prediction

PROLINE = RESTYPES.index("P")


def make_prediction(
    seed: int,
    residues: int = 40,
    noise: float = 0.5,
    index: np.ndarray | None = None,
    asym_id: np.ndarray | None = None,
) -> Prediction:
    """Return random residues along a helix, each with ideal geometry inside, but shifted and turned."""
    random = np.random.default_rng(seed)
    aatype = random.integers(20, size=residues)
    aatype[:2] = PROLINE
    turn, rise, radius = np.deg2rad(100), 1.5, 2.3
    angle = turn * np.arange(residues)
    center = np.stack([radius * np.cos(angle), radius * np.sin(angle), rise * np.arange(residues)], axis=1)
    about_z = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], axis=1)
    quaternion = torch.from_numpy(about_z + 0.3 * noise * random.normal(size=(residues, 4)))
    rotation = rotation_from_quaternion(quaternion / quaternion.norm(dim=1, keepdim=True)).float()
    center = torch.from_numpy(center + noise * random.normal(size=center.shape)).float()
    codes = torch.from_numpy(aatype)
    angles = torch.from_numpy(random.uniform(-np.pi, np.pi, (residues, 7))).float()
    # proline's ring is closed at these angles only
    angles[codes == PROLINE, 3:5] = torch.tensor([0.48, -0.65])
    frames = torsion_angles_to_frames(
        codes, Rigid(rotation, center), torch.stack([angles.sin(), angles.cos()], dim=-1)
    )
    positions, mask = atom14_to_atom37_positions(codes, frames_to_atom14_positions(codes, frames))
    return protein_prediction(aatype, positions.numpy(), mask.numpy(), np.zeros(residues), index, asym_id)


def atoms14(prediction: Prediction) -> np.ndarray:
    """Return positions [N, 14, 3] float64."""
    atoms = np.zeros((len(prediction.aatype), 14, 3))
    slots = residue_constants.atom37_to_atom14()[prediction.aatype]
    rows, types = prediction.structure.atom_residue, prediction.structure.atom37
    atoms[rows, slots[rows, types]] = prediction.positions
    return atoms


def stereochemistry(prediction: Prediction) -> tuple[float, int]:
    """Return the share of violated peptide bonds, and the number of clashes, by the losses of training."""
    codes = torch.from_numpy(prediction.aatype)
    atoms = torch.from_numpy(atoms14(prediction)).float()[None]
    exists = residue_rows(residue_constants.atom14_mask, codes)[None]
    bonded = torch.from_numpy(bonded_residues(prediction.structure)).float()[None]
    _, violated = peptide_bond_violations(atoms, codes[None], exists, bonded)
    radii = residue_rows(residue_constants.vdw_radii, codes)[None]
    _, clashes = between_residue_clashes(atoms, exists, radii, bonded)
    return float(violated.mean()), int(clashes)


def distances_within(prediction: Prediction) -> list[np.ndarray]:
    """Return the distances of N, CA, C and CB within each residue, and those of proline's ring."""
    atoms = atoms14(prediction)
    lists = []
    for code, residue in zip(prediction.aatype, atoms, strict=True):
        fixed = [0, 1, 2, 4] if code != RESTYPES.index("G") else [0, 1, 2]
        points = residue[[0, 1, 2, 4, 5, 6]] if code == PROLINE else residue[fixed]
        lists.append(np.linalg.norm(points[:, None] - points[None], axis=-1))
    return lists


@pytest.mark.parametrize("seed", range(3))
def test_bonds_become_regular_and_clashes_disappear(seed: int) -> None:
    prediction = make_prediction(seed)
    before, after = stereochemistry(prediction), stereochemistry(refined := refine(prediction))
    assert before[0] > 0.5 and before[1] > 50
    assert after[0] == 0.0 and after[1] <= 3
    moved = np.linalg.norm(refined.atom_positions[:, 1] - prediction.atom_positions[:, 1], axis=-1)
    assert np.median(moved) < 3.0


def test_geometry_within_residues_does_not_change() -> None:
    prediction = make_prediction(3)
    for before, after in zip(distances_within(prediction), distances_within(refine(prediction)), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-4)


def test_result_is_the_same_again_and_the_input_is_kept() -> None:
    prediction = make_prediction(4)
    copy = prediction.positions.copy()
    first, second = refine(prediction), refine(prediction)
    assert np.array_equal(first.positions, second.positions)
    assert np.array_equal(prediction.positions, copy)
    assert first.positions.dtype == np.float32


def test_structures_after_passes_are_refined() -> None:
    prediction = make_prediction(4)
    passes = (PassStructure(prediction.positions + np.float32(0.1), prediction.plddt),)
    passes += (PassStructure(prediction.positions, prediction.plddt),)
    refined = refine(replace(prediction, passes=passes))
    assert np.array_equal(refined.passes[1].positions, refined.positions)
    assert not np.array_equal(refined.passes[0].positions, passes[0].positions)


def test_chains_and_gaps_are_not_joined() -> None:
    index = np.r_[np.arange(10), 20 + np.arange(10), np.arange(20)]
    chains = make_prediction(5, index=index, asym_id=np.repeat([1, 2], 20))
    assert np.flatnonzero(~bonded_residues(chains.structure)).tolist() == [0, 10, 20]
    # far apart, they stay there
    second = chains.structure.atom_residue >= 20
    refined = refine(replace(chains, positions=chains.positions + np.float32(50) * second[:, None]))
    moved = refined.atom_positions
    assert np.linalg.norm(moved[20, 1] - moved[19, 1]) > 40
    violated, clashes = stereochemistry(refined)
    assert violated == 0.0 and clashes <= 1


def test_cis_proline_stays_cis() -> None:
    prediction = replace(make_prediction(6, residues=2, noise=0.0))
    first, second = prediction.atom_positions[:, 1]
    closer = np.where(prediction.structure.atom_residue[:, None] == 1, (first - second) * (1 - 2.9 / 3.8), 0)
    result = refine(replace(prediction, positions=prediction.positions + closer)).atom_positions
    assert np.linalg.norm(result[1, 1] - result[0, 1]) == pytest.approx(2.95, abs=0.1)
    result = refine(prediction).atom_positions
    assert np.linalg.norm(result[1, 1] - result[0, 1]) == pytest.approx(3.8, abs=0.1)


@pytest.mark.parametrize("residues", [1, 3])
def test_unknown_residues_and_single_residues(residues: int) -> None:
    prediction = make_prediction(7, residues)
    prediction.aatype[-1] = residue_constants.UNKNOWN
    mask = np.zeros((residues, 37))
    mask[prediction.structure.atom_residue, prediction.structure.atom37] = 1
    mask[-1] = 0
    result = refine(protein_prediction(prediction.aatype, prediction.atom_positions, mask, prediction.plddt))
    assert np.isfinite(result.atom_positions).all() and not result.atom_positions[-1].any()


def energy(atoms: np.ndarray, terms: Terms, weights: Weights) -> float:
    """Return the energy of a structure, from its definition, without tricks."""
    total = 0.0
    for (i, a, j, b), (length, deviation) in zip(terms.bonds, terms.bond_lengths, strict=True):
        total += weights.bond * ((np.linalg.norm(atoms[i, a] - atoms[j, b]) - length) / deviation) ** 2
    for (i, j), length in zip(terms.near, terms.near_distances, strict=True):
        error = abs(np.linalg.norm(atoms[i, CA] - atoms[j, CA]) - length)
        total += weights.restraint * (0.5 * error**2 if error < 1 else error - 0.5)
    for i in range(len(atoms)):
        for j in range(i + 1, len(atoms)):
            for a in range(terms.num_atoms[i]):
                for b in range(terms.num_atoms[j]):
                    if j == i + 1 and terms.bonded[j] and (a, b) == (2, 0):
                        continue
                    if a == b == 5 and terms.is_cysteine[i] and terms.is_cysteine[j]:
                        continue
                    limit = terms.radius[i, a] + terms.radius[j, b] - weights.overlap
                    excess = max(0.0, limit - np.linalg.norm(atoms[i, a] - atoms[j, b]))
                    total += weights.clash * (excess**2 + weights.linear_clash * excess)
    return total


def test_derivatives_are_those_of_the_energy() -> None:
    prediction = make_prediction(8, residues=8)
    weights = WEIGHTS._replace(bond=0.3, restraint=2.0)
    terms = make_terms(atoms14(prediction), prediction.aatype, bonded_residues(prediction.structure))
    # not the structure that the restraints were made of
    atoms = atoms14(prediction) + 0.3 * np.random.default_rng(0).normal(size=(8, 1, 3))
    gradient, slope = np.zeros_like(atoms), np.zeros((8, FREEDOMS))
    pairs, count = kernels.close_pairs(atoms, terms, weights.overlap)
    kernels.add_bonds(atoms, terms, weights.bond, gradient)
    kernels.add_restraints(atoms, terms, weights.restraint, gradient)
    kernels.add_clashes(atoms, terms, pairs, count, weights, weights.clash, gradient)
    kernels.project(atoms, gradient, terms, slope)
    size = 1e-5
    for residue in (0, 3, 7):
        for freedom in range(FREEDOMS):
            energies = []
            for sign in (1, -1):
                moves, moved = np.zeros((8, FREEDOMS)), atoms.copy()
                moves[residue, freedom] = sign * size
                kernels.move(moved, moves, terms)
                energies.append(energy(moved, terms, weights))
            expected = (energies[0] - energies[1]) / (2 * size)
            assert slope[residue, freedom] == pytest.approx(expected, rel=1e-3, abs=0.05)
