"""The search engine on a GPU: gapless filter, choice of the best, and alignment; all equal to the CPU's.

Chunks of the database are outside, queries inside, so that a database that does not fit on the GPU passes
through it once per batch of queries and not once per query.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import cuda
from numba.core import config

from cuda.alignment.gapless import GaplessFilter
from cuda.alignment.gotoh import DeviceTargets, Query, align_batch
from cuda.alignment.select import TopSelector
from msa.candidates import Candidates, merge_best
from msa.cpu.targets import Targets
from msa.engine import QueryProfile
from msa.gpu.devices import Gpu
from msa.gpu.residency import (
    MOST_CHUNK_BYTES,
    Allocate,
    Chunk,
    OutOfGpuMemory,
    Residency,
    allocate_on_gpu,
)
from msa.local_alignment import NO_ALIGNMENT, LocalAlignment

if TYPE_CHECKING:
    from msa.search_settings import SearchSettings

_BATCH = 512


@dataclass(frozen=True)
class GpuSettings:
    """How the engine uses a GPU; hits do not depend on it.

    Args:
        kernels: folder that keeps compiled kernels between runs.
        share: of the GPU's free memory that the database may take.
        most_chunk_bytes: of residues scored at a time.
        allocate: how GPU memory is taken.
    """

    kernels: Path
    share: float = 0.9
    most_chunk_bytes: int = MOST_CHUNK_BYTES
    allocate: Allocate = allocate_on_gpu


class GpuEngine:
    """Filter and alignment on one GPU; see msa.engine.Engine.

    Args:
        gpu: from `find_gpu`.
        settings: see GpuSettings.
        notice: told when kernels have to be compiled.
    """

    def __init__(self, gpu: Gpu, settings: GpuSettings, notice: Callable[[str], None]) -> None:
        self._gpu, self._settings = gpu, settings
        self._residency: tuple[Targets, Residency] | None = None
        if not any(settings.kernels.glob("*.py")):
            notice("compiling GPU kernels, which takes a while the first time")

    def run(
        self,
        queries: Iterable[QueryProfile],
        targets: Targets,
        settings: "SearchSettings",
        scored: Callable[[int], None] | None = None,
    ) -> Iterator[Candidates]:
        """Candidates of each query, in order; queries are taken in batches."""
        cuda.select_device(self._gpu.number)
        left, before = iter(queries), 0
        while batch := list(islice(left, _BATCH)):
            for query, chosen in zip(
                batch, self._filter(batch, targets, settings, before, scored), strict=True
            ):
                yield self._align(query, chosen, targets, settings)
            before += len(batch) * len(targets)

    def _resident(self, targets: Targets) -> Residency:
        held = self._residency
        if held is None or not (
            held[0].residues.ctypes.data == targets.residues.ctypes.data and len(held[0]) == len(targets)
        ):
            budget = int(self._settings.share * self._gpu.free_bytes)
            residency = Residency(targets, budget, self._settings.allocate, self._settings.most_chunk_bytes)
            self._residency = held = targets, residency
        return held[1]

    def _filter(
        self,
        batch: list[QueryProfile],
        targets: Targets,
        settings: "SearchSettings",
        before: int,
        scored: Callable[[int], None] | None,
    ) -> list[np.ndarray]:
        """The targets of each query that pass, best first."""
        residency = self._resident(targets)
        stream = cuda.stream()
        filters = [GaplessFilter(query.profile, self._settings.kernels) for query in batch]
        selector = _selector(settings.max_seqs, stream)
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in batch]
        first = 0
        while first < len(targets):
            try:
                for chunk in residency.chunks(first):
                    parts = self._score(chunk, filters, selector, settings, stream)
                    for kept, part in zip(found, parts, strict=True):
                        kept.append(part)
                    first = chunk.end
                    if scored is not None:
                        scored(before + first * len(batch))
            except OutOfGpuMemory:
                residency.shrink()
        return [merge_best(parts, settings.max_seqs) for parts in found]

    def _score(
        self,
        chunk: Chunk,
        filters: list[GaplessFilter],
        selector: TopSelector,
        settings: "SearchSettings",
        stream: Any,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Places and scores of the best targets of a chunk, for each query."""
        scores = self._settings.allocate(len(chunk), np.dtype(np.int32))[: len(chunk)]
        chunk.ready.wait(stream)
        parts = []
        for query in filters:
            query.scores(chunk.residues, chunk.offsets, chunk.lengths, scores, stream)
            places, best = selector.select(scores, settings.min_ungapped_score)
            parts.append((places + chunk.first, best))
        chunk.used.record(stream)
        return parts

    def _align(
        self, query: QueryProfile, chosen: np.ndarray, targets: Targets, settings: "SearchSettings"
    ) -> Candidates:
        """Align a query to the targets that passed, whose residues are gathered: few, wherever they lie."""
        if not len(chosen):
            return Candidates(chosen, np.empty(0, np.int32), _none)
        lengths = targets.lengths[chosen]
        padded = (lengths.astype(np.int64) + 3) // 4 * 4
        offsets = np.cumsum(padded) - padded
        residues = np.zeros(int(padded.sum()) or 4, np.uint8)
        for target, start, length in zip(chosen.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            residues[start : start + length] = targets.codes(target)
        there = DeviceTargets(cuda.to_device(residues), cuda.to_device(offsets), cuda.to_device(lengths))
        aligned = align_batch(
            Query(query.profile, query.codes), there, np.arange(len(chosen)), lengths,
            settings.gap_open, settings.gap_extend, kernels=self._settings.kernels,
        )  # fmt: skip

        def alignment(k: int) -> LocalAlignment:
            row = aligned.found[k].tolist()
            runs = aligned.runs[int(aligned.starts[k]) : int(aligned.starts[k + 1])]
            if not row[0]:
                return NO_ALIGNMENT
            return LocalAlignment(
                row[0], row[1] + 1, row[2] + 1, row[3] + 1, row[4] + 1, row[5], row[6], runs
            )

        return Candidates(chosen, aligned.found[:, 0], alignment)


def _selector(most: int, stream: Any) -> TopSelector:
    if config.ENABLE_CUDASIM:  # type: ignore[attr-defined]
        # every thread of the simulator is one of the host's
        return TopSelector(most, stream, blocks=1, threads=4, bins=64)
    return TopSelector(most, stream)


def _none(k: int) -> LocalAlignment:
    raise IndexError(k)
