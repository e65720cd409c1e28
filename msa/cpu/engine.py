"""The CPU search engine, available on every machine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import Candidates, EngineRequest
from msa.hits.filtered_targets import FilteredTargets, best_targets
from msa.profile.pssm import QueryProfile


class CpuEngine:
    """An engine that filters and aligns one query at a time on `settings.threads` CPU threads.

    Implements msa.engines.engine.Engine.
    """

    seconds: Final[dict[str, float]] = {}
    drives_gpus: Final = False
    scoring_process: Final = None
    processes: DatabaseProcesses | None = None

    def prepare(self, lengths: Sequence[int]) -> None:
        """Do nothing: the CPU's kernels serve queries of all lengths."""

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Yield the candidates of each query; the next query is read when these are consumed."""
        targets, settings = request.targets, request.settings
        filtered_pairs = 0

        def progress(done: int, total: int | None) -> None:
            if request.progress is not None:
                request.progress(filtered_pairs + done)

        for index, query in enumerate(queries):
            scores = gapless_scores(
                query.profile, targets, settings.threads, progress,
                query.max_target_lengths, settings.min_ungapped_score,
            )  # fmt: skip
            filtered_pairs += len(targets)
            indices = best_targets(
                scores, settings.max_candidates, settings.min_ungapped_score, targets.lengths,
                query.max_target_lengths,
            )  # fmt: skip
            filtered = FilteredTargets.of_query(indices, scores[indices])
            yield replace(_align_candidates(index, query, indices, request), filtered=filtered)

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Yield the candidates of each query for its given targets; queries are read one at a time."""
        for index, (query, indices) in enumerate(pairs):
            yield _align_candidates(index, query, indices, request)


def _align_candidates(
    index: int, query: QueryProfile, indices: np.ndarray, request: EngineRequest
) -> Candidates:
    """Score one query's targets, then compute the paths of the selected ones."""
    targets, settings, selection = request.targets, request.settings, request.selection
    costs = settings.gap_open, settings.gap_extend, settings.threads
    # most candidates need only a score, which is much faster to compute without a path
    scores = alignment_scores(query.profile, targets, indices, *costs)
    if selection is None:
        aligned, capped = np.flatnonzero(scores > 0), [False]
    else:
        aligned, capped = selection.passing([index], [len(indices)], indices, scores)
    reversed_scores = np.zeros(len(aligned), np.int32)
    if selection is not None and selection.reverse:
        reversed_scores = alignment_scores(query.profile[::-1], targets, indices[aligned], *costs)
        candidates = indices[aligned], scores[aligned], reversed_scores
        kept, capped = selection.passing([index], [len(aligned)], *candidates)
        aligned, reversed_scores = aligned[kept], reversed_scores[kept]
    alignments = align(query.profile, query.codes, targets, indices[aligned], *costs)
    return Candidates(indices, scores, aligned, reversed_scores, alignments, capped[0])
