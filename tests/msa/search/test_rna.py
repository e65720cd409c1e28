"""Searches of RNA: letters, symmetry, iterations, statistics."""

import random
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest

from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.alignment_rows import a3m_rows
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.m8 import write_m8
from msa.alignments.stockholm import write_stockholm
from msa.alphabet import LETTERS, encode
from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.database import BothStrands, TargetDatabase
from msa.engines.search_settings import SearchSettings, default_gap_costs
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord, read_nucleotides
from msa.profile.family_profile import family_profile
from msa.profile.matrices import RNA, substitution_matrix
from msa.search.database_search import search

COSTS = default_gap_costs(RNA)
SETTINGS = SearchSettings(
    evalue=10, matrix=RNA, gap_open=COSTS[0], gap_extend=COSTS[1], profile_gap_open=COSTS[2], max_seqs=1000
)
# matches, transitions and transversions have equal scores in the complement
COMPLEMENT = str.maketrans("ACGUT", "UGCAA")


def build(folder: Path, fasta: str, mask: bool = True) -> TargetDatabase:
    folder.mkdir(parents=True)
    (folder / "t.fasta").write_text(fasta)
    settings = BuildSettings(mask=mask, molecule="rna", threads=1)
    build_database([folder / "t.fasta"], folder / "db", settings)
    return TargetDatabase.open(folder / "db")


def relatives(draw: random.Random) -> tuple[str, list[str]]:
    """Return a sequence, and others at growing distances with flanks, then unrelated ones."""
    query = "".join(draw.choices("AAACGU", k=90))
    found = []
    for number in range(30):
        letters = [draw.choice("ACGU") if draw.random() < 0.015 * number else letter for letter in query]
        del letters[40 : 40 + draw.randrange(3)]
        flanks = ("".join(draw.choices("AACGUU", k=draw.randrange(60))) for _ in range(2))
        found.append("".join(letters).join(flanks))
    found += ["".join(draw.choices("AAAACGU", k=120)) for _ in range(100)]
    return query, [*found, "AC" * 40, "A" * 60]


def fasta_of(sequences: list[str]) -> str:
    return "".join(f">t{number}\n{sequence}\n" for number, sequence in enumerate(sequences))


def table(hits: Hits) -> list[tuple[object, ...]]:
    return [(hit.id, hit.bits, hit.evalue, hit.alignment.cigar) for hit in hits]


def test_letters_of_nucleic_acids_become_those_of_rna(tmp_path: Path) -> None:
    database = build(tmp_path / "a", ">a\nACGTUacgtu\n>b\nRYSWKMBDHVNXACGU\n", mask=False)
    assert [database.sequence(index) for index in range(2)] == ["ACGUUACGUU", "NNNNNNNNNNNNACGU"]
    assert (database.manifest.molecule, database.manifest.format_version) == ("rna", 4)
    records = list(read_nucleotides(BytesIO(b">q one\nacgT\nURY\n"), "q"))
    assert records == [FastaRecord("q one", "ACGUUNN")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b">q\nACGU\nACEL\n", "q:3:3: 'E' is not a letter of a nucleic acid"),
        (b">q\nAC-U\n", "q:2:3: '-' is a gap"),
        (b">A|protein\nACGU\n", "q:1: 'A|protein' is protein, not RNA"),
        (b">q\n", "no sequence"),
        (b"", "empty file"),
        (b"ACGU\n", "text before the first header"),
    ],
)
def test_other_content_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_nucleotides(BytesIO(content), "q"))
    assert reason in str(caught.value)


def test_proteins_are_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t.fasta:4:3: 'L' is not a letter of a nucleic acid"):
        build(tmp_path / "a", ">a\nACGU\n>b\nMKLV\n")
    (tmp_path / "b.fasta").write_text(">a\n" + "ACGU" * 7 + "\n")
    with pytest.raises(InputError, match="--molecule rna builds a database of RNA"):
        build_database([tmp_path / "b.fasta"], tmp_path / "db")


def test_scores_are_symmetric_and_unknown_letters_negative() -> None:
    codes = encode("ACGU")
    scores = substitution_matrix(RNA)[np.ix_(codes, codes)]
    assert (scores == scores.T).all() and (np.diag(scores) == 6).all()
    assert (substitution_matrix(RNA)[:, LETTERS.index("N")] == -1).all()


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_complement_gives_the_same_hits(tmp_path: Path, iterations: int) -> None:
    """A uridine counts like every other nucleotide: in masks, corrections, families and filters."""
    query, targets = relatives(random.Random(1))
    settings = replace(SETTINGS, num_iterations=iterations)
    found = []
    for number, translate in enumerate((str, lambda text: text.translate(COMPLEMENT))):
        database = build(tmp_path / str(number), fasta_of([translate(each) for each in targets]))
        hits = search(FastaRecord("q", translate(query)), database, settings)
        rows = alignment_hits(
            FastaRecord("q", translate(query)), hits, AlignmentFilter(max_seq_id=0.7, diff=5), molecule="rna"
        )
        found.append((table(hits), [row.id for row in rows], database.manifest.masked_residues))
        assert len(hits) > 20 and 1 < len(rows) < len(hits)
        assert all(set(row) <= set(b"ACGUNacgun-") for row in a3m_rows(hits))
    assert found[0] == found[1]


