"""Long queries: windows, and the hits of every region."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda.alignment import AlignmentPaths
from msa.alphabet import decode, encode
from msa.cpu.engine import CpuEngine
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines import search_settings
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import best_targets
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import query_profile
from msa.profile.statistics import evalues, reversed_excess
from msa.search import windows
from msa.search.database_search import search, search_many
from msa.search.iterations import IteratedSearch
from msa.search.scoring.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR
from msa.search.scoring.further_alignments import MAX_EVALUE
from msa.search.windows import OVERLAP, WINDOW, best_hits, window_starts
from tests.msa.search.evalue_reference import Reference

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")
DOMAINS = 4


@given(st.integers(1, 40_000))
def test_windows_cover_a_query_and_overlap(length: int) -> None:
    starts = window_starts(length)
    if length <= WINDOW:
        assert starts == []
        return
    assert len(starts) >= 2
    assert starts[0] == 0 and starts[-1] + WINDOW == length
    distances = np.diff(starts)
    assert distances.min() > 0 and distances.max() <= WINDOW - OVERLAP


@settings(deadline=None)
@given(
    spans=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39), st.booleans()), max_size=30),
    max_seqs=st.integers(1, 5),
    is_long=st.booleans(),
)
def test_best_hits_of_every_position(
    spans: list[tuple[int, int, bool]], max_seqs: int, is_long: bool
) -> None:
    records = np.array([(9, min(a, b), max(a, b), 0, 0, 1, 1, 0) for a, b, _ in spans], np.int32)
    paths = AlignmentPaths(records.reshape(-1, 8), np.empty(0, np.int32), np.zeros(len(spans) + 1, np.int64))
    counts = [counts for _, _, counts in spans]
    length = WINDOW + 1 if is_long else WINDOW
    positions = [set(range(min(a, b), max(a, b) + 1)) if is_long else {0} for a, b, _ in spans]
    expected = []
    for k, covered in enumerate(positions):
        better = [other for other, counted in zip(positions[:k], counts, strict=False) if counted]
        depths = [sum(position in other for other in better) for position in covered]
        expected.append(min(depths) + counts[k] <= max_seqs)
    assert best_hits(paths.records, length, max_seqs, np.array(counts, bool)).tolist() == expected
    if all(counts):
        assert best_hits(paths.records, length, max_seqs).tolist() == expected


def test_hits_of_a_long_query_are_limited_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_MAX_ROW_RESIDUES", 6 * 3000)
    records = np.array([(9, 100 * k, 100 * k + 50, 0, 0, 1, 1, 0) for k in range(20)], np.int32)
    paths = AlignmentPaths(records, np.empty(0, np.int32), np.zeros(21, np.int64))
    assert best_hits(paths.records, 3000, 2).tolist() == [True] * 6 + [False] * 14
    assert best_hits(paths.records, 3000, 8).tolist() == [True] * 8 + [False] * 12


@pytest.fixture(scope="module")
def domains_and_database(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], TargetDatabase]:
    """Build relatives of four domains, many close ones of the first and few distant ones of the others."""
    folder = tmp_path_factory.mktemp("windows")
    rng = np.random.default_rng(5)
    domains = ["".join(rng.choice(LETTERS, 60)) for _ in range(DOMAINS)]
    lines = []
    for k, domain in enumerate(domains):
        for n in range(6 if k else 40):
            rate = 0.35 + 0.03 * n if k else 0.2
            residues = [str(rng.choice(LETTERS)) if rng.random() < rate else each for each in domain]
            lines.append(f">d{k}.{n}\n{''.join(residues)}\n")
    lines += [f">joined{k}\n{domains[k][20:]}{domains[k + 1][:40]}\n" for k in range(DOMAINS - 1)]
    (folder / "t.fasta").write_text("".join(lines))
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return domains, TargetDatabase.open(folder / "db")


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW", 80)
    monkeypatch.setattr(windows, "OVERLAP", 30)
    monkeypatch.setattr(search_settings, "MIN_CANDIDATES", 12)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("max_seqs", [3, 12])
@pytest.mark.parametrize("comp_bias_corr", [True, False])
def test_hits_of_a_long_query_equal_brute_force(
    domains_and_database: tuple[list[str], TargetDatabase], max_seqs: int, comp_bias_corr: bool
) -> None:
    domains, database = domains_and_database
    query, targets = "".join(domains), database.arrays
    options = SearchSettings(max_seqs=max_seqs, comp_bias_corr=comp_bias_corr)
    parameters, all_targets = gumbel_parameters(12, 1, "CONTEXT"), np.arange(len(database))
    k_factor = SEQUENCE_K_FACTOR if comp_bias_corr else 1.0
    profile = query_profile(encode(query), False, "CONTEXT")

    def all_evalues(part: np.ndarray) -> np.ndarray:
        """Return E-values before the composition of the aligned regions is known."""
        scores = alignment_scores(part, targets, all_targets, 12, 1, 1).astype(np.int64)
        if comp_bias_corr:
            reversed_scores = alignment_scores(part[::-1], targets, all_targets, 12, 1, 1)
            arguments = len(query), targets.lengths, parameters
            excess = reversed_excess(reversed_scores, *arguments, SEQUENCE_CHANCE_FRACTION)
            scores = np.maximum(scores - excess, 0)
        scaled = replace(parameters, k=parameters.k * k_factor)
        return evalues(scores, len(query), targets.lengths, database.total_residues, scaled)

    limit, final = 1e-3, all_evalues(profile)
    if comp_bias_corr:
        # further alignments may lower E-values
        limit = MAX_EVALUE
        final = np.array([Reference(query, decode(targets.codes(k)), database).evalue for k in all_targets])
    found = set(best_targets(gapless_scores(profile, targets), options.max_candidates, 15).tolist())
    for start in window_starts(len(query)):
        part = profile[start : start + 80]
        best = best_targets(gapless_scores(part, targets), options.max_candidates, 15)
        found |= set(best[all_evalues(part)[best] <= limit].tolist())
    expected = [
        (target, evalue) for target, evalue in enumerate(final.tolist()) if target in found and evalue <= 1e-3
    ]
    hits = search(FastaRecord("long", query), database, options)
    for target, evalue in zip(hits.targets.tolist(), hits.evalues.tolist(), strict=True):
        assert evalue == pytest.approx(dict(expected)[target], rel=1e-12)
    assert hits.capped == (len(hits) < len(expected))
    # targets that a search without windows finds are found as well
    without = next(
        IteratedSearch(database, options, CpuEngine()).run([FastaRecord("q", query)], lambda _: None)
    )
    assert set(without.targets.tolist()) < set(hits.targets.tolist())
    per_domain = [sum(hit.id.startswith(f"d{k}") for hit in hits) for k in range(DOMAINS)]
    assert min(per_domain) >= 2
    assert not all(any(hit.id.startswith(f"d{k}") for hit in without) for k in range(DOMAINS))


@pytest.mark.usefixtures("small_windows")
def test_thresholds_apply_before_the_limit_of_every_region(
    domains_and_database: tuple[list[str], TargetDatabase],
) -> None:
    domains, database = domains_and_database
    query = FastaRecord("long", "".join(domains))
    options = SearchSettings(max_seqs=100, min_seq_id=0.5)
    all_hits = search(query, database, options)
    few = search(query, database, replace(options, max_seqs=2))
    kept = best_hits(all_hits.alignments.records, len(query.sequence), 2)
    assert few.targets.tolist() == all_hits.targets[kept].tolist()
    assert 2 * DOMAINS <= len(few) < len(all_hits) and few.capped


@pytest.mark.usefixtures("small_windows")
def test_long_and_short_queries_are_searched_together(
    domains_and_database: tuple[list[str], TargetDatabase],
) -> None:
    domains, database = domains_and_database
    queries = [FastaRecord("a", domains[0]), FastaRecord("b", "".join(domains)), FastaRecord("c", domains[1])]
    options = SearchSettings(max_seqs=4, num_iterations=2)
    progress: list[int] = []
    found = search_many(queries, database, options, progress=lambda done, _: progress.append(done))
    for query, hits in found:
        alone = search(query, database, options)
        assert [(hit.target, hit.evalue, hit.alignment.cigar) for hit in hits] == [
            (hit.target, hit.evalue, hit.alignment.cigar) for hit in alone
        ]
    assert progress == sorted(progress) and progress[-1] == 3 * 2 * len(database)
