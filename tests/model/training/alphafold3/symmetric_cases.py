"""Crops of complexes with copies and symmetric ligands, on which OpenFold3's assignment was recorded.

They are made by NumPy alone, from fixed seeds.
"""

from dataclasses import dataclass

import numpy as np

CASES = 48
# alanine: N, CA, C, O, CB
RESIDUE_ATOMS = 5
# the symmetries of a ring of six atoms with one substituent: none, and its reflection
REFLECTED = np.array([[0, 1, 2, 3, 4, 5, 6], [0, 5, 4, 3, 2, 1, 6]])
# those of a ring alone
RING = np.array([[(sign * i + shift) % 6 for i in range(6)] for shift in range(6) for sign in (1, -1)])


@dataclass(frozen=True)
class Table:
    """Tokens and atoms of a structure; see `model.training.alphafold3.permutation.Molecules`."""

    entity: np.ndarray
    copy: np.ndarray
    index: np.ndarray
    component: np.ndarray
    is_ligand: np.ndarray
    counts: np.ndarray
    positions: np.ndarray
    resolved: np.ndarray

    def select(self, tokens: np.ndarray) -> "Table":
        """Return the table of some tokens."""
        atoms = np.isin(np.repeat(np.arange(len(self.entity)), self.counts), tokens)
        columns = (self.entity, self.copy, self.index, self.component, self.is_ligand, self.counts)
        return Table(*(x[tokens] for x in columns), self.positions[atoms], self.resolved[atoms])


@dataclass(frozen=True)
class SymmetricCase:
    """One complex.

    Args:
        experiment: all copies.
        crop: the tokens of the crop, without symmetric order.
        symmetries: orders of the atoms of each residue of the crop by entity, copy and component.
        predicted: [A, 3], a predicted structure of the crop.
    """

    experiment: Table
    crop: Table
    symmetries: dict[tuple[int, int, int], np.ndarray]
    predicted: np.ndarray


def rotation(generator: np.random.Generator) -> np.ndarray:
    """Draw a proper rotation."""
    matrix, _ = np.linalg.qr(generator.standard_normal((3, 3)))
    return matrix * np.linalg.det(matrix)


def make_case(seed: int, all_copies: bool = False) -> SymmetricCase:
    """Draw a complex, a crop of it, and a prediction in which copies have exchanged their places.

    Args:
        seed: seed of all draws.
        all_copies: whether the crop contains all copies.
    """
    generator = np.random.default_rng(seed)
    kinds = [("protein", int(generator.integers(8, 16))) for _ in range(generator.integers(1, 3))]
    kinds += [("ring", 6), ("reflected", 7)][: generator.integers(0, 3)]
    copies = [int(generator.integers(1, 4)) for _ in kinds]
    experiment = _experiment(generator, kinds, copies)
    kept = []
    for entity, (kind, length) in enumerate(kinds, 1):
        in_crop = generator.permutation(np.arange(1, copies[entity - 1] + 1))
        count = len(in_crop) if all_copies else generator.integers(1, len(in_crop) + 1)
        for copy in sorted(in_crop[:count]):
            first, last = 0, length
            if kind == "protein":
                first = int(generator.integers(0, length - 6))
                last = int(generator.integers(first + 6, length + 1))
            member = (experiment.entity == entity) & (experiment.copy == copy)
            kept.append(np.flatnonzero(member & (experiment.index >= first) & (experiment.index < last)))
    crop = experiment.select(np.sort(np.concatenate(kept)))
    predicted = _prediction(generator, experiment, crop)
    return SymmetricCase(experiment, crop, _symmetries(crop, kinds), predicted)


def _experiment(generator: np.random.Generator, kinds: list[tuple[str, int]], copies: list[int]) -> Table:
    """Place the copies of each kind at random."""
    columns: list[list[np.ndarray]] = [[] for _ in range(8)]
    for entity, ((kind, length), count) in enumerate(zip(kinds, copies, strict=True), 1):
        protein = kind == "protein"
        atoms = length * RESIDUE_ATOMS if protein else length
        shape = 1.5 * generator.standard_normal((atoms, 3)).cumsum(axis=0)
        if not protein:
            angles = np.arange(6) * np.pi / 3
            ring = 1.4 * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=-1)
            shape = np.concatenate([ring, [[2.9, 0, 0.0]]])[:length]
        for copy in range(1, count + 1):
            place = shape @ rotation(generator).T + 12 * generator.standard_normal(3)
            resolved = generator.random(atoms) < (1.0 if generator.random() < 0.5 else 0.8)
            if generator.random() < 0.1:
                resolved[:] = False
            rows = (
                np.full(length, entity),
                np.full(length, copy),
                np.arange(length),
                np.arange(length) if protein else np.zeros(length, int),
                np.full(length, not protein),
                np.full(length, RESIDUE_ATOMS if protein else 1),
                place,
                resolved,
            )
            for column, row in zip(columns, rows, strict=True):
                column.append(row)
    return Table(*(np.concatenate(column) for column in columns))


def _prediction(generator: np.random.Generator, experiment: Table, crop: Table) -> np.ndarray:
    """Put each molecule of the crop at the place of another copy, with errors, and move the whole."""
    token = np.repeat(np.arange(len(experiment.entity)), experiment.counts)
    places = []
    for entity in np.unique(crop.entity):
        free = generator.permutation(np.unique(experiment.copy[experiment.entity == entity]))
        for copy, other in zip(np.unique(crop.copy[crop.entity == entity]), free, strict=False):
            index = crop.index[(crop.entity == entity) & (crop.copy == copy)]
            tokens = (experiment.entity == entity) & (experiment.copy == other)
            place = experiment.positions[(tokens & np.isin(experiment.index, index))[token]]
            if crop.is_ligand[crop.entity == entity].all():
                orders = RING if len(place) == 6 else REFLECTED
                place = place[orders[generator.integers(len(orders))]]
            places.append(place)
    positions = np.concatenate(places)
    positions = positions + 0.3 * generator.standard_normal(positions.shape)
    return positions @ rotation(generator).T + 30 * generator.standard_normal(3)


def _symmetries(crop: Table, kinds: list[tuple[str, int]]) -> dict[tuple[int, int, int], np.ndarray]:
    """Return the orders of the atoms of each ligand of the crop."""
    keys = set(zip(crop.entity.tolist(), crop.copy.tolist(), crop.component.tolist(), strict=True))
    orders = {"ring": RING, "reflected": REFLECTED}
    return {key: orders[kinds[key[0] - 1][0]] for key in sorted(keys) if kinds[key[0] - 1][0] in orders}
