"""`foldcli createdb` in subprocesses, including interrupted and killed ones."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from msa.database.database import TargetDatabase
from tests.command_process import run_foldcli

FOLDCLI = [sys.executable, "-m", "foldcli", "createdb"]


def createdb(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    result = run_foldcli(["createdb", *arguments], **options)
    assert "Traceback" not in result.stderr
    return result


def error_of(result: subprocess.CompletedProcess[str]) -> str:
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("foldcli: error: "))
    return line.removeprefix("foldcli: error: ")


@pytest.fixture(scope="module")
def demo(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a database of the bundled sequences."""
    out = tmp_path_factory.mktemp("createdb") / "new" / "demo"
    result = createdb(root / "examples" / "demo.fasta", "-o", out, "--threads", "2")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert os.listdir(out.parent) == ["demo"]
    return out


def test_database_contains_the_bundled_sequences(root: Path, demo: Path) -> None:
    text = (root / "examples" / "demo.fasta").read_text()
    database = TargetDatabase.open(demo)
    assert len(database) == text.count(">")
    assert sorted(database.header(i) for i in range(len(database))) == sorted(
        re.findall(r"^>(.*)$", text, re.M)
    )


def test_info_prints_the_manifest(demo: Path) -> None:
    manifest = TargetDatabase.open(demo).manifest
    result = createdb("--info", demo)
    assert result.returncode == 0
    rows = {line[:15].strip(): line[16:] for line in result.stdout.splitlines()}
    assert rows["sequences"] == f"{manifest.sequences:,}"
    assert rows["residues"] == f"{manifest.residues:,}"
    assert rows["format version"] == "1"
    assert f"50% {manifest.length_quantiles['0.5']}" in rows["length"]
    assert rows["masking"].startswith("tantan (start 0.005, end 0.05, periods 50, decay 0.9, threshold 0.5)")
    assert "numba" in rows["built by"]
    assert rows["input"].startswith("demo.fasta, ")
    as_json = createdb("--info", demo, "--json")
    assert json.loads(as_json.stdout) == json.loads((demo / "manifest.json").read_text())


def test_verify_detects_damage(demo: Path, tmp_path: Path) -> None:
    result = createdb("--verify", demo)
    assert result.returncode == 0
    assert "all checksums match" in result.stderr
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in demo.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    with (copy / "residues.u8").open("rb+") as stream:
        stream.seek(100)
        stream.write(b"\xff")
    result = createdb("--verify", copy)
    assert result.returncode == 3
    assert error_of(result) == f"{copy}/residues.u8: damaged: its SHA-256 differs from the manifest's"
    os.truncate(copy / "residues.u8", 100)
    for option in ("--verify", "--info"):
        result = createdb(option, copy)
        assert result.returncode == 3
        assert "residues.u8: damaged database: truncated" in error_of(result)


def test_several_inputs_with_unusual_content_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_bytes(gzip.compress(b">a\nMKV*\n>b\n\n>c\nac-d*e\n", mtime=0))
    result = subprocess.run(
        [*FOLDCLI, tmp_path / "a.fasta", "-", "-o", tmp_path / "db"],
        input=b">a\r\nMKVL\r\n",
        capture_output=True,
        check=True,
    )
    log = result.stderr.decode()
    for remark in (
        "records without a sequence, left out: 1",
        "gap characters ('-' or '.'), removed: 1",
        "stop codons ('*') inside sequences, replaced by X: 1",
        "stop codons ('*') at the end of sequences, removed: 1",
        "lower-case letters, converted to upper case: 4",
        "sequences with the id of an earlier one, kept: 1",
        "3 sequences, 12 residues",
    ):
        assert remark in log
    database = TargetDatabase.open(tmp_path / "db")
    assert [database.sequence(i) for i in range(3)] == ["MKV", "MKVL", "ACDXE"]
    assert createdb("--info", tmp_path / "db").stdout.count("remark ") == 6


