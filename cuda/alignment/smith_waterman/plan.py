"""Which kernel aligns which pairs: the tables that the kernels read, from a few numbers per query.

The pairs themselves are sorted on the GPU (cuda.alignment.smith_waterman.sorting), by query and then by rows.
Here it is only known where a query's pairs begin and end, and how many are long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cuda.alignment.smith_waterman.kernel import Kind
from cuda.alignment.smith_waterman.shapes import Shapes, narrowest
from cuda.alignment.smith_waterman.source import BLOCK, ROWS, Shape

MANY = 20_000
"""Pairs in a call from which on every multiprocessor is full with few lanes per pair."""


@dataclass(frozen=True)
class Uses:
    """Pairs of one query, side by side in the order, that one shape is to align; arrays [m].

    Args:
        shapes: to choose from.
        query, shape: indices.
        first, count: places in the order; count may be 0.
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
        kind, shape: of the kernel.
        first: where its blocks' numbers begin in the table.
        blocks: how many.
        queries: indices of the queries.
    """

    kind: Kind
    shape: Shape
    first: int
    blocks: int
    queries: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What is to be done for pairs that are sorted on the GPU.

    Args:
        table: int32: first place of each query's pairs in the order; for each profile tile what
            `arrange_profiles` reads; for each block what the row kernels read, blocks with the longest of a
            query's pairs first.
        tasks: where the tiles' numbers begin.
        tiles: how many there are.
        words: int32 numbers of all profiles as the kernels read them.
        launches: those that take longest for a row first.
    """

    table: np.ndarray
    tasks: int
    tiles: int
    words: int
    launches: list[RowLaunch]


def first_places(counts: np.ndarray) -> np.ndarray:
    """Where runs of so many begin that lie one after the other."""
    return np.cumsum(counts) - counts


def _members(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every member of groups of so many: its group, and its place in that."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - first_places(counts)[owner]


def packed_uses(
    lengths: np.ndarray, long: np.ndarray, filled: np.ndarray, fits: np.ndarray, shapes: Shapes, pairs: int
) -> Uses:
    """Score pairs in 16 bits where that can be done.

    Args:
        lengths: int64 [queries].
        long, filled: int64 [queries], pairs of many rows, which come first in the order, and all that are not
            empty.
        fits: bool [queries], whether 16-bit arithmetic can score the query at all.
        shapes: of the GPU.
        pairs: of the whole call.
    """
    base = first_places(filled)
    query = np.flatnonzero(fits & (filled > 0))
    swift = narrowest(shapes.swift, lengths[query])
    if pairs < MANY:
        return Uses(shapes.swift, query, swift, base[query], filled[query])
    packed = narrowest(shapes.packed, lengths[query]) + len(shapes.swift)
    # a group of few lanes takes milliseconds for a long target, which only many others could hide
    return Uses(
        shapes.swift + shapes.packed,
        np.concatenate([query, query]),
        np.concatenate([swift, packed]),
        np.concatenate([base[query], (base + long)[query]]),
        np.concatenate([long[query], (filled - long)[query]]),
    )


def wide_uses(lengths: np.ndarray, counts: np.ndarray, shapes: Sequence[Shape]) -> Uses:
    """Align pairs in 32 bits: `counts` of each query, none of them empty."""
    query = np.flatnonzero(counts)
    shape = narrowest(shapes, lengths[query])
    return Uses(tuple(shapes), query, shape, first_places(counts)[query], counts[query])


def plan(kind: Kind, lengths: np.ndarray, base: np.ndarray, uses: Uses) -> Plan:
    """Lay out blocks and profiles.

    Args:
        kind: of the kernels.
        lengths: int64 [queries].
        base: int64 [queries], first place of each query's pairs in the order.
        uses: what is aligned how.
    """
    kept = np.flatnonzero(uses.count)
    kept = kept[np.argsort(uses.shape[kept], kind="stable")]
    query, shape, first, count = (part[kept] for part in (uses.query, uses.shape, uses.first, uses.count))
    lanes, columns, threads = (
        np.array([getattr(one, name) for one in uses.shapes])[shape]
        for name in ("lanes", "columns", "threads")
    )
    size = 1 if kind == "packed" else 2
    words = ROWS * -(-columns * size // 4) * lanes
    tiles = -(-lengths[query] // (lanes * columns))
    profile = first_places(tiles * words)

    owner, tile = _members(tiles)
    row = tile * (lanes * columns)[owner]
    tasks = [
        profile[owner] + tile * words[owner], first_places(lengths)[query][owner] + row,
        np.minimum(lengths[query][owner] - row, (lanes * columns)[owner]), lanes[owner], columns[owner],
        np.full(len(owner), size),
    ]  # fmt: skip

    per_block = threads // lanes * (2 if kind == "packed" else 1)
    blocks = -(-count // per_block)
    owner, place = _members(blocks)
    # numpy sorts 16-bit keys by counting, others by comparing; what lies behind 2^16 blocks is short
    order = np.argsort(np.minimum(place, 65535).astype(np.uint16), kind="stable")
    order = order[np.argsort(shape[owner[order]].astype(np.uint16), kind="stable")]
    owner, place = owner[order], place[order]
    begin = first[owner] + place * per_block[owner]
    rows = [profile[owner], tiles[owner], begin, (first + count)[owner]]

    parts = [base, *(np.stack(part, axis=1).ravel() for part in (tasks, rows))]
    per_shape = np.bincount(shape[owner], minlength=len(uses.shapes))
    before = len(base) + parts[1].size + BLOCK * first_places(per_shape)
    launches = [
        RowLaunch(kind, uses.shapes[k], int(before[k]), int(per_shape[k]), query[shape == k])
        for k in np.flatnonzero(per_shape).tolist()
    ]
    launches.sort(key=lambda launch: -launch.shape.columns)
    table = np.concatenate(parts).astype(np.int32)
    return Plan(table, len(base), int(tiles.sum()), int((tiles * words).sum()), launches)
