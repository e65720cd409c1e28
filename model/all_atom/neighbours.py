"""Pairs of atoms within a distance."""

from itertools import product

import numpy as np


def close_pairs(positions: np.ndarray, reach: float, part: np.ndarray) -> np.ndarray:
    """Return the pairs of atoms at most `reach` Å apart, int64 [P, 2], sorted, the smaller index first.

    Positions [A, 3], Å, are finite; pairs of atoms of the same `part`, int [A], are left out.
    """
    if len(positions) < 2:
        return np.zeros((0, 2), np.int64)
    # cells of a grid, one cell of margin on each side, numbered by row
    cells = np.floor((positions - positions.min(axis=0)) / reach).astype(np.int64) + 1
    strides = np.cumprod([1, *(cells.max(axis=0)[:2] + 2)])
    keys = cells @ strides
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    found = []
    for offset in product((-1, 0, 1), repeat=3):
        step = int(np.dot(offset, strides))
        if step < 0:  # each pair of cells once
            continue
        begin, end = (np.searchsorted(keys, keys + step, side) for side in ("left", "right"))
        if step == 0:
            begin = np.arange(1, len(keys) + 1)
        count = np.maximum(end - begin, 0)
        first = np.repeat(np.arange(len(keys)), count)
        second = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(begin, count)
        pairs = np.sort(order[np.column_stack([first, second])], axis=1)
        pairs = pairs[part[pairs[:, 0]] != part[pairs[:, 1]]]
        found.append(pairs[np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1) <= reach])
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
