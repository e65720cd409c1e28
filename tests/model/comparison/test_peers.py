"""Scores of `model.comparison` against those of biotite, tmtools and DockQ, recorded by `record_peers.py`."""

import json
import math
from pathlib import Path

import pytest

from foldcli.comparison.read import read_molecules
from model.comparison.compare import compare
from tests.model.comparison.cases import write_cases

PEERS: dict[str, dict[str, float | None]] = json.loads(Path(__file__).with_name("peers.json").read_text())
FAST = ["1as5_noisy", "1as5_bent", "1as5_cut", "1lcd_noisy"]
TOLERANCE = 0.001  # biotite does not exchange names of equivalent atoms, and the others are rounded


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in PEERS]
)
def test_scores_equal_those_of_peers(name: str, tmp_path: Path) -> None:
    list(write_cases(tmp_path, [name]))
    model, reference = (read_molecules(tmp_path / f"{name}_{side}.pdb") for side in ("mod", "ref"))
    result = compare(model, reference)
    assert result is not None
    ours = {key: None if math.isnan(value) else value for key, value in result.scores.items()}
    for key, peer in PEERS[name].items():
        assert ours[key] == (peer if peer is None else pytest.approx(peer, abs=TOLERANCE)), key
