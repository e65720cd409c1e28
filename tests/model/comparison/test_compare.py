"""Tests of `model.comparison.compare` and the pairs of residues and chains that it finds."""

from itertools import pairwise

import numpy as np
import pytest

from model.comparison.chains import ComparedChain, ComparedMolecules, align, map_chains
from model.comparison.compare import compare
from model.comparison.scores import tm_score


def chain(name: str, letters: str, positions: np.ndarray, numbers: list[int] | None = None) -> ComparedChain:
    """Return a chain of CA atoms, which is broken where numbers are left out."""
    numbers = list(range(len(letters))) if numbers is None else numbers
    residues = [{"CA": xyz} for xyz in positions]
    return ComparedChain(name, "CA", list(letters), [b - a > 1 for a, b in pairwise(numbers)], residues)


@pytest.fixture
def walk() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 2.2, (40, 3)).cumsum(0)


def test_gaps_are_where_the_chain_is_broken(walk: np.ndarray) -> None:
    letters = "MKVLSGSGSGSGAAWLLKR"
    whole = chain("A", letters, walk[: len(letters)])
    kept = [k for k in range(len(letters)) if k not in (6, 7, 8, 9)]
    broken = chain("A", "".join(letters[k] for k in kept), walk[kept], kept)
    expected = [[k, i] for i, k in enumerate(kept)]
    assert np.array_equal(align(whole, broken), expected)
    assert np.array_equal(align(broken, whole), np.flip(expected, 1))
    assert align(whole, chain("A", "WYFHQDE" * 3, walk[:21])) is None


def test_equal_chains_are_mapped_by_superposition(walk: np.ndarray) -> None:
    letters = "MKVLSGSGSGSGAAWLLKRMKVLSGHIKPPTWLLKREDNQ"
    turns = [np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]) for a in (0, 2, 4)]
    copies = [np.add(walk, [25, 0, 0]) @ turn for turn in turns]
    reference = [chain(name, letters, xyz) for name, xyz in zip("ABC", copies, strict=True)]
    rng = np.random.default_rng(1)
    moved = [copies[k] @ turns[1] + rng.normal(0, 0.3, (40, 3)) for k in (2, 0, 1)]
    model = [chain(name, letters, xyz) for name, xyz in zip("XYZ", moved, strict=True)]
    (best, *_) = map_chains(model, reference)
    assert [(pair.reference.name, pair.model.name) for pair in best] == [("A", "Y"), ("B", "Z"), ("C", "X")]
    result = compare(ComparedMolecules(model), ComparedMolecules(reference))
    assert result is not None and result.scores["rmsd"] < 0.6


def test_tm_score_of_nucleic_acids_has_their_scale() -> None:
    reference = np.random.default_rng(0).normal(0, 10, (60, 3))
    model = reference + [[0, 0, 1], [0, 0, -1]] * 30
    # all atoms are 1 Å away: 1 / (1 + 1 / d0²), with d0 = 0.6 √(L − 1/2) − 2.5
    d0 = 0.6 * 59.5**0.5 - 2.5
    assert tm_score(model, reference, 60, is_nucleic=True) == pytest.approx(1 / (1 + 1 / d0**2), abs=0.02)
