"""CPU implementations of the GPU engine's kernels, because the simulator takes minutes for the real ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import AlignmentPaths, DeviceSequences
from cuda.alignment.gapless import ProfileLimits, UploadedArray, UploadedTable
from cuda.alignment.gapless.layout import HALF, LaneLayout
from cuda.alignment.gapless.lists import LOWER
from cuda.alignment.gapless.tables import TableSource
from cuda.alignment.top_k import SelectionStreams, any_length, read_row, row_size
from cuda.alignment.top_k.layout import ROW_COUNT, ROW_TARGETS
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.filtered_targets import best_targets


def on_host(sequences: DeviceSequences) -> SequenceArrays:
    arrays = sequences.residues, sequences.offsets, sequences.lengths
    return SequenceArrays(*(array.copy_to_host() for array in arrays))


class GaplessBatch:
    """Replaces cuda.alignment.top_k.GaplessBatch."""

    def __init__(
        self,
        profiles: Sequence[np.ndarray],
        kernels: Path,
        limits: Sequence[ProfileLimits] | None = None,
        longest: np.ndarray | None = None,
    ) -> None:
        self.profiles = profiles
        self.longest_table = UploadedArray(any_length(len(profiles)) if longest is None else longest)
        # uploaded, although `TopKSelector` reads the profiles
        self.tables = [UploadedTable([TableSource(LaneLayout(32, 8), HALF, p[:256]) for p in profiles])]

    def __len__(self) -> int:
        return len(self.profiles)


class TopKSelector:
    """Replaces cuda.alignment.top_k.TopKSelector."""

    def __init__(
        self, k: int, min_score: int, capacity: int, queries: int, streams: SelectionStreams, allocate: Any
    ) -> None:
        self._k, self._min_score, self._capacity, self._queries = k, min_score, capacity, queries
        self._scores = allocate(capacity, np.dtype(np.int32))

    def select(
        self,
        batch: GaplessBatch,
        targets: DeviceSequences,
        rows: Any,
        first_row: int,
        first: int = 0,
        previous_rows: Any = None,
    ) -> None:
        assert 0 < len(batch) <= self._queries
        tables = batch.longest_table.copy_for(0).copy_to_host()
        for row, (profile, longest) in enumerate(zip(batch.profiles, tables, strict=True), first_row):
            previous_row = None if previous_rows is None else previous_rows[row]
            limit = self._min_score if previous_row is None else previous_row.copy_to_host()[LOWER]
            self._select(profile, longest, targets, rows[row], first, previous_row, limit)

    def _select(
        self,
        profile: np.ndarray,
        longest: np.ndarray,
        targets: DeviceSequences,
        row: Any,
        first: int,
        previous_row: Any,
        limit: int,
    ) -> None:
        sequences = on_host(targets)
        assert len(sequences) <= self._capacity
        scores = gapless_scores(profile, sequences, 1)
        best = best_targets(scores, self._k, limit, sequences.lengths, longest)
        indices, scores = best + first, scores[best]
        if previous_row is not None:
            known, known_scores = read_row(previous_row.copy_to_host())
            # from the last chunk to the first
            assert not len(known) or known.min() >= first + len(sequences)
            indices, scores = np.append(indices, known), np.append(scores, known_scores)
            best = best_targets(scores, self._k, limit)
            indices, scores = indices[best], scores[best]
        content = np.full(row_size(self._k), -1, np.int32)
        content[LOWER] = limit if len(indices) < self._k else scores.min()
        content[ROW_COUNT] = len(indices)
        content[ROW_TARGETS:][: len(indices)] = indices
        content[ROW_TARGETS + self._k :][: len(indices)] = scores
        row.copy_to_device(content)


def end_positions(
    profiles: Any, targets: Any, pairs: Any, gap_open: int, gap_extend: int, **options: Any
) -> np.ndarray:
    """Replace cuda.alignment.smith_waterman.end_positions."""
    codes = [np.zeros(len(profile), np.uint8) for profile in profiles]
    found = _align(profiles, codes, targets, pairs, gap_open, gap_extend)
    ends = found.records[:, [0, 2, 4]]
    ends[ends[:, 0] == 0, 1:] = -1
    return ends


def trace_paths(
    profiles: Any,
    codes: Any,
    targets: Any,
    pairs: Any,
    ends: np.ndarray,
    gap_open: int,
    gap_extend: int,
    **options: Any,
) -> AlignmentPaths:
    """Replace cuda.alignment.smith_waterman.trace_paths."""
    found = _align(profiles, codes, targets, pairs, gap_open, gap_extend)
    assert found.records[:, 0].tolist() == ends[:, 0].tolist()
    return found


def _align(
    profiles: Any, codes: Any, targets: Any, pairs: Any, gap_open: int, gap_extend: int
) -> AlignmentPaths:
    sequences = on_host(targets)
    assert pairs.length.tolist() == sequences.lengths[pairs.target].tolist()
    found = [
        align(profiles[query], codes[query], sequences, np.array([target]), gap_open, gap_extend)
        for query, target in zip(pairs.query.tolist(), pairs.target.tolist(), strict=True)
    ]
    return AlignmentPaths.concatenate(found)


def replacements() -> list[tuple[Any, str, Any]]:
    """Return the module, name and replacement of everything that the GPU engine of this process uses."""
    from msa.gpu.worker import alignment, filtering

    return [
        (filtering, "GaplessBatch", GaplessBatch),
        (filtering, "TopKSelector", TopKSelector),
        (alignment, "end_positions", end_positions),
        (alignment, "trace_paths", trace_paths),
    ]
