"""Tests of the search for the RNA chains of jobs: which are searched, and what their targets get."""

from pathlib import Path

import pytest

from features.assembly.job import Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.errors import TargetFailed
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.search.stores import ChainStore
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.files import parse_alignment
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError, UnwritableFolder
from msa.database.build import BuildSettings, build_database
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

SEQUENCE = "GGCUAAGCCAUUGCGAUCGGAUAACGCUUGACGGCAUUACGGCUAUGC"
OWN = parse_alignment(b">r\nACGU\n")
PROTEIN = Polymer(MoleculeKind.PROTEIN, "MKV", ("P",))
JOB = MoleculeJob(
    "job",
    (
        Polymer(MoleculeKind.RNA, SEQUENCE, ("A", "B")),
        Polymer(MoleculeKind.RNA, "ACGU", ("C",), alignment=OWN),
        Polymer(MoleculeKind.RNA, "A", ("D",)),
        Polymer(MoleculeKind.DNA, SEQUENCE.replace("U", "T"), ("E",)),
        PROTEIN,
        Ligand(("L",), ("ATP",)),
    ),
)
OTHERS = [("q", FastaRecord("q", "MKV")), ("protein", MoleculeJob("protein", (PROTEIN,)))]


@pytest.fixture
def search(tmp_path: Path) -> RnaSearch:
    changed = [SEQUENCE[:k] + ("A" if SEQUENCE[k] != "A" else "C") + SEQUENCE[k + 1 :] for k in (6, 17, 30)]
    text = "".join(f">r{k}\n{sequence}\n" for k, sequence in enumerate(changed))
    (tmp_path / "rna.fasta").write_text(text)
    build_database([tmp_path / "rna.fasta"], tmp_path / "db", BuildSettings(molecule="rna", threads=1))
    settings = AlignmentSettings(SearchSettings(), AlignmentFilter())
    return RnaSearch(str(tmp_path / "db"), settings, tmp_path / "cache")


def test_rna_chains_get_the_alignments_of_a_search(search: RnaSearch, tmp_path: Path) -> None:
    failures = Failures(tmp_path, Shard())
    targets = [("job", JOB), *OTHERS]
    # a dry run searches nothing
    assert search.add_alignments(targets, failures, dry_run=True) == targets
    for dry_run in (False, True):
        (name, job), *others = search.add_alignments(targets, failures, dry_run)
        assert name == "job" and others == OTHERS and failures.failed == []
        searched, *unchanged = job.entities
        assert tuple(unchanged) == JOB.entities[1:]
        assert searched.chains == ("A", "B") and searched.alignment.query == SEQUENCE
        assert len(searched.alignment) == 4
        assert sorted(name.split("\t")[0] for name in searched.alignment.names[1:]) == ["r0", "r1", "r2"]
    # nothing else was searched
    assert len(list(search.cache.rglob("*.a3m.gz"))) == 1


def test_no_database_is_opened_without_chains_to_search(search: RnaSearch, tmp_path: Path) -> None:
    missing = RnaSearch(str(tmp_path / "missing"), search.settings, search.cache)
    assert missing.add_alignments(OTHERS, Failures(tmp_path, Shard())) == OTHERS


def test_a_database_of_proteins_is_refused(search: RnaSearch, tmp_path: Path) -> None:
    (tmp_path / "protein.fasta").write_text(">p\nMKVLAAGIV\n")
    build_database([tmp_path / "protein.fasta"], tmp_path / "proteins", BuildSettings(threads=1))
    wrong = RnaSearch(str(tmp_path / "proteins"), search.settings, search.cache)
    with pytest.raises(InputError, match="database of proteins"):
        wrong.add_alignments([("job", JOB)], Failures(tmp_path, Shard()))


def test_failed_search_counts_as_a_failed_target(
    search: RnaSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: ChainStore, name: str, query: FastaRecord) -> bool:
        raise InputError("unusable")

    monkeypatch.setattr(ChainStore, "is_finished", fail)
    failures = Failures(tmp_path, Shard())
    assert search.add_alignments([("job", JOB), *OTHERS], failures) == OTHERS
    with pytest.raises(TargetFailed):
        failures.raise_if_any()


def test_cache_that_cannot_be_written_ends_the_run(search: RnaSearch, tmp_path: Path) -> None:
    search.cache.write_text("not a folder")
    with pytest.raises(UnwritableFolder):
        search.add_alignments([("job", JOB), *OTHERS], Failures(tmp_path, Shard()))
