"""Tests of `foldcli cache-features` in subprocesses."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from features.cache.entry import read_entry
from tests.command_process import run_foldcli

A3M = ">q\nMKVLGA\n>a\nMK-aaLGA\n"
STO = "# STOCKHOLM 1.0\nq MK-VLG\na MKAVLG\n//\n"


def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_foldcli(["cache-features", *arguments], input=stdin)


def entries(cache: Path) -> dict[str, int]:
    """Return the names and inodes of a cache's entries."""
    return {path.name: path.stat().st_ino for path in cache.glob("??/*.safetensors")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three alignments in three formats, and another file."""
    alignments = tmp_path / "msas"
    alignments.mkdir()
    (alignments / "one.a3m").write_text(A3M)
    (alignments / "two.sto").write_text(STO)
    (alignments / "three.fasta.gz").write_bytes(gzip.compress(b">q\nMKWW\n>a\nMK-W\n"))
    (alignments / "notes.txt").write_text("not an alignment")
    return alignments


def test_folder_is_cached_once_unless_overwritten(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(folder, "--cache", cache)
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    assert "one: cached, 6 residues, 2 rows" in first.stderr
    assert "3 cached, 0 already there, 0 failed" in first.stderr
    before = entries(cache)
    assert len(before) == 3

    second = run(folder, "--cache", cache)
    assert second.returncode == 0
    assert "0 cached, 3 already there, 0 failed" in second.stderr
    assert entries(cache) == before

    third = run(folder / "one.a3m", "--cache", cache, "--overwrite", "-q")
    assert (third.returncode, third.stderr) == (0, "")
    after = entries(cache)
    assert after.keys() == before.keys()
    assert sum(after[name] != before[name] for name in before) == 1


def test_standard_input_gives_the_same_entry_as_the_file(folder: Path, tmp_path: Path) -> None:
    assert run(folder / "one.a3m", "--cache", tmp_path / "a").returncode == 0
    assert run("-", "--cache", tmp_path / "b", stdin=A3M).returncode == 0
    assert entries(tmp_path / "a").keys() == entries(tmp_path / "b").keys()


@pytest.mark.slow
def test_shards_share_the_targets_without_overlap(folder: Path, tmp_path: Path) -> None:
    whole, shards = tmp_path / "whole", [tmp_path / "1", tmp_path / "2"]
    assert run(folder, "--cache", whole).returncode == 0
    for i, cache in enumerate(shards, start=1):
        assert run(folder, "--cache", cache, "--shard", f"{i}/2").returncode == 0
    one, two = (entries(cache).keys() for cache in shards)
    assert not one & two
    assert one | two == entries(whole).keys()
    assert len(one) == 2


def test_bad_target_is_listed_and_does_not_stop_the_others(folder: Path, tmp_path: Path) -> None:
    (folder / "bad.a3m").write_text(">q\nMK\n>short\nM\n")
    cache = tmp_path / "cache"
    result = run(folder, "--cache", cache)
    assert result.returncode == 5
    assert "Traceback" not in result.stderr
    assert len(entries(cache)) == 3
    lines = (cache / "failures.jsonl").read_text().splitlines()
    failure = json.loads(lines[0])
    assert len(lines) == 1
    assert failure["target"] == "bad"
    assert f"{folder / 'bad.a3m'}:3: row 2 (short) has 1 columns, the query has 2" in failure["error"]

    (folder / "bad.a3m").write_text(">q\nMK\n>short\nM-\n")
    assert run(folder, "--cache", cache).returncode == 0
    assert not (cache / "failures.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x02\x01\x00", "not an alignment"),
        (b"#5,5\t1,1\n>q\nMKVLAMKVL\n", "row 1 (q) has 9 columns, the header line declares 10"),
        (b">q\nMK1\n", "bad.a3m:2:3: '1' is not a residue letter"),
        (b"\x1f\x8b\x08\x00", "bad.a3m: truncated gzip file"),
        (b"", "empty file"),
    ],
)
def test_single_bad_file_is_bad_input(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.a3m").write_bytes(content)
    result = run(tmp_path / "bad.a3m", "--cache", tmp_path / "cache")
    assert result.returncode == 3
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert entries(tmp_path / "cache") == {}


def test_missing_file_and_empty_folder_are_bad_input(tmp_path: Path) -> None:
    assert run(tmp_path / "none.a3m", "--cache", tmp_path / "cache").returncode == 3
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty", "--cache", tmp_path / "cache").returncode == 3


def test_damaged_entry_is_reported_and_computed_again(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(folder / "one.a3m", "--cache", cache).returncode == 0
    (path,) = cache.glob("??/*.safetensors")
    good = path.read_bytes()
    path.write_bytes(good[:-3] + b"???")
    result = run(folder / "one.a3m", "--cache", cache)
    assert result.returncode == 0
    assert f"{path}: damaged cache entry" in result.stderr
    assert path.read_bytes() == good


@pytest.mark.slow
def test_checksums_are_verified_unless_no_verify_is_given(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(folder / "one.a3m", "--cache", cache).returncode == 0
    (path,) = cache.glob("??/*.safetensors")
    good = path.read_bytes()
    altered = good.replace(b"one.a3m", b"eno.a3m")  # only the checksum shows it
    path.write_bytes(altered)
    unverified = run(folder / "one.a3m", "--cache", cache, "--no-verify")
    assert "one: already cached" in unverified.stderr and path.read_bytes() == altered
    assert "damaged cache entry" in run(folder / "one.a3m", "--cache", cache).stderr
    assert path.read_bytes() == good


def test_unwritable_cache_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run(folder / "one.a3m", "--cache", tmp_path / "file" / "cache")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


def bytes_of(cache: Path) -> dict[str, bytes]:
    """Return the contents of a cache's entries."""
    return {path.name: path.read_bytes() for path in cache.glob("??/*.safetensors")}


@pytest.mark.slow
def test_number_of_workers_changes_neither_entries_nor_messages(folder: Path, tmp_path: Path) -> None:
    (folder / "bad.a3m").write_text(">q\nMK\n>short\nM\n")
    one, three = (run(folder, "--cache", tmp_path / n, "--workers", n) for n in ("1", "3"))
    assert one.returncode == three.returncode == 5
    assert three.stderr.replace(str(tmp_path / "3"), str(tmp_path / "1")) == one.stderr
    assert "one: cached, 6 residues, 2 rows" in three.stderr
    assert bytes_of(tmp_path / "3") == bytes_of(tmp_path / "1")
    assert len(bytes_of(tmp_path / "3")) == 3


def test_targets_are_reported_in_order(tmp_path: Path) -> None:
    late, last = tmp_path / "a.a3m", tmp_path / "c.a3m"
    os.mkfifo(late)
    os.mkfifo(last)
    (tmp_path / "b.a3m").write_text(A3M)
    command = [sys.executable, "-m", "foldcli", "cache-features", tmp_path, "--cache", tmp_path / "cache"]
    process = subprocess.Popen([*map(str, command), "--workers", "2"], stderr=subprocess.PIPE, text=True)
    last.write_text(">q\nMKW\n")  # read when b is finished
    late.write_text(">q\nMKY\n")
    lines = process.communicate()[1].splitlines()
    assert [line[:9] for line in lines[:3]] == ["a: cached", "b: cached", "c: cached"]


def test_folders_of_one_target_are_joined(tmp_path: Path) -> None:
    rows = {"uniref90": "MKVLGT", "bfd_uniclust": "MKVLCC", "mgnify": "MKVLCD"}
    for name, row in rows.items():
        path = tmp_path / "in" / "T1" / f"{name}_hits.a3m"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f">q\nMKVLGA\n>a\n{row}\n")
    assert "T1: cached, 6 residues, 4 rows" in run(tmp_path / "in", "--cache", tmp_path / "joined").stderr
    one = tmp_path / "one.a3m"
    one.write_text(">q\nMKVLGA\n" + "".join(f">a\n{row}\n" for row in rows.values()))
    assert run(one, "--cache", tmp_path / "one").returncode == 0
    joined, alone = (
        read_entry(path)["msa"] for c in ("joined", "one") for path in (tmp_path / c).glob("??/*.safetensors")
    )
    assert np.array_equal(joined, alone)


