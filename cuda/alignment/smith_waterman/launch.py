"""Scores, ends and paths of many alignments on a GPU.

Of every pair the host copies two numbers to the GPU and three back; what is sorted, is sorted there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment.smith_waterman.kernel import PATH, WALK_THREADS, pack_runs_kernel, walk_kernel
from cuda.alignment.smith_waterman.pairs import Alignments, DeviceTargets, Pairs, Query
from cuda.alignment.smith_waterman.plan import first_places
from cuda.alignment.smith_waterman.rows import Allocate, Rows, batches, device_array
from cuda.alignment.smith_waterman.shapes import Shapes, available_shapes
from cuda.alignment.smith_waterman.source import ENTRY, STARTS

UNKNOWN = 20
"""Letter code of X, which is identical to nothing."""

# of a pair, beside border, path bits and runs: query, target, bucket, place, score and end, starts, path
_BYTES_PER_PAIR = 4 + 8 + 4 + 4 + 4 * ENTRY + 8 * STARTS + 4 * PATH


def _checked(gap_open: int, gap_extend: int) -> None:
    if not gap_open >= gap_extend >= 1:
        raise ValueError(f"gap open {gap_open} must be at least gap extend {gap_extend}, and that at least 1")


def end_positions(
    queries: Sequence[Query],
    targets: DeviceTargets,
    pairs: Pairs,
    gap_open: int = 11,
    gap_extend: int = 1,
    stream: Any = 0,
    budget: int = 2**30,
    shapes: Shapes | None = None,
    kernels: Path | None = None,
    allocate: Allocate = device_array,
) -> np.ndarray:
    """Score and end of each pair's local alignment with affine gaps.

    Args:
        queries: what to align.
        targets: what to align to.
        pairs: which to which.
        gap_open, gap_extend: half-bits, gap_open ≥ gap_extend ≥ 1; a gap of k costs open + (k − 1) extend.
        stream: what to launch on.
        budget: bytes of GPU memory for intermediate results; a single pair may need more. Beside it, 40 bytes
            a pair, and 4 KiB and a few times the profile a query.
        shapes: kernel shapes; those for the current GPU.
        kernels: folder where compiled kernels are kept between runs.
        allocate: gives all GPU memory; what it raises is passed on, and the call can be made again with less.

    Returns:
        int32 [n, 3]: score, exact whatever its size, and the last query and target position from 0 (−1 where
        the score is 0); of ends with that score the one with the smallest target position, then the smallest
        query position.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    _checked(gap_open, gap_extend)
    n = len(pairs)
    if not n:
        return np.empty((0, ENTRY), np.int32)
    rows = Rows(
        queries, targets, gap_open, gap_extend, shapes or available_shapes(), stream, kernels, allocate
    )
    result = np.empty((n + 1, ENTRY), np.int32)
    if rows.shapes.packed:
        found = rows.found(n)
        prepared, left_out = rows.packed(pairs, found)
        rows.run(prepared)
        # the operating system gives memory when it is first touched: while the GPU works, not after it
        result.fill(0)
        rows.download(found, result.reshape(-1))
        ends = result[1:]
        missing = np.flatnonzero(ends[:, 0] < 0) if left_out or result[0, 0] else np.empty(0, np.int64)
    else:
        ends = result[1:]
        ends[:] = 0, -1, -1
        missing = np.flatnonzero(pairs.length > 0)
    if len(missing):
        _wide_ends(rows, pairs, missing, budget, ends)
    return ends


def _wide_ends(rows: Rows, pairs: Pairs, missing: np.ndarray, budget: int, ends: np.ndarray) -> None:
    """Score some of the pairs, none of them empty, in 32 bits."""
    tiled = rows.lengths > rows.shapes.wide[-1].width
    heights = np.where(tiled[pairs.query[missing]], pairs.length[missing], 0).astype(np.int64)
    for first, end in batches(8 * heights + _BYTES_PER_PAIR, budget):
        chosen, height = missing[first:end], heights[first:end]
        part = pairs if len(chosen) == len(pairs) else pairs.part(chosen)
        found, border = rows.found(len(chosen)), rows.empty(2 * int(height.sum()))
        starts = np.zeros((len(chosen), STARTS), np.int64)
        starts[:, 0] = first_places(height)
        # nothing is written to the path bits, which any array can stand for
        rows.run(rows.wide("wide", part, found, rows.upload(starts, np.int64), border, border))
        ends[chosen] = rows.download(found).reshape(-1, ENTRY)[1:]


