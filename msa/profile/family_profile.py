"""Family profiles: the PSSM of a query aligned to its homologs.

Sequence weights are position-based (Henikoff & Henikoff, J. Mol. Biol. 243:574, 1994), so that many similar
rows count no more than a few. Pseudocounts are the residue frequencies that the substitution matrix predicts
from the observed residues; their share decreases with the number of different residues observed around the
position, as in HH-suite (Steinegger et al., BMC Bioinformatics 20:473, 2019). With CONTEXT, the context model
predicts them from the residues observed around the position.
"""

import numpy as np

from msa.alphabet import GAP, NUCLEOTIDES_AS_STANDARD, STANDARD
from msa.base.cpu_kernels.jit import kernel
from msa.profile.context import family_context_frequencies
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import BLOSUM62, CONTEXT, RNA, background, substitution_matrix
from msa.profile.pssm import profile_from_frequencies

MAX_MEMBER_IDENTITY = 0.95
"""A family's row is redundant if at least this fraction of its residues is identical to another row's."""

PSEUDOCOUNTS, PSEUDOCOUNT_DECAY = 1.4, 6.0
"""Share of pseudocounts at a position with n effective residues: PSEUDOCOUNTS / (1 + (n − 1) /
PSEUDOCOUNT_DECAY), at most 1. docs/sensitivity.md compares other values."""
RNA_PSEUDOCOUNT_DECAY = 0.3
"""The same for RNA, whose positions have at most four different residues."""

_AVERAGED_NEIGHBOURS = 10
"""Positions on either side over which the number of effective residues is averaged."""
_BLOCK = 64
"""Columns compared before checking whether two rows already differ enough; at most 255."""
_RESIDUE_COUNT = len(STANDARD)


def distinct_rows(rows: np.ndarray, max_identity: float) -> np.ndarray:
    """Remove rows that are nearly contained in an earlier row that is kept.

    Args:
        rows: uint8 [n ≥ 1, columns], letter codes or GAP.
        max_identity: a row is removed if at least this fraction of its residues is identical to the residues
            of one kept row in the same columns.

    Returns:
        uint8 [≤ n, columns], in order. The first row is always kept; other rows without residues are removed.
    """
    return rows[_is_distinct(rows, max_identity)]


@kernel
def _is_distinct(rows, max_identity):  # type: ignore[no-untyped-def]
    count, columns = rows.shape
    kept = np.zeros(count, np.bool_)
    kept_indices = np.empty(count, np.int64)
    kept_count = 0
    for i in range(count):
        row, residues = rows[i], 0
        first, end = columns, 0
        for c in range(columns):
            if row[c] != GAP:
                residues += 1
                first, end = min(first, c), c + 1
        # compare within the span of this row only: rows of a long query may cover different domains
        row = row[first:end]
        allowed = residues - max_identity * residues
        new = residues > 0
        # backwards, because rows are sorted by E-value, in which similar rows are neighbours
        for k in range(kept_count - 1, -1, -1):
            if _count_differences(row, rows[kept_indices[k], first:end], allowed) <= allowed:
                new = False
                break
        if new or i == 0:
            kept[i] = True
            kept_indices[kept_count] = i
            kept_count += 1
    return kept


@kernel
def _count_differences(row, other, limit):  # type: ignore[no-untyped-def]
    """Count the residues of `row` that differ from `other`; stop early once there are more than `limit`."""
    differences = 0
    blocks_end = len(row) // _BLOCK * _BLOCK
    # blocks of fixed length compile to a loop without branches; most pairs differ enough in the first block
    for start in range(0, blocks_end, _BLOCK):
        block, other_block = row[start : start + _BLOCK], other[start : start + _BLOCK]
        # a sum in one byte, so that vectors hold as many sums as residues
        in_block = np.uint8(0)
        for c in range(_BLOCK):
            differs = (block[c] != GAP) & (block[c] != other_block[c])
            in_block = np.uint8(in_block + np.uint8(differs))
        differences += int(in_block)
        if differences > limit:
            return differences
    for c in range(blocks_end, len(row)):
        differences += (row[c] != GAP) & (row[c] != other[c])
    return differences


