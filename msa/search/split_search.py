"""Merging of the hits of a split database's parts into those of a search of the whole.

A search of a part ranks its targets with the numbers of the whole: E-values refer to all residues, and ties
are broken by the index in the whole database. Two limits depend on the targets of all parts: how many pass
the gapless filter, and how many become hits. The search of a part therefore applies them to the part alone,
which keeps at least the targets that the whole would keep, and `merge_hits` applies them again to all.

In an iterated search, each iteration needs the hits of all parts in the one before, from which the search of
every part makes the same profiles again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.search.engine import FilteredTargets, merge_filtered
from msa.search.hits import Hits, QueryHits, StoredSequences
from msa.search.search import apply_thresholds
from msa.search.settings import SearchSettings
from msa.search.windows import best_hits


@dataclass(frozen=True, eq=False)
class PartHits:
    """The hits of one query in one part of a split database; indices are those of the whole database.

    Args:
        hits: hits in any order.
        representatives: int64 [n], the representative of the cluster of each hit; the hit itself without
            clusters.
        is_member: bool [n], hits that may join the query's family.
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
        parts: one for each part, of the last iteration in which the query took part.
        settings: settings of the search of the whole.
        has_left: whether that was not the last iteration of the search.

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
    """Merge the hits of one query in one iteration; return them, and which are representatives, bool [n].

    With thresholds of identity or coverage, `max_seqs` limits only the hits that meet them.
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
        is_kept = best_hits(hits.alignments.subset(best), hits.query_length, settings.max_seqs)
        kept = np.isin(representatives[order], representatives[best[is_kept]])
        capped = not is_kept.all()
        order, is_representative = order[kept], is_representative[kept]
    return QueryHits(replace(hits.subset(order), capped=capped), is_member[order]), is_representative


def concatenate_hits(parts: Sequence[Hits]) -> Hits:
    """Concatenate hits of one query; only their sequences are copied, not their whole sources."""
    lines = [line for part in parts for line in part.headers]
    codes = [part.source.arrays.codes(row) for part in parts for row in part.rows.tolist()]
    lengths = np.array([len(each) for each in codes], np.int32)
    residues = np.concatenate([np.empty(0, np.uint8), *codes])
    arrays = SequenceArrays(residues, np.cumsum(lengths, dtype=np.int64) - lengths, lengths)
    return Hits(
        parts[0].query_length,
        StoredSequences(lines, arrays),
        np.arange(len(lines)),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.bits for part in parts]),
        np.concatenate([part.evalues for part in parts]),
        AlignmentPaths.concatenate([part.alignments for part in parts]),
    )
