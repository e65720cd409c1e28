"""Scores of the substitution matrices that biopython does not have.

Each row ends at the diagonal; rows and columns are in the order of the first line.
"""

BLOSUM80 = """
A R N D C Q E G H I L K M F P S T W Y V B Z X
 5
-2  6
-2 -1  6
-2 -2  1  6
-1 -4 -3 -4  9
-1  1  0 -1 -4  6
-1 -1 -1  1 -5  2  6
 0 -3 -1 -2 -4 -2 -3  6
-2  0  0 -2 -4  1  0 -3  8
-2 -3 -4 -4 -2 -3 -4 -5 -4  5
-2 -3 -4 -5 -2 -3 -4 -4 -3  1  4
-1  2  0 -1 -4  1  1 -2 -1 -3 -3  5
-1 -2 -3 -4 -2  0 -2 -4 -2  1  2 -2  6
-3 -4 -4 -4 -3 -4 -4 -4 -2 -1  0 -4  0  6
-1 -2 -3 -2 -4 -2 -2 -3 -3 -4 -3 -1 -3 -4  8
 1 -1  0 -1 -2  0  0 -1 -1 -3 -3 -1 -2 -3 -1  5
 0 -1  0 -1 -1 -1 -1 -2 -2 -1 -2 -1 -1 -2 -2  1  5
-3 -4 -4 -6 -3 -3 -4 -4 -3 -3 -2 -4 -2  0 -5 -4 -4 11
-2 -3 -3 -4 -3 -2 -3 -4  2 -2 -2 -3 -2  3 -4 -2 -2  2  7
 0 -3 -4 -4 -1 -3 -3 -4 -4  3  1 -3  1 -1 -3 -2  0 -3 -2  4
-2 -2  4  4 -4  0  1 -1 -1 -4 -4 -1 -3 -4 -2  0 -1 -5 -3 -4  4
-1  0  0  1 -4  3  4 -3  0 -4 -3  1 -2 -4 -2  0 -1 -4 -3 -3  0  4
-1 -1 -1 -2 -3 -1 -1 -2 -2 -2 -2 -1 -1 -2 -2 -1 -1 -3 -2 -1 -2 -1 -1
"""
"""In half-bits, as blastp uses it (NCBI's toolkit, src/util/tables/sm_blosum80.c, in the public domain);
biopython's is the one in third-bits, to which no published parameters belong."""

VTML80 = """
A C D E F G H I K L M N P Q R S T V W Y
 5
 0 10
-2 -7  7
-2 -7  2  6
-4 -6 -9 -7  8
-1 -3 -2 -3 -6  7
-3 -3 -1 -2 -1 -3  9
-3 -2 -7 -5 -1 -8 -5  6
-2 -6 -2  0 -7 -3 -1 -5  6
-3 -5 -8 -5  0 -7 -3  1 -4  5
-2 -1 -5 -4  0 -6 -5  1 -2  2  8
-2 -4  1 -1 -5 -1  0 -5  0 -5 -4  7
-1 -4 -2 -2 -5 -4 -3 -6 -2 -4 -5 -4  8
-2 -6 -1  2 -4 -4  1 -5  1 -3 -2 -1 -2  7
-3 -4 -5 -3 -6 -3  0 -5  3 -4 -3 -2 -3  1  7
 1  0 -1 -1 -3 -1 -1 -5 -2 -4 -4  1 -1 -1 -2  5
 0 -2 -2 -2 -4 -4 -2 -2 -1 -3 -1 -1 -2 -2 -3  1  6
 0  0 -5 -4 -2 -5 -4  3 -4  0  0 -5 -4 -3 -5 -3 -1  5
-5 -8 -7 -8  1 -5 -2 -3 -5 -2 -6 -6 -5 -8 -4 -4 -7 -6 11
-4 -1 -7 -4  3 -6  1 -3 -4 -2 -4 -2 -7 -5 -3 -3 -4 -4  1  8
"""
"""In half-bits, of the twenty standard residues: the model of Müller, Spang & Vingron (Mol. Biol. Evol. 19:8,
2002) at 80 PAM, rounded as MMseqs2 distributes it (data/VTML80.out)."""


def parsed(text: str) -> dict[str, dict[str, int]]:
    """A matrix from its lower half, by both letters."""
    letters, *rows = [line.split() for line in text.strip().splitlines()]
    scores: dict[str, dict[str, int]] = {letter: {} for letter in letters}
    for letter, row in zip(letters, rows, strict=True):
        for other, score in zip(letters, map(int, row), strict=False):
            scores[letter][other] = scores[other][letter] = score
    return scores
