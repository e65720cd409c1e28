"""Searches of the parts of a split database, merged, compared with a search of the whole."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import split_folders
from msa.engines import search_settings
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, query_profile
from msa.search import windows
from msa.search.database_search import search_many
from msa.search.split.hit_files import PartHitsFile, PartHitsWriter, describe_queries
from msa.search.split.merge import PartHits, merge_hits
from msa.search.split.part_search import ReadParts, search_part

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")


def mutated(rng: np.random.Generator, sequence: str, rate: float) -> str:
    """Return a sequence with random replacements, and with some residues left out."""
    residues = [str(rng.choice(LETTERS)) if rng.random() < rate else residue for residue in sequence]
    return "".join(residue for residue in residues if rng.random() > rate / 8)


def family_databases(
    folder: Path, parts: int, clustered: bool
) -> tuple[str, TargetDatabase, list[TargetDatabase]]:
    """Build a database of relatives of a query, duplicates and unrelated sequences, whole and split."""
    rng = np.random.default_rng(parts)
    query = "".join(rng.choice(LETTERS, 70))
    sequences = [mutated(rng, query, rate) for rate in np.linspace(0.05, 0.8, 30)]
    # equal scores, so that the order of the whole database decides
    sequences += [sequences[k] for k in (3, 3, 7, 9, 9, 9)]
    sequences += ["".join(rng.choice(LETTERS, rng.integers(20, 90))) for _ in range(24)]
    return query, *build_databases(folder, sequences, parts, clustered)


def build_databases(
    folder: Path, sequences: list[str], parts: int, clustered: bool
) -> tuple[TargetDatabase, list[TargetDatabase]]:
    """Build a database of sequences in any order, whole and split."""
    order = np.random.default_rng(0).permutation(len(sequences)).tolist()
    (folder / "t.fasta").write_text("".join(f">s{k} number {k}\n{sequences[k]}\n" for k in order))
    table = folder / "t.tsv"
    table.write_text("".join(f"s{k % 20}\ts{k}\n" for k in order))
    build_settings = BuildSettings(clusters=table if clustered else None, threads=1)
    build_database([folder / "t.fasta"], folder / "whole", build_settings)
    build_database([folder / "t.fasta"], folder / "split", replace(build_settings, parts=parts))
    opened = [TargetDatabase.open(part) for part in split_folders(folder / "split")]
    return TargetDatabase.open(folder / "whole"), opened


Databases = dict[tuple[int, bool], tuple[str, TargetDatabase, list[TargetDatabase]]]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return {
        (parts, clustered): family_databases(tmp_path_factory.mktemp("split"), parts, clustered)
        for parts, clustered in ((1, False), (2, False), (5, False), (3, True))
    }


@dataclass(frozen=True)
class LastIteration:
    """The hits of a query in all parts in its last iteration, and whether the search continued without it."""

    parts: list[PartHits]
    has_left: bool


def search_parts(
    queries: list[FastaRecord], parts: list[TargetDatabase], search: SearchSettings
) -> list[LastIteration]:
    """Run all iterations in all parts, whose hits are written to files and read again."""
    earlier: list[ReadParts] = []
    found: dict[int, LastIteration] = {}
    for iteration in range(search.num_iterations):
        files = []
        for part in parts:
            path = part.path.parent / f"hits.{iteration}.{part.path.name}"
            with path.open("wb") as stream, PartHitsWriter(stream, {}) as writer:
                for query, hits in search_part(queries, part, search, earlier=earlier):
                    writer.add(query, hits)
            files.append(PartHitsFile.open(path))
            assert describe_queries(files[-1].queries) == describe_queries(queries)
        (searched,) = {file.searched for file in files}
        found |= {k: replace(of_query, has_left=True) for k, of_query in found.items() if k not in searched}
        found |= {k: LastIteration([file.read(k) for file in files], False) for k in searched}
        earlier.append(lambda k, files=files: [file.read(k) for file in files])  # type: ignore[misc]
    return [found[k] for k in range(len(queries))]


def assert_equal_hits(found: Hits, expected: Hits) -> None:
    assert found.targets.tolist() == expected.targets.tolist()
    assert found.evalues.tolist() == expected.evalues.tolist()
    assert found.bits.tolist() == expected.bits.tolist()
    assert found.headers == expected.headers
    assert [hit.sequence for hit in found] == [hit.sequence for hit in expected]
    assert found.alignments.records.tolist() == expected.alignments.records.tolist()
    assert found.alignments.runs.tolist() == expected.alignments.runs.tolist()
    assert found.capped == expected.capped


@settings(deadline=None, max_examples=15)
@given(
    kind=st.sampled_from([(1, False), (2, False), (5, False), (3, True)]),
    search=st.builds(
        SearchSettings,
        evalue=st.sampled_from([1e-6, 0.1, 50.0]),
        max_seqs=st.sampled_from([1, 4, 9, 100]),
        comp_bias_corr=st.booleans(),
        min_seq_id=st.sampled_from([0.0, 0.4]),
        coverage=st.sampled_from([0.0, 0.7]),
        cov_mode=st.integers(0, 2),
        num_iterations=st.integers(1, 3),
        e_profile=st.sampled_from([1e-3, 1.0]),
    ),
    min_candidates=st.sampled_from([1, 6, 17, 1000]),
    of_family=st.booleans(),
    window=st.sampled_from([30, windows.WINDOW]),
)
def test_merged_hits_equal_those_of_the_whole(
    databases: Databases,
    kind: tuple[int, bool],
    search: SearchSettings,
    min_candidates: int,
    of_family: bool,
    window: int,
) -> None:
    sequence, whole, parts = databases[kind]
    queries = [FastaRecord("q1 first", sequence), FastaRecord("q2", sequence[40:])]
    if of_family:
        codes = whole.arrays.codes(len(whole) // 2) & 31
        own = FastaRecord("q3", whole.sequence(len(whole) // 2))
        queries.append(ProfileRecord(own.header, own.sequence, query_profile(codes), "a test"))
    with pytest.MonkeyPatch.context() as patch:
        # a filter that keeps few targets, so that those of all parts compete
        patch.setattr(search_settings, "MIN_CANDIDATES", min_candidates)
        patch.setattr(windows, "WINDOW", window)
        patch.setattr(windows, "OVERLAP", 10)
        expected = [hits for _, hits in search_many(queries, whole, search)]
        found = search_parts(queries, parts, search)
        merged = [merge_hits(of_query.parts, search, of_query.has_left) for of_query in found]
    for one, other in zip(merged, expected, strict=True):
        assert_equal_hits(one, other)


def test_limits_of_filter_and_hits_depend_on_all_parts(databases: Databases) -> None:
    sequence, whole, parts = databases[5, False]
    query, search = FastaRecord("q", sequence), SearchSettings(evalue=50, max_seqs=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_settings, "MIN_CANDIDATES", 6)
        ((_, expected),) = search_many([query], whole, search)
        (of_query,) = search_parts([query], parts, search)
    # the test above would not notice if no limit were ever reached
    assert len(expected) == 4 and expected.capped
    assert sum(len(part.hits) for part in of_query.parts) > 6
    assert sum(len(part.filtered.targets) for part in of_query.parts) > 6


def test_queries_leave_an_iterated_search_of_parts(databases: Databases) -> None:
    sequence, whole, parts = databases[5, False]
    # without relatives, and with some
    queries = [FastaRecord("alone", "WCWHWCWHWMWCWHW"), FastaRecord("q", sequence)]
    for evalue, leaves in ((1e-4, True), (50.0, False)):
        search = SearchSettings(evalue=evalue, num_iterations=3, e_profile=1e-3)
        found = search_parts(queries, parts, search)
        assert [of_query.has_left for of_query in found] == [leaves, False]
        for of_query, (_, expected) in zip(found, search_many(queries, whole, search), strict=True):
            assert_equal_hits(merge_hits(of_query.parts, search, of_query.has_left), expected)
    ((_, once),) = search_many(queries[1:], whole, replace(search, num_iterations=1))
    assert once.targets.tolist() != expected.targets.tolist()


def test_hits_of_repeats_join_no_family(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    domain = "".join(rng.choice(LETTERS, 30))

    def with_repeat(sequence: str) -> str:
        return sequence + "".join(rng.choice(["P", "T"], 30))

    query = FastaRecord("q", with_repeat(domain))
    sequences = [with_repeat(mutated(rng, domain, rate)) for rate in np.linspace(0, 0.9, 24)]
    whole, parts = build_databases(tmp_path, sequences, 2, False)
    search = SearchSettings(num_iterations=2, e_profile=1e-3)
    first = [hits for part in parts for _, hits in search_part([query], part, search)]
    assert any(hits is not None and 0 < hits.is_member.sum() < len(hits.hits) for hits in first)
    (of_query,) = search_parts([query], parts, search)
    ((_, expected),) = search_many([query], whole, search)
    assert_equal_hits(merge_hits(of_query.parts, search), expected)


@pytest.mark.parametrize("position", [0.1, 0.35, 0.5, 0.7, 0.9])
def test_damaged_file_is_refused(databases: Databases, tmp_path: Path, position: float) -> None:
    sequence, _, (part, *_) = databases[2, False]
    stream = io.BytesIO()
    with PartHitsWriter(stream, {}) as writer:
        for query, hits in search_part([FastaRecord("q", sequence)], part, SearchSettings()):
            writer.add(query, hits)
    content = bytearray(stream.getvalue())
    content[int(position * len(content))] ^= 0xFF
    path = tmp_path / "hits"
    path.write_bytes(content)
    with pytest.raises(InputError, match="hits") as caught:
        PartHitsFile.open(path).read(0)
    assert str(path) in str(caught.value)
