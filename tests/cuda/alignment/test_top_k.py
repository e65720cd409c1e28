"""The best targets on a GPU, or under numba's simulator, beside msa.search.engine.best_targets.

The simulator has to be chosen before numba is imported, so where there is no GPU the tests run themselves
again in a process that has chosen it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.core import config

from cuda.alignment.gapless.reference import gapless_scores
from cuda.alignment.top_k import BestTargets, QueryFilter, read_row, row_numbers
from msa.search.engine import best_targets

UNBOUNDED = 2**15 - 1
WORKS = bool(config.ENABLE_CUDASIM) or cuda.is_available()
works = pytest.mark.skipif(not WORKS, reason="runs in the process that test_under_the_simulator starts")


@pytest.mark.skipif(WORKS, reason="the tests run in this process")
def test_under_the_simulator(run_in_simulator: Callable[[str], None]) -> None:
    run_in_simulator(__file__)


class KnownScores:
    """A query whose scores are given, and bounds of them."""

    def __init__(self, scores: np.ndarray, bounds: np.ndarray) -> None:
        known = bounds < UNBOUNDED
        assert (bounds[known] >= scores[known]).all()
        self._scores, self._bounds = scores.astype(np.int32), bounds.astype(np.int16)
        self.rescored: list[int] = []

    def bounds(self, residues: Any, offsets: Any, lengths: Any, bounds: Any, stream: Any) -> None:
        bounds.copy_to_device(self._bounds)

    def rescore(
        self,
        residues: Any,
        offsets: Any,
        lengths: Any,
        listed: Any,
        scores: Any,
        stream: Any,
        few: bool = False,
    ) -> None:
        count, *rest = listed.copy_to_host().tolist()
        indices = rest[:count]
        assert len(set(indices)) == count
        self.rescored += indices
        if count:
            scores[:count].copy_to_device(self._scores[indices])


def loose(scores: np.ndarray, rng: np.random.Generator, excess: int = 8) -> np.ndarray:
    """Bounds that are up to so much too large, and now and then unknown."""
    bounds = scores.astype(np.int64) + rng.integers(0, excess + 1, len(scores))
    return np.where((bounds >= 1024) | (rng.random(len(scores)) < 0.02), UNBOUNDED, bounds)


class Finder:
    """A BestTargets with targets that nobody looks at, used again and again."""

    def __init__(self, most: int, smallest: int, room: int) -> None:
        self._most, self._smallest = most, smallest
        self._best = BestTargets(most, smallest, room, 0)
        self._rows = cuda.to_device(np.full((3, row_numbers(most)), -7, np.int32))

    def check(self, scores: np.ndarray, bounds: np.ndarray) -> list[int]:
        """Compare with the definition; which targets were scored exactly, in turn."""
        return self.check_chunks(scores, bounds, [(0, len(scores))])[0]

    def check_chunks(
        self, scores: np.ndarray, bounds: np.ndarray, chunks: list[tuple[int, int]]
    ) -> list[list[int]]:
        """The same chunk by chunk, after each; of each, which of its targets were scored exactly."""
        rescored, seen = [], np.empty(0, np.int64)
        for turn, (first, end) in enumerate(chunks):
            count = end - first
            targets = cuda.to_device(np.zeros(count, np.int64)), cuda.to_device(np.ones(count, np.int32))
            query = KnownScores(scores[first:end], bounds[first:end])
            own, other = self._rows[turn % 2], self._rows[1 - turn % 2]
            before = other.copy_to_host()
            self._best.find(query, None, *targets, own, first, other if turn else None)
            seen = np.sort(np.append(seen, np.arange(first, end)))
            expected = seen[best_targets(scores[seen], self._most, self._smallest)]
            places, found = read_row(own.copy_to_host())
            assert sorted(places.tolist()) == sorted(expected.tolist())
            assert found.tolist() == scores[places].tolist()
            # what it began with is still there, should this have to be done again
            assert (other.copy_to_host() == before).all() and (self._rows[2].copy_to_host() == -7).all()
            # none that is not needed is scored twice
            assert len(set(query.rescored)) == len(query.rescored)
            rescored.append(query.rescored)
        return rescored


@works
@pytest.mark.parametrize("count", [1, 4, 33, 77])
@pytest.mark.parametrize("most", [1, 7, 100])
def test_equals_best_targets(count: int, most: int) -> None:
    rng = np.random.default_rng(count)
    scores = rng.integers(0, 40, count)
    Finder(most, 15, count).check(scores, loose(scores, rng))


@works
@pytest.mark.parametrize("excess", [0, 3])
@pytest.mark.parametrize(
    "scores", [[7] * 30, [0] * 30, list(range(30)), list(range(30, 0, -1)), [3] * 29 + [9]]
)
def test_ties_and_extremes(scores: list[int], excess: int) -> None:
    rng = np.random.default_rng(excess)
    exact = np.array(scores)
    for most in (1, 29):
        Finder(most, 3, 30).check(exact, loose(exact, rng, excess))


@works
def test_only_what_can_belong_to_the_best_is_scored() -> None:
    scores = np.arange(100)
    finder = Finder(8, 0, 100)
    for _ in range(2):
        assert sorted(finder.check(scores, scores)) == list(range(90, 100))
    # where the last targets were there is something left
    assert sorted(finder.check(scores[:97], scores[:97])) == list(range(87, 97))
    # the first ten by bound are not the best: what reaches the eighth of them could be
    bounds = np.where(scores < 10, 120 + scores, scores)
    assert sorted(finder.check(scores, bounds)) == list(range(100))
    scores[2:10] = 95
    assert sorted(finder.check(scores, bounds)) == [*range(10), *range(95, 100)]


@works
def test_a_list_of_all_and_of_none() -> None:
    scores = np.full(40, 20)
    finder = Finder(3, 15, 40)
    assert len(finder.check(scores, np.full(40, UNBOUNDED))) == 40
    assert finder.check(scores - 6, scores - 6) == []
    assert len(finder.check(scores - 6, scores)) == 40


@works
@pytest.mark.parametrize(
    ("most", "smallest"), [(1, 0), (5, -1), (10, 5), (14, 2**20), (60, 3000), (60, 2**31)]
)
def test_scores_beyond_all_bounds(most: int, smallest: int) -> None:
    rng = np.random.default_rng(most)
    scores = np.concatenate(
        [rng.integers(0, 100, 20), rng.integers(2000, 2100, 9), rng.integers(2**20, 2**20 + 9, 10),
         [2**31 - 1] * 3]
    )  # fmt: skip
    rng.shuffle(scores)
    Finder(most, smallest, len(scores)).check(scores, loose(scores, rng))


@works
def test_scores_of_queries(tmp_path: Path) -> None:
    """Bounds and exact scores from the kernels themselves."""
    rng = np.random.default_rng(1)
    lengths = np.sort(rng.integers(0, 12, 20)).astype(np.int32)
    room = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(room) - room
    residues = rng.integers(0, 26, int(room.sum())).astype(np.uint8)
    there = [cuda.to_device(array) for array in (residues, offsets, lengths)]
    best = BestTargets(7, 9, 20, 0)
    for length, largest in ((21, 12), (9, 300)):
        profile = rng.integers(-9, largest, (length, 32)).astype(np.int16)
        found = cuda.to_device(np.zeros(row_numbers(7), np.int32))
        best.find(QueryFilter(profile, tmp_path), *there, found)
        scores = gapless_scores(profile, residues, offsets, lengths)
        places, exact = read_row(found.copy_to_host())
        assert sorted(places.tolist()) == sorted(best_targets(scores, 7, 9).tolist())
        assert exact.tolist() == scores[places].tolist()
        # in two chunks, the second first
        rows = [cuda.to_device(np.zeros(row_numbers(7), np.int32)) for _ in range(2)]
        residues_there, offsets_there, lengths_there = there
        for row, part, before in ((rows[0], slice(8, 20), None), (rows[1], slice(0, 8), rows[0])):
            chunk = offsets_there[part], lengths_there[part]
            best.find(QueryFilter(profile, tmp_path), residues_there, *chunk, row, part.start, before)
        in_two, exact = read_row(rows[1].copy_to_host())
        assert set(in_two.tolist()) == set(places.tolist()) and exact.tolist() == scores[in_two].tolist()


@works
def test_chunks_of_all_sizes_query_after_query() -> None:
    rng = np.random.default_rng(0)
    finder = Finder(6, 12, 50)
    for count in (50, 50, 3, 0, 41, 0, 50):
        scores = rng.integers(0, 30, count)
        finder.check(scores, loose(scores, rng))


@works
@pytest.mark.parametrize("most", [20, 100])
def test_neighbours_among_thousands(most: int) -> None:
    rng = np.random.default_rng(most)
    scores = np.zeros(9000, np.int64)
    for first in (0, 4001, 8975):
        scores[first : first + 25] = rng.integers(15, 19, 25)
    Finder(most, 15, 9000).check(scores, scores + rng.integers(0, 3, 9000))


@works
def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="room for 3 targets, not for 4"):
        Finder(1, 0, 3).check(np.arange(4), np.arange(4))
    targets = cuda.to_device(np.zeros(2, np.int64)), cuda.to_device(np.ones(2, np.int32))
    query = KnownScores(np.arange(2), np.arange(2))
    rows = [cuda.to_device(np.zeros(row_numbers(most), np.int32)) for most in (1, 2)]
    for found, before in ((rows[1], None), (rows[0], rows[1])):
        with pytest.raises(ValueError, match="a row of 1 targets has 5 numbers, not 7"):
            BestTargets(1, 0, 3).find(query, None, *targets, found, 0, before)


@works
def test_memory_is_taken_as_told() -> None:
    taken = []

    def allocate(count: int, kind: np.dtype[Any]) -> Any:
        taken.append(count * kind.itemsize)
        return cuda.device_array(count + 3, kind)

    best = BestTargets(2, 0, 10**4, 0, allocate)
    before = sum(taken)
    assert before < BestTargets.bytes_per_target * 10**4 + 2**14
    found, scores = cuda.to_device(np.zeros(row_numbers(2), np.int32)), np.array([4, 9, 9, 2])
    empty = cuda.to_device(np.zeros(4, np.int64)), cuda.to_device(np.zeros(4, np.int32))
    best.find(KnownScores(scores, scores), None, *empty, found)
    places, exact = read_row(found.copy_to_host())
    assert sorted(places.tolist()) == [1, 2] and exact.tolist() == [9, 9] and sum(taken) == before


def cut(count: int, ends: list[int]) -> list[tuple[int, int]]:
    """Chunks from the last to the first."""
    return list(zip([0, *ends], [*ends, count], strict=True))[::-1]


@works
@pytest.mark.parametrize("most", [1, 25, 100])
@pytest.mark.parametrize(("ends", "highest"), [([20, 41], 3), ([3, 3, 50], 40), ([0, 59], 3)])
def test_chunk_after_chunk(most: int, ends: list[int], highest: int) -> None:
    """With many equal scores on both sides of a chunk's end, chunks without targets, fewer than `most`."""
    rng = np.random.default_rng(most)
    finder = Finder(most, 2, 60)
    scores, chunks = rng.integers(0, highest, 60), cut(60, ends)
    finder.check_chunks(scores, loose(scores, rng), chunks)
    # the order of chunks does not matter, nor what the buffers were used for before
    finder.check_chunks(scores, loose(scores, rng), chunks[::-1])
    finder.check(scores, loose(scores, rng))


