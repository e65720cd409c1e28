"""Alignment readers: round trips from generated alignments, and every kind of invalid input."""

import gzip
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alignments import query_columns
from msa.alignments.complex_a3m import is_complex_a3m, parse_a3m_rows, parse_complex_a3m
from msa.alignments.files import parse_alignment, read_alignment
from msa.base.errors import InputError
from tests.msa.alignments.alignment_builders import single_sequence

LETTERS = st.sampled_from(string.ascii_uppercase)
INSERTS = st.text("acdefghiklmnpqrstvwy", max_size=4)


@st.composite
def families(draw: st.DrawFn) -> list[tuple[str, list[str], list[str]]]:
    """Draw rows of (name, cells, insertions before each cell and after the last); row 0 is the query."""
    length = draw(st.integers(1, 12))
    rows = []
    for i in range(draw(st.integers(1, 8))):
        cells = draw(
            st.lists(LETTERS if i == 0 else LETTERS | st.just("-"), min_size=length, max_size=length)
        )
        inserts = draw(st.lists(INSERTS if i else st.just(""), min_size=length + 1, max_size=length + 1))
        rows.append((f"s{i} x", cells, inserts))
    return rows


def wrapped(text: str, width: int) -> str:
    return "\n".join(text[k : k + width] for k in range(0, len(text), width)) + "\n"


@settings(deadline=None)
@given(families(), st.integers(1, 30), st.booleans())
def test_a3m_round_trip(rows, width: int, crlf: bool) -> None:
    text = ""
    for name, cells, inserts in rows:
        line = "".join(map("".join, zip(inserts, [*cells, ""], strict=True)))
        text += f">{name}\n{wrapped(line, width)}"
    if crlf:
        text = text.replace("\n", "\r\n")
    parsed = parse_alignment(text.encode())
    assert parsed.names == tuple(name for name, _, _ in rows)
    assert parsed.sequences == ["".join(cells) for _, cells, _ in rows]
    np.testing.assert_array_equal(parsed.deletions, [[len(x) for x in ins[:-1]] for _, _, ins in rows])
    assert parsed.letters.dtype == np.uint8


@settings(deadline=None)
@given(families(), st.integers(1, 30), st.sampled_from("-."))
def test_stockholm_and_aligned_fasta_round_trip(rows, width: int, gap: str) -> None:
    widths = [max(map(len, column)) for column in zip(*(row[2] for row in rows), strict=True)]
    full = {}
    for name, cells, inserts in rows:
        padded = (insert.upper().ljust(size, gap) for insert, size in zip(inserts, widths, strict=True))
        joined = map("".join, zip(padded, [cell.replace("-", gap) for cell in cells] + [""], strict=True))
        full[name] = "".join(joined)
    length = len(full[rows[0][0]])
    sto = "# STOCKHOLM 1.0\n#=GF ID x\n"
    for start in range(0, length, width):
        sto += "\n" + "".join(
            f"{name.split()[0]} {text[start : start + width]}\n" for name, text in full.items()
        )
    fasta = "".join(f">{name}\n{wrapped(text, width)}" for name, text in full.items())
    # with dots as gaps and equally many residues in all rows, the FASTA is an A3M as well, and read as one
    is_a3m = gap == "." and len({len(text.replace(gap, "")) for text in full.values()}) == 1
    for text in [sto + "//\n"] if is_a3m else [sto + "//\n", fasta]:
        parsed = parse_alignment(text.encode())
        assert parsed.sequences == ["".join(cells) for _, cells, _ in rows]
        np.testing.assert_array_equal(parsed.deletions, [[len(x) for x in ins[:-1]] for _, _, ins in rows])


@given(families(), st.integers(1, 200))
@settings(deadline=None, max_examples=50)
def test_result_does_not_depend_on_block_size(rows, block: int) -> None:
    text = "".join(
        f">{name}\n{''.join(map(''.join, zip(inserts, [*cells, ''], strict=True)))}\n"
        for name, cells, inserts in rows
    ).encode()
    whole = parse_alignment(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_columns, "BLOCK_BYTES", block)
        in_blocks = parse_alignment(text)
    np.testing.assert_array_equal(whole.letters, in_blocks.letters)
    np.testing.assert_array_equal(whole.deletions, in_blocks.deletions)


