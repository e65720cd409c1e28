"""A query with its profile."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class QueryProfile:
    """A query and its profile (PSSM).

    Args:
        codes: uint8 [length ≥ 1], letter codes.
        profile: int16 [length, 32], scores in half-bits; column = letter code.
        is_uncorrected: the profile is that of the sequence, without correction for composition.
        longest_targets: int32 [n ≥ 1], residues of the longest target that passes the gapless filter, by
            gapless score; the last number applies to all higher scores, too. None if there is no such limit.
    """

    codes: np.ndarray
    profile: np.ndarray
    is_uncorrected: bool = False
    longest_targets: np.ndarray | None = None
