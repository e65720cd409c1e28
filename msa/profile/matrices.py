"""Substitution matrices over the residue alphabet, and background residue frequencies.

Scores are the published integers in the matrix's own unit: third-bits for BLOSUM45 and BLOSUM50, half-bits
for all others. Letters that a matrix lacks are scored as follows:

- U (selenocysteine) as C, and O (pyrrolysine) as K: the residues that they replace.
- J (I or L) as the mean of I and L, rounded to the nearest integer, halves up.
- B (N or D) and Z (Q or E) likewise, and X as −1, if the matrix has only the twenty standard residues.
"""

import functools
import importlib.resources
import math

import numpy as np

from msa.alphabet import LETTERS, STANDARD
from msa.profile.matrix_scores import SCORES

PROFILE_COLUMNS = 32
"""Width of a matrix or profile row: one column for each value of the five letter bits."""

DEFAULT_MATRIX = "BLOSUM62"

MATRICES = ("BLOSUM62", "BLOSUM45", "BLOSUM50", "BLOSUM80", "BLOSUM90", "PAM30", "PAM70", "VTML80")
"""Names of the substitution matrices."""

_SAME_AS = {"U": "C", "O": "K"}
_EITHER_OF = {"J": ("I", "L"), "B": ("N", "D"), "Z": ("Q", "E")}

# Marginals of the joint frequencies behind BLOSUM62 (Henikoff & Henikoff 1992), in the order of STANDARD
_BLOSUM62_FREQUENCIES = (
    0.074, 0.052, 0.045, 0.054, 0.025, 0.034, 0.054, 0.074, 0.026, 0.068,
    0.099, 0.058, 0.025, 0.047, 0.039, 0.057, 0.051, 0.013, 0.032, 0.073,
)  # fmt: skip


@functools.cache
def substitution_matrix(name: str = DEFAULT_MATRIX) -> np.ndarray:
    """Return a substitution matrix over the residue alphabet.

    Args:
        name: one of `MATRICES`.

    Returns:
        int16 [26, 32], read-only, in the matrix's unit. Rows and columns are letter codes; the six columns
        without a letter score as X.

    Raises:
        ValueError: the matrix is unknown.
    """
    if name not in MATRICES:
        raise ValueError(f"unknown matrix {name!r}: choose from {', '.join(MATRICES)}")
    published = _parse_table(SCORES[name] if name in SCORES else _read_biopython_table(name))

    def score(a: str, b: str) -> int:
        a, b = _SAME_AS.get(a, a), _SAME_AS.get(b, b)
        if a in published and b in published[a]:
            return int(published[a][b])
        for first, second in ((a, b), (b, a)):
            if first in _EITHER_OF and first not in published:
                one, other = _EITHER_OF[first]
                return math.floor((score(one, second) + score(other, second) + 1) / 2)
        return -1

    columns = LETTERS + "X" * (PROFILE_COLUMNS - len(LETTERS))
    scores = np.array([[score(a, b) for b in columns] for a in LETTERS], np.int16)
    scores.flags.writeable = False
    return scores


@functools.cache
def gonnet_matrix() -> np.ndarray:
    """Return the matrix of Gonnet, Cohen & Benner in bits, float64 [20, 20], in the order of STANDARD.

    The published scores are ten times the decimal logarithm of the odds (Science 256:1443, 1992).
    """
    published = _parse_table(_read_biopython_table("GONNET1992"))
    return np.array([[published[a][b] for b in STANDARD] for a in STANDARD]) / 10 * math.log2(10)


@functools.cache
def background() -> np.ndarray:
    """Return the residue frequencies of BLOSUM62, float64 [26]; 0 for letters beyond the standard twenty."""
    frequencies = np.zeros(len(LETTERS))
    frequencies[: len(STANDARD)] = _BLOSUM62_FREQUENCIES
    return frequencies / frequencies.sum()


def _read_biopython_table(name: str) -> str:
    """Read a matrix file of Biopython, without importing Bio.Align, which takes a quarter of a second."""
    folder = importlib.resources.files("Bio").joinpath("Align", "substitution_matrices", "data")
    return folder.joinpath(name).read_text("ascii")


def _parse_table(text: str) -> dict[str, dict[str, float]]:
    """Parse a symmetric matrix into scores by row and column letter.

    Args:
        text: the column letters, then one line for each row: its letter and its scores, at least up to the
            diagonal. Lines that start with # are comments.
    """
    letters, *rows = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    scores: dict[str, dict[str, float]] = {letter: {} for letter in letters}
    for letter, *row in rows:
        for other, score in zip(letters, map(float, row), strict=False):
            scores[letter][other] = scores[other][letter] = score
    return scores
