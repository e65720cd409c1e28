"""Scores, ends and paths of many alignments on a GPU: what is launched, on what, in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gotoh.kernel import (
    WALK_THREADS,
    Kind,
    arranged_profile,
    pack_runs_kernel,
    row_kernel,
    walk_kernel,
)
from cuda.alignment.gotoh.source import Shape

UNKNOWN = 20
"""Letter code of X, which is identical to nothing."""


@dataclass(frozen=True)
class Query:
    """A query as the kernels take it.

    Args:
        profile: int16 [length ≥ 1, 32], half-bits.
        codes: uint8 [length]; they only count identities.
    """

    profile: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class DeviceTargets:
    """Targets in the memory of the current GPU.

    Args:
        residues: device uint8 [bytes], letter codes with the mask bit.
        offsets: device int64 [targets], where each starts.
        lengths: device int32 [targets].
    """

    residues: Any
    offsets: Any
    lengths: Any


@dataclass(frozen=True)
class Pairs:
    """Which query is aligned to which target.

    Args:
        query: int32 [n], index in the queries.
        target: int64 [n], index in the targets.
        length: int32 [n], residues of that target.
    """

    query: np.ndarray
    target: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True)
class Shapes:
    """The shapes to choose from, narrowest first; of the wide ones the last serves longer queries in tiles.

    Args:
        packed: for 16-bit pairs, most cells per second; empty where the GPU has no such arithmetic.
        swift: for 16-bit pairs, least time per target; empty as well.
        wide: for 32 bits, columns a multiple of 8.
    """

    packed: tuple[Shape, ...]
    swift: tuple[Shape, ...]
    wide: tuple[Shape, ...]


_WIDE = (Shape(32, 8, 128), Shape(32, 16, 128))
HOPPER = Shapes(
    tuple(Shape(4, columns, 128) for columns in range(8, 49, 4))
    + tuple(Shape(8, columns, 128) for columns in range(28, 49, 4))
    + tuple(Shape(16, columns, 128) for columns in (28, 32, 40, 48))
    + tuple(Shape(32, columns, 128) for columns in (28, 32)),
    tuple(Shape(32, columns, 128) for columns in range(4, 33, 4)),
    _WIDE,
)
"""From compute capability 9.0 on."""
PLAIN = Shapes((), (), _WIDE)

# one group with few lanes takes milliseconds for a target this long, which only many others can hide
_LONG = 8192
# pairs in a call from which on every multiprocessor is full with few lanes per pair
_MANY = 20_000


@dataclass(frozen=True)
class Alignments:
    """Local alignments as msa.cpu.gotoh finds them.

    Args:
        found: int32 [n, 8]: score, first and last query position, first and last target position (from 0,
            inclusive), identical pairs, columns, runs; all 0 where the score is.
        runs: int32 [all runs], first to last: length · 4 + operation (0 pair, 1 query residue against a gap,
            2 target residue against a gap).
        starts: int64 [n + 1], where each alignment's runs begin.
    """

    found: np.ndarray
    runs: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class _Launch:
    """One launch of a row kernel.

    Args:
        shape: of the kernel.
        order: int64 [m], pairs by query, longest first.
        profiles: int32 [tiles of all its queries, words].
        blocks: int32 [blocks, 4], longest first: row of `profiles`, tiles, first pair in `order`, end of the
            query's pairs.
        tiled: a query has more than one tile.
    """

    shape: Shape
    order: np.ndarray
    profiles: np.ndarray
    blocks: np.ndarray
    tiled: bool


def available_shapes() -> Shapes:
    """The shapes for the current GPU."""
    return HOPPER if tuple(cuda.get_current_device().compute_capability) >= (9, 0) else PLAIN


def _shape_for(query: Query, shapes: Sequence[Shape]) -> int:
    """Index of the narrowest shape that holds a query, or of the last."""
    for k, shape in enumerate(shapes):
        if len(query.profile) <= shape.width:
            return k
    return len(shapes) - 1


def _plan(
    queries: Sequence[Query], pairs: Pairs, chosen: np.ndarray, kind: Kind, shapes: Sequence[Shape]
) -> Iterator[_Launch]:
    """Split chosen pairs into launches by the shapes their queries need."""
    needed = np.array([_shape_for(query, shapes) for query in queries])
    shape_of = needed[pairs.query[chosen]]
    for index in np.unique(shape_of).tolist():
        shape = shapes[index]
        here = chosen[shape_of == index]
        # of millions of pairs: numpy sorts 16-bit keys by counting, others by comparing
        shortness = (65535 - np.minimum(pairs.length[here], 65535)).astype(np.uint16)
        order = here[np.argsort(shortness, kind="stable")]
        narrow = np.uint16 if len(queries) < 2**16 else np.int32
        order = order[np.argsort(pairs.query[order].astype(narrow), kind="stable")]
        owners = pairs.query[order]
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        which, count = owners[first], np.diff(first, append=len(owners))
        profiles = [arranged_profile(queries[q].profile, kind, shape) for q in which.tolist()]
        tiles = np.array([len(profile) for profile in profiles])
        per_block = shape.threads // shape.lanes * (2 if kind == "packed" else 1)
        blocks = -(-count // per_block)
        owner = np.repeat(np.arange(len(which)), blocks)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        begin = first[owner] + place * per_block
        table = np.stack(
            [(np.cumsum(tiles) - tiles)[owner], tiles[owner], begin, (first + count)[owner]], axis=1
        )
        work = pairs.length[order[begin]].astype(np.int64) * tiles[owner]
        table = table[np.argsort(-work, kind="stable")]
        yield _Launch(shape, order, np.concatenate(profiles), table.astype(np.int32), bool(tiles.max() > 1))


def _batches(costs: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive pieces whose costs sum to at most `most`, or of a single item."""
    sums = np.cumsum(costs)
    first = 0
    while first < len(costs):
        before = sums[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(sums, before + most, side="right")))
        yield first, end
        first = end


