"""Selection of the best targets on a GPU or in numba's simulator, compared with best_targets on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu
from cuda.alignment.gapless import TargetLists
from cuda.alignment.gapless.lists import LISTED, SCORED, STRETCHES
from cuda.alignment.top_k import (
    GaplessBatch,
    SelectionStreams,
    TopKSelector,
    any_length,
    read_row,
    read_rows,
    row_size,
)
from cuda.alignment.top_k.layout import ROW_COUNT, ROW_TARGETS
from msa.hits.filtered_targets import best_targets
from tests.cuda.alignment.reference import gapless_scores

UNBOUNDED = 2**15 - 1
MAX_QUERIES = 3
pytestmark = pytest.mark.simulator(or_gpu=True)


def dummy_targets(count: int) -> DeviceSequences:
    """Create targets of 0 to 10 residues for queries that ignore them."""
    lengths = (np.arange(count) % 11).astype(np.int32)
    return DeviceSequences(None, cuda.to_device(np.zeros(count, np.int64)), cuda.to_device(lengths))


def new_rows(k: int, count: int = 1, content: int = 0) -> Any:
    rows = cuda.to_device(np.full((count, row_size(k)), content, np.int32))
    gpu.synchronize()
    return rows


class KnownScores:
    """Queries with given scores and bounds; see BoundAndScore.

    Args:
        scores: int [queries, n].
        bounds: int [queries, n].
        longest: int32 [queries, ≥ 1], see BoundAndScore; None for targets of any length.
    """

    stretch = 4

    def __init__(self, scores: np.ndarray, bounds: np.ndarray, longest: np.ndarray | None = None) -> None:
        known = bounds < UNBOUNDED
        assert (bounds[known] >= scores[known]).all()
        self._scores, self._bounds = scores.astype(np.int32), bounds.astype(np.int16)
        self.scored: list[list[int]] = [[] for _ in scores]
        self._longest = cuda.to_device(any_length(len(scores)) if longest is None else longest)

    def longest(self, stream: Any) -> Any:
        return self._longest

    def __len__(self) -> int:
        return len(self._scores)

    def bound_all(self, query: int, targets: DeviceSequences, bounds: Any, stream: Any) -> None:
        count = targets.lengths.size
        if count:
            bounds[:count].copy_to_device(self._bounds[query])
            gpu.synchronize()

    def score(self, targets: DeviceSequences, lists: TargetLists, stream: Any) -> None:
        gpu.synchronize()
        lengths = targets.lengths.copy_to_host()
        listed, ends = lists.targets.copy_to_host(), lists.ends.copy_to_host()
        for query, state in enumerate(lists.state.copy_to_host()[: len(self)]):
            new = slice(state[SCORED], state[LISTED])
            indices = listed[query, new]
            expected = np.cumsum(-(-lengths[indices] // self.stretch))
            assert ends[query, new].tolist() == expected.tolist()
            assert state[STRETCHES] == (expected[-1] if len(indices) else 0)
            assert not lists.scores[query].copy_to_host()[new].any()
            self.scored[query] += indices.tolist()
            if len(indices):
                lists.scores[query][new].copy_to_device(self._scores[query][indices])
        gpu.synchronize()


def loose_bounds(scores: np.ndarray, rng: np.random.Generator, excess: int = 8) -> np.ndarray:
    """Draw bounds that are up to `excess` too large, and some that are unknown."""
    bounds = scores.astype(np.int64) + rng.integers(0, excess + 1, len(scores))
    return np.where((bounds >= 1024) | (rng.random(len(scores)) < 0.02), UNBOUNDED, bounds)


class Checker:
    """A TopKSelector that is used repeatedly, with checks of every result."""

    def __init__(self, k: int, min_score: int, capacity: int) -> None:
        self._k, self._min_score = k, min_score
        self._selector = TopKSelector(k, min_score, capacity, MAX_QUERIES, SelectionStreams())
        self._row_sets = [new_rows(k, MAX_QUERIES + 2, -7) for _ in range(2)]

    def check(self, scores: np.ndarray, bounds: np.ndarray) -> list[int]:
        """Check the selection from a single chunk; return the targets that were scored exactly."""
        return self.check_chunks(scores, bounds, [(0, len(scores))])[0]

    def check_chunks(
        self, scores: np.ndarray, bounds: np.ndarray, chunks: list[tuple[int, int]]
    ) -> list[list[int]]:
        """Check the selection after each chunk; return the targets of each that were scored exactly."""
        return [scored for (scored,) in self.check_batch(scores[None], bounds[None], chunks)]

    def check_batch(
        self, scores: np.ndarray, bounds: np.ndarray, chunks: list[tuple[int, int]], first_row: int = 1
    ) -> list[list[list[int]]]:
        """Check the selection of several queries; return the targets that were scored in each chunk."""
        scored, seen = [], np.empty(0, np.int64)
        used = range(first_row, first_row + len(scores))
        for turn, (first, end) in enumerate(chunks):
            batch = KnownScores(scores[:, first:end], bounds[:, first:end])
            rows, other_rows = self._row_sets[turn % 2], self._row_sets[1 - turn % 2]
            unused = np.delete(rows.copy_to_host(), used, 0)
            before = other_rows.copy_to_host()
            self._selector.select(
                batch, dummy_targets(end - first), rows, first_row, first, other_rows if turn else None
            )
            gpu.synchronize()
            seen = np.sort(np.append(seen, np.arange(first, end)))
            for row, of_query in zip(used, scores, strict=True):
                expected = seen[best_targets(of_query[seen], self._k, self._min_score)]
                targets, found = read_row(rows[row].copy_to_host())
                assert sorted(targets.tolist()) == sorted(expected.tolist())
                assert found.tolist() == of_query[targets].tolist()
            # the previous rows are unchanged, so the selection can be repeated; so are those of other queries
            assert (other_rows.copy_to_host() == before).all()
            assert (np.delete(rows.copy_to_host(), used, 0) == unused).all()
            # no target is scored twice
            assert all(len(set(each)) == len(each) for each in batch.scored)
            scored.append(batch.scored)
        return scored


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_queries_of_a_batch_do_not_affect_each_other(queries: int) -> None:
    rng = np.random.default_rng(queries)
    scores = rng.integers(0, 40, (queries, 60))
    scores[-1] //= 4  # below the minimum score
    bounds = np.stack([loose_bounds(of_query, rng) for of_query in scores])
    checker = Checker(9, 12, 60)
    for first_row in (0, 2):
        checker.check_batch(scores, bounds, [(40, 60), (12, 40), (0, 12)], first_row)
        checker.check_batch(scores, bounds, [(0, 60)], first_row)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 33, 77])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_selection_equals_best_targets(count: int, k: int) -> None:
    rng = np.random.default_rng(count)
    scores = rng.integers(0, 40, count)
    Checker(k, 15, count).check(scores, loose_bounds(scores, rng))


@pytest.mark.slow
@pytest.mark.parametrize("excess", [0, 3])
@pytest.mark.parametrize(
    "scores", [[7] * 30, [0] * 30, list(range(30)), list(range(30, 0, -1)), [3] * 29 + [9]]
)
def test_equal_and_extreme_scores(scores: list[int], excess: int) -> None:
    rng = np.random.default_rng(excess)
    exact = np.array(scores)
    for k in (1, 29):
        Checker(k, 3, 30).check(exact, loose_bounds(exact, rng, excess))


@pytest.mark.slow
def test_only_targets_that_may_be_among_the_best_are_scored() -> None:
    scores = np.arange(100)
    checker = Checker(8, 0, 100)
    for _ in range(2):
        assert sorted(checker.check(scores, scores)) == list(range(90, 100))
    # with fewer targets, the buffers still contain the last ones
    assert sorted(checker.check(scores[:97], scores[:97])) == list(range(87, 97))
    # the ten highest bounds do not have the best scores, so all targets must be scored
    bounds = np.where(scores < 10, 120 + scores, scores)
    assert sorted(checker.check(scores, bounds)) == list(range(100))
    scores[2:10] = 95
    assert sorted(checker.check(scores, bounds)) == [*range(10), *range(95, 100)]


def test_lists_of_all_targets_and_of_none() -> None:
    scores = np.full(40, 20)
    checker = Checker(3, 15, 40)
    assert len(checker.check(scores, np.full(40, UNBOUNDED))) == 40
    assert checker.check(scores - 6, scores - 6) == []
    assert len(checker.check(scores - 6, scores)) == 40


@pytest.mark.slow
@pytest.mark.parametrize(("k", "min_score"), [(1, 0), (5, -1), (10, 5), (14, 2**20), (60, 3000), (60, 2**31)])
def test_scores_above_the_highest_bound(k: int, min_score: int) -> None:
    rng = np.random.default_rng(k)
    scores = np.concatenate(
        [rng.integers(0, 100, 20), rng.integers(2000, 2100, 9), rng.integers(2**20, 2**20 + 9, 10),
         [2**31 - 1] * 3]
    )  # fmt: skip
    rng.shuffle(scores)
    Checker(k, min_score, len(scores)).check(scores, loose_bounds(scores, rng))


@pytest.mark.slow
def test_selection_with_the_gapless_kernels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lengths = np.sort(rng.integers(0, 12, 20)).astype(np.int32)
    padded = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(padded) - padded
    residues = rng.integers(0, 26, int(padded.sum())).astype(np.uint8)
    targets = DeviceSequences(*(cuda.to_device(array) for array in (residues, offsets, lengths)))
    profiles = [
        rng.integers(-9, largest, (length, 32)).astype(np.int16) for length, largest in ((21, 12), (9, 300))
    ]
    selector = TopKSelector(7, 9, 20, 2, SelectionStreams())
    rows = new_rows(7, 2)
    selector.select(GaplessBatch(profiles, tmp_path), targets, rows)
    # in two chunks, the second one first
    in_chunks = [new_rows(7, 2) for _ in range(2)]
    for turn, part in enumerate((slice(8, 20), slice(0, 8))):
        chunk = DeviceSequences(targets.residues, targets.offsets[part], targets.lengths[part])
        previous = in_chunks[0] if turn else None
        selector.select(GaplessBatch(profiles, tmp_path), chunk, in_chunks[turn], 0, part.start, previous)
    gpu.synchronize()
    for query, profile in enumerate(profiles):
        scores = gapless_scores(profile, residues, offsets, lengths)
        for found in rows, in_chunks[1]:
            selected, exact = read_row(found[query].copy_to_host())
            assert sorted(selected.tolist()) == sorted(best_targets(scores, 7, 9).tolist())
            assert exact.tolist() == scores[selected].tolist()


@pytest.mark.slow
def test_buffers_are_reused_for_chunks_of_all_sizes() -> None:
    rng = np.random.default_rng(0)
    checker = Checker(6, 12, 50)
    for count in (50, 50, 3, 0, 41, 0, 50):
        scores = rng.integers(0, 30, count)
        checker.check(scores, loose_bounds(scores, rng))


@pytest.mark.slow
@pytest.mark.parametrize("k", [20, 100])
def test_adjacent_targets_among_thousands(k: int) -> None:
    rng = np.random.default_rng(k)
    scores = np.zeros(9000, np.int64)
    for first in (0, 4001, 8975):
        scores[first : first + 25] = rng.integers(15, 19, 25)
    Checker(k, 15, 9000).check(scores, scores + rng.integers(0, 3, 9000))


def test_wrong_sizes_are_refused() -> None:
    selector = TopKSelector(1, 0, 3, 2, SelectionStreams())
    for queries, count in ((1, 4), (3, 2)):
        batch = KnownScores(*(np.zeros((queries, count), np.int64) for _ in range(2)))
        with pytest.raises(ValueError, match=f"3 targets and 2 queries, not for {count} and {queries}"):
            selector.select(batch, dummy_targets(count), new_rows(1, 3))
    batch = KnownScores(*(np.zeros((1, 2), np.int64) for _ in range(2)))
    rows = [new_rows(k) for k in (1, 2)]
    for output, previous in ((rows[1], None), (rows[0], rows[1])):
        with pytest.raises(ValueError, match="a row of 1 targets has 5 numbers, not 7"):
            selector.select(batch, dummy_targets(2), output, 0, 0, previous)


def test_memory_comes_from_the_allocator() -> None:
    allocated = []

    def allocate(count: int, dtype: np.dtype[Any]) -> Any:
        allocated.append(count * dtype.itemsize)
        return gpu.device_array(count + 3, dtype)

    selector = TopKSelector(2, 0, 10**4, 3, SelectionStreams(), allocate)
    before = sum(allocated)
    assert before < 3 * (TopKSelector.bytes_per_target * 10**4 + 2**14)
    rows, scores = new_rows(2), np.array([[4, 9, 9, 2]])
    selector.select(KnownScores(scores, scores), dummy_targets(4), rows)
    gpu.synchronize()
    selected, exact = read_row(rows[0].copy_to_host())
    assert sorted(selected.tolist()) == [1, 2] and exact.tolist() == [9, 9] and sum(allocated) == before


def chunks_of(count: int, ends: list[int]) -> list[tuple[int, int]]:
    """Return chunks from the last to the first."""
    return list(zip([0, *ends], [*ends, count], strict=True))[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 25, 100])
@pytest.mark.parametrize(("ends", "highest"), [([20, 41], 3), ([3, 3, 50], 40), ([0, 59], 3)])
def test_selection_from_several_chunks(k: int, ends: list[int], highest: int) -> None:
    """Many equal scores on both sides of a chunk's end, empty chunks, and fewer than k targets."""
    rng = np.random.default_rng(k)
    checker = Checker(k, 2, 60)
    scores, chunks = rng.integers(0, highest, 60), chunks_of(60, ends)
    checker.check_chunks(scores, loose_bounds(scores, rng), chunks)
    # neither the order of chunks nor earlier uses of the buffers matter
    checker.check_chunks(scores, loose_bounds(scores, rng), chunks[::-1])
    checker.check(scores, loose_bounds(scores, rng))