@works
def test_a_later_chunk_scores_what_can_enter() -> None:
    scores = np.array([9, 3, 4, 5, 6, 2, 9, 8, 5, 1, 0, 7])
    finder = Finder(3, 0, 12)
    # 9, 8 and 7 are there when the first six come: only what reaches 7 is looked at
    assert finder.check_chunks(scores, scores, [(6, 12), (0, 6)])[1] == [0]
    assert sorted(finder.check_chunks(scores, scores + 2, [(6, 12), (0, 6)])[1]) == [0, 3, 4]
    # an equal score enters, as it comes first, and does not the other way round; all are looked at
    equal = np.full(12, 5)
    assert sorted(finder.check_chunks(equal, equal, [(6, 12), (0, 6)])[1]) == list(range(6))
    assert sorted(finder.check_chunks(equal, equal, [(0, 6), (6, 12)])[1]) == list(range(6))
    # as long as there are not enough, what reaches the smallest score
    few = Finder(8, 4, 12)
    assert sorted(few.check_chunks(scores, scores, [(6, 12), (0, 6)])[1]) == [0, 2, 3, 4]
    # a bound that is not known says nothing
    unknown = np.where(scores < 3, UNBOUNDED, scores)
    assert sorted(finder.check_chunks(scores, unknown, [(6, 12), (0, 6)])[1]) == [0, 5]


