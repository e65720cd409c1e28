"""The letters of an alignment's rows as HH-suite counts them: twenty residues, X and the gap."""

import numpy as np

from msa.alphabet import LETTERS, STANDARD

UNKNOWN, GAP = 20, 21
"""Codes of X and of a gap, beside the twenty residues."""

ROW_CODES = np.full(256, GAP, np.uint8)
"""By letter code (msa.alphabet); what is none is a gap."""
# HHblits reads B, Z and U as D, E and C, and the other letters beyond the twenty as X
ROW_CODES[: len(LETTERS)] = [
    STANDARD.find({"B": "D", "Z": "E", "U": "C"}.get(letter, letter)) % 21 for letter in LETTERS
]
