"""Profiles in Farrar's striped order (2007), in which the CPU kernels process vectors of query positions."""

import numpy as np

from msa.alphabet import LETTERS
from msa.cpu.simd import vector_lanes
from msa.profile.matrices import PROFILE_COLUMNS


def striped_profile(profile: np.ndarray, bits: int, stripes: int, count: int) -> np.ndarray:
    """Return the scores of a profile in striped order.

    With S stripes, lane d of stripe k holds the score of query position d S + k. After the last stripe, the
    first ones follow again, each lane with the positions of the next one.

    Args:
        profile: int16 [length, 32], or of a larger alphabet a column for each letter.
        bits: of a score, 8, 16 or 32.
        stripes: S; with the lanes, at least the length.
        count: number of stripes to return, which may be more than S.

    Returns:
        int8, int16 or int32 [letters, count, lanes]; positions after the query's end have the lowest score.
    """
    lanes, dtype = vector_lanes(bits), np.dtype(f"int{bits}")
    letters = len(LETTERS) if profile.shape[1] == PROFILE_COLUMNS else profile.shape[1]
    padded = np.full((stripes * lanes, letters), np.iinfo(dtype).min, dtype)
    padded[: len(profile)] = profile[:, :letters]
    positions = np.arange(count)[:, None] + np.arange(lanes) * stripes
    return padded[positions % len(padded)].transpose(2, 0, 1)
