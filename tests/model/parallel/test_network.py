"""Tests of predictions by several ranks against those of one process."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network
from model.prediction import EXTRAS, Prediction
from tests.model.parallel import cases
from tests.rank_processes import RankProcesses

RELATIVE = 1e-5


def assert_equal(ours: Prediction, expected: Prediction) -> None:
    """Compare all parts of two predictions, float32 ones in relative RMS."""
    assert ours.num_recycles == expected.num_recycles
    assert ours.tolerances == pytest.approx(expected.tolerances, rel=1e-3, abs=1e-4)
    assert ours.ptm == pytest.approx(expected.ptm, rel=RELATIVE)
    assert ours.pae is not None and expected.pae is not None
    pairs = {"positions": (ours.atom_positions, expected.atom_positions), "pae": (ours.pae, expected.pae),
             "plddt": (ours.plddt, expected.plddt)}  # fmt: skip
    assert ours.results.keys() == expected.results.keys() and ours.results
    pairs |= {name: (value, expected.results[name]) for name, value in ours.results.items()}
    for name, (mine, theirs) in pairs.items():
        assert mine.shape == theirs.shape, name
        difference = np.linalg.norm((mine - theirs).astype(np.float64))
        assert difference <= RELATIVE * np.linalg.norm(theirs.astype(np.float64)), name


@pytest.mark.parametrize(
    ("residues", "sizes", "masked"),
    [
        (1, {"rows": 1, "extra": 1}, False),
        (7, {"rows": 5, "extra": 4, "templates": 2}, True),
        (33, {"rows": 4, "extra": 7, "templates": 1}, False),
    ],
)
def test_equal_to_one_process(
    ranks: RankProcesses,
    tiny: AlphaFold,
    tiny_config: ModelConfig,
    make_features: Any,
    residues: int,
    sizes: dict[str, int],
    masked: bool,
) -> None:
    features = make_features(residues=residues, iterations=2, **sizes)
    if masked:
        features["seq_mask"][:, -2:] = 0
        features["msa_mask"][:, 1, 2:5] = 0
        features["extra_msa_mask"][:, -1] = 0
    settings = RecyclingSettings(1, extras=frozenset(EXTRAS))
    expected = predict(tiny, features, settings)
    # in pieces, where nothing is masked and rows are odd
    options = () if masked else (0,)
    predictions = ranks.call(cases.predict_together, tiny_config, features, settings, *options)
    for prediction in predictions:
        assert_equal(prediction, expected)
        # what decides about further passes must be the same on all ranks
        assert np.array_equal(prediction.atom_positions, predictions[0].atom_positions)
        assert prediction.tolerances == predictions[0].tolerances


def test_complex_equal_to_one_process(
    ranks: RankProcesses, tiny_multimer_config: ModelConfig, complex_features: dict[str, np.ndarray]
) -> None:
    settings = RecyclingSettings(1, extras=frozenset(EXTRAS))
    network = build_network(
        tiny_multimer_config, random_parameters(tiny_multimer_config), plddt_shift=cases.COMPLEX_SHIFT
    )
    expected = predict(network, complex_features, settings)
    assert expected.scores is not None
    calls = [ranks.call(cases.predict_together, tiny_multimer_config, complex_features, settings, *at_once)
             for at_once in ((), (0,))]  # fmt: skip
    for prediction in chain(*calls):
        assert_equal(prediction, expected)
        assert prediction.scores is not None
        for name in ("iptm", "ptm", "pairwise_iptm", "ipsae", "actifptm"):
            ours, theirs = (getattr(x.scores, name) for x in (prediction, expected))
            assert ours == pytest.approx(theirs, rel=RELATIVE, nan_ok=True), name


def test_bfloat16_is_as_exact_as_in_one_process(
    ranks: RankProcesses, tiny_config: ModelConfig, make_features: Any
) -> None:
    features, settings = make_features(residues=13, iterations=1, rows=5, extra=4), RecyclingSettings(0)
    arrays = random_parameters(tiny_config)
    exact, half = (
        predict(build_network(tiny_config, arrays, dtype=dtype), features, settings).atom_positions
        for dtype in (torch.float32, torch.bfloat16)
    )
    bound = 1.5 * np.linalg.norm(half - exact)
    for prediction in ranks.call(cases.predict_in_bfloat16, tiny_config, features, settings):
        assert 0 < np.linalg.norm(prediction.atom_positions - exact) < bound


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_graphs_with_communication_predict_the_same(tiny_config: ModelConfig, make_features: Any) -> None:
    # of two lengths, numbers of rows that give rank 0 the same shapes, and none for rank 1
    sizes = [(40, 1), (40, 8), (40, 7), (57, 8), (40, 8)]
    samples = [make_features(residues=n, iterations=4, rows=rows, extra=rows) for n, rows in sizes]
    pair = RankProcesses(2)
    try:
        for *positions, captured in pair.call(cases.predict_with_graphs, tiny_config, samples):
            assert captured == (True, True)
            for eager, graphed in positions:
                # biases come from columns of pairs, or from rows
                assert np.linalg.norm(eager - graphed) < 1e-4 * np.linalg.norm(eager)
    finally:
        pair.close()
