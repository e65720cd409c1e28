"""The targets that pass the gapless filter."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class FilteredTargets:
    """The targets of one query that passed the gapless filter.

    Args:
        targets: int64 [n], target indices; those of the whole query and of each window are sorted separately,
            by descending score, then by index.
        scores: int32 [n], gapless scores, half-bits.
        windows: int32 [n], 0 for targets of the whole query, k for those of its k-th window.
        passes: bool [n], True for targets that may become hits.
    """

    targets: np.ndarray
    scores: np.ndarray
    windows: np.ndarray
    passes: np.ndarray

    @classmethod
    def of_query(cls, targets: np.ndarray, scores: np.ndarray) -> "FilteredTargets":
        """Return the targets of a query without windows."""
        return cls(targets, scores, np.zeros(len(targets), np.int32), np.ones(len(targets), bool))

    def of_window(self, window: int) -> "FilteredTargets":
        """Return the targets of one window, or of the whole query (0)."""
        selected = self.windows == window
        return FilteredTargets(
            self.targets[selected], self.scores[selected], self.windows[selected], self.passes[selected]
        )

    @classmethod
    def of_windows(cls, parts: Sequence["FilteredTargets"]) -> "FilteredTargets":
        """Combine the targets of the whole query (first) and of each of its windows."""
        return cls(
            np.concatenate([part.targets for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.targets) for part in parts]),
            np.concatenate([part.passes for part in parts]),
        )


def best_targets(
    scores: np.ndarray,
    max_targets: int,
    min_score: int,
    lengths: np.ndarray | None = None,
    longest: np.ndarray | None = None,
) -> np.ndarray:
    """Return the targets that pass the gapless filter.

    Args:
        scores: int32 [n], gapless scores of all targets.
        max_targets: maximum number of targets that pass.
        min_score: smallest score that passes.
        lengths: int32 [n], residues of the targets; only used with `longest`.
        longest: see `QueryProfile.max_target_lengths`.

    Returns:
        int64 [≤ max_targets], target indices by descending score, then by index.
    """
    passing = np.flatnonzero(scores >= min_score)
    if longest is not None and lengths is not None:
        limits = longest.take(np.minimum(scores[passing], len(longest) - 1))
        passing = passing[lengths[passing] <= limits]
    if len(passing) > max_targets:
        # sort only the targets that reach the lowest passing score
        limit = np.partition(scores[passing], len(passing) - max_targets)[len(passing) - max_targets]
        passing = passing[scores[passing] >= limit]
    return passing[np.argsort(-scores[passing], kind="stable")][:max_targets]


def merge_best_targets(parts: Iterable[tuple[np.ndarray, np.ndarray]], max_targets: int) -> FilteredTargets:
    """Merge the best targets of each part of a database.

    Args:
        parts: target indices in the whole database (int64 [n]) and scores (int32 [n]) of each part: its best
            `max_targets`, or all that pass, in the order of `best_targets`.
        max_targets: maximum number of targets that pass.

    Returns:
        At most `max_targets`, as `best_targets` returns them for the whole database.
    """
    parts = list(parts)
    if len(parts) == 1:
        return FilteredTargets.of_query(*(array[:max_targets] for array in parts[0]))
    targets = np.concatenate([np.empty(0, np.int64), *(indices for indices, _ in parts)])
    scores = np.concatenate([np.empty(0, np.int32), *(part_scores for _, part_scores in parts)])
    # one key for both criteria, because np.lexsort is several times slower; indices are below 2³¹
    order = np.argsort(targets - (scores.astype(np.int64) << 31))[:max_targets]
    return FilteredTargets.of_query(targets[order], scores[order])


def merge_filtered(parts: Sequence[FilteredTargets], max_targets: int) -> FilteredTargets:
    """Merge the targets of each part of a database.

    Args:
        parts: see `merge_best_targets`; indices are those of the whole database.
        max_targets: maximum number of targets of the whole query, and of each window.
    """
    merged = []
    for window in range(1 + max(int(part.windows.max(initial=0)) for part in parts)):
        of_window = [part.of_window(window) for part in parts]
        best = merge_best_targets(((part.targets, part.scores) for part in of_window), max_targets)
        passing = np.concatenate([part.targets[part.passes] for part in of_window])
        merged.append(replace(best, passes=np.isin(best.targets, passing)))
    return FilteredTargets.of_windows(merged)
