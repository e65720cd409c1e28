"""Tests of folders that hold one network."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from model.checkpoints.alphafold2 import load_folder
from model.checkpoints.network_folder import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    HeldOutCase,
    InputSizes,
    read_held_out,
    read_manifest,
    write_manifest,
)
from model.errors import ParametersError, ParametersMissing
from tests.networks import tiny_network, write_packaged_network


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a small random network."""
    write_packaged_network(tmp_path / "network", tiny_network())
    return tmp_path / "network"


def test_manifest_and_weights_are_read_as_written(folder: Path) -> None:
    config = tiny_network()
    manifest = read_manifest(folder)
    assert manifest.config == config
    arrays = load_folder(folder, manifest)
    key = "alphafold/alphafold_iteration/evoformer/preprocess_msa//weights"
    assert arrays[key].shape == (49, config.evoformer.msa.channels)
    assert arrays[key].dtype == np.float32


@pytest.mark.parametrize("position", [0, 100, -1])
def test_damaged_weights_are_refused(folder: Path, position: int) -> None:
    content = bytearray((folder / WEIGHTS_FILE).read_bytes())
    content[position] ^= 1
    (folder / WEIGHTS_FILE).write_bytes(content)
    with pytest.raises(ParametersError, match=f"{WEIGHTS_FILE}: damaged: its SHA-256 differs"):
        load_folder(folder, read_manifest(folder))


def test_weights_of_another_network_are_refused(folder: Path) -> None:
    manifest = read_manifest(folder)
    other = replace(manifest, config=replace(manifest.config, predicted_aligned_error=False))
    with pytest.raises(ParametersError, match=r"unknown: .*predicted_aligned_error_head"):
        load_folder(folder, other)


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder)
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(ParametersMissing, match=WEIGHTS_FILE):
        load_folder(folder, manifest)
    with pytest.raises(ParametersMissing, match=MANIFEST_FILE):
        read_manifest(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "not the manifest of a network"),
        ({"format_version": 2}, "format version 2; this foldcli reads 1"),
        ({"samples": "many"}, "damaged manifest: samples: expected int"),
        ({"regular_bonds": 10**400}, "damaged manifest: regular_bonds: number out of range"),
        ({"surprise": 1}, "damaged manifest: surprise: unknown key"),
    ],
)
def test_damaged_manifests_are_refused(folder: Path, change: dict, reason: str) -> None:
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ParametersError, match=reason):
        read_manifest(folder)
    path.write_text("{")
    with pytest.raises(ParametersError, match="not the manifest of a network"):
        read_manifest(folder)


SHALLOW = HeldOutCase(False, 0.0, 10.0, 5, 0.3, 0.2, 0.4, 0.25, 0.1)
DEEP = replace(SHALLOW, lower=10.0, upper=None)
WEAK = replace(SHALLOW, with_template=True, lower=0.0, upper=None, weak_template=True)
DISTANT = replace(SHALLOW, with_template=True, lower=0.0, upper=0.4)


def test_expected_accuracy_is_that_of_the_case(folder: Path) -> None:
    write_manifest(folder, replace(read_manifest(folder), held_out=(SHALLOW, DEEP, DISTANT, WEAK)))
    manifest = read_manifest(folder)
    assert manifest.expected_accuracy(None, 9.9) == SHALLOW
    assert manifest.expected_accuracy(None, 10.0) == DEEP
    assert manifest.expected_accuracy(0.39, 200.0) == DISTANT
    assert manifest.expected_accuracy(0.4, 200.0) is None
    assert manifest.expected_accuracy(0.39, 200.0, weak_template=True) == WEAK


def test_range_of_single_chains() -> None:
    case = replace(SHALLOW, chains=100, lddt=0.5, low=0.48, high=0.52)
    # the standard deviation is 10 × 0.02 / 1.96
    assert case.single_chains == pytest.approx((0.5 - 0.1308, 0.5 + 0.1308), abs=1e-4)
    assert replace(case, percentile_10=0.3, percentile_90=0.6).single_chains == (0.3, 0.6)
    assert replace(case, lddt=0.95).single_chains[1] == 1


def test_cases_are_described() -> None:
    assert SHALLOW.label == "no template and fewer than 10 effective sequences"
    assert replace(SHALLOW, lower=5.0).label == "no template and 5 to 10 effective sequences"
    assert DEEP.label == "no template and at least 10 effective sequences"
    assert WEAK.label == "weak templates (E > 0.001, or under 70 % covered)"
    assert DISTANT.label == "best template of less than 40 % identity"
    assert replace(DISTANT, lower=0.3).label == "best template of 30 to 40 % identity"
    assert replace(DISTANT, lower=0.6, upper=None).label == "best template of at least 60 % identity"


def test_results_of_other_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text('{"cases": [{"lddt": 1}]}')
    with pytest.raises(ParametersError, match=r"not the results of benchmarks/compact\.py"):
        read_held_out([tmp_path / "scores.json"])


def test_results_of_several_files_are_joined(tmp_path: Path) -> None:
    for name, case, regular_bonds in (("one", SHALLOW, 0.14), ("two", DISTANT, 0.5)):
        content = {"cases": [asdict(case)], "regular_bonds": regular_bonds}
        (tmp_path / name).write_text(json.dumps(content))
    scores = read_held_out([tmp_path / "one", tmp_path / "two"])
    assert (scores.cases, scores.regular_bonds, scores.inputs) == ((SHALLOW, DISTANT), 0.14, None)


def test_results_may_have_a_shift_of_plddt(tmp_path: Path) -> None:
    content = {"cases": [], "regular_bonds": 1.0, "plddt_shift": 0.0}
    (tmp_path / "one").write_text(json.dumps(content))
    (tmp_path / "two").write_text(json.dumps(content | {"plddt_shift": -0.4}))
    scores = read_held_out([tmp_path / "one", tmp_path / "two"])
    assert scores.plddt_shift == -0.4
    assert read_held_out([tmp_path / "one"]).plddt_shift == 0


def test_results_may_state_the_inputs_that_were_scored(tmp_path: Path) -> None:
    inputs = InputSizes(64, 32, 2, False, 0.0, True, 3, 128)
    content = {"cases": [], "regular_bonds": 1.0, "inputs": asdict(inputs)}
    (tmp_path / "scores").write_text(json.dumps(content))
    assert read_held_out([tmp_path / "scores"]).inputs == inputs
    (tmp_path / "scores").write_text(json.dumps(content | {"inputs": {"rows": 1}}))
    with pytest.raises(ParametersError, match=r"not the results of benchmarks/compact\.py"):
        read_held_out([tmp_path / "scores"])
