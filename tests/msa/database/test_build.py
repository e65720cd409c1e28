"""Building of databases: content, independence of threads and blocks, and cleanup after failures."""

import gzip
import json
import os
import subprocess
import sys
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msa import alphabet
from msa.base.errors import InputError, MissingError
from msa.database import cached_databases, length_sort
from msa.database.build import BuildSettings, build_database
from msa.database.cached_databases import open_or_build_database
from msa.database.database import TargetDatabase
from msa.database.length_sort import LengthSorter
from msa.database.manifest import FILES, OFFSETS
from msa.database.masking import mask
from msa.io.fasta_blocks import FastaBlock, parse_block

ONE_THREAD = BuildSettings(threads=1)


def write(path: Path, records: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f">{header}\n{sequence}\n" for header, sequence in records))
    return path


def random_records(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return records with repeats, of various lengths, some of equal length."""
    random = np.random.default_rng(seed)
    records = []
    for number in range(count):
        codes = random.integers(0, 26, random.integers(1, 120)).astype(np.uint8)
        sequence = alphabet.decode(codes) + "MKV" * int(random.integers(0, 10))
        records.append((f"s{number} of {count}", sequence))
    return records


def contents(database: TargetDatabase) -> list[tuple[str, str]]:
    return [(database.header(i), database.sequence(i)) for i in range(len(database))]


# control characters are replaced: tests/msa/io/test_fasta_blocks.py
HEADERS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10).map(str.strip)
SEQUENCES = st.text(alphabet.LETTERS, min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(HEADERS, SEQUENCES), min_size=1, max_size=12), st.booleans())
@example([("", "M")], True)
@example([("a", "MMMM"), ("b", "AAAA"), ("c", "K" * 40), ("", "MKVL")], True)
def test_database_contains_its_input(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], masked: bool
) -> None:
    folder = tmp_path_factory.mktemp("build")
    path = write(folder / "in.fasta", records)
    manifest = build_database([path], folder / "db", BuildSettings(mask=masked, threads=1, block_bytes=30))
    database = TargetDatabase.open(folder / "db")
    expected = sorted(records, key=lambda record: len(record[1]))  # stable: ties stay in input order
    assert contents(database) == expected
    assert len(database) == manifest.sequences == len(records)
    assert database.total_residues == sum(len(sequence) for _, sequence in records)
    ids = [header.split()[0] if header else "" for header, _ in expected]
    assert [database.id(i) for i in range(len(expected))] == ids
    assert manifest.duplicate_ids == len(ids) - len(set(ids))
    for index, (_, sequence) in enumerate(expected):
        codes = alphabet.encode(sequence)
        if masked:
            mask(codes, np.array([len(codes)], np.int32))
        assert (database.arrays.codes(index) == codes).all()
    database.verify()


def test_files_have_the_documented_layout(tmp_path: Path) -> None:
    path = write(tmp_path / "in.fasta", [("b", "MKVLA"), ("a x", "AC"), ("c", "GG")])
    build_database([path], tmp_path / "db", BuildSettings(mask=False, threads=1))
    files = {name: (tmp_path / "db" / name).read_bytes() for name in FILES}
    code = {letter: number for number, letter in enumerate("ARNDCQEGHILKMFPSTWYVXBZUOJ")}
    pad = code["X"] | 32
    expected = [*map(code.get, "AC"), pad, pad, *map(code.get, "GG"), pad, pad]
    expected += [*map(code.get, "MKVLA"), pad, pad, pad]
    assert list(files["residues.u8"]) == expected
    assert np.frombuffer(files["offsets.i64"], "<i8").tolist() == [0, 4, 8]
    assert np.frombuffer(files["lengths.i32"], "<i4").tolist() == [2, 2, 5]
    assert files["headers.bin"] == b"a xcb"
    assert np.frombuffer(files["headers.idx"], "<i8").tolist() == [0, 3, 4, 5]
    assert sorted(os.listdir(tmp_path / "db")) == sorted([*FILES, "manifest.json"])


def test_database_does_not_depend_on_threads_and_block_size(tmp_path: Path) -> None:
    path = write(tmp_path / "in.fasta", random_records(300))
    manifests = set()
    for threads, block_bytes in [(1, 4 << 20), (1, 50), (3, 1000), (8, 333), (2, 4 << 20)]:
        out = tmp_path / f"{threads}_{block_bytes}"
        manifest = build_database([path], out, BuildSettings(threads=threads, block_bytes=block_bytes))
        assert manifest.masked_residues > 0
        manifests.add((out / "manifest.json").read_text())
    assert len(manifests) == 1


def test_compressed_and_split_input_give_the_same_database(tmp_path: Path) -> None:
    records = random_records(50)
    whole = write(tmp_path / "whole.fasta", records)
    compressed = tmp_path / "compressed"
    compressed.write_bytes(gzip.compress(whole.read_bytes()))
    halves = [write(tmp_path / "1.fasta", records[:20]), write(tmp_path / "2.fasta", records[20:])]
    manifests = [
        build_database(inputs, tmp_path / f"db{number}", ONE_THREAD)
        for number, inputs in enumerate([[whole], [compressed], halves])
    ]
    assert len({json.dumps(manifest.checksums) for manifest in manifests}) == 1
    assert [source["name"] for source in manifests[2].inputs] == ["1.fasta", "2.fasta"]
    assert sum(source["bytes"] for source in manifests[2].inputs) == whole.stat().st_size


def test_missing_final_line_end_does_not_join_two_files(tmp_path: Path) -> None:
    (tmp_path / "1.fasta").write_text(">a\nMKV")
    (tmp_path / "2.fasta").write_text(">b\nMK")
    build_database([tmp_path / "1.fasta", tmp_path / "2.fasta"], tmp_path / "db", ONE_THREAD)
    assert contents(TargetDatabase.open(tmp_path / "db")) == [("b", "MK"), ("a", "MKV")]


def test_unusual_content_is_counted(tmp_path: Path) -> None:
    (tmp_path / "in.fasta").write_bytes(b">a x\r\nMKVmk*U-mk*\r\n\r\n>b\n>c\n*\n>a\nAC.D\n>a y\nZ\n")
    manifest = build_database([tmp_path / "in.fasta"], tmp_path / "db", ONE_THREAD)
    assert manifest.oddities == {
        "empty_sequences": 2,
        "lower_case_letters": 4,
        "gap_characters": 2,
        "end_stops": 2,
        "inner_stops": 1,
    }
    assert manifest.duplicate_ids == 2
    assert len(manifest.remarks()) == 6
    database = TargetDatabase.open(tmp_path / "db")
    assert database.manifest == manifest
    assert contents(database) == [("a y", "Z"), ("a", "ACD"), ("a x", "MKVMKXUMK")]


def test_nucleic_acids_are_refused_and_a_few_among_proteins_are_kept(tmp_path: Path) -> None:
    dna, protein = "ATGGCGAACTTCGGATCTTGGAAC", "MTYKLILNGKTLKGETTTEAVDAATAEKVF"
    path = write(tmp_path / "in.fasta", [("a", dna), ("b", dna), ("c", protein)])
    with pytest.raises(InputError, match=r"in\.fasta: nucleic acids: 2 of the first . sequences"):
        build_database([path], tmp_path / "db", ONE_THREAD)
    assert not (tmp_path / "db").exists()
    path = write(tmp_path / "in.fasta", [("c", protein), ("a", dna)])
    assert build_database([path], tmp_path / "db", ONE_THREAD).sequences == 2


def test_length_quantiles(tmp_path: Path) -> None:
    path = write(tmp_path / "in.fasta", [(str(n), "M" * n) for n in range(1, 101)])
    quantiles = build_database([path], tmp_path / "db", ONE_THREAD).length_quantiles
    assert quantiles == {"0": 1, "0.05": 5, "0.25": 25, "0.5": 50, "0.75": 75, "0.95": 95, "1": 100}


def test_duplicate_ids_are_counted_with_limited_memory(tmp_path: Path) -> None:
    for max_ids_in_memory in (7, 50, 1000):
        sorter = LengthSorter(tmp_path, max_ids_in_memory)
        for start in range(0, 100, 25):
            text = b"".join(b">s%d\nM\n" % (number % 37) for number in range(start, start + 25))
            sorter.add(parse_block(FastaBlock("in", 1, text)))
        assert sorter.duplicate_ids() == 63


def test_content_is_correct_when_pages_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_sort, "_RELEASE_PAGES_EVERY", 100)
    records = random_records(100)
    build_database([write(tmp_path / "in.fasta", records)], tmp_path / "db", BuildSettings(block_bytes=200))
    assert contents(TargetDatabase.open(tmp_path / "db")) == sorted(records, key=lambda r: len(r[1]))


def test_progress_ends_at_the_total_file_size(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "in", random_records(200)).read_bytes()))
    calls: list[tuple[int, int | None]] = []
    settings = BuildSettings(threads=1, block_bytes=1000)
    build_database([tmp_path / "in", path], tmp_path / "db", settings, lambda *call: calls.append(call))
    total = path.stat().st_size + (tmp_path / "in").stat().st_size
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) > 5


INVALID = {
    "bad letter": (b">a\nMKV\n>b\nMK1\n", "in.fasta:4:3: '1' is not a residue letter"),
    "no header": (b"MKV\n", "in.fasta:1: not a FASTA file: text before the first header"),
    "binary": (bytes(range(256)), "in.fasta:1: not a FASTA file: binary data"),
    "empty": (b"", "in.fasta: empty file"),
    "no residues": (b">a\n>b\n\n", "in.fasta: no non-empty sequences"),
    "truncated": (gzip.compress(b">a\nMKV\n")[:-2], "in.fasta: truncated gzip file"),
}


@pytest.mark.parametrize("kind", INVALID)
def test_invalid_input_leaves_no_files(tmp_path: Path, kind: str) -> None:
    content, message = INVALID[kind]
    (tmp_path / "in.fasta").write_bytes(content)
    good = write(tmp_path / "good.fasta", random_records(30))
    with pytest.raises(InputError) as caught:
        build_database([tmp_path / "in.fasta"], tmp_path / "db", BuildSettings(threads=2, block_bytes=100))
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    if kind != "no residues":
        with pytest.raises(InputError):
            build_database([good, tmp_path / "in.fasta"], tmp_path / "db", ONE_THREAD)
    assert sorted(os.listdir(tmp_path)) == ["good.fasta", "in.fasta"]


def test_errors_name_line_and_column_in_any_block(tmp_path: Path) -> None:
    records = random_records(100)
    records[70] = ("bad", "MKV5")
    path = write(tmp_path / "in.fasta", records)
    for threads, block_bytes in [(1, 4 << 20), (4, 100)]:
        with pytest.raises(InputError) as caught:
            build_database([path], tmp_path / "db", BuildSettings(threads=threads, block_bytes=block_bytes))
        assert (caught.value.line, caught.value.column) == (142, 4)
    assert os.listdir(tmp_path) == ["in.fasta"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_any_exception_leaves_no_files(tmp_path: Path, error: type) -> None:
    def stop(done: int, total: int | None) -> None:
        raise error

    path = write(tmp_path / "in.fasta", random_records(100))
    with pytest.raises(error):
        build_database([path], tmp_path / "db", BuildSettings(block_bytes=100), stop)
    assert os.listdir(tmp_path) == ["in.fasta"]


def test_only_empty_folders_and_databases_with_overwrite_are_replaced(tmp_path: Path) -> None:
    first = write(tmp_path / "1.fasta", [("a", "MKV")])
    second = write(tmp_path / "2.fasta", [("b", "MKVL")])
    (tmp_path / "db").mkdir()
    build_database([first], tmp_path / "db", ONE_THREAD)  # an empty folder may be replaced
    with pytest.raises(InputError, match="already exists"):
        build_database([second], tmp_path / "db", ONE_THREAD)
    assert contents(TargetDatabase.open(tmp_path / "db")) == [("a", "MKV")]
    opened = TargetDatabase.open(tmp_path / "db")
    overwriting = BuildSettings(threads=1, overwrite=True)
    build_database([second], tmp_path / "db", overwriting)
    assert contents(TargetDatabase.open(tmp_path / "db")) == [("b", "MKVL")]
    assert contents(opened) == [("a", "MKV")], "an open database stays readable"
    build_database([first], tmp_path / "new", overwriting)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("")
    for name in ("folder", "1.fasta"):
        with pytest.raises(InputError, match="is not a target database, so it is not overwritten"):
            build_database([first], tmp_path / name, overwriting)
    assert sorted(os.listdir(tmp_path)) == ["1.fasta", "2.fasta", "db", "folder", "new"]


def test_failed_overwrite_keeps_the_old_database(tmp_path: Path) -> None:
    build_database([write(tmp_path / "1.fasta", [("a", "MKV")])], tmp_path / "db", ONE_THREAD)
    (tmp_path / "bad.fasta").write_text(">b\nM1\n")
    with pytest.raises(InputError):
        build_database([tmp_path / "bad.fasta"], tmp_path / "db", BuildSettings(overwrite=True))
    assert contents(TargetDatabase.open(tmp_path / "db")) == [("a", "MKV")]
    assert sorted(os.listdir(tmp_path)) == ["1.fasta", "bad.fasta", "db"]


def test_full_disk_leaves_no_files(tmp_path: Path) -> None:
    """Simulate a full disk by a limit on file sizes, which makes the same calls fail."""
    path = write(tmp_path / "in.fasta", random_records(3000))
    code = (
        "import os, resource, sys\n"
        "from msa.database.build import build_database\n"
        # compiles and caches the kernels before the limit
        "residues = build_database([sys.argv[1]], 'other').residues\n"
        "for limit in (1000, 100_000, residues):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        build_database([sys.argv[1]], 'db')\n"
        "    except OSError as error:\n"
        "        print(error.filename, os.listdir())\n"
    )
    result = subprocess.run([sys.executable, "-c", code, path], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3, "one failure per limit"
    for line in lines:
        name, _, files = line.partition(" ")
        assert name == "db"
        assert sorted(literal_eval(files)) == ["in.fasta", "other"]


class TestOpenOrBuildDatabase:
    def test_fasta_file_is_built_once_and_reused(self, tmp_path: Path) -> None:
        records = random_records(20)
        path = write(tmp_path / "in.fasta", records)
        calls: list[int] = []
        first = open_or_build_database(path, tmp_path / "cache", lambda done, total: calls.append(done))
        assert contents(first) == sorted(records, key=lambda r: len(r[1]))
        assert calls
        calls.clear()
        stamp = (first.path / "manifest.json").stat().st_mtime_ns
        again = open_or_build_database(path, tmp_path / "cache", lambda done, total: calls.append(done))
        assert (again.path, calls) == (first.path, [])
        assert (again.path / "manifest.json").stat().st_mtime_ns == stamp
        copy = tmp_path / "copy.fasta"
        copy.write_bytes(path.read_bytes())
        assert open_or_build_database(copy, tmp_path / "cache").path == first.path

    def test_edited_fasta_file_is_built_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "in.fasta", [("a", "MKV")])
        stat = path.stat()
        first = open_or_build_database(path, tmp_path / "cache")
        write(path, [("a", "MKL")])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert contents(open_or_build_database(path, tmp_path / "cache")) == [("a", "MKL")]
        assert contents(first) == [("a", "MKV")]

    def test_database_folder_is_opened(self, tmp_path: Path) -> None:
        build_database([write(tmp_path / "in.fasta", [("a", "MKV")])], tmp_path / "db", ONE_THREAD)
        assert open_or_build_database(tmp_path / "db", tmp_path / "cache").path == tmp_path / "db"
        assert not (tmp_path / "cache").exists()

    def test_damaged_cached_database_is_built_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "in.fasta", [("a", "MKV")])
        built = open_or_build_database(path, tmp_path / "cache").path
        os.truncate(built / OFFSETS, 4)
        assert contents(open_or_build_database(path, tmp_path / "cache")) == [("a", "MKV")]

    def test_concurrent_builds_keep_one_database(self, tmp_path: Path) -> None:
        records = random_records(200)
        path = write(tmp_path / "in.fasta", records)
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda _: open_or_build_database(path, tmp_path / "cache"), range(6)))
        for database in opened:
            assert contents(database) == sorted(records, key=lambda r: len(r[1]))
        assert len(os.listdir(tmp_path / "cache" / "databases")) == 1

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("absent", "absent: no such database or FASTA file"),
            ("folder", "folder: not a target database: no manifest.json"),
            ("bad.fasta", "bad.fasta:2:2: '1' is not a residue letter"),
        ],
    )
    def test_other_paths_are_refused(self, tmp_path: Path, name: str, message: str) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "bad.fasta").write_text(">a\nM1\n")
        with pytest.raises((InputError, MissingError)) as caught:
            open_or_build_database(tmp_path / name, tmp_path / "cache")
        assert str(caught.value).startswith(f"{tmp_path}/{message}")

    def test_standard_input_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="createdb"):
            open_or_build_database("-", tmp_path)


def test_cache_key_depends_on_settings_that_change_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in.fasta", [("a", "MKV")])
    keys = {cached_databases._cache_key([path], BuildSettings(mask=masked)) for masked in (True, False)}
    assert cached_databases._cache_key([path], BuildSettings(threads=7, block_bytes=1)) in keys
    monkeypatch.setattr(cached_databases, "PLAIN_VERSION", 2)
    keys.add(cached_databases._cache_key([path], BuildSettings()))
    assert len(keys) == 3
