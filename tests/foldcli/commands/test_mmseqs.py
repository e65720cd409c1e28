"""Databases written by mmseqs: searched, converted or refused; skipped if mmseqs is not installed."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foldcli.inputs.queries import read_queries
from msa.database.database import TargetDatabase
from msa.mmseqs.database import open_mmseqs
from msa.mmseqs.files import PROFILES
from tests.command_process import foldcli

pytestmark = pytest.mark.slow

FOLDCLI = [sys.executable, "-m", "foldcli"]
RunMmseqs = Callable[..., str]


@pytest.fixture(scope="session")
def mmseqs() -> Callable[..., str]:
    """Return a function that runs mmseqs and returns its output."""
    program = shutil.which("mmseqs")
    if program is None:
        pytest.skip("mmseqs is not installed")

    def run(*arguments: object) -> str:
        result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture(scope="session")
def require_command(mmseqs: RunMmseqs) -> Callable[[str], None]:
    """Return a function that skips the test if this version of mmseqs lacks a command."""

    def require(command: str) -> None:
        help_text = subprocess.run(
            [str(shutil.which("mmseqs")), command, "-h"], capture_output=True, text=True
        )
        if f"usage: mmseqs {command}" not in help_text.stdout:
            pytest.skip(f"this mmseqs has no {command}")

    return require


@pytest.fixture
def folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder with a query and demo.fasta, limited to letters that padded databases can store."""
    records = (root / "examples" / "demo.fasta").read_text().split(">")[1:]
    kept = [r for r in records if not set("".join(r.split("\n")[1:])) & set("BZJUO*")]
    (tmp_path / "demo.fasta").write_text(">" + ">".join(kept))
    shutil.copy(root / "examples" / "ubiquitin.fasta", tmp_path / "query.fasta")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    return tmp_path


