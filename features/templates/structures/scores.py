"""Scores of structure states and residues, and the statistics of alignments by both.

The matrices are log odds from superpositions of domains of one SCOPe superfamily (scores.json). E-values
count chains of other folds that score as high, by chance or because they resemble the query; they were fitted
to domains whose folds the matrices in use had not seen. docs/structure-search.md has the measurements.
"""

import functools
import json
import math
from pathlib import Path

import numpy as np

from features.templates.library.states import LETTERS, NO_STATE
from msa.alphabet import STANDARD, encode
from msa.profile.matrices import PROFILE_COLUMNS

GAP_OPEN, GAP_EXTEND = 10, 1
_CODES = len(STANDARD) + 1
"""Number of codes of residues and of states, the unknown one included."""
_UNKNOWN_STATE, _UNKNOWN_RESIDUE = -1, 0
_REVERSED = 0.75
"""The part of the reversed query's score that is subtracted."""
_LAMBDA, _OFFSET = 0.0684, 0.251
"""Of the share of chains of other folds with at least a score x: exp(_OFFSET - _LAMBDA x)."""
_LOG_ODDS = -0.76, -1.19
"""Log odds of a chain of the same superfamily: slope by the E-value's binary logarithm, and offset."""


@functools.cache
def _matrices() -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of pairs of states and of pairs of residues, int16 [21, 21], half-bits."""
    content = json.loads(Path(__file__).with_name("scores.json").read_text())
    matrices = []
    for name, unknown in (("states", _UNKNOWN_STATE), ("residues", _UNKNOWN_RESIDUE)):
        matrices.append(np.full((_CODES, _CODES), unknown, np.int16))
        matrices[-1][: len(LETTERS), : len(LETTERS)] = content[name]
    return matrices[0], matrices[1]


def residue_codes(sequence: str) -> np.ndarray:
    """Return the codes of residues, uint8 [length]; those beyond the standard twenty are unknown."""
    return np.minimum(encode(sequence), len(STANDARD))


def joint_codes(states: np.ndarray, residues: np.ndarray) -> np.ndarray:
    """Return a letter for each pair of a state and a residue, uint16 [length]."""
    return states.astype(np.uint16) * _CODES + np.minimum(residues, len(STANDARD)).astype(np.uint16)


def state_profile(states: np.ndarray) -> np.ndarray:
    """Return the profile of a query's states alone, int16 [length, 32]; see `msa.profile.pssm`."""
    profile = np.full((len(states), PROFILE_COLUMNS), _UNKNOWN_STATE, np.int16)
    profile[:, : NO_STATE + 1] = _matrices()[0][states]
    return profile


def joint_profile(states: np.ndarray, residues: np.ndarray) -> np.ndarray:
    """Return the profile of a query's states and residues, int16 [length, 441]; columns are `joint_codes`."""
    of_states, of_residues = _matrices()
    sums = of_states[states][:, :, None] + of_residues[residues][:, None, :]
    return sums.reshape(len(states), -1)


def corrected_scores(
    scores: np.ndarray, reversed_scores: np.ndarray, query_length: int, lengths: np.ndarray
) -> np.ndarray:
    """Return bits of alignments, float64 [n], which chains of other folds reach independently of lengths.

    Args:
        scores: int32 [n], half-bits.
        reversed_scores: int32 [n], of the reversed query.
        query_length: residues.
        lengths: int32 [n], residues of the targets.
    """
    size = (query_length * lengths.astype(np.float64)) ** 0.25 / 10
    return (_LAMBDA * (scores - _REVERSED * reversed_scores) / size - _OFFSET) / math.log(2)


def evalues(bits: np.ndarray, chains: int) -> np.ndarray:
    """Return the expected number of chains of other folds with at least these bits in a library."""
    return chains * np.minimum(1.0, 2.0**-bits)


def probabilities(evalues: np.ndarray) -> np.ndarray:
    """Return the probability that chains are of the query's superfamily rather than of another fold."""
    slope, offset = _LOG_ODDS
    return 1 / (1 + np.exp(-(slope * np.log2(np.maximum(evalues, 1e-100)) + offset)))