def _part(launch: _Launch, first: int, end: int, kind: Kind) -> _Launch:
    """The launch for its pairs from `first` to `end` only."""
    if (first, end) == (0, len(launch.order)):
        return launch
    per_block = launch.shape.threads // launch.shape.lanes * (2 if kind == "packed" else 1)
    # a query's pairs lie side by side: what is left of each is cut into blocks anew
    rows = launch.blocks[np.argsort(launch.blocks[:, 3], kind="stable")]
    ends, places = np.unique(rows[:, 3], return_index=True)
    table = []
    begin = 0
    for stop, place in zip(ends.tolist(), places.tolist(), strict=True):
        low, high = max(begin, first), min(stop, end)
        table += [(*rows[place, :2].tolist(), k - first, high - first) for k in range(low, high, per_block)]
        begin = stop
    return _Launch(
        launch.shape, launch.order[first:end], launch.profiles, np.array(table, np.int32), launch.tiled
    )


def _checked(gap_open: int, gap_extend: int) -> None:
    if not gap_open >= gap_extend >= 1:
        raise ValueError(f"gap open {gap_open} must be at least gap extend {gap_extend}, and that at least 1")


def _twice(value: int) -> np.int32:
    """A number in both halves of a word."""
    return np.array([value, value], np.int16).view(np.int32)[0]


class _Rows:
    """Launches row kernels for pairs of one set of queries and targets."""

    def __init__(
        self,
        queries: Sequence[Query],
        targets: DeviceTargets,
        pairs: Pairs,
        gap_open: int,
        gap_extend: int,
        stream: Any,
        kernels: Path | None,
    ) -> None:
        self._queries, self._targets, self._pairs, self._stream = queries, targets, pairs, stream
        self._open, self._extend, self._kernels = gap_open, gap_extend, kernels

    def upload(self, array: np.ndarray) -> Any:
        return cuda.to_device(np.ascontiguousarray(array), stream=self._stream)

    def empty(self, count: int | tuple[int, int], kind: type = np.int32) -> Any:
        return cuda.device_array(count, kind, stream=self._stream)

    def packed_arguments(self, launch: _Launch, found: Any) -> tuple[Any, ...]:
        """What the packed kernel takes; it fills in score and end of a launch's pairs."""
        return (
            self._targets.residues, self._targets.offsets, self._targets.lengths,
            self.upload(self._pairs.target[launch.order]), self.upload(launch.order),
            self.upload(launch.profiles), self.upload(launch.blocks),
            _twice(-self._open), _twice(-self._extend), found,
        )  # fmt: skip

    def wide_arguments(
        self, launch: _Launch, found: Any, rows: np.ndarray, directions: Any, starts: np.ndarray
    ) -> tuple[Any, ...]:
        """What the wide and the traced kernel take; `rows` are those of each pair, `starts` of its bits."""
        border_starts = np.cumsum(rows) - rows if launch.tiled else np.zeros(len(launch.order))
        border = self.empty((int(rows.sum()) if launch.tiled else 1, 2))
        return (
            self._targets.residues, self._targets.offsets, self._targets.lengths,
            self.upload(self._pairs.target[launch.order]), self.upload(launch.order),
            self.upload(launch.profiles), self.upload(launch.blocks),
            np.int32(-self._open), np.int32(-self._extend), border,
            self.upload(border_starts.astype(np.int64)), directions, self.upload(starts), found,
        )  # fmt: skip

    def run(self, kind: Kind, launch: _Launch, arguments: tuple[Any, ...], stream: Any | None = None) -> None:
        """Launch a row kernel, on the stream of all or another."""
        grid = len(launch.blocks), launch.shape.threads, self._stream if stream is None else stream
        row_kernel(kind, launch.shape, self._kernels)[grid](*arguments)

    def run_together(self, launches: Sequence[_Launch], found: Any) -> None:
        """Launch packed kernels side by side, so that the last long targets of one wait for no other."""
        arguments = [self.packed_arguments(launch, found) for launch in launches]
        self.run_prepared(launches, arguments)

    def run_prepared(self, launches: Sequence[_Launch], arguments: Sequence[tuple[Any, ...]]) -> None:
        """As `run_together`, with what the kernels take; those that are longest at a row go first."""
        ready = cuda.event()
        ready.record(self._stream)
        finished = []
        for k in sorted(range(len(launches)), key=lambda k: -launches[k].shape.columns):
            stream, done = cuda.stream(), cuda.event()
            ready.wait(stream)
            self.run("packed", launches[k], arguments[k], stream)
            done.record(stream)
            finished.append(done)
        # not before the last launch: a wait on the default stream would hold up every launch after it
        for done in finished:
            done.wait(self._stream)


