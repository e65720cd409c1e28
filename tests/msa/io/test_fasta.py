"""The strict FASTA reader: accepted and rejected input, with the location of every error."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, read_fasta, unique_names


def parsed(tmp_path: Path, content: bytes) -> list[tuple[str, str]]:
    path = tmp_path / "query.fasta"
    path.write_bytes(content)
    return [(record.header, record.sequence) for record in read_fasta(path)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b">a\nMKV\n", [("a", "MKV")]),
        (b">a\nMKV", [("a", "MKV")]),
        (b">a first\nMK\nV\n>b\nAC\n", [("a first", "MKV"), ("b", "AC")]),
        (b">a \r\nMK\r\nV\r\n", [("a", "MKV")]),
        (b"\n\n>a\n\nMK\n\nV\n\n", [("a", "MKV")]),
        (b"\xef\xbb\xbf>a\nMKV\n", [("a", "MKV")]),
        (b">a\nmkvXbzUoJ\n", [("a", "MKVXBZUOJ")]),
        (b">a\nMKV LLA\tG\n", [("a", "MKVLLAG")]),
        (b">a\nMKV*\n>b\nMK\n*\n\n", [("a", "MKV"), ("b", "MK")]),
        (b">a\nMK*V\n>b\n*MK*\n*\nV**\n", [("a", "MKXV"), ("b", "XMKXXV")]),
        (b">\nMKV\n", [("", "MKV")]),
        (">a\x1b[31mb c\x01d\u2028e\tf\x9b\nMKV\n".encode(), [("a_[31mb c_d e\tf_", "MKV")]),
        (">å\nMKV\n".encode(), [("å", "MKV")]),
        (b">\xe5\nMKV\n", [("�", "MKV")]),
        (b">a >b\nMKV\n", [("a >b", "MKV")]),
        (b">titin\n" + b"M" * 40_000, [("titin", "M" * 40_000)]),
        (gzip.compress(b">a\nMKV\n", mtime=0), [("a", "MKV")]),
    ],
)
def test_valid_input_is_parsed(tmp_path: Path, content: bytes, expected: list[tuple[str, str]]) -> None:
    assert parsed(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("content", "location", "reason"),
    [
        (b"", "", "empty file"),
        (b"\n \r\n\n", "", "empty file"),
        (b"MKV\n", ":1", "text before the first header"),
        (b"\n\nMKV\n>a\nMKV\n", ":3", "text before the first header"),
        (b"; comment\n>a\nMKV\n", ":1", "text before the first header"),
        (bytes(range(256)), ":1", "binary data"),
        (b"\x7fELF\x02\x01\x01\0\0", ":1", "binary data"),
        (b">a\0b\nMKV\n", ":1:3", "binary data"),
        (b">a\n>b\nMKV\n", ":1", "no sequence after the header '>a'"),
        (b">a\nMKV\n>b\n", ":3", "no sequence after the header '>b'"),
        (b">a\n*\n", ":1", "no sequence"),
        (b">a\nMKV\nMK7\n", ":3:3", "'7' is not a residue letter"),
        (b">a\r\n\r\nMKV\r\nM K!V\r\n", ":4:4", "'!' is not a residue letter"),
        (b">a\nMK-V\n", ":2:3", "'-' is a gap"),
        (b">a\nMK.V\n", ":2:3", "'.' is a gap"),
        (b">a\nMK>V\n", ":2:3", "'>' is not a residue letter"),
        (b">a\nMK\0V\n", ":2:3", "byte 0x00 is not a residue letter"),
        (">a\nMKå\n".encode(), ":2:3", "byte 0xc3 is not a residue letter"),
        (gzip.compress(b">a\nMKV\n", mtime=0)[:-3], "", "truncated gzip file"),
    ],
)
def test_invalid_input_is_reported_with_its_location(
    tmp_path: Path, content: bytes, location: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        parsed(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path}/query.fasta{location}: ")
    assert reason in str(caught.value)


def test_records_before_an_error_are_yielded(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_bytes(b">a\nMKV\n>b\nM1\n")
    records = read_fasta(tmp_path / "a.fasta")
    assert next(records) == FastaRecord("a", "MKV")
    with pytest.raises(InputError):
        next(records)


@pytest.mark.parametrize(
    ("header", "name"), [("a", "a"), ("sp|P1|X Some protein", "sp|P1|X"), ("a\tb", "a"), ("", "")]
)
def test_id_is_the_first_word_of_the_header(header: str, name: str) -> None:
    assert FastaRecord(header, "M").id == name


def test_stop_codons_inside_a_sequence_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_bytes(b">a\n*MK*V**\n>b\nMKV*\n")
    assert [record.stop_codons for record in read_fasta(tmp_path / "a.fasta")] == [2, 0]


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "b", "", "_2"]), max_size=12))
def test_unique_names_keeps_names_that_are_unique(names: list[str]) -> None:
    result = unique_names(names)
    assert len(set(result)) == len(names)
    for index, (name, new) in enumerate(zip(names, result, strict=True)):
        assert (new == name) == (name not in names[:index])


HEADERS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=20).map(
    str.strip
)
SEQUENCES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=50)


@settings(deadline=None)
@given(st.lists(st.tuples(HEADERS, SEQUENCES), min_size=1, max_size=5), st.integers(1, 60), st.booleans())
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], width: int, windows: bool
) -> None:
    end = "\r\n" if windows else "\n"
    lines = []
    for header, sequence in records:
        lines += [">" + header, *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    content = "".join(line + end for line in lines).encode()
    assert parsed(tmp_path_factory.mktemp("fasta"), content) == records
