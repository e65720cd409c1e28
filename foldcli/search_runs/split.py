"""Runs of `foldcli search --partial` on one part of a split database, and of `foldcli merge-hits`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from foldcli.errors import OptionError
from foldcli.inputs.queries import QuerySources, name_single_chains
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.outputs.resumable_table import refuse_existing
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.protocols import HitSearcher
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.progress import Progress, progress_bar
from foldcli.version import VERSION
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.m8 import COLUMNS
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import to_record
from msa.base.temporary_names import remove_abandoned_files
from msa.database.manifest import WholeDatabase
from msa.engines.engine import ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord
from msa.search.database_search import check_query
from msa.search.split.hit_files import PartHitsFile, PartHitsWriter, describe_queries
from msa.search.split.merge import PartHits, merge_hits
from msa.search.split.part_search import ReadParts

FORMATS = ("m8", "a3m", "sto")
"""Choices of `--format`."""


@dataclass(frozen=True)
class ResultFormat:
    """The format of the results of `merge-hits`.

    Args:
        columns: columns of m8; see `msa.alignments.m8`.
    """

    file_format: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class PartSearchRun:
    """A search of one part of a split database."""

    sources: QuerySources
    settings: AlignmentSettings
    result: ResultFormat
    source: DatabaseSource
    previous: Sequence[str]
    shard: Shard
    overwrite: bool

    def to_file(self, out: Path) -> None:
        """Write the hits of all queries in the next iteration into one file.

        The file appears when it is complete. One that an earlier run of the same search has completed is
        kept.

        Raises:
            OptionError: the file exists, and is of another search; or no iteration follows.
            InputError: the database is no part of a split one, a file or a query is invalid, or `previous`
                does not have all hits of earlier iterations of the same search.
        """
        queries = self._queries()
        searcher = open_searcher(self.source)
        assert isinstance(searcher, LocalSearcher)
        whole = searcher.database.manifest.whole
        if whole is None:
            raise InputError("no part of a split database; --partial is for those", searcher.database.path)
        earlier = self._earlier(whole, queries)
        iteration, iterations = len(earlier) + 1, self.settings.search.num_iterations
        about = {
            "whole": asdict(whole),
            "search": describe_search(self.settings, self.result, self.shard),
            "iteration": iteration,
        }
        if not self.overwrite and _is_finished(out, about, queries):
            logger.info("%s: already done", out)
            return
        refuse_existing(out, self.overwrite)
        remove_abandoned_files(out.parent, f"{out.name}.")
        with (
            progress_bar("search", "targets") as progress,
            atomic_write(out, "wb") as stream,
            PartHitsWriter(stream, about) as writer,
        ):
            for query, part in searcher.search_part(queries, self.settings.search, earlier, progress):
                where = f"part {whole.part} of {whole.parts}"
                if part is None:
                    logger.info("%s: not searched again, its profile has not changed", query.id)
                else:
                    logger.info("%s: %d hits in %s", query.id, len(part.hits), where)
                writer.add(query, part)
        if iteration < iterations:
            logger.info(
                "%s: iteration %d of %d; the next one needs it with those of all parts (--previous)",
                out, iteration, iterations,
            )  # fmt: skip

    def _earlier(self, whole: WholeDatabase, queries: Sequence[FastaRecord]) -> list[ReadParts]:
        """Return the hits of earlier iterations; raises the errors of `to_file` about them."""
        if not self.previous:
            return []
        hits = SplitHits.open(self.previous, self.settings.search.threads)
        file, search = hits.iterations[0][0], describe_search(self.settings, self.result, self.shard)
        if difference := _difference(file, hits.whole, whole, search, queries):
            raise InputError(f"not of this search: {difference} differs", file.path)
        if len(hits.iterations) >= (count := self.settings.search.num_iterations):
            text = f"--previous has the hits of all iterations (--num-iterations {count}): merge them."
            raise OptionError(text)
        return [partial(hits.read, index) for index in range(len(hits.iterations))]

    def _queries(self) -> list[FastaRecord]:
        """Return the queries of this shard, with distinct ids, in the order of their names."""
        named_queries = name_single_chains(record for _, read in self.sources.readers() for record in read())
        for _, query in named_queries:
            check_query(query)
        if self.result.file_format != "m8":
            return [query for _, query in self.shard.select(named_queries)]
        # tables keep the order of the input
        selected = self.shard.select((query.id, index) for index, (_, query) in enumerate(named_queries))
        return [named_queries[index][1] for index in sorted(index for _, index in selected)]


def describe_search(settings: AlignmentSettings, result: ResultFormat, shard: Shard) -> dict[str, Any]:
    """Return the description of a search in a file of hits; the same for all parts of a database."""
    return {
        "foldcli": VERSION,
        "kind": result.file_format,
        "columns": list(result.columns),
        "shard": [shard.index, shard.count],
        "settings": _json_values(settings.identity()),
    }


def _json_values(identity: dict[str, Any]) -> dict[str, Any]:
    """Return settings as a JSON file returns them, with lists in place of tuples."""
    return {
        group: {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        for group, values in identity.items()
    }


def _is_finished(path: Path, about: dict[str, Any], queries: Sequence[FastaRecord]) -> bool:
    """Return whether a file is the complete result of the same search."""
    with contextlib.suppress(InputError, OSError):
        file = PartHitsFile.open(path)
        same_profiles = all(
            not isinstance(query, ProfileRecord)
            or (isinstance(old, ProfileRecord) and bool((old.profile == query.profile).all()))
            for query, old in zip(queries, file.queries, strict=False)
        )
        return (
            file.about == about
            and describe_queries(file.queries) == describe_queries(queries)
            and same_profiles
        )
    return False


@dataclass(frozen=True)
class SplitHits:
    """The hits of all parts of a database in one or more iterations of a search."""

    iterations: Sequence[Sequence[PartHitsFile]]
    whole: WholeDatabase
    settings: AlignmentSettings
    result: ResultFormat

    @classmethod
    def open(cls, paths: Sequence[str], threads: int) -> "SplitHits":
        """Open the files of one search.

        Args:
            paths: in any order.
            threads: CPU threads for the rows of alignments.

        Raises:
            InputError: a file is damaged, of another search than the first, or of the same part and iteration
                as another; or a file is missing.
        """
        files = [PartHitsFile.open(path) for path in paths]
        described = [_parse_about(file, threads) for file in files]
        first, (whole, settings, result) = files[0], described[0]
        by_iteration_and_part: dict[tuple[int, int], PartHitsFile] = {}
        for file, (of_file, _, _) in zip(files, described, strict=True):
            difference = _difference(file, of_file, whole, first.about["search"], first.queries)
            if difference:
                raise InputError(f"not of the same search as {first.path}: {difference} differs", file.path)
            key = file.about["iteration"], of_file.part
            if key in by_iteration_and_part:
                raise InputError(f"part {of_file.part} is given more than once", file.path)
            by_iteration_and_part[key] = file
        iterations = []
        for iteration in range(1, max(by_iteration_and_part)[0] + 1):
            missing = [
                str(part)
                for part in range(1, whole.parts + 1)
                if (iteration, part) not in by_iteration_and_part
            ]
            if missing:
                reason = f"of {whole.parts} parts, no file has the hits of {', '.join(missing)}"
                several = settings.search.num_iterations > 1
                raise InputError(f"{reason} in iteration {iteration}" if several else reason)
            of_parts = [by_iteration_and_part[iteration, part] for part in range(1, whole.parts + 1)]
            for file in of_parts:
                if file.searched != of_parts[0].searched:
                    raise InputError(f"not of the same queries as {of_parts[0].path}", file.path)
            iterations.append(of_parts)
        return cls(iterations, whole, settings, result)

    def read(self, iteration: int, query: int) -> list[PartHits]:
        """Read the hits of a query in all parts; both indices start from 0.

        Raises:
            InputError: a file is damaged, or the query did not take part.
        """
        return [file.read(query) for file in self.iterations[iteration]]


@dataclass(frozen=True)
class MergedSearcher(HitSearcher):
    """The merged results of the searches of all parts."""

    hits: SplitHits

    @classmethod
    def open(cls, paths: Sequence[str], threads: int) -> "MergedSearcher":
        """Open the files of one search; see `SplitHits.open`."""
        hits = SplitHits.open(paths, threads)
        num_present, num_iterations = len(hits.iterations), hits.settings.search.num_iterations
        if num_present < num_iterations:
            raise InputError(
                f"hits of iteration {num_present} of {num_iterations}: search all parts again "
                "with --previous, or from the start with --fast",
                hits.iterations[-1][0].path,
            )
        return cls(hits)

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the files of the database before it was split."""
        return self.hits.whole.checksums

    @property
    def _queries(self) -> list[FastaRecord]:
        return self.hits.iterations[0][0].queries

    def readers(self) -> Iterator[tuple[str, Callable[[], Sequence[FastaRecord]]]]:
        """Yield the first file with a function that returns the queries; see `QuerySources`."""
        yield self.hits.iterations[0][0].path, lambda: self._queries

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits in the whole database; `on_profile` is not called.

        Raises:
            InputError: a file is damaged.
        """
        indices = {query.id: index for index, query in enumerate(self._queries)}
        iterations = self.hits.iterations
        for done, query in enumerate(queries, start=1):
            index = indices[query.id]
            last = max(t for t, (file, *_) in enumerate(iterations) if index in file.searched or t == 0)
            yield query, merge_hits(self.hits.read(last, index), settings, last + 1 < len(iterations))
            if progress is not None:
                progress(done, len(queries))


def _difference(
    file: PartHitsFile,
    of_file: WholeDatabase,
    whole: WholeDatabase,
    search: dict[str, Any],
    queries: Sequence[FastaRecord],
) -> str:
    """Return what differs between a file's search and another one; empty if nothing does."""
    if replace(of_file, part=whole.part) != whole:
        return "the database"
    if file.about["search"] != search:
        return f"the search ({_different_names(search, file.about['search'])})"
    return "" if describe_queries(file.queries) == describe_queries(queries) else "a query"


