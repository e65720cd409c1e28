"""Tests of `foldcli search` with profiles: alignments as queries, --save-profile and --profile."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.command_process import run_foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
LIMITS = ("-e", "10", "--max-seqs", "60")


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a database of the bundled sequences."""
    database = tmp_path_factory.mktemp("profiles") / "db"
    subprocess.run(
        [*FOLDCLI, "createdb", str(root / "examples/demo.fasta"), "-o", str(database), "-q"], check=True
    )
    return database


@pytest.fixture
def folder(root: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with the database and two queries, one of them without relatives."""
    (tmp_path / "db").symlink_to(built)
    ubiquitin = (root / "examples/ubiquitin.fasta").read_text()
    (tmp_path / "queries.fasta").write_text(f"{ubiquitin}>alone\nMKWVTFWWLLWLFWSAYSRGVFRRDCHKCEVAHRFK\n")
    (tmp_path / "ubiquitin.fasta").write_text(ubiquitin)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    result = run_foldcli(["search", *arguments], input=stdin)
    assert "Traceback" not in result.stderr
    return result


def search(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    result = run(*arguments, stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.slow
@pytest.mark.parametrize("iterations", ["1", "2", "3"])
def test_saved_profile_finds_the_hits_of_the_last_iteration(folder: Path, iterations: str) -> None:
    options = ("db", "-o", "-", *LIMITS)
    iterated = search(
        "queries.fasta", *options, "--num-iterations", iterations, "--save-profile", "p.npz"
    ).stdout
    assert len({line.split("\t")[0] for line in iterated.splitlines()}) == 2
    assert (iterated != search("queries.fasta", *options).stdout) == (iterations != "1")
    again = search("--profile", "p.npz", *options, "-v")
    assert again.stdout == iterated
    assert "UBIQ_HUMAN: searching with the profile of an earlier search, saved in p.npz" in again.stderr
    assert search("p.npz", *options).stdout == iterated
    assert search("-", *options, stdin=(folder / "p.npz").read_bytes()).stdout == iterated


@pytest.mark.slow
def test_saved_profiles_are_combined_with_queries_and_iterations(folder: Path) -> None:
    search(
        "ubiquitin.fasta", "db", "-o", "two.m8", *LIMITS, "--num-iterations", "2", "--save-profile", "p.npz"
    )
    three = search("ubiquitin.fasta", "db", "-o", "-", *LIMITS, "--num-iterations", "3").stdout
    assert search("--profile", "p.npz", "db", "-o", "-", *LIMITS, "--num-iterations", "2").stdout == three
    both = search("ubiquitin.fasta", "db", "--profile", "p.npz", "-o", "-", *LIMITS).stdout
    # the profile has the id of the query
    renamed = re.sub(r"^UBIQ_HUMAN\t", "UBIQ_HUMAN_2\t", (folder / "two.m8").read_text(), flags=re.MULTILINE)
    assert both == search("ubiquitin.fasta", "db", "-o", "-", *LIMITS).stdout + renamed


@pytest.mark.slow
def test_alignment_of_a_search_is_the_profile_of_the_next_search(folder: Path) -> None:
    """Check that profiles use the hits up to --e-profile, which are also the rows of the alignment."""
    # without corrections, which differ between one iteration and several
    limits = (*LIMITS, "--comp-bias-corr", "0")
    members = ("ubiquitin.fasta", "db", "-e", "0.1", "--max-seqs", "60", "--num-iterations", "1")
    iterated = search("ubiquitin.fasta", "db", "-o", "-", *limits, "--num-iterations", "2").stdout
    for kind in ("a3m", "sto"):
        search(*members, "--format", kind, "-o", "out", "--comp-bias-corr", "0")
        result = search(f"out/UBIQ_HUMAN.{kind}", "db", "-o", "-", *limits, "-v")
        names = [line.split("\t", 1)[1] for line in result.stdout.splitlines()]
        assert names == [line.split("\t", 1)[1] for line in iterated.splitlines()]
        assert "searching with the profile of an alignment of" in result.stderr
    piped = search("-", "db", "-o", "-", *limits, stdin=(folder / "out/UBIQ_HUMAN.a3m").read_bytes())
    assert piped.stdout == iterated


@pytest.mark.slow
def test_each_query_gets_a_profile_and_is_searched_again_without_one(folder: Path) -> None:
    command = ("queries.fasta", "db", "-o", "out", "--format", "a3m", "--num-iterations", "2")
    search(*command)
    saving = search(*command, "--save-profile", "profiles")
    assert "already done" not in saving.stderr
    assert {path.name for path in (folder / "profiles").iterdir()} == {"UBIQ_HUMAN.npz", "alone.npz"}
    assert search(*command, "--save-profile", "profiles").stderr.count("already done") == 2
    assert search(*command).stderr.count("already done") == 2
    with np.load(folder / "profiles/alone.npz") as archive:
        assert json.loads(bytes(archive["about"]))["profiles"][0]["header"] == "alone"
    # replace the saved profile by one with other settings
    search("ubiquitin.fasta", "db", "-o", "-", "--save-profile", "profiles/UBIQ_HUMAN.npz", "--overwrite")
    redone = search(*command, "--save-profile", "profiles")
    assert "alone: already done" in redone.stderr and "UBIQ_HUMAN: already done" not in redone.stderr
    # a folder of profiles is a folder of queries
    again = ("profiles", "db", "-o", "again", "--format", "a3m", "--num-iterations", "1")
    search(*again)
    assert (folder / "again/UBIQ_HUMAN.a3m").read_bytes() == (folder / "out/UBIQ_HUMAN.a3m").read_bytes()
    # a query with another profile is searched again
    search("ubiquitin.fasta", "db", "-o", "-", "--save-profile", "profiles/UBIQ_HUMAN.npz", "--overwrite")
    changed = search(*again)
    assert "alone: already done" in changed.stderr and "UBIQ_HUMAN: already done" not in changed.stderr


def test_single_alignment_to_standard_output_saves_a_profile(folder: Path) -> None:
    search("ubiquitin.fasta", "db", "-o", "-", "--format", "a3m", "--save-profile", "p.npz")
    assert "profile_0" in np.load(folder / "p.npz").files


def test_failure_leaves_no_profile(folder: Path) -> None:
    (folder / "short.fasta").write_text(">a\nM\n")
    failed = run("ubiquitin.fasta", "short.fasta", "db", "-o", "out.m8", "--save-profile", "p.npz")
    assert failed.returncode == 3 and not (folder / "p.npz").exists() and not (folder / "out.m8").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (
            ("--profile", "queries.fasta", "db", "-o", "-"),
            3,
            "queries.fasta: not a file of profiles saved by --save-",
        ),
        (("--profile", "none.npz", "db", "-o", "-"), 3, "none.npz: no such file or directory"),
        (("--profile", "taken.npz", "-o", "-"), 2, "Missing argument 'DB'"),
        (("db", "-o", "-"), 2, "Missing argument 'DB'"),
        (("ubiquitin.fasta", "db", "-o", "-", "--save-profile", "taken.npz"), 2, "taken.npz exists"),
        (("--server", "s", "-o", "-"), 2, "Missing argument 'QUERY'"),
        (
            ("ubiquitin.fasta", "--server", "s", "-o", "-", "--save-profile", "p.npz"),
            2,
            "--save-profile: the profiles stay in the server",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    folder: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    (folder / "taken.npz").write_text("")
    result = run(*arguments)
    assert result.returncode == code and reason in result.stderr, result.stderr


@pytest.mark.slow
def test_bad_alignment_does_not_stop_the_others(folder: Path) -> None:
    (folder / "bad.a3m").write_text(">a\nMKV\n>b\nMK-VL\n")
    result = run("bad.a3m", "ubiquitin.fasta", "db", "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    (failure,) = map(json.loads, (folder / "out/failures.jsonl").read_text().splitlines())
    assert failure["target"] == "bad.a3m"
    assert failure["error"].startswith("bad.a3m:3: gaps or insertions make this an alignment, but row 2 (b)")
    assert (folder / "out/UBIQ_HUMAN.a3m").exists()
