"""What passes the gapless filter: the best targets of a query, whole or merged from parts of a database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msa.search.local_alignment import LocalAlignment


class Wanted(Protocol):
    """Says from their scores whose alignments are asked for; it may be called from several threads."""

    def __call__(
        self,
        query: int,
        targets: np.ndarray,
        scores: np.ndarray,
        reversed_scores: np.ndarray | None = None,
        /,
    ) -> np.ndarray:
        """bool [n].

        Args:
            query: index of a query.
            targets: int64 [n].
            scores: int32 [n], half-bits.
            reversed_scores: int32 [n], what the same targets score against the reversed profile; without
                them, whether they are worth finding out.
        """
        ...


@dataclass(frozen=True)
class Candidates:
    """The targets of one query that passed the gapless filter, those wanted of them aligned.

    Args:
        targets: int64 [n], places in the database, by gapless score from high to low, then by place; in a
            database with clusters members of those wanted follow.
        scores: int32 [n], scores of the alignments, half-bits; 0 where there is none.
        wanted: int64 [m], which of them are aligned: those that score above 0 and were asked for.
        reversed_scores: int32 [m], what those score against the reversed profile; 0 where that was not asked.
        alignments: [m], their alignments.
    """

    targets: np.ndarray
    scores: np.ndarray
    wanted: np.ndarray
    reversed_scores: np.ndarray
    alignments: Sequence[LocalAlignment]


def wanted_of(wanted: Wanted | None, query: int, targets: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """int64 [m], which candidates of a query may be worth an alignment; without `wanted`, all above 0."""
    aligned = scores > 0
    return np.flatnonzero(aligned if wanted is None else aligned & wanted(query, targets, scores))


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
