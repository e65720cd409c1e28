"""Merging of the hits of a split database's parts into those of a search of the whole.

A search of a part ranks its targets with the numbers of the whole: E-values refer to all residues, and ties
are broken by the index in the whole database. Two limits depend on the targets of all parts: how many pass
the gapless filter, and how many become hits. The search of a part therefore applies them to the part alone,
which keeps at least the targets that the whole would keep, and `merge_hits` applies them again to all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.search.engine import FilteredTargets, merge_best_targets
from msa.search.hits import Hits, StoredSequences
from msa.search.settings import SearchSettings


@dataclass(frozen=True, eq=False)
class PartHits:
    """The hits of one query in one part of a split database; indices are those of the whole database.

    Args:
        hits: hits in any order.
        representatives: int64 [n], the representative of the cluster of each hit; the hit itself without
            clusters.
        filtered: the representatives that passed the gapless filter.
    """

    hits: Hits
    representatives: np.ndarray
    filtered: FilteredTargets

    @classmethod
    def from_search(cls, hits: Hits, database: TargetDatabase) -> "PartHits":
        """Convert the hits of a search of a part with `part_settings` and `keep_filtered`."""
        assert hits.filtered is not None
        return cls(
            replace(hits, targets=database.whole_indices(hits.targets), filtered=None),
            database.whole_indices(database.cluster_representatives(hits.targets)),
            replace(hits.filtered, targets=database.whole_indices(hits.filtered.targets)),
        )


def part_settings(settings: SearchSettings) -> SearchSettings:
    """Return the settings for the search of a part, in which all candidates may become hits."""
    return replace(settings, max_seqs=settings.max_candidates)


def merge_hits(parts: Sequence[PartHits], settings: SearchSettings) -> Hits:
    """Merge the hits of one query in all parts of a split database.

    Args:
        parts: one for each part.
        settings: settings of the search of the whole.

    Returns:
        The hits that a search of the whole database with one iteration finds, in its order.
    """
    hits = concatenate_hits([part.hits for part in parts])
    representatives = np.concatenate([part.representatives for part in parts])
    filtered = merge_best_targets(
        ((part.filtered.targets, part.filtered.scores) for part in parts), settings.max_candidates
    )
    order = np.lexsort((hits.targets, -hits.alignments.records[:, 0], hits.evalues))
    order = order[np.isin(representatives[order], filtered.targets)]
    hits, representatives = hits.subset(order), representatives[order]
    is_representative = hits.targets == representatives
    if settings.has_thresholds:
        # every hit counts that meets the thresholds, as in the search of the whole
        kept = np.cumsum(is_representative) <= settings.max_seqs
    else:
        # the best are selected before the members of their clusters are aligned
        best = representatives[is_representative][: settings.max_seqs]
        kept = np.isin(representatives, best)
    capped = int(np.count_nonzero(is_representative)) > settings.max_seqs
    return replace(hits.subset(kept), capped=capped)


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
