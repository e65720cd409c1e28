"""GPUs that together hold a database: all of them filter a batch, and each aligns the targets it has."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.gpu_worker import Aligning, Batch, Member, Paths
from msa.gpu.limits import Limits
from msa.search.engine import (
    AlignmentSelector,
    Candidates,
    QueryProfile,
    merge_best_targets,
    select_alignments,
)
from msa.search.hits import LocalAlignment


@dataclass(frozen=True)
class HowToAlign:
    """How the targets of a batch of queries are aligned.

    Args:
        first: place of the batch's first query among all queries.
        gaps: costs of a gap's first residue and each further one.
        selector, reverse: see msa.search.engine.Engine: whether reversed profiles are asked for as well.
    """

    first: int
    gaps: tuple[int, int]
    selector: AlignmentSelector | None
    reverse: bool


@dataclass(frozen=True)
class Request:
    """A batch to be searched with.

    Args:
        queries: the batch.
        limits: of the filter.
        again: whether another batch follows.
        stopped: once set, the result is not wanted.
        how: see HowToAlign.
    """

    queries: Sequence[QueryProfile]
    limits: Limits
    again: bool
    stopped: threading.Event
    how: HowToAlign


class Group:
    """Some GPUs with a database, of which each has a part with about as many residues as the others.

    Args:
        members: the GPUs.
        targets: the database; its copy to the GPUs begins at once.
    """

    def __init__(self, members: Sequence[Member], targets: SequenceArrays) -> None:
        self._members = members
        self._thread = ThreadPoolExecutor(1, "candidates")
        total, count = len(targets.residues), len(members)
        marks = [total * part // count for part in range(1, count)]
        cuts = np.searchsorted(targets.offsets, marks).tolist()
        self._parts = list(zip([0, *cuts], [*cuts, len(targets)], strict=True))
        held = [member.hold(targets, part) for member, part in zip(members, self._parts, strict=True)]
        for each in held:
            each.result()

    @property
    def stays(self) -> bool:
        """Whether the database stays on the GPUs, as far as is known."""
        return all(member.stays for member in self._members)

    def search(self, request: Request) -> "Future[list[Candidates]]":
        """Candidates of each query of a batch; batches are done in the order of the calls."""
        batches = [
            member.filter(request.queries, request.limits, request.again, request.stopped)
            for member in self._members
        ]
        return self._thread.submit(self._candidates, request, batches)

    def close(self) -> None:
        """End the thread; the GPUs keep what they have until they are given something else."""
        self._thread.shutdown()

    def _candidates(self, request: Request, batches: Sequence[Batch]) -> list[Candidates]:
        found = [batch.best() for batch in batches]
        parts = [best.result().of_each() for best in found]
        if request.stopped.is_set():
            return []
        chosen = [merge_best_targets(of_query, request.limits.most) for of_query in zip(*parts, strict=True)]
        holders = np.searchsorted([end for _, end in self._parts], np.concatenate(chosen), side="right")
        return aligned(batches, chosen, holders, request.how)


def aligned(
    batches: Sequence[Aligning], chosen: Sequence[np.ndarray], holders: np.ndarray, how: HowToAlign
) -> list[Candidates]:
    """The candidates of a batch of queries, aligned by several GPUs.

    Args:
        batches: the batch on each GPU.
        chosen: int64 [n] of each query, places of its targets.
        holders: int [n of all queries], which GPU is to align each.
        how: see HowToAlign.
    """
    places = np.concatenate(chosen)
    owners = np.repeat(np.arange(len(chosen), dtype=np.int32), [len(of_query) for of_query in chosen])
    shares = [np.flatnonzero(holders == number) for number in range(len(batches))]
    asked = [
        batch.scores(owners[share], places[share], how.gaps)
        for batch, share in zip(batches, shares, strict=True)
    ]
    scores = np.zeros(len(places), np.int32)
    for share, scored in zip(shares, asked, strict=True):
        scores[share] = scored.result()
    ends = np.cumsum([len(each) for each in chosen]).tolist()
    spans = [slice(end - len(each), end) for each, end in zip(chosen, ends, strict=True)]
    wanted = np.zeros(len(places), bool)
    for k, span in enumerate(spans):
        wanted[span.start + select_alignments(how.selector, how.first + k, chosen[k], scores[span])] = True
    reversed_scores = np.zeros(len(places), np.int32)
    if how.selector is not None and how.reverse:
        near = [(batch, share[wanted[share]]) for batch, share in zip(batches, shares, strict=True)]
        backwards = [
            (which, batch.scores(owners[which], places[which], how.gaps, reverse=True))
            for batch, which in near
            if len(which)
        ]
        for which, scored in backwards:
            reversed_scores[which] = scored.result()
        for k, span in enumerate(spans):
            which = span.start + np.flatnonzero(wanted[span])
            wanted[which] = how.selector(how.first + k, places[which], scores[which], reversed_scores[which])
    kept = [np.flatnonzero(wanted[share]) for share in shares]
    paths = [batch.paths(which) for batch, which in zip(batches, kept, strict=True)]
    alignments: dict[int, LocalAlignment] = {}
    for share, which, traced in zip(shares, kept, paths, strict=True):
        alignments.update(zip(share[which].tolist(), _local(traced.result()), strict=True))
    result = []
    for each, span in zip(chosen, spans, strict=True):
        which = np.flatnonzero(wanted[span])
        of_query = [alignments[k] for k in (which + span.start).tolist()]
        result.append(Candidates(each, scores[span], which, reversed_scores[span][which], of_query))
    return result


def _local(aligned: Paths) -> list[LocalAlignment]:
    """What was found on a GPU, its positions from 1."""
    columns = (aligned.found[:, :7] + np.array([0, 1, 1, 1, 1, 0, 0], np.int32)).T.tolist()
    starts = aligned.starts.tolist()
    runs = [aligned.runs[start:end] for start, end in pairwise(starts)]
    return [LocalAlignment(*numbers) for numbers in zip(*columns, runs, strict=True)]
