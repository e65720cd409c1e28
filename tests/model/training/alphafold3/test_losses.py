"""Tests of the all-atom losses against those of OpenFold3, and of laws that hold for any structure."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda.fused.smooth_lddt.reference import LIMITS
from model.layers.rigid import rotation_from_quaternion
from model.training.alphafold3 import head_losses
from model.training.alphafold3.alignment import align
from model.training.alphafold3.denoising_losses import bond_loss, position_loss, smooth_lddt_loss
from model.training.alphafold3.head_losses import aligned_errors, atom_lddt
from model.training.alphafold3.losses import AllAtomLossWeights, total_loss
from tests.model.training.alphafold3.cases import Case, cases, make_case, read_features, resize, resize_array
from tests.model.training.alphafold3.loss_cases import SIGMA_DATA, WEIGHTS, Batch, load

RECORDED = json.loads((Path(__file__).parent / "data" / "losses.json").read_text())
COPY_LOSSES = {"position": position_loss, "bond": bond_loss, "smooth_lddt": smooth_lddt_loss}
# relative bounds in each dtype
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-6}


@cache
def batch(name: str, dtype: torch.dtype = torch.float64) -> Batch:
    """Return a case as tensors."""
    return load(cases()[name], dtype)


def small_batch(seed: int, tokens: int = 13) -> Batch:
    """Return a batch of the first tokens."""
    features = read_features()
    return load(make_case(resize(features, tokens, int(features["start_atom_index"][tokens])), seed))


def losses_of(x: Batch, weights: AllAtomLossWeights = WEIGHTS) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the total loss and its terms."""
    total, terms = total_loss(x.output, x.inputs, x.targets, weights, SIGMA_DATA)
    return total, {name: term.item() for name, term in terms.items()}


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", RECORDED)
def test_losses_and_gradients_match_openfold3(name: str, dtype: torch.dtype) -> None:
    x, expected = load(cases()[name], dtype), RECORDED[name]
    total, terms = losses_of(x)
    total.backward()
    found = {"total": total.item()} | terms
    leaves = {"denoised": x.output.denoised, "distogram": x.output.distogram}
    leaves |= {name: getattr(x.output.confidence, name) for name in ("plddt", "resolved", "pae", "pde")}
    found |= {f"gradient/{name}": leaf.grad.norm().item() for name, leaf in leaves.items()}
    for name, loss in COPY_LOSSES.items():
        found[f"copies/{name}"] = loss(x.output.denoised, x.inputs, x.targets).tolist()
    assert x.output.positions.grad is None
    assert found == {name: pytest.approx(value, rel=BOUNDS[dtype]) for name, value in expected.items()}


