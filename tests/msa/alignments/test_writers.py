"""The writers of m8, A3M and Stockholm against hand-written expectations."""

import io
import re
from pathlib import Path

import numpy as np
import pytest

from msa.alignments.a3m import write_a3m
from msa.alignments.m8 import COLUMNS, DEFAULT_COLUMNS, parse_columns, write_m8
from msa.alignments.stockholm import write_stockholm
from msa.hits.hits import Hit
from msa.hits.local_alignments import LocalAlignment
from msa.io.fasta import FastaRecord

QUERY = FastaRecord("q1 my protein", "MKTAYIAKQR")


def make_hit(cigar: list[tuple[int, str]], qstart: int, tstart: int, sequence: str, identities: int) -> Hit:
    runs = np.array([length * 4 + "MID".index(operation) for length, operation in cigar], np.int32)
    q = sum(n for n, operation in cigar if operation != "D")
    t = sum(n for n, operation in cigar if operation != "I")
    alignment = LocalAlignment(
        55, qstart, qstart + q - 1, tstart, tstart + t - 1, identities, sum(n for n, _ in cigar), runs
    )
    return Hit(7, "t1|x desc\tand more", sequence, len(QUERY.sequence), 25.75, 1.234e-5, alignment)


# query  -KTA--YIAKQ-   target  KTAGGYQ
HIT = make_hit([(3, "M"), (2, "D"), (1, "M"), (3, "I"), (1, "M")], 2, 3, "XXKTAGGYQWW", 5)


def m8(columns: tuple[str, ...]) -> str:
    stream = io.StringIO()
    write_m8(stream, QUERY, [HIT], columns)
    return stream.getvalue()


def test_default_columns_are_those_of_mmseqs2() -> None:
    assert m8(DEFAULT_COLUMNS) == "q1\tt1|x\t0.500\t10\t0\t2\t2\t9\t3\t9\t1.234E-05\t26\n"


def test_every_m8_column() -> None:
    expected = {
        "query": "q1", "target": "t1|x", "fident": "0.500", "pident": "50.000", "alnlen": "10",
        "mismatch": "0", "gapopen": "2", "qstart": "2", "qend": "9", "tstart": "3", "tend": "9",
        "evalue": "1.234E-05", "bits": "26", "qlen": "10", "tlen": "11", "qcov": "0.800", "tcov": "0.636",
        "cigar": "3M2D1M3I1M", "qseq": "MKTAYIAKQR", "tseq": "XXKTAGGYQWW", "qaln": "KTA--YIAKQ",
        "taln": "KTAGGY---Q", "theader": "t1|x desc and more", "taxid": "0", "taxname": "-",
        "taxlineage": "-",
    }  # fmt: skip
    assert set(expected) == set(COLUMNS)
    names = tuple(expected)
    assert dict(zip(names, m8(names).rstrip("\n").split("\t"), strict=True)) == expected


def test_numbers_are_formatted_like_mmseqs2() -> None:
    # E-values have four digits and a signed exponent; bits are rounded, halves up
    tiny = Hit(0, "t", "MKTAYIAKQR", 10, 100.5, 0.0, HIT.alignment)
    stream = io.StringIO()
    write_m8(stream, QUERY, [tiny], ["evalue", "bits"])
    assert stream.getvalue() == "0.000E+00\t101\n"


def test_parse_columns_accepts_known_names_only() -> None:
    assert parse_columns("target,query") == ("target", "query")
    for bad in ("query,nonsense", "", "query,,target", "Query"):
        with pytest.raises(ValueError, match=r"unknown column '.*'; available: query, target"):
            parse_columns(bad)


def test_a3m_output() -> None:
    stream = io.StringIO()
    write_a3m(stream, QUERY, [HIT])
    assert stream.getvalue() == (
        ">q1 my protein\nMKTAYIAKQR\n>t1|x\t26\t0.500\t1.234E-05\t1\t8\t10\t2\t8\t11\n-KTAggY---Q-\n"
    )


def test_stockholm_output() -> None:
    other = make_hit([(2, "M"), (1, "D"), (2, "M"), (1, "D"), (6, "M")], 1, 1, "MKGTAWYIAKQR", 10)
    stream = io.StringIO()
    write_stockholm(stream, QUERY, [HIT, HIT, other])
    assert stream.getvalue().splitlines() == [
        "# STOCKHOLM 1.0",
        "#=GS q1 DE my protein",
        "#=GS t1|x/3-9 DE desc\tand more",
        "#=GS t1|x/3-9_2 DE desc\tand more",
        "#=GS t1|x/1-12 DE desc\tand more",
        "",
        "q1         MK-TA--YIAKQR",
        "t1|x/3-9   -K-TAGGY---Q-",
        "t1|x/3-9_2 -K-TAGGY---Q-",
        "t1|x/1-12  MKGTAW-YIAKQR",
        "#=GC RF    xx.xx..xxxxxx",
        "//",
    ]


def test_documentation_lists_every_column(root: Path) -> None:
    text = (root / "docs/search.md").read_text()
    table = text[text.index("### Columns of m8") : text.index("### A3M and Stockholm")]
    names = re.findall(r"`(\w+)`", table)
    assert sorted(names) == sorted(COLUMNS) and f"default is\n`{','.join(DEFAULT_COLUMNS)}`" in table