def trace_paths(
    queries: Sequence[Query],
    targets: DeviceTargets,
    pairs: Pairs,
    ends: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    stream: Any = 0,
    budget: int = 2**30,
    shapes: Shapes | None = None,
    kernels: Path | None = None,
    allocate: Allocate = device_array,
) -> Alignments:
    """The paths of alignments whose ends are known.

    Half a byte per cell is kept, for as many pairs at a time as the budget holds; a block per pair walks it.

    Args:
        queries, targets, pairs, gap_open, gap_extend, stream, budget, shapes, kernels, allocate: as in
            `end_positions`.
        ends: int32 [n, 3], what that returned; rows with score 0 are left out.

    Returns:
        The alignments; the path is the function of H that msa.cpu.smith_waterman describes.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    _checked(gap_open, gap_extend)
    found = np.zeros((len(pairs), 8), np.int32)
    aligned = np.flatnonzero(ends[:, 0] > 0)
    if not len(aligned):
        return Alignments(found, np.empty(0, np.int32), np.zeros(len(pairs) + 1, np.int64))
    rows = Rows(
        queries, targets, gap_open, gap_extend, shapes or available_shapes(), stream, kernels, allocate
    )
    codes = rows.upload(np.concatenate([query.codes for query in queries]), np.uint8)
    skipped = _skipped(rows, pairs.query[aligned], ends[aligned], gap_open, gap_extend)
    last_i, last_j = ends[aligned, 1].astype(np.int64), ends[aligned, 2] - skipped
    lanes, columns = rows.traced_shapes[pairs.query[aligned]].T
    words = (last_i // (lanes * columns) + 1) * (last_j + lanes) * (lanes * columns // 8)
    tiled = rows.lengths > rows.shapes.wide[-1].width
    # a border, bits and runs for each pair, in 32-bit words
    sizes = np.stack([np.where(tiled[pairs.query[aligned]], last_j + 1, 0), words, last_i + last_j + 2])
    pieces, places, before = [], np.empty(len(aligned), np.int64), 0
    for first, end in batches(4 * (2 * sizes[0] + sizes[1] + sizes[2]) + _BYTES_PER_PAIR, budget):
        chosen = aligned[first:end]
        paths, runs = _traced(
            rows, codes, pairs.part(chosen), ends[chosen], sizes[:, first:end], skipped[first:end]
        )
        found[chosen] = paths[:, :8]
        places[first:end] = paths[:, 8] + before
        before += len(runs)
        pieces.append(runs)
    # paths come in any order: bring their runs into that of the pairs
    counts = found[aligned, 7].astype(np.int64)
    gathered = np.repeat(places - first_places(counts), counts) + np.arange(before)
    starts = np.concatenate([[0], np.cumsum(found[:, 7], dtype=np.int64)])
    return Alignments(found, np.concatenate(pieces)[gathered], starts)


def _skipped(rows: Rows, query: np.ndarray, ends: np.ndarray, gap_open: int, gap_extend: int) -> np.ndarray:
    """Residues at the start of each target that no path to its end can reach.

    A path to query position i gains at most the sum of the best scores up to there; what it gains beyond its
    score it may spend on gaps. All cells on the paths have the same H without those residues, and others no
    more than with them: no decision on the way changes.

    Args:
        rows: of the call.
        query: int32 [n].
        ends: int32 [n, 3].
        gap_open, gap_extend: half-bits.

    Returns:
        int64 [n].
    """
    best = rows.profile.reshape(-1)
    for _ in range(5):
        # numpy is slow at the maximum of short rows
        best = np.maximum(best[0::2], best[1::2])
    sums = np.concatenate([[0], np.cumsum(np.maximum(best, 0), dtype=np.int64)])
    score, last_i, last_j = ends.T.astype(np.int64)
    first = first_places(rows.lengths)[query]
    spare = sums[first + last_i + 1] - sums[first] - score - gap_open
    deleted = np.where(spare >= 0, spare // gap_extend + 1, 0)
    return np.maximum(last_j - last_i - deleted, 0)


def _traced(
    rows: Rows, codes: Any, pairs: Pairs, ends: np.ndarray, sizes: np.ndarray, skipped: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Paths of one batch.

    Args:
        rows: of the call.
        codes: device uint8, of all queries.
        pairs, ends: of the batch, scores ≥ 1.
        sizes: int64 [3, n], room for borders (of two words), path bits and runs.
        skipped: int64 [n], from `_skipped`.

    Returns:
        int32 [n, PATH], as `walk` and `pack_runs` leave them, and the runs.
    """
    n, stream, targets = len(pairs), rows.stream, rows.targets
    starts = rows.upload(np.stack([*map(first_places, sizes), skipped], axis=1), np.int64)
    room = sizes.sum(axis=1).tolist()
    border, directions, runs = rows.empty(2 * room[0]), rows.empty(room[1]), rows.empty(room[2])
    table = np.zeros((n + 1, ENTRY), np.int32)
    table[1:] = ends
    table[1:, 2] -= skipped
    ends_there = rows.upload(table, np.int32)
    paths_there = rows.empty(PATH * n + 1)
    prepared = rows.wide("traced", pairs, ends_there, starts, border, directions)
    rows.run(prepared)
    walk_kernel()[n, WALK_THREADS, stream](
        targets.residues, targets.offsets, prepared.target, prepared.query, rows.queries, rows.scores, codes,
        directions, starts, UNKNOWN, rows.gap_open, rows.gap_extend, ends_there, runs, paths_there,
    )  # fmt: skip
    # the bits have been read, and there are more of them than runs
    pack_runs_kernel()[-(-n // WALK_THREADS), WALK_THREADS, stream](starts, runs, paths_there, directions)
    paths = rows.download(paths_there)
    packed = rows.download(directions[: int(paths[-1])])
    paths = paths[:-1].reshape(n, PATH)
    paths[:, 3] += skipped
    paths[:, 4] += skipped
    return paths, packed