@works
@pytest.mark.parametrize(("most", "smallest"), [(1, 0), (5, 5), (14, 2**20), (60, 3000), (60, 2**31)])
def test_chunks_with_scores_beyond_all_bounds(most: int, smallest: int) -> None:
    rng = np.random.default_rng(most)
    scores = np.concatenate(
        [rng.integers(0, 100, 20), rng.integers(2000, 2100, 9), rng.integers(2**20, 2**20 + 9, 10),
         np.full(4, 40000), [2**31 - 1] * 3]
    )  # fmt: skip
    rng.shuffle(scores)
    finder = Finder(most, smallest, len(scores))
    finder.check_chunks(scores, loose(scores, rng), cut(len(scores), [13, 30]))


@works
@pytest.mark.parametrize("first", [2**22 - 3, 2**31 - 60])
def test_places_far_into_a_database(first: int) -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 9, 40)
    bounds, best = loose(scores, rng), BestTargets(7, 2, 40)
    rows = [cuda.to_device(np.zeros(row_numbers(7), np.int32)) for _ in range(2)]
    for row, (start, end), before in ((rows[0], (15, 40), None), (rows[1], (0, 15), rows[0])):
        count = end - start
        targets = cuda.to_device(np.zeros(count, np.int64)), cuda.to_device(np.ones(count, np.int32))
        query = KnownScores(scores[start:end], bounds[start:end])
        best.find(query, None, *targets, row, first + start, before)
    places, exact = read_row(rows[1].copy_to_host())
    assert sorted((places - first).tolist()) == sorted(best_targets(scores, 7, 2).tolist())
    assert exact.tolist() == scores[places - first].tolist()
