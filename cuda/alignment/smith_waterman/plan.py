"""The assignment of pairs to row kernels: shapes, and the tables that the kernels read.

The pairs themselves are sorted on the GPU (sorting.py). The host knows only the first and last position of
each query's pairs in the sorted order, and the number of long pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cuda.alignment.device import Device
from cuda.alignment.smith_waterman.generator import BLOCK, ROWS, Shape
from cuda.alignment.smith_waterman.signatures import Kind

MANY_PAIRS = 20_000
"""Minimum number of pairs in a call that fill all multiprocessors even with few lanes per pair."""


@dataclass(frozen=True)
class Pairs:
    """Query–target pairs to align, in any order.

    Args:
        query: int32 [n], index of the query.
        target: int64 [n], index of the target.
        length: int32 [n], residues of the target.
    """

    query: np.ndarray
    target: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.query)

    def subset(self, indices: np.ndarray) -> "Pairs":
        """Return the pairs with these indices."""
        return Pairs(self.query[indices], self.target[indices], self.length[indices])


@dataclass(frozen=True)
class Shapes:
    """The available kernel shapes, each group sorted by width.

    Args:
        packed: shapes for pairs of 16-bit numbers with the most cells per second; empty if the GPU lacks this
            arithmetic.
        low_latency: shapes for the same arithmetic and query lengths with the least time per target; may be
            empty.
        wide: shapes for 32 bits; columns are a multiple of 8. The last one processes longer queries in tiles.
    """

    packed: tuple[Shape, ...]
    low_latency: tuple[Shape, ...]
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
"""Shapes for GPUs of compute capability 9.0 and later."""
PLAIN = Shapes((), (), _WIDE)
"""Shapes for older GPUs."""


def available_shapes() -> Shapes:
    """Return the shapes for the current GPU."""
    return shapes_for(Device.current().capability)


def shapes_for(capability: tuple[int, int]) -> Shapes:
    """Return the shapes for GPUs of a compute capability."""
    return HOPPER if capability >= (9, 0) else PLAIN


def narrowest(shapes: Sequence[Shape], lengths: np.ndarray) -> np.ndarray:
    """Return the index, int64, of the narrowest shape that holds each query length, else of the last."""
    indices = np.searchsorted([shape.width for shape in shapes], lengths)
    return np.minimum(indices, len(shapes) - 1)


@dataclass(frozen=True)
class Assignments:
    """Ranges of the sorted pairs, each of one query and to be aligned by one shape; arrays [m].

    Args:
        shapes: the shapes to which `shape` refers.
        query, shape: indices.
        first, count: position of the first pair in the sorted order, and number of pairs, which may be 0.
    """

    shapes: tuple[Shape, ...]
    query: np.ndarray
    shape: np.ndarray
    first: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class RowLaunch:
    """One launch of a row kernel.

    Args:
        kind, shape: the kernel.
        first: index of its first block's numbers in the table.
        blocks: number of blocks.
        queries: indices of the queries.
    """

    kind: Kind
    shape: Shape
    first: int
    blocks: int
    queries: np.ndarray


@dataclass(frozen=True)
class Plan:
    """The launches for pairs that are sorted on the GPU.

    Args:
        table: int32. First the position of each query's first pair in the sorted order; then TASK numbers for
            each profile tile, for `arrange_profiles`; then BLOCK numbers for each thread block of the row
            kernels, blocks with the longest pairs of a query first.
        tasks: index of the first tile's numbers.
        tiles: number of tiles.
        words: number of int32 words of all arranged profiles.
        launches: those that take longest per row first.
    """

    table: np.ndarray
    tasks: int
    tiles: int
    words: int
    launches: list[RowLaunch]


def exclusive_sums(counts: np.ndarray) -> np.ndarray:
    """Return the exclusive prefix sums: the first indices of consecutive ranges with these sizes."""
    return np.cumsum(counts) - counts


def _enumerate_groups(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the group, and the index within the group, of every member of groups of these sizes."""
    group = np.repeat(np.arange(len(counts)), counts)
    return group, np.arange(len(group)) - exclusive_sums(counts)[group]