def test_clustered_database_and_invalid_cluster_tables(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a x\nMKV\n>b\nMKVL\n>c\nMKVLM\n")
    (tmp_path / "a.tsv").write_text("b\ta\nb\tb\nc\tc\n")
    result = createdb("a.fasta", "--clusters", "a.tsv", "-o", "db", cwd=tmp_path)
    assert result.returncode == 0 and "3 sequences in 2 clusters, 12 residues" in result.stderr
    rows = {line[:15].strip(): line[16:] for line in createdb("--info", tmp_path / "db").stdout.splitlines()}
    assert (
        rows["clusters"] == "2 representatives, 9 residues; the largest cluster has 2 sequences; from a.tsv"
    )
    assert rows["format version"] == "2"
    assert createdb("--verify", tmp_path / "db").returncode == 0
    for table, reason in (
        ("b\ta\nb\tb\nc\tc\nc\td\n", "b.tsv:4: no sequence of the FASTA input has the id 'd'"),
        ("b\ta\nb\tb\nc\tc\nc\ta\n", "b.tsv:4: 'a' is already listed as a member"),
        ("b\ta\nb\tb\na\tc\n", "b.tsv:3: the representative 'a' is not a member of its own cluster"),
        ("", "b.tsv: empty file: expected a representative's id, a tab and a member's id on each line"),
    ):
        (tmp_path / "b.tsv").write_text(table)
        result = createdb("a.fasta", "--clusters", "b.tsv", "-o", "other", cwd=tmp_path)
        assert (result.returncode, error_of(result)) == (3, reason)
        assert sorted(os.listdir(tmp_path)) == ["a.fasta", "a.tsv", "b.tsv", "db"]
    assert createdb("a.fasta", "--clusters", "none.tsv", "-o", "other", cwd=tmp_path).returncode == 2
    assert createdb("--info", "db", "--clusters", "a.tsv", cwd=tmp_path).returncode == 2


@pytest.mark.skipif(shutil.which("mmseqs") is None, reason="mmseqs is not installed")
def test_cluster_table_of_mmseqs_is_read(root: Path, tmp_path: Path) -> None:
    text = (root / "examples" / "demo.fasta").read_text()
    (tmp_path / "demo.fasta").write_text(re.sub(r"^>(\w+)", r">sp|P\1|\1", text, flags=re.M))
    for command in (
        ["createdb", "demo.fasta", "seqs"],
        ["linclust", "seqs", "clusters", "tmp", "--min-seq-id", "0.3"],
        ["createtsv", "seqs", "seqs", "clusters", "clusters.tsv"],
    ):
        subprocess.run(["mmseqs", *command, "-v", "1"], cwd=tmp_path, check=True, capture_output=True)
    result = createdb("demo.fasta", "--clusters", "clusters.tsv", "-o", "db", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    database = TargetDatabase.open(tmp_path / "db")
    representatives = [line.split("\t")[0] for line in (tmp_path / "clusters.tsv").read_text().splitlines()]
    assert 1 < database.representatives == len(set(representatives)) < len(database)
    assert len(database) == len(representatives)


def test_no_mask_leaves_repeats_unmasked(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\n" + "MKV" * 50 + "\n")
    createdb(tmp_path / "a.fasta", "-o", tmp_path / "masked")
    createdb(tmp_path / "a.fasta", "-o", tmp_path / "plain", "--no-mask", "--quiet")
    assert TargetDatabase.open(tmp_path / "masked").manifest.masked_residues > 100
    plain = TargetDatabase.open(tmp_path / "plain")
    assert plain.manifest.masking is None
    assert plain.arrays.codes(0).max() < 32
    assert "masking         none" in createdb("--info", tmp_path / "plain").stdout


def test_existing_database_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nMKV\n")
    (tmp_path / "b.fasta").write_text(">b\nMKVL\n")
    assert createdb(tmp_path / "a.fasta", "-o", tmp_path / "db").returncode == 0
    result = createdb(tmp_path / "b.fasta", "-o", tmp_path / "db")
    assert result.returncode == 3
    assert "already exists" in error_of(result)
    assert createdb(tmp_path / "b.fasta", "-o", tmp_path / "db", "--overwrite").returncode == 0
    assert TargetDatabase.open(tmp_path / "db").sequence(0) == "MKVL"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"MKV\n", "in.fasta:1: not a FASTA file: text before the first header line ('>')"),
        (bytes(range(256)), "in.fasta:1: not a FASTA file: binary data"),
        (b"", "in.fasta: empty file"),
        (b">a\n\n", "in.fasta: no non-empty sequences"),
        (b">a\nMKV\nMK7\n", "in.fasta:3:3: '7' is not a residue letter"),
        (gzip.compress(b">a\nMKV\n", mtime=0)[:-1], "in.fasta: truncated gzip file"),
        (None, "in.fasta: no such file or directory"),
    ],
)
def test_invalid_input_gives_one_line_and_exit_code_3(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "in.fasta").write_bytes(content)
    result = createdb(tmp_path / "in.fasta", "-o", tmp_path / "db")
    assert result.returncode == 3
    assert error_of(result) == f"{tmp_path}/{message}"
    assert not [name for name in os.listdir(tmp_path) if name != "in.fasta"]


