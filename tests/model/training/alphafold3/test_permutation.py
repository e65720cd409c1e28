"""Tests of the choice among equivalent experimental structures, against OpenFold3 and brute force."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from model.training.alphafold3.alignment import align
from model.training.alphafold3.permutation import Crop, Experiment, Molecules, best_targets, matching_atoms
from tests.model.training.alphafold3.symmetric_cases import (
    CASES,
    REFLECTED,
    RESIDUE_ATOMS,
    RING,
    SymmetricCase,
    Table,
    make_case,
    rotation,
)

RECORDED = json.loads((Path(__file__).parent / "data" / "permutation.json").read_text())


def molecules(table: Table) -> Molecules:
    """Return the molecules of a table; the centre of alanine is its second atom."""
    starts = np.cumsum(table.counts) - table.counts
    columns = (table.entity, table.copy, table.index, table.component, table.is_ligand)
    tokens = np.repeat(np.arange(len(starts)), table.counts)
    return Molecules(*map(torch.as_tensor, (*columns, starts + (table.counts > 1), tokens)))


def load(case: SymmetricCase) -> tuple[Crop, Experiment, torch.Tensor]:
    """Return a case as tensors."""
    truth = case.experiment
    return (
        Crop(molecules(case.crop), {key: torch.as_tensor(x) for key, x in case.symmetries.items()}),
        Experiment(molecules(truth), torch.as_tensor(truth.positions), torch.as_tensor(truth.resolved)),
        torch.as_tensor(case.predicted),
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_assignment_is_that_of_openfold3(seed: int) -> None:
    crop, experiment, predicted = load(make_case(seed))
    found, expected = matching_atoms(crop, experiment, predicted), torch.tensor(RECORDED[str(seed)])
    # molecules without a resolved token fit all copies equally
    different = found != expected
    assert not bool((experiment.resolved[found] | experiment.resolved[expected])[different].any())


def error_of(crop: Crop, experiment: Experiment, predicted: torch.Tensor) -> float:
    """Return the root mean square deviation, Å, after the best assignment."""
    targets = best_targets(crop, experiment, predicted)
    weights = targets.resolved.to(predicted)
    squared = (align(predicted, targets.positions, weights) - targets.positions).square().sum(dim=-1)
    return float((squared * weights).sum() / weights.sum()) ** 0.5


@pytest.mark.parametrize("seed", range(24))
def test_exchanged_copies_are_found(seed: int) -> None:
    case = make_case(seed, all_copies=True)
    truth = replace(case.experiment, resolved=case.experiment.resolved | True)
    # the predictions have errors of 0.3 Å along each axis
    assert error_of(*load(replace(case, experiment=truth))) < 0.7


def homomer(seed: int, copies: int, length: int) -> tuple[Table, np.random.Generator]:
    """Return a complex of some copies of a protein, all resolved."""
    generator = np.random.default_rng(seed)
    atoms, count = length * RESIDUE_ATOMS, copies * length
    shape = 1.5 * generator.standard_normal((atoms, 3)).cumsum(axis=0)
    places = [shape @ rotation(generator).T + 25 * generator.standard_normal(3) for _ in range(copies)]
    table = Table(
        np.ones(count, int),
        np.repeat(np.arange(1, copies + 1), length),
        np.tile(np.arange(length), copies),
        np.tile(np.arange(length), copies),
        np.zeros(count, bool),
        np.full(count, RESIDUE_ATOMS),
        np.concatenate(places),
        np.ones(copies * atoms, bool),
    )
    return table, generator


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_assignment_of_copies_is_the_best_of_all(copies: int) -> None:
    length = 7
    table, generator = homomer(copies, copies, length)
    blocks = table.positions.reshape(copies, -1, 3)
    order = generator.permutation(copies)
    predicted = blocks[order].reshape(-1, 3) @ rotation(generator).T
    predicted = torch.as_tensor(predicted + 0.5 * generator.standard_normal(predicted.shape))
    weights = torch.ones(len(predicted), dtype=torch.float64)

    def error(candidate: tuple[int, ...]) -> float:
        true = torch.as_tensor(blocks[list(candidate)].reshape(-1, 3))
        return float((align(predicted, true, weights) - true).square().sum())

    best = min(permutations(range(copies)), key=error)
    experiment = Experiment(
        molecules(table), torch.as_tensor(table.positions), torch.as_tensor(table.resolved)
    )
    index = matching_atoms(Crop(molecules(table), {}), experiment, predicted)
    assert (index[:: length * RESIDUE_ATOMS] // (length * RESIDUE_ATOMS)).tolist() == list(best)


@pytest.mark.parametrize("orders", [RING, REFLECTED], ids=["ring", "reflected"])
def test_symmetric_atoms_are_matched_as_by_brute_force(orders: np.ndarray) -> None:
    table, generator = homomer(5, 1, 6)
    size = orders.shape[1]
    ring = generator.standard_normal((size, 3)) * 3 + table.positions[0]
    whole = Table(
        np.append(table.entity, np.full(size, 2)),
        np.append(table.copy, np.ones(size, int)),
        np.append(table.index, np.arange(size)),
        np.append(table.component, np.zeros(size, int)),
        np.append(table.is_ligand, np.ones(size, bool)),
        np.append(table.counts, np.ones(size, int)),
        np.concatenate([table.positions, ring]),
        np.append(table.resolved, generator.random(size) < 0.8),
    )
    start = len(table.positions)
    experiment = Experiment(
        molecules(whole), torch.as_tensor(whole.positions), torch.as_tensor(whole.resolved)
    )
    for _ in range(8):
        moved = whole.positions.copy()
        moved[start:] += 3 * generator.standard_normal((size, 3))
        predicted = torch.as_tensor(moved)  # aligned already
        crop = Crop(molecules(whole), {(2, 1, 0): torch.as_tensor(orders)})
        index = matching_atoms(crop, experiment, predicted)
        assert torch.equal(index[:start], torch.arange(start))
        centres = experiment.molecules.centre
        known = experiment.resolved[centres].double()
        aligned = align(predicted[centres], experiment.positions[centres], known)[-size:]

        def deviation(order: np.ndarray, aligned: torch.Tensor = aligned) -> float:
            chosen = start + torch.as_tensor(order)
            resolved = experiment.resolved[chosen]
            squared = (aligned - experiment.positions[chosen]).square().sum(dim=-1)
            return float(squared[resolved].mean())

        assert (index[start:] - start).tolist() == min(orders.tolist(), key=deviation)


def test_a_ligand_cut_by_the_crop_keeps_the_atoms_of_its_order() -> None:
    table, _ = homomer(6, 1, 6)
    size = 7
    whole = Table(
        np.append(table.entity, np.full(size, 2)),
        np.append(table.copy, np.ones(size, int)),
        np.append(table.index, np.arange(size)),
        np.append(table.component, np.zeros(size, int)),
        np.append(table.is_ligand, np.ones(size, bool)),
        np.append(table.counts, np.ones(size, int)),
        np.concatenate([table.positions, np.eye(3)[[0, 1, 2, 0, 1, 2, 0]] * np.arange(1, 8)[:, None]]),
        np.append(table.resolved, np.ones(size, bool)),
    )
    crop = whole.select(np.arange(6 + 3))  # three atoms of the ligand
    orders = REFLECTED[:, :3]
    truth = torch.as_tensor(whole.positions)
    experiment = Experiment(molecules(whole), truth, torch.as_tensor(whole.resolved))
    for order in orders.tolist():
        expected = [*range(30), *(30 + np.array(order))]
        index = matching_atoms(
            Crop(molecules(crop), {(2, 1, 0): torch.as_tensor(orders)}), experiment, truth[expected]
        )
        assert index.tolist() == expected


def test_nothing_resolved_gives_no_targets() -> None:
    case = make_case(0)
    truth = replace(case.experiment, resolved=case.experiment.resolved & False)
    targets = best_targets(*load(replace(case, experiment=truth)))
    assert not bool(targets.resolved.any())
    assert bool(targets.positions.isfinite().all())