def test_dna_letters_find_the_same(tmp_path: Path) -> None:
    query, targets = relatives(random.Random(2))
    rna = search(FastaRecord("q", query), build(tmp_path / "u", fasta_of(targets)), SETTINGS)
    dna = fasta_of(targets).replace("U", "T").lower()
    assert table(rna) == table(search(FastaRecord("q", query), build(tmp_path / "t", dna), SETTINGS))


def test_iterations_find_more_relatives(tmp_path: Path) -> None:
    draw = random.Random(3)
    # sites that never change, and others that are random in each relative
    conserved = [draw.random() < 0.5 for _ in range(100)]
    ancestor = "".join(draw.choices("ACGU", k=100))
    targets = [
        "".join(a if keep else draw.choice("ACGU") for a, keep in zip(ancestor, conserved, strict=True))
        for _ in range(60)
    ]
    database = build(
        tmp_path / "a", fasta_of(targets + ["".join(draw.choices("ACGU", k=100)) for _ in range(300)])
    )
    query = FastaRecord("q", targets[0])
    counts = [len(search(query, database, replace(SETTINGS, num_iterations=n, evalue=1e-3))) for n in (1, 2)]
    assert counts[0] < counts[1] and counts[1] > 55


def test_family_profile_of_t_is_that_of_u() -> None:
    rows = encode("ACGUNNGUUUACGACGAGNGUUAACGACCUG-GUUUACG".replace("-", "N")).reshape(3, -1)
    profile = family_profile(rows, False, RNA)
    assert (profile[:, LETTERS.index("T")] == profile[:, LETTERS.index("U")]).all()
    assert profile[0, LETTERS.index("A")] == profile[0].max() > 3
    assert (profile[:, LETTERS.index("N")] == -1).all()


def test_expected_numbers_of_chance_hits(tmp_path: Path) -> None:
    draw = random.Random(4)
    targets = ["".join(draw.choices("ACGU", k=draw.randrange(60, 200))) for _ in range(1000)]
    database = build(tmp_path / "a", fasta_of(targets))
    values = [
        hit.evalue
        for number in range(20)
        for hit in search(FastaRecord("q", "".join(draw.choices("ACGU", k=100))), database, SETTINGS)
    ]
    for limit in (1, 3, 10):
        assert 0.5 < sum(value <= limit for value in values) / (20 * limit) < 1.6


@pytest.mark.parametrize("iterations", [1, 3])
def test_both_strands_are_searched_as_if_the_reverse_complements_were_sequences(
    tmp_path: Path, iterations: int
) -> None:
    query, targets = relatives(random.Random(3))
    targets = [each.translate(COMPLEMENT)[::-1] if k % 2 else each for k, each in enumerate(targets)]
    reverse = [each.translate(COMPLEMENT)[::-1] for each in targets]
    fasta = fasta_of(targets)
    strands = BothStrands.of(build(tmp_path / "plus", fasta, mask=False))
    explicit = build(tmp_path / "both", fasta + fasta_of(reverse).replace(">t", ">r"), mask=False)
    assert (len(strands), strands.total_residues) == (len(explicit), explicit.total_residues)
    record, settings = FastaRecord("q", query), replace(SETTINGS, num_iterations=iterations)
    found, expected = search(record, strands, settings), search(record, explicit, settings)
    assert sorted(table(found)) == sorted(("t" + str(name)[1:], *rest) for name, *rest in table(expected))
    streams = [StringIO() for _ in range(3)]
    for stream, write in zip(streams, (write_m8, write_a3m, write_stockholm), strict=True):
        write(stream, record, found)
    rows = [line.split("\t") for line in streams[0].getvalue().splitlines()]
    assert len(rows) > 20 and sum(int(row[8]) > int(row[9]) for row in rows) > 8
    lines = streams[1].getvalue().splitlines()[2:]
    for row, hit, header, letters in zip(rows, found, lines[::2], lines[1::2], strict=True):
        first, last = int(row[8]), int(row[9])
        assert header.split("\t")[7:9] == [str(first - 1), str(last - 1)]
        given = targets[int(row[1][1:])]
        residues = given[first - 1 : last]
        if first > last:
            residues = given[last - 1 : first].translate(COMPLEMENT)[::-1]
        assert residues == letters.replace("-", "").upper() == hit.aligned(query)[1].replace("-", "")
        assert f"{row[1]}/{first}-{last} " in streams[2].getvalue()
