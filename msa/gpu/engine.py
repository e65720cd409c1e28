"""The search engine on GPUs: batches of queries through filter and alignment; all equal to the CPU's.

A batch's filter is queued on the GPU before the batch before it is waited for, so the GPU filters on while
the host merges, aligns and hands out what was found. Several GPUs each hold a part of a large database, and
every query goes to all of them; a small database is copied to each, and the queries are shared out.
msa/gpu/remote.py says how several are driven.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.gpu_worker import Member
from msa.gpu.group import Group, HowToAlign, Request, aligned
from msa.gpu.limits import Limits
from msa.gpu.settings import TURN_SECONDS
from msa.search.engine import Candidates, EngineRequest, QueryProfile

_UNDER_WAY, _STREAMED_UNDER_WAY = 6, 3
"""Batches of a group at a time: one that is aligned, one that the GPU filters, the others wait for it: a
batch takes the host about as long as it takes each of four GPUs, and the last batches are small."""

_BATCH, _BATCH_RESIDUES = 24, 6144
"""Queries and their residues in a batch when the database stays on the GPU: there is a batch for the host to
handle soon after the start, and little left to do after the last was filtered."""

_STREAMED_BATCH, _STREAMED_BATCH_RESIDUES = 512, 8192
"""The same when it passes through: filtering a residue then takes some four times as long as copying it."""

_FEWEST, _STREAMED_FEWEST = 4, 24
"""Queries of a batch that is not parted any more at the end; fewer are not worth a copy of the database. When
it stays, the first batch has so many, each further one twice as many: the GPU begins sooner."""

_ALIGNED_PAIRS = 8192
"""Pairs of a batch that is aligned without a filter, as far as one query has not more."""

_REPLICATED_BYTES = 2**30
"""Residues up to which a database is copied to every GPU. That takes 0.1 s, and no GPU then waits for
another: of a small part of a database the last targets of each query are a large share."""


class GpuEngine:
    """Filter and alignment on GPUs; see msa.search.engine.Engine.

    Args:
        members: the GPUs, one or several; they are the engine's from now on.
        instead: asked before a database is searched: what is to take the members' place for it and from then
            on, or None if nothing is.
    """

    def __init__(
        self,
        members: Sequence[Member],
        instead: Callable[[SequenceArrays], Sequence[Member] | None] = lambda targets: None,
    ) -> None:
        self.members, self._instead = members, instead
        self._groups: list[Group] = []
        self._targets: SequenceArrays | None = None
        self._choosing = threading.Lock()

    @property
    def seconds(self) -> dict[str, float]:
        """What the stages have taken so far, on all GPUs together: host seconds that the filter's launches
        took, GPU seconds of the filter, host seconds in alignment, waiting included."""
        return {
            stage: sum(member.seconds[stage] for member in self.members)
            for stage in ("queueing", "filter", "alignment")
        }

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Yield the candidates of each query, in order; takes queries in batches."""
        targets, settings = request.targets, request.settings
        groups = self._groups_for(targets)
        limits = Limits(max(1, min(settings.max_seqs, len(targets))), settings.min_ungapped_score)
        gaps = settings.gap_open, settings.gap_extend
        stopped = threading.Event()
        under_way: deque[tuple[int, Future[list[Candidates]]]] = deque()
        done = 0

        def oldest() -> list[Candidates]:
            nonlocal done
            count, candidates = under_way.popleft()
            found = candidates.result()
            done += count * len(targets)
            if request.progress is not None:
                request.progress(done)
            return found

        # a thread gives the interpreter away at each launch and has it back at its next turn: with Python's
        # 5 ms, that is one launch in 5 ms while another thread works
        turn = sys.getswitchinterval()
        sys.setswitchinterval(TURN_SECONDS)
        begun = 0
        try:
            for number, (batch, again) in enumerate(_batches(queries, groups)):
                most = _UNDER_WAY if all(group.stays for group in groups) else _STREAMED_UNDER_WAY
                if len(under_way) >= most * len(groups):
                    yield from oldest()
                how = HowToAlign(begun, gaps, request.selector, settings.comp_bias_corr)
                part = Request(batch, limits, again, stopped, how)
                under_way.append((len(batch), groups[number % len(groups)].search(part)))
                begun += len(batch)
            while under_way:
                yield from oldest()
        finally:
            if under_way or done < begun * len(targets):
                # an error, or nobody wants the rest: nothing may be left on the GPUs when this ends
                stopped.set()
                drained = [member.drain() for member in self.members]
                for _, candidates in under_way:
                    candidates.exception()
                _wait(drained)
            _wait([member.rest() for member in self.members])
            sys.setswitchinterval(turn)

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Yield each query's given targets, aligned; takes queries in batches, split over the GPUs."""
        targets, settings = request.targets, request.settings
        gaps = settings.gap_open, settings.gap_extend
        first = 0
        for batch in _alignment_batches(pairs):
            queries, chosen = [query for query, _ in batch], [places for _, places in batch]
            batches = [member.aligning(queries, targets) for member in self.members]
            residues = np.repeat([len(query.codes) for query in queries], [len(each) for each in chosen])
            cells = np.cumsum(residues * targets.lengths[np.concatenate(chosen)])
            # the same work for each, in one piece
            holders = len(batches) * cells // (cells[-1:] + 1)
            how = HowToAlign(first, gaps, request.selector, settings.comp_bias_corr)
            yield from aligned(batches, chosen, holders, how)
            first += len(batch)

    def close(self) -> None:
        """Give back the GPUs; nothing is under way, and nothing is asked for any more."""
        for group in self._groups:
            group.close()
        for member in self.members:
            member.close()

    def _groups_for(self, targets: SequenceArrays) -> list[Group]:
        """The GPUs, with these targets on them or on the way there."""
        with self._choosing:
            held = self._targets
            if held is not None and (
                held.residues.ctypes.data == targets.residues.ctypes.data and len(held) == len(targets)
            ):
                return self._groups
            for group in self._groups:
                group.close()
            self._groups, self._targets = [], None
            others = self._instead(targets)
            if others is not None:
                for member in self.members:
                    member.close()
                self.members, self._instead = others, lambda targets: None
            members, everywhere = self.members, len(targets.residues) <= _replicated_bytes(self.members)
            if len(members) == 1 or everywhere:
                self._groups = [Group([member], targets) for member in members]
            else:
                self._groups = [Group(members, targets)]
            self._targets = targets
            return self._groups


