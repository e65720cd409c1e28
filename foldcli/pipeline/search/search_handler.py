"""The process that searches for another one; see `foldcli.pipeline.search.search_process`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.search.gpu_opening import open_gpu
from msa.base.hardware import gpu_numbers
from msa.gpu.device.cuda_context import allows_several_processes
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.searcher import LocalSearcher
    from foldcli.pipeline.search.several_databases import JoinedSearcher
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
        further: see `SearchProcess`.
        many_queries: see `SearchProcess`.
    """

    def __init__(
        self,
        report: Callable[..., None],
        db: str,
        device: str,
        gpu_share: float,
        further: tuple[str, ...] = (),
        many_queries: bool = False,
    ) -> None:
        # the other process reports errors and draws the progress
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        self._report, self._reported = report, 0.0
        self._db, self._device, self._gpu_share, self._further = db, device, gpu_share, further
        self._searcher: LocalSearcher | JoinedSearcher | None = None
        self._first: LocalSearcher | None = None
        self._many_queries = many_queries

    def open(self) -> tuple[dict[str, str], bool]:
        """Open the databases and the device; return their checksums, and whether GPUs search.

        Raises:
            Exception: they cannot be searched.
        """
        started = None
        if self._device != "cpu":
            if not all(map(allows_several_processes, gpu_numbers(self._device))):
                raise RuntimeError("the GPU is in an exclusive mode")
            started = open_gpu(self._device, self._many_queries and not self._further)
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

    def search(
        self,
        queries: list[FastaRecord],
        settings: "SearchSettings",
        make: "Callable[[FastaRecord, Hits], R]",
        with_further: bool,
    ) -> "Iterator[R]":
        """Search the first database or all, and yield what `make` returns for each query's hits."""
        searcher = self._searcher if with_further else self._first
        assert searcher is not None
        for _, result in searcher.map_hits(queries, settings, make, self.report):
            yield result

    def report(self, done: int, total: int | None) -> None:
        """Report the progress of a search, unless that was done just before."""
        if (now := time.monotonic()) - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(done, total)
