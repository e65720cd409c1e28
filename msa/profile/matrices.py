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

PROFILE_COLUMNS = 32
"""Width of a matrix or profile row: one column for each value of the five letter bits."""

BLOSUM62 = "BLOSUM62"
"""Name of the matrix whose frequencies are the background, and whose unit is half-bits."""

CONTEXT = "CONTEXT"
"""Name of the scores of msa.profile.context, which depend on a residue's neighbours. Their unit is that of
BLOSUM62; residues without neighbours have its scores."""

MATRICES = (CONTEXT, BLOSUM62, "BLOSUM45", "BLOSUM50", "BLOSUM80", "BLOSUM90", "PAM30", "PAM70", "VTML80")
"""Names of the substitution matrices."""

SAME_AS = {"U": "C", "O": "K"}
"""The standard residues that rare ones count as."""
_EITHER_OF = {"J": ("I", "L"), "B": ("N", "D"), "Z": ("Q", "E")}

# Marginals of the joint frequencies behind BLOSUM62 (Henikoff & Henikoff 1992), in the order of STANDARD
_BLOSUM62_FREQUENCIES = (
    0.074, 0.052, 0.045, 0.054, 0.025, 0.034, 0.054, 0.074, 0.026, 0.068,
    0.099, 0.058, 0.025, 0.047, 0.039, 0.057, 0.051, 0.013, 0.032, 0.073,
)  # fmt: skip


_SCORES = {
    "BLOSUM80": """
  A R N D C Q E G H I L K M F P S T W Y V B Z X
A  5
R -2  6
N -2 -1  6
D -2 -2  1  6
C -1 -4 -3 -4  9
Q -1  1  0 -1 -4  6
E -1 -1 -1  1 -5  2  6
G  0 -3 -1 -2 -4 -2 -3  6
H -2  0  0 -2 -4  1  0 -3  8
I -2 -3 -4 -4 -2 -3 -4 -5 -4  5
L -2 -3 -4 -5 -2 -3 -4 -4 -3  1  4
K -1  2  0 -1 -4  1  1 -2 -1 -3 -3  5
M -1 -2 -3 -4 -2  0 -2 -4 -2  1  2 -2  6
F -3 -4 -4 -4 -3 -4 -4 -4 -2 -1  0 -4  0  6
P -1 -2 -3 -2 -4 -2 -2 -3 -3 -4 -3 -1 -3 -4  8
S  1 -1  0 -1 -2  0  0 -1 -1 -3 -3 -1 -2 -3 -1  5
T  0 -1  0 -1 -1 -1 -1 -2 -2 -1 -2 -1 -1 -2 -2  1  5
W -3 -4 -4 -6 -3 -3 -4 -4 -3 -3 -2 -4 -2  0 -5 -4 -4 11
Y -2 -3 -3 -4 -3 -2 -3 -4  2 -2 -2 -3 -2  3 -4 -2 -2  2  7
V  0 -3 -4 -4 -1 -3 -3 -4 -4  3  1 -3  1 -1 -3 -2  0 -3 -2  4
B -2 -2  4  4 -4  0  1 -1 -1 -4 -4 -1 -3 -4 -2  0 -1 -5 -3 -4  4
Z -1  0  0  1 -4  3  4 -3  0 -4 -3  1 -2 -4 -2  0 -1 -4 -3 -3  0  4
X -1 -1 -1 -2 -3 -1 -1 -2 -2 -2 -2 -1 -1 -2 -2 -1 -1 -3 -2 -1 -2 -1 -1
""",
    "VTML80": """
  A C D E F G H I K L M N P Q R S T V W Y
A  5
C  0 10
D -2 -7  7
E -2 -7  2  6
F -4 -6 -9 -7  8
G -1 -3 -2 -3 -6  7
H -3 -3 -1 -2 -1 -3  9
I -3 -2 -7 -5 -1 -8 -5  6
K -2 -6 -2  0 -7 -3 -1 -5  6
L -3 -5 -8 -5  0 -7 -3  1 -4  5
M -2 -1 -5 -4  0 -6 -5  1 -2  2  8
N -2 -4  1 -1 -5 -1  0 -5  0 -5 -4  7
P -1 -4 -2 -2 -5 -4 -3 -6 -2 -4 -5 -4  8
Q -2 -6 -1  2 -4 -4  1 -5  1 -3 -2 -1 -2  7
R -3 -4 -5 -3 -6 -3  0 -5  3 -4 -3 -2 -3  1  7
S  1  0 -1 -1 -3 -1 -1 -5 -2 -4 -4  1 -1 -1 -2  5
T  0 -2 -2 -2 -4 -4 -2 -2 -1 -3 -1 -1 -2 -2 -3  1  6
V  0  0 -5 -4 -2 -5 -4  3 -4  0  0 -5 -4 -3 -5 -3 -1  5
W -5 -8 -7 -8  1 -5 -2 -3 -5 -2 -6 -6 -5 -8 -4 -4 -7 -6 11
Y -4 -1 -7 -4  3 -6  1 -3 -4 -2 -4 -2 -7 -5 -3 -3 -4 -4  1  8
""",
}
"""Tables of matrices that Biopython lacks, by name: half-bits, in the format of its files up to the diagonal.

BLOSUM80 is the version that blastp uses (NCBI's toolkit, src/util/tables/sm_blosum80.c, public domain);
Biopython has the version in third-bits, for which no statistics are published. VTML80 is the model of Müller,
Spang & Vingron (Mol. Biol. Evol. 19:8, 2002) at 80 PAM, rounded as in MMseqs2 (data/VTML80.out); it has only
the twenty standard residues.
"""


@functools.cache
def substitution_matrix(name: str = BLOSUM62) -> np.ndarray:
    """Return a substitution matrix over the residue alphabet.

    Returns:
        int16 [26, 32], read-only, in the matrix's unit. Rows and columns are letter codes; the six columns
        without a letter score as X.

    Raises:
        ValueError: the matrix is unknown.
    """
    if name not in MATRICES:
        raise ValueError(f"unknown matrix {name!r}: choose from {', '.join(MATRICES)}")
    name = BLOSUM62 if name == CONTEXT else name
    published = _parse_table(_SCORES[name] if name in _SCORES else _read_biopython_table(name))

    def score(a: str, b: str) -> int:
        a, b = SAME_AS.get(a, a), SAME_AS.get(b, b)
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
