"""Query profiles (PSSMs): the score of each residue at each position of the query.

A profile is int16 [length, 32] in the unit of its substitution matrix (half-bits for BLOSUM62): rows are
query positions, columns are letter codes of the target. Scores are integers, corrections included, so that
all engines compute the same sums.
"""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from msa.alphabet import LETTERS, STANDARD, encode
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.profile.context import UNKNOWN, context_frequencies, context_model
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import (
    BLOSUM62,
    CONTEXT,
    PROFILE_COLUMNS,
    RNA,
    SAME_AS,
    background,
    substitution_matrix,
)

MAX_PROFILE_SCORE = 1000
"""Largest absolute score that is accepted in a profile; real profiles stay below a hundred."""

_BIAS_WINDOW = 20
"""Half width of the neighbourhood of a position, in residues."""
_RESIDUE_COUNT = len(STANDARD)
_STANDS_FOR = {"B": "ND", "Z": "QE", "J": "IL", **SAME_AS}
"""The standard residues that each of the other letters may represent."""
_REPLACED = encode("".join(SAME_AS.get(letter, letter) for letter in LETTERS))
"""uint8 [26], the code of the standard residue that a letter counts as, or the letter's own, by code."""


@dataclass(frozen=True)
class QueryProfile:
    """A query and its profile (PSSM).

    Args:
        codes: uint8 [length ≥ 1], letter codes.
        profile: int16 [length, 32], scores in half-bits; column = letter code.
        is_uncorrected: the profile is that of the sequence, without correction for composition.
        max_target_lengths: int32 [n ≥ 1], residues of the longest target that passes the gapless filter, by
            gapless score; the last number applies to all higher scores, too. None if there is no such limit.
    """

    codes: np.ndarray
    profile: np.ndarray
    is_uncorrected: bool = False
    max_target_lengths: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ProfileRecord(FastaRecord):
    """A query with its own profile, which is used instead of one computed from its sequence.

    Attributes:
        profile: int16 [length, 32].
        source: short description of the profile's origin, for messages.
        of_family: the profile describes a family and is searched with the gap costs and statistics of family
            profiles.

    Raises:
        InputError: the profile's shape, dtype or scores are invalid.
    """

    profile: np.ndarray = field(repr=False)
    source: str
    of_family: bool = True

    def __post_init__(self) -> None:
        expected = (len(self.sequence), PROFILE_COLUMNS)
        if self.profile.dtype != np.int16 or self.profile.shape != expected:
            raise InputError(
                f"query {self.id!r}: its profile is {self.profile.dtype} {list(self.profile.shape)}, "
                f"expected int16 {list(expected)}"
            )
        if self.profile.size and max(self.profile.max(), -int(self.profile.min())) > MAX_PROFILE_SCORE:
            raise InputError(
                f"query {self.id!r}: its profile has scores beyond {MAX_PROFILE_SCORE} half-bits"
            )


def query_profile(codes: np.ndarray, comp_bias_corr: bool = True, matrix: str = BLOSUM62) -> np.ndarray:
    """Compute the profile of a single sequence: the matrix's rows, shifted by the composition correction.

    With CONTEXT, scores are log odds of the frequencies that the context model predicts, corrected as those
    of a family. U and O count as C and K; other letters have the rows of BLOSUM62.

    The correction is rounded to the nearest integer, halves away from zero, and applies to all columns of a
    row, X included.

    Args:
        codes: uint8 [length], the query's letter codes without mask bits.
        comp_bias_corr: apply `composition_bias`.
        matrix: name of the substitution matrix.

    Returns:
        int16 [length, 32], C-contiguous.
    """
    if matrix == CONTEXT:
        return _context_profile(codes, comp_bias_corr)
    profile = substitution_matrix(matrix)[codes]
    if comp_bias_corr:
        bias = composition_bias(codes, matrix)
        profile = profile + (np.sign(bias) * np.floor(np.abs(bias) + 0.5)).astype(np.int16)[:, None]
    return np.ascontiguousarray(profile, np.int16)


def _context_profile(codes: np.ndarray, comp_bias_corr: bool) -> np.ndarray:
    replaced = _REPLACED[codes]
    unknown = replaced >= UNKNOWN
    frequencies = context_frequencies(replaced)
    # they add nothing to the correction of their neighbours
    frequencies = np.where(unknown[:, None], _standard_background(), frequencies)
    profile = profile_from_frequencies(frequencies, comp_bias_corr, CONTEXT)
    profile[unknown] = substitution_matrix()[codes[unknown]]
    return profile


def composition_bias(codes: np.ndarray, matrix: str = BLOSUM62) -> np.ndarray:
    """Compute the shift of each position's scores that reduces the weight of locally common residues.

    A residue that resembles its neighbours (in a charged stretch, a coiled coil, a repeat) matches unrelated
    proteins with the same local composition. The shift at position i is the mean score of residue x_i against
    the background minus its mean score against positions i−20 … i+19, where position i itself adds nothing to
    the sum (Hauser, Mayer & Söding 2013, kClust; in the form of MMseqs2, 2017).

    Args:
        codes: uint8 [length], the query's letter codes.
        matrix: name of the substitution matrix.

    Returns:
        float64 [length], in the matrix's unit.
    """
    length = len(codes)
    # [length, 32]: row i holds the scores of residue x_i
    scores = substitution_matrix(matrix).astype(np.int64)[codes]
    positions = np.arange(length)
    first, end = _neighbourhoods(length)
    # counts[i] holds each letter's count before position i; the difference of two rows counts a window
    counts = np.zeros((length + 1, scores.shape[1]), np.int64)
    counts[positions + 1, codes] = 1
    counts = counts.cumsum(axis=0)
    neighbours = ((counts[end] - counts[first]) * scores).sum(axis=1) - scores[positions, codes]
    expected = scores[:, : len(LETTERS)] @ background(matrix)
    return expected - neighbours / (end - first)


