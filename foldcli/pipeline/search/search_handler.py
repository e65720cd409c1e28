"""The process that searches for another one; see `foldcli.pipeline.search.search_process`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.pipeline.processes.background import map_in_threads
from foldcli.pipeline.processes.worker_pool import WorkerPool
from msa.base.hardware import gpu_numbers
from msa.gpu.device.opening import allows_several_processes, open_in_background
from msa.gpu.worker.process_start import GpuProcess
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.hit_texts import HitTexts
    from foldcli.pipeline.search.searcher import LocalSearcher
    from foldcli.pipeline.search.several_databases import JoinedSearcher
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings

# seconds between reports of the progress
_REPORT_SECONDS = 0.2


class SearchHandler:
    """Searches of one database, or of several.

    Args:
        device: "cpu", or GPUs by their numbers.
        gpu_share: largest share of the GPUs' free memory to use.
        further: see `SearchProcess`.
        text_processes: see `SearchProcess`.
    """

    def __init__(
        self,
        report: Callable[..., None],
        db: str,
        device: str,
        gpu_share: float,
        further: tuple[str, ...] = (),
        text_processes: int = 0,
    ) -> None:
        # the other process reports errors and draws the progress
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        self._report, self._reported = report, 0.0
        self._db, self._device, self._gpu_share, self._further = db, device, gpu_share, further
        self._searcher: LocalSearcher | JoinedSearcher | None = None
        self._first: LocalSearcher | None = None
        self._text_processes = WorkerPool(text_processes) if text_processes else None

    def open(self) -> tuple[dict[str, str], bool]:
        """Open the databases and the device; return their checksums, and whether GPUs search.

        Raises:
            Exception: they cannot be searched.
        """
        started = None
        if self._device != "cpu":
            if not all(map(allows_several_processes, gpu_numbers(self._device))):
                raise RuntimeError("the GPU is in an exclusive mode")
            started = self._start_gpu()
        # imports msgspec, while the GPU starts
        from foldcli.pipeline.search import searcher, several_databases

        source = searcher.DatabaseSource(self._db, self._device, self._further, started)
        # the other process opens the same databases, with the same messages
        logger.disabled = True
        try:
            self._searcher = several_databases.make_joined(source, source.open(), self._gpu_share)
        finally:
            logger.disabled = False
        self._first = self._searcher.alone()
        return self._searcher.checksums, self._first.drives_gpus

    def _start_gpu(self) -> GpuProcess | None:
        """Open the GPUs while numpy is imported; for many searches the only one in a process of its own."""
        numbers = gpu_numbers(self._device)
        if self._text_processes is not None and len(numbers) == 1 and not self._further:
            return GpuProcess(numbers[0], scores=True)
        open_in_background(self._device)
        return None

    def search(
        self, queries: list[FastaRecord], settings: "AlignmentSettings", with_further: bool
    ) -> "Iterator[HitTexts]":
        """Search the first database or all, and yield the texts of each query's hits."""
        from foldcli.pipeline.search.hit_texts import MAX_TEXT_THREADS, make_texts  # imports msgspec

        searcher = self._searcher if with_further else self._first
        assert searcher is not None
        found = searcher.search_many(queries, settings.search, self.report)
        threads = min(settings.search.threads, MAX_TEXT_THREADS)
        yield from map_in_threads(
            lambda pair: make_texts(*pair, settings, self._text_processes), found, threads
        )

    def report(self, done: int, total: int | None) -> None:
        """Report the progress of a search, unless that was done just before."""
        if (now := time.monotonic()) - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(done, total)
