"""Target databases built from MMseqs2 databases equal those built from the equivalent FASTA files."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database, build_from_mmseqs
from msa.database.cached_databases import open_or_build_database
from msa.mmseqs.files import PADDED_LETTERS, is_mmseqs
from tests.msa.mmseqs.writer import write

SETTINGS = BuildSettings(threads=2, block_bytes=64)
RECORDS = [
    ("sp|P1|ONE first protein", "MKVLAAGGHTRSTYWQQQQQQQQQQNNNNKLV"),
    ("two", "ACDEFGHIKLMNPQRSTVWY"),
    ("three same length as two", "YWVTSRQPNMLKIHGFEDCA"),
    ("four", "MKV"),
]
UNUSUAL_RECORDS = [
    ("lower", "mkvlaaWY"),
    ("odd", "MXUOBZJ*"),
    ("", "MK-V.A"),
    ("inner", "MK*VV"),
    ("empty", ""),
]


def set_type(name: Path, dbtype: int) -> None:
    Path(f"{name}.dbtype").write_bytes(dbtype.to_bytes(4, "little"))


def checksums_from_fasta(folder: Path, records: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the checksums of the database built from a FASTA file with the same records."""
    (folder / "in.fasta").write_text("".join(f">{header}\n{s}\n" for header, s in records))
    return build_database([folder / "in.fasta"], folder / "expected", SETTINGS).checksums


@pytest.mark.parametrize("files", [1, 2, 4])
def test_converted_database_equals_that_of_the_fasta_file(tmp_path: Path, files: int) -> None:
    records = RECORDS + UNUSUAL_RECORDS
    name = write(tmp_path / "db", records, files=files)
    assert is_mmseqs(name)
    progress: list[tuple[int, int | None]] = []
    manifest = build_from_mmseqs(name, tmp_path / "out", SETTINGS, lambda *done: progress.append(done))
    assert manifest.checksums == checksums_from_fasta(tmp_path, records)
    assert manifest.inputs == [
        {"name": "db", "bytes": (tmp_path / "in.fasta").stat().st_size, "format": "MMseqs2 database"}
    ]
    assert manifest.oddities["lower_case_letters"] == 6 and manifest.oddities["empty_sequences"] == 1
    assert len(progress) > 1 and progress[-1][0] == progress[-1][1]


def test_converted_padded_database_equals_that_of_the_fasta_file(tmp_path: Path) -> None:
    records = [*RECORDS, ("x", "AXA")]
    name = write(tmp_path / "db", records, padded=True)
    data = bytearray(name.read_bytes())
    data[0] += 32  # masked
    name.write_bytes(data)
    manifest = build_from_mmseqs(name, tmp_path / "out", SETTINGS)
    assert manifest.checksums == checksums_from_fasta(tmp_path, records)
    assert manifest.inputs[0]["format"] == "padded MMseqs2 database"
    data[1] = 21
    name.write_bytes(data)
    with pytest.raises(InputError, match="the entry with key 0 contains the byte 0x15"):
        build_from_mmseqs(name, tmp_path / "out2", SETTINGS)


def test_entries_are_sorted_by_key_and_joined_with_headers(tmp_path: Path) -> None:
    """Use an unsorted index, keys with gaps, and headers without sequences."""
    records = [("unused header", ""), *RECORDS, ("unused header", "")]
    name = write(tmp_path / "db", records, keys=[5, 7, 8, 10, 20, 30], order=[3, 1, 5, 0, 4, 2])
    lines = Path(f"{name}.index").read_text().splitlines(keepends=True)
    Path(f"{name}.index").write_text("".join(line for line in lines if not line.startswith(("5\t", "30\t"))))
    assert build_from_mmseqs(name, tmp_path / "out", SETTINGS).checksums == checksums_from_fasta(
        tmp_path, RECORDS
    )
    lines = Path(f"{name}_h.index").read_text().splitlines(keepends=True)
    Path(f"{name}_h.index").write_text("".join(line for line in lines if not line.startswith("10\t")))
    with pytest.raises(InputError, match=r"db_h.index: no header for the sequence with key 10$"):
        build_from_mmseqs(name, tmp_path / "out2", SETTINGS)


def test_result_does_not_depend_on_index_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msa.mmseqs.database._INDEX_CHUNK_BYTES", 100)
    monkeypatch.setattr("msa.mmseqs.database._RELEASE_PAGES_EVERY", 200)
    rng = np.random.default_rng(1)
    records = [(f"s{k}", "".join(rng.choice(list(PADDED_LETTERS), rng.integers(1, 60)))) for k in range(300)]
    for padded in (False, True):
        name = write(tmp_path / f"db{padded}", records, padded=padded, files=3)
        found = build_from_mmseqs(name, tmp_path / f"out{padded}", SETTINGS).checksums
        assert found == checksums_from_fasta(tmp_path, records)
        for path in (tmp_path / "expected").iterdir():
            path.unlink()


