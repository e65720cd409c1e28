"""Tests of the scores JSON, including keys and types of real ColabFold results."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from model.output.scores import format_scores
from tests.model.output.test_structure import prediction_of


def test_values_and_rounding() -> None:
    prediction = prediction_of([0, 1, 2])
    scores = json.loads(format_scores(prediction))
    assert list(scores) == ["plddt", "max_pae", "pae", "ptm"]
    assert np.allclose(scores["plddt"], prediction.plddt, atol=5.1e-3)
    assert scores["max_pae"] == prediction.pae.max()
    assert np.allclose(scores["pae"], prediction.pae, atol=5.1e-3)
    assert scores["plddt"] == [round(value, 2) for value in scores["plddt"]]


def test_keys_without_a_pae_head() -> None:
    prediction = dataclasses.replace(prediction_of([0, 1]), pae=None, ptm=None, max_pae=None)
    assert list(json.loads(format_scores(prediction))) == ["plddt"]


def test_extra_keys_are_added() -> None:
    assert json.loads(format_scores(prediction_of([0]), {"untrained": True}))["untrained"] is True


def test_keys_and_types_equal_colabfolds(shared_dir: Path) -> None:
    files = sorted(shared_dir.glob("data/colabfold_result/*/*_scores_rank_*.json"))
    if not files:
        pytest.skip("needs a ColabFold result in ../shared")
    ours = json.loads(format_scores(prediction_of([0, 1, 2])))
    for file in files:
        theirs = json.loads(file.read_text())
        assert {key: type(value) for key, value in ours.items()} == {
            key: type(value) for key, value in theirs.items()
        }
