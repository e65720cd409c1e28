"""Exact searches, compared with `str.find`."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import MAX_SEQS, SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, query_profile
from msa.search import exact
from msa.search.exact import exact_search

UNLIMITED = SearchSettings(evalue=math.inf, max_seqs=MAX_SEQS)
LETTERS = "AXW"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    """Build a database of short sequences of three letters, many of them masked; X is also the padding."""
    folder = tmp_path_factory.mktemp("exact")
    rng = np.random.default_rng(0)
    sequences = ["".join(rng.choice(list(LETTERS), rng.integers(1, 30))) for _ in range(40)]
    sequences += ["A" * 60 + "W", "WAWAWAWA", "WAWAWAWA"]
    (folder / "t.fasta").write_text("".join(f">t{k}\n{each}\n" for k, each in enumerate(sequences)))
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    database = TargetDatabase.open(folder / "db")
    assert database.manifest.masked_residues > 20
    return database


def occurrences(database: TargetDatabase, query: str) -> list[tuple[int, int]]:
    """Return target and first position, from 1, of all occurrences."""
    found = []
    for target in range(len(database)):
        sequence = database.sequence(target)
        position = sequence.find(query)
        while position >= 0:
            found.append((target, position + 1))
            position = sequence.find(query, position + 1)
    return found


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(LETTERS, min_size=2, max_size=9), min_size=1, max_size=4), st.integers(8, 200))
def test_all_occurrences_are_found(database: TargetDatabase, queries: list[str], chunk_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_CHUNK_BYTES", chunk_bytes)
        found = list(exact_search([FastaRecord("q", query) for query in queries], database, UNLIMITED))
    for query, (_, hits) in zip(queries, found, strict=True):
        assert [(hit.target, hit.alignment.target_start) for hit in hits] == occurrences(database, query)
        for hit in hits:
            assert hit.aligned(query) == (query, query)
            assert hit.alignment.cigar == f"{len(query)}M" and (
                hit.alignment.query_start,
                hit.alignment.query_end,
            ) == (1, len(query))


def test_evalue_is_the_expected_number_of_occurrences(database: TargetDatabase) -> None:
    ((_, hits),) = exact_search([FastaRecord("q", "WA")], database, UNLIMITED)
    # frequencies of W and A in BLOSUM62's background
    assert hits[0].evalue == pytest.approx(database.total_residues * 0.013 * 0.074, rel=0.02)
    few = SearchSettings(evalue=hits[0].evalue, max_seqs=3)
    ((_, limited),) = exact_search([FastaRecord("q", "WA")], database, few)
    assert limited.targets.tolist() == hits.targets[:3].tolist() and limited.capped
    none = SearchSettings(evalue=hits[0].evalue * 0.99)
    assert [len(hits) for _, hits in exact_search([FastaRecord("q", "WA")], database, none)] == [0]
    whole = SearchSettings(evalue=math.inf, coverage=1.0)
    ((_, complete),) = exact_search([FastaRecord("q", "WAWAWAWA")], database, whole)
    assert [database.sequence(target) for target in complete.targets] == ["WAWAWAWA"] * 2


def test_profiles_and_single_residues_are_refused(database: TargetDatabase) -> None:
    profile = ProfileRecord("p", "WA", query_profile(np.array([17, 0], np.uint8)), "a test")
    for query in (profile, FastaRecord("w", "W")):
        with pytest.raises(InputError, match=r"profile|1 residue"):
            list(exact_search([query], database, UNLIMITED))
