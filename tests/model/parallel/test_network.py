"""Tests of predictions by several ranks against those of one process."""

from typing import Any

import numpy as np
import pytest

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network, random_parameters
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
    predictions = ranks.call(cases.predict_together, tiny_config, features, settings)
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
    for prediction in ranks.call(cases.predict_together, tiny_multimer_config, complex_features, settings):
        assert_equal(prediction, expected)
        assert prediction.scores is not None
        for name in ("iptm", "ptm", "pairwise_iptm", "ipsae", "actifptm"):
            ours, theirs = (getattr(x.scores, name) for x in (prediction, expected))
            assert ours == pytest.approx(theirs, rel=RELATIVE, nan_ok=True), name
