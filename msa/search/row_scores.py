"""How well each row of an alignment goes with the first, as hhfilter's -qsc measures it."""

import functools
import math

import numpy as np

from msa.alphabet import STANDARD
from msa.jit import kernel
from msa.search.row_codes import GAP, UNKNOWN

_GAP_OPEN, _GAP_EXTEND = 6.0, 1.0
"""Bits."""


def scores_with_first(codes: np.ndarray) -> np.ndarray:
    """Each row's score with the first, bits, float64 [n]: X scores 0, gaps at the row's ends cost nothing.

    Args:
        codes: uint8 [n, columns], 0 to 19 in the order of STANDARD, UNKNOWN or GAP.
    """
    return np.asarray(_scores(codes, _gonnet()))


@functools.cache
def _gonnet() -> np.ndarray:
    """The matrix of Gonnet, Cohen & Benner (Science 256:1443, 1992) in bits, float64 [20, 20]."""
    # imported here: Bio.Align takes a quarter of a second to load
    from Bio.Align import substitution_matrices

    # published as ten times the decimal logarithm of the odds
    published = substitution_matrices.load("GONNET1992")
    return np.array([[published[a][b] for b in STANDARD] for a in STANDARD]) / 10 * math.log2(10)


@kernel
def _scores(codes, scores):  # type: ignore[no-untyped-def]
    found = np.zeros(len(codes))
    columns = codes.shape[1]
    for k in range(len(codes)):
        first, last = 0, columns - 1
        while first < columns and codes[k, first] >= UNKNOWN:
            first += 1
        while last > first and codes[k, last] >= UNKNOWN:
            last -= 1
        gap = False
        for c in range(first, last + 1):
            one, query = codes[k, c], codes[0, c]
            if one < UNKNOWN:
                gap = False
                if query < UNKNOWN:
                    found[k] += scores[query, one]
            elif one == GAP and query < UNKNOWN:
                found[k] -= _GAP_EXTEND if gap else _GAP_OPEN
                gap = True
    return found