def test_sequences_without_a_database_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "two.fasta").write_text(">a\nMKVLGA\n>b\nMKVLGG\n")
    (tmp_path / "one.fasta").write_text(">a\nMKVLGA\n")
    for path in (tmp_path / "two.fasta", tmp_path / "one.fasta", tmp_path):
        result = run(path, "--cache", tmp_path / "cache")
        assert result.returncode == 2
        assert "one.fasta" in result.stderr or "two.fasta" in result.stderr
        assert "--db" in result.stderr.splitlines()[-1]
    (tmp_path / "one.fasta").rename(tmp_path / "one.a3m")
    assert (
        "one: cached, 6 residues, 1 rows" in run(tmp_path / "one.a3m", "--cache", tmp_path / "cache").stderr
    )
    assert run("-", "--cache", tmp_path / "cache", stdin=">a\nMKVLGA\n").returncode == 2


@pytest.mark.slow
def test_sequences_are_searched_once(root: Path, tmp_path: Path) -> None:
    examples = root / "examples"
    queries = [examples / "ubiquitin.fasta", examples / "gb1.fasta"]
    searching = ["--db", examples / "demo.fasta", "--device", "cpu", "--cache", tmp_path / "cache", "-v"]
    (tmp_path / "short.fasta").write_text(">short\nM\n")
    first = run(*queries, tmp_path / "short.fasta", *searching)
    assert first.returncode == 5
    assert "query 'short' has 1 residue" in first.stderr
    assert "UBIQ_HUMAN: 24 hits" in first.stderr and "2 cached, 0 already there, 1 failed" in first.stderr
    second = run(*queries, *searching)
    assert second.returncode == 0
    assert " hits" not in second.stderr and "0 cached, 2 already there, 0 failed" in second.stderr

    # the same as a search followed by cache-features
    a3m = tmp_path / "searched" / "UBIQ_HUMAN.a3m"
    searched = [sys.executable, "-m", "foldcli", "search", queries[0], examples / "demo.fasta"]
    subprocess.run(
        [*map(str, searched), "--format", "a3m", "--device", "cpu", "-o", str(a3m.parent)], check=True
    )
    assert "already cached" in run(a3m, "--cache", tmp_path / "cache").stderr
    (stored,) = (tmp_path / "cache" / "alignments").rglob("UBIQ_HUMAN.a3m.gz")
    assert gzip.decompress(stored.read_bytes()) == a3m.read_bytes()

    stricter = run(queries[0], *searching, "-e", "1e-20")
    assert "UBIQ_HUMAN: cached" in stricter.stderr
    assert len(entries(tmp_path / "cache")) == 3


