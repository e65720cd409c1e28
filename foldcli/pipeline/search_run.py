"""A run of `foldcli search`: hits into one table, or one alignment per query."""

import contextlib
import hashlib
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import IO, Any

import click

from features.complexes.a3m import write_paired_a3m
from foldcli.inputs.complexes import Complex
from foldcli.inputs.names import PROFILE_SUFFIXES
from foldcli.inputs.queries import Query, QueryReaders, name_queries, read_named_queries
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.outputs.resumable_table import PlainTable, Table, open_table
from foldcli.paths import make_writable_folder
from foldcli.pipeline.alignment_stores import CacheStore, write_alignment
from foldcli.pipeline.chain_search import ChainStore, search_complexes
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.identity import AlignmentRequest, chain_query, file_sha256, fingerprint
from foldcli.pipeline.locks import TargetLocks
from foldcli.pipeline.search_stage import Searcher, SearchResult, SearchStage
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.version import VERSION
from msa.errors import InputError, MissingError
from msa.io.atomic import DiskFull, atomic_write, is_stream
from msa.io.fasta import FastaRecord
from msa.io.json_files import read_json
from msa.io.m8 import write_m8
from msa.io.saved_profiles import ProfileWriter
from msa.io.temporary_names import remove_abandoned_files
from msa.search.engine import ProfileCallback, QueryProfile
from msa.search.hits import Hits
from msa.search.search import check_query


