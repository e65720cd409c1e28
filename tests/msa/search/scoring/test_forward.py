"""Forward scores equal enumerations and references, and only candidates near the limit have them."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, MASK_BIT, STANDARD, X, encode
from msa.cpu.engine import CpuEngine
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.pair_statistics import PairStatistics
from msa.engines.scored_batch import AlignedBatch, Scores
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileRecord, QueryProfile, context_tables, query_profile
from msa.search.database_search import search
from msa.search.scoring import forward
from msa.search.scoring.compiled_context import fill_profile
from msa.search.scoring.further_alignments import FurtherAlignments, combined_evalues
from msa.search.scoring.kernels import LANES, forward_score
from tests.msa.search.coiled_coils import TROPOMYOSIN, coil
from tests.msa.search.evalue_reference import sum_of_alignments
from tests.msa.search.scoring.random_targets import build, mutated, random_sequence

NEIGHBOURS = 10


def in_vectors(weights: np.ndarray) -> np.ndarray:
    """Divide the columns of weights, float64 [letters, columns], into vectors."""
    letters, columns = weights.shape
    padded = np.zeros((letters, -(-columns // LANES), LANES))
    padded.reshape(letters, -1)[:, :columns] = weights
    return padded


def all_alignments(rows: int, columns: int) -> list[tuple[list[tuple[int, int]], list[int]]]:
    """Return the pairs and the lengths of the gaps of every local alignment."""
    found = []
    for count in range(1, min(rows, columns) + 1):
        for first in itertools.combinations(range(rows), count):
            for second in itertools.combinations(range(columns), count):
                gaps = [
                    (b - a - 1, d - c - 1)
                    for (a, b), (c, d) in zip(
                        itertools.pairwise(first), itertools.pairwise(second), strict=True
                    )
                ]
                if not any(a and b for a, b in gaps):
                    found.append((list(zip(first, second, strict=True)), [a + b for a, b in gaps if a + b]))
    return found


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 5), (5, 4), (6, 6)])
def test_score_equals_the_enumeration_of_all_alignments(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows * 10 + columns)
    weights, letters = rng.exponential(2, (5, columns)), rng.integers(0, 5, rows).astype(np.uint8)
    opening, extending = 0.3, 0.7
    for is_reversed in (False, True):
        read, total = letters[:: -1 if is_reversed else 1], 0.0
        for pairs, gaps in all_alignments(rows, columns):
            of_gaps = math.prod(opening * extending ** (length - 1) for length in gaps)
            total += math.prod(weights[read[i], j] for i, j in pairs) * of_gaps
        found = forward_score(in_vectors(weights), letters, is_reversed, opening, extending)
        assert found == pytest.approx(math.log(total), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 90), st.integers(1, 60))
def test_score_equals_the_reference(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.exp(0.3176 * rng.integers(-8, 9, (len(LETTERS), columns))) / 1.05
    letters = rng.integers(0, len(LETTERS), rows).astype(np.uint8)
    for is_reversed in (False, True):
        found = forward_score(in_vectors(weights), letters, is_reversed, 0.01, 0.6)
        expected = sum_of_alignments(weights[letters[:: -1 if is_reversed else 1]])
        assert found == pytest.approx(math.log(expected), rel=1e-12, abs=1e-12)


def log_sum_of_alignments(weights: np.ndarray) -> float:
    """Compute the same as `sum_of_alignments` with logarithms, one antidiagonal after the other."""
    rows, columns = weights.shape
    opening, extending = math.log(0.01), math.log(0.6)
    nothing = np.full(columns + 1, -np.inf)
    pairs, in_query, in_target, before, total = nothing, nothing, nothing, nothing, -np.inf
    log_weights = np.log(weights)
    for diagonal in range(rows + columns - 1):
        first, end = max(0, diagonal - rows + 1), min(columns, diagonal + 1)
        column = np.arange(first, end)
        new, of_query, of_target = nothing.copy(), nothing.copy(), nothing.copy()
        new[column + 1] = log_weights[diagonal - column, column] + np.logaddexp(0, before[column])
        of_query[column + 1] = np.logaddexp(pairs + opening, in_query + extending)[column + 1]
        of_target[column + 1] = np.logaddexp(pairs + opening, in_target + extending)[column]
        before = np.logaddexp(pairs, np.logaddexp(in_query, in_target))
        pairs, in_query, in_target = new, of_query, of_target
        total = np.logaddexp(total, np.logaddexp.reduce(pairs))
    return float(total)


@pytest.mark.parametrize("length", [60, 400])
def test_sums_of_long_identical_sequences_do_not_overflow(length: int) -> None:
    codes = np.random.default_rng(length).integers(0, 20, length).astype(np.uint8)
    weights = np.exp(0.3176 * np.where(codes == np.arange(20)[:, None], 13, -4)) / 1.05
    expected = log_sum_of_alignments(weights[codes])
    if length == 60:
        assert expected == pytest.approx(math.log(sum_of_alignments(weights[codes])), rel=1e-12)
    else:
        assert expected > math.log(np.finfo(np.float64).max) * 2
    assert forward_score(in_vectors(weights), codes, False, 0.01, 0.6) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_profile_of_a_part_equals_that_of_the_sequence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # mostly standard letters, but all kinds
    shares = np.where(np.arange(len(LETTERS)) < 20, 1, rng.choice([0.0, 0.3]))
    codes = rng.choice(len(LETTERS), rng.integers(1, 150), p=shares / shares.sum()).astype(np.uint8)
    expected = query_profile(codes, False, "CONTEXT")[:, : len(LETTERS)]
    first = int(rng.integers(0, len(codes)))
    end = int(rng.integers(first + 1, len(codes) + 1))
    padded = np.pad(codes, NEIGHBOURS, constant_values=X)
    profile = np.empty((end - first, len(LETTERS)), np.int16)
    fill_profile(context_tables(), padded[first : end + 2 * NEIGHBOURS], profile)
    np.testing.assert_array_equal(profile, expected[first:end])


def test_windows_reach_a_hundred_residues_beyond_the_alignment_and_ten_more_are_read() -> None:
    targets = SequenceArrays.concatenate([np.zeros(length, np.uint8) for length in (500, 120)])
    records = np.zeros((3, 8), np.int32)
    records[:, 3:5] = (200, 249), (105, 394), (50, 60)
    offset = int(targets.offsets[1])
    found = forward._windows(targets, np.array([0, 0, 1]), records)
    expected = [(90, 100, 350, 360), (0, 5, 495, 500), (offset, offset, offset + 120, offset + 120)]
    assert found.tolist() == [list(each) for each in expected]


class Pairs:
    """Pairs of two queries and the windows of some targets, copies of each other or nearly so."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        domain, flank, tail = (random_sequence(length, rng) for length in (60, 15, 40))
        others = random_sequence(15, rng), random_sequence(40, rng)
        texts = [flank + domain + tail, flank + domain + tail, flank + domain + others[1]]
        texts += [others[0] + domain + tail, flank + domain + tail[:5], flank + "W" + domain[1:] + tail]
        codes = [encode(text) for text in texts]
        # masked residues count as their letters
        codes[1] = codes[1] | MASK_BIT
        self.targets = SequenceArrays.concatenate(codes)
        self.queries = np.repeat([4, 7], len(codes))
        self.indices = np.tile(np.arange(len(codes)), 2)
        offsets = self.targets.offsets[self.indices]
        reads = np.minimum(offsets + 85, offsets + self.targets.lengths[self.indices])
        self.windows = np.stack([offsets + 5, offsets + 15, offsets + 75, reads], axis=1)
        texts = mutated(domain, 0.6, rng) + random_sequence(30, rng), random_sequence(5, rng) + domain[10:]
        self.profiles = {
            query: QueryProfile(encode(text), np.empty(0)) for query, text in zip((4, 7), texts, strict=True)
        }

    def scores(self, rows: slice = slice(None), threads: int = 1) -> np.ndarray:
        """Return the Forward scores of pairs."""
        arguments = self.queries[rows], self.targets, self.windows[rows], threads
        return forward._forward_scores(self.profiles, *arguments)


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return Pairs()