@pytest.mark.slow
def test_later_chunks_score_only_targets_that_may_be_among_the_best() -> None:
    scores = np.array([9, 3, 4, 5, 6, 2, 9, 8, 5, 1, 0, 7])
    checker = Checker(3, 0, 12)
    # before the first six targets, 9, 8 and 7 are selected, so only scores from 7 on matter
    assert checker.check_chunks(scores, scores, [(6, 12), (0, 6)])[1] == [0]
    assert sorted(checker.check_chunks(scores, scores + 2, [(6, 12), (0, 6)])[1]) == [0, 3, 4]
    # of equal scores, the first targets in the database win; all are scored in either order
    equal = np.full(12, 5)
    assert sorted(checker.check_chunks(equal, equal, [(6, 12), (0, 6)])[1]) == list(range(6))
    assert sorted(checker.check_chunks(equal, equal, [(0, 6), (6, 12)])[1]) == list(range(6))
    # while fewer than k are selected, all targets that reach the minimum score are scored
    few = Checker(8, 4, 12)
    assert sorted(few.check_chunks(scores, scores, [(6, 12), (0, 6)])[1]) == [0, 2, 3, 4]
    # an unknown bound excludes nothing
    unknown = np.where(scores < 3, UNBOUNDED, scores)
    assert sorted(checker.check_chunks(scores, unknown, [(6, 12), (0, 6)])[1]) == [0, 5]


