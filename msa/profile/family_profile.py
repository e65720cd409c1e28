"""A profile of a query's family: what its members have at each position decides what a residue scores there.

Weights: position-based (Henikoff & Henikoff, J. Mol. Biol. 243:574, 1994), so that many alike rows count no
more than few. Pseudocounts: the residues that the matrix expects beside those seen, the more of them the
fewer kinds are seen around the position, as in HH-suite (Steinegger et al., BMC Bioinformatics 20:473, 2019).
Scale: log odds in the unit in which the scores of chance pairs of residues decay as the matrix's do, as in
PSI-BLAST (Altschul et al., Nucleic Acids Res. 25:3389, 1997), so that the same E-values hold.
"""

import numpy as np

from msa.alphabet import LETTERS, STANDARD
from msa.profile.matrices import COLUMNS, DEFAULT, background, decay, substitution_matrix
from msa.profile.pssm import WINDOW

PSEUDOCOUNTS, DECAY = 1.4, 6.0
"""The pseudocounts' share of a position with n effective residues is PSEUDOCOUNTS / (1 + (n − 1) / DECAY), at
most 1; see docs/sensitivity.md for what was tried."""

_NEIGHBOURS = 10
"""Positions on either side over which the number of effective residues is averaged."""
_MEMBERS = {"B": "ND", "Z": "QE", "J": "IL", "U": "C", "O": "K"}
_KINDS = len(STANDARD)


def family_profile(rows: np.ndarray, comp_bias_corr: bool = True, matrix: str = DEFAULT) -> np.ndarray:
    """The profile of a family.

    Args:
        rows: uint8 [n ≥ 1, length], letter codes or GAP; the query first.
        comp_bias_corr: shift each position's scores by what its residues score against the positions around
            it, as `msa.profile.pssm.composition_bias` does for a single sequence.
        matrix: its name; scores are in its unit, and pseudocounts what it expects.

    Returns:
        int16 [length, 32], C-contiguous.
    """
    seen = _weighted_frequencies(rows)
    share = _pseudocount_share(seen)[:, None]
    expected = seen @ _conditional(matrix).T
    return profile_of_frequencies((1 - share) * seen + share * expected, comp_bias_corr, matrix)


def profile_of_frequencies(
    frequencies: np.ndarray, comp_bias_corr: bool = True, matrix: str = DEFAULT
) -> np.ndarray:
    """The profile of what stands at each position.

    Args:
        frequencies: float64 [length, 20], > 0, of the standard residues; rows need not sum to 1.
        comp_bias_corr, matrix: see `family_profile`.

    Returns:
        int16 [length, 32], C-contiguous.
    """
    frequencies = frequencies / frequencies.sum(axis=1, keepdims=True)
    scores = np.log(frequencies / _background()) / decay(matrix)
    if comp_bias_corr:
        scores += _composition_bias(scores, frequencies)[:, None]
    return _with_all_letters(scores)


def _background() -> np.ndarray:
    return background()[:_KINDS]


def _conditional(matrix: str) -> np.ndarray:
    """How often residue a stands where residue b might: float64 [20, 20], columns sum to 1."""
    scores = substitution_matrix(matrix)[:_KINDS, :_KINDS]
    joint = np.outer(_background(), _background()) * np.exp(decay(matrix) * scores)
    return np.asarray(joint / joint.sum(axis=0))


def _weighted_frequencies(rows: np.ndarray) -> np.ndarray:
    """float64 [length, 20], each row summing to 1: the background where no row has a standard residue."""
    count, length = rows.shape
    standard = rows < _KINDS
    columns = np.broadcast_to(np.arange(length), rows.shape)[standard]
    cells = columns * _KINDS + rows[standard]
    owners = np.broadcast_to(np.arange(count)[:, None], rows.shape)[standard]
    counts = np.bincount(cells, minlength=length * _KINDS)
    kinds = np.count_nonzero(counts.reshape(length, _KINDS), axis=1)
    # a residue's weight is shared by its kind in the column, the column's by the kinds; a row has the mean
    shares = np.bincount(owners, 1.0 / (kinds[columns] * counts[cells]), count)
    weights = shares / np.maximum(np.bincount(owners, minlength=count), 1)
    # bincount adds one after the other: the same sums on every machine
    seen = np.bincount(cells, weights[owners], length * _KINDS).reshape(length, _KINDS)
    total = seen.sum(axis=1, keepdims=True)
    return np.where(total > 0, seen / np.where(total > 0, total, 1), _background())


def _pseudocount_share(seen: np.ndarray) -> np.ndarray:
    """float64 [length], 0 to 1."""
    entropy = -(seen * np.log(np.where(seen > 0, seen, 1))).sum(axis=1)
    padded = np.pad(np.exp(entropy), _NEIGHBOURS, mode="edge")
    window = 2 * _NEIGHBOURS + 1
    effective = np.lib.stride_tricks.sliding_window_view(padded, window).mean(axis=1)
    return np.minimum(1.0, PSEUDOCOUNTS / (1 + (effective - 1) / DECAY))


def _composition_bias(scores: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """float64 [length]: the mean score against the background less that against the neighbours."""
    length = len(scores)
    positions = np.arange(length)
    first, end = np.maximum(0, positions - WINDOW), np.minimum(length, positions + WINDOW)
    sums = np.zeros((length + 1, _KINDS))
    np.cumsum(frequencies, axis=0, out=sums[1:])
    neighbours = ((sums[end] - sums[first] - frequencies) * scores).sum(axis=1)
    return np.asarray(scores @ _background() - neighbours / (end - first))


def _with_all_letters(scores: np.ndarray) -> np.ndarray:
    """The 20 columns rounded, and those of the other letters."""
    # a machine's exp and log may differ in the last bit, which must not decide a rounding
    rounded = np.floor(np.round(scores, 6) + 0.5)
    profile = np.empty((len(scores), COLUMNS), np.int16)
    profile[:, :_KINDS] = rounded
    unknown = np.minimum(np.floor(np.round(scores @ _background(), 6) + 0.5), -1)
    profile[:, _KINDS:] = unknown[:, None]
    for letter, members in _MEMBERS.items():
        codes = [STANDARD.index(member) for member in members]
        profile[:, LETTERS.index(letter)] = np.floor(rounded[:, codes].mean(axis=1) + 0.5)
    return profile