def family_profile(rows: np.ndarray, comp_bias_corr: bool = True, matrix: str = BLOSUM62) -> np.ndarray:
    """Compute the profile of a family.

    Args:
        rows: uint8 [n ≥ 1, length], letter codes or GAP; the query first.
        comp_bias_corr: see `profile_from_frequencies`.
        matrix: name of the substitution matrix that defines pseudocounts and the unit of the scores.

    Returns:
        int16 [length, 32], C-contiguous.
    """
    decay = PSEUDOCOUNT_DECAY
    if matrix == RNA:
        rows, decay = NUCLEOTIDES_AS_STANDARD[rows], RNA_PSEUDOCOUNT_DECAY
    observed = _weighted_frequencies(rows, background(matrix)[:_RESIDUE_COUNT])
    share = _pseudocount_share(observed, decay)[:, None]
    if matrix == CONTEXT:
        predicted = family_context_frequencies(observed)
    else:
        predicted = observed @ conditional_probabilities(matrix).T
    return profile_from_frequencies((1 - share) * observed + share * predicted, comp_bias_corr, matrix)


def conditional_probabilities(matrix: str) -> np.ndarray:
    """Compute the probabilities of residue a given residue b, float64 [20, 20]; columns sum to 1."""
    frequencies = background(matrix)[:_RESIDUE_COUNT]
    scores = substitution_matrix(matrix)[:_RESIDUE_COUNT, :_RESIDUE_COUNT]
    joint = np.outer(frequencies, frequencies) * np.exp(GUMBEL_TABLES[matrix].ungapped_lambda * scores)
    return np.asarray(joint / np.where(frequencies > 0, joint.sum(axis=0), 1))


def _weighted_frequencies(rows: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Compute weighted residue frequencies, float64 [length, 20], rows summing to 1.

    A position where no row has a standard residue gets the background frequencies.
    """
    sums = _weighted_counts(rows, _RESIDUE_COUNT)
    total = sums.sum(axis=1, keepdims=True)
    return np.where(total > 0, sums / np.where(total > 0, total, 1), expected)


@kernel
def _weighted_counts(rows, residue_count):  # type: ignore[no-untyped-def]
    """Return the summed weights of the rows with each residue, float64 [columns, residue_count].

    Each column divides a weight of 1 equally among its distinct residues, and each residue's share equally
    among the rows that have it; a row's weight is the mean over its columns.
    """
    count, columns = rows.shape
    counts = np.zeros((columns, residue_count), np.int64)
    for k in range(count):
        for c in range(columns):
            if rows[k, c] < residue_count:
                counts[c, rows[k, c]] += 1
    shares = np.zeros((columns, residue_count))
    for c in range(columns):
        distinct = 0
        for residue in range(residue_count):
            distinct += counts[c, residue] > 0
        for residue in range(residue_count):
            if counts[c, residue] > 0:
                shares[c, residue] = 1.0 / (distinct * counts[c, residue])
    sums = np.zeros((columns, residue_count))
    for k in range(count):
        weight, residues = 0.0, 0
        for c in range(columns):
            if rows[k, c] < residue_count:
                weight += shares[c, rows[k, c]]
                residues += 1
        weight /= max(residues, 1)
        for c in range(columns):
            if rows[k, c] < residue_count:
                sums[c, rows[k, c]] += weight
    return sums


def _pseudocount_share(observed: np.ndarray, decay: float) -> np.ndarray:
    """Compute the share of pseudocounts at each position, float64 [length], 0 to 1."""
    entropy = -(observed * np.log(np.where(observed > 0, observed, 1))).sum(axis=1)
    padded = np.pad(np.exp(entropy), _AVERAGED_NEIGHBOURS, mode="edge")
    window = 2 * _AVERAGED_NEIGHBOURS + 1
    effective = np.lib.stride_tricks.sliding_window_view(padded, window).mean(axis=1)
    return np.minimum(1.0, PSEUDOCOUNTS / (1 + (effective - 1) / decay))
