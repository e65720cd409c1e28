"""Reference implementations of the alignment kernels: cell by cell, in plain Python."""

import numpy as np

from cuda.alignment.gapless.layout import (
    BYTE,
    LETTERS,
    MAX_PENALTY,
    ROWS,
    Arithmetic,
    LaneLayout,
    entry_bytes,
)

LETTER_BITS = 31
UNKNOWN = 20


def gapless_scores(
    profile: np.ndarray, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Compute the best score of an ungapped local alignment for every target; masked residues score as X.

    M[i, j] = max(0, M[i−1, j−1] + Q[i, s_j]); the score is the largest M.

    Args:
        profile: int [query length ≥ 1, 32], half-bits.
        residues: uint8 [bytes], letter in the low five bits, mask in bit 5.
        offsets: int64 [n], bytes.
        lengths: int32 [n].

    Returns:
        int32 [n].
    """
    scores = np.zeros(len(lengths), np.int32)
    for target, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        cells = np.zeros(len(profile) + 1, np.int64)
        for code in residues[offset : offset + length]:
            letter = UNKNOWN if code & 32 else code & 31
            cells[1:] = np.maximum(cells[:-1] + profile[:, letter], 0)
            scores[target] = max(scores[target], cells.max())
    return scores


def best_alignment(
    profile: np.ndarray, query: np.ndarray, target: np.ndarray, gap_open: int, gap_extend: int
) -> tuple[list[int], list[int]]:
    """Align a query and a target by the rules of msa.cpu.smith_waterman.

    Args:
        profile: int16 [query length, 32], half-bits.
        query: uint8 [query length], codes.
        target: uint8 [target length], residue bytes.
        gap_open: half-bits.
        gap_extend: half-bits.

    Returns:
        A record of AlignmentPaths, and the runs, first to last.
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
    record = [best, 0, i - 1, 0, j - 1, 0, 0, 0]
    operations: list[int] = []
    while h[i][j] > 0:
        if h[i][j] == h[i - 1][j - 1] + int(profile[i - 1, letters[j - 1]]):
            i, j = i - 1, j - 1
            operations.append(0)
            record[1], record[3] = i, j
            record[5] += int(letters[j] == int(query[i]) != UNKNOWN)
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
    record[6], record[7] = len(operations), len(runs)
    return record, runs


def profile_table(layout: LaneLayout, profile: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
    """Build the shared-memory table of one profile, int32 [table_bytes / 4]."""
    if arithmetic is BYTE:
        return byte_table(layout, profile)
    rows = np.full((ROWS, layout.tile), arithmetic.reset, arithmetic.dtype)
    rows[:LETTERS, : len(profile)] = profile[:, :LETTERS].T
    return layout.to_shared_memory(np.ascontiguousarray(layout.to_pairs(rows)).view(np.int32)[..., 0])


def byte_table(layout: LaneLayout, profile: np.ndarray) -> np.ndarray:
    """Build the table with one-byte entries, int32 [table_bytes / 4], of scores of at most MAX_SCORE."""
    lookup = entry_bytes()
    scores = np.zeros((ROWS, layout.tile), np.int16)
    scores[:LETTERS, : len(profile)] = np.maximum(profile[:, :LETTERS].T, -MAX_PENALTY)
    scores += MAX_PENALTY
    # [rows, lanes, words, 2 pairs, 2 halves]
    cells = layout.to_pairs(scores).reshape(ROWS, layout.lanes, layout.words, 2, 2)
    words = np.empty((*cells.shape[:3], 4), np.uint8)
    low: np.ndarray | int = 0
    for byte, (pair, half) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        low = words[..., byte] = lookup[cells[..., pair, half], low]
    return layout.to_shared_memory(words.view(np.int32)[..., 0])
