"""Scores, ends and paths of many local alignments on a GPU.

For each pair the host copies two numbers to the GPU and three back. All sorting happens on the GPU.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import AlignmentPaths, DeviceSequences
from cuda.alignment import device as gpu
from cuda.alignment.kernel_cache import compiled_kernel
from cuda.alignment.smith_waterman.generator import ENTRY, STARTS
from cuda.alignment.smith_waterman.plan import Pairs, Shapes, available_shapes, exclusive_sums
from cuda.alignment.smith_waterman.row_launcher import Allocate, RowLauncher, split_by_cost
from cuda.alignment.smith_waterman.signatures import PACK_RUNS, PATH, WALK, WALK_THREADS

UNKNOWN = 20
"""Letter code of X, which never counts as identical."""

# bytes of GPU memory per pair in addition to border, path bits and runs: query, target, bucket, position in
# the order, score and end, starts, path
_BYTES_PER_PAIR = 4 + 8 + 4 + 4 + 4 * ENTRY + 8 * STARTS + 4 * PATH


def end_positions(
    profiles: Sequence[np.ndarray],
    targets: DeviceSequences,
    pairs: Pairs,
    gap_open: int = 11,
    gap_extend: int = 1,
    stream: Any = 0,
    budget: int = 2**30,
    shapes: Shapes | None = None,
    kernels: Path | None = None,
    allocate: Allocate = gpu.device_array,
) -> np.ndarray:
    """Compute score and end of each pair's local alignment with affine gaps (Gotoh 1982).

    The profile of a query is int16 [length ≥ 1, 32], half-bits; column = letter code. The cost of a gap's
    first residue and of each further one are half-bits. Intermediate results take `budget` bytes of GPU
    memory, or more for a single pair, and besides 40 bytes per pair, and 4 KiB and a few times the profile
    per query. Shapes are by default those for the current GPU; `kernels` is a folder that keeps compiled
    kernels between runs. Exceptions of `allocate` are passed on; the call may then be repeated with fewer
    pairs.

    Returns:
        int32 [n, 3]: score (exact at any size), and last query and target position from 0 (−1 where the score
        is 0). Ties between ends go to the smallest target position, then to the smallest query position.

    Raises:
        ValueError: unless gap_open ≥ gap_extend ≥ 1.
    """
    _check_gap_costs(gap_open, gap_extend)
    n = len(pairs)
    if not n:
        return np.empty((0, ENTRY), np.int32)
    rows = RowLauncher(
        profiles, targets, gap_open, gap_extend, shapes or available_shapes(), stream, kernels, allocate
    )
    result = np.empty((n + 1, ENTRY), np.int32)
    if rows.shapes.packed:
        device_ends = rows.allocate_ends(n)
        prepared, left_out = rows.prepare_packed(pairs, device_ends)
        rows.run(prepared)
        # touch the memory while the GPU works, so that page faults do not delay the copy
        result.fill(0)
        rows.download(device_ends, result.reshape(-1))
        ends = result[1:]
        missing = np.flatnonzero(ends[:, 0] < 0) if left_out or result[0, 0] else np.empty(0, np.int64)
    else:
        ends = result[1:]
        ends[:] = 0, -1, -1
        missing = np.flatnonzero(pairs.length > 0)
    if len(missing):
        _compute_wide_ends(rows, pairs, missing, budget, ends)
    return ends


def trace_paths(
    profiles: Sequence[np.ndarray],
    codes: Sequence[np.ndarray],
    targets: DeviceSequences,
    pairs: Pairs,
    ends: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    stream: Any = 0,
    budget: int = 2**30,
    shapes: Shapes | None = None,
    kernels: Path | None = None,
    allocate: Allocate = gpu.device_array,
) -> AlignmentPaths:
    """Compute the paths of alignments whose ends are known.

    Half a byte per cell is stored, for as many pairs at a time as the budget allows; one block per pair then
    walks back along the path. The path is the function of H that msa.cpu.smith_waterman describes.

    `codes`, uint8 [length], are the letter codes of each query, which only count identities. `ends`,
    int32 [n, 3], is the result of `end_positions`, whose other arguments are the same; pairs with score 0
    are left out.

    Raises:
        ValueError: unless gap_open ≥ gap_extend ≥ 1.
    """
    _check_gap_costs(gap_open, gap_extend)
    records = np.zeros((len(pairs), 8), np.int32)
    aligned = np.flatnonzero(ends[:, 0] > 0)
    if not len(aligned):
        return AlignmentPaths(records, np.empty(0, np.int32), np.zeros(len(pairs) + 1, np.int64))
    rows = RowLauncher(
        profiles, targets, gap_open, gap_extend, shapes or available_shapes(), stream, kernels, allocate
    )
    device_codes = rows.upload(np.concatenate(codes), np.uint8)
    skipped = _unreachable_residues(rows, pairs.query[aligned], ends[aligned], gap_open, gap_extend)
    last_i, last_j = ends[aligned, 1].astype(np.int64), ends[aligned, 2] - skipped
    lanes, columns = rows.traced_shapes[pairs.query[aligned]].T
    words = (last_i // (lanes * columns) + 1) * (last_j + lanes) * (lanes * columns // 8)
    tiled = rows.lengths > rows.shapes.wide[-1].width
    # sizes of border, path bits and runs of each pair, in 32-bit words
    sizes = np.stack([np.where(tiled[pairs.query[aligned]], last_j + 1, 0), words, last_i + last_j + 2])
    batches, offsets, total_runs = [], np.empty(len(aligned), np.int64), 0
    for first, end in split_by_cost(4 * (2 * sizes[0] + sizes[1] + sizes[2]) + _BYTES_PER_PAIR, budget):
        batch = aligned[first:end]
        paths, runs = _trace_batch(
            rows, device_codes, pairs.subset(batch), ends[batch], sizes[:, first:end], skipped[first:end]
        )
        records[batch] = paths[:, :8]
        offsets[first:end] = paths[:, 8] + total_runs
        total_runs += len(runs)
        batches.append(runs)
    # paths are packed in arbitrary order: bring their runs into the order of the pairs
    counts = records[aligned, 7].astype(np.int64)
    order = np.repeat(offsets - exclusive_sums(counts), counts) + np.arange(total_runs)
    return AlignmentPaths.of_records(records, np.concatenate(batches)[order])


def _check_gap_costs(gap_open: int, gap_extend: int) -> None:
    if not gap_open >= gap_extend >= 1:
        raise ValueError(f"gap open {gap_open} must be at least gap extend {gap_extend}, and that at least 1")


def _compute_wide_ends(
    rows: RowLauncher, pairs: Pairs, missing: np.ndarray, budget: int, ends: np.ndarray
) -> None:
    """Score some non-empty pairs in 32 bits, and write their rows of `ends`."""
    tiled = rows.lengths > rows.shapes.wide[-1].width
    heights = np.where(tiled[pairs.query[missing]], pairs.length[missing], 0).astype(np.int64)
    for first, end in split_by_cost(8 * heights + _BYTES_PER_PAIR, budget):
        batch, height = missing[first:end], heights[first:end]
        subset = pairs if len(batch) == len(pairs) else pairs.subset(batch)
        device_ends, border = rows.allocate_ends(len(batch)), rows.empty(2 * int(height.sum()))
        starts = np.zeros((len(batch), STARTS), np.int64)
        starts[:, 0] = exclusive_sums(height)
        # no path bits are written, so the border stands in for their array
        device_starts = rows.upload(starts, np.int64)
        rows.run(rows.prepare_wide("wide", subset, device_ends, device_starts, border, border))
        ends[batch] = rows.download(device_ends).reshape(-1, ENTRY)[1:]


def _unreachable_residues(
    rows: RowLauncher, query: np.ndarray, ends: np.ndarray, gap_open: int, gap_extend: int
) -> np.ndarray:
    """Return the number of residues at the start of each target that no path to its end can reach.

    A path to query position i gains at most the sum of the best scores up to i. The difference between this
    sum and its score limits the cost of its gaps, and so the number of target residues opposite gaps. Without
    the unreachable residues, H is the same in all cells on the path and not higher in others, so no decision
    along the path changes.

    Returns:
        int64 [n].
    """
    best = rows.profile.reshape(-1)
    for _ in range(5):
        # pairwise, as numpy's maximum over short rows is slow
        best = np.maximum(best[0::2], best[1::2])
    sums = np.concatenate([[0], np.cumsum(np.maximum(best, 0), dtype=np.int64)])
    score, last_i, last_j = ends.T.astype(np.int64)
    first = exclusive_sums(rows.lengths)[query]
    spare = sums[first + last_i + 1] - sums[first] - score - gap_open
    deleted = np.where(spare >= 0, spare // gap_extend + 1, 0)
    return np.maximum(last_j - last_i - deleted, 0)


def _trace_batch(
    rows: RowLauncher, codes: Any, pairs: Pairs, ends: np.ndarray, sizes: np.ndarray, skipped: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the paths of one batch, given its pairs and the letter codes of all queries, device uint8.

    Ends are int32 [n, 3] with scores ≥ 1; sizes int64 [3, n] those of borders (in two words), path bits and
    runs; `skipped` int64 [n] is from `_unreachable_residues`.

    Returns:
        int32 [n, PATH], as `walk` and `pack_runs` write them, and the runs.
    """
    n, stream, targets = len(pairs), rows.stream, rows.targets
    starts = rows.upload(np.stack([*map(exclusive_sums, sizes), skipped], axis=1), np.int64)
    totals = sizes.sum(axis=1).tolist()
    border, directions, runs = rows.empty(2 * totals[0]), rows.empty(totals[1]), rows.empty(totals[2])
    table = np.zeros((n + 1, ENTRY), np.int32)
    table[1:] = ends
    table[1:, 2] -= skipped
    device_ends = rows.upload(table, np.int32)
    device_paths = rows.empty(PATH * n + 1)
    prepared = rows.prepare_wide("traced", pairs, device_ends, starts, border, directions)
    rows.run(prepared)
    compiled_kernel(WALK)[n, WALK_THREADS, stream](
        targets.residues, targets.offsets, prepared.target, prepared.query, rows.queries, rows.scores, codes,
        directions, starts, UNKNOWN, rows.gap_open, rows.gap_extend, device_ends, runs, device_paths,
    )  # fmt: skip
    # the path bits are no longer needed, and take at least as much memory as the runs
    compiled_kernel(PACK_RUNS)[-(-n // WALK_THREADS), WALK_THREADS, stream](
        starts, runs, device_paths, directions
    )
    paths = rows.download(device_paths)
    packed = rows.download(directions[: int(paths[-1])])
    paths = paths[:-1].reshape(n, PATH)
    paths[:, 3] += skipped
    paths[:, 4] += skipped
    return paths, packed
