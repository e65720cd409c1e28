"""A run of `foldcli cache-features`: search the sequences, compute and cache features."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Protocol, TypeVar

from features.cache.cache import FeatureCache, cache_key
from features.chemistry.residues import check_foldable
from features.complexes.cache import complex_key
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import FeatureInput
from foldcli.logs import logger
from foldcli.pipeline.prepare.features import CachedFeatures, CacheTask, cache_features
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
from foldcli.pipeline.search.chains import ChainSearch, ChainStore
from foldcli.pipeline.search.joined import make_joined
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.settings import FeatureSettings
from foldcli.progress import progress_bar
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.search.search import check_query

if TYPE_CHECKING:
    from foldcli.pipeline.search.searcher import DatabaseSource
    from msa.database.database import TargetDatabase


class NamedTask(Protocol):
    """A task that adds the inputs of a target to a feature cache."""

    @property
    def name(self) -> str:
        """The target's file-safe name."""
        ...


TaskType = TypeVar("TaskType", bound=NamedTask)


def store_all(
    function: Callable[[TaskType], CachedFeatures],
    tasks: Iterator[TaskType],
    count: int,
    workers: int,
    failures: Failures,
    unit: str = "residues",
) -> None:
    """Run all tasks in processes, report them in their order, and log how many there are.

    Args:
        function: runs a task.
        tasks: the tasks, made as they are needed.
        count: their number, if none fails before.
        workers: number of processes.
        failures: gets the targets that fail.
        unit: unit of the targets' sizes.
    """
    num_added = num_existing = 0

    def log(name: str, result: WorkResult[TaskType, CachedFeatures]) -> None:
        nonlocal num_added, num_existing
        cached = result.get()
        if cached.was_cached:
            num_existing += 1
        else:
            num_added += 1
        state = "already cached" if cached.was_cached else "cached"
        logger.info("%s: %s, %d %s, %d rows", name, state, cached.residues, unit, cached.rows)

    def report(result: WorkResult[TaskType, CachedFeatures]) -> None:
        failures.run([(result.item.name, result)], log)

    # results arrive in any order, and are reported in the order of the targets
    unreported: dict[int, WorkResult[TaskType, CachedFeatures]] = {}
    num_reported = 0
    try:
        with progress_bar("caching features", "target") as progress:
            for done, result in enumerate(_results(function, tasks, min(workers, count)), start=1):
                progress(done, count)
                unreported[result.index] = result
                while num_reported in unreported:
                    report(unreported.pop(num_reported))
                    num_reported += 1
    finally:
        # after an interrupt, targets may be finished although earlier ones are not
        for _, result in sorted(unreported.items()):
            report(result)
    logger.info("%d cached, %d already there, %d failed", num_added, num_existing, len(failures.failed))


def _results(
    function: Callable[[TaskType], CachedFeatures], tasks: Iterator[TaskType], workers: int
) -> Iterator[WorkResult[TaskType, CachedFeatures]]:
    """Yield the result of each task, in any order."""
    if workers > 1:
        yield from map_in_processes(function, tasks, workers)
        return
    for index, task in enumerate(tasks):
        try:
            yield WorkResult(index, task, function(task))
        except Exception as error:
            yield WorkResult(index, task, error=error)


@dataclass(frozen=True)
class CacheRun:
    """A run of `foldcli cache-features`: its settings and database.

    Args:
        database: database for sequences; None if there is none.
    """

    settings: FeatureSettings
    alignment: AlignmentSettings
    database: "DatabaseSource | None"
    workers: int

    def run(self, targets: Sequence[tuple[str, FeatureInput]], failures: Failures) -> None:
        """Add the features of all targets to the cache, and log how many there are."""
        aligned = [item for _, item in targets if isinstance(item, AlignmentTarget)]
        queries = [(name, item) for name, item in targets if not isinstance(item, AlignmentTarget)]
        tasks = (
            CacheTask(target, self.settings) for target in chain(aligned, self._search(queries, failures))
        )
        store_all(cache_features, tasks, len(targets), self.workers, failures)

    def _search(
        self, queries: Sequence[tuple[str, FastaRecord | Complex]], failures: Failures
    ) -> Iterator[AlignmentTarget]:
        """Yield the alignments of the queries: stored ones first, then each one once it is searched."""
        valid = []
        for name, query in queries:
            try:
                _check_query(query)
            except InputError as error:
                failures.add(name, error)
            else:
                valid.append((name, query))
        if not queries:
            return
        assert self.database is not None  # find_feature_targets refuses sequences without a database
        database = self.database.open()
        store = self._store(database)
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
        stage = SearchStage(make_joined(self.database, database), self.alignment, show_progress=False)
        with TargetLocks(Event()) as locks:
            results = chain(
                stage.run(unsearched, store),
                ChainSearch(stage, ChainStore(store), locks).search_complexes(complexes, store),
            )
            for result in results:
                if result.error is not None:
                    failures.add(result.name, result.error)
                else:
                    yield _alignment_target(store, result.name, result.query)

    def _store(self, database: "TargetDatabase") -> CacheStore:
        request = AlignmentRequest(database.checksums, self.alignment)
        return CacheStore(self.settings.cache, request, self.settings.overwrite)

    def print_plan(
        self, targets: Sequence[tuple[str, FeatureInput]], shard: Shard, failures: Failures, as_json: bool
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
        store = None if database is None else self._store(database)
        entries = FeatureCache(self.settings.cache)

        def action_for(key: str) -> str:
            return DONE if not self.settings.overwrite and entries.path(key).is_file() else TO_DO

        def inspect(name: str, item: FeatureInput) -> Inspection:
            if not isinstance(item, AlignmentTarget):
                _check_query(item)
                if store is None or not store.is_finished(name, item):
                    return item.residues if isinstance(item, Complex) else len(item.sequence), TO_DO
                item = _alignment_target(store, name, item)
            contents = item.read_contents()
            rows = item.parse_complex(contents)
            if rows is not None:
                return rows.residues, action_for(complex_key(name, rows))
            alignments = item.parse(contents)
            return len(alignments[0].query), action_for(cache_key(alignments))

        cache = str(self.settings.cache)
        headings = [PlanHeading(f"feature cache: {cache}", "cache", {"path": cache})]
        if self.database is not None:
            headings.append(database_heading(self.database.db, database))
        print_plan(plan_targets(targets, inspect, shard, failures), headings, failures, as_json)


def _check_query(query: FastaRecord | Complex) -> None:
    """Check that a query can be searched with; of a complex, also that each chain can be predicted."""
    if not isinstance(query, Complex):
        check_query(query)
        return
    for chain_record in query.chains:
        check_query(chain_record)
        check_foldable(chain_record.sequence)


def _alignment_target(store: CacheStore, name: str, query: FastaRecord | Complex) -> AlignmentTarget:
    return AlignmentTarget(name, (str(store.path(name, query)),))
