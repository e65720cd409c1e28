"""Runs of `foldcli cache-features`: the steps of all, and the run that caches AlphaFold2's features."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from features.cache.cache import FeatureCache, cache_key
from features.chemistry.residues import check_foldable
from features.complexes.cache import complex_key
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import FeatureInput
from foldcli.logs import logger
from foldcli.pipeline.prepare.cached_features import CachedFeatures, CacheTask
from foldcli.pipeline.prepare.template_stage import warn_of_unused_templates
from foldcli.pipeline.processes.worker_pool import WorkResult, map_in_processes
from foldcli.pipeline.runs.dry_run import (
    DONE,
    TO_DO,
    Inspection,
    PlanHeading,
    database_heading,
    plan_targets,
    print_plan,
)
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.settings import FeatureSettings
from foldcli.progress import progress_bar
from msa.base.errors import InputError
from msa.base.progress import Progress
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.database_search import check_query


class Task(Protocol):
    """A task that adds the inputs of a target to a feature cache, in a process."""

    @property
    def name(self) -> str:
        """The target's file-safe name."""
        ...

    def add(self) -> CachedFeatures:
        """Add the inputs, unless the cache has them."""
        ...


T = TypeVar("T")
Item = TypeVar("Item")
Result: TypeAlias = WorkResult[Task, CachedFeatures]


def _add(task: Task) -> CachedFeatures:
    return task.add()


def _results(tasks: Iterator[Task], workers: int) -> Iterator[Result]:
    """Yield the result of each task, in any order."""
    if workers > 1:
        yield from map_in_processes(_add, tasks, workers)
        return
    for index, task in enumerate(tasks):
        try:
            yield WorkResult(index, task, task.add())
        except Exception as error:
            yield WorkResult(index, task, error=error)


@dataclass(frozen=True)
class CacheRun(ABC, Generic[T]):
    """A run of `foldcli cache-features`; there is a class for each kind of inputs.

    Args:
        database: database for what has no alignment; None if there is none.
    """

    settings: FeatureSettings
    alignment: AlignmentSettings
    database: DatabaseSource | None
    workers: int

    @classmethod
    def from_options(cls, options: dict[str, Any], cache: Path, **fields: Any) -> Self:
        """Create the run from the values of the command's options, and the fields of its own kind."""
        databases = options["databases"]
        source = DatabaseSource(databases[0], options["device"], databases[1:]) if databases else None
        return cls(
            FeatureSettings(cache, options["overwrite"], options["verify"]),
            AlignmentSettings.from_options(options, options["threads"]),
            source,
            options["workers"],
            **fields,
        )

    @property
    def size_unit(self) -> str:
        """The unit of the targets' sizes."""
        return "residues"

    @abstractmethod
    def check(self, item: Any) -> None:
        """Raise InputError if a target that may be searched cannot be prepared."""

    @abstractmethod
    def tasks(self, targets: Sequence[tuple[str, T]], failures: Failures) -> Iterator[Task]:
        """Yield the tasks of the targets, once what they need is searched; `failures` gets the others."""

    @abstractmethod
    def inspect(self, name: str, item: T, store: CacheStore | None) -> Inspection:
        """Return the size of a target, and the action of the run.

        Args:
            name: the target's file-safe name.
            item: its input.
            store: the stored alignments; None without a database, or if it would have to be built first.

        Raises:
            InputError: the target is invalid.
        """

    def run(self, targets: Sequence[tuple[str, T]], failures: Failures) -> None:
        """Add the inputs of all targets to the cache, report them in order, and log how many there are."""
        num_added = num_existing = 0

        def log(name: str, result: Result) -> None:
            nonlocal num_added, num_existing
            cached = result.get()
            num_existing += cached.was_cached
            num_added += not cached.was_cached
            state = "already cached" if cached.was_cached else "cached"
            logger.info("%s: %s, %d %s, %d rows", name, state, cached.residues, self.size_unit, cached.rows)

        def report(result: Result) -> None:
            failures.run([(result.item.name, result)], log)

        num_failed_before = len(failures.failed)
        tasks, workers = self.tasks(targets, failures), min(self.workers, len(targets))
        # results arrive in any order, and are reported in the order of the targets
        unreported: dict[int, Result] = {}
        num_reported = 0

        def show(progress: Progress) -> None:
            # targets that could not be searched have no result
            num_failed = len(failures.failed) - num_failed_before
            progress(num_added + num_existing + num_failed + len(unreported), len(targets))

        try:
            with progress_bar("caching features", "target") as progress:
                for result in _results(tasks, workers):
                    unreported[result.index] = result
                    while num_reported in unreported:
                        report(unreported.pop(num_reported))
                        num_reported += 1
                    show(progress)
                show(progress)
        finally:
            # after an interrupt, targets may be finished although earlier ones are not
            for _, result in sorted(unreported.items()):
                report(result)
        logger.info("%d cached, %d already there, %d failed", num_added, num_existing, len(failures.failed))

    def print_plan(
        self, targets: Sequence[tuple[str, T]], shard: Shard, failures: Failures, as_json: bool
    ) -> None:
        """Print what the run would do, without searching; alignments are read.

        Args:
            targets: names and inputs of all shards.
            shard: the run's share of the targets.
            failures: gets the targets that cannot be read.
            as_json: print one JSON object instead of a table.

        Raises:
            SomeTargetsFailed, TargetFailed: a target or a file is invalid.
        """
        database = None if self.database is None else self.database.open_existing()
        store = None if database is None else self.store(database)
        cache = str(self.settings.cache)
        headings = [PlanHeading(f"feature cache: {cache}", "cache", {"path": cache})]
        if self.database is not None:
            headings.append(database_heading(self.database.db, database))
        planned = plan_targets(targets, lambda name, item: self.inspect(name, item, store), shard, failures)
        print_plan(planned, headings, failures, as_json, self.size_unit)

    def valid(self, targets: Sequence[tuple[str, Item]], failures: Failures) -> list[tuple[str, Item]]:
        """Return the targets that `check` accepts; `failures` gets the others."""
        valid = []
        for name, item in targets:
            try:
                self.check(item)
            except InputError as error:
                failures.add(name, error)
            else:
                valid.append((name, item))
        return valid

    def store(self, database: TargetDatabase) -> CacheStore:
        """Return the stored alignments of searches of a database."""
        request = AlignmentRequest(database.checksums, self.alignment)
        return CacheStore(self.settings.cache, request, self.settings.overwrite)

    @contextlib.contextmanager
    def opened_search(self, database: TargetDatabase, store: CacheStore) -> Iterator[ChainSearch]:
        """Open the search of an opened database, which stores alignments and holds the locks of chains."""
        assert self.database is not None
        stage = SearchStage(open_searcher(self.database, database), self.alignment, show_progress=False)
        with TargetLocks(Event()) as locks:
            yield ChainSearch(stage, ChainStore(store), locks)


