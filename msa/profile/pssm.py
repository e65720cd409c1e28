"""The query as a profile (PSSM): what each residue scores at each position of the query.

A profile is int16 [length, 32], in the matrix's unit (half-bits of BLOSUM62): row = position of the query,
column = letter code of the target's residue. Its scores are integers, corrections included, so that every
engine computes the same sums.
"""

import numpy as np

from msa.profile.matrices import DEFAULT, background, substitution_matrix

WINDOW = 20
"""Residues on either side that count as a position's neighbourhood."""


def composition_bias(codes: np.ndarray, matrix: str = DEFAULT) -> np.ndarray:
    """What to add to each position's scores so that locally common residues weigh less.

    A residue that resembles its neighbours (in a charged stretch, a coiled coil, a repeat) matches unrelated
    proteins with the same local composition. At position i the correction is the mean score that residue x_i
    has against the background minus its mean score against positions i−20 … i+19, itself left out of the sum:
    Hauser, Mayer & Söding 2013 (kClust), in the form MMseqs2 uses (2017).

    Args:
        codes: uint8 [length], the query's letter codes.
        matrix: its name.

    Returns:
        float64 [length], in the matrix's unit.
    """
    length = len(codes)
    scores = substitution_matrix(matrix).astype(np.int64)[
        codes
    ]  # [length, 32]: row i = scores of residue x_i
    positions = np.arange(length)
    first, end = np.maximum(0, positions - WINDOW), np.minimum(length, positions + WINDOW)
    # counts[i] = how often each letter occurs before position i; a window is the difference of two rows
    counts = np.zeros((length + 1, scores.shape[1]), np.int64)
    counts[positions + 1, codes] = 1
    counts = counts.cumsum(axis=0)
    neighbours = ((counts[end] - counts[first]) * scores).sum(axis=1) - scores[positions, codes]
    expected = scores[:, : len(background())] @ background()
    return expected - neighbours / (end - first)


def query_profile(codes: np.ndarray, comp_bias_corr: bool = True, matrix: str = DEFAULT) -> np.ndarray:
    """The profile of a single sequence: the matrix's rows, each shifted by its composition correction.

    The correction is rounded to the nearest integer, halves away from zero, and applies to all columns of a
    row, X included.

    Args:
        codes: uint8 [length], the query's letter codes; a mask bit is not allowed here.
        comp_bias_corr: apply `composition_bias`.
        matrix: its name.

    Returns:
        int16 [length, 32], in the matrix's unit, C-contiguous.
    """
    profile = substitution_matrix(matrix)[codes]
    if comp_bias_corr:
        bias = composition_bias(codes, matrix)
        profile = profile + (np.sign(bias) * np.floor(np.abs(bias) + 0.5)).astype(np.int16)[:, None]
    return np.ascontiguousarray(profile, np.int16)
