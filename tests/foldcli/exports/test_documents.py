"""Tests of the job files of Boltz and Chai: their proteins, the inserted text, and tables of alignments."""

import csv
import hashlib
import io
from pathlib import Path

import pytest
import yaml

from features.chemistry.residue_classes import MoleculeKind
from foldcli.exports.boltz import BoltzDocument
from foldcli.exports.chai import ChaiDocument
from foldcli.exports.document import AlignmentFiles, ChainRows
from msa.alignments.complex_a3m import A3mRow
from msa.base.errors import InputError

A, B = "MKVLAAGIV", "GHTKDLMNP"
BOLTZ = f"""\
version: 1  # kept
sequences:
  - protein:
      id: [A, C]
      sequence: {A}
  - Protein: {{id: B, sequence: {B}, msa: ""}}
  - protein:
      id: D
      sequence: GGGG
      msa: own.a3m
  - ligand: {{id: L, ccd: ATP}}
"""
CHAI = f">protein|name=A\n{A}\n>ligand|L\nCCO\n>protein|B\nG(SEP)HTKDL(MSE)N(XYZ)\n>protein|name=C\n{A}\n"


def refuse(error: InputError) -> None:
    raise error


def rows_of(sequence: str, *paired: str | None) -> ChainRows:
    """Return a query with two unpaired rows, of which the second is also a paired one, and paired rows."""
    unpaired = [
        A3mRow("query", sequence),
        A3mRow("UniRef100_X n=1", "m" + sequence),
        A3mRow("y", sequence[::-1]),
    ]
    return ChainRows(unpaired, [None if row is None else A3mRow("p", row) for row in paired])


def test_boltz_document_gets_a_line_for_each_protein_without_an_alignment(tmp_path: Path) -> None:
    document = BoltzDocument(BOLTZ.encode(), "job.yaml", refuse)
    (job,) = document.jobs
    assert (job.name, job.line) == ("job", 1)
    assert [(each.chain, each.sequence, each.own_alignment) for each in job.polymers] == [
        ("A", A, None), ("B", B, None), ("D", "GGGG", "msa"),
    ]  # fmt: skip
    files = AlignmentFiles(tmp_path / "job msa")
    found = {A: rows_of(A, None, "AAAAAAAAA"), B: rows_of(B)}
    document.fill(job, MoleculeKind.PROTEIN, found, files)
    assert [path.name for path in files.written] == ["A.csv", "B.csv"]
    first, second = files.written
    # a path with a space is in quotes
    expected = BOLTZ.replace(f"      sequence: {A}", f'      msa: "{first}"\n      sequence: {A}')
    text = document.edited().decode()
    assert text == expected.replace('msa: ""', f'msa: "{second}"')
    proteins = [next(iter(entity.values())) for entity in yaml.safe_load(text)["sequences"][:3]]
    assert [protein["msa"] for protein in proteins] == [str(first), str(second), "own.a3m"]


@pytest.mark.parametrize(
    ("paired", "keys"), [((), [-1, -1, -1]), (("PPPPPPPPP", None, "QQQQQQQQQ"), [0, 1, 3, -1, -1])]
)
def test_rows_of_boltz_have_the_numbers_of_their_pairs(
    paired: tuple[str | None, ...], keys: list[int], tmp_path: Path
) -> None:
    document = BoltzDocument(
        f"sequences:\n- protein: {{id: A, sequence: {A}}}\n".encode(), "job.yaml", refuse
    )
    files = AlignmentFiles(tmp_path)
    document.fill(document.jobs[0], MoleculeKind.PROTEIN, {A: rows_of(A, *paired)}, files)
    table = list(csv.DictReader(io.StringIO(files.written[0].read_text())))
    assert [int(row["key"]) for row in table] == keys
    pairs = [row for row in paired if row is not None]
    assert [row["sequence"] for row in table] == [A, *pairs, f"m{A}", A[::-1]]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_boltz_document_keeps_its_mark_and_line_ends(mark: bytes, newline: str, tmp_path: Path) -> None:
    data = mark + f"sequences:\n- protein:\n    id: A\n    sequence: {A}\n".replace("\n", newline).encode()
    document = BoltzDocument(data, "job.yaml", refuse)
    assert document.edited() == data
    files = AlignmentFiles(tmp_path)
    document.fill(document.jobs[0], MoleculeKind.PROTEIN, {A: rows_of(A)}, files)
    line = f"    msa: {files.written[0]}{newline}"
    assert document.edited() == data.replace(b"    sequence", line.encode() + b"    sequence")


def test_chai_document_finds_its_proteins_by_their_parent_letters(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    document = ChaiDocument(CHAI.encode(), "job.fasta", refuse)
    (job,) = document.jobs
    # SEP stands for S, MSE for M, and an unknown component for X
    other = "GSHTKDLMNX"
    assert [(each.chain, each.sequence, each.line) for each in job.polymers] == [
        ("A", A, 1), ("B", other, 5), ("C", A, 7),
    ]  # fmt: skip
    files = AlignmentFiles(tmp_path)
    unpaired = rows_of(other)
    # a row that is also a paired one is written once
    found = {A: rows_of(A, None, "PPPPPPPPP", A[::-1]), other: unpaired}
    document.fill(job, MoleculeKind.PROTEIN, found, files)
    names = [f"{hashlib.sha256(sequence.encode()).hexdigest()}.aligned.pqt" for sequence in (A, other)]
    assert [path.name for path in files.written] == names
    first, second = (parquet.read_table(path).to_pydict() for path in files.written)
    assert first == {
        "sequence": [A, "PPPPPPPPP", A[::-1], f"m{A}"],
        "source_database": ["query", "bfd_uniclust", "bfd_uniclust", "uniref90"],
        "pairing_key": ["", "2", "3", ""],
        "comment": ["query", "p", "p", "UniRef100_X n=1"],
    }
    assert second["pairing_key"] == ["", "", ""] and second["sequence"][0] == other
    assert document.edited() == CHAI.encode()
