"""E-values of candidates from all alignments of the target's profile, the third evidence near the limit.

The best alignment of the query's profile with the target is one of many, and the target's own context says
which of its residues are conserved. The Forward score sums over all local alignments of the target's context
profile with the query, as HMMER does for its profiles (Eddy, PLoS Comput. Biol. 4:e1000069, 2008), so that
targets with several weak alignments, or with long gaps, are found. docs/sensitivity.md compares other
profiles and scores.

Only the target's residues near the best alignment have a profile, which costs less and finds the same.
"""

import functools
import math
from collections.abc import Mapping

import numpy as np

from msa.base.cpu_kernels.threads import chunks_of_equal_work, run_in_threads
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.pair_statistics import PairStatistics
from msa.profile.context import context_model
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import CONTEXT
from msa.profile.pssm import QueryProfile, context_tables
from msa.profile.statistics import apply_elementwise
from msa.search.scoring.composition import SEQUENCE_CHANCE_FRACTION

MIN_EVALUE, MAX_EVALUE = 1e-4, 0.3
"""Smallest and largest E-value, before those of the second matrix and of Forward scores are included, of
candidates that have a Forward score."""

_FLANK = 100
"""Residues of a target on either side of the best alignment that belong to its profile."""
_GAP_OPEN, _GAP_EXTEND = 0.01, 0.6
"""Probabilities of a gap's first and of each further residue."""
_K = 10.0
"""K of Forward scores, whose λ is 1 in nats (Eddy, 2008)."""
_MIN_PAIRS = 1e5
"""Smallest number of residue pairs with which the threshold of the correction by the reversed query is
computed."""
_DECIMALS = 6
"""Decimals of Forward scores: logarithms may differ in the last bit between machines."""
_MAX_EXPONENT = 600.0
"""Largest argument of exp, far from an overflow; larger E-values are no evidence, either."""
_CHUNK_CELLS = 2**22
"""Cells of the matrices of a chunk that a thread computes, which takes about 10 ms."""
_LOWEST_SCORE = -128
"""Lowest score that has a weight of its own; lower scores have its weight."""


def forward_evalues(
    profiles: Mapping[int, QueryProfile],
    queries: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    records: np.ndarray,
    excess: np.ndarray,
    pairs: PairStatistics,
    threads: int,
) -> np.ndarray:
    """Compute the E-values of Forward scores, K m N e^−F times the factor of the target's length.

    F is the corrected score in nats, m the query's length and N the number of residues in the database.

    Args:
        profiles: of the queries, by index.
        queries: int64 [n], the query of each pair.
        targets: sequences of the database.
        indices: int64 [n], targets of the pairs.
        records: int32 [n, 8], records of the best alignments; see AlignmentPaths.
        excess: int64 [n], corrections of the best alignments' context scores.
        pairs: their statistics.
        threads: CPU threads. Does not affect the result.

    Returns:
        float64 [n].
    """
    windows = _windows(targets, indices, records)
    scores = _forward_scores(profiles, queries, targets, windows, threads)
    cells = np.maximum(pairs.query_lengths * pairs.target_lengths.astype(np.float64), _MIN_PAIRS)
    of_reversed = scores[:, 1] - apply_elementwise(math.log, _K * cells / SEQUENCE_CHANCE_FRACTION)
    corrected = scores[:, 0] - np.maximum(excess * pairs.parameters.lambda_, of_reversed)
    starts = _K * pairs.query_lengths * float(pairs.database_residues)
    chances = apply_elementwise(math.exp, np.minimum(-corrected, _MAX_EXPONENT))
    return np.asarray(starts * chances * pairs.length_factors)


def _windows(targets: SequenceArrays, indices: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return the parts of targets that have a profile; see `kernels.fill_forward_scores`."""
    offsets, neighbours = targets.offsets[indices], context_model().neighbours
    ends = offsets + targets.lengths[indices]
    first = np.maximum(offsets + records[:, 3] - _FLANK, offsets)
    end = np.minimum(offsets + records[:, 4] + 1 + _FLANK, ends)
    return np.stack(
        [np.maximum(first - neighbours, offsets), first, end, np.minimum(end + neighbours, ends)], axis=1
    )


def _forward_scores(
    profiles: Mapping[int, QueryProfile],
    queries: np.ndarray,
    targets: SequenceArrays,
    windows: np.ndarray,
    threads: int,
) -> np.ndarray:
    """Compute Forward scores, float64 [n, 2], for the queries and the reversed queries, in nats."""
    from msa.search.scoring import kernels  # imports numba

    used, owners = np.unique(queries, return_inverse=True)
    codes = [profiles[query].codes for query in used.tolist()]
    ends = np.cumsum([len(each) for each in codes])
    spans = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)[owners]
    scores, tables, letters = np.empty((len(windows), 2)), context_tables(), np.concatenate(codes)

    def compute(first: int, end: int) -> None:
        kernels.fill_forward_scores(
            tables, _weights(), _GAP_OPEN, _GAP_EXTEND, targets.residues, windows[first:end],
            letters, spans[first:end], scores[first:end],
        )  # fmt: skip

    cells = (windows[:, 2] - windows[:, 1]) * (spans[:, 1] - spans[:, 0])
    run_in_threads(compute, chunks_of_equal_work(cells, _CHUNK_CELLS), threads)
    return np.round(scores, _DECIMALS)


@functools.cache
def _weights() -> np.ndarray:
    """Return the weights of pairs by score, from the lowest on.

    The factor makes the weights of all that can follow a pair, another pair or gaps, 1 in total.
    """
    lambda_, followers = GUMBEL_TABLES[CONTEXT].ungapped_lambda, 1 + 2 * _GAP_OPEN / (1 - _GAP_EXTEND)
    scores = range(_LOWEST_SCORE, -_LOWEST_SCORE)
    return np.array([math.exp(lambda_ * score) / followers for score in scores])