@dataclass(frozen=True)
class SearchRun:
    """A run of `foldcli search`: its queries, database and settings.

    Args:
        sources: the queries.
        settings: settings of the searches and alignments.
        open_searcher: opens the database, or connects to a server that has it.
        shard: the run's share of the queries.
        save_profile: file or folder for the profiles of the last iteration, if requested.
        overwrite: replace existing results.
        cache: folder of the feature cache, which keeps the alignments of the chains of complexes; None if
            there are none.
    """

    sources: QueryReaders
    settings: AlignmentSettings
    open_searcher: Callable[[], Searcher]
    shard: Shard
    save_profile: str | None
    overwrite: bool
    cache: Path | None = None

    def to_table(self, out: str, columns: Sequence[str]) -> None:
        """Write the hits of all queries into one table, which appears only when it is complete.

        The finished queries of an interrupted run are kept for the next run with the same table.

        Each distinct chain of a complex is a query of its own, with a name such as NAME_A.

        Args:
            out: path of the table; "-" is standard output.
            columns: see `msa.io.m8`.

        Raises:
            click.UsageError: the table or the file of profiles exists.
            InputError: a file or a query is invalid.
            MissingError: the disk is full.
        """
        for path in filter(None, (out, self.save_profile)):
            if path == "-" or is_stream(path):
                continue
            if not self.overwrite and Path(path).exists():
                raise click.UsageError(f"{path} exists; --overwrite replaces it.")
            remove_abandoned_files(Path(path).parent, f"{Path(path).name}.")
        named_queries = self._queries()
        stage = self._stage()
        queries = _table_queries(named_queries, stage.request)
        num_written = 0
        try:
            with (
                _profile_file(self.save_profile, self.settings.search.matrix) as on_profile,
                self._open_table(out, columns, queries, stage.request) as table,
            ):
                if table.finished:
                    logger.info("%s: continuing after %d of %d queries", out, table.finished, len(queries))
                num_written = table.finished
                for _, query, hits in stage.search(queries[table.finished :], on_profile):
                    lines = io.StringIO()
                    write_m8(lines, query, hits, columns)
                    table.write(lines.getvalue(), hits.capped)
                    num_written += 1
        except DiskFull as error:
            estimate = error.written * len(queries) // max(num_written, 1)
            needed = f"about {estimate:,}" if estimate else "more"
            raise MissingError(
                f"{error.filename}: no space left on the disk; {needed} bytes are needed, and no partial "
                "file was kept",
                "Free some space, or write to another disk.",
            ) from error
        if table.capped:
            logger.warning(
                "%d of %d queries have more than %d hits (--max-seqs): only the best are listed",
                table.capped, len(queries), self.settings.search.max_seqs,
                extra={"fields": {"capped_queries": table.capped}},
            )  # fmt: skip

    def _open_table(
        self,
        out: str,
        columns: Sequence[str],
        queries: Sequence[tuple[str, FastaRecord]],
        request: AlignmentRequest,
    ) -> contextlib.AbstractContextManager[Table]:
        """Open the table, which can be continued unless profiles are saved with it."""
        if out == "-":
            return contextlib.nullcontext(PlainTable(sys.stdout))
        keys = [
            fingerprint([VERSION, list(columns), name, request.fingerprint(query)]) for name, query in queries
        ]
        return open_table(out, keys, resumable=self.save_profile is None)

    def to_stdout(self, file_format: str) -> None:
        """Write the alignment of the only query, which may be a complex, to standard output.

        Args:
            file_format: "a3m" or "sto".

        Raises:
            click.UsageError: there are several queries, or none.
            InputError: a file or a query is invalid.
        """
        queries = self._queries()
        if len(queries) != 1:
            raise click.UsageError(
                f"-o - with --format {file_format} takes one query, and there are {len(queries)}."
            )
        ((name, query),) = queries
        if isinstance(query, Complex):
            self._check_complex(query, file_format)
            self._complex_to_stdout(query)
            return
        with _profile_file(self.save_profile, self.settings.search.matrix) as on_profile:
            for _, _, hits in self._stage().search([(name, query)], on_profile):
                write_alignment(sys.stdout, query, hits, self.settings, file_format)

    def _complex_to_stdout(self, target: Complex) -> None:
        chain_queries = [(chain.id, chain_query(chain)) for chain in target.distinct_chains().values()]
        texts = {}
        for _, query, hits in self._stage().search(chain_queries):
            text = io.StringIO()
            write_alignment(text, query, hits, self.settings)
            texts[query.sequence] = text.getvalue().encode()
        alignments = [texts[chain.sequence] for chain in target.chains]
        write_paired_a3m(sys.stdout, alignments, self.settings.pairing)

    def _check_complex(self, target: Complex, file_format: str) -> None:
        """Check that the requested kinds of results can be written for a complex.

        Raises:
            InputError: the format is not A3M, or profiles are requested.
        """
        reason = f"{target.id!r} has {len(target.chains)} protein chains"
        if file_format != "a3m":
            raise InputError(
                f"{reason}; alignments of complexes are A3M: --format a3m", target.path, target.line
            )
        if self.save_profile is not None:
            raise InputError(f"{reason}; --save-profile takes single chains", target.path, target.line)

    def to_folder(self, folder: Path, file_format: str) -> None:
        """Write one alignment per query; failed queries do not stop the others.

        Args:
            folder: folder for the alignments; created if it does not exist.
            file_format: "a3m" or "sto".

        Raises:
            SomeTargetsFailed, TargetFailed: queries or files failed; see `Failures.finish`.
            OSError: a folder cannot be written.
        """
        make_writable_folder(folder)
        remove_abandoned_files(folder)
        profiles = None if self.save_profile is None else Path(self.save_profile)
        if profiles is not None:
            make_writable_folder(profiles)
            remove_abandoned_files(profiles)
        failures = Failures(folder, self.shard)
        queries = self.shard.select(read_named_queries(self.sources, failures))
        stage = self._stage()
        store = FolderStore(folder, file_format, stage.request, profiles, self.overwrite)
        names = {id(query): name for name, query in queries}

        def save_profile(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
            path = store.profile_path(names[id(query)])
            with _profile_file(path, self.settings.search.matrix) as add_profile:
                if add_profile is not None:
                    add_profile(query, profile, of_family)

        on_profile = None if profiles is None else save_profile
        single_chains = [(name, query) for name, query in queries if not isinstance(query, Complex)]
        complexes = [(name, query) for name, query in queries if isinstance(query, Complex)]
        results = chain(
            _search_unfinished(stage, single_chains, store, on_profile),
            self._search_complexes(stage, complexes, store, file_format),
        )
        failures.run(((result.name, result) for result in results), lambda _, result: result.raise_error())
        failures.finish()

    def _search_complexes(
        self,
        stage: SearchStage,
        complexes: Sequence[tuple[str, Complex]],
        store: "FolderStore",
        file_format: str,
    ) -> Iterator[SearchResult]:
        """Yield the outcome of each complex: unsupported and finished ones first."""
        unfinished = []
        for name, target in complexes:
            try:
                self._check_complex(target, file_format)
            except InputError as error:
                yield SearchResult(name, target, error)
                continue
            if store.is_finished(name, target):
                logger.info("%s: already done", name)
                yield SearchResult(name, target)
            else:
                unfinished.append((name, target))
        if unfinished:
            assert self.cache is not None
            chain_store = ChainStore(CacheStore(self.cache, stage.request))
            with TargetLocks(Event()) as locks:
                yield from search_complexes(unfinished, stage, store, chain_store, locks)

    def _stage(self) -> SearchStage:
        return SearchStage(self.open_searcher(), self.settings, log_level=logging.INFO)

    def _queries(self) -> list[tuple[str, Query]]:
        """Return the ids and queries of this shard in input order.

        Raises:
            InputError: a file cannot be read, or a query cannot be searched with.
        """
        named_queries = name_queries(record for _, read in self.sources.readers() for record in read())
        queries = [query for _, query in named_queries]
        for query in queries:
            for chain_or_query in query.chains if isinstance(query, Complex) else (query,):
                check_query(chain_or_query)
        selected = self.shard.select((query.id, index) for index, query in enumerate(queries))
        return [(queries[index].id, queries[index]) for index in sorted(index for _, index in selected)]


def _table_queries(
    queries: Sequence[tuple[str, Query]], request: AlignmentRequest
) -> list[tuple[str, FastaRecord]]:
    """Return the ids and queries of a table; each distinct chain of a complex becomes a query, NAME_A."""
    table: list[tuple[str, FastaRecord]] = []
    chains: dict[str, str] = {}
    repeated = []
    for query_id, query in queries:
        if not isinstance(query, Complex):
            table.append((query_id, query))
            continue
        for letter, chain_record in query.distinct_chains().items():
            chain_name = f"{query.name}_{letter}"
            name = chains.setdefault(request.fingerprint(chain_query(chain_record)), chain_name)
            if name == chain_name:
                table.append((name, replace(chain_record, header=name)))
            else:
                repeated.append(f"{chain_name} is {name}")
    if repeated:
        logger.info("chains that are listed under the name of an earlier one: %s", ", ".join(repeated))
    return table


@contextlib.contextmanager
def _profile_file(path: str | Path | None, matrix: str) -> Iterator[ProfileCallback | None]:
    """Yield the function that adds a profile to a file, which appears only when it is complete."""
    if path is None:
        yield None
        return
    with atomic_write(path, "wb") as stream, ProfileWriter(stream, matrix) as writer:
        yield writer.add


def _search_unfinished(
    stage: SearchStage,
    queries: Sequence[tuple[str, FastaRecord]],
    store: "FolderStore",
    on_profile: ProfileCallback | None,
) -> Iterator[SearchResult]:
    """Yield the outcome of each query: invalid and finished ones first, then the others as searched."""
    unfinished = []
    for name, query in queries:
        try:
            check_query(query)
        except InputError as error:
            yield SearchResult(name, query, error)
            continue
        if store.is_finished(name, query):
            logger.info("%s: already done", name)
            yield SearchResult(name, query)
        else:
            unfinished.append((name, query))
    yield from stage.run(unfinished, store, on_profile)


@dataclass(frozen=True)
class FolderStore:
    """Alignments in a folder: NAME.a3m or NAME.sto, and the record of each search next to it (.json).

    Args:
        folder: folder of the alignments.
        file_format: "a3m" or "sto".
        request: the database and settings that the alignments depend on.
        profiles: folder of the saved profiles, NAME.npz; None if none are saved.
        overwrite: search again even if the alignment exists.
    """

    folder: Path
    file_format: str
    request: AlignmentRequest
    profiles: Path | None
    overwrite: bool

    def profile_path(self, name: str) -> Path | None:
        """Return the path of a query's saved profile, or None if no profiles are saved."""
        return None if self.profiles is None else self.profiles / f"{name}{PROFILE_SUFFIXES[0]}"

    def is_finished(self, name: str, query: Query) -> bool:
        """Return whether an earlier run stored this alignment, and the profile if one is requested."""
        record, path = self._read_record(name), self._path(name)
        if self.overwrite or not path.is_file():
            return False
        if record.get("fingerprint") != self.request.fingerprint(query):
            return False
        if record.get("sha256") != file_sha256(path):
            logger.warning("%s: changed since its search, so the search runs again", path)
            return False
        profile = self.profile_path(name)
        return profile is None or (profile.is_file() and record.get("profile") == file_sha256(profile))

    def write(self, name: str, query: FastaRecord, hits: Hits) -> None:
        """Write the alignment of a query's hits, then its record.

        Raises:
            OSError: a file cannot be written.
        """

        def write_rows(stream: IO[str]) -> int:
            return write_alignment(stream, query, hits, self.request.settings, self.file_format)

        self._write(name, query, write_rows, {"hits": len(hits), "capped": hits.capped})

    def write_complex(self, name: str, target: Complex, chain_alignments: Sequence[bytes]) -> None:
        """Write the alignment of a complex, then its record; see `ComplexStore`."""

        def write_rows(stream: IO[str]) -> int:
            return write_paired_a3m(stream, chain_alignments, self.request.settings.pairing)

        self._write(name, target, write_rows, {"pairing": asdict(self.request.settings.pairing)})

    def _write(
        self, name: str, query: Query, write_rows: Callable[[IO[str]], int], facts: dict[str, Any]
    ) -> None:
        """Write an alignment with `write_rows`, which returns the number of rows, then its record."""
        # an interrupted run must not leave an old record next to a new alignment
        self._record_path(name).unlink(missing_ok=True)
        text = io.StringIO()
        rows = write_rows(text)
        alignment = text.getvalue().encode()
        with atomic_write(self._path(name), "wb") as stream:
            stream.write(alignment)
        settings = self.request.settings.identity()
        record = {
            "fingerprint": self.request.fingerprint(query),
            # not read from the file, which another run may have replaced
            "sha256": hashlib.sha256(alignment).hexdigest(),
            **facts,
            "rows": rows,
            "foldcli": VERSION,
            **settings["search"],
            "alignment": settings["alignment"],
        }
        if (profile := self.profile_path(name)) is not None:
            record["profile"] = file_sha256(profile)
        with atomic_write(self._record_path(name)) as stream:
            json.dump(record, stream, indent=1)
            stream.write("\n")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.{self.file_format}"

    def _record_path(self, name: str) -> Path:
        return self.folder / f"{name}.{self.file_format}.json"

    def _read_record(self, name: str) -> dict[str, Any]:
        """Return the record of a finished search, or an empty one if there is none."""
        with contextlib.suppress(OSError, ValueError):
            record = read_json(self._record_path(name))
            if isinstance(record, dict):
                return record
        return {}
