"""What the engine takes from cuda.alignment, computed on the CPU: numba's simulator takes minutes for it."""

from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment.smith_waterman import Alignments
from cuda.alignment.top_k import read_row, row_numbers
from cuda.alignment.top_k.kernel import FOUND, PLACES
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.search.engine import best_targets


def _host(*arrays: Any) -> SequenceArrays:
    return SequenceArrays(*(array.copy_to_host() for array in arrays))


class QueryFilter:
    def __init__(self, profile: np.ndarray, kernels: Path) -> None:
        self.profile = profile

    def prepare(self) -> None:
        pass


class BestTargets:
    bytes_per_target = 4

    def __init__(self, most: int, smallest: int, room: int, stream: Any, allocate: Any) -> None:
        self._most, self._smallest, self._room = most, smallest, room
        self._scores = allocate(room, np.dtype(np.int32))

    def find(
        self, query: QueryFilter, residues: Any, offsets: Any, lengths: Any, found: Any, first: int,
        before: Any,
    ) -> None:  # fmt: skip
        assert lengths.size <= self._room
        scores = gapless_scores(query.profile, _host(residues, offsets, lengths), 1)
        best = best_targets(scores, self._most, self._smallest)
        places, scores = best + first, scores[best]
        if before is not None:
            known, theirs = read_row(before.copy_to_host())
            assert not len(known) or known.min() >= first + lengths.size  # from the last chunk to the first
            places, scores = np.append(places, known), np.append(scores, theirs)
            best = best_targets(scores, self._most, self._smallest)
            places, scores = places[best], scores[best]
        row = np.full(row_numbers(self._most), -1, np.int32)
        row[FOUND] = len(places)
        row[PLACES:][: len(places)] = places
        row[PLACES + self._most :][: len(places)] = scores
        found.copy_to_device(row)


def _aligned(queries: Any, targets: Any, pairs: Any, gap_open: int, gap_extend: int) -> list[Any]:
    there = _host(targets.residues, targets.offsets, targets.lengths)
    assert pairs.length.tolist() == there.lengths[pairs.target].tolist()
    found = []
    for number, target in zip(pairs.query.tolist(), pairs.target.tolist(), strict=True):
        query = queries[number]
        found += align(query.profile, query.codes, there, np.array([target]), gap_open, gap_extend)
    return found


def end_positions(
    queries: Any, targets: Any, pairs: Any, gap_open: int, gap_extend: int, **how: Any
) -> np.ndarray:
    found = _aligned(queries, targets, pairs, gap_open, gap_extend)
    return np.array([[a.score, a.query_end - 1, a.target_end - 1] for a in found], np.int32).reshape(-1, 3)


def trace_paths(
    queries: Any, targets: Any, pairs: Any, ends: np.ndarray, gap_open: int, gap_extend: int, **how: Any
) -> Alignments:
    found = _aligned(queries, targets, pairs, gap_open, gap_extend)
    assert [a.score for a in found] == ends[:, 0].tolist()
    rows = [
        [
            a.score, a.query_start - 1, a.query_end - 1, a.target_start - 1, a.target_end - 1, a.identities,
            a.columns, len(a.runs),
        ]
        for a in found
    ]  # fmt: skip
    runs = [a.runs for a in found]
    starts = np.cumsum([0, *map(len, runs)])
    return Alignments(
        np.array(rows, np.int32).reshape(-1, 8), np.concatenate([*runs, np.empty(0, np.int32)]), starts
    )


def use() -> None:
    """Let the engine of this process take these."""
    from msa.gpu import alignment, filtering

    filtering.QueryFilter, filtering.BestTargets = QueryFilter, BestTargets  # type: ignore[misc, assignment]
    alignment.end_positions, alignment.trace_paths = end_positions, trace_paths  # type: ignore[assignment]
