"""Substitution matrices that Biopython lacks, in the format of its files up to the diagonal of each row."""

SCORES = {
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
"""Table of scores by matrix name, in half-bits.

BLOSUM80 is the version that blastp uses (NCBI's toolkit, src/util/tables/sm_blosum80.c, public domain);
Biopython has the version in third-bits, for which no statistics are published. VTML80 is the model of Müller,
Spang & Vingron (Mol. Biol. Evol. 19:8, 2002) at 80 PAM, rounded as in MMseqs2 (data/VTML80.out); it has only
the twenty standard residues.
"""