def test_output_inside_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.fasta").write_text(">a\nMKV\n")
    result = createdb(tmp_path / "in.fasta", "-o", tmp_path / "in.fasta" / "db")
    assert result.returncode == 3
    assert error_of(result) == f"{tmp_path}/in.fasta: not a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.fasta").write_text(">a\nMKV\n")
    (tmp_path / "locked").mkdir(mode=0o500)
    result = createdb(tmp_path / "in.fasta", "-o", tmp_path / "locked" / "db")
    assert result.returncode == 3
    assert "permission denied" in error_of(result)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["in.fasta"],
        ["-o", "db"],
        ["in.fasta", "-o", "db", "--info", "db"],
        ["--info", "db", "--verify", "db"],
        ["in.fasta", "-o", "db", "--json"],
        ["in.fasta", "-o", "db", "--threads", "0"],
    ],
)
def test_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    result = createdb(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "Usage: " in result.stderr
    assert os.listdir(tmp_path) == []


def test_full_disk_leaves_no_files(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    (tmp_path / "in.fasta").write_text("".join(f">{n}\n{'MKVLAAG' * 50}\n" for n in range(6000)))
    # the disk has space for the spooled residues, but not for their sorted copy
    script = 'mount -t tmpfs -o size=4m none "$1" || exit 77; shift; "$@"; code=$?; ls -A small; exit $code'
    build_command = [*FOLDCLI, "in.fasta", "-o", "small/db"]
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        small,
        *build_command,
    ]
    try:
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("the unshare program, which mounts a small disk, is not installed")
    if result.returncode == 77 or "unshare" in result.stderr:
        pytest.skip("not allowed to mount a small disk")
    assert result.returncode == 4
    assert error_of(result).startswith("no space left on the disk while writing small/db;")
    assert result.stdout == "", "nothing is left on the disk"


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_build_leaves_no_database(tmp_path: Path, stop_signal: signal.Signals) -> None:
    (tmp_path / "db.fasta").write_text(">a\nMKV\n")
    command = [*FOLDCLI, "-", "-o", str(tmp_path / "db"), "--no-mask", "--threads", "1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    # after this many bytes, blocks have been parsed and spooled; the pipe stays open
    process.stdin.write(b">a\nMKVLAAGIVGLLLAGCSS\n" * 10**6)
    process.stdin.flush()
    assert not (tmp_path / "db").exists()
    (temporary,) = (path for path in tmp_path.iterdir() if path.name.startswith(".db."))
    assert (temporary / "residues.spool").stat().st_size > 0
    process.send_signal(stop_signal)
    _, log = process.communicate()
    if stop_signal == signal.SIGINT:
        assert process.returncode == 130, log
        assert b"interrupted" in log
        assert b"Traceback" not in log
        assert os.listdir(tmp_path) == ["db.fasta"]
    else:
        assert process.returncode == -signal.SIGKILL
        result = createdb("--info", tmp_path / "db")
        assert result.returncode == 4
        assert "no such database" in result.stderr
        assert createdb("--info", temporary).returncode == 3
    assert createdb(tmp_path / "db.fasta", "-o", tmp_path / "db").returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["db", "db.fasta"], (
        "the next build removes the folder of the killed one"
    )
