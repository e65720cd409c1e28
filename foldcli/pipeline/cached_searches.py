"""Searches whose alignments are kept in the feature cache, so that each is done once.

    CACHE/alignments/ab/abcdef…/NAME.a3m.gz

in a folder named by all that the search depends on: query, content of the database, settings.
"""

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.logs import logger
from foldcli.pipeline.alignment_request import AlignmentRequest

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.hits import Hit


@dataclass(frozen=True)
class CachedSearches:
    """Searches of one database.

    Args:
        cache: the feature cache's folder.
        database: opened target database.
        request: what is asked for, of this database.
        device: value of `--device`.
    """

    cache: Path
    database: "TargetDatabase"
    request: AlignmentRequest
    device: str

    def path(self, name: str, query: "FastaRecord") -> Path:
        """Where the alignment of a query lies once it has been searched with."""
        key = self.request.key(query)
        return self.cache / "alignments" / key[:2] / key / f"{name}.a3m.gz"

    def targets(
        self, queries: "Sequence[tuple[str, FastaRecord]]", overwrite: bool = False
    ) -> Iterator[AlignmentTarget]:
        """Each query's alignment, those that are there first, the others as they are found.

        Args:
            queries: with their file-safe names, each of at least 2 residues.
            overwrite: search again with those that are there, too.

        Raises:
            MissingError: a GPU was asked for and cannot be used.
            OSError: the cache cannot be written.
        """
        missing = []
        for name, query in queries:
            path = self.path(name, query)
            if path.is_file() and not overwrite:
                logger.debug("%s: searched before", name)
                yield AlignmentTarget(name, (str(path),))
            else:
                missing.append((name, query, path))
        if not missing:
            return
        from foldcli.pipeline.runtime import search_engine
        from foldcli.pipeline.searcher import LocalSearcher

        searcher = LocalSearcher(self.database, search_engine(self.device))
        found = searcher.search_many([query for _, query, _ in missing], self.request.settings)
        for (name, _, path), (query, hits) in zip(missing, found, strict=True):
            logger.debug("%s: %d hits", name, len(hits))
            self._write(path, query, hits)
            yield AlignmentTarget(name, (str(path),))

    def _write(self, path: Path, query: "FastaRecord", hits: "Sequence[Hit]") -> None:
        from msa.io.a3m import write_a3m
        from msa.io.atomic import atomic_write
        from msa.search.alignment_filter import alignment_hits

        text = io.StringIO()
        rows = alignment_hits(query, hits, self.request.chosen, self.request.settings.threads)
        write_a3m(text, query, rows)
        with atomic_write(path, "wb") as stream:
            # without the time, so that the same search writes the same bytes
            stream.write(gzip.compress(text.getvalue().encode(), mtime=0))
