"""Tests of `--layout colabfold`: the names, keys, types and ranges of ColabFold's results, and no others."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_process import command_environment, run_foldcli
from tests.networks import tiny_parameters

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = [
    "--models",
    "4,3",
    "--num-recycle",
    "0",
    "--max-msa",
    "512:64",
    "--threads",
    "2",
]
NAME = "SPG1_STRSG_B1"
GB1_LENGTH = 56
# keys that exist only in the scores of untrained networks
UNTRAINED_KEYS = {"untrained", "warning"}

# file names; NAME is the target, MODEL its model, seed and rank
NAMES = {
    "NAME.a3m",
    "NAME.done.txt",
    "NAME_coverage.png",
    "NAME_pae.png",
    "NAME_plddt.png",
    "NAME_predicted_aligned_error_v1.json",
    "NAME_scores_MODEL.json",
    "NAME_unrelaxed_MODEL.pdb",
    "cite.bibtex",
    "config.json",
    "log.txt",
}
SHAPES = {
    "NAME_scores_MODEL.json": {
        "plddt": "[N] of float", "max_pae": "float", "pae": "[N, N] of float", "ptm": "float",
    },
    "NAME_predicted_aligned_error_v1.json": {
        "predicted_aligned_error": "[N, N] of float",
        "max_predicted_aligned_error": "float",
    },
}  # fmt: skip
CONFIG_KEYS = {
    "num_queries", "use_templates", "num_relax", "msa_mode", "model_type", "num_models", "num_recycles",
    "recycle_early_stop_tolerance", "num_ensemble", "model_order", "keep_existing_results", "rank_by",
    "max_seq", "max_extra_seq", "pair_mode", "pairing_strategy", "host_url", "stop_at_score", "random_seed",
    "num_seeds", "recompile_padding", "commit", "use_dropout", "use_cluster_profile", "use_fuse",
    "use_bfloat16", "version",
}  # fmt: skip


def kind_of(file: str, name: str) -> str:
    """Return a file's name with NAME for the target and MODEL for the model, seed and rank."""
    model = r"rank_\d{3}_alphafold2_ptm_model_[1-5]_seed_\d{3}"
    return re.sub(model, "MODEL", re.sub(f"^{re.escape(name)}", "NAME", file))


def shape_of(value: Any) -> str:
    if isinstance(value, list) and isinstance(value[0], list):
        square = {len(row) for row in value} == {len(value)}
        assert square and {type(each) for row in value for each in row} == {float}
        return "[N, N] of float"
    if isinstance(value, list):
        return f"[N] of {', '.join({type(each).__name__ for each in value})}"
    return type(value).__name__


def shapes_of(path: Path) -> dict[str, str]:
    return {
        key: shape_of(value)
        for key, value in json.loads(path.read_text()).items()
        if key not in UNTRAINED_KEYS
    }


def check_ranges(folder: Path, name: str) -> None:
    """Check ColabFold's rounding to two decimals, PAE (Å) up to the last bin, pLDDT (%) and B-factors."""
    paths = sorted(folder.glob(f"{name}_scores_rank_*.json"))
    for path in paths:
        scores = json.loads(path.read_text())
        flat = [value for row in scores["pae"] for value in row]
        assert min(flat) >= 0 and max(flat) == round(scores["max_pae"], 2) <= 31.75
        assert all(0 <= value <= 100 for value in scores["plddt"]) and 0 <= scores["ptm"] <= 1
        assert all(round(value, 2) == value for value in [*flat, *scores["plddt"], scores["ptm"]])
        pdb = folder / path.name.replace("_scores_", "_unrelaxed_").replace(".json", ".pdb")
        lines = [line for line in pdb.read_text().splitlines() if line.startswith("ATOM")]
        factors = {int(line[22:26]): float(line[60:66]) for line in lines}
        assert list(factors.values()) == scores["plddt"]
    means = [sum(s) / len(s) for s in (json.loads(path.read_text())["plddt"] for path in paths)]
    assert means == sorted(means, reverse=True)
    error = json.loads((folder / f"{name}_predicted_aligned_error_v1.json").read_text())
    best = json.loads(paths[0].read_text())
    assert error == {"predicted_aligned_error": best["pae"], "max_predicted_aligned_error": best["max_pae"]}
    assert (folder / f"{name}.done.txt").read_bytes() == b""