@dataclass(frozen=True)
class FeatureCacheRun(CacheRun[FeatureInput]):
    """A run that caches AlphaFold2's features of alignments, sequences and complexes."""

    def check(self, item: FastaRecord | Complex) -> None:
        """Check that a query can be searched with; of a complex, also that each chain can be predicted."""
        if not isinstance(item, Complex):
            check_query(item)
            return
        for chain_record in item.chains:
            check_query(chain_record)
            check_foldable(chain_record.sequence)

    def tasks(self, targets: Sequence[tuple[str, FeatureInput]], failures: Failures) -> Iterator[CacheTask]:
        """Yield the tasks of alignments, and of queries once they are searched; see `CacheRun`."""
        aligned = [item for _, item in targets if isinstance(item, AlignmentTarget)]
        queries = [(name, item) for name, item in targets if not isinstance(item, AlignmentTarget)]
        for target in chain(aligned, self._search(queries, failures)):
            yield CacheTask(target, self.settings)

    def _search(
        self, queries: Sequence[tuple[str, FastaRecord | Complex]], failures: Failures
    ) -> Iterator[AlignmentTarget]:
        """Yield the alignments of the queries: stored ones first, then each one once it is searched."""
        valid = self.valid(queries, failures)
        if not valid:
            return
        assert self.database is not None  # find_feature_targets refuses sequences without a database
        database = self.database.open()
        store = self.store(database)
        unsearched: list[tuple[str, FastaRecord]] = []
        complexes: list[tuple[str, Complex]] = []
        for name, query in valid:
            for chain_name in query.cyclic:
                logger.warning(
                    "%s: chain %s is cyclic, which the cache does not keep: add --cyclic %s to `predict`",
                    name, chain_name, chain_name,
                )  # fmt: skip
            warn_of_unused_templates(name, query, "the cache does not keep them")
            if store.is_finished(name, query):
                logger.debug("%s: searched before", name)
                yield _alignment_target(store, name, query)
            elif isinstance(query, Complex):
                complexes.append((name, query))
            else:
                unsearched.append((name, query))
        if not unsearched and not complexes:
            return
        with self.opened_search(database, store) as search:
            for result in chain(
                search.stage.run(unsearched, store), search.search_complexes(complexes, store)
            ):
                if result.error is not None:
                    failures.add(result.name, result.error)
                else:
                    yield _alignment_target(store, result.name, result.query)

    def inspect(self, name: str, item: FeatureInput, store: CacheStore | None) -> Inspection:
        """Return the size of a target, and whether the cache has its features; see `CacheRun`."""
        if not isinstance(item, AlignmentTarget):
            self.check(item)
            if store is None or not store.is_finished(name, item):
                return item.residues if isinstance(item, Complex) else len(item.sequence), TO_DO
            item = _alignment_target(store, name, item)
        contents = item.read_contents()
        if (rows := item.parse_complex(contents)) is not None:
            size, key = rows.residues, complex_key(name, rows)
        else:
            alignments = item.parse(contents)
            size, key = len(alignments[0].query), cache_key(alignments)
        is_cached = not self.settings.overwrite and FeatureCache(self.settings.cache).path(key).is_file()
        return size, DONE if is_cached else TO_DO


def _alignment_target(store: CacheStore, name: str, query: FastaRecord | Complex) -> AlignmentTarget:
    return AlignmentTarget(name, (str(store.path(name, query)),))
