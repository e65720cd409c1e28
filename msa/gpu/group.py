"""A group of GPUs that together hold a database.

All GPUs filter each batch of queries, and each GPU aligns the targets that it holds.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Candidates, EngineRequest
from msa.gpu.worker.interface import ALIGNMENT_THREADS
from msa.hits.filtered_targets import merge_best_targets
from msa.profile.pssm import QueryProfile

if TYPE_CHECKING:
    from msa.gpu.remote_worker import RemoteAligner, RemoteAlignmentBatch, RemoteFilteredBatch, RemoteWorker
    from msa.gpu.worker.local_worker import LocalAlignmentBatch, LocalFilteredBatch, LocalWorker

GpuWorker: TypeAlias = "LocalWorker | RemoteWorker"
AlignmentBatch: TypeAlias = "LocalAlignmentBatch | RemoteAlignmentBatch"

_ALIGNED_QUERIES, _ALIGNED_PAIRS = 48, 8192
"""Maximum queries and target pairs of a batch that is aligned without a filter; a single query may have more
pairs."""


class GpuGroup:
    """A group of GPUs, each of which holds a part of a database with about the same number of residues.

    Args:
        workers: the GPUs.
        targets: the database; its copy to the GPUs starts at once.
    """

    def __init__(self, workers: Sequence[GpuWorker], targets: SequenceArrays) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(ALIGNMENT_THREADS, "candidates")
        total, count = len(targets.residues), len(workers)
        boundaries = [total * part // count for part in range(1, count)]
        cuts = np.searchsorted(targets.offsets, boundaries).tolist()
        self._parts = list(zip([0, *cuts], [*cuts, len(targets)], strict=True))
        loads = [worker.load(targets, part) for worker, part in zip(workers, self._parts, strict=True)]
        for load in loads:
            load.result()

    @property
    def resident(self) -> bool:
        """True if the database stays on the GPUs, as far as is known."""
        return all(worker.resident for worker in self._workers)

    def search(
        self,
        queries: Sequence[QueryProfile],
        request: EngineRequest,
        first_query: int,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> "Future[list[Candidates]]":
        """Search with a batch; the filter processes batches in the order of the calls.

        Args:
            queries: the batch.
            request: of the search.
            first_query: index of the batch's first query among all queries.
            more_follow: whether another batch follows.
            cancelled: once set, the result is not needed.
        """
        batches = [
            worker.filter(queries, request.settings, more_follow, cancelled) for worker in self._workers
        ]
        return self._threads.submit(self._candidates, batches, request, first_query, cancelled)

    def close(self) -> None:
        """End the threads; the GPUs keep their targets until they load others."""
        self._threads.shutdown()

    def _candidates(
        self,
        batches: "Sequence[LocalFilteredBatch | RemoteFilteredBatch]",
        request: EngineRequest,
        first_query: int,
        cancelled: threading.Event,
    ) -> list[Candidates]:
        best = [batch.best() for batch in batches]
        per_gpu = [result.result().per_query() for result in best]
        if cancelled.is_set():
            return []
        max_targets = request.settings.max_candidates
        filtered = [merge_best_targets(of_query, max_targets) for of_query in zip(*per_gpu, strict=True)]
        targets = [of_query.targets for of_query in filtered]
        part_ends = [end for _, end in self._parts]
        gpus = np.searchsorted(part_ends, np.concatenate(targets), side="right") if len(batches) > 1 else None
        candidates = align_batch(batches, targets, gpus, request, first_query)
        return [
            replace(aligned, filtered=of_query)
            for aligned, of_query in zip(candidates, filtered, strict=True)
        ]


def align_pairs(
    workers: "Sequence[GpuWorker | RemoteAligner]",
    pairs: Iterable[tuple[QueryProfile, np.ndarray]],
    request: EngineRequest,
) -> Iterator[Candidates]:
    """Align each query to given targets in batches, which are split over GPUs."""
    sequences, first_query = request.targets, 0
    for batch in _alignment_batches(pairs):
        queries, targets = [query for query, _ in batch], [indices for _, indices in batch]
        batches = [worker.alignment_batch(queries, sequences) for worker in workers]
        residues = np.repeat([len(query.codes) for query in queries], [len(each) for each in targets])
        cells = np.cumsum(residues * sequences.lengths[np.concatenate(targets)])
        # consecutive pairs with the same amount of work for each GPU
        gpus = len(batches) * cells // (cells[-1:] + 1)
        yield from align_batch(batches, targets, gpus, request, first_query)
        first_query += len(batch)


def _alignment_batches(
    pairs: Iterable[tuple[QueryProfile, np.ndarray]],
) -> Iterator[list[tuple[QueryProfile, np.ndarray]]]:
    """Group queries and their targets into batches of at least one query."""
    batch: list[tuple[QueryProfile, np.ndarray]] = []
    count = 0
    for query, targets in pairs:
        batch.append((query, targets))
        count += len(targets)
        if len(batch) >= _ALIGNED_QUERIES or count >= _ALIGNED_PAIRS:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def align_batch(
    batches: Sequence[AlignmentBatch],
    targets: Sequence[np.ndarray],
    gpus: np.ndarray | None,
    request: EngineRequest,
    first_query: int,
) -> list[Candidates]:
    """Align the candidates of a batch of queries on several GPUs.

    Args:
        batches: the batch on each GPU.
        targets: int64 [n] for each query, its candidates' database indices.
        gpus: int [n of all queries], index of the GPU that aligns each candidate; None if there is one GPU.
        request: of the search.
        first_query: index of the batch's first query among all queries.
    """
    selection, gap_costs = request.selection, (request.settings.gap_open, request.settings.gap_extend)
    all_targets = np.concatenate(targets)
    counts = [len(of_query) for of_query in targets]
    owners = np.repeat(np.arange(len(targets), dtype=np.int32), counts)
    if gpus is None:
        shares = [np.arange(len(all_targets))]
    else:
        shares = [np.flatnonzero(gpus == gpu) for gpu in range(len(batches))]

    def score(selected: Sequence[np.ndarray], reverse: bool = False) -> np.ndarray:
        """Return the scores of some candidates of each GPU, int32 [n of all queries], 0 for others."""
        answers = [
            (share, batch.scores(owners[share], all_targets[share], gap_costs, reverse))
            for batch, share in zip(batches, selected, strict=True)
            if len(share) or not reverse
        ]
        scores = np.zeros(len(all_targets), np.int32)
        for share, answer in answers:
            scores[share] = answer.result()
        return scores

    scores, ends = score(shares), np.cumsum(counts)
    queries = range(first_query, first_query + len(targets))
    selected, capped = np.flatnonzero(scores > 0), [False] * len(targets)
    reversed_scores = np.zeros(len(all_targets), np.int32)
    if selection is not None:
        possible = selection.possible(queries, owners, request.targets.lengths.take(all_targets), scores)
        passing, capped = selection.passing(
            queries, _counts(possible, ends), all_targets[possible], scores[possible]
        )
        selected = possible[passing]
    if selection is not None and selection.reverse:
        is_selected = np.zeros(len(all_targets), bool)
        is_selected[selected] = True
        reversed_scores = score([share[is_selected[share]] for share in shares], reverse=True)
        candidates = all_targets[selected], scores[selected], reversed_scores[selected]
        passing, capped = selection.passing(queries, _counts(selected, ends), *candidates)
        selected = selected[passing]
    alignments = _trace(batches, shares, selected)
    result, first = [], 0
    for k, of_query in enumerate(_per_query(selected, ends)):
        start, end, last = ends[k] - counts[k], ends[k], first + len(of_query)
        own_alignments, first = alignments.subset(np.arange(first, last)), last
        more_are_ready = k < len(counts) - 1
        result.append(Candidates(
            targets[k], scores[start:end], of_query - start, reversed_scores[of_query], own_alignments,
            capped[k], more_are_ready=more_are_ready,
        ))  # fmt: skip
    return result


def _counts(candidates: np.ndarray, ends: np.ndarray) -> list[int]:
    """Return the number of candidates of each query, given by ascending indices; see `_per_query`."""
    counts: list[int] = np.diff(np.searchsorted(candidates, ends), prepend=0).tolist()
    return counts


def _per_query(candidates: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """Divide ascending indices of candidates, int64, into those of each query.

    Args:
        candidates: the indices.
        ends: int64 [queries], index after each query's last candidate.
    """
    return np.split(candidates, np.searchsorted(candidates, ends[:-1]))


def _trace(
    batches: Sequence[AlignmentBatch], shares: Sequence[np.ndarray], selected: np.ndarray
) -> AlignmentPaths:
    """Compute the alignments of the selected candidates of all queries, in order.

    Args:
        batches: the batch on each GPU.
        shares: int64, the candidates of each GPU, ascending.
        selected: int64 [m], indices of the selected ones, ascending.
    """
    if len(shares) == 1:
        return batches[0].paths(selected).result()
    is_selected = np.zeros(sum(map(len, shares)), bool)
    is_selected[selected] = True
    selected_in_share = [np.flatnonzero(is_selected[share]) for share in shares]
    paths = [batch.paths(indices) for batch, indices in zip(batches, selected_in_share, strict=True)]
    alignments = AlignmentPaths.concatenate([traced.result() for traced in paths])
    order = np.concatenate([share[of_gpu] for share, of_gpu in zip(shares, selected_in_share, strict=True)])
    return alignments.subset(np.argsort(order))