def test_score_of_a_pair_does_not_depend_on_others(pairs: Pairs) -> None:
    expected = np.concatenate([pairs.scores(slice(k, k + 1)) for k in range(len(pairs.queries))])
    np.testing.assert_array_equal(pairs.scores(), expected)
    # targets 0, 1 and 2 have equal windows, and so have 3 and 4, but their neighbours differ
    assert len(np.unique(expected[:, 0])) == 2 * 5


def test_scores_equal_the_reference(pairs: Pairs) -> None:
    for k, (found, of_reversed) in enumerate(pairs.scores().tolist()):
        target = pairs.targets.codes(pairs.indices[k]) & ~np.uint8(MASK_BIT)
        read = query_profile(target[5:85], False, "CONTEXT")[10:70].astype(np.float64)
        weights = (np.exp(0.3176 * read.T) / 1.05)[pairs.profiles[pairs.queries[k]].codes]
        expected = [round(math.log(sum_of_alignments(each)), 6) for each in (weights, weights[::-1])]
        assert [found, of_reversed] == pytest.approx(expected, abs=1.1e-6)


def test_threads_do_not_affect_scores(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = pairs.scores()
    monkeypatch.setattr(forward, "_CHUNK_CELLS", 1)
    for threads in (1, 3):
        np.testing.assert_array_equal(pairs.scores(threads=threads), expected)


def test_sequences_that_match_their_reverse_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = gumbel_parameters(12, 1, "CONTEXT")
    lengths, factors = np.array([200, 2000]), np.ones(2)
    statistics = PairStatistics(
        parameters, 10**6, lengths, factors, factors, 800 * factors, np.array([300, 1600])
    )
    targets = SequenceArrays.concatenate([np.zeros(9, np.uint8)])
    indices, records = np.zeros(2, np.int64), np.zeros((2, 8), np.int32)
    for of_reversed, excess in ((0.0, 3), (20.0, 3), (40.0, 3), (40.0, 200), (0.0, 9000)):
        scores = np.array([[50.0, of_reversed]] * 2)
        monkeypatch.setattr(forward, "_forward_scores", lambda *_, scores=scores: scores)
        corrections = np.full(2, excess)
        found = forward.forward_evalues({}, indices, targets, indices, records, corrections, statistics, 1)
        for k, (cells, factor) in enumerate(((1e5, 0.375), (2000 * 1600, 2))):
            correction = max(0.241 * excess, of_reversed - math.log(10 * cells / 0.04))
            # large ones do not overflow
            expected = 10 * lengths[k] * 1e6 * math.exp(min(correction - 50, 600)) * factor
            assert found[k] == pytest.approx(expected, rel=1e-12)


def test_means_of_three_evalues() -> None:
    others = np.array([0.0, 1e-9, 1e-3, 99.0, 101.0, 1.0, 1.0])
    of_forward = np.array([1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 0.0, 1e9])
    found = combined_evalues(np.full(7, 1e-2), others, of_forward)
    inverse = [math.inf, 80 + 0.2e9, 80 + 200, 80 + 0.2 / 99, 80, math.inf, 40.2]
    assert found.tolist() == pytest.approx([0.65 / each for each in inverse], rel=1e-9, abs=1e-300)


def test_only_candidates_near_the_limit_have_forward_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    evalues = np.array([1e-5, 0.99e-4, 1e-4, 1e-2, 0.3, 0.301, 1.0])
    count = len(evalues)
    of_forward = np.array([1e-9, 1e-3, 1e-6])

    def computed(profiles: object, queries: np.ndarray, targets: object, indices: np.ndarray, *_: object):  # type: ignore[no-untyped-def]
        assert queries.tolist() == [0] * 3 and indices.tolist() == [12, 13, 14]
        return of_forward

    monkeypatch.setattr(forward, "forward_evalues", computed)
    rows, numbers = np.arange(count), np.zeros(count, np.int64)
    records = np.zeros((count, 8), np.int32)
    batch = AlignedBatch([], {}, [count], numbers, rows + 10, numbers, numbers, records)
    scores = Scores(numbers, numbers, evalues, numbers.astype(bool))
    search_settings = SearchSettings()
    further = FurtherAlignments(
        SequenceArrays.concatenate([]), search_settings, CpuEngine(), lambda queries, targets: None  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    others = np.full(count, 0.5)
    found = further._with_other_evidence(batch, scores, rows, others).evalues
    expected = combined_evalues(evalues, others)
    expected[2:5] = combined_evalues(evalues[2:5], others[2:5], of_forward)
    assert found.tolist() == expected.tolist()


def test_searches_without_a_second_matrix_have_no_forward_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    query = random_sequence(80, rng)
    targets = [mutated(query, kept, rng) for kept in np.linspace(0.1, 0.5, 30)]
    database = build(tmp_path, [*targets, *(random_sequence(200, rng) for _ in range(30))])
    calls: list[int] = []
    compute = forward.forward_evalues
    monkeypatch.setattr(
        forward, "forward_evalues", lambda *each: calls.append(len(each[1])) or compute(*each)
    )
    criteria = SearchSettings(evalue=10)
    codes = encode(query)
    profile = query_profile(codes, True)
    record = FastaRecord("q", query)
    others = [
        (record, replace(criteria, comp_bias_corr=False)),
        (record, replace(criteria, num_iterations=2)),
        (record, replace(criteria, matrix="BLOSUM62", gap_open=11)),
        (ProfileRecord("q", query, profile=profile, source="test"), criteria),
        (ProfileRecord("q", query, profile=profile, source="test", of_family=False), criteria),
    ]
    for searched, each in others:
        assert len(search(searched, database, each))
    assert not calls
    assert len(search(record, database, criteria))
    assert sum(calls) > 3


def test_constants_of_the_compiled_network_are_those_of_the_model() -> None:
    tables = context_tables()
    assert tables.embedding.shape == (21, 21, 256) and tables.output.shape == (256, 20)
    assert tables.stands_for[LETTERS.index("X")].tolist() == [-1, -1]
    assert STANDARD[tables.stands_for[LETTERS.index("U"), 0]] == "C"


def test_coiled_coils_are_corrected_by_their_reversed_score() -> None:
    """The reversed query has almost the Forward score of the query."""
    codes = [encode(coil(k)) for k in range(8)]
    targets = SequenceArrays.concatenate(codes)
    indices = np.arange(len(codes))
    records = np.zeros((len(codes), 8), np.int32)
    records[:, 4] = [len(each) - 1 for each in codes]
    profiles = {0: QueryProfile(encode(TROPOMYOSIN), np.empty(0))}
    windows = forward._windows(targets, indices, records)
    scores = forward._forward_scores(profiles, np.zeros(len(codes), np.int64), targets, windows, 1)
    assert (np.abs(scores[:, 0] - scores[:, 1]) < 0.3 * scores[:, 0]).all()
    # above the threshold, all of it is subtracted
    assert (scores[:, 1] > math.log(10 * 1e5 / 0.04)).any()
