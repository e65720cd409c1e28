"""The gapless score by its definition."""

import numpy as np

from cuda.alignment.gapless.layout import X


def gapless_scores(
    profile: np.ndarray, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """The best score of an ungapped local alignment, for every target, masked residues as X.

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
            letter = X if code & 32 else code & 31
            cells[1:] = np.maximum(cells[:-1] + profile[:, letter], 0)
            scores[target] = max(scores[target], cells.max())
    return scores
