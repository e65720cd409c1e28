"""Tests of crops and labels on real complexes."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.alphafold3.inputs import InputSettings, build_sample
from features.assembly.atoms import build_atoms
from features.assembly.job import Bond, BondedAtom, Ligand, MoleculeJob, Polymer
from features.assembly.tokens import build_tokens
from features.chemistry.residue_classes import MoleculeKind
from features.training.crops import (
    INTERFACE_DISTANCE,
    CropKind,
    CropWeights,
    TokenCentres,
    choose_tokens,
    crop_features,
)
from features.training.experiment import ExperimentalComplex, read_complex
from features.training.labels import MoleculeTable, molecule_table

ENTRIES = Path(__file__).parents[1] / "templates" / "data"


@cache
def complex_of(name: str) -> ExperimentalComplex:
    """Read an entry."""
    return read_complex(ENTRIES / f"{name}.cif.gz")


def centres_of(name: str) -> TokenCentres:
    """Return the tokens of an entry in space."""
    complex_ = complex_of(name)
    tokens = build_tokens(complex_.atoms)
    centre = molecule_table(complex_.atoms, tokens).centre
    return TokenCentres(tokens.chain, complex_.positions[centre], complex_.resolved[centre])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 80), kind=st.sampled_from(CropKind))
def test_crops_have_their_size_and_repeat(seed: int, size: int, kind: CropKind) -> None:
    centres = centres_of("1lcd")
    chosen, again = (choose_tokens(centres, size, kind, np.random.default_rng(seed)) for _ in range(2))
    assert np.array_equal(chosen, again)
    assert (np.diff(chosen) > 0).all()
    assert len(chosen) == min(
        size, len(centres.chain) if kind == CropKind.CONTIGUOUS else centres.resolved.sum()
    )
    if kind == CropKind.CONTIGUOUS:
        for chain in np.unique(centres.chain[chosen]):
            assert (np.diff(chosen[centres.chain[chosen] == chain]) == 1).all()


def test_a_spatial_crop_is_a_ball() -> None:
    centres = centres_of("2xhe")
    chosen = choose_tokens(centres, 100, CropKind.SPATIAL, np.random.default_rng(1))
    assert centres.resolved[chosen].all()
    distances = np.linalg.norm(centres.positions[:, None] - centres.positions[chosen], axis=-1)
    # one of its tokens is closer to all of the crop than to any other
    inside = np.isin(np.arange(len(centres.chain)), chosen)
    outside = centres.resolved & ~inside
    assert (distances[inside].max(axis=0) <= distances[outside].min(axis=0)).any()


@pytest.mark.parametrize("seed", range(5))
def test_an_interface_crop_has_both_chains(seed: int) -> None:
    centres = centres_of("2xhe")
    chosen = choose_tokens(centres, 60, CropKind.INTERFACE, np.random.default_rng(seed))
    assert len(np.unique(centres.chain[chosen])) == 2
    first, second = (centres.positions[chosen[centres.chain[chosen] == number]] for number in (1, 2))
    assert np.linalg.norm(first[:, None] - second, axis=-1).min() < INTERFACE_DISTANCE


def test_a_crop_around_a_chain_contains_it() -> None:
    centres = centres_of("1lcd")
    for seed in range(5):
        chosen = choose_tokens(centres, 9, CropKind.SPATIAL, np.random.default_rng(seed), chains=(3,))
        assert 3 in centres.chain[chosen]


def test_kinds_of_crops_have_their_shares() -> None:
    generator = np.random.default_rng(0)
    kinds = [CropWeights().draw(generator) for _ in range(5000)]
    shares = [kinds.count(kind) / 5000 for kind in CropKind]
    assert shares == pytest.approx([0.2, 0.4, 0.4], abs=0.03)


def test_features_of_a_crop_are_those_of_its_tokens() -> None:
    complex_ = complex_of("4cup")
    sample = build_sample(complex_.job, InputSettings(templates=1))
    tokens = choose_tokens(centres_of("4cup"), 37, CropKind.SPATIAL, np.random.default_rng(2))
    cropped = crop_features(sample.features, tokens)
    assert cropped.keys() == sample.features.keys()
    assert np.array_equal(cropped["residue_index"], sample.features["residue_index"][tokens])
    assert np.array_equal(cropped["token_bonds"], sample.features["token_bonds"][tokens[:, None], tokens])
    for new, old in enumerate(tokens):
        first, count = cropped["start_atom_index"][new], cropped["num_atoms_per_token"][new]
        start = sample.features["start_atom_index"][old]
        assert (cropped["atom_to_token_index"][first : first + count] == new).all()
        for name in ("ref_pos", "ref_element", "ref_space_uid"):
            old_rows = sample.features[name][start : start + count]
            assert np.array_equal(cropped[name][first : first + count], old_rows)


def table_of(*bonds: Bond) -> MoleculeTable:
    """Return the molecules of two copies of a peptide and three sugars."""
    peptide = Polymer(MoleculeKind.PROTEIN, "GNF", ("A", "B"))
    atoms = build_atoms(MoleculeJob("job", (peptide, Ligand(("C", "D", "E"), ("NAG",))), bonds))
    return molecule_table(atoms, build_tokens(atoms))


def copies(table: MoleculeTable) -> set[tuple[int, int]]:
    """Return entity and copy of all molecules."""
    return set(zip(table.entity.tolist(), table.copy.tolist(), strict=True))


def glycosylation(protein: str, sugar: str) -> Bond:
    """Return the bond of an asparagine with a sugar."""
    return Bond(BondedAtom(protein, 2, "ND2"), BondedAtom(sugar, 1, "C1"))


def test_chains_that_are_bonded_are_one_molecule() -> None:
    assert copies(table_of()) == {(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)}
    one = table_of(glycosylation("A", "C"))
    assert copies(one) == {(1, 1), (2, 1), (3, 1), (3, 2)}
    both = table_of(glycosylation("A", "C"), glycosylation("B", "D"))
    assert copies(both) == {(1, 1), (1, 2), (2, 1)}
    for entity, copy in copies(both):
        index = both.index[(both.entity == entity) & (both.copy == copy)]
        assert index.tolist() == list(range(len(index)))


def test_symmetries_of_a_crop_map_its_atoms() -> None:
    table = table_of()
    phenylalanine = (1, 1, 2)
    assert table.symmetries[phenylalanine].shape == (2, 11)
    ligand = np.flatnonzero((table.entity == 2) & (table.copy == 1))
    cropped = table.crop(np.sort(np.concatenate([[2], ligand[:4]])))
    assert cropped.symmetries[phenylalanine].shape == (2, 11)
    assert cropped.symmetries[2, 1, 0].shape[1] == 4
    assert cropped.atom_token.tolist() == [0] * 11 + [1, 2, 3, 4]
    assert cropped.centre.tolist() == [1, 11, 12, 13, 14]