def assign_packed(
    lengths: np.ndarray, long: np.ndarray, non_empty: np.ndarray, fits: np.ndarray, shapes: Shapes, pairs: int
) -> Assignments:
    """Assign the pairs that 16-bit kernels can score to those kernels.

    Args:
        lengths: int64 [queries].
        long: int64 [queries], number of long pairs, which come first in the sorted order.
        non_empty: int64 [queries], number of non-empty pairs.
        fits: bool [queries], whether 16-bit arithmetic can score the query at all.
        shapes: shapes for the GPU.
        pairs: number of pairs of the whole call.
    """
    base = exclusive_sums(non_empty)
    query = np.flatnonzero(fits & (non_empty > 0))
    low_latency = narrowest(shapes.low_latency, lengths[query])
    if pairs < MANY_PAIRS:
        return Assignments(shapes.low_latency, query, low_latency, base[query], non_empty[query])
    packed = narrowest(shapes.packed, lengths[query]) + len(shapes.low_latency)
    # with few lanes, a long target takes milliseconds, which would delay the end of the call
    return Assignments(
        shapes.low_latency + shapes.packed,
        np.concatenate([query, query]),
        np.concatenate([low_latency, packed]),
        np.concatenate([base[query], (base + long)[query]]),
        np.concatenate([long[query], (non_empty - long)[query]]),
    )


def assign_wide(lengths: np.ndarray, counts: np.ndarray, shapes: Sequence[Shape]) -> Assignments:
    """Assign all pairs, `counts` of each query and none of them empty, to 32-bit kernels."""
    query = np.flatnonzero(counts)
    shape = narrowest(shapes, lengths[query])
    return Assignments(tuple(shapes), query, shape, exclusive_sums(counts)[query], counts[query])


def make_plan(kind: Kind, lengths: np.ndarray, base: np.ndarray, assignments: Assignments) -> Plan:
    """Lay out thread blocks and profiles.

    Args:
        kind: kind of the row kernels.
        lengths: int64 [queries].
        base: int64 [queries], position of each query's first pair in the sorted order.
        assignments: the shapes that align the pairs.
    """
    kept = np.flatnonzero(assignments.count)
    kept = kept[np.argsort(assignments.shape[kept], kind="stable")]
    query, shape, first, count = (
        array[kept] for array in (assignments.query, assignments.shape, assignments.first, assignments.count)
    )
    lanes, columns, threads = (
        np.array([getattr(one, name) for one in assignments.shapes])[shape]
        for name in ("lanes", "columns", "threads")
    )
    score_bytes = 1 if kind == "packed" else 2
    words = ROWS * -(-columns * score_bytes // 4) * lanes
    tiles = -(-lengths[query] // (lanes * columns))
    profile = exclusive_sums(tiles * words)

    owner, tile = _enumerate_groups(tiles)
    row = tile * (lanes * columns)[owner]
    tasks = [
        profile[owner] + tile * words[owner], exclusive_sums(lengths)[query][owner] + row,
        np.minimum(lengths[query][owner] - row, (lanes * columns)[owner]), lanes[owner], columns[owner],
        np.full(len(owner), score_bytes),
    ]  # fmt: skip

    pairs_per_block = threads // lanes * (2 if kind == "packed" else 1)
    blocks = -(-count // pairs_per_block)
    owner, block = _enumerate_groups(blocks)
    # numpy sorts 16-bit keys by counting and others by comparison; blocks beyond 2^16 have short pairs
    order = np.argsort(np.minimum(block, 65535).astype(np.uint16), kind="stable")
    order = order[np.argsort(shape[owner[order]].astype(np.uint16), kind="stable")]
    owner, block = owner[order], block[order]
    begin = first[owner] + block * pairs_per_block[owner]
    rows = [profile[owner], tiles[owner], begin, (first + count)[owner]]

    sections = [base, *(np.stack(section, axis=1).ravel() for section in (tasks, rows))]
    per_shape = np.bincount(shape[owner], minlength=len(assignments.shapes))
    before = len(base) + sections[1].size + BLOCK * exclusive_sums(per_shape)
    launches = [
        RowLaunch(kind, assignments.shapes[k], int(before[k]), int(per_shape[k]), query[shape == k])
        for k in np.flatnonzero(per_shape).tolist()
    ]
    launches.sort(key=lambda launch: -launch.shape.columns)
    table = np.concatenate(sections).astype(np.int32)
    return Plan(table, len(base), int(tiles.sum()), int((tiles * words).sum()), launches)
