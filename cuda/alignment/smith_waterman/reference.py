"""Gotoh alignment cell by cell, in plain Python: what the kernels must equal."""

import numpy as np

LETTER_BITS = 31
UNKNOWN = 20


def best_alignment(
    profile: np.ndarray, query: np.ndarray, target: np.ndarray, gap_open: int, gap_extend: int
) -> tuple[list[int], list[int]]:
    """The alignment of a query and a target by the rules of msa.cpu.smith_waterman.

    Args:
        profile: int16 [query length, 32], half-bits.
        query: uint8 [query length], codes.
        target: uint8 [target length], residue bytes.
        gap_open, gap_extend: half-bits.

    Returns:
        As one row of `Alignments.found`, and the runs, first to last.
    """
    m, n = len(query), len(target)
    letters = [int(code) & LETTER_BITS for code in target]
    low = -(2**30)
    h = [[0] * (n + 1) for _ in range(m + 1)]
    insertion = [[low] * (n + 1) for _ in range(m + 1)]
    deletion = [[low] * (n + 1) for _ in range(m + 1)]
    best, i, j = 0, 0, 0
    for y in range(1, n + 1):
        for x in range(1, m + 1):
            insertion[x][y] = max(insertion[x - 1][y] - gap_extend, h[x - 1][y] - gap_open)
            deletion[x][y] = max(deletion[x][y - 1] - gap_extend, h[x][y - 1] - gap_open)
            pair = h[x - 1][y - 1] + int(profile[x - 1, letters[y - 1]])
            h[x][y] = max(0, pair, insertion[x][y], deletion[x][y])
            if h[x][y] > best:
                best, i, j = h[x][y], x, y
    if best == 0:
        return [0] * 8, []
    found = [best, 0, i - 1, 0, j - 1, 0, 0, 0]
    operations: list[int] = []
    while h[i][j] > 0:
        if h[i][j] == h[i - 1][j - 1] + int(profile[i - 1, letters[j - 1]]):
            i, j = i - 1, j - 1
            operations.append(0)
            found[1], found[3] = i, j
            found[5] += int(letters[j] == int(query[i]) != UNKNOWN)
        elif h[i][j] == insertion[i][j]:
            length = next(
                k for k in range(1, i + 1) if h[i - k][j] - gap_open - (k - 1) * gap_extend == h[i][j]
            )
            operations += [1] * length
            i -= length
        else:
            length = next(
                k for k in range(1, j + 1) if h[i][j - k] - gap_open - (k - 1) * gap_extend == h[i][j]
            )
            operations += [2] * length
            j -= length
    runs: list[int] = []
    for operation in reversed(operations):
        if runs and runs[-1] & 3 == operation:
            runs[-1] += 4
        else:
            runs.append(4 + operation)
    found[6], found[7] = len(operations), len(runs)
    return found, runs
