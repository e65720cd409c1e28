"""Losses and targets equal those of DeepMind's code on recorded inputs; see record_losses.py."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model import residue_constants
from model.layers.rigid import Rigid
from model.residue_tables import residue_rows
from model.training.alphafold2.features import Targets, make_targets
from model.training.alphafold2.losses import (
    aligned_error_loss,
    backbone_fape,
    distance_loss,
    distogram_loss,
    experimentally_resolved_loss,
    lddt_ca,
    masked_msa_loss,
    predicted_lddt_loss,
    side_chain_fape,
    torsion_loss,
    use_alternative_names,
)
from model.training.alphafold2.structure import FoldedStructure
from model.training.alphafold2.violations import (
    NO_BOUND,
    between_residue_clashes,
    peptide_bond_violations,
    structural_violations,
    within_residue_bounds,
    within_residue_loss,
)
from model.training.runtime.execution import Execution
from msa.base.residues import RESTYPES

Arrays = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def recorded() -> Arrays:
    with np.load(Path(__file__).parents[1] / "data" / "deepmind_losses.npz") as archive:
        return {name: torch.from_numpy(archive[name]) for name in archive.files}


@pytest.fixture(scope="module")
def targets(recorded: Arrays) -> Targets:
    batch = {name: recorded[name] for name in ("aatype", "atom14", "atom_bits", "clamped", "true_msa")}
    ones = torch.ones(recorded["aatype"].shape)
    breaks = torch.zeros(ones.shape)
    full_atom = torch.ones(len(ones))
    extra = {
        "seq_mask": ones,
        "break_before": breaks,
        "full_atom": full_atom,
        "bert_mask": recorded["bert_mask"],
    }
    return make_targets(batch | extra)


@pytest.fixture(scope="module")
def structure(recorded: Arrays) -> FoldedStructure:
    return FoldedStructure(
        single=torch.zeros(0),
        backbone=Rigid(
            recorded["backbone_rotation"].transpose(0, 1), recorded["backbone_translation"].transpose(0, 1)
        ),
        sin_cos=recorded["sin_cos"].transpose(0, 1),
        unnormalised_sin_cos=recorded["unnormalised_sin_cos"].transpose(0, 1),
        frames=Rigid(recorded["frame_rotation"], recorded["frame_translation"]),
        atom14=recorded["predicted_atom14"],
    )


def assert_close(value: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert value.shape == expected.shape
    worst = float((value.double() - expected.double()).abs().max() / expected.double().abs().max())
    assert worst < tolerance, worst


def test_frames_equal_deepminds(recorded: Arrays, targets: Targets) -> None:
    assert torch.equal(targets.frames_mask, recorded["frames_mask"])
    exists = targets.frames_mask > 0
    for frames, name in ((targets.frames, "true_frames"), (targets.alternative_frames, "alternative_frames")):
        flat = torch.cat([frames.rotation.flatten(-2), frames.translation], dim=-1)
        assert_close(flat[exists], recorded[name][exists])


def test_chi_angles_equal_deepminds(recorded: Arrays, targets: Targets) -> None:
    assert torch.equal(targets.chi_mask, recorded["chi_mask"])
    exists = targets.chi_mask > 0
    assert_close(targets.chi_sin_cos[exists], recorded["chi_sin_cos"][exists])


def test_backbone_fape(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    assert sorted(targets.clamped.tolist()) == [0.0, 1.0]
    assert_close(backbone_fape(structure.backbone, targets), recorded["loss/backbone"])


def test_distance_loss_equals_a_sum_over_pairs(targets: Targets, structure: FoldedStructure) -> None:
    known = targets.backbone_mask.double().numpy()
    true = targets.backbone.translation.double().numpy()
    expected = np.zeros(len(true))
    for predicted in structure.backbone.translation.double().numpy():
        for sample, (points, true_points, mask) in enumerate(zip(predicted, true, known, strict=True)):
            errors = []
            for first in np.flatnonzero(mask):
                for second in np.flatnonzero(mask):
                    distance = np.linalg.norm(true_points[first] - true_points[second])
                    if distance < 22.0:
                        off = abs(np.linalg.norm(points[first] - points[second]) - distance)
                        errors.append(off * off / 4.0 if off < 2.0 else off - 1.0)
            expected[sample] += np.mean(errors) / 10.0
    expected /= len(structure.backbone.translation)
    assert_close(distance_loss(structure.backbone, targets), torch.from_numpy(expected), 1e-3)


def test_distance_loss_moves_residues_apart_that_are_all_in_one_point(targets: Targets) -> None:
    # not in exactly one point, where no direction is better than another
    generator = torch.Generator().manual_seed(0)
    shape = (1, *targets.backbone.translation.shape)
    points = (1e-3 * torch.randn(shape, generator=generator)).requires_grad_()
    rotation = targets.backbone.rotation[None]
    distance_loss(Rigid(rotation, points), targets).sum().backward()
    assert points.grad is not None and torch.isfinite(points.grad).all()
    moved = points.detach() - 100.0 * points.grad
    center = moved.mean(dim=2, keepdim=True)
    assert (moved - center).norm(dim=-1).mean() > 10 * points.detach().norm(dim=-1).mean()


def test_names_of_symmetric_atoms(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    exchanged = use_alternative_names(
        structure.atom14, targets.atom14, targets.alternative_atom14, targets.atom14_mask, targets.ambiguous
    )
    assert 0 < float(exchanged.sum()) < float(targets.ambiguous.amax(dim=-1).sum())
    assert torch.equal(exchanged, recorded["renamed"])


def test_side_chain_fape(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    assert_close(side_chain_fape(structure, targets, Execution()), recorded["loss/side_chain"])


def test_torsion_loss(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    assert_close(torsion_loss(structure, targets), recorded["loss/torsion"])


def test_distogram_loss(recorded: Arrays, targets: Targets) -> None:
    value = distogram_loss(recorded["logits/distogram"].float(), targets.beta, targets.beta_mask)
    assert_close(value, recorded["loss/distogram"])


def test_aligned_error_loss(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    logits = recorded["logits/predicted_aligned_error"].float()
    value = aligned_error_loss(logits, structure.backbone[-1], targets)
    assert_close(value, recorded["loss/predicted_aligned_error"])


def test_lddt(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    mask = targets.atom14_mask[:, :, 1]
    value = lddt_ca(structure.atom14[:, :, 1], targets.atom14[:, :, 1], mask)
    known = mask > 0
    assert_close(value[known], recorded["lddt_ca"][known])


def test_predicted_lddt_loss(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    value = predicted_lddt_loss(recorded["logits/predicted_lddt"].float(), structure.atom14, targets)
    assert_close(value, recorded["loss/predicted_lddt"])


def test_experimentally_resolved_loss(recorded: Arrays, targets: Targets) -> None:
    logits = recorded["logits/experimentally_resolved"].float()
    assert_close(experimentally_resolved_loss(logits, targets), recorded["loss/experimentally_resolved"])
    backbone_only = replace(targets, full_atom=torch.zeros(len(logits)))
    assert not experimentally_resolved_loss(logits, backbone_only).any()


def test_masked_msa_loss(recorded: Arrays, targets: Targets) -> None:
    value = masked_msa_loss(recorded["logits/masked_msa"].float(), targets.true_msa, targets.bert_mask)
    assert_close(value, recorded["loss/masked_msa"])


def test_bond_and_clash_losses(recorded: Arrays, targets: Targets, structure: FoldedStructure) -> None:
    exists = residue_rows(residue_constants.atom14_mask, targets.aatype)
    bonds, violated = peptide_bond_violations(structure.atom14, targets.aatype, exists, targets.bonded)
    assert_close(bonds, recorded["loss/bonds"])
    assert violated.any()
    radii = residue_rows(residue_constants.vdw_radii, targets.aatype)
    clashes, count = between_residue_clashes(structure.atom14, exists, radii, targets.bonded)
    assert_close(clashes, recorded["loss/clashes"])
    assert (count > 0).all()


def test_loss_of_distances_within_residues(
    recorded: Arrays, targets: Targets, structure: FoldedStructure
) -> None:
    exists = residue_rows(residue_constants.atom14_mask, targets.aatype)
    value = within_residue_loss(structure.atom14, exists, recorded["lower_bound"], recorded["upper_bound"])
    assert_close(value, recorded["loss/within"])


def test_bounds_of_distances_that_ideal_geometry_does_not_fix_equal_deepminds(recorded: Arrays) -> None:
    aatype = recorded["aatype"].long()
    lower, upper = residue_rows(within_residue_bounds, aatype).unbind(dim=2)
    exists = residue_rows(residue_constants.atom14_mask, aatype)
    # atoms that are at least three bonds apart, except in proline, whose ring DeepMind bounds in full
    far = (lower > 0) & (exists[..., :, None] * exists[..., None, :] > 0) & (upper == NO_BOUND)
    far &= (recorded["upper_bound"] > 100.0) & (aatype != RESTYPES.index("P"))[..., None, None]
    assert far.any()
    assert torch.allclose(lower[far], recorded["lower_bound"][far], atol=1e-5)


def test_violations_vanish_for_experimental_structures(targets: Targets) -> None:
    # without the residues that lack atoms
    atom14, aatype, seq_mask, bonded = (
        x[:, 8:] for x in (targets.atom14, targets.aatype, targets.seq_mask, targets.bonded)
    )
    assert float(structural_violations(atom14, aatype, seq_mask, bonded).max()) < 0.02
    exists = residue_rows(residue_constants.atom14_mask, aatype) * seq_mask[..., None]
    assert bonded[:, 1:].all() and exists[:, :, :3].all()
    assert not peptide_bond_violations(atom14, aatype, exists, bonded)[1].any()
    radii = residue_rows(residue_constants.vdw_radii, aatype)
    assert not between_residue_clashes(atom14, exists, radii, bonded)[1].any()