def test_interrupt_ends_all_workers_and_leaves_no_partial_files(folder: Path, tmp_path: Path) -> None:
    blocked = folder / "zzz.a3m"  # a pipe without a writer, which blocks one worker
    os.mkfifo(blocked)
    command = [sys.executable, "-m", "foldcli", "cache-features", folder, "--cache", tmp_path / "cache"]
    process = subprocess.Popen(
        [*map(str, command), "--workers", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(3)]
    assert all("cached" in line for line in lines)
    os.killpg(process.pid, signal.SIGINT)
    assert "interrupted" in process.stderr.read()
    assert process.wait() == 130
    with pytest.raises(OSError, match="No such device"):
        os.open(blocked, os.O_WRONLY | os.O_NONBLOCK)  # its reader has ended
    assert len(entries(tmp_path / "cache")) == 3
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".tmp"]


@pytest.mark.slow
def test_dry_run_reports_existing_entries_and_writes_nothing(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    cache, sequence = tmp_path / "cache", tmp_path / "gb1.fasta"
    sequence.write_text(">gb1\nMTYKLILNGKTLKGETTTEAVDAATAEKVFKQY\n")
    (folder / "bad.a3m").write_text(">q\nMK7\n")
    command = (folder, sequence, "--db", tmp_path / "db", "--cache", cache, "--workers", 1)
    createdb = [
        sys.executable,
        "-m",
        "foldcli",
        "createdb",
        str(root / "examples/demo.fasta"),
        "-o",
        str(tmp_path / "db"),
    ]
    assert subprocess.run(createdb, capture_output=True).returncode == 0

    def states(*more: object) -> tuple[int, dict[str, str]]:
        result = run(*command, "--dry-run", *more)
        lines = result.stdout.partition("action\n")[2].partition("\n\n")[0].splitlines()
        return result.returncode, {
            line.split()[0]: line.split("  ")[-1].partition(":")[0].strip() for line in lines
        }

    targets = ("gb1", "one", "three", "two")
    assert states() == (5, {"bad": "invalid"} | dict.fromkeys(targets, "to do"))
    assert not cache.exists()
    assert run(*command).returncode == 5
    before = entries(cache)
    # the stored alignment shows that the sequence is cached
    assert states() == (5, {"bad": "invalid"} | dict.fromkeys(targets, "already done"))
    assert states("--max-seqs", "10")[1]["gb1"] == "to do"
    assert states("--overwrite")[1]["two"] == "to do"
    assert states("--shard", "1/5")[1] == {"bad": "invalid", "gb1": "in shard 2/5", "one": "in shard 3/5",
                                          "three": "in shard 4/5", "two": "in shard 5/5"}  # fmt: skip
    assert entries(cache) == before
