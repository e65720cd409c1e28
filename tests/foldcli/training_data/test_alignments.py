"""Tests of the alignments of training chains: rows, repeated sequences, and interrupted runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import encode_query
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.order import SEARCH_BATCH
from foldcli.progress import Progress
from foldcli.training_data.alignments import MAX_ROWS, chain_alignments
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
LETTERS = list("ARNDCQEGHILKMFPSTWYV")


class InterruptedSearcher(LocalSearcher):
    """A searcher that is interrupted in a batch, and keeps the sizes of the batches before."""

    def __init__(self, database: TargetDatabase, batches: int) -> None:
        super().__init__(database, CpuEngine())
        self.__dict__.update(sizes=[], batches=batches)

    sizes: list[int]
    batches: int

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Search unless it is the batch of the interrupt."""
        if len(self.sizes) == self.batches:
            raise KeyboardInterrupt
        self.sizes.append(len(queries))
        return super().search_many(queries, settings, progress, on_profile)


def mutants(count: int, mutations: int, seed: int) -> list[str]:
    """Return ubiquitin with random mutations."""
    random = np.random.default_rng(seed)
    sequences = []
    for _ in range(count):
        sequence = list(UBIQUITIN)
        for position in random.choice(len(sequence), mutations, replace=False):
            sequence[position] = str(random.choice(LETTERS))
        sequences.append("".join(sequence))
    return sequences


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    """Return a database of 150 relatives of ubiquitin, with gaps and an unknown residue, and ubiquitin."""
    folder = tmp_path_factory.mktemp("database")
    sequences = [sequence[:30] + sequence[33:] for sequence in mutants(150, 25, seed=0)]
    sequences[0] = f"{sequences[0][:8]}X{sequences[0][9:]}"
    lines = [f">{index}\n{sequence}\n" for index, sequence in enumerate([*sequences, UBIQUITIN])]
    (folder / "db.fasta").write_text("".join(lines))
    build_database([folder / "db.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def test_alignment_has_the_most_distinct_rows_and_codes_of_aatype(
    database: TargetDatabase, tmp_path: Path
) -> None:
    searcher = LocalSearcher(database, CpuEngine())
    ((name, rows),) = chain_alignments([FastaRecord("ubq", UBIQUITIN)], searcher, tmp_path, threads=1)
    assert (name, rows.shape, rows.dtype) == ("ubq", (MAX_ROWS, len(UBIQUITIN)), np.uint8)
    assert (rows[0] == encode_query(UBIQUITIN)).all()
    # ubiquitin itself is no second row
    assert len(np.unique(rows, axis=0)) == MAX_ROWS
    assert rows.max() == 21
    # the deletion is a gap in the query's columns
    assert np.median((rows[1:, 28:36] == 21).sum(axis=1)) == 3
    sequences = [database.sequence(index) for index in range(len(database))]
    letters = np.array([*"ARNDCQEGHILKMFPSTWYVX", ""])
    assert all(any("".join(letters[row]) in sequence for sequence in sequences) for row in rows[1:])


@pytest.mark.slow
def test_interrupted_run_continues_after_the_last_batch(database: TargetDatabase, tmp_path: Path) -> None:
    sequences = mutants(SEARCH_BATCH + 6, 5, seed=1)
    # equal sequences are searched once
    sequences.append(sequences[3])
    queries = [FastaRecord(f"chain_{index}", sequence) for index, sequence in enumerate(sequences)]
    searcher = InterruptedSearcher(database, batches=1)
    with pytest.raises(KeyboardInterrupt):
        list(chain_alignments(queries, searcher, tmp_path / "parts", threads=1))
    assert searcher.sizes == [SEARCH_BATCH]
    searcher = InterruptedSearcher(database, batches=9)
    continued = list(chain_alignments(queries, searcher, tmp_path / "parts", threads=1))
    assert searcher.sizes == [6]
    whole = list(chain_alignments(queries, InterruptedSearcher(database, 9), tmp_path / "other", threads=2))
    assert [name for name, _ in continued] == [query.id for query in queries]
    for (_, first), (_, second), query in zip(continued, whole, queries, strict=True):
        assert (first == second).all()
        assert (first[0] == encode_query(query.sequence)).all()
    # other chains are other batches
    searcher = InterruptedSearcher(database, batches=9)
    assert len(list(chain_alignments(queries[1:], searcher, tmp_path / "parts", threads=1))) == 70
    assert searcher.sizes == [SEARCH_BATCH, 5]
