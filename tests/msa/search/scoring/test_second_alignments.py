"""E-values with second alignments and a second matrix equal those of a reference; see docs/search.md."""

import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import encode
from msa.base.errors import InputError
from msa.cpu.engine import CpuEngine
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Candidates, EngineRequest
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileRecord, QueryProfile, query_profile
from msa.profile.statistics import evalues
from msa.search import profile_search
from msa.search.database_search import search, search_many
from msa.search.scoring.further_alignments import combined_evalues
from msa.search.scoring.second_alignments import TargetParts
from tests.msa.search.coiled_coils import TROPOMYOSIN, coil
from tests.msa.search.evalue_reference import Reference
from tests.msa.search.scoring.random_targets import build, mutated, random_sequence

PARAMETERS = gumbel_parameters(12, 1, "CONTEXT")
EVERYTHING = SearchSettings(evalue=1e6, max_seqs=1000, min_ungapped_score=0)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32))
def test_evalues_equal_the_reference(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domains = [random_sequence(int(rng.integers(25, 50)), rng) for _ in range(3)]
    query = domains[0] + random_sequence(10, rng) + domains[1]
    # targets of related and unrelated parts, in any order and number; some are of one amino acid, or long
    targets = []
    for _ in range(20):
        parts = [mutated(domains[k], rng.uniform(0.25, 0.6), rng) for k in rng.integers(0, 3, 4)]
        parts += [random_sequence(int(rng.choice([0, 20, 60, 400])), rng), "L" * int(rng.choice([0, 30]))]
        targets.append("".join(rng.permutation(parts[: rng.integers(1, 7)])) + "A" * int(rng.choice([0, 1])))
    targets += [random_sequence(100, rng) for _ in range(20)]
    targets = [target for target in targets if target]
    database = build(tmp_path_factory.mktemp("sums"), targets)
    hits = search(FastaRecord("query", query), database, EVERYTHING)
    found = {
        hit.id: (hit.evalue, hit.alignment.score, hit.alignment.target_start, hit.alignment.target_end)
        for hit in hits
    }
    assert len(found) > len(targets) // 2
    for k, target in enumerate(targets):
        if f"t{k}" in found:
            reference = Reference(query, target, database)
            score, *_, first, last = reference.best[:5]
            expected = reference.evalue, score, first + 1, last + 1
            assert found[f"t{k}"] == (pytest.approx(expected[0], rel=1e-12), *expected[1:])
    assert [hit.evalue for hit in hits] == sorted(hit.evalue for hit in hits)


def test_evalues_of_coiled_coils_equal_the_reference(tmp_path: Path) -> None:
    """Their scores with either matrix are corrected by the reversed query."""
    database = build(tmp_path, [coil(k) for k in range(60)])
    hits = search(FastaRecord("query", TROPOMYOSIN), database, SearchSettings(evalue=100))
    references = [Reference(TROPOMYOSIN, hit.sequence, database) for hit in hits]
    for hit, reference in zip(hits, references, strict=True):
        assert hit.evalue == pytest.approx(reference.evalue, rel=1e-12)
    near = [each for each in references if 1e-12 <= each.single_evalue <= 1]
    assert any(each.reversed_excess and 1 < each.other_evalue < 100 for each in near)


def test_second_evalues_are_evidence_up_to_a_limit() -> None:
    others = np.array([0.0, 1e-9, 1e-3, 99.0, 101.0, float("inf")])
    found = combined_evalues(np.full(6, 1e-2), others)
    expected = [0, 0.9 / (75 + 0.25e9), 0.9 / (75 + 250), 0.9 / (75 + 0.25 / 99), 0.9 / 75, 0.9 / 75]
    assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.fixture(scope="module")
def domains() -> tuple[str, str]:
    rng = np.random.default_rng(11)
    return random_sequence(60, rng), random_sequence(60, rng)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, domains: tuple[str, str]) -> TargetDatabase:
    """Create a database of targets with ten residues of each domain or of one, far from each other."""
    rng = np.random.default_rng(12)
    first, second = (domain[20:30] for domain in domains)
    linkers = [random_sequence(length, rng) for length in (30, 400, 30)]
    pairs = (first, second), (second, first), (first, first), (first, "")
    targets = [linkers[0] + a + linkers[1] + b + linkers[2] for a, b in pairs]
    return build(
        tmp_path_factory.mktemp("domains"), [*targets, *(random_sequence(300, rng) for _ in range(500))]
    )


