"""Tests of features of complexes against DeepMind's and ColabFold's code, which they must equal exactly."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.complexes.features import complex_features, features_of_rows
from features.complexes.rows import DistinctRows, rows_of_file
from msa.alignments.complex_a3m import parse_complex_a3m
from msa.alignments.files import Alignment, parse_alignment, read_alignment
from msa.base.network_inputs import COMPLEX
from msa.io.fasta import read_fasta
from tests.features.deepmind_arrays import process_templates

DEEPMIND = ["heterodimer", "heterodimer_templates", "one_and_two_copies_templates"]
COLABFOLD = ["hetero_1_1", "hetero_1_2", "homo_2"]
# features that make_complex_goldens.py stacks
GROUPS = {
    "scalars": ("seq_length", "assembly_num_chains", "num_alignments", "num_templates"),
    "residues": ("aatype", "residue_index", "seq_mask", "asym_id", "entity_id", "sym_id", "entity_mask"),
    "rows": ("msa", "msa_mask", "deletion_matrix", "bert_mask"),
    "row": ("cluster_bias_mask",),
}
RAW_TEMPLATES = (
    "template_aatype",
    "template_all_atom_positions",
    "template_all_atom_masks",
    "template_sum_probs",
)

CASES = np.load(Path(__file__).parents[1] / "data" / "complexes.npz")


def case_names(kind: str) -> list[str]:
    return sorted({name.split("/")[1] for name in CASES if name.startswith(f"{kind}/")})


def case(kind: str, name: str) -> dict[str, np.ndarray]:
    prefix = f"{kind}/{name}/"
    return {key.removeprefix(prefix): CASES[key] for key in CASES if key.startswith(prefix)}


def recorded_features(golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the features of a case, unpacked from stacked arrays; templates that are left out are zeros."""
    stored = {
        key.removeprefix("features/"): value for key, value in golden.items() if key.startswith("features/")
    }
    for group, names in GROUPS.items():
        stored |= dict(zip(names, stored.pop(group), strict=True))
    residues = int(stored["seq_length"])
    templates = {
        "template_aatype": np.zeros((4, residues)),
        "template_all_atom_mask": np.zeros((4, residues, 37)),
        "template_all_atom_positions": np.zeros((4, residues, 37, 3)),
    }
    return templates | {"all_atom_positions": np.zeros((residues, 37, 3))} | stored


def assert_features(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
    """Compare all values; recorded ones may have narrower types."""
    assert ours.keys() == theirs.keys() == COMPLEX.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def without_duplicates(alignment: Alignment) -> Alignment:
    """Drop equal rows of further species, which DeepMind does not pair."""
    rows = DistinctRows.of(alignment).first
    names = tuple(alignment.names[row] for row in rows)
    return Alignment(names, alignment.letters[rows], alignment.deletions[rows])


@pytest.mark.parametrize("name", case_names("deepmind"))
def test_features_equal_deepminds(name: str) -> None:
    golden = case("deepmind", name)
    chains, pairing = [], []
    for number in range(sum(key.startswith("copies/") for key in golden)):
        raw = {key: golden.get(f"{key}/{number}") for key in RAW_TEMPLATES}
        templates = process_templates(raw) if raw["template_aatype"] is not None else None
        own, paired = (parse_alignment(golden[f"{key}/{number}"].tobytes()) for key in ("unpaired", "paired"))
        copies = int(golden[f"copies/{number}"])
        chains += [make_features([own], templates)] * copies
        pairing += [make_features([without_duplicates(paired)])] * copies
    assert_features(complex_features(chains, pairing=pairing), recorded_features(golden))


@pytest.mark.parametrize("name", case_names("colabfold"))
def test_features_equal_colabfolds(name: str) -> None:
    golden = case("colabfold", name)
    alignment = parse_complex_a3m(golden["a3m"].tobytes())
    ours = features_of_rows(rows_of_file(alignment), min_rows=int(golden["max_seq"]) + 4)
    recorded = recorded_features(golden)
    # ColabFold counts an empty template that stands for none
    assert recorded.pop("num_templates") == 1 and ours["num_templates"] == 0
    assert_features(ours, recorded | {"num_templates": ours["num_templates"]})


def raw_templates(folder: Path, chain: str, length: int) -> dict[str, np.ndarray] | None:
    """Return a chain's templates, processed; None if the set has none."""
    if not (folder / "raw_templates.npz").is_file():
        return None
    arrays = np.load(folder / "raw_templates.npz")
    raw = {name: arrays[f"{chain}/{name}"] for name in RAW_TEMPLATES[:3]}
    return process_templates(raw | {"template_sum_probs": np.ones((len(raw["template_aatype"]), 1))})


@pytest.mark.parametrize("name", DEEPMIND)
def test_parity_sets_equal_deepminds(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "parity" / "multimer" / name
    queries = list(read_fasta(folder / "query.fasta"))
    files = {query.sequence: query.header for query in reversed(queries)}
    chains, pairing = [], []
    for query in queries:
        file, length = files[query.sequence], len(query.sequence)
        templates = raw_templates(folder, query.header, length)
        chains.append(make_features([read_alignment(folder / f"{file}_unpaired.a3m")], templates))
        pairing.append(make_features([without_duplicates(read_alignment(folder / f"{file}_uniprot.a3m"))]))
    theirs = np.load(folder / "features.npz")
    ours = complex_features(chains, min_rows=36, pairing=pairing)
    assert_features(ours, theirs)
    assert {key: value.dtype for key, value in ours.items()} == {key: theirs[key].dtype for key in theirs}


@pytest.mark.parametrize("name", COLABFOLD)
def test_parity_sets_equal_colabfolds(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "parity" / "multimer" / "colabfold_a3m"
    alignment = parse_complex_a3m((folder / f"{name}.a3m").read_bytes())
    theirs = dict(np.load(folder / f"{name}.npz"))
    ours = features_of_rows(rows_of_file(alignment), min_rows=16)
    assert theirs.pop("num_templates") == 1
    assert_features(ours, theirs | {"num_templates": ours["num_templates"]})
