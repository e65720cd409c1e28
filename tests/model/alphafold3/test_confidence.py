"""Tests of relative positions, alignment rows and confidence scores on small inputs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.alphafold3.confidence import (
    Confidence,
    Surface,
    TargetScorer,
    atom_radii,
    contact_map,
    token_frames,
    with_disorder,
)
from model.alphafold3.config import OPENBIND
from model.alphafold3.embedding import RelativePositions
from model.alphafold3.heads import distance_bins, representative_atoms
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import alignment_rows
from model.alphafold3.sampling import SeededDraws
from model.confidence.surface import POINTS, PROBE, _sphere, accessible_areas
from tests.model.alphafold3.confidence_inputs import make_inputs

SURFACE = dict(np.load(Path(__file__).parent / "data" / "surface.npz"))


def surface_inputs() -> AlphaFold3Inputs:
    """Return the chain whose surface is known, with atom names and elements."""
    names = [name.ljust(4) for name in SURFACE["names"].tolist()]
    characters = np.array([[ord(letter) - 32 for letter in name] for name in names])
    elements = np.array([{"N": 6, "C": 5, "O": 7, "S": 15}[name[0]] for name in names])
    return make_inputs(
        SURFACE["types"].tolist(),
        np.bincount(SURFACE["residue"]).tolist(),
        ref_atom_name_chars=np.eye(64)[characters],
        ref_element=np.eye(119)[elements],
    )


def test_surface_is_that_of_openfold3() -> None:
    inputs = surface_inputs()
    areas = accessible_areas(SURFACE["positions"], atom_radii(inputs).numpy())
    # rounding may hide a point of the 1,000
    assert np.abs(areas - SURFACE["areas"]).max() < 0.15
    assert np.isclose(areas, SURFACE["areas"], rtol=1e-5).mean() > 0.98
    assert 0.1 < SURFACE["share"] < 0.9
    positions = torch.from_numpy(SURFACE["positions"])
    assert Surface(inputs).disorder(positions) == pytest.approx(SURFACE["share"])


def test_areas_count_the_points_outside_all_other_spheres() -> None:
    generator = np.random.default_rng(0)
    positions = generator.normal(0, 4, (150, 3)).astype(np.float32)
    positions[7] = positions[8]  # atoms at the same place do not hide each other
    positions[9], positions[10] = np.nan, 1000
    radii = generator.choice(np.float32([1.42, 1.64, 1.88]), 150)
    reach, free = radii + np.float32(PROBE), []
    for centre, radius in zip(positions, reach, strict=True):
        offsets = (_sphere() * radius + centre)[:, None] - positions
        x, y, z = np.moveaxis(offsets * offsets, -1, 0)
        others = (positions != centre).any(axis=-1)
        free.append((~((x + y + z < reach * reach) & others)).all(axis=-1).sum())
    found = accessible_areas(positions, radii) / (4 * np.pi / POINTS * reach * reach)
    assert found.round().tolist() == free
    assert free[9] == free[10] == POINTS and 0 in free


def test_disorder_without_protein_is_zero() -> None:
    inputs = make_inputs([20], [1], is_protein=[0], is_ligand=[1], is_atomized=[1])
    assert Surface(inputs).disorder(torch.zeros(1, 3)) == 0


@pytest.mark.parametrize(
    ("length", "first"), [(6, [0, -1, -2, -3, 2, 1]), (5, [0, -1, -2, 2, 1]), (7, [0, -1, -2, -3, -4, 2, 1])]
)
def test_offsets_in_cyclic_chains_go_the_shorter_way_round(length: int, first: list[int]) -> None:
    cyclic = make_inputs([0] * (length + 2), [5] * (length + 2), asym_id=[1] * length + [2] * 2)
    cyclic = replace(cyclic, cyclic_mask=cyclic.asym_id == 1)
    found = RelativePositions.of(cyclic, OPENBIND).residue.long() - 32
    expected = torch.stack([torch.tensor(first).roll(shift) for shift in range(length)])
    assert torch.equal(found[:length, :length], expected)
    assert torch.equal(found[length:, length:], torch.tensor([[0, -1], [1, 0]]))
    assert bool((found[:length, length:] == 33).all())


def test_cycles_see_samples_of_the_rows_that_are_not_empty() -> None:
    mask = np.ones((9, 2))
    mask[[1, 4]] = 0
    inputs = make_inputs([0, 0], [5, 5], rows=9, msa_mask=mask)
    draws = SeededDraws(0)
    assert alignment_rows(inputs, draws, 0, 7).tolist() == [0, 2, 3, 5, 6, 7, 8]
    samples = [alignment_rows(inputs, draws, cycle, 4).tolist() for cycle in range(2)]
    assert all(len(set(rows)) == 4 and not {1, 4} & set(rows) for rows in samples)
    assert samples[0] != samples[1]


def test_features_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"restype has shape \[2, 31\], expected \[N, 32\]"):
        make_inputs([0, 0], [5, 5], restype=np.zeros((2, 31)))
    with pytest.raises(ValueError, match="msa_mask"):
        make_inputs([0, 0], [5, 5], msa_mask=np.zeros((1, 3)))
    with pytest.raises(ValueError, match="features lack token_index"):
        AlphaFold3Inputs.from_arrays({"token_mask": np.ones(1)})


def test_tokens_have_representative_atoms_and_frames() -> None:
    # alanine, glycine, A, C, DA, DC, and four atoms of a ligand, of which the last is alone in its chain
    counts = [5, 4, 22, 20, 21, 19, 1, 1, 1, 1]
    inputs = make_inputs(
        [0, 7, 21, 23, 26, 28, 20, 20, 20, 20],
        counts,
        is_protein=[1, 1] + [0] * 8,
        is_rna=[0, 0, 1, 1] + [0] * 6,
        is_dna=[0] * 4 + [1, 1] + [0] * 4,
        is_ligand=[0] * 6 + [1] * 4,
        is_atomized=[0] * 6 + [1] * 4,
        asym_id=[1] * 6 + [2, 2, 2, 3],
    )
    start = inputs.start_atom_index
    assert (representative_atoms(inputs) - start).tolist() == [4, 1, 21, 13, 20, 12, 0, 0, 0, 0]
    positions = torch.randn(sum(counts), 3)
    positions[-4:] = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]])
    assert token_frames(inputs, positions).valid.tolist() == [True] * 9 + [False]
    positions[-2] = torch.tensor([2.0, 0.1, 0])  # in line with the others
    assert token_frames(inputs, positions).valid.tolist() == [True] * 6 + [False] * 4


def test_distances_on_an_edge_are_in_no_bin() -> None:
    edges = torch.linspace(3.25, 50.75, 39)
    distances = torch.tensor([0, 3.0, 3.25, 4.0, 4.5, 5.0, 50.75, 51.0, 9999.0])
    positions = torch.nn.functional.pad(distances[:, None], (0, 2))
    found = distance_bins(torch.zeros(1, 3), positions, edges)[0]
    bins = [x.nonzero()[:, 0].tolist() for x in found]
    assert bins == [[], [], [], [0], [], [1], [], [38], [38]]


def score(inputs: AlphaFold3Inputs, positions: torch.Tensor, error_bin: int) -> Confidence:
    """Return the scores of a structure whose errors are all in one bin."""
    n, a = len(inputs.token_mask), len(inputs.atom_mask)
    pae = torch.full((n, n, 64), -torch.inf)
    pae[..., error_bin] = 0
    scorer, contacts = TargetScorer(inputs), contact_map([torch.zeros(n, n, 64)])
    # by rows, as for many tokens
    errors = ((slice(i, i + 2), pae[i : i + 2], pae[i : i + 2]) for i in range(0, n, 2))
    found = scorer(positions, torch.zeros(a, 50), errors, contacts)
    return with_disorder(found, scorer.surface.disorder(positions))


def test_scores_of_known_errors() -> None:
    inputs = make_inputs([0] * 6, [5] * 6, asym_id=[1, 1, 1, 2, 2, 2])
    found = score(inputs, 100 * torch.randn(30, 3), 3)
    scale = 1.24 * 4 ** (1 / 3) - 1.8
    expected = 1 / (1 + (1.75 / scale) ** 2)
    assert found.chains == (1, 2)
    for value in (found.ptm, found.iptm, *found.chain_ptm, found.chain_pair_iptm[0, 1]):
        assert float(value) == pytest.approx(expected)
    assert float(found.chain_pair_iptm[0, 0]) == 0
    assert float(found.gpde) == pytest.approx(1.75)
    assert torch.allclose(found.pae, torch.full((6, 6), 1.75))
    assert torch.allclose(found.plddt, torch.full((30,), 50.0))
    assert float(found.has_clash) == 0
    total = 0.8 * found.iptm + 0.2 * found.ptm + 0.5 * found.disorder
    assert float(found.ranking_score) == pytest.approx(float(total))


def test_chains_on_top_of_each_other_clash_unless_one_is_a_ligand() -> None:
    positions = torch.randn(10, 5, 3).mul(5)[:, :1].expand(10, 5, 3).reshape(50, 3)
    positions = torch.cat([positions[:25], positions[:25]])
    chains = [1] * 5 + [2] * 5
    polymer = make_inputs([0] * 10, [5] * 10, asym_id=chains)
    assert float(score(polymer, positions, 0).has_clash) == 1
    assert float(score(polymer, positions, 0).ranking_score) < -90
    ligand = replace(polymer, is_protein=polymer.asym_id == 1, is_ligand=polymer.asym_id == 2)
    assert float(score(ligand, positions, 0).has_clash) == 0