def test_two_weak_alignments_are_significant_together(
    domains: tuple[str, str], database: TargetDatabase
) -> None:
    query = domains[0] + random_sequence(20, np.random.default_rng(13)) + domains[1]
    # random sequences have none of the contexts of real ones
    criteria = SearchSettings(matrix="BLOSUM62", gap_open=11, evalue=10)
    hits = {hit.id: hit for hit in search(FastaRecord("query", query), database, criteria)}
    ordered, unordered, repeat, single = (hits[f"t{k}"] for k in range(4))
    for hit in (ordered, unordered, repeat, single):
        reference = Reference(query, hit.sequence, database, "BLOSUM62")
        assert hit.evalue == pytest.approx(reference.evalue, rel=1e-12)
        # everything but the E-value is that of the best alignment
        assert (hit.alignment.score, hit.alignment.target_start - 1, hit.alignment.target_end - 1) == tuple(
            reference.best[k] for k in (0, 3, 4)
        )
        assert 1e-3 < reference.single_evalue < 1
        assert (hit.evalue < reference.single_evalue / 5) == (hit is not single)
    assert ordered.evalue < 1e-4 < 5e-4 < min(unordered.evalue, repeat.evalue)
    # the limit applies to the sum, although the best alignment alone exceeds it
    strict = search(FastaRecord("query", query), database, replace(criteria, evalue=5e-4))
    assert [(hit.id, hit.evalue) for hit in strict] == [(ordered.id, ordered.evalue)]


def test_searches_without_the_corrections_do_not_sum(
    domains: tuple[str, str], database: TargetDatabase
) -> None:
    query = "".join(domains)
    plain = search(FastaRecord("q", query), database, SearchSettings(evalue=10, comp_bias_corr=False))
    assert len(plain)
    for hit in plain:
        lengths, scores = np.array([hit.target_length]), np.array([hit.alignment.score])
        arguments = len(query), lengths, database.total_residues, PARAMETERS
        assert hit.evalue == evalues(scores, *arguments)[0]


def test_evalues_are_proportional_to_the_lengths_of_targets_and_short_queries(tmp_path: Path) -> None:
    rng = np.random.default_rng(14)
    domain = random_sequence(360, rng)
    lengths = (100, 200, 900)
    database = build(tmp_path, [domain[:90] + random_sequence(length - 90, rng) for length in lengths])
    residues = database.total_residues
    for query, of_query in ((domain[:90], 0.5), (domain, 1.0)):
        hits = {hit.target_length: hit for hit in search(FastaRecord("query", query), database)}
        for length, of_target in zip(lengths, (0.25, 0.5, 2.25), strict=True):
            reference = Reference(query, hits[length].sequence, database)
            expected = reference.pair_evalue(reference.target, reference.best) * residues / length
            assert hits[length].evalue == pytest.approx(expected * of_target * of_query / 1.2, rel=1e-12)


@given(st.integers(0, 2**32))
def test_parts_are_what_alignments_leave(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 60, rng.integers(1, 40)).astype(np.uint8) for _ in range(6)]
    targets, indices = SequenceArrays.concatenate(codes), rng.integers(0, 6, rng.integers(0, 9))
    records = np.zeros((len(indices), 8), np.int32)
    for record, index in zip(records, indices.tolist(), strict=True):
        record[3:5] = np.sort(rng.integers(0, len(codes[index]), 2))
    parts = TargetParts.of_alignments(targets, indices, records)
    assert len(parts.sequences) == 3 * len(indices)
    expected = [
        each
        for record, index in zip(records, indices.tolist(), strict=True)
        for each in (codes[index][: record[3]], codes[index][record[4] + 1 :])
    ]
    expected += [codes[index] for index in indices]
    assert [each.tolist() for each in map(parts.sequences.codes, range(len(expected)))] == [
        each.tolist() for each in expected
    ]
    first = len(indices) // 2
    chosen = [k for k in range(2 * first, 2 * len(indices)) if len(expected[k])]
    assert parts.non_empty(first, len(indices)).tolist() == chosen
    whole = list(range(2 * len(indices) + first, 3 * len(indices)))
    assert parts.whole(first, len(indices)).tolist() == whole


