"""Alignments and error messages equal those of the simple reference reader."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msa.alignments import query_columns
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from tests.msa.alignments import reference_alignments

LETTERS = "ACDXBZUOJ-.acdx"
# insertions that give ragged rows, invalid letters or unusual lines
ERRORS = [
    "",
    "",
    "",
    "A",
    "a",
    "-",
    "5",
    "*",
    "\0",
    "\n",
    "\n#x\n",
    "\r\n",
    " ",
    "\t",
    "Ã",
    ">",
    "//\n",
    "x y z\n",
]


def parse_result(parse, data: bytes):
    """Return the alignment or the error message of a parser, in comparable form."""
    try:
        read = parse(data, "x.a3m")
    except InputError as error:
        return str(error)
    return (
        read.names,
        read.source,
        *((array.dtype, array.shape, array.tobytes()) for array in (read.letters, read.deletions)),
    )


def corrupted(draw: st.DrawFn, text: str) -> bytes:
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, len(text)))
        text = text[:index] + draw(st.sampled_from(ERRORS)) + text[index + draw(st.integers(0, 1)) :]
    return text.encode()


@st.composite
def fasta_like(draw: st.DrawFn) -> bytes:
    """Draw A3M or aligned FASTA, possibly with gaps in the query, often with an error."""
    width = draw(st.integers(1, 9))
    insertions = draw(st.sampled_from([0, 3, 300]))
    text = draw(st.sampled_from(["", "", "#4\t1\n", "#4,4\t1,1\n", "# note\n", "\n "]))
    for row in range(draw(st.integers(1, 7))):
        cells = draw(
            st.text(LETTERS[:11] if draw(st.booleans()) else LETTERS, min_size=width, max_size=width)
        )
        if row and insertions:
            index = draw(st.integers(0, width))
            cells = cells[:index] + "a" * draw(st.integers(0, insertions)) + cells[index:]
        fold = draw(st.integers(1, 12))
        lines = [cells[k : k + fold] for k in range(0, len(cells), fold)]
        text += f">s{row} x\n" + "\n".join(lines) + "\n"
    return corrupted(draw, text)


@st.composite
def stockholm(draw: st.DrawFn) -> bytes:
    """Draw Stockholm in several blocks of columns, often with an error."""
    width, fold = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rows = draw(st.lists(st.text(LETTERS, min_size=width, max_size=width), min_size=1, max_size=7))
    text = "# STOCKHOLM 1.0\n#=GF ID x\n"
    for start in range(0, width, fold):
        text += "\n" + "".join(
            f"{'AC'[k % 2] * k or 'q'}  {x[start : start + fold]} \n" for k, x in enumerate(rows)
        )
    return corrupted(draw, text + "//\n" + draw(st.sampled_from(["", "junk\n", "# STOCKHOLM 1.0\nq M\n"])))


@given(fasta_like() | stockholm(), st.integers(1, 60))
@example(b">q\nMK\n>a\nM\n>b\nM5\n", 1)
@example(b">q\n--\n>a\nM5\n", 1)
@example(b"# STOCKHOLM 1.0\nq MKV\na MKV\n\nq MKV\na 5KV\n//\n", 1)
@example(b"# STOCKHOLM 1.0\n\x00q  A\n//\n", 1)
@example(b"# STOCKHOLM 1.0\nq MK\nq MK\n//\n", 1)
@example(b"#4\t15>a\nA\n", 1)
@settings(max_examples=200, deadline=None)
def test_readers_agree_for_any_block_size(data: bytes, block: int) -> None:
    expected = parse_result(reference_alignments.parse_alignment, data)
    assert parse_result(parse_alignment, data) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_columns, "BLOCK_BYTES", block)
        assert parse_result(parse_alignment, data) == expected


def test_readers_agree_on_alignments_of_several_blocks() -> None:
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-", np.uint8)[rng.integers(21, size=(3000, 211))]
    rows = [row.tobytes().decode() for row in letters]
    fasta = "".join(f">s{k}\n{row}\n" for k, row in enumerate(rows)).encode()
    a3m = f">q\n{rows[0].replace('-', 'M')}\n".encode() + b"".join(
        f">s{k}\n{'ac' * (k % 5)}{row[:100]}{'d' * (k % 301)}{row[100:]}\n".encode()
        for k, row in enumerate(rows)
    )
    sto = "# STOCKHOLM 1.0\n" + "".join(f"s{k} {row}\n" for k, row in enumerate(rows)) + "//\n"
    for data in (fasta, a3m, sto.encode()):
        assert len(data) > 2 * query_columns.BLOCK_BYTES
        expected = parse_result(reference_alignments.parse_alignment, data)
        assert not isinstance(expected, str)
        assert parse_result(parse_alignment, data) == expected


@pytest.mark.parametrize(
    "file", ["6KWC_1.a3m", "3u8v_A.a3m", "3u8v_A.uniref90.sto", "2QKE_E.colabfold.a3m.gz"]
)
def test_readers_agree_on_real_alignments(shared_dir: Path, file: str) -> None:
    data = read_bytes(shared_dir / "data" / "msas" / file)
    assert parse_result(parse_alignment, data) == parse_result(reference_alignments.parse_alignment, data)
