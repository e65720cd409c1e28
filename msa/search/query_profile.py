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
    """

    codes: np.ndarray
    profile: np.ndarray
    is_uncorrected: bool = False
