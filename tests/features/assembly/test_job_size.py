"""Sizes of jobs without conformers."""

from features.assembly.job import MoleculeJob, Polymer
from features.assembly.tokens import JobSize, job_size
from features.chemistry.residue_classes import MoleculeKind
from msa.alignments.files import parse_alignment
from tests.features.alphafold3.goldens import golden
from tests.features.alphafold3.query_jobs import read_jobs


def test_sizes_are_those_of_the_features() -> None:
    for name, job in read_jobs().items():
        arrays, size = golden(name), job_size(job)
        assert (size.tokens, size.atoms) == (len(arrays["token_index"]), len(arrays["atom_mask"])), name


def test_rows_are_those_of_the_longest_alignment() -> None:
    alignment = parse_alignment(b">q\nMKV\n>a\nMRV\n")
    polymer = Polymer(MoleculeKind.PROTEIN, "MKV", ("A", "B"), alignment=alignment)
    assert job_size(MoleculeJob("job", (polymer,))) == JobSize(tokens=6, atoms=48, chains=2, rows=2)