@pytest.mark.parametrize(
    ("dbtype", "message"),
    [
        (1, "this MMseqs2 database holds nucleotides: translate"),
        (2, "this MMseqs2 database holds profiles: give the sequence database"),
        (6, "this MMseqs2 database holds clusters: give"),
        (5 | 1 << 31, "this MMseqs2 database holds alignments: give"),
        (12, "this MMseqs2 database holds text such as headers: give"),
        (77, "this MMseqs2 database of type 77 holds no sequences"),
        (16 << 16, r"an MMseqs2 database of an unknown kind \(flags 0x10 in .dbtype\)"),
        (
            1 << 31,
            r"a compressed MMseqs2 database: run `mmseqs decompress \S+ \S+_plain && mmseqs lndb \S+_h",
        ),
    ],
)
def test_other_types_are_refused_with_a_remedy(tmp_path: Path, dbtype: int, message: str) -> None:
    name = write(tmp_path / "db", RECORDS)
    set_type(name, dbtype)
    with pytest.raises(InputError, match=rf"{name}: {message}"):
        build_from_mmseqs(name, tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()


def test_compressed_headers_are_refused(tmp_path: Path) -> None:
    name = write(tmp_path / "db", RECORDS)
    set_type(Path(f"{name}_h"), 12 | 1 << 31)
    with pytest.raises(InputError, match=r"compressed .* && mmseqs decompress \S+_h "):
        build_from_mmseqs(name, tmp_path / "out", SETTINGS)


def cut(path: str, count: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / path).read_bytes()
        (folder / path).write_bytes(content[:-count])

    return change


def replaced(path: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / path).read_bytes()
        assert old in content
        (folder / path).write_bytes(content.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "db").unlink(), "db: incomplete MMseqs2 database: this file is missing"),
        (lambda folder: (folder / "db.index").unlink(), "db.index: incomplete MMseqs2 database: this file"),
        (lambda folder: (folder / "db.dbtype").unlink(), "db.dbtype: incomplete MMseqs2 database: this file"),
        (
            lambda folder: (folder / "db_h").unlink(),
            "db_h: incomplete MMseqs2 database: this file is missing",
        ),
        (lambda folder: (folder / "db_h.dbtype").unlink(), "db_h.dbtype: incomplete MMseqs2 database: this"),
        (cut("db.dbtype", 2), "db.dbtype: damaged: 2 bytes instead of 4"),
        (cut("db", 3), "db: truncated: 80 bytes, but the entry with key 3 ends at byte 82"),
        (cut("db_h", 20), r"db_h: truncated: \d+ bytes, but the entry with key 2 ends at byte 55"),
        (cut("db.index", 1), "db.index:4: truncated: the last line does not end in a newline"),
        (lambda folder: (folder / "db.index").write_text(""), "db.index: no entries"),
        (replaced("db.index", b"1\t", b"x\t"), "db.index:2: not an index line"),
        (replaced("db.index", b"\t34\n", b"\t33\n"), "db: damaged: the entry with key 0 does not end where"),
        (replaced("db", b"MKV\n", b"MK>\n"), "db: damaged: the entry with key 3 contains the byte 0x3e"),
        (replaced("db", b"MKV\n", b"MK1\n"), r"db: '1' is not a residue letter \(in the entry with key 3\)"),
        (replaced("db_h", b"two", b"t\0o"), "db_h: damaged: the entry with key 1 contains the byte 0x00"),
    ],
)
def test_damage_is_reported_with_file_and_reason(
    tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    name = write(tmp_path / "db", RECORDS)
    change(tmp_path)
    with pytest.raises(InputError, match=rf"^{tmp_path}/{message}"):
        open_or_build_database(name, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("manifest.json"))


def test_cached_database_depends_on_content(tmp_path: Path) -> None:
    name = write(tmp_path / "db", RECORDS, files=2)
    notices: list[str] = []
    first = open_or_build_database(name, tmp_path / "cache", notify=notices.append)
    assert notices == [f"{name}: converting this MMseqs2 database once, to {first.path}"]
    copy = write(tmp_path / "copy", RECORDS, files=2)
    assert open_or_build_database(copy, tmp_path / "cache", notify=notices.append).path == first.path
    assert len(notices) == 1
    other = write(tmp_path / "copy", [("renamed", RECORDS[0][1]), *RECORDS[1:]], files=2)
    assert open_or_build_database(other, tmp_path / "cache", notify=notices.append).path != first.path


def test_fasta_file_with_an_index_is_not_an_mmseqs_database(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nMKV\n")
    (tmp_path / "a.fasta.index").write_text("something else\n")
    assert not is_mmseqs(tmp_path / "a.fasta")
    assert len(open_or_build_database(tmp_path / "a.fasta", tmp_path / "cache")) == 1


@settings(deadline=None)
@given(data=st.data())
def test_changed_bytes_give_a_database_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    padded = data.draw(st.booleans(), "padded")
    name = write(folder / "db", RECORDS, padded=padded)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(content) - 1))
        content[index] = data.draw(st.sampled_from([*b"0123456789\t\n\0>*", 255]) | st.integers(0, 255))
    path.write_bytes(content)
    try:
        manifest = build_from_mmseqs(name, folder / "out", SETTINGS)
    except InputError as error:
        assert str(error).startswith(str(name)) and "\n" not in str(error)
    else:
        assert manifest.sequences <= len(RECORDS)
