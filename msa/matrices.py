"""Substitution scores over the residue alphabet, and the residue frequencies that go with them.

Scores are the published integers in half-bits. BLOSUM62 as NCBI distributes it knows the twenty standard
residues, B, Z and X; the other letters of our alphabet follow these rules:

- U (selenocysteine) scores as C, O (pyrrolysine) as K: the residues they replace.
- J (I or L) scores as the mean of I and L, halves rounded up; J against J as the mean of I–J and L–J.
"""

import functools
import math

import numpy as np

from msa.alphabet import LETTERS, STANDARD

COLUMNS = 32
"""Width of a score row: one column per value of the five letter bits."""

_SAME_AS = {"U": "C", "O": "K"}
_EITHER_OF = {"J": ("I", "L")}

# Marginals of the joint frequencies behind BLOSUM62 (Henikoff & Henikoff 1992), in the order of STANDARD
_BLOSUM62_FREQUENCIES = (
    0.074, 0.052, 0.045, 0.054, 0.025, 0.034, 0.054, 0.074, 0.026, 0.068,
    0.099, 0.058, 0.025, 0.047, 0.039, 0.057, 0.051, 0.013, 0.032, 0.073,
)  # fmt: skip


@functools.cache
def blosum62() -> np.ndarray:
    """BLOSUM62 over our alphabet.

    Returns:
        int16 [26, 32], half-bits, read-only: row and column are letter codes; the six columns that stand for
        no letter score as X.
    """
    # imported here: Bio.Align takes a quarter of a second to load
    from Bio.Align import substitution_matrices

    published = substitution_matrices.load("BLOSUM62")

    def score(a: str, b: str) -> int:
        a, b = _SAME_AS.get(a, a), _SAME_AS.get(b, b)
        for first, second in ((a, b), (b, a)):
            if first in _EITHER_OF:
                one, other = _EITHER_OF[first]
                return math.floor((score(one, second) + score(other, second) + 1) / 2)
        return int(published[a][b])

    columns = LETTERS + "X" * (COLUMNS - len(LETTERS))
    scores = np.array([[score(a, b) for b in columns] for a in LETTERS], np.int16)
    scores.flags.writeable = False
    return scores


@functools.cache
def background() -> np.ndarray:
    """Residue frequencies of BLOSUM62, float64 [26]: of the twenty standard residues; 0 for other letters."""
    frequencies = np.zeros(len(LETTERS))
    frequencies[: len(STANDARD)] = _BLOSUM62_FREQUENCIES
    return frequencies / frequencies.sum()
