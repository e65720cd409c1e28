"""Substitution scores over the residue alphabet, and the residue frequencies that go with them.

Scores are the published integers; their unit is the matrix's own, half-bits of all but BLOSUM45 and BLOSUM50,
which are in third-bits. What is not published of a letter follows these rules:

- U (selenocysteine) scores as C, O (pyrrolysine) as K: the residues they replace.
- J (I or L) scores as the mean of I and L, halves rounded up; J against J as the mean of I–J and L–J. Where B
  (N or D) and Z (Q or E) are not published, neither is X: they score in the same way, and X scores −1.
"""

import functools
import math

import numpy as np

from msa.alphabet import LETTERS, STANDARD
from msa.profile.gumbel_tables import TABLES

COLUMNS = 32
"""Width of a score row: one column per value of the five letter bits."""

DEFAULT = "BLOSUM62"

_SAME_AS = {"U": "C", "O": "K"}
_EITHER_OF = {"J": ("I", "L"), "B": ("N", "D"), "Z": ("Q", "E")}

# Marginals of the joint frequencies behind BLOSUM62 (Henikoff & Henikoff 1992), in the order of STANDARD
_BLOSUM62_FREQUENCIES = (
    0.074, 0.052, 0.045, 0.054, 0.025, 0.034, 0.054, 0.074, 0.026, 0.068,
    0.099, 0.058, 0.025, 0.047, 0.039, 0.057, 0.051, 0.013, 0.032, 0.073,
)  # fmt: skip


@functools.cache
def substitution_matrix(name: str = DEFAULT) -> np.ndarray:
    """A matrix over our alphabet.

    Args:
        name: of `TABLES`.

    Returns:
        int16 [26, 32], in the matrix's unit, read-only: row and column are letter codes; the six columns that
        stand for no letter score as X.

    Raises:
        ValueError: there is no such matrix.
    """
    published = _published(name)

    def score(a: str, b: str) -> int:
        a, b = _SAME_AS.get(a, a), _SAME_AS.get(b, b)
        if a in published and b in published[a]:
            return published[a][b]
        for first, second in ((a, b), (b, a)):
            if first in _EITHER_OF and first not in published:
                one, other = _EITHER_OF[first]
                return math.floor((score(one, second) + score(other, second) + 1) / 2)
        return -1

    columns = LETTERS + "X" * (COLUMNS - len(LETTERS))
    scores = np.array([[score(a, b) for b in columns] for a in LETTERS], np.int16)
    scores.flags.writeable = False
    return scores


def blosum62() -> np.ndarray:
    """BLOSUM62, as `substitution_matrix`."""
    return substitution_matrix()


def decay(name: str = DEFAULT) -> float:
    """λ of a matrix: how the scores of chance pairs of residues decay, nats per unit of score."""
    return TABLES[name].decay


@functools.cache
def background() -> np.ndarray:
    """Residue frequencies of BLOSUM62, float64 [26]: of the twenty standard residues; 0 for other letters."""
    frequencies = np.zeros(len(LETTERS))
    frequencies[: len(STANDARD)] = _BLOSUM62_FREQUENCIES
    return frequencies / frequencies.sum()


def _published(name: str) -> dict[str, dict[str, int]]:
    """Scores by both letters, as they are published."""
    from msa.profile import matrix_scores

    if name not in TABLES:
        raise ValueError(f"there is no matrix {name!r}; there are {', '.join(TABLES)}")
    if hasattr(matrix_scores, name):
        return matrix_scores.parsed(getattr(matrix_scores, name))
    # imported here: Bio.Align takes a quarter of a second to load
    from Bio.Align import substitution_matrices

    published = substitution_matrices.load(name)
    letters = published.alphabet.rstrip("*")
    return {a: {b: int(published[a][b]) for b in letters} for a in letters}