def hits(database: str) -> str:
    """Return the table of hits of a search with a high E-value limit, including ties and false positives."""
    settings = ["-e", "10000", "--max-seqs", "60", "--num-iterations", "2"]
    result = foldcli("search", "query.fasta", database, "-o", "-", *settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") > 30
    return result.stdout


def without_evalues(table: str) -> list[list[str]]:
    """Return sorted rows without E-values, which depend on the order of targets of equal length."""
    return sorted(line.split("\t")[:10] for line in table.splitlines())


def error_of(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 3, result.stderr
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("foldcli: error: "))
    return line.removeprefix("foldcli: error: ")


def test_database_in_fasta_order_gives_the_hits_of_the_fasta_file(folder: Path, mmseqs: RunMmseqs) -> None:
    mmseqs("createdb", "demo.fasta", "plain", "--shuffle", "0")
    mmseqs("createdb", "demo.fasta", "linked", "--createdb-mode", "1")
    expected = hits("demo.fasta")
    assert hits("plain") == hits("linked") == expected
    # the databases built from all three are equal and reused
    first = foldcli("search", "query.fasta", "plain", "-o", "-")
    assert "converting" not in first.stderr
    built = {
        str(TargetDatabase.open(path).manifest.checksums) for path in (folder / "cache/databases").iterdir()
    }
    assert len(built) == 1


def test_shuffled_database_gives_the_hits_of_its_fasta_export(folder: Path, mmseqs: RunMmseqs) -> None:
    mmseqs("createdb", "demo.fasta", "shuffled")
    mmseqs("convert2fasta", "shuffled", "shuffled.fasta")
    assert (folder / "shuffled.fasta").read_text() != (folder / "demo.fasta").read_text()
    assert hits("shuffled") == hits("shuffled.fasta")
    assert without_evalues(hits("shuffled")) == without_evalues(hits("demo.fasta"))


def test_padded_database_gives_the_hits_of_its_fasta_export(
    folder: Path, mmseqs: RunMmseqs, require_command: Callable[[str], None]
) -> None:
    require_command("makepaddedseqdb")
    mmseqs("createdb", "demo.fasta", "shuffled")
    mmseqs("makepaddedseqdb", "shuffled", "padded")
    mmseqs("convert2fasta", "padded", "padded.fasta")
    assert hits("padded") == hits("padded.fasta")
    assert without_evalues(hits("padded")) == without_evalues(hits("demo.fasta"))


def test_createdb_from_mmseqs(folder: Path, mmseqs: RunMmseqs) -> None:
    mmseqs("createdb", "demo.fasta", "plain", "--shuffle", "0")
    result = foldcli("createdb", "--from-mmseqs", "plain", "-o", "from_mmseqs")
    assert result.returncode == 0, result.stderr
    assert foldcli("createdb", "demo.fasta", "-o", "from_fasta").returncode == 0
    manifest = TargetDatabase.open("from_mmseqs").manifest
    assert manifest.checksums == TargetDatabase.open("from_fasta").manifest.checksums
    size = (folder / "demo.fasta").stat().st_size
    info = foldcli("createdb", "--info", "from_mmseqs").stdout
    assert f"plain (MMseqs2 database), {manifest.inputs[0]['bytes']:,} bytes of FASTA" in info
    assert manifest.inputs[0]["bytes"] <= size
    assert foldcli("createdb", "demo.fasta", "--from-mmseqs", "plain", "-o", "x").returncode == 2
    again = foldcli("createdb", "--from-mmseqs", "plain", "-o", "from_mmseqs")
    assert "already exists" in error_of(again)


def test_compressed_databases_are_refused_with_a_remedy(folder: Path, mmseqs: RunMmseqs) -> None:
    mmseqs("createdb", "demo.fasta", "compressed", "--compressed", "1", "--shuffle", "0")
    reason = error_of(foldcli("search", "query.fasta", "compressed", "-o", "-"))
    assert reason.startswith(
        "compressed: a compressed MMseqs2 database: run `mmseqs decompress compressed compressed_plain"
    )
    for command in reason.split("`")[1].split(" && "):
        mmseqs(*command.split()[1:])
    assert hits("compressed_plain") == hits("demo.fasta")


def test_other_database_types_are_refused(folder: Path, mmseqs: RunMmseqs) -> None:
    (folder / "dna.fasta").write_text(">n\nACGTACGTACGTACGTACGTACGT\n")
    mmseqs("createdb", "dna.fasta", "dna")
    mmseqs("createdb", "demo.fasta", "plain")
    mmseqs("search", "plain", "plain", "found", "tmp", "-a", "-s", "1")
    mmseqs("result2profile", "plain", "plain", "found", "profiles")
    mmseqs("clust", "plain", "found", "clusters")
    refused = {
        "dna": "holds nucleotides",
        "found": "holds alignments",
        "profiles": "holds profiles",
        "clusters": "holds clusters",
        "plain_h": "holds text such as headers",
    }
    for name, reason in refused.items():
        assert f"{name}: this MMseqs2 database {reason}" in error_of(
            foldcli("search", "query.fasta", name, "-o", "-")
        )


def test_sequence_and_profile_databases_as_queries(folder: Path, mmseqs: RunMmseqs) -> None:
    """Profile scores equal those that mmseqs prints, and profiles find almost all hits of the sequences."""
    mmseqs("createdb", "demo.fasta", "plain", "--shuffle", "0")
    mmseqs("search", "plain", "plain", "found", "tmp", "-a")
    mmseqs("result2profile", "plain", "plain", "found", "profiles")
    mmseqs("profile2pssm", "profiles", "pssm", "--db-output", "0")
    queries = read_queries("profiles")
    assert [(q.header, q.sequence) for q in queries] == [
        (q.header, q.sequence) for q in read_queries("demo.fasta")
    ]
    printed = re.split(r"Query profile of sequence (\d+)\n", (folder / "pssm").read_text())[1:]
    entries, _ = open_mmseqs("profiles", PROFILES)
    (chunk,) = entries.chunks()
    for key, table in zip(map(int, printed[::2]), printed[1::2], strict=True):
        rows = [line.split()[2:] for line in table.replace("\0", "").strip().split("\n")[1:]]
        content = np.empty(int(chunk.lengths[key]), np.uint8)
        entries.copy(chunk[key : key + 1], content, np.zeros(1, np.int64), np.arange(256, dtype=np.int16))
        scores = content.view(np.int8).reshape(-1, 25)[:, :20]
        np.testing.assert_array_equal(np.trunc(scores / 4), np.array(rows, float))

    sequences = foldcli("search", "plain", "demo.fasta", "-o", "-")
    assert sequences.stdout == foldcli("search", "demo.fasta", "demo.fasta", "-o", "-").stdout
    # the profiles are those of BLOSUM62
    matrix = ("--matrix", "BLOSUM62")
    sequences = foldcli("search", "plain", "demo.fasta", "-o", "-", *matrix)
    profiles = foldcli("search", "profiles", "demo.fasta", "-o", "-", "-v", *matrix)
    assert "UBIQ_HUMAN: searching with the profile of an entry of profiles" in profiles.stderr
    pairs = [{tuple(line.split("\t")[:2]) for line in r.stdout.splitlines()} for r in (profiles, sequences)]
    assert len(pairs[0]) > len(pairs[1]) and len(pairs[1] - pairs[0]) < len(pairs[1]) / 50


def test_databases_written_by_tsv2exprofiledb(
    folder: Path, mmseqs: RunMmseqs, require_command: Callable[[str], None]
) -> None:
    """ColabFold's setup script writes its databases with this command: two clusters with alignments."""
    require_command("tsv2exprofiledb")
    one, two = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQ", "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNG"
    entries = {0: one, 1: one[:-1], 2: one[1:], 3: two, 4: two[:-2]}
    (folder / "u_seq.tsv").write_text("".join(f"{key}\t{s}\n" for key, s in entries.items()))
    (folder / "u.tsv").write_text(f"0\t{one}\n3\t{two}\n")
    (folder / "u_h.tsv").write_text("".join(f"{key}\tU{key} member {key}\n" for key in entries))
    lines = [f"{key}\t{key}\t99\t1.000\t1E-20\t0\t9\t10\t0\t9\t10\t10M\n" for key in (0, 3)]
    (folder / "u_aln.tsv").write_text("".join(lines))
    mmseqs("tsv2exprofiledb", "u", "compressed")
    assert "compressed" in error_of(foldcli("createdb", "--from-mmseqs", "compressed_seq", "-o", "x"))
    try:
        mmseqs("tsv2exprofiledb", "u", "u_db", "--gpu", "1")
    except AssertionError as error:
        pytest.skip(f"this mmseqs writes no databases for GPUs: {error}")
    assert "holds alignments" in error_of(foldcli("createdb", "--from-mmseqs", "u_db_aln", "-o", "x"))
    for name, keys in (("u_db_seq", list(entries)), ("u_db", [0, 3])):
        assert foldcli("createdb", "--from-mmseqs", name, "-o", f"{name}.out").returncode == 0
        database = TargetDatabase.open(f"{name}.out")
        found = {database.header(k): database.sequence(k) for k in range(len(database))}
        assert found == {f"U{key} member {key}": entries[key] for key in keys}
