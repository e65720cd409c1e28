"""The process that searches for a run; see `foldcli.pipeline.search.process`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from msa.gpu.device.hardware import gpu_numbers
from msa.gpu.device.opening import allows_several_processes, open_in_background
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.hit_texts import HitTexts
    from foldcli.pipeline.search.searcher import LocalSearcher
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from msa.database.manifest import DatabaseManifest

# seconds between reports of the progress
_REPORT_SECONDS = 0.2


class SearchHandler:
    """Searches of one database.

    Args:
        device: "cpu", or one GPU by its number.
        gpu_share: largest share of the GPU's free memory to use.
    """

    def __init__(self, report: Callable[..., None], db: str, device: str, gpu_share: float) -> None:
        # the process of the run reports errors and draws the progress
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        self._report, self._reported = report, 0.0
        self._db, self._device, self._gpu_share = db, device, gpu_share
        self._searcher: LocalSearcher | None = None

    def open(self) -> "DatabaseManifest":
        """Open the database and the device; return the database's manifest.

        Raises:
            Exception: they cannot be searched.
        """
        if self._device != "cpu":
            if not allows_several_processes(gpu_numbers(self._device)[0]):
                raise RuntimeError("the GPU is in an exclusive mode")
            # the driver creates a context while numpy is imported
            open_in_background(self._device)
        from foldcli.pipeline.search.searcher import DatabaseSource

        source = DatabaseSource(self._db, self._device)
        # the process of the run opens the same database, with the same messages
        logger.disabled = True
        try:
            self._searcher = source.make_searcher(source.open(), self._gpu_share)
        finally:
            logger.disabled = False
        return self._searcher.database.manifest

    def search(self, queries: list[FastaRecord], settings: "AlignmentSettings") -> "Iterator[HitTexts]":
        """Search, and yield the texts of each query's hits."""
        from foldcli.pipeline.search.hit_texts import HitTexts

        assert self._searcher is not None
        for query, hits in self._searcher.search_many(queries, settings.search, self.report):
            yield HitTexts.of_hits(query, hits, settings)

    def report(self, done: int, total: int | None) -> None:
        """Report the progress of a search, unless that was done just before."""
        if (now := time.monotonic()) - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(done, total)
