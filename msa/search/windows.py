"""Long queries: their windows pass the gapless filter separately, and every region keeps its best hits.

A single ranking of a long query's targets would list the relatives of its best-conserved domain only. The
rules are described in docs/search.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from msa.engines.engine import Candidates, Engine, EngineRequest, EngineWrapper, SelectionCriteria
from msa.hits.filtered_targets import FilteredTargets
from msa.profile.pssm import QueryProfile

WINDOW = 2000
"""Residues of a window; queries of at most this length have none."""
OVERLAP = 500
"""Minimum residues that consecutive windows share, so that most domains are whole in one of them."""
_MAX_ROW_RESIDUES = 2**30
"""Maximum number of hits of a long query times its length, which bounds the memory of its alignment."""


def window_starts(length: int) -> list[int]:
    """Return the first position of each window of a query, evenly spaced; empty if it has none."""
    if length <= WINDOW:
        return []
    steps = -(-(length - WINDOW) // (WINDOW - OVERLAP))
    return [(length - WINDOW) * k // steps for k in range(steps + 1)]


def best_hits(
    records: np.ndarray, query_length: int, max_seqs: int, counts: np.ndarray | None = None
) -> np.ndarray:
    """Apply the limit on the number of hits, and return a mask of the hits to keep.

    For a query without windows, the first `max_seqs` hits are kept. For a long query, a hit is kept if at
    least one of its query positions is covered by fewer than `max_seqs` better hits.

    Args:
        records: int32 [n, 8], records of the hits' alignments, best hit first; see AlignmentPaths.
        query_length: residues of the query.
        max_seqs: the limit.
        counts: bool [n], True for hits that count towards the limit; the others are kept as long as it is not
            exceeded. None if all count.

    Returns:
        bool [n].
    """
    counts = np.ones(len(records), bool) if counts is None else counts
    kept = np.cumsum(counts) <= max_seqs
    if query_length <= WINDOW or kept.all():
        return kept
    depths = np.zeros(query_length, np.int64)
    spans = zip(records[:, 1].tolist(), records[:, 2].tolist(), strict=True)
    for index, (start, end) in enumerate(spans):
        covered = depths[start : end + 1]
        kept[index] = covered.min() + counts[index] <= max_seqs
        covered += counts[index]
    max_hits = max(max_seqs, _MAX_ROW_RESIDUES // query_length)
    return kept & (np.cumsum(kept & counts) <= max_hits)


@dataclass(frozen=True)
class _Origin:
    """The original query of a query of the wrapped engine, which is either the same or one of its windows.

    Args:
        index: number of the original query.
        windows: number of its windows.
        first: number of the wrapped engine's query that is the same.
    """

    index: int
    windows: int
    first: int


@dataclass(frozen=True)
class _OriginalCriteria(SelectionCriteria):
    """A selection for queries and windows that does not limit the number of candidates of long queries."""

    origins: Sequence[_Origin] = ()

    def original_query(self, query: int) -> int:
        """See SelectionCriteria; E-values of windows are computed with the length of the whole query."""
        return self.origins[query].index

    def limit_of(self, query: int) -> int | None:
        """See SelectionCriteria."""
        return None if self.origins[query].windows else self.max_aligned


class WindowedEngine(EngineWrapper):
    """An engine that wraps another one and filters the windows of long queries separately.

    Each window is searched with its part of the query's profile. The targets whose alignments to a window
    pass are aligned to the whole query, as are those that the whole query finds; `best_hits` then applies
    `SelectionCriteria.max_aligned`. Implements msa.engines.engine.Engine.

    Args:
        engine: filters and aligns.
        keep_all: do not apply `max_aligned` to long queries, because their hits will be merged with others.
    """

    def __init__(self, engine: Engine, keep_all: bool = False) -> None:
        super().__init__(engine)
        self._keep_all = keep_all

    def prepare(self, lengths: Sequence[int]) -> None:
        """Announce queries and windows to the wrapped engine."""
        has_windows = any(length > WINDOW for length in lengths)
        super().prepare([*lengths, WINDOW] if has_windows else lengths)

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Filter and align queries and their windows, then combine the candidates of each query.

        Progress counts the windows of a query as parts of it.
        """
        origins: list[_Origin] = []
        long_queries: dict[int, QueryProfile] = {}

        def queries_and_windows() -> Iterator[QueryProfile]:
            for index, query in enumerate(queries):
                starts = window_starts(len(query.codes))
                origins.extend([_Origin(index, len(starts), len(origins))] * (1 + len(starts)))
                if starts:
                    long_queries[index] = query
                yield query
                for start in starts:
                    window = slice(start, start + WINDOW)
                    yield QueryProfile(
                        query.codes[window],
                        query.profile[window],
                        max_target_lengths=query.max_target_lengths,
                    )

        inner_request = replace(
            request,
            selection=_with_origins(request.selection, origins),
            progress=_scaled_progress(request.progress, origins, len(request.targets)),
        )
        found = self._engine.run(queries_and_windows(), inner_request)
        number = 0
        for candidates in found:
            origin = origins[number]
            number += 1 + origin.windows
            if not origin.windows:
                yield candidates
                continue
            window_candidates = [next(found) for _ in range(origin.windows)]
            yield self._combine(
                origin, long_queries.pop(origin.index), candidates, window_candidates, request
            )

    def _combine(
        self,
        origin: _Origin,
        query: QueryProfile,
        whole: Candidates,
        window_candidates: Sequence[Candidates],
        request: EngineRequest,
    ) -> Candidates:
        """Combine the candidates of a long query with those of its windows."""
        candidates = whole
        found = np.concatenate([each.targets[each.aligned] for each in window_candidates])
        if len(targets := np.setdiff1d(found, whole.targets)):
            selection = _with_origins(request.selection, [origin])
            aligned = self._engine.align([(query, targets)], replace(request, selection=selection))
            candidates = whole.followed_by(next(iter(aligned)))
        filtered = FilteredTargets.of_windows(
            [whole.filtered, *(replace(each.filtered, passes=_passes(each)) for each in window_candidates)]
        )
        last = window_candidates[-1]
        candidates = replace(candidates, filtered=filtered, more_are_ready=last.more_are_ready)
        selection = request.selection
        if selection is None or selection.max_aligned is None or self._keep_all:
            return candidates
        targets, scores = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
        reversed_scores = candidates.reversed_scores if selection.reverse else None
        owners = np.full(len(targets), origin.index)
        evalues = selection.evalues(owners, targets, scores, reversed_scores)
        order = np.lexsort((targets, -scores, evalues))
        kept = best_hits(candidates.alignments.records[order], len(query.codes), selection.max_aligned)
        selected = np.sort(order[kept])
        return replace(
            candidates,
            aligned=candidates.aligned[selected],
            reversed_scores=candidates.reversed_scores[selected],
            alignments=candidates.alignments.subset(selected),
            capped=not kept.all(),
        )


def _passes(candidates: Candidates) -> np.ndarray:
    """Return a mask of the filtered targets that have been aligned, bool [n]."""
    return np.isin(np.arange(len(candidates.filtered.targets)), candidates.aligned)


def _with_origins(
    selection: SelectionCriteria | None, origins: Sequence[_Origin]
) -> SelectionCriteria | None:
    """Return the selection for queries of the wrapped engine; `origins` may grow."""
    if selection is None:
        return None
    return _OriginalCriteria(**vars(selection), origins=origins)


def _scaled_progress(
    progress: Callable[[int], None] | None, origins: Sequence[_Origin], targets: int
) -> Callable[[int], None] | None:
    """Return a progress callback that counts a query with its windows once; `origins` may grow."""
    if progress is None:
        return None

    def scaled(pairs: int) -> None:
        # of the query that was filtered last
        origin = origins[max(0, -(-pairs // max(1, targets)) - 1)]
        progress(round(origin.index * targets + (pairs - origin.first * targets) / (1 + origin.windows)))

    return scaled
