"""Tests of all-atom predictions by several ranks against those of one process."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from model.alphafold3.confidence import Confidence
from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.planning import alphafold3 as planning
from model.planning.alphafold3 import PredictionSize
from tests.model.alphafold3.confidence_inputs import make_inputs
from tests.model.alphafold3.parity_networks import network
from tests.model.parallel import cases
from tests.model.parallel.host_graphs import all_atom_graph_error, predict_all_atom_as_graphs
from tests.networks import tiny_all_atom
from tests.rank_processes import RankProcesses

RELATIVE = 1e-5


def random_inputs(tokens: int, rows: int, masked: bool) -> AlphaFold3Inputs:
    """Return chains of four tokens, of which the last one is a ligand, with templates and an alignment."""
    generator = np.random.default_rng(tokens)
    ligand = np.arange(tokens) >= max(1, tokens - tokens % 4)
    atoms = np.where(ligand, 1, 3)
    changes = {
        "msa": np.eye(32)[generator.integers(0, 20, (rows, tokens))],
        "msa_mask": generator.random((rows, tokens)) < (0.7 if masked else 1.1),
        "profile": generator.random((tokens, 32)),
        "ref_pos": generator.standard_normal((atoms.sum(), 3)),
        "is_ligand": ligand,
        "is_atomized": ligand,
        "is_protein": ~ligand,
        "token_bonds": np.eye(tokens, k=1),
        "asym_id": np.arange(tokens) // 4,
        "token_mask": np.arange(tokens) < tokens - masked,
        "template_distogram": np.eye(39)[generator.integers(0, 39, (2, tokens, tokens))],
        "template_restype": np.eye(32)[generator.integers(0, 20, (2, tokens))],
        "template_pseudo_beta_mask": generator.random((2, tokens)) < 0.8,
        "template_backbone_frame_mask": generator.random((2, tokens)) < 0.8,
        "template_unit_vector": generator.standard_normal((2, tokens, tokens, 3)),
    }
    # all alanine or glycine would have no CB among three atoms
    return make_inputs([7] * tokens, atoms.tolist(), rows, **changes)


@pytest.mark.parametrize(
    ("tokens", "rows", "samples", "masked", "transposed", "max_graphed_tokens"),
    [
        (1, 1, 1, False, False, 0),
        (7, 5, 1, True, False, 0),
        (13, 4, 5, False, True, 0),
        (7, 4, 2, True, False, 7),
    ],
)
def test_equal_to_one_process(
    ranks: RankProcesses,
    tokens: int,
    rows: int,
    samples: int,
    masked: bool,
    transposed: bool,
    max_graphed_tokens: int,
) -> None:
    tiny = tiny_all_atom()
    config = replace(
        tiny, pairformer_blocks=2, msa=replace(tiny.msa, blocks=2), transposed_ending_bias=transposed
    )
    inputs = random_inputs(tokens, rows, masked)
    expected, trunk = cases.predict_all_atom(config, inputs, samples)
    answers = ranks.call(cases.predict_all_atom, config, inputs, samples, max_graphed_tokens)
    for ours, own_trunk in answers:
        assert ours.positions.shape == (samples, len(inputs.atom_mask), 3)
        pairs = [(own_trunk.pair, trunk.pair[own_trunk.rows]), (own_trunk.single, trunk.single)]
        pairs += [(ours.positions, expected.positions), (ours.contacts, expected.contacts)]
        for mine, theirs in zip(ours.confidences, expected.confidences, strict=True):
            assert mine.chains == theirs.chains
            names = [field.name for field in fields(Confidence) if field.name != "chains"]
            pairs += [(getattr(mine, name), getattr(theirs, name)) for name in names]
        for value, reference in pairs:
            assert torch.linalg.norm(value - reference) <= RELATIVE * torch.linalg.norm(reference) + 1e-6


def test_graphs_with_communication_predict_the_same(ranks: RankProcesses) -> None:
    config, inputs = replace(tiny_all_atom(), pairformer_blocks=3), random_inputs(7, 4, masked=True)
    expected = ranks.call(cases.predict_all_atom, config, inputs, 1, 7)
    found = ranks.call(predict_all_atom_as_graphs, config, inputs)
    for (samples, trunk), (positions, pair, replays) in zip(expected, found, strict=True):
        # two trunks of two cycles, the first of which may prepare weights
        assert replays >= 2 * 3
        assert torch.equal(positions, samples.positions) and torch.equal(pair, trunk.pair)


def test_failed_captures_are_known_to_all_ranks(ranks: RankProcesses) -> None:
    config, inputs = replace(tiny_all_atom(), pairformer_blocks=2), random_inputs(7, 4, masked=True)
    answers = ranks.call(all_atom_graph_error, config, inputs)
    assert answers == [("rank 1: no graphs here", "")] * len(answers)


@pytest.mark.parametrize("samples", [1, 2, 5])
@pytest.mark.parametrize("max_graphed_tokens", [0, 7], ids=["tokens", "samples"])
def test_half_precision_is_that_of_one_process(
    ranks: RankProcesses, max_graphed_tokens: int, samples: int
) -> None:
    inputs = random_inputs(7, 1, masked=True)
    arguments = tiny_all_atom(), inputs, samples
    expected = cases.draw_in_half_precision(*arguments, None)
    for found in ranks.call(cases.draw_in_half_precision, *arguments, max_graphed_tokens):
        assert torch.linalg.norm(found - expected) < 1e-3 * torch.linalg.norm(expected)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_ranks_hold_at_most_what_is_planned(ranks: RankProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_GRAPHED_TOKENS", 0)
    tokens, atoms, elements = 96, 5, 2**20
    for peaks in ranks.call(cases.all_atom_peaks, tokens, atoms, elements):
        size = PredictionSize(tokens, tokens * atoms, 8, 2, 1, on_gpu=False, ranks=len(ranks.processes))
        phases = planning.phase_bytes(network("openbind").config, size, 1, elements)
        trunk = ("embedding", "templates", "alignment", "pairformer")
        for most, names in zip(peaks, (trunk, ("conditions", "steps"), ("heads",)), strict=True):
            expected = max(phases[name] for name in names)
            assert 0.6 * expected < most < expected, names


def assert_as_exact(
    answers: list[list[torch.Tensor]], half: list[torch.Tensor], exact: list[torch.Tensor]
) -> None:
    """Compare errors of ranks with those of one process, whose sums have another order, in bfloat16."""
    for answer in answers:
        for ours, alone, expected in zip(answer, half, exact, strict=True):
            assert torch.linalg.norm(ours - expected) <= 1.5 * torch.linalg.norm(alone - expected)


def test_bfloat16_is_as_exact_as_in_one_process(ranks: RankProcesses) -> None:
    arguments = tiny_all_atom(), random_inputs(13, 4, masked=True)
    exact, half = (
        cases.all_atom_results(*arguments, dtype, None) for dtype in (torch.float32, torch.bfloat16)
    )
    assert all(not torch.equal(x, y) for x, y in zip(half, exact, strict=True))
    for tokens in (0, 13):
        assert_as_exact(ranks.call(cases.all_atom_results, *arguments, torch.bfloat16, tokens), half, exact)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("config", [OPENBIND, P2], ids=["openbind", "p2"])
def test_two_gpus_compute_what_one_computes(config: AlphaFold3Config) -> None:
    config = replace(
        config,
        pairformer_blocks=2,
        template_blocks=1,
        msa=replace(config.msa, blocks=2),
        diffusion=replace(config.diffusion, blocks=2),
        confidence=replace(config.confidence, blocks=1),
    )
    inputs, pair = random_inputs(77, 9, masked=False), RankProcesses(2)
    try:
        exact, half, samples, tokens = (
            pair.call(cases.all_atom_results, config, inputs, dtype, divided, "nccl")
            for dtype, divided in (
                (torch.float32, None),
                (torch.bfloat16, None),
                (torch.bfloat16, 77),
                (torch.bfloat16, 0),
            )
        )
    finally:
        pair.close()
    for answers in (samples, tokens):
        assert_as_exact(answers, half[0], exact[0])
