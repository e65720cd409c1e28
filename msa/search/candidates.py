"""What passes the gapless filter: the best targets of a query, whole or merged from parts of a database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msa.search.hits import LocalAlignment


class AlignmentSelector(Protocol):
    """A callback that selects by score which candidates are aligned; called from several threads."""

    def __call__(
        self,
        query: int,
        targets: np.ndarray,
        scores: np.ndarray,
        reversed_scores: np.ndarray | None = None,
        /,
    ) -> np.ndarray:
        """Return a mask of the targets to align, bool [n].

        Args:
            query: index of the query.
            targets: int64 [n], target indices.
            scores: int32 [n], half-bits.
            reversed_scores: int32 [n], scores of the same targets against the reversed profile. If None,
                the returned mask selects the targets for which these are computed.
        """
        ...


@dataclass(frozen=True)
class Candidates:
    """The targets of one query that passed the gapless filter, and the alignments of the selected ones.

    Args:
        targets: int64 [n], target indices by descending gapless score, then by index. In a clustered
            database, the cluster members of the aligned representatives follow.
        scores: int32 [n], alignment scores in half-bits; 0 where there is no alignment.
        aligned: int64 [m], indices into `targets` of the aligned ones: selected, with a score above 0.
        reversed_scores: int32 [m], their scores against the reversed profile; 0 where not computed.
        alignments: [m], their alignments.
    """

    targets: np.ndarray
    scores: np.ndarray
    aligned: np.ndarray
    reversed_scores: np.ndarray
    alignments: Sequence[LocalAlignment]


def select_alignments(
    selector: AlignmentSelector | None, query: int, targets: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Return the indices of the candidates to align, int64 [m]; by default all that score above 0."""
    positive = scores > 0
    return np.flatnonzero(positive if selector is None else positive & selector(query, targets, scores))


def best_targets(scores: np.ndarray, most: int, smallest: int) -> np.ndarray:
    """The targets that pass the gapless filter.

    Args:
        scores: int32 [n], half-bits.
        most: how many may pass; of equal ones at the limit the first in the database do.
        smallest: score that a target needs.

    Returns:
        int64 [≤ most], indices of targets, best first, equal ones in database order.
    """
    passing = np.flatnonzero(scores >= smallest)
    if len(passing) > most:
        # only those not below the last place need sorting
        limit = np.partition(scores[passing], len(passing) - most)[len(passing) - most]
        passing = passing[scores[passing] >= limit]
    return passing[np.argsort(-scores[passing], kind="stable")][:most]


def merge_best(parts: Iterable[tuple[np.ndarray, np.ndarray]], most: int) -> np.ndarray:
    """The best targets of a database from the best of each of its parts.

    Args:
        parts: (int64 [n] places in the database, int32 [n] scores) of each part: its best `most` or all that
            pass, each in the order of `best_targets`.
        most: how many may pass.

    Returns:
        int64 [≤ most]: what `best_targets` returns for the whole database.
    """
    parts = list(parts)
    if not parts:
        return np.empty(0, np.int64)
    targets = np.concatenate([places for places, _ in parts])
    scores = np.concatenate([found for _, found in parts])
    return targets[np.lexsort((targets, -scores.astype(np.int64)))][:most]