def test_deletion_dtype_is_the_narrowest_that_fits() -> None:
    parsed = parse_alignment(b">q\nMK\n>a\nM" + b"a" * 300 + b"K\n")
    assert parsed.deletions.tolist() == [[0, 0], [0, 300]]
    assert parsed.deletions.dtype == np.uint16
    assert parse_alignment(b">q\nMK\n>a\nMaK\n").deletions.dtype == np.uint8


def test_insertions_after_the_last_column_are_not_counted() -> None:
    parsed = parse_alignment(b">q\nMK\n>a\nMKaa\n>b\ncMK\n")
    assert parsed.deletions.tolist() == [[0, 0], [0, 0], [1, 0]]


def test_dots_in_a3m_are_padding() -> None:
    parsed = parse_alignment(b">q\nM..K\n>a\nMac-\n>b\nMa.K\n")
    assert parsed.sequences == ["MK", "M-", "MK"]
    assert parsed.deletions.tolist() == [[0, 0], [0, 2], [0, 1]]


def test_a3m_columns_without_a_query_residue_become_deletions() -> None:
    parsed = parse_alignment(b">q\nM-K-\n>a\nMaLcKT\n>b\nM--a-\n".replace(b"M--a-", b"M-aK-"))
    assert parsed.sequences == ["MK", "MK", "MK"]
    assert parsed.deletions.tolist() == [[0, 0], [0, 3], [0, 1]]


def test_lower_case_aligned_fasta_becomes_upper_case() -> None:
    assert parse_alignment(b">q\nmkvl\n>a\nm-vL\n").sequences == ["MKVL", "M-VL"]


def test_single_sequence_gives_one_row() -> None:
    alignment = single_sequence("ubq", "MQIFVK")
    assert alignment.query == "MQIFVK"
    assert len(alignment) == 1 and alignment.source is None
    assert not alignment.deletions.any()


def test_colabfold_header_line_of_a_monomer_is_accepted() -> None:
    assert parse_alignment(b"#2\t1\n>101\nMK\n>a\n-K\n").sequences == ["MK", "-K"]


def test_trailing_nul_is_ignored() -> None:
    assert parse_alignment(b">q\nMK\n\0").query == "MK"


def test_compression_is_recognised_by_content(tmp_path: Path) -> None:
    compressed = tmp_path / "x.a3m"
    compressed.write_bytes(gzip.compress(b">q\nMK\n"))
    read = read_alignment(compressed)
    assert read.query == "MK"
    assert read.source == str(compressed)