def _wait(done: Sequence["Future[None]"]) -> None:
    """Wait for all; one that fails has failed before, which was said, or fails again at the next search."""
    for each in done:
        each.exception()


def _replicated_bytes(members: Sequence[Member]) -> int:
    """Residues of a database that is to be on every GPU: it has to fit, targets' numbers too."""
    return min(_REPLICATED_BYTES, *(member.budget // 2 for member in members), 2**62)


def _alignment_batches(
    pairs: Iterable[tuple[QueryProfile, np.ndarray]],
) -> Iterator[list[tuple[QueryProfile, np.ndarray]]]:
    """Queries with their targets in batches of one query or more."""
    batch: list[tuple[QueryProfile, np.ndarray]] = []
    count = 0
    for query, places in pairs:
        batch.append((query, places))
        count += len(places)
        if len(batch) >= _BATCH or count >= _ALIGNED_PAIRS:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _batches(
    queries: Iterable[QueryProfile], groups: Sequence[Group]
) -> Iterator[tuple[list[QueryProfile], bool]]:
    """Queries in batches, each with whether another follows."""
    batch: list[QueryProfile] = []
    residues, ramp = 0, _FEWEST
    for query in queries:
        stays = all(group.stays for group in groups)
        most = min(_BATCH, ramp) if stays else _STREAMED_BATCH
        most_residues = _BATCH_RESIDUES if stays else _STREAMED_BATCH_RESIDUES
        if batch and (len(batch) >= most or residues + len(query.codes) > most_residues):
            yield batch, True
            batch, residues, ramp = [], 0, 2 * ramp
        batch.append(query)
        residues += len(query.codes)
    # the last in ever smaller ones: what is done after the filter has ended is done for few queries
    while batch:
        fewest = _FEWEST if all(group.stays for group in groups) else _STREAMED_FEWEST
        few = len(batch) if len(batch) <= fewest else -(-len(batch) // 2)
        yield batch[:few], few < len(batch)
        batch = batch[few:]