def fold(root: Path, out: Path, *more: str, cache: Path) -> str:
    command = ["fold", root / "examples/gb1.fasta", "--db", root / "examples/demo.fasta"]
    command += [*QUICK, "--layout", "colabfold", "-o", out, *more]
    result = run_foldcli(command, env=command_environment(cache, FOLDCLI_PARAMS=tiny_parameters()))
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def result(root: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("flat")
    fold(root, out, cache=cache)
    return out


def test_files_and_keys_are_as_listed(result: Path) -> None:
    assert {path.name for path in result.iterdir() if path.is_dir()} == {"foldcli"}
    files = [path for path in result.iterdir() if path.is_file()]
    assert {kind_of(path.name, NAME) for path in files} == NAMES | {"summary.tsv"}
    assert sum("_scores_rank_" in path.name for path in files) == 2
    for path in files:
        kind = kind_of(path.name, NAME)
        if kind in SHAPES:
            assert shapes_of(path) == SHAPES[kind]
    config = json.loads((result / "config.json").read_text())
    assert set(config) == CONFIG_KEYS
    assert (config["model_order"], config["num_models"], config["num_recycles"]) == ([4, 3], 2, 0)
    assert (config["rank_by"], config["max_extra_seq"], config["use_bfloat16"]) == ("plddt", 64, False)
    check_ranges(result, NAME)
    first, second = (result / f"{NAME}.a3m").read_text().splitlines()[:2]
    assert first == f"#{GB1_LENGTH}\t1" and second.startswith(f">{NAME}")
    assert "10.1038/s41586-021-03819-2" in (result / "cite.bibtex").read_text()
    lines = (result / "log.txt").read_text().splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    for expected in (
        "SPG1_STRSG_B1: 56 residues, .*",
        r"Query 1/1: SPG1_STRSG_B1 \(length 56\)",
        r"alphafold2_ptm_model_4_seed_000 took [\d.]+s \(0 recycles\)",
        "reranking models by 'plddt' metric",
        r"rank_001_alphafold2_ptm_model_[34]_seed_000 pLDDT=[\d.]+ pTM=[\d.]+",
    ):
        assert any(re.fullmatch(time + expected, line) for line in lines), expected


def test_listed_files_and_keys_match_a_result_of_colabfold(shared_dir: Path) -> None:
    (real,) = (path for path in (shared_dir / "data/colabfold_result").iterdir() if path.is_dir())
    (alignment,) = real.glob("*.a3m")
    name = alignment.stem
    # the CSV file was the input of ColabFold
    kinds = {kind_of(path.name, name): path for path in real.iterdir() if path.suffix != ".csv"}
    assert set(kinds) == NAMES
    assert {kind: shapes_of(kinds[kind]) for kind in SHAPES} == SHAPES
    assert set(json.loads((real / "config.json").read_text())) == CONFIG_KEYS
    check_ranges(real, name)
    assert re.match(r"#\d+\t1\n>", alignment.read_text())


def test_settings_have_the_types_of_colabfold(result: Path, shared_dir: Path) -> None:
    (real,) = (shared_dir / "data/colabfold_result").glob("*/config.json")
    theirs, ours = json.loads(real.read_text()), json.loads((result / "config.json").read_text())
    # ColabFold writes null for settings left to the model; foldcli writes numbers, and has no commit
    free = {"num_recycles", "recycle_early_stop_tolerance", "commit"}
    differing = {key for key in theirs if type(theirs[key]) is not type(ours[key])}
    assert differing <= free


@pytest.mark.slow
def test_additional_files_are_in_a_separate_folder_and_mark_the_target_as_finished(
    root: Path, cache: Path, result: Path
) -> None:
    additional_folder = result / "foldcli" / NAME
    kinds = {kind_of(path.name, NAME) for path in additional_folder.iterdir()}
    additional = {"NAME.m8", "NAME.done.json", "NAME_unrelaxed_MODEL.cif", "NAME.html", "NAME_thumbnail.png"}
    additional |= {"NAME.cxc", "NAME.pml"}
    assert kinds == additional
    links = re.findall(r'href="([^"#]+\.(?:pdb|cif|json))"', (additional_folder / f"{NAME}.html").read_text())
    # three files of each model, and done.json
    assert len(set(links)) == 7 and all((additional_folder / link).is_file() for link in links)
    before = {path: path.stat().st_mtime_ns for path in result.rglob("*") if NAME in path.name}
    assert "already done" in fold(root, result, cache=cache)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # a further model is added, and the search is not repeated
    stored = {path: path.stat().st_mtime_ns for path in cache.rglob("chain.a3m.gz")}
    alignment = (result / f"{NAME}.a3m").read_bytes()
    fold(root, result, "--models", "5", cache=cache)
    assert {path.name.split("model_")[1][0] for path in result.glob("*.pdb")} == {"3", "4", "5"}
    assert len(list(result.glob("*_scores_*.json"))) == 3
    assert stored and {path: path.stat().st_mtime_ns for path in stored} == stored
    assert (result / f"{NAME}.a3m").read_bytes() == alignment
    check_ranges(result, NAME)


@pytest.mark.slow
def test_predict_reads_the_alignments_in_its_own_results(cache: Path, tmp_path: Path) -> None:
    for name in "qr":
        (tmp_path / f"{name}.a3m").write_text(f">{name}\nMKVLAAGIV\n>hit 1\nMKV-AAGiIV\n")
    command = ["predict", *QUICK, "--layout", "colabfold"]
    for folder, out in ((tmp_path, tmp_path / "one"), (tmp_path / "one", tmp_path / "two")):
        done = run_foldcli(
            [*command, folder / "q.a3m", folder / "r.a3m", "-o", out],
            env=command_environment(cache, FOLDCLI_PARAMS=tiny_parameters()),
        )
        assert done.returncode == 0, done.stderr
        files = [path.name for path in out.iterdir() if path.is_file()]
        # a run of several targets has an index page
        kinds = {kind_of(file, file[0] if file[0] in "qr" else "q") for file in files}
        assert kinds == NAMES | {"index.html", "summary.tsv"}
        for name in "qr":
            assert (out / f"{name}.a3m").read_text() == f"#9\t1\n>{name}\nMKVLAAGIV\n>hit 1\nMKV-AAGiIV\n"
            check_ranges(out, name)
        index = (out / "index.html").read_text()
        assert all(f'href="foldcli/{name}/{name}.html"' in index for name in "qr")
