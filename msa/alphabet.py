"""The residue alphabet of databases and profiles.

A residue byte holds its letter in the low five bits and the soft-mask flag in bit 5, so masking costs no
second copy and no letter of the input is lost. The first twenty letters are in AlphaFold's order.
"""

import numpy as np

STANDARD = "ARNDCQEGHILKMFPSTWYV"
LETTERS = STANDARD + "XBZUOJ"
X = LETTERS.index("X")
LETTER_BITS = 0b0001_1111
MASK_BIT = 0b0010_0000
# between sequences of a database: a masked X, which no scoring rewards, so that a kernel that reads on past a
# sequence's end, four bytes at a time, cannot raise its score
PAD = X | MASK_BIT
INVALID = 0xFF

_ENCODE = np.full(256, INVALID, np.uint8)
for _code, _letter in enumerate(LETTERS):
    _ENCODE[ord(_letter)] = _ENCODE[ord(_letter.lower())] = _code
_DECODE = np.full(256, ord("X"), np.uint8)
_DECODE[: len(LETTERS)] = np.frombuffer(LETTERS.encode(), np.uint8)
_DECODE[MASK_BIT : MASK_BIT + len(LETTERS)] = _DECODE[: len(LETTERS)]


def encode(sequence: str | bytes) -> np.ndarray:
    """Letters, in either case, to codes.

    Returns:
        uint8 [length]; `INVALID` where a character is no letter of the alphabet.
    """
    raw = sequence.encode("latin-1", "replace") if isinstance(sequence, str) else sequence
    return _ENCODE[np.frombuffer(raw, np.uint8)]


def decode(codes: np.ndarray) -> str:
    """Codes (uint8 [length], mask bit ignored) to upper-case letters."""
    return _DECODE[codes].tobytes().decode("ascii")