class AllReady(CpuEngine):
    """The CPU engine; it reports all candidates as ready at once, and batches are scored as for a GPU."""

    drives_gpus = True  # type: ignore[misc]

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        found = list(super().run(queries, request))
        for k, candidates in enumerate(found):
            yield replace(candidates, more_are_ready=k < len(found) - 1)


@pytest.mark.parametrize("max_seqs", [2, 1000])
@pytest.mark.parametrize("candidates", [1, 10, 10**6])
def test_queries_of_a_batch_do_not_affect_each_other(
    domains: tuple[str, str],
    database: TargetDatabase,
    max_seqs: int,
    candidates: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile_search, "_BATCH_CANDIDATES", candidates)
    rng = np.random.default_rng(15)
    joined = domains[0] + random_sequence(20, rng) + domains[1]
    texts = [joined, "X" * 20, domains[1], joined[30:120], "".join(reversed(domains))]
    queries = [FastaRecord(f"q{k}", text) for k, text in enumerate(texts)]
    # the profile of a query that is not corrected
    codes = encode(domains[0])
    saved = query_profile(codes, True)
    queries.insert(2, ProfileRecord("saved", domains[0], profile=saved, source="test", of_family=False))
    criteria = SearchSettings(evalue=5, max_seqs=max_seqs)
    together = list(search_many(queries, database, criteria, engine=AllReady()))
    for query, (_, hits) in zip(queries, together, strict=True):
        expected = search(query, database, criteria)
        assert hits.capped == expected.capped
        for name in ("targets", "bits", "evalues"):
            assert getattr(hits, name).tolist() == getattr(expected, name).tolist()
        assert hits.alignments.records.tolist() == expected.alignments.records.tolist()
    counts = [len(hits) for _, hits in together]
    assert 0 in counts and min(sorted(counts)[2:]) >= min(max_seqs, 3)


class MeetingEngine(AllReady):
    """An engine whose second and third calls of `align` wait for each other; all but the first can fail."""

    def __init__(self, fails: bool) -> None:
        self._meeting, self._fails, self._calls = threading.Barrier(2), fails, itertools.count()

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        call = next(self._calls)
        if 1 <= call <= 2:
            self._meeting.wait(60)
        elif call and self._fails:
            raise InputError("no alignment")
        return super().align(pairs, request)


def test_batches_are_scored_ahead_of_the_caller(
    domains: tuple[str, str], database: TargetDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_search, "_BATCH_CANDIDATES", 1)
    queries = [FastaRecord(f"q{k}", domains[0] + "W" * k + domains[1]) for k in range(6)]
    criteria = SearchSettings(evalue=100)
    expected = [search(query, database, criteria).evalues.tolist() for query in queries]
    found = search_many(queries, database, criteria, engine=MeetingEngine(fails=False))
    assert [hits.evalues.tolist() for _, hits in found] == expected
    # the first result does not wait for other batches, and a caller that stops early leaves no threads
    engine = MeetingEngine(fails=False)
    found = search_many(queries, database, criteria, engine=engine)
    assert next(found)[1].evalues.tolist() == expected[0]
    assert next(engine._calls) == 1
    found.close()  # type: ignore[attr-defined]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("scores")]
    with pytest.raises(InputError, match="no alignment"):
        list(search_many(queries, database, criteria, engine=MeetingEngine(fails=True)))
