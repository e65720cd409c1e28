"""The residue alphabet of databases and profiles.

A residue byte holds the letter's code in its low five bits and the soft-mask flag in bit 5, so that masked
sequences keep their letters. The first twenty letters are in AlphaFold's order.
"""

import numpy as np

from msa.base.residues import RESTYPES

STANDARD = RESTYPES
LETTERS = STANDARD + "XBZUOJ"
X = LETTERS.index("X")
LETTER_BITS = 0b0001_1111
MASK_BIT = 0b0010_0000
# Padding between the sequences of a database: a masked X, whose score is never positive. Kernels that read
# four bytes at a time may read past the end of a sequence; the padding cannot increase its score.
PAD = X | MASK_BIT
# code of a gap in a row of an alignment
GAP = 31
INVALID = 0xFF
# letters of RNA; each other code of nucleotides (IUPAC) counts as N, and T as U
NUCLEOTIDES, UNKNOWN_NUCLEOTIDE, _AMBIGUOUS = "ACGU", "N", "RYSWKMBDHVNX"
NUCLEOTIDE_CODES = NUCLEOTIDES + "T" + _AMBIGUOUS

_ENCODE = np.full(256, INVALID, np.uint8)
for _code, _letter in enumerate(LETTERS):
    _ENCODE[ord(_letter)] = _ENCODE[ord(_letter.lower())] = _code
_DECODE = np.full(256, ord("X"), np.uint8)
_DECODE[: len(LETTERS)] = np.frombuffer(LETTERS.encode(), np.uint8)
_DECODE[MASK_BIT : MASK_BIT + len(LETTERS)] = _DECODE[: len(LETTERS)]
# codes of RNA's letters in profiles of the twenty standard residues: U has the place of T, and N is unknown
NUCLEOTIDES_AS_STANDARD = np.full(LETTER_BITS + 1, X, np.uint8)
NUCLEOTIDES_AS_STANDARD[GAP] = GAP
for _letter in NUCLEOTIDES:
    NUCLEOTIDES_AS_STANDARD[LETTERS.index(_letter)] = LETTERS.index(_letter.replace("U", "T"))

# codes of the complements of RNA's letters, mask bit included; all others stay
COMPLEMENT = np.arange(256, dtype=np.uint8)
for _letter, _partner in zip(NUCLEOTIDES, reversed(NUCLEOTIDES), strict=True):
    for _mask in (0, MASK_BIT):
        COMPLEMENT[LETTERS.index(_letter) | _mask] = LETTERS.index(_partner) | _mask

TO_NUCLEOTIDES = str.maketrans(_AMBIGUOUS + "T", UNKNOWN_NUCLEOTIDE * len(_AMBIGUOUS) + "U")
"""Translation of upper-case letters of nucleic acids to those of RNA; other letters stay."""


def encode(sequence: str | bytes) -> np.ndarray:
    """Convert letters, in either case, to codes.

    Returns:
        uint8 [length]; `INVALID` where a character is not a letter of the alphabet.
    """
    raw = sequence.encode("latin-1", "replace") if isinstance(sequence, str) else sequence
    return _ENCODE[np.frombuffer(raw, np.uint8)]


def decode(codes: np.ndarray) -> str:
    """Convert codes (uint8 [length], mask bit ignored) to upper-case letters."""
    return _DECODE[codes].tobytes().decode("ascii")