def _fits_pairs(query: Query, shapes: Shapes, gap_open: int) -> bool:
    """Whether a query can be scored in 16-bit pairs at all."""
    return (
        bool(shapes.packed)
        and len(query.profile) <= shapes.packed[-1].width
        and int(query.profile.min()) >= -127
        and int(query.profile.max()) <= 127
        and gap_open < 2**13
    )


def _packable(queries: Sequence[Query], pairs: Pairs, shapes: Shapes, gap_open: int) -> np.ndarray:
    """bool [n], the pairs with queries that can be scored in 16 bits."""
    return np.array([_fits_pairs(query, shapes, gap_open) for query in queries])[pairs.query]


def packed_launches(
    queries: Sequence[Query], pairs: Pairs, shapes: Shapes, gap_open: int = 11
) -> list[_Launch]:
    """Launches that score, in 16 bits, the pairs that can be scored so."""
    scored = _packable(queries, pairs, shapes, gap_open) & (pairs.length > 0)
    swift = (pairs.length > _LONG) | (len(pairs) < _MANY)
    return [
        launch
        for chosen, kinds in ((swift, shapes.swift), (~swift, shapes.packed))
        for launch in _plan(queries, pairs, np.flatnonzero(scored & chosen), "packed", kinds)
    ]


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
) -> np.ndarray:
    """Score and end of each pair's local alignment with affine gaps.

    Args:
        queries: what to align.
        targets: what to align to.
        pairs: which to which.
        gap_open, gap_extend: half-bits, gap_open ≥ gap_extend ≥ 1; a gap of k costs open + (k − 1) extend.
        stream: what to launch on.
        budget: bytes of GPU memory for intermediate results; a single pair may need more.
        shapes: kernel shapes; those for the current GPU.
        kernels: folder where compiled kernels are kept between runs.

    Returns:
        int32 [n, 3]: score, exact whatever its size, and the last query and target position from 0 (−1 where
        the score is 0); of ends with that score the one with the smallest target position, then the smallest
        query position.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    _checked(gap_open, gap_extend)
    result = np.tile(np.array([0, -1, -1], np.int32), (len(pairs), 1))
    filled = pairs.length > 0
    if not filled.any():
        return result
    shapes = shapes or available_shapes()
    rows = _Rows(queries, targets, pairs, gap_open, gap_extend, stream, kernels)
    found = rows.upload(result)
    small = _packable(queries, pairs, shapes, gap_open)
    rows.run_together(packed_launches(queries, pairs, shapes, gap_open), found)
    found.copy_to_host(result, stream=stream)
    if stream:
        stream.synchronize()
    exceeding = np.flatnonzero(filled & (~small | (result[:, 0] < 0)))
    if len(exceeding):
        for launch in _plan(queries, pairs, exceeding, "wide", shapes.wide):
            lengths = pairs.length[launch.order].astype(np.int64)
            for first, end in _batches(lengths * 8, budget):
                part = _part(launch, first, end, "wide")
                unused = rows.empty(1), np.zeros(1, np.int64)
                rows.run("wide", part, rows.wide_arguments(part, found, lengths[first:end], *unused))
        found.copy_to_host(result, stream=stream)
        if stream:
            stream.synchronize()
    result[result[:, 0] == 0] = (0, -1, -1)
    return result


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
) -> Alignments:
    """The paths of alignments whose ends are known.

    Half a byte per cell is kept, for as many pairs at a time as the budget holds; a thread per pair walks it.

    Args:
        queries, targets, pairs, gap_open, gap_extend, stream, budget, shapes, kernels: as in `end_positions`.
        ends: int32 [n, 3], what that returned; rows with score 0 are left out.

    Returns:
        The alignments; the path is the function of H that msa.cpu.gotoh describes.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    _checked(gap_open, gap_extend)
    found = np.zeros((len(pairs), 8), np.int32)
    aligned = np.flatnonzero(ends[:, 0] > 0)
    pieces: list[np.ndarray] = []
    order: list[np.ndarray] = []
    if len(aligned):
        shapes = shapes or available_shapes()
        rows = _Rows(queries, targets, pairs, gap_open, gap_extend, stream, kernels)
        lengths = np.array([len(query.profile) for query in queries])
        scores = rows.upload(np.concatenate([query.profile for query in queries]))
        codes = rows.upload(np.concatenate([query.codes for query in queries]))
        query_starts = rows.upload((np.cumsum(lengths) - lengths).astype(np.int64))
        query_of, ends_device = rows.upload(pairs.query), rows.upload(ends)
        found_device = rows.upload(found)
        for launch in _plan(queries, pairs, aligned, "traced", shapes.wide):
            shape = launch.shape
            last_i, last_j = ends[launch.order, 1].astype(np.int64), ends[launch.order, 2].astype(np.int64)
            words = (last_i // shape.width + 1) * (last_j + shape.lanes) * (shape.width // 8)
            rooms = last_i + last_j + 2
            for first, end in _batches(4 * (words + rooms + 2 * last_j), budget):
                part = _part(launch, first, end, "traced")
                cells, room = words[first:end], rooms[first:end]
                starts = np.cumsum(cells) - cells
                directions = rows.empty(int(cells.sum()))
                height = last_j[first:end] + 1
                rows.run("traced", part, rows.wide_arguments(part, ends_device, height, directions, starts))
                chosen, places = rows.upload(pairs.target[part.order]), rows.upload(part.order)
                run_starts = rows.upload(np.cumsum(room) - room)
                runs = rows.empty(int(room.sum()))
                grid = -(-len(part.order) // WALK_THREADS), WALK_THREADS, stream
                walk_kernel()[grid](
                    targets.residues, targets.offsets, chosen, places, query_of, scores, codes, query_starts,
                    directions, rows.upload(starts), shape.lanes, shape.columns, UNKNOWN, gap_open,
                    gap_extend, ends_device, run_starts, runs, found_device,
                )  # fmt: skip
                found_device.copy_to_host(found, stream=stream)
                if stream:
                    stream.synchronize()
                counts = found[part.order, 7].astype(np.int64)
                packed = rows.empty(max(1, int(counts.sum())))
                pack_runs_kernel()[grid](
                    places, run_starts, runs, found_device, rows.upload(np.cumsum(counts) - counts), packed
                )
                pieces.append(packed.copy_to_host(stream=stream))
                if stream:
                    stream.synchronize()
                order.append(part.order)
    starts = np.concatenate([[0], np.cumsum(found[:, 7], dtype=np.int64)])
    if not order:
        return Alignments(found, np.empty(0, np.int32), starts)
    # the batches' runs lie in the order of the batches: bring them into that of the pairs
    sequence = np.concatenate(order)
    counts = found[sequence, 7].astype(np.int64)
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    runs_host = np.empty(total, np.int32)
    runs_host[np.repeat(starts[sequence], counts) + within] = np.concatenate(pieces)
    return Alignments(found, runs_host, starts)


def align_batch(
    query: Query,
    targets: DeviceTargets,
    chosen: np.ndarray,
    lengths: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    stream: Any = 0,
    budget: int = 2**30,
    shapes: Shapes | None = None,
    kernels: Path | None = None,
) -> Alignments:
    """Align one query to chosen targets: `end_positions`, then `trace_paths` for all.

    Args:
        query: what to align.
        targets: what to align to.
        chosen: int64 [n], indices of targets.
        lengths: int32 [n], residues of the chosen targets.
        gap_open, gap_extend, stream, budget, shapes, kernels: as in `end_positions`.

    Returns:
        One alignment per chosen target, in order.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    pairs = Pairs(
        np.zeros(len(chosen), np.int32), np.asarray(chosen, np.int64), np.asarray(lengths, np.int32)
    )
    ends = end_positions([query], targets, pairs, gap_open, gap_extend, stream, budget, shapes, kernels)
    return trace_paths([query], targets, pairs, ends, gap_open, gap_extend, stream, budget, shapes, kernels)
