"""A run of `foldcli cache-features` with jobs: search their proteins, and store what predictions need.

The stages are those of `foldcli fold` before the network: `ChainSearch`, then `Family.prepare`.
"""

import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from foldcli.families.base import Family, PlanHeading
from foldcli.families.registry import find_family
from foldcli.families.settings import JobSettings
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.paths import cache_dir
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.prepare.features import CachedFeatures
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.runs.cache_run import store_all
from foldcli.pipeline.runs.dry_run import DONE, TO_DO, Inspection, database_heading, plan_targets, print_plan
from foldcli.pipeline.search.chains import ChainSearch, ChainStore
from foldcli.pipeline.search.joined import make_joined
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.settings import FeatureSettings, TemplateOptions
from msa.base.errors import InputError

if TYPE_CHECKING:
    from foldcli.pipeline.search.searcher import DatabaseSource
    from msa.database.database import TargetDatabase


@dataclass(frozen=True)
class JobTask:
    """A job whose inputs are added to a feature cache.

    Args:
        templates: the source of templates; None for no templates.
        chain_store: the alignments of its chains; None if there are no searches.
    """

    name: str
    job: Any
    params: str
    settings: FeatureSettings
    templates: TemplateOptions | None
    chain_store: ChainStore | None
    seeds: tuple[int, ...]

    @property
    def request(self) -> AlignmentRequest | None:
        """The request for the alignments of its chains; None if there are no searches."""
        return None if self.chain_store is None else self.chain_store.store.request

    def features(self) -> FeatureStage:
        """Return the feature stage for the job."""
        templates = None if self.templates is None else _template_stage(self.templates)
        return FeatureStage(self.settings, templates, {}, None, self.chain_store)

    def is_prepared(self) -> bool:
        """Return True if the cache has the inputs of the job."""
        return not self.settings.overwrite and find_family(self.params).is_prepared(
            self.name, self.job, self.features(), self.request, self.seeds
        )


@functools.cache
def _template_stage(options: TemplateOptions) -> TemplateStage:
    """Open the source of templates, once in each process."""
    return TemplateStage.open(options, cache_dir())


def prepare(task: JobTask) -> CachedFeatures:
    """Add the inputs of a job to a feature cache, unless the cache has them; raises as `Family.prepare`."""
    with tempfile.TemporaryDirectory() as folder:
        # what `fold` stages in its results goes into the cache
        target = TargetRun(TargetFiles(task.name, Path(folder), "default"), task.job)
        was_cached = find_family(task.params).prepare(target, task.features(), task.request, task.seeds)
    return CachedFeatures(was_cached, target.facts["alignment_rows"], target.facts["residues"])


@dataclass(frozen=True)
class JobCacheRun:
    """A run of `foldcli cache-features` with jobs.

    Args:
        database: database for proteins without an alignment; None if there is none.
        params: value of `--params`, whose family prepares jobs.
        templates: the source of templates; None for no templates.
        seeds: number of seeds, and the first one.
    """

    settings: FeatureSettings
    alignment: AlignmentSettings
    database: "DatabaseSource | None"
    workers: int
    params: str
    templates: TemplateOptions | None
    seeds: JobSettings

    @property
    def family(self) -> Family:
        """The family of networks that predict the jobs."""
        return find_family(self.params)

    def check_database(self, targets: Sequence[tuple[str, Any]]) -> None:
        """Check that there is a database if a job needs a search.

        Raises:
            click.UsageError: there is none.
        """
        name = next((name for name, job in targets if self.family.is_searched(job)), None)
        if self.database is None and name is not None:
            raise click.UsageError(
                f"{name} has proteins without an alignment, which need a search: give a database with --db"
            )

    def run(self, targets: Sequence[tuple[str, Any]], failures: Failures) -> None:
        """Add the inputs of all jobs to the cache; `failures` gets the jobs that fail."""
        templates, workers = self.templates, min(self.workers, len(targets))
        if templates is not None:
            _template_stage(templates)  # builds a library once
            if workers > 1:
                templates = replace(templates, search=replace(templates.search, threads=1))
        database = chain_store = None
        if self.database is not None and any(self.family.is_searched(job) for _, job in targets):
            database = self.database.open()
            chain_store = self._chain_store(database)
        tasks = (
            self._task(name, job, templates, chain_store)
            for name, job in self._search(targets, database, chain_store, failures)
        )
        store_all(prepare, tasks, len(targets), workers, failures, self.family.size_unit)

    def _task(
        self, name: str, job: Any, templates: TemplateOptions | None, chain_store: ChainStore | None
    ) -> JobTask:
        seeds = tuple(self.seeds.seeds(self.family.seeds(job)))
        return JobTask(name, job, self.params, self.settings, templates, chain_store, seeds)

    def _chain_store(self, database: "TargetDatabase") -> ChainStore:
        request = AlignmentRequest(database.checksums, self.alignment)
        return ChainStore(CacheStore(self.settings.cache, request, self.settings.overwrite))

    def _search(
        self,
        targets: Sequence[tuple[str, Any]],
        database: "TargetDatabase | None",
        chain_store: ChainStore | None,
        failures: Failures,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the jobs whose proteins have alignments, once they are found."""
        valid = []
        for name, job in targets:
            try:
                self.family.check(job)
            except InputError as error:
                failures.add(name, error)
            else:
                valid.append((name, job))
        if self.database is None or database is None or chain_store is None:
            yield from valid
            return
        stage = SearchStage(make_joined(self.database, database), self.alignment, show_progress=False)
        with TargetLocks(Event()) as locks:
            search = ChainSearch(stage, chain_store, locks)
            for result in search.search_ahead(valid, lambda pair: self.family.chains_to_search(pair[1])):
                if result.error is None:
                    yield result.target
                else:
                    failures.add(result.target[0], result.error)

    def print_plan(
        self, targets: Sequence[tuple[str, Any]], shard: Shard, failures: Failures, as_json: bool
    ) -> None:
        """Print what the run would do, without searching; raises as `CacheRun.print_plan`."""
        cache = str(self.settings.cache)
        headings = [PlanHeading(f"feature cache: {cache}", "cache", {"path": cache})]
        database = None if self.database is None else self.database.open_existing()
        if self.database is not None:
            headings.append(database_heading(self.database.db, database))
        chain_store = None if database is None else self._chain_store(database)

        def inspect(name: str, job: Any) -> Inspection:
            size = self.family.size(job)
            if chain_store is None and self.family.is_searched(job):
                return size, TO_DO  # the database does not exist yet
            task = self._task(name, job, self.templates, chain_store)
            return size, DONE if task.is_prepared() else TO_DO

        planned = plan_targets(targets, inspect, shard, failures)
        print_plan(planned, headings, failures, as_json, self.family.size_unit)
