"""Organisms in headers, also after writing them to an A3M file and reading it."""

import io

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.files import parse_alignment
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.taxonomy import organism_fields, species, taxon_id, taxon_lineage, taxon_name
from msa.hits.hits import Hit
from msa.hits.local_alignments import LocalAlignment
from msa.io.fasta import FastaRecord

QUERY = FastaRecord("query", "MKVLAAGIVG")
# header in a database, fields kept in alignments, species
HEADERS = [
    ("sp|P0C2L1|A3X1_LOXLA Toxin OS=Loxosceles laeta OX=58217 GN=x PE=1 SV=1", "OX=58217", "LOXLA"),
    ("tr|A0A146SKV9|A0A146SKV9_FUNHE Protein OX=8078", "OX=8078", "FUNHE"),
    ("tr|A0A146SKV9_1|A0A146SKV9_FUNHE_5 isoform", "", "FUNHE"),
    (
        "UniRef100_A0A2L2TCV1 Xylanase n=1 Tax=Fusarium venenatum TaxID=56646 RepID=A0A2L2TCV1_9HYPO",
        "TaxID=56646 RepID=A0A2L2TCV1_9HYPO",
        "9HYPO",
    ),
    ("UniRef100_UPI0001 Xylanase n=1 TaxID=56646 RepID=UPI0001", "TaxID=56646 RepID=UPI0001", "56646"),
    ("x TaxID= RepID=\tOX=", "", ""),
    ("plain a header that names FOX=3 and xTaxID=4", "", ""),
    ("P0C2L1\tOX=58217", "OX=58217", "58217"),
    ("", "", ""),
    ("WP_000015725.1 [NiFe] hydrogenase [Escherichia coli]", "[Escherichia coli]", "Escherichia_coli"),
    ("AAA12345.1 one [Homo sapiens] XP_001234.2 two [Pan troglodytes]", "[Homo sapiens]", "Homo_sapiens"),
    ("WP_000015725.1\t88\t0.9\t[Escherichia coli str. K-12]", "[Escherichia coli str. K-12]",
     "Escherichia_coli_str._K-12"),
    ("WP_000015725.1 [NiFe] hydrogenase", "", ""),
    ("x [Homo sapiens]", "", ""),
]  # fmt: skip
TAXA = [
    (0, "58217", "Loxosceles laeta"), (1, "8078", "-"), (2, "0", "-"), (3, "56646", "Fusarium venenatum"),
    (5, "0", "-"), (9, "0", "Escherichia coli"), (10, "0", "Homo sapiens"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "number", "name"), TAXA)
def test_taxon_columns(index: int, number: str, name: str) -> None:
    header = HEADERS[index][0]
    assert (taxon_id(header), taxon_name(header)) == (number, name)


@pytest.mark.parametrize(
    ("header", "lineage"),
    [
        (
            "AB1.1.9 Bacteria;Bacillota;Bacilli;Bacillus subtilis",
            "Bacteria;Bacillota;Bacilli;Bacillus subtilis",
        ),
        ("AB1.1.9 Eukaryota;Opisthokonta;Fungi;", "Eukaryota;Opisthokonta;Fungi"),
        ("P1 a; b; c", "-"),
        ("P1 kinase OS=Homo sapiens OX=9606", "-"),
        ("P1", "-"),
    ],
)
def test_lineage_of_silva(header: str, lineage: str) -> None:
    assert taxon_lineage(header) == lineage


def hit(header: str, sequence: str = "MKVLAAGIVG", bits: float = 20.0) -> Hit:
    runs = np.array([len(sequence) << 2], np.int32)
    alignment = LocalAlignment(50, 1, len(sequence), 1, len(sequence), 9, len(sequence), runs)
    return Hit(0, header, sequence, len(QUERY.sequence), bits, 1e-5, alignment)


@pytest.mark.parametrize(("header", "fields", "name"), HEADERS)
def test_organism_fields_and_species(header: str, fields: str, name: str) -> None:
    assert organism_fields(header) == fields
    assert species(header) == name


def a3m_text(hits: list[Hit]) -> str:
    stream = io.StringIO()
    write_a3m(stream, QUERY, hits)
    return stream.getvalue()


def test_a3m_round_trip_keeps_species() -> None:
    hits = [hit(header) for header, _, _ in HEADERS]
    read = parse_alignment(a3m_text(hits).encode())
    assert [species(name) for name in read.names[1:]] == [name for _, _, name in HEADERS]
    # the ten fields of ColabFold's alignments come first
    fields = read.names[4].split("\t")
    assert fields[0] == "UniRef100_A0A2L2TCV1" and len(fields) == 11
    assert fields[1:10] == ["20", "0.900", "1.000E-05", "0", "9", "10", "0", "9", "10"]
    assert len(read.names[6].split("\t")) == 10
    # AlphaFold reads accession and species from the first word up to a slash
    assert read.names[1].split()[0].partition("/")[0] == "sp|P0C2L1|A3X1_LOXLA"
    assert make_features([read])["msa"].shape == (1, 10)


def test_equal_rows_are_written_once_per_species() -> None:
    hits = [
        hit("a"), hit("b TaxID=1", bits=19), hit("c TaxID=1", bits=18), hit("d TaxID=2", bits=17),
        hit("e", "MKVLAAGI", bits=16), hit("f", "MKVLAAGI", bits=15),
    ]  # fmt: skip
    rows = alignment_hits(QUERY, hits, AlignmentFilter())
    # the first row equals the query
    assert [row.id for row in rows] == ["b", "d", "e"]
    of_taxon = FastaRecord("query TaxID=1", QUERY.sequence)
    assert [row.id for row in alignment_hits(of_taxon, hits, AlignmentFilter())] == ["a", "d", "e"]


def test_rows_that_differ_only_in_insertions_are_kept() -> None:
    runs = np.array([5 << 2, 1 << 2 | 2, 5 << 2], np.int32)
    inserted = Hit(0, "i", "MKVLAWAGIVG", 10, 9.0, 1e-3, LocalAlignment(40, 1, 10, 1, 11, 10, 11, runs))
    rows = alignment_hits(QUERY, [inserted, hit("same")], AlignmentFilter())
    assert [row.id for row in rows] == ["i"]
    assert "MKVLAwAGIVG" in a3m_text(rows)


def test_alignment_filter_applies_after_deduplication() -> None:
    hits = [hit("near", "MKVLAAGIVA"), hit("far", "MKWWWWGIVG"), hit("short", "MKVL")]
    everything = alignment_hits(QUERY, hits, AlignmentFilter())
    assert [row.id for row in everything] == ["near", "far", "short"]
    for filter_settings, ids in (
        (AlignmentFilter(qid=0.8), ["near", "short"]),
        (AlignmentFilter(cov=0.5), ["near", "far"]),
        (AlignmentFilter(max_seq_id=0.85), ["far"]),
        (AlignmentFilter(qsc=1.2), ["short"]),
    ):
        assert [row.id for row in alignment_hits(QUERY, hits, filter_settings)] == ids