@pytest.mark.parametrize("k", [5, 30])
def test_targets_that_are_too_long_for_their_scores_are_left_out(k: int) -> None:
    rng = np.random.default_rng(k)
    count, min_score = 60, 3
    scores = rng.integers(0, 20, (2, count))
    bounds = np.stack([loose_bounds(of_query, rng, 3) for of_query in scores])
    # by score, up to 11 and from 12 on; lengths are 0 to 10
    longest = np.sort(rng.integers(-1, 7, (2, 13)), axis=1).astype(np.int32)
    longest[1] = 10
    lengths = dummy_targets(count).lengths.copy_to_host()
    selector = TopKSelector(k, min_score, count, 2, SelectionStreams())
    row_sets, previous = [new_rows(k, 2) for _ in range(2)], None
    for turn, (first, end) in enumerate([(25, 60), (0, 25)]):
        batch = KnownScores(scores[:, first:end], bounds[:, first:end], longest)
        chunk = DeviceSequences(None, None, cuda.to_device(lengths[first:end].copy()))
        selector.select(batch, chunk, row_sets[turn], 0, first, previous)
        previous = row_sets[turn]
        gpu.synchronize()
        for query in range(2):
            of_scored = bounds[query, first:end][batch.scored[query]]
            limits = longest[query, np.minimum(of_scored, 12)]
            assert (lengths[first:end][batch.scored[query]] <= limits).all()
    rows = row_sets[1].copy_to_host()
    for query in range(2):
        best = best_targets(scores[query], k, min_score, lengths, longest[query])
        selected, exact = read_row(rows[query])
        assert exact.tolist() == scores[query][selected].tolist()
        assert sorted(selected) == sorted(best)
    without = best_targets(scores[0], k, min_score)
    assert sorted(best_targets(scores[0], k, min_score, lengths, longest[0])) != sorted(without)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "min_score"), [(1, 0), (5, 5), (14, 2**20), (60, 3000), (60, 2**31)])
