"""Recognition of records that are not proteins."""

import random
from pathlib import Path

import pytest

from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord, read_fasta
from msa.io.molecules import (
    declares_other_molecules,
    describe_non_protein,
    is_annotation,
    looks_like_nucleic_acid,
)

GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"


def read(folder: Path, text: str) -> list[FastaRecord]:
    (folder / "q.fasta").write_text(text)
    return list(read_fasta(folder / "q.fasta"))


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("A|dna", "DNA"),
        ("X|rna|empty", "RNA"),
        ("B|ccd", "a ligand (ccd)"),
        ("A | SMILES", "a ligand (smiles)"),
        ("ligand|name=x", "a ligand"),
        ("glycan|name=g", "a glycan"),
        ("dna|x", "DNA"),
        ("100d_A mol:na length:10  DNA/RNA", "a nucleic acid"),
        ("1EHZ_1|Chain A|TRNA (PHE), RNA (76-MER)|Saccharomyces", "a nucleic acid"),
        ("1BNA_1|Chains A, B|DNA (5'-D(*CP*GP*CP*G)-3')|null", "a nucleic acid"),
        # proteins
        ("sp|P12345|A_HUMAN desc", None),
        ("1ABC_1|Chain A|DNA (cytosine-5)-methyltransferase 1|Homo", None),
        ("1ABC_1|Chain A|RNA polymerase|Homo", None),
        ("101m_A mol:protein length:154", None),
        ("protein", None),
        ("gnl|ligand_gated|x", None),
        ("A|protein|./x.a3m", None),
    ],
)
def test_headers_of_other_programs_declare_molecules(header: str, kind: str | None) -> None:
    assert describe_non_protein(header, "MKV") == kind
    is_boltz_or_chai = kind is not None and kind != "a nucleic acid"
    assert declares_other_molecules(f">q\nMKV\n>{header}\r\nMK\n".encode()) == is_boltz_or_chai


@pytest.mark.parametrize(
    ("sequence", "is_nucleic"),
    [
        ("ATGGCGAACTTCGGATCTTGGAAC", True),
        ("AUGGCGAACUUCGGAUCUUGGAAC", True),
        ("ATGNNNNNNNNNNNNNNNNNNNNNNNNNC", True),
        ("ATGGCGAACTTCGGATCTTGGAACR" * 2, True),  # two ambiguous letters of fifty
        ("ATGGCGAACTTCGGATCTTG", False),  # 20 letters
        ("A" * 60, False),
        ("GA" * 30, False),
        ("N" * 60, False),
        (GB1, False),
        # the type I antifreeze protein of winter flounder, which is rich in alanine
        ("DTASDAAAAAALTAANAKAAAELTAANAAAAAAATAR", False),
    ],
)
def test_nucleic_acids_are_recognised_by_their_letters(sequence: str, is_nucleic: bool) -> None:
    assert looks_like_nucleic_acid(sequence) == is_nucleic


def test_random_proteins_are_not_taken_for_nucleic_acids() -> None:
    draw = random.Random(0)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    assert not any(
        looks_like_nucleic_acid("".join(draw.choices(letters, k=draw.randint(21, 60)))) for _ in range(2000)
    )


def test_fasta_of_other_molecules_is_refused_by_name_and_proteins_keep_their_chain(tmp_path: Path) -> None:
    text = f">A|protein|./x.a3m\n{GB1}\n>B|smiles\nCC(=O)[O-]\n>protein|name=my chain\n{GB1}\n>C|ccd\nATP\n"
    first, smiles, second, ligand = read(tmp_path, text)
    assert (first.id, second.id) == ("A", "my_chain")
    assert first.sequence == second.sequence == GB1
    assert isinstance(smiles, UnsupportedRecord) and "q.fasta:3: 'B|smiles' has a ligand" in str(
        smiles.error()
    )
    assert isinstance(ligand, UnsupportedRecord) and ligand.content == "a ligand (ccd)"


def test_one_chain_of_dna_makes_a_complex_unsupported(tmp_path: Path) -> None:
    (record,) = read(tmp_path, f">x\n{GB1}:ATGGCGAACTTCGGATCTTGGAAC\n")
    assert isinstance(record, UnsupportedRecord) and record.content.startswith("a nucleic acid")


def test_annotations_of_hhsuite_are_no_sequences(tmp_path: Path) -> None:
    assert [record.id for record in read(tmp_path, f">ss_pred\nCCHHH\n>ss_conf\n99012\n>q\n{GB1}\n")] == ["q"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ss_pred", True), ("SS_conf 1abc", True), ("ss_dssp_1abc", True), ("ss_predator", False), ("q", False)],
)
def test_names_of_annotations(name: str, expected: bool) -> None:
    assert is_annotation(name) == expected


def test_other_errors_stay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"q\.fasta:2:3"):
        read(tmp_path, ">A|protein\nMK(\n")
