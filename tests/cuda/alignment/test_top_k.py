"""Selection of the best targets on a GPU or in numba's simulator, compared with best_targets on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda

from cuda.alignment import DeviceSequences
from cuda.alignment.top_k import GaplessQuery, TopKSelector, read_row, read_rows, row_size
from cuda.alignment.top_k.layout import ROW_COUNT, ROW_TARGETS
from msa.search.engine import best_targets
from tests.cuda.alignment.reference import gapless_scores

UNBOUNDED = 2**15 - 1
pytestmark = pytest.mark.simulator(or_gpu=True)


def dummy_targets(count: int) -> DeviceSequences:
    """Create targets for queries that ignore them."""
    return DeviceSequences(
        None, cuda.to_device(np.zeros(count, np.int64)), cuda.to_device(np.ones(count, np.int32))
    )


def new_row(k: int) -> Any:
    return cuda.to_device(np.zeros(row_size(k), np.int32))


class KnownScores:
    """A query with given scores and bounds; see BoundAndScore."""

    def __init__(self, scores: np.ndarray, bounds: np.ndarray) -> None:
        known = bounds < UNBOUNDED
        assert (bounds[known] >= scores[known]).all()
        self._scores, self._bounds = scores.astype(np.int32), bounds.astype(np.int16)
        self.scored: list[int] = []

    def bound_all(self, targets: DeviceSequences, bounds: Any, stream: Any) -> None:
        bounds.copy_to_device(self._bounds)

    def score_listed(
        self, targets: DeviceSequences, listed: Any, scores: Any, stream: Any, small_grid: bool = False
    ) -> None:
        count, *rest = listed.copy_to_host().tolist()
        indices = rest[:count]
        assert len(set(indices)) == count
        self.scored += indices
        if count:
            scores[:count].copy_to_device(self._scores[indices])


def loose_bounds(scores: np.ndarray, rng: np.random.Generator, excess: int = 8) -> np.ndarray:
    """Draw bounds that are up to `excess` too large, and some that are unknown."""
    bounds = scores.astype(np.int64) + rng.integers(0, excess + 1, len(scores))
    return np.where((bounds >= 1024) | (rng.random(len(scores)) < 0.02), UNBOUNDED, bounds)


class Checker:
    """A TopKSelector that is used repeatedly, with checks of every result."""

    def __init__(self, k: int, min_score: int, capacity: int) -> None:
        self._k, self._min_score = k, min_score
        self._selector = TopKSelector(k, min_score, capacity, 0)
        self._rows = cuda.to_device(np.full((3, row_size(k)), -7, np.int32))

    def check(self, scores: np.ndarray, bounds: np.ndarray) -> list[int]:
        """Check the selection from a single chunk; return the targets that were scored exactly."""
        return self.check_chunks(scores, bounds, [(0, len(scores))])[0]

    def check_chunks(
        self, scores: np.ndarray, bounds: np.ndarray, chunks: list[tuple[int, int]]
    ) -> list[list[int]]:
        """Check the selection after each chunk; return the targets of each that were scored exactly."""
        scored, seen = [], np.empty(0, np.int64)
        for turn, (first, end) in enumerate(chunks):
            count = end - first
            query = KnownScores(scores[first:end], bounds[first:end])
            row, other_row = self._rows[turn % 2], self._rows[1 - turn % 2]
            before = other_row.copy_to_host()
            previous_row = other_row if turn else None
            self._selector.select(query, dummy_targets(count), row, first, previous_row)
            seen = np.sort(np.append(seen, np.arange(first, end)))
            expected = seen[best_targets(scores[seen], self._k, self._min_score)]
            targets, found = read_row(row.copy_to_host())
            assert sorted(targets.tolist()) == sorted(expected.tolist())
            assert found.tolist() == scores[targets].tolist()
            # the previous row is unchanged, so the selection can be repeated
            assert (other_row.copy_to_host() == before).all() and (self._rows[2].copy_to_host() == -7).all()
            # no target is scored twice
            assert len(set(query.scored)) == len(query.scored)
            scored.append(query.scored)
        return scored


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
    selector = TopKSelector(7, 9, 20, 0)
    for length, largest in ((21, 12), (9, 300)):
        profile = rng.integers(-9, largest, (length, 32)).astype(np.int16)
        row = new_row(7)
        selector.select(GaplessQuery(profile, tmp_path), targets, row)
        scores = gapless_scores(profile, residues, offsets, lengths)
        selected, exact = read_row(row.copy_to_host())
        assert sorted(selected.tolist()) == sorted(best_targets(scores, 7, 9).tolist())
        assert exact.tolist() == scores[selected].tolist()
        # in two chunks, the second one first
        rows = [new_row(7) for _ in range(2)]
        for row, part, previous in ((rows[0], slice(8, 20), None), (rows[1], slice(0, 8), rows[0])):
            chunk = DeviceSequences(targets.residues, targets.offsets[part], targets.lengths[part])
            selector.select(GaplessQuery(profile, tmp_path), chunk, row, part.start, previous)
        in_chunks, exact = read_row(rows[1].copy_to_host())
        assert set(in_chunks.tolist()) == set(selected.tolist())
        assert exact.tolist() == scores[in_chunks].tolist()


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
    with pytest.raises(ValueError, match="capacity for 3 targets, not for 4"):
        Checker(1, 0, 3).check(np.arange(4), np.arange(4))
    query = KnownScores(np.arange(2), np.arange(2))
    rows = [new_row(k) for k in (1, 2)]
    for row, previous in ((rows[1], None), (rows[0], rows[1])):
        with pytest.raises(ValueError, match="a row of 1 targets has 5 numbers, not 7"):
            TopKSelector(1, 0, 3).select(query, dummy_targets(2), row, 0, previous)


def test_memory_comes_from_the_allocator() -> None:
    allocated = []

    def allocate(count: int, dtype: np.dtype[Any]) -> Any:
        allocated.append(count * dtype.itemsize)
        return cuda.device_array(count + 3, dtype)

    selector = TopKSelector(2, 0, 10**4, 0, allocate)
    before = sum(allocated)
    assert before < TopKSelector.bytes_per_target * 10**4 + 2**14
    row, scores = new_row(2), np.array([4, 9, 9, 2])
    selector.select(KnownScores(scores, scores), dummy_targets(4), row)
    selected, exact = read_row(row.copy_to_host())
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
    bounds, selector = loose_bounds(scores, rng), TopKSelector(7, 2, 40)
    rows = [new_row(7) for _ in range(2)]
    for row, (start, end), previous in ((rows[0], (15, 40), None), (rows[1], (0, 15), rows[0])):
        query = KnownScores(scores[start:end], bounds[start:end])
        selector.select(query, dummy_targets(end - start), row, first + start, previous)
    selected, exact = read_row(rows[1].copy_to_host())
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
