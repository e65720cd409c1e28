"""Merging of the hits of a split database's parts into those of a search of the whole.

A search of a part ranks its targets as a search of the whole database would: E-values refer to all residues,
and ties are broken by the index in the whole database. Two limits depend on the targets of all parts: how
many pass the gapless filter, and how many become hits. The search of a part applies them to the part alone,
which keeps at least the targets that a search of the whole would keep, and `merge_hits` applies them to the
targets of all parts.

In an iterated search, the search of each part reads the hits of all parts in the previous iterations, and
computes the same profiles from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import FilteredTargets, merge_filtered
from msa.hits.hits import Hits, QueryHits, StoredSequences
from msa.search.database_search import apply_thresholds
from msa.search.windows import best_hits


@dataclass(frozen=True, eq=False)
class PartHits:
    """The hits of one query in one part of a split database; indices are those of the whole database.

    Args:
        hits: hits in any order.
        representatives: int64 [n], the representative of each hit's cluster; without clusters, the hit
            itself.
        is_member: bool [n], True for hits that may join the query's family.
        filtered: the representatives that passed the gapless filter.
    """

    hits: Hits
    representatives: np.ndarray
    is_member: np.ndarray
    filtered: FilteredTargets

    @classmethod
    def from_search(cls, found: QueryHits, database: TargetDatabase) -> "PartHits":
        """Convert the hits of one query in a part."""
        hits = found.hits
        assert hits.filtered is not None
        return cls(
            replace(hits, targets=database.whole_indices(hits.targets), filtered=None),
            database.whole_indices(database.cluster_representatives(hits.targets)),
            found.is_member,
            replace(hits.filtered, targets=database.whole_indices(hits.filtered.targets)),
        )


def merge_hits(parts: Sequence[PartHits], settings: SearchSettings, has_left: bool = False) -> Hits:
    """Merge the hits of one query in all parts of a split database.

    Args:
        parts: the hits in each part, from the last iteration in which the query was searched.
        settings: settings of the search of the whole.
        has_left: whether the query left the search before its last iteration.

    Returns:
        The hits that a search of the whole database finds, in its order.
    """
    merged, is_representative = merge_iteration(parts, settings)
    hits = merged.hits
    if has_left:
        kept = hits.evalues <= settings.evalue
        hits = replace(hits.subset(kept), capped=hits.capped and bool(kept.all()))
        is_representative = is_representative[kept]
    return apply_thresholds(hits, is_representative, settings)


def merge_iteration(parts: Sequence[PartHits], settings: SearchSettings) -> tuple[QueryHits, np.ndarray]:
    """Merge the hits of one query in one iteration.

    With thresholds of identity or coverage, `max_seqs` is not applied, since it limits only hits that meet
    them.

    Returns:
        The hits, and a mask of those that are cluster representatives, bool [n].
    """
    hits = concatenate_hits([part.hits for part in parts])
    representatives = np.concatenate([part.representatives for part in parts])
    is_member = np.concatenate([part.is_member for part in parts])
    filtered = merge_filtered([part.filtered for part in parts], settings.max_candidates)
    order = np.lexsort((hits.targets, -hits.alignments.records[:, 0], hits.evalues))
    order = order[np.isin(representatives[order], filtered.targets[filtered.passes])]
    is_representative = hits.targets[order] == representatives[order]
    capped = False
    if not settings.has_thresholds:
        # the best are selected before the members of their clusters are aligned
        best = order[is_representative]
        is_kept = best_hits(hits.alignments.records[best], hits.query_length, settings.max_seqs)
        kept = np.isin(representatives[order], representatives[best[is_kept]])
        capped = not is_kept.all()
        order, is_representative = order[kept], is_representative[kept]
    return QueryHits(replace(hits.subset(order), capped=capped), is_member[order]), is_representative


def concatenate_hits(parts: Sequence[Hits]) -> Hits:
    """Concatenate hits of one query; the result has copies of the target sequences."""
    lines = [line for part in parts for line in part.headers]
    arrays = SequenceArrays.concatenate(
        [part.source.arrays.codes(row) for part in parts for row in part.rows.tolist()]
    )
    is_reversed = np.concatenate([part.source.are_reversed(part.rows) for part in parts])
    return Hits(
        parts[0].query_length,
        StoredSequences(lines, arrays, np.flatnonzero(is_reversed)),
        np.arange(len(lines)),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.bits for part in parts]),
        np.concatenate([part.evalues for part in parts]),
        AlignmentPaths.concatenate([part.alignments for part in parts]),
    )