def _parse_about(file: PartHitsFile, threads: int) -> tuple[WholeDatabase, AlignmentSettings, ResultFormat]:
    """Parse the description of a search."""
    try:
        described = file.about["search"]
        search = to_record(described["settings"]["search"] | {"threads": threads}, SearchSettings)
        row_filter = to_record(described["settings"]["alignment"], AlignmentFilter)
        settings = AlignmentSettings(search, row_filter)
        result = to_record(described | {"file_format": described["kind"]}, ResultFormat)
        if result.file_format not in FORMATS or not set(result.columns) <= set(COLUMNS):
            raise ValueError(f"unknown format {result.file_format!r:.40}")
        whole = to_record(file.about["whole"], WholeDatabase)
        if not 1 <= whole.part <= whole.parts:
            raise ValueError(f"part {whole.part} of {whole.parts}")
        if not 1 <= file.about["iteration"] <= search.num_iterations:
            raise ValueError(f"iteration {file.about['iteration']} of {search.num_iterations}")
    except (LookupError, TypeError, ValueError, InputError) as error:
        raise InputError(f"damaged file of hits: {error}", file.path) from None
    return whole, settings, result


def _different_names(first: dict[str, Any], second: dict[str, Any]) -> str:
    return ", ".join(name for name in first if first[name] != second.get(name))
