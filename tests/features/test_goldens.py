"""Tests of features against DeepMind's: integers exactly, floats to 1e-6, with the same random choices."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_iteration
from msa.alignments.files import Alignment, read_alignment
from msa.base.residues import RESTYPES
from tests.features.deepmind_arrays import HHBLITS_TO_AATYPE, process_templates

SYNTHETIC = {
    "a3m": ["family.a3m"],
    "sto": ["family.sto"],
    "merged": ["family.sto", "family.a3m"],
    "single": ["single.a3m"],
}
REAL = ["6KWC_1.a3m", "3u8v_A.a3m", "3u8v_A.uniref90.sto", "2QKE_E.colabfold.a3m.gz"]
PARITY = {"model_1_ptm": 20, "model_3_ptm": 16}

# output of DeepMind's code that has no counterpart: a seed for cropping, which inference does not do
UNUSED = {"random_crop_to_size_seed"}
TEMPLATE_SLOTS = {"model_1_ptm": 4, "model_3_ptm": 0}


def assert_equal(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape, name
    assert ours.dtype == theirs.dtype, name
    if theirs.dtype.kind in "iub":
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=name)


def assert_raw_equal(features: dict[str, np.ndarray], raw: dict[str, np.ndarray]) -> None:
    """Compare with the inputs of DeepMind's feature processing."""
    np.testing.assert_array_equal(features["msa"], HHBLITS_TO_AATYPE[raw["msa"]])
    np.testing.assert_array_equal(features["deletion_matrix"], raw["deletion_matrix_int"])
    np.testing.assert_array_equal(features["aatype"], raw["aatype"].argmax(axis=1))
    for name in ("residue_index", "between_segment_residues"):
        assert_equal(name, features[name], raw[name])
    for name in ("seq_length", "num_alignments"):
        assert_equal(name, features[name], raw[name][0])


@pytest.mark.parametrize("case", SYNTHETIC)
def test_synthetic_alignments_match_deepmind(case: str, data_dir: Path, recorded_draws) -> None:
    golden = np.load(data_dir / f"{case}.npz")
    features = make_features([read_alignment(data_dir / file) for file in SYNTHETIC[case]])
    assert_raw_equal(features, {name[4:]: value for name, value in golden.items() if name.startswith("raw/")})
    assert_equal("hhblits_profile", features["hhblits_profile"], golden["profile"])

    processed = {name[10:]: value for name, value in golden.items() if name.startswith("processed/")}
    max_seq, max_extra_seq = golden["settings"]
    slots = 4 if "template_mask" in processed else 0
    settings = SamplingSettings(int(max_seq), int(max_extra_seq), slots)
    iterations = len(processed["aatype"])
    for k in range(iterations):
        draws = recorded_draws(golden, f"draws/{k}", *processed["true_msa"].shape[1:])
        ours = sample_iteration(features, settings, draws)
        assert ours.keys() == processed.keys() - UNUSED
        for name, value in ours.items():
            assert_equal(name, value, processed[name][k])


@pytest.mark.parametrize("file", REAL)
def test_real_alignments_match_deepmind(file: str, data_dir: Path, shared_dir: Path, recorded_draws) -> None:
    golden = np.load(data_dir / "real.npz")
    features = make_features([read_alignment(shared_dir / "data" / "msas" / file)])
    settings = SamplingSettings(512, 5120, template_slots=4)
    rows = min(508, len(features["msa"]))
    draws = recorded_draws(golden, f"{file}/draws/0", rows, features["msa"].shape[1])
    processed = {name: value[None] for name, value in sample_iteration(features, settings, draws).items()}
    to_hhblits = np.argsort(HHBLITS_TO_AATYPE)
    ours = {f"processed/{name}": value for name, value in processed.items()} | {
        "processed/hhblits_profile": features["hhblits_profile"],
        "raw/aatype": np.eye(21)[features["aatype"]],
        "raw/msa": to_hhblits[features["msa"]],
        "raw/deletion_matrix_int": features["deletion_matrix"],
        "raw/num_alignments": np.full(features["msa"].shape[1], features["num_alignments"]),
    }
    expected = {
        key.removeprefix(f"{file}/").rsplit("/", 1)[0] for key in golden if key.startswith(f"{file}/")
    }
    expected = {name for name in expected if not name.startswith("draws/")}
    assert expected == ours.keys() | {f"processed/{name}" for name in UNUSED}
    for name, value in ours.items():
        assert value.shape == tuple(golden[f"{file}/{name}/shape"]), name
        if f"{file}/{name}/sha256" in golden:
            digest = hashlib.sha256(np.ascontiguousarray(value.astype(np.int32)).tobytes()).digest()
            assert digest == golden[f"{file}/{name}/sha256"].tobytes(), name
        else:
            theirs = golden[f"{file}/{name}/values"]
            assert_equal(name, value.ravel()[golden[f"{file}/{name}/positions"]], theirs)


@pytest.mark.parametrize("model", PARITY)
def test_parity_sets_match_deepmind(model: str, data_dir: Path, shared_dir: Path, recorded_draws) -> None:
    folder = shared_dir / "parity" / f"{model}_2_blocks"
    raw, processed = np.load(folder / "raw_features.npz"), np.load(folder / "features.npz")
    codes = np.append(np.frombuffer(RESTYPES.encode(), np.uint8), [ord("X"), ord("-")])
    letters = codes[HHBLITS_TO_AATYPE[raw["msa"]]].astype(np.uint8)
    deletions = raw["deletion_matrix_int"].astype(np.uint8)
    names = tuple(f"row{i}" for i in range(len(letters)))
    templates = process_templates(raw) if TEMPLATE_SLOTS[model] else None
    features = make_features([Alignment(names, letters, deletions)], templates)
    assert_raw_equal(features | {"residue_index": raw["residue_index"]}, raw)
    # the residue numbers of these sets have a gap, which features from alignments never have
    features["residue_index"] = raw["residue_index"].astype(np.int32)

    slots = TEMPLATE_SLOTS[model]
    settings = SamplingSettings(PARITY[model], 32, slots)
    recorded = np.load(data_dir / "real.npz")
    for k in range(3):
        draws = recorded_draws(recorded, f"{model}/draws/{k}", settings.sampled_rows, letters.shape[1])
        ours = sample_iteration(features, settings, draws)
        assert ours.keys() == processed.keys() - UNUSED
        for name, value in ours.items():
            theirs = processed[name][k]
            if name.startswith("extra_"):
                assert not theirs[len(value) :].any(), name  # padding rows
                theirs = theirs[: len(value)]
            assert_equal(name, value, theirs)
