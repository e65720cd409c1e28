"""The alignments of a run of `foldcli search`: one file per query in a folder, or one on standard output."""

import contextlib
import hashlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from features.complexes.a3m import write_job_a3m
from foldcli.errors import OptionError
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.inputs.failures import Failures
from foldcli.inputs.names import PROFILE_SUFFIXES
from foldcli.inputs.queries import Query, read_named_queries
from foldcli.logs import logger
from foldcli.paths import check_writable_folder, make_writable_folder
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.hit_texts import HitTexts, TextMaker
from foldcli.pipeline.search.stage import SearchResult, SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.order import LARGE_BATCH
from foldcli.search_runs.settings import SearchRun, profile_file
from foldcli.version import VERSION
from msa.base.atomic import atomic_write
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.base.json_files import read_json, write_json
from msa.base.temporary_names import remove_abandoned_files
from msa.engines.engine import ProfileCallback
from msa.io.fasta import FastaRecord
from msa.profile.pssm import QueryProfile
from msa.search.database_search import check_query

QueryType = TypeVar("QueryType", FastaRecord, Complex)


@dataclass(frozen=True)
class FolderStore:
    """Alignments in a folder: NAME.a3m or NAME.sto, and the record of each search next to it (.json).

    Args:
        file_format: "a3m" or "sto".
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

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Write the alignment of a query's hits, then its record."""
        facts = {"hits": texts.count, "capped": texts.capped}
        self._write(name, query, texts.alignment, texts.rows, facts)

    def write_complex(self, name: str, target: Complex, chain_alignments: Sequence[bytes]) -> None:
        """Write the alignment of a complex, then its record; see `ComplexStore`."""
        pairing, text = self.request.settings.pairing, io.StringIO()
        rows = write_job_a3m(text, name, chain_alignments, pairing)
        self._write(name, target, text.getvalue(), rows, {"pairing": asdict(pairing)})

    def _write(self, name: str, query: Query, text: str, rows: int, facts: dict[str, Any]) -> None:
        """Write an alignment with a number of rows, then its record."""
        # an interrupted run must not leave an old record next to a new alignment
        self._record_path(name).unlink(missing_ok=True)
        alignment = text.encode()
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
        write_json(self._record_path(name), record, indent=1)

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


def write_alignments(run: SearchRun, folder: Path, file_format: str) -> None:
    """Write one alignment per query; failed queries do not stop the others.

    Args:
        run: the run.
        folder: folder for the alignments; created if it does not exist.
        file_format: "a3m" or "sto".

    Raises:
        SomeTargetsFailed, TargetFailed: queries or files failed; see `Failures.finish`.
    """
    profiles = None if run.save_profile is None else Path(run.save_profile)
    folders = [folder] if profiles is None else [folder, profiles]
    for each in folders:
        check_writable_folder(each)
    failures = Failures(folder, run.shard)
    queries = run.shard.select(read_named_queries(run.sources, failures))
    stage = run.stage()
    for each in folders:
        make_writable_folder(each)
        remove_abandoned_files(each)
    store = FolderStore(folder, file_format, stage.request, profiles, run.overwrite)
    names = {id(query): name for name, query in queries}

    def save_profile(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
        path = store.profile_path(names[id(query)])
        with profile_file(path, run.settings.search.matrix) as add_profile:
            if add_profile is not None:
                add_profile(query, profile, of_family)

    on_profile = None if profiles is None else save_profile
    single_chains = [(name, query) for name, query in queries if not isinstance(query, Complex)]
    complexes = [(name, query) for name, query in queries if isinstance(query, Complex)]
    results = chain(
        _search_unfinished(stage, single_chains, store, on_profile),
        _search_complexes(run, stage, complexes, store, file_format),
    )
    failures.run(((result.name, result) for result in results), lambda _, result: result.raise_error())
    failures.finish()


def _search_complexes(
    run: SearchRun,
    stage: SearchStage,
    complexes: Sequence[tuple[str, Complex]],
    store: FolderStore,
    file_format: str,
) -> Iterator[SearchResult]:
    """Yield the outcome of each complex: unsupported and finished ones first."""
    unfinished: list[tuple[str, Complex]] = []
    check = partial(_check_complex, run, file_format=file_format)
    yield from _skip_finished(complexes, check, store, unfinished)
    if unfinished:
        assert run.cache is not None
        chain_store = ChainStore(CacheStore(run.cache, stage.request))
        with TargetLocks(Event()) as locks:
            search = ChainSearch(stage, chain_store, locks, LARGE_BATCH)
            yield from search.search_complexes(unfinished, store)


def _search_unfinished(
    stage: SearchStage,
    queries: Sequence[tuple[str, FastaRecord]],
    store: FolderStore,
    on_profile: ProfileCallback | None,
) -> Iterator[SearchResult]:
    """Yield the outcome of each query: invalid and finished ones first, then the others as searched."""
    unfinished: list[tuple[str, FastaRecord]] = []
    yield from _skip_finished(queries, check_query, store, unfinished)
    make = TextMaker(stage.settings, None, store.file_format)
    yield from stage.run(unfinished, store, on_profile, make=make)


def _skip_finished(
    queries: Sequence[tuple[str, QueryType]],
    check: Callable[[QueryType], None],
    store: FolderStore,
    unfinished: list[tuple[str, QueryType]],
) -> Iterator[SearchResult]:
    """Yield the outcomes of queries that are invalid or finished; append the others to `unfinished`."""
    for name, query in queries:
        try:
            check(query)
        except InputError as error:
            yield SearchResult(name, query, error)
            continue
        if store.is_finished(name, query):
            logger.info("%s: already done", name)
            yield SearchResult(name, query)
        else:
            unfinished.append((name, query))


def print_alignment(run: SearchRun, file_format: str) -> None:
    """Write the alignment of the only query, which may be a complex, to standard output.

    Raises:
        OptionError: there are several queries, or none.
        InputError: a file or a query is invalid.
    """
    queries = run.queries()
    if len(queries) != 1:
        raise OptionError(f"-o - with --format {file_format} takes one query, and there are {len(queries)}.")
    ((name, query),) = queries
    if isinstance(query, Complex):
        _check_complex(run, query, file_format)
        _print_complex(run, query)
        return
    make = TextMaker(run.settings, None, file_format)
    with profile_file(run.save_profile, run.settings.search.matrix) as on_profile:
        for _, _, texts in run.stage().search([(name, query)], make, on_profile):
            sys.stdout.write(texts.alignment)


def _print_complex(run: SearchRun, target: Complex) -> None:
    chain_queries = [(chain.id, chain_query(chain)) for chain in target.distinct_chains().values()]
    found = run.stage().search(chain_queries, TextMaker(run.settings, None))
    alignment_of = {query.sequence: texts.alignment.encode() for _, query, texts in found}
    alignments = [alignment_of[chain.sequence] for chain in target.chains]
    write_job_a3m(sys.stdout, target.name, alignments, run.settings.pairing)


def _check_complex(run: SearchRun, target: Complex, file_format: str) -> None:
    """Check that the requested kinds of results can be written for a complex."""
    reason = f"{target.id!r} has {len(target.chains)} protein chains"
    if file_format != "a3m":
        raise InputError(f"{reason}; alignments of complexes are A3M: --format a3m", target.path, target.line)
    if run.save_profile is not None:
        raise InputError(f"{reason}; --save-profile takes single chains", target.path, target.line)
