"""Predictions with networks in folders of their own, such as the compact network."""

import json
import math
import subprocess
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import gemmi
import pytest

from features.templates.library.structure_files import read_chains
from model.checkpoints.network_folder import (
    COMPACT_FOLDER,
    WEIGHTS_FILE,
    HeldOutCase,
    read_manifest,
    write_manifest,
)
from tests.command_process import run_foldcli
from tests.networks import tiny_network, write_packaged_network

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
CASE = HeldOutCase(True, 0.0, None, 150, 0.61, 0.58, 0.64, 0.57, 0.07)
NO_TEMPLATE = replace(CASE, with_template=False, lddt=0.3, low=0.25, high=0.35)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Return the folder of a small network without a PAE head, with held-out cases."""
    config = replace(tiny_network(), predicted_aligned_error=False, trained=True)
    manifest = write_packaged_network(tmp_path / "network", config)
    write_manifest(tmp_path / "network", replace(manifest, held_out=(CASE, NO_TEMPLATE)))
    return tmp_path / "network"


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """Return a FASTA file with ubiquitin."""
    path = tmp_path / "query.fasta"
    path.write_text(f">ubi\n{UBIQUITIN}\n")
    return path


def foldcli(*arguments: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_foldcli([*arguments, "--threads", 1], env=env)


def test_refused_run_leaves_no_folder(
    query: Path, network: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    missing, out = tmp_path / "missing", tmp_path / "runs" / "out"
    refused = (
        ("no network parameters", "predict", query, "--params", missing, "-o", out),
        ("af3.bin.zst does not exist", "predict", query, "--params", tmp_path / "af3.bin.zst", "-o", out),
        ("no such database", "fold", query, "--params", network, "--db", missing, "-o", out),
        ("no such database", "search", query, missing, "--format", "a3m", "-o", out, "--save-profile", out),
        ("no such database", "cache-features", query, "--db", missing, "--cache", out),
    )
    for reason, *arguments in refused:
        result = foldcli(*arguments, env=fresh_environment)
        assert result.returncode == 4 and reason in result.stderr
        assert not out.parent.exists()


def test_every_output_names_network_templates_and_expected_accuracy(
    network: Path, query: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = foldcli("fold", query, "--params", network, "-o", out, "--no-plots", env=fresh_environment)
    assert result.returncode == 0, result.stderr
    done = json.loads((out / "ubi" / "ubi.done.json").read_text())
    facts = done["facts"]["network"]
    note = facts["note"]
    network_note = (
        "Network tiny 2026.11.23-10, trained on random numbers; weights under CC BY 4.0. "
        "Side chains beyond CB were not trained. "
    )
    assert note.startswith(f"{network_note}Templates: PDB ")
    expected = "Expected lDDT-CA 37 to 85 (10th to 90th percentile of single proteins; mean 61), as of 150"
    assert expected in note
    assert facts["templates"] == [template["id"] for template in done["facts"]["templates"][:2]]
    assert facts["expected_lddt"]["lddt"] == 61
    # what holds for all targets is said once
    assert f"ubi: {note.removeprefix(network_note)}" in result.stderr
    assert result.stderr.count(network_note.strip()) == 1
    # sizes of the network's manifest, and no PAE
    assert done["settings"]["predict"]["num_recycle"] == 1
    assert done["settings"]["predict"]["max_seq"] == 16
    assert done["settings"]["predict"]["max_extra_seq"] == 24
    model = out / "ubi" / "ubi_unrelaxed_rank_001_tiny_seed_000.pdb"
    remarks = " ".join(
        line[11:].strip() for line in model.read_text().splitlines() if line.startswith("REMARK   6")
    )
    assert note in remarks
    assert note in " ".join(model.with_suffix(".cif").read_text().split())
    scores = json.loads((out / "ubi" / "ubi_scores_rank_001_tiny_seed_000.json").read_text())
    assert scores["network"] == note
    assert "ptm" not in scores and "pae" not in scores
    assert note in (out / "ubi" / "ubi.html").read_text()
    again = foldcli("fold", query, "--params", network, "-o", out, "--no-plots", env=fresh_environment)
    assert "1 finished before" in again.stderr


def test_predictions_without_templates_say_so(
    network: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.a3m").write_text(">q\nMKVLAAGIV\n>hit\nMKV-AAGIV\n")
    options = ("--params", network, "--no-templates", "--num-recycle", 0, "--no-report", "--no-plots")
    result = foldcli("predict", tmp_path / "t.a3m", *options, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 0, result.stderr
    facts = json.loads((tmp_path / "out" / "t" / "t.done.json").read_text())["facts"]["network"]
    assert (facts["templates"], facts["effective_sequences"]) == ([], 1.0)
    # 9 residues and no recycles were not measured
    assert facts["expected_lddt"] is None
    unmeasured = "--num-recycle 0 and 9 residues (but with 40 to 512)"
    assert facts["note"].endswith(f"No templates. The accuracy was not measured with {unmeasured}.")


def test_nothing_is_expected_of_templates_of_the_user(
    network: Path, query: Path, fresh_environment: dict[str, str], root: Path, tmp_path: Path
) -> None:
    structure = root / "tests/features/templates/data/1gbt.cif.gz"
    (chain,) = read_chains(structure)
    query.write_text(f">ubi\n{chain.sequence[:90]}\n")
    options = ("--params", network, "--custom-template-path", structure, "--no-plots", "--no-report")
    result = foldcli("fold", query, *options, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 0, result.stderr
    facts = json.loads((tmp_path / "out/ubi/ubi.done.json").read_text())["facts"]["network"]
    assert facts["templates"] and facts["expected_lddt"] is None
    assert "The accuracy was not measured with templates of your own." in facts["note"]


@pytest.mark.slow
def test_files_of_every_network_are_archived_and_replaced(
    network: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.a3m").write_text(">t\nMKVLAAGIVPW\n>hit\nMKV-AAGIVPW\n")
    out = tmp_path / "out"
    options = ("--params", network, "--no-templates", "--num-recycle", 0, "--num-seeds", 2, "--no-plots")

    def predict(name: str, *more: str) -> None:
        write_manifest(network, replace(read_manifest(network), name=name))
        result = foldcli(
            "predict", tmp_path / "t.a3m", *options, *more, "-o", out, "--zip", env=fresh_environment
        )
        assert result.returncode == 0, result.stderr

    for name, more in (("compact", []), ("Any_name2", ["--overwrite"])):
        predict(name, *more)
        models = [path.name for path in (out / "t").glob("*_rank_*")]
        assert len(models) == 6 and all(f"_{name}_seed_00" in model for model in models)
        with zipfile.ZipFile(out / "t" / "t.result.zip") as archive:
            assert set(models) <= {Path(member).name for member in archive.namelist()}
        page = (out / "t" / "t.html").read_text()
        assert f"{name}, seed 0" in page and f"{name}, seed 1" in page
    assert "compact, seed" not in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masked_fraction", "rows", "equal"), [(0.0, 14, True), (0.15, 14, False), (0.0, 15, False)]
)
def test_seeds_that_make_no_difference_are_named(
    masked_fraction: float,
    rows: int,
    equal: bool,
    network: Path,
    fresh_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    manifest = read_manifest(network)  # 16 rows, of which two are templates
    inputs = replace(manifest.inputs, masked_fraction=masked_fraction)
    write_manifest(network, replace(manifest, inputs=inputs))
    sequences = [f"{'A' * k}MKVLAAGIVPWMKVL"[:15] for k in range(rows)]
    (tmp_path / "t.a3m").write_text("".join(f">s{k}\n{sequence}\n" for k, sequence in enumerate(sequences)))
    options = ("--params", network, "--no-templates", "--num-recycle", 0, "--num-seeds", 2, "--no-report")
    result = foldcli(
        "predict", tmp_path / "t.a3m", *options, "--no-plots", "-o", tmp_path / "out", env=fresh_environment
    )
    assert result.returncode == 0, result.stderr
    done = json.loads((tmp_path / "out" / "t" / "t.done.json").read_text())
    message = f"all seeds give the same structure, because the network reads all {rows} rows"
    assert any(warning.startswith(message) for warning in done["warnings"]) == equal
    assert (message in result.stderr) == equal
    first, second = (entry["plddt"] for entry in done["ranking"])
    assert (abs(first - second) < 1e-3) == equal


def test_structures_are_refined_unless_that_is_turned_off(
    network: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.a3m").write_text(">q\nMKVLAAGIVPW\n>hit\nMKV-AAGIVPW\n")
    options = ("--params", network, "--no-templates", "--num-recycle", 0, "--no-report", "--no-plots")
    bonds = {}
    for name, choice in (("refined", []), ("raw", ["--no-refine"])):
        out = tmp_path / name
        result = foldcli("predict", tmp_path / "t.a3m", *options, *choice, "-o", out, env=fresh_environment)
        assert result.returncode == 0, result.stderr
        predict = json.loads((out / "t" / "t.done.json").read_text())["settings"]["predict"]
        assert predict.get("refine", False) == (name == "refined")
        (path,) = (out / "t").glob("*_rank_001_*.pdb")
        assert (", refined" in path.read_text()) == (name == "refined")
        residues = list(gemmi.read_structure(str(path))[0][0])
        bonds[name] = [first["C"][0].pos.dist(second["N"][0].pos) for first, second in pairwise(residues)]
    assert bonds["refined"] == pytest.approx([1.33] * 10, abs=0.1)
    assert bonds["raw"] != pytest.approx([1.33] * 10, abs=0.5)
    # the other choice is another result
    result = foldcli(
        "predict",
        tmp_path / "t.a3m",
        *options,
        "--no-refine",
        "-o",
        tmp_path / "refined",
        env=fresh_environment,
    )
    assert "finished before" not in result.stderr


@pytest.mark.slow
def test_plddt_is_calibrated(network: Path, fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.a3m").write_text(">q\nMKVLAAGIVPW\n>hit\nMKV-AAGIVPW\n")

    def predict(name: str) -> subprocess.CompletedProcess[str]:
        options = ("--params", network, "--no-templates", "--num-recycle", 1, "--save-recycles")
        options += ("--no-report", "--no-plots", "-o", tmp_path / name)
        return foldcli("predict", tmp_path / "t.a3m", *options, env=fresh_environment)

    plddts = []
    for name, shift in (("raw", 0.0), ("calibrated", -1.0)):
        write_manifest(network, replace(read_manifest(network), plddt_shift=shift))
        result = predict(name)
        assert result.returncode == 0, result.stderr
        (scores,) = (tmp_path / name / "t").glob("*_scores_*.json")
        (early,) = (tmp_path / name / "t").glob("*.r0.pdb")
        chain = gemmi.read_structure(str(early))[0][0]
        plddts.append((json.loads(scores.read_text())["plddt"], [residue[0].b_iso for residue in chain]))
    for raw, calibrated in zip(*plddts, strict=True):
        odds = [math.exp(-1) * value / (100 - value) for value in raw]
        assert calibrated == pytest.approx([100 * odd / (1 + odd) for odd in odds], abs=0.02)
    # the calibration is part of what a result was made with
    result = predict("raw")
    assert result.returncode == 3 and "made with other network parameters" in result.stderr


def test_untrained_networks_warn(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    write_packaged_network(tmp_path / "network", tiny_network())
    (tmp_path / "t.a3m").write_text(">q\nMKVLAAGIV\n>hit\nMKV-AAGIV\n")
    options = ("--params", tmp_path / "network", "--no-templates", "--num-recycle", 0, "--no-plots")
    result = foldcli("predict", tmp_path / "t.a3m", *options, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 0, result.stderr
    assert "Network tiny 2026.11.23-10, not trained; weights under CC BY 4.0." in result.stderr
    (scores,) = (tmp_path / "out" / "t").glob("*_scores_*.json")
    content = json.loads(scores.read_text())
    assert content["untrained"] is True and content["warning"] in result.stderr
    assert "Untrained parameters: this is not a prediction." in (tmp_path / "out/t/t.html").read_text()


@pytest.mark.parametrize("command", ["fold", "predict"])
def test_damaged_weights_are_one_line(
    command: str, network: Path, query: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    weights = network / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (tmp_path / "t.a3m").write_text(">q\nMKVLAAGIV\n")
    target = query if command == "fold" else tmp_path / "t.a3m"
    result = foldcli(command, target, "--params", network, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 3
    assert result.stderr.splitlines()[-1].endswith(
        f"{weights}: damaged: its SHA-256 differs from the one in network.json"
    )


def test_complexes_are_refused(network: Path, fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "complex.fasta").write_text(">pair\nMKVLAAGIVMKVL:MKVLAAGIVMKV\n")
    result = foldcli(
        "fold", tmp_path / "complex.fasta", "--params", network, "-o", tmp_path / "out", env=fresh_environment
    )
    assert result.returncode in (3, 5)
    assert "a complex of several chains: the network tiny predicts single chains only" in result.stderr


@pytest.mark.skipif(COMPACT_FOLDER.exists(), reason="the package contains the compact network")
def test_installations_without_the_compact_network_say_so(
    query: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    result = foldcli("fold", query, "--params", "compact", "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 4
    error = "foldcli: error: this installation does not contain the compact network"
    assert error in result.stderr.splitlines()


@pytest.mark.skipif(not COMPACT_FOLDER.exists(), reason="the package does not contain the compact network")
def test_compact_network_predicts_without_other_parameters(
    query: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    without = {name: value for name, value in fresh_environment.items() if name != "FOLDCLI_PARAMS"}
    query.write_text(f">ubi\n{UBIQUITIN[:40]}\n")
    options = ("--num-recycle", 0, "--no-report", "--no-plots")
    result = foldcli("fold", query, *options, "-o", tmp_path / "out", env=without)
    assert result.returncode == 0, result.stderr
    message = "no network parameters are installed, so the compact network predicts (--params compact)"
    assert message in result.stderr and "without --db" in result.stderr
    facts = json.loads((tmp_path / "out/ubi/ubi.done.json").read_text())["facts"]
    # the library has a chain with the query's sequence
    assert facts["network"]["templates"][0] == "3k9o_B"
    # it was measured with two recycles
    assert facts["network"]["expected_lddt"] is None


def test_name_that_cannot_be_part_of_file_names_is_refused(
    network: Path, query: Path, fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    path = network / "network.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"name": "../x"}))
    result = foldcli("fold", query, "--params", network, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 3
    assert "damaged manifest: its name or configuration cannot be used" in result.stderr
