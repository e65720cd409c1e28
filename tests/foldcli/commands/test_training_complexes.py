"""`foldcli training-data --molecules`: structure files become complexes that all-atom networks train on."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from features.training.complexes import ComplexSet
from tests.command_process import run_foldcli

NAMES = ["1as5.cif.gz", "1lcd.cif.gz", "4cup.cif.gz"]


@pytest.fixture(scope="module")
def structures(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three entries and a broken file."""
    folder = tmp_path_factory.mktemp("structures")
    for name in NAMES:
        shutil.copy(root / "tests/features/templates/data" / name, folder)
    (folder / "broken.cif").write_text("hello\n")
    return folder


def make(*arguments: object) -> "subprocess.CompletedProcess[str]":
    result = run_foldcli(["training-data", "--molecules", *arguments])
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def complexes(structures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make training data."""
    out = tmp_path_factory.mktemp("complexes") / "out"
    result = make(structures, "-o", out)
    assert result.returncode == 5
    assert "broken.cif: neither an mmCIF nor a PDB file" in result.stderr
    assert "3 complexes" in result.stderr and "1 of 4 targets failed" in result.stderr
    return out


def test_a_broken_file_does_not_stop_the_others(complexes: Path, structures: Path) -> None:
    assert ComplexSet(complexes).names == NAMES
    (failure,) = (complexes / "failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["target"] == str(structures / "broken.cif")


def test_a_second_run_keeps_the_complexes(complexes: Path, structures: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(complexes, copy)
    files = [path for path in copy.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    times = {path: path.stat().st_mtime_ns for path in files if path.parent != copy}
    assert make(structures, "-o", copy).returncode == 5
    assert {path: path.read_bytes() for path in files} == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.slow
def test_shards_give_the_same_samples(complexes: Path, structures: Path, tmp_path: Path) -> None:
    shutil.copytree(complexes, tmp_path, ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    codes = [make(structures, "-o", tmp_path, "--shard", f"{index}/2").returncode for index in (1, 2)]
    assert sorted(codes) == [0, 5]
    assert ComplexSet(tmp_path).names == NAMES
    assert ComplexSet(tmp_path).chains_and_interfaces == ComplexSet(complexes).chains_and_interfaces


def test_clusters_join_proteins(complexes: Path, structures: Path, tmp_path: Path) -> None:
    names = [line[1:] for line in (complexes / "proteins.fasta").read_text().splitlines()[::2]]
    table = tmp_path / "clusters.tsv"
    table.write_text("".join(f"{names[0]}\t{name}\n" for name in names))
    shutil.copytree(complexes, tmp_path / "out")
    assert make(structures, "-o", tmp_path / "out", "--clusters", table).returncode == 5
    own, joined = (
        {each.cluster for each in ComplexSet(folder).chains_and_interfaces if len(each.chains) == 1}
        for folder in (complexes, tmp_path / "out")
    )
    assert len(names) > 1
    assert len(joined) == len(own) - len(names) + 1


def test_limits_leave_complexes_out(root: Path, complexes: Path, structures: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(complexes, copy)  # a limit also holds for complexes that exist
    result = make(structures, "-o", copy, "--max-tokens", 50)
    assert result.returncode == 5
    assert "1lcd.cif.gz: 74 tokens; at most 50 are allowed" in result.stderr
    assert ComplexSet(copy).names == ["1as5.cif.gz"]
    assert f"{len(NAMES) - 1} complexes are of an earlier run" in result.stderr
    entries = [root / f"tests/features/templates/data/{name}.cif.gz" for name in ("1a7g", "1as5")]
    result = make(*entries, "-o", tmp_path / "late", "--max-release-date", "2005-01-01")
    assert result.returncode == 0
    assert "1 released too late or at an unknown date; 0 cannot be used" in result.stderr
    assert ComplexSet(tmp_path / "late").names == ["1a7g.cif.gz"]


def test_options_without_effect_are_refused(structures: Path, tmp_path: Path) -> None:
    result = make(structures, "-o", tmp_path / "out", "--held-out", 0)
    assert result.returncode == 2 and "--held-out does not apply with --molecules" in result.stderr
    result = run_foldcli(["training-data", structures, "-o", tmp_path / "out", "--shard", "1/2"])
    assert result.returncode == 2 and "--shard needs --molecules" in result.stderr