@pytest.mark.parametrize(
    ("content", "location", "reason"),
    [
        (b"", "bad", "empty file"),
        (b" \n\n", "bad", "empty file"),
        (b"\x7fELF\x02\x01\0\0\x01", "bad:1", "not an alignment"),
        (b"MKVL\n", "bad:1", "not an alignment"),
        (b">q\nMK\n>a\nMKV\n", "bad:3", "row 2 (a) has 3 columns, the query has 2"),
        (b">q\nMK\n>b long name\nmM\n>c\nMK\n", "bad:3", "row 2 (b) has 1 columns"),
        (b">q\nMK\n>\nM\n", "bad:3", "row 2 (unnamed)"),
        (b">q\nMK\n>a\n\n", "bad:3", "has 0 columns"),
        (b">q\nMaK\n>a\nMK\n", "bad:1", "the query (first row) has insertions"),
        (b">q\n>a\nMK\n", "bad:1", "the query (first row) is empty"),
        (b">q\n--\n>a\nMK\n", "bad", "no residues"),
        (b">q\nMK\n>a\nM1\n", "bad:4:2", "'1' is not a residue letter"),
        (b">q\nMK*\n", "bad:2:3", "'*' is not a residue letter"),
        (b">q\nMK\n>a\n\xc3\x28\n", "bad:4:1", "'Ã' is not a residue letter"),
        (b">q\nMK\n>a\nM\0K\n>b\nMK\n", "bad:4:2", "byte 0x00 is not a residue letter"),
        (b"#5,4\t1,1\n>q\nMKVLAMKVL\n", "bad:1", "complex (2 chains"),
        (b"#5\t2\n>q\nMKVLA\n", "bad:1", "complex (2 chains"),
        (b"#5\t1,1\n>q\nMKVLA\n", "bad:1", "do not match"),
        (b"#5\t1\n>q\nMKV\n", "bad:1", "declares 5 residues, the query has 3"),
        (b"# a comment\nMK\n>q\nMK\n", "bad:2", "text before the first header"),
        (b"# only a comment\n", "bad", "no sequences"),
        (b"# STOCKHOLM 1.0\n//\n", "bad", "no sequences"),
        (b"# STOCKHOLM 1.0\nq MK\na M\n//\n", "bad:3", "row 2 (a) has 1 columns, the query has 2"),
        (b"# STOCKHOLM 1.0\nq MK\na M K\n//\n", "bad:3", "expected a name and a piece of sequence"),
        (b"# STOCKHOLM 1.0\nq MK\na MK\n\nq MK\na M5\n//\n", "bad:6", "'5' in a is not a residue letter"),
        (b"# STOCKHOLM 1.0\nq --\na MK\n//\n", "bad", "no residues"),
    ],
)
def test_invalid_input_is_reported_with_its_location(content: bytes, location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_alignment(content, "bad")
    assert str(caught.value).startswith(f"{location}: ")
    assert reason in caught.value.reason


@settings(deadline=None)
@given(
    st.binary(max_size=200), st.sampled_from([b"", b">q\n", b"# STOCKHOLM 1.0\n", b"#3\t1\n>q\nMKV\n>a\n"])
)
def test_arbitrary_bytes_are_parsed_or_raise_input_error(junk: bytes, start: bytes) -> None:
    try:
        parsed = parse_alignment(start + junk)
    except InputError:
        return
    assert parsed.letters.shape == parsed.deletions.shape
    assert parsed.query.isalpha() and parsed.query.isupper()
    assert len(parsed.names) == len(parsed)


ANNOTATED = (
    b">ss_pred PSIPRED\nCCHH\n>ss_conf\n9999\n>q\nMKVL\n"
    b">a\nMaaKVL\n>SS_dssp\nCC\nHH\n>b\nM-VL\n>sa_dssp\n1234\n"
)


def test_rows_of_annotations_are_skipped_in_a3m() -> None:
    for data in (ANNOTATED, b"#4\t1\n" + ANNOTATED):
        alignment = parse_alignment(data)
        assert alignment.names == ("q", "a", "b")
        assert alignment.sequences == ["MKVL", "MKVL", "M-VL"]
        np.testing.assert_array_equal(alignment.deletions[1], [0, 2, 0, 0])
    rows = parse_complex_a3m(b"#4\t2\n" + ANNOTATED)
    assert [len(chain) for chain in rows.unpaired] == [3]
    assert [row.header for row in parse_a3m_rows(ANNOTATED)] == ["q", "a", "b"]


def test_file_of_annotations_alone_is_refused() -> None:
    with pytest.raises(InputError, match="no sequences"):
        parse_alignment(b">ss_pred\nCCHH\n")


def test_wrapped_stockholm_repeats_names_in_each_block() -> None:
    text = b"# STOCKHOLM 1.0\n\nq MK\na MR\n#=GC RF xx\n\nq VL\na VI\n//\n\n"
    assert parse_alignment(text).sequences == ["MKVL", "MRVI"]


@pytest.mark.parametrize("line", [b"#4,4\t1,1", b"#4,4   1,1", b"#note\n#4,4\t 1,1 "])
def test_line_of_chains_may_have_spaces_and_follow_comments(line: bytes) -> None:
    assert is_complex_a3m(line + b"\n>101\t102\nMKVLMKVI\n")


@pytest.mark.parametrize("line", [b"#4,4", b"#4, 4\t1, 1", b"#4;4\t1;1", b"# 4,4\t1,1"])
def test_damaged_line_of_chains_is_refused(line: bytes) -> None:
    with pytest.raises(InputError, match="f:1: expected the lengths of the chains, a tab"):
        parse_alignment(line + b"\n>101\t102\nMKVLMKVI\n", "f")
