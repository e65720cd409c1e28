"""Alignments of a search in the chains of a job: rows, pairs by species, and what is said about the rest."""

import numpy as np
import pytest

from features.alphafold3.found_alignments import add_alignments
from features.alphafold3.inputs import InputSettings, build_sample
from features.assembly.job import Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from features.complexes.pairing import PairingSettings
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError

FIRST, SECOND = "MKVSL", "GATWYC"
FOUND = {
    FIRST: f">q\n{FIRST}\n>a TaxID=9\nMRVSL\n>b TaxID=7\nMRV-L\n>c TaxID=7\nMKVaST\n>d\nMKVAA\n".encode(),
    SECOND: f">q\n{SECOND}\n>x TaxID=7\nGATW-C\n>y TaxID=5\nGATWYA\n".encode(),
}


def job_of(*polymers: Polymer) -> MoleculeJob:
    return MoleculeJob("job", (*polymers, Ligand(("L",), ("GOL",))), path="job.json", line=3)


def protein(sequence: str, *chains: str) -> Polymer:
    return Polymer(MoleculeKind.PROTEIN, sequence, chains)


def polymers(job: MoleculeJob) -> list[Polymer]:
    return [entity for entity in job.entities if isinstance(entity, Polymer)]


def test_chains_of_several_proteins_get_their_rows_and_pairs_of_a_species() -> None:
    job = job_of(protein(FIRST, "A", "B"), protein(SECOND, "C"), Polymer(MoleculeKind.RNA, "ACGU", ("R",)))
    assert {polymer.sequence for polymer in job.proteins_to_search()} == {FIRST, SECOND}
    result = add_alignments(job, FOUND)
    first, second, rna = polymers(result.job)
    assert first.alignment is not None and len(first.alignment) == 5
    assert first.paired is not None and second.paired is not None
    # of the two rows of species 7, the one with more identical residues is paired
    assert first.paired.sequences == [FIRST, "MKVST"] and second.paired.sequences == [SECOND, "GATW-C"]
    assert first.paired.deletions[1].tolist() == [0, 0, 0, 1, 0]
    assert result.paired_rows == 1 and rna.alignment is None
    assert result.notes == ("chain R: no alignment; --rna-db searches a database of RNA",)
    sample = build_sample(result.job, InputSettings(templates=1)).features
    assert sample["num_paired_seqs"].tolist() == [3]  # the query, the query again, one pair
    columns = np.flatnonzero(sample["is_protein"])
    assert (sample["msa"][2, columns].argmax(-1) != 31).sum() == 5 + 5 + 5


@pytest.mark.parametrize(
    ("settings", "rows", "own_rows"),
    [
        (PairingSettings("unpaired"), None, 5),
        (PairingSettings("paired"), 2, 1),
        (PairingSettings("unpaired_paired", "complete"), 2, 5),
    ],
)
def test_pairing_follows_the_settings(settings: PairingSettings, rows: int | None, own_rows: int) -> None:
    result = add_alignments(job_of(protein(FIRST, "A"), protein(SECOND, "C")), FOUND, settings)
    first, _ = polymers(result.job)
    assert first.alignment is not None and len(first.alignment) == own_rows
    assert (first.paired and len(first.paired)) == rows


def test_copies_of_one_protein_are_not_paired_and_missing_alignments_are_said() -> None:
    result = add_alignments(job_of(protein(FIRST, "A", "B"), protein("MKV", "C")), FOUND)
    assert all(polymer.paired is None for polymer in polymers(result.job))
    assert result.notes == ("chain C: no alignment",) and result.paired_rows == 0


def test_alignments_of_the_job_stay() -> None:
    own = parse_alignment(f">q\n{FIRST}\n>z\nMMMMM\n".encode())
    job = job_of(Polymer(MoleculeKind.PROTEIN, FIRST, ("A",), alignment=own), protein(SECOND, "C"))
    assert [polymer.sequence for polymer in job.proteins_to_search()] == [SECOND]
    result = add_alignments(job, FOUND)
    assert polymers(result.job)[0].alignment is own and polymers(result.job)[1].alignment is not None
    assert result.notes == ("no rows are paired: no species has rows of several chains",)
    paired = job_of(Polymer(MoleculeKind.PROTEIN, FIRST, ("A",), paired=own), protein(SECOND, "C"))
    result = add_alignments(paired, FOUND)
    assert polymers(result.job)[1].paired is None and result.paired_rows == 1


def test_alignment_of_another_sequence_is_refused() -> None:
    with pytest.raises(InputError, match=r"job\.json:3: chain A: the first row"):
        add_alignments(job_of(protein(FIRST, "A")), {FIRST: FOUND[SECOND]})


def test_query_as_paired_alignment_means_no_pairs_of_the_chain() -> None:
    own = {sequence: parse_alignment(rows) for sequence, rows in FOUND.items()}
    query = parse_alignment(f">q\n{FIRST}\n".encode())
    first = Polymer(MoleculeKind.PROTEIN, FIRST, ("A",), alignment=own[FIRST], paired=query)
    result = add_alignments(job_of(first, protein(SECOND, "C")), FOUND)
    assert result.paired_rows == 0 and not result.notes
    assert [polymer.paired for polymer in polymers(result.job)] == [None, None]
    # the other chains are paired with each other
    third = Polymer(
        MoleculeKind.PROTEIN, "MKT", ("D",), alignment=parse_alignment(b">q\nMKT\n>r OX=5\nMRT\n")
    )
    result = add_alignments(job_of(first, protein(SECOND, "C"), third), FOUND)
    rows = [polymer.paired and polymer.paired.sequences for polymer in polymers(result.job)]
    assert result.paired_rows == 1 and rows == [None, [SECOND, "GATWYA"], ["MKT", "MRT"]]


def test_alignment_of_dna_is_said_not_to_be_used() -> None:
    own = parse_alignment(b">q\nACGT\n>r\nACGA\n")
    result = add_alignments(job_of(Polymer(MoleculeKind.DNA, "ACGT", ("D",), alignment=own)), {})
    assert result.notes == ("chain D: the network takes no alignment of DNA, so that of the job is not used",)
