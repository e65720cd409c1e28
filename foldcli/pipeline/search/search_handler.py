"""The process that searches for another one; see `foldcli.pipeline.search.search_process`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.search.search_process import open_gpu
from msa.base.hardware import gpu_numbers
from msa.gpu.device.cuda_context import allows_several_processes
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.searcher import JoinedSearcher, LocalSearcher
    from msa.engines.search_settings import SearchSettings
    from msa.hits.hits import Hits

R = TypeVar("R")

# seconds between reports of the progress
_REPORT_SECONDS = 0.2


class SearchHandler:
    """Searches of one database, or of several.

    Args:
        device: "cpu", or GPUs by their numbers.
        gpu_share: largest share of the GPUs' free memory to use.
        others: see `SearchProcess`.
        many_queries: see `SearchProcess`.
    """

    def __init__(
        self,
        report: Callable[..., None],
        db: str,
        device: str,
        gpu_share: float,
        others: tuple[str, ...] = (),
        many_queries: bool = False,
    ) -> None:
        # the other process reports errors and draws the progress
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        self._report, self._reported = report, 0.0
        self._db, self._device, self._gpu_share, self._others = db, device, gpu_share, others
        self._searcher: LocalSearcher | JoinedSearcher | None = None
        self._many_queries = many_queries

    def open(self) -> tuple[dict[str, str], bool]:
        """Open the databases and the device; return their checksums, and whether GPUs search.

        Raises:
            RuntimeError: only one process can use the GPU.
            GpuUnavailable, MissingError, InputError: see `open_searcher`.
        """
        started = None
        if self._device != "cpu":
            if not all(map(allows_several_processes, gpu_numbers(self._device))):
                raise RuntimeError("the GPU is in an exclusive mode")
            started = open_gpu(self._device, self._many_queries and not self._others)
        # imports msgspec, while the GPU starts
        from foldcli.pipeline.search import opening

        source = opening.DatabaseSource(self._db, self._device, self._others, started)
        # the other process opens the same databases, with the same messages
        logger.disabled = True
        try:
            self._searcher = opening.open_searcher(source, gpu_share=self._gpu_share)
        finally:
            logger.disabled = False
        return self._searcher.checksums, self._searcher.drives_gpus

    def search(
        self,
        queries: list[FastaRecord],
        settings: "SearchSettings",
        make: "Callable[[FastaRecord, Hits], R]",
        with_others: bool,
    ) -> "Iterator[R]":
        """Search the first database or all, and yield what `make` returns for each query's hits."""
        assert self._searcher is not None
        searcher = self._searcher if with_others else self._searcher.alone()
        for _, result in searcher.map_hits(queries, settings, make, self.report):
            yield result

    def report(self, done: int, total: int | None) -> None:
        """Report the progress of a search, unless that was done just before."""
        if (now := time.monotonic()) - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(done, total)