@pytest.mark.parametrize("name", AllAtomLossWeights.__dataclass_fields__)
def test_a_loss_alone_is_its_weight_times_its_term(name: str) -> None:
    x = batch("plain")
    none = AllAtomLossWeights(**dict.fromkeys(AllAtomLossWeights.__dataclass_fields__, 0.0))
    total, terms = losses_of(x, replace(none, **{name: 2.0}))
    assert terms.keys() == {name}
    if name in ("position", "bond"):
        copies = COPY_LOSSES[name](x.output.denoised, x.inputs, x.targets)
        sigma = x.output.sigmas
        expected = (copies * (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2).mean().item()
    else:
        expected = terms[name]
    assert total.item() == pytest.approx(2 * expected)
    assert losses_of(x, none)[0].item() == 0


@pytest.mark.parametrize("name", COPY_LOSSES)
def test_derivatives_of_denoising_losses(name: str) -> None:
    x = small_batch(7)
    if name == "bond":
        # a ligand that is bonded to the second residue
        is_ligand = torch.arange(13) == 12
        bonds = torch.zeros(13, 13, dtype=torch.float64)
        bonds[1, 12] = bonds[12, 1] = 1
        x = x._replace(
            inputs=replace(
                x.inputs, is_ligand=is_ligand, is_protein=x.inputs.is_protein & ~is_ligand, token_bonds=bonds
            )
        )
    loss = partial(COPY_LOSSES[name], inputs=x.inputs, targets=x.targets)
    assert bool(loss(x.output.denoised).all())
    assert torch.autograd.gradcheck(loss, x.output.denoised, atol=1e-6)


@pytest.mark.parametrize("name", ["distogram", "plddt", "pae", "pde", "resolved"])
def test_derivatives_of_head_losses(name: str) -> None:
    x = small_batch(8, tokens=3)
    heads = {"distogram": x.output.distogram} | vars(x.output.confidence)
    function: Callable = getattr(head_losses, f"{name}_loss")
    structure = () if name in ("distogram", "resolved") else (x.output.positions,)
    arguments = (*structure, x.inputs, x.targets)
    assert torch.autograd.gradcheck(lambda logits: function(logits, *arguments), heads[name])


def random_motion(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a proper rotation [3, 3] and a translation [3] of some hundred Å."""
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    translation = 100 * torch.randn(3, generator=generator, dtype=torch.float64)
    return rotation * torch.linalg.det(rotation), translation


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(["plain", "unresolved", "prime", "long_tails"]))
def test_rigid_motion_changes_no_loss(seed: int, name: str) -> None:
    x = batch(name)
    rotation, translation = random_motion(seed)
    moved = replace(
        x.output,
        denoised=x.output.denoised @ rotation + translation,
        positions=x.output.positions @ rotation + translation,
    )
    expected = losses_of(x)[1]
    assert losses_of(x._replace(output=moved))[1] == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("name", ["plain", "unresolved", "prime"])
def test_the_true_structure_has_no_error(name: str) -> None:
    x = batch(name)
    rotation, translation = random_motion(3)
    truth = (x.targets.positions @ rotation + translation)[None]
    assert position_loss(truth, x.inputs, x.targets).item() < 1e-18
    assert bond_loss(truth, x.inputs, x.targets).item() < 1e-18
    # even without error, the sigmoid of 0.5 Å is not 1
    best = sum(torch.sigmoid(torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64))) / 4
    assert smooth_lddt_loss(truth, x.inputs, x.targets).item() == pytest.approx(1 - best.item())
    lddt = atom_lddt(truth[0], x.inputs, x.targets)[x.targets.resolved.bool()]
    assert set(lddt.round(decimals=6).tolist()) <= {0.0, 1.0}  # 0 where no other atom is near
    errors, known = aligned_errors(truth[0], x.inputs, x.targets)
    assert bool(known.any())
    assert float(errors[known].max()) < 1e-3


def test_the_mirror_image_has_errors() -> None:
    x = batch("plain")
    mirrored = x.targets.positions * torch.tensor([1.0, 1.0, -1.0])
    assert position_loss(mirrored[None], x.inputs, x.targets).item() > 1
    errors, known = aligned_errors(mirrored, x.inputs, x.targets)
    assert float(errors[known].mean()) > 1


@pytest.mark.parametrize("name", ["unresolved", "chain_missing"])
def test_atoms_that_are_not_resolved_have_no_effect(name: str) -> None:
    x = batch(name)
    junk = torch.where(x.targets.resolved.bool()[:, None], x.targets.positions, 1e3)
    total, terms = losses_of(x)
    other, other_terms = losses_of(x._replace(targets=replace(x.targets, positions=junk)))
    assert other.item() == pytest.approx(total.item(), rel=1e-9)
    assert other_terms == pytest.approx(terms, rel=1e-9)


def test_without_resolved_atoms_losses_are_finite_and_have_finite_gradients() -> None:
    x = load(make_case(read_features(), 9, resolved=0 * read_features()["atom_mask"]))
    total, terms = losses_of(x)
    total.backward()
    assert {name for name, value in terms.items() if value} == {"smooth_lddt", "resolved"}
    assert bool(x.output.denoised.grad.isfinite().all())


def test_padding_changes_nothing() -> None:
    case = cases()["unresolved"]
    tokens, atoms = len(case.features["token_mask"]), len(case.features["atom_mask"])
    sizes = {tokens: tokens + 3, atoms: atoms + 40}

    def pad(x: np.ndarray) -> np.ndarray:
        # the last axis is one of bins or of coordinates
        last = x.shape[-1:] if x.ndim > 1 else ()
        leading = x.shape[: x.ndim - len(last)]
        return resize_array(x, [sizes.get(size, size) for size in leading] + list(last))

    padded = Case(
        resize(case.features, *sizes.values()),
        pad(case.positions),
        pad(case.resolved),
        {name: pad(x) for name, x in case.outputs.items()},
    )
    total, terms = losses_of(load(padded))
    expected, expected_terms = losses_of(load(case))
    assert terms == pytest.approx(expected_terms, rel=1e-9)
    assert total.item() == pytest.approx(expected.item(), rel=1e-9)


def test_alignment_is_the_best_of_many() -> None:
    generator = torch.Generator().manual_seed(1)
    mobile, target = torch.randn(2, 11, 3, generator=generator, dtype=torch.float64)
    weights = torch.rand(11, generator=generator, dtype=torch.float64)

    def error(moved: torch.Tensor) -> torch.Tensor:
        return ((moved - target).square().sum(dim=-1) * weights).sum(dim=-1)

    best = error(align(mobile, target, weights))
    quaternions = torch.randn(20000, 4, generator=generator, dtype=torch.float64)
    rotations = rotation_from_quaternion(quaternions / quaternions.norm(dim=-1, keepdim=True))
    moved = mobile @ rotations.transpose(-1, -2)
    total = weights.sum()
    centres = [(weights[:, None] * x).sum(dim=-2, keepdim=True) / total for x in (target, moved)]
    others = error(moved + centres[0] - centres[1])
    assert best <= others.min() <= 1.05 * best


def test_bins_of_lddt_scores_agree_with_a_loop() -> None:
    x = small_batch(10, tokens=7)
    score = atom_lddt(x.output.positions, x.inputs, x.targets)
    token = x.inputs.atom_to_token_index
    alpha = {int(start) + 1 for start in x.inputs.start_atom_index[~x.inputs.is_atomized]}
    for atom in range(len(token)):
        kept = counted = 0
        for other in alpha - {atom}:
            true, found = (
                (y[atom] - y[other]).norm().item() for y in (x.targets.positions, x.output.positions)
            )
            if true < 15:
                counted += 4
                kept += sum(abs(true - found) < limit for limit in LIMITS)
        assert float(score[atom]) == pytest.approx(kept / counted if counted else 0.0)
