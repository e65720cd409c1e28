"""The search engine that every machine has: one query after another on CPU threads."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.search.candidates import Candidates, Wanted, best_targets, wanted_of
from msa.search.engine import QueryProfile

if TYPE_CHECKING:
    from msa.search.settings import SearchSettings


class CpuEngine:
    """Filter and alignment on `settings.threads` threads; see msa.search.engine.Engine."""

    seconds: Final[dict[str, float]] = {}

    def run(
        self,
        queries: Iterable[QueryProfile],
        targets: SequenceArrays,
        settings: "SearchSettings",
        scored: Callable[[int], None] | None = None,
        wanted: Wanted | None = None,
    ) -> Iterator[Candidates]:
        """Candidates of each query, in order; a query is taken when those of the one before are."""
        before = 0

        def progress(done: int, total: int | None) -> None:
            if scored is not None:
                scored(before + done)

        for index, query in enumerate(queries):
            scores = gapless_scores(query.profile, targets, settings.threads, progress)
            before += len(targets)
            chosen = best_targets(scores, settings.max_seqs, settings.min_ungapped_score)
            yield _aligned(index, query, chosen, targets, settings, wanted)

    def align(
        self,
        pairs: Iterable[tuple[QueryProfile, np.ndarray]],
        targets: SequenceArrays,
        settings: "SearchSettings",
        wanted: Wanted | None = None,
    ) -> Iterator[Candidates]:
        """The targets of each query, aligned; a query is taken when those of the one before are."""
        for index, (query, chosen) in enumerate(pairs):
            yield _aligned(index, query, chosen, targets, settings, wanted)


def _aligned(
    index: int,
    query: QueryProfile,
    chosen: np.ndarray,
    targets: SequenceArrays,
    settings: "SearchSettings",
    wanted: Wanted | None,
) -> Candidates:
    how = settings.gap_open, settings.gap_extend, settings.threads
    # of most candidates the score is all that is asked for, and much is faster without paths
    found = alignment_scores(query.profile, targets, chosen, *how)
    kept = wanted_of(wanted, index, chosen, found)
    reversed_scores = np.zeros(len(kept), np.int32)
    if wanted is not None and settings.comp_bias_corr:
        reversed_scores = alignment_scores(query.profile[::-1], targets, chosen[kept], *how)
        still = wanted(index, chosen[kept], found[kept], reversed_scores)
        kept, reversed_scores = kept[still], reversed_scores[still]
    alignments = align(query.profile, query.codes, targets, chosen[kept], *how)
    return Candidates(chosen, found, kept, reversed_scores, alignments)