def profile_from_frequencies(
    frequencies: np.ndarray, comp_bias_corr: bool = True, matrix: str = BLOSUM62
) -> np.ndarray:
    """Compute a profile from residue frequencies: log odds against the background, in the matrix's unit.

    Log odds are divided by the matrix's λ, as in PSI-BLAST (Altschul et al., Nucleic Acids Res. 25:3389,
    1997), so that its E-value statistics apply to the profile.

    Args:
        frequencies: float64 [length, 20], > 0, of the standard residues; rows do not have to sum to 1.
        comp_bias_corr: shift each position's scores by the mean score of its neighbourhood, as
            `composition_bias` does for a single sequence.
        matrix: name of the substitution matrix.

    Returns:
        int16 [length, 32], C-contiguous.
    """
    frequencies = frequencies / frequencies.sum(axis=1, keepdims=True)
    expected = background(matrix)[:_RESIDUE_COUNT]
    occurs = expected > 0
    scores = np.zeros(frequencies.shape)
    odds = frequencies[:, occurs] / expected[occurs]
    scores[:, occurs] = np.log(odds) / GUMBEL_TABLES[matrix].ungapped_lambda
    if comp_bias_corr:
        scores += _frequency_bias(scores, frequencies, expected)[:, None]
    return _add_other_letters(scores, matrix)


class ContextTables(NamedTuple):
    """The arrays from which compiled code computes context profiles without composition correction.

    Attributes:
        embedding: see `msa.profile.context.ContextModel`.
        bias: see `msa.profile.context.ContextModel`.
        output: see `msa.profile.context.ContextModel`.
        base: see `msa.profile.context.ContextModel`.
        replaced: uint8 [26], the code that each letter counts as.
        background: float64 [20], of the standard residues.
        lambda_: nats per unit of score.
        unknown_rows: int16 [26, 26], rows of letters other than the standard twenty.
        stands_for: int64 [26, 2], the standard residues whose scores' mean is that of a letter; -1 for none.
    """

    embedding: np.ndarray
    bias: np.ndarray
    output: np.ndarray
    base: np.ndarray
    replaced: np.ndarray
    background: np.ndarray
    lambda_: float
    unknown_rows: np.ndarray
    stands_for: np.ndarray


@functools.cache
def context_tables() -> ContextTables:
    """Return the arrays of the context model."""
    model, lambda_ = context_model(), GUMBEL_TABLES[CONTEXT].ungapped_lambda
    stands_for = np.full((len(LETTERS), 2), -1)
    for letter, residues in _STANDS_FOR.items():
        stands_for[LETTERS.index(letter)] = [
            STANDARD.index(residue) for residue in (residues[0], residues[-1])
        ]
    unknown_rows = np.ascontiguousarray(substitution_matrix()[:, : len(LETTERS)])
    return ContextTables(
        model.embedding, model.bias, model.output, model.base, _REPLACED,
        np.ascontiguousarray(_standard_background()), lambda_, unknown_rows, stands_for,
    )  # fmt: skip


def _standard_background() -> np.ndarray:
    return background()[:_RESIDUE_COUNT]


def _neighbourhoods(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first position and the end of each position's neighbourhood."""
    positions = np.arange(length)
    return np.maximum(0, positions - _BIAS_WINDOW), np.minimum(length, positions + _BIAS_WINDOW)


def _frequency_bias(scores: np.ndarray, frequencies: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Compute each position's mean score against the background minus that against its neighbours."""
    length = len(scores)
    first, end = _neighbourhoods(length)
    sums = np.zeros((length + 1, _RESIDUE_COUNT))
    np.cumsum(frequencies, axis=0, out=sums[1:])
    neighbours = ((sums[end] - sums[first] - frequencies) * scores).sum(axis=1)
    return np.asarray(scores @ expected - neighbours / (end - first))


def _add_other_letters(scores: np.ndarray, matrix: str) -> np.ndarray:
    """Round the scores of the 20 standard residues and derive those of the other letters."""
    # exp and log may differ in the last bit between machines, which must not change the rounded score
    rounded = np.floor(np.round(scores, 6) + 0.5)
    profile = np.empty((len(scores), PROFILE_COLUMNS), np.int16)
    profile[:, :_RESIDUE_COUNT] = rounded
    expected = background(matrix)[:_RESIDUE_COUNT]
    unknown = np.minimum(np.floor(np.round(scores @ expected, 6) + 0.5), -1)
    profile[:, _RESIDUE_COUNT:] = unknown[:, None]
    if matrix == RNA:
        profile[:, LETTERS.index("N")] = -1
        profile[:, LETTERS.index("U")] = profile[:, LETTERS.index("T")]
        return profile
    for letter, residues in _STANDS_FOR.items():
        codes = [STANDARD.index(residue) for residue in residues]
        profile[:, LETTERS.index(letter)] = np.floor(rounded[:, codes].mean(axis=1) + 0.5)
    return profile