def test_chunks_with_scores_above_the_highest_bound(k: int, min_score: int) -> None:
    rng = np.random.default_rng(k)
    scores = np.concatenate(
        [rng.integers(0, 100, 20), rng.integers(2000, 2100, 9), rng.integers(2**20, 2**20 + 9, 10),
         np.full(4, 40000), [2**31 - 1] * 3]
    )  # fmt: skip
    rng.shuffle(scores)
    checker = Checker(k, min_score, len(scores))
    checker.check_chunks(scores, loose_bounds(scores, rng), chunks_of(len(scores), [13, 30]))


@pytest.mark.slow
@pytest.mark.parametrize("first", [2**22 - 3, 2**31 - 60])
def test_large_database_indices(first: int) -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 9, 40)
    bounds, selector = loose_bounds(scores, rng), TopKSelector(7, 2, 40, 1, SelectionStreams())
    rows = [new_rows(7) for _ in range(2)]
    for output, (start, end), previous in ((rows[0], (15, 40), None), (rows[1], (0, 15), rows[0])):
        batch = KnownScores(scores[None, start:end], bounds[None, start:end])
        selector.select(batch, dummy_targets(end - start), output, 0, first + start, previous)
    gpu.synchronize()
    selected, exact = read_row(rows[1][0].copy_to_host())
    assert sorted((selected - first).tolist()) == sorted(best_targets(scores, 7, 2).tolist())
    assert exact.tolist() == scores[selected - first].tolist()


@pytest.mark.parametrize("counts", [[5, 0, 3], [0, 0], [6, 6], [1]])
def test_rows_are_read_in_order(counts: list[int]) -> None:
    rng, k = np.random.default_rng(4), 6
    rows = rng.integers(-9, 9, (len(counts), row_size(k))).astype(np.int32)
    rows[:, ROW_COUNT] = counts
    for row, count in zip(rows, counts, strict=True):
        row[ROW_TARGETS:][:count] = rng.permutation([2**31 - 1, 0, 7, 12, 3, 2**30])[:count]
        row[ROW_TARGETS + k :][:count] = rng.choice([0, 5, 2**31 - 1], count)
    found, targets, scores = read_rows(rows)
    expected = []
    for row in rows:
        own_targets, own_scores = read_row(row)
        order = np.lexsort((own_targets, -own_scores.astype(np.int64)))
        expected += list(zip(own_targets[order].tolist(), own_scores[order].tolist(), strict=True))
    assert found.tolist() == counts and (targets.dtype, scores.dtype) == (np.int64, np.int32)
    assert list(zip(targets.tolist(), scores.tolist(), strict=True)) == expected
