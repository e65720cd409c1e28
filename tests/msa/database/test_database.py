"""Opening and verifying of databases, including the detection of every kind of damage."""

import contextlib
import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from msa import alphabet
from msa.base.errors import InputError, MissingError
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import FILES, HEADER_INDEX, HEADERS, LENGTHS, MANIFEST, OFFSETS, RESIDUES
from msa.database.masking import MaskSettings
from msa.io.fasta_blocks import MAX_RECORD_BYTES


@pytest.fixture(scope="module")
def database_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("database")
    sequences = ["MKV" * 5, "ACDEFGHIKLMNPQ", "M", "WWYV"]
    (folder / "in.fasta").write_text("".join(f">s{n} text\n{s}\n" for n, s in enumerate(sequences)))
    build_database([folder / "in.fasta"], folder / "db", BuildSettings(threads=1))
    return folder / "db"


@pytest.fixture
def copy(database_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(database_folder, tmp_path / "db")
    return tmp_path / "db"


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    change(content)
    content.pop("manifest_sha256", None)  # as written by earlier versions
    (folder / "manifest.json").write_text(json.dumps(content))


def test_attributes_and_methods_of_an_open_database(database_folder: Path) -> None:
    database = TargetDatabase.open(str(database_folder))
    assert (len(database), database.total_residues, database.path) == (4, 34, database_folder)
    arrays = database.arrays
    assert (arrays.residues.dtype, arrays.offsets.dtype, arrays.lengths.dtype) == ("u1", "<i8", "<i4")
    assert arrays.lengths.tolist() == [1, 4, 14, 15]
    assert arrays.offsets.tolist() == [0, 4, 8, 24]
    assert [database.id(i) for i in range(4)] == ["s2", "s3", "s1", "s0"]
    assert database.header(3) == "s0 text"
    assert database.sequence(3) == "MKV" * 5
    assert database.arrays.codes(3).base is not None, "a view, not a copy"
    with pytest.raises(ValueError, match="read-only"):
        arrays.residues[0] = 0
    calls: list[tuple[int, int | None]] = []
    database.verify(lambda *call: calls.append(call))
    size = sum((database_folder / name).stat().st_size for name in FILES)
    assert calls[-1] == (size, size)


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_reported(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(InputError, match=f"{name}: damaged database: this part is missing"):
        TargetDatabase.open(copy)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("change", "reason"), [(-1, "truncated"), (-4, "truncated"), (4, "too long")])
def test_file_of_the_wrong_size_is_reported(copy: Path, name: str, change: int, reason: str) -> None:
    os.truncate(copy / name, (copy / name).stat().st_size + change)
    with pytest.raises(InputError, match=f"{name}: damaged database: {reason}"):
        TargetDatabase.open(copy)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bit_is_reported(copy: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{name}: damaged"):
        TargetDatabase.open(copy)
    # large residues and headers are not read when a database is opened
    monkeypatch.setattr("msa.database.integrity.SMALL_FILE_BYTES", 0)
    if name in (RESIDUES, HEADERS):
        database = TargetDatabase.open(copy)
        with pytest.raises(InputError, match=f"{name}: damaged: its SHA-256"):
            database.verify()
    else:
        with pytest.raises(InputError, match=f"{name}: damaged"):
            TargetDatabase.open(copy)


def test_changed_value_of_the_manifest_is_reported(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"masked_residues": ', '"masked_residues": 1'))
    with pytest.raises(InputError, match=r"manifest\.json: damaged manifest: its content differs from its"):
        TargetDatabase.open(copy)


def forge(folder: Path, name: str, array: np.ndarray) -> None:
    """Write a file and its checksum, as somebody may do who wants to crash a search."""
    array.tofile(folder / name)
    sha256 = hashlib.sha256(array.tobytes()).hexdigest()
    edit_manifest(folder, lambda m: m["parts"][name].update(sha256=sha256))


@pytest.mark.parametrize("name", [OFFSETS, LENGTHS, HEADER_INDEX])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=strategies.data())
def test_no_index_that_leads_outside_is_accepted(name: str, copy: Path, data: strategies.DataObject) -> None:
    original = np.fromfile(copy / name, "<i4" if name == LENGTHS else "<i8")
    index = data.draw(strategies.integers(0, len(original) - 1))
    limits = np.iinfo(original.dtype)
    near = strategies.integers(-5, 60)
    value = data.draw(near | strategies.integers(int(limits.min), int(limits.max)))
    changed = original.copy()
    changed[index] = value
    forge(copy, name, changed)
    try:
        database = TargetDatabase.open(copy)
    except InputError as error:
        assert not np.array_equal(changed, original) and str(copy) in str(error)
    else:
        assert name == HEADER_INDEX or np.array_equal(changed, original)
        database.headers(np.arange(4))
    forge(copy, name, original)


def test_missing_descriptor_names_the_file(copy: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # the manifest needs one descriptor for a moment, and each file keeps one
    open_before = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    with contextlib.ExitStack() as files:
        while files.enter_context(Path(os.devnull).open()).fileno() < open_before:
            pass
        last = files.enter_context(Path(os.devnull).open())
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 2, limits[1]))
        try:
            with pytest.raises(OSError, match=r"Too many open files: .*/db/residues\.u8"):
                TargetDatabase.open(copy)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_file_that_shrinks_while_it_is_open_is_reported(copy: Path) -> None:
    database = TargetDatabase.open(copy)
    database.check_sizes()
    os.truncate(copy / RESIDUES, 10)
    with pytest.raises(InputError, match=r"residues\.u8: damaged database: truncated, 10 bytes"):
        database.check_sizes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(format_version=5), "format version 5 is newer than this foldcli reads"),
        (lambda m: m.update(format_version=0), "format version 0"),
        (lambda m: m.update(format_version="1"), "format version '1'"),
        (lambda m: m.pop("format_version"), "format version None"),
        (lambda m: m.pop("format"), "not the manifest of a target database"),
        (lambda m: m.update(alphabet="ACDEFGHIKLMNPQRSTVWY"), "unknown residue alphabet"),
        (lambda m: m.pop("sequences"), "missing required field sequences"),
        (lambda m: m["parts"].pop("lengths.i32"), "parts: lengths.i32 is missing"),
        (lambda m: m["parts"]["lengths.i32"].pop("sha256"), "missing required field sha256"),
        (lambda m: m.update(parts=7), "parts: expected object, got int"),
        (lambda m: m.update(sequences=5), "5 sequences need 40"),
        (lambda m: m.update(sequences="4"), "sequences: expected int, got str"),
        (lambda m: m.update(residues=1000), "1000 residues"),
        (lambda m: m.update(residues=2), "2 residues"),
        (lambda m: m["parts"]["residues.u8"].update(bytes=41), "41 bytes"),
    ],
)
def test_invalid_manifest_is_reported(
    copy: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    edit_manifest(copy, change)
    with pytest.raises(InputError, match=reason) as caught:
        TargetDatabase.open(copy)
    assert caught.value.path == copy / "manifest.json"


def test_manifest_that_contradicts_the_offsets_is_reported(copy: Path) -> None:
    """Use sizes that agree with each other, but not with the offsets."""
    os.truncate(copy / "residues.u8", 44)
    edit_manifest(copy, lambda m: m["parts"]["residues.u8"].update(bytes=44))
    with pytest.raises(
        InputError, match=r"offsets\.i64: damaged database: the last sequence ends at byte 40 of 44"
    ):
        TargetDatabase.open(copy)


def test_header_index_that_contradicts_the_headers_is_reported(copy: Path) -> None:
    index = np.fromfile(copy / "headers.idx", "<i8")
    index[-1] += 1
    index.tofile(copy / "headers.idx")
    with pytest.raises(InputError, match=r"headers\.idx: damaged database: the last header ends at byte"):
        TargetDatabase.open(copy)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_malformed_manifest_is_reported(copy: Path, content: bytes) -> None:
    (copy / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=r"manifest.json: (damaged manifest|not the manifest)"):
        TargetDatabase.open(copy)


def test_other_paths_are_not_databases(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="absent: no such database"):
        TargetDatabase.open(tmp_path / "absent")
    with pytest.raises(InputError, match=r"not a target database: no manifest\.json"):
        TargetDatabase.open(tmp_path)
    (tmp_path / "file").write_text(">a\nMKV\n")
    with pytest.raises(InputError, match="file: not a target database"):
        TargetDatabase.open(tmp_path / "file")


def test_documentation_agrees_with_the_code(root: Path) -> None:
    text = (root / "docs" / "databases.md").read_text()
    for name in [*FILES, MANIFEST, f"`{alphabet.LETTERS}`", f"The padding byte is {alphabet.PAD},"]:
        assert name in text
    assert f"probability of at least {MaskSettings().threshold} are masked" in " ".join(text.split())
    assert f"one above {MAX_RECORD_BYTES >> 20} MiB" in text
