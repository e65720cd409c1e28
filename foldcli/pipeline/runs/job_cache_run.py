"""A run of `foldcli cache-features` with jobs: search their proteins, and store what predictions need.

The stages are those of `foldcli fold` before the network: `ChainSearch`, then `Family.prepare`.
"""

import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foldcli.errors import OptionError
from foldcli.families.base import AnyFamily
from foldcli.families.registry import find_family
from foldcli.families.settings import JobSettings
from foldcli.inputs.failures import Failures
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.paths import cache_dir
from foldcli.pipeline.prepare.cached_features import CachedFeatures
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.runs.cache_run import CacheRun
from foldcli.pipeline.runs.dry_run import DONE, TO_DO, Inspection
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.settings import FeatureSettings, TemplateOptions
from msa.database.database import TargetDatabase


@functools.cache
def _template_stage(options: TemplateOptions) -> TemplateStage:
    """Open the source of templates, once in each process."""
    return TemplateStage.open(options, cache_dir())


@dataclass(frozen=True)
class JobTask:
    """A job whose inputs are added to a feature cache.

    Args:
        templates: the source of templates; None for no templates.
        chain_store: the alignments of its chains; None if there are no searches.
    """

    name: str
    job: object
    params: str
    settings: FeatureSettings
    templates: TemplateOptions | None
    chain_store: ChainStore | None
    seeds: tuple[int, ...]

    def add(self) -> CachedFeatures:
        """Add the inputs of the job to the cache, unless it has them; raises as `Family.prepare`."""
        with tempfile.TemporaryDirectory() as folder:
            # what `fold` stages in its results goes into the cache
            target = TargetRun(TargetFiles(self.name, Path(folder), "default"), self.job)
            family = find_family(self.params)
            was_cached = family.prepare(target, self.features(), self.request, self.seeds)
        return CachedFeatures(was_cached, target.facts.alignment_rows, target.facts.residues)

    @property
    def request(self) -> AlignmentRequest | None:
        """The request for the alignments of its chains; None if there are no searches."""
        return None if self.chain_store is None else self.chain_store.store.request

    def features(self) -> FeatureStage:
        """Return the feature stage for the job."""
        templates = None if self.templates is None else _template_stage(self.templates)
        return FeatureStage(self.settings, templates, {}, self.chain_store)

    def is_prepared(self) -> bool:
        """Return True if the cache has the inputs of the job."""
        return not self.settings.overwrite and find_family(self.params).is_prepared(
            self.name, self.job, self.features(), self.request, self.seeds
        )


@dataclass(frozen=True)
class JobCacheRun(CacheRun[object]):
    """A run that prepares jobs.

    Args:
        params: value of `--params`, whose family prepares jobs.
        templates: the source of templates; None for no templates.
        seeds: number of seeds, and the first one.
    """

    params: str
    templates: TemplateOptions | None
    seeds: JobSettings

    @property
    def family(self) -> AnyFamily:
        """The family of networks that predict the jobs."""
        return find_family(self.params)

    @property
    def size_unit(self) -> str:
        """The unit of the jobs' sizes."""
        return self.family.size_unit

    def check(self, item: object) -> None:
        """Raise InputError if a job cannot be predicted."""
        self.family.check(item)

    def check_database(self, targets: Sequence[tuple[str, object]]) -> None:
        """Check that there is a database if a job needs a search.

        Raises:
            OptionError: there is none.
        """
        name = next((name for name, job in targets if self.family.is_searched(job)), None)
        if self.database is None and name is not None:
            raise OptionError(
                f"{name} has proteins without an alignment, which need a search: give a database with --db"
            )

    def tasks(self, targets: Sequence[tuple[str, object]], failures: Failures) -> Iterator[JobTask]:
        """Open what the jobs need, and return their tasks; see `CacheRun`."""
        templates = self.templates
        if templates is not None:
            _template_stage(templates)  # builds a library once
            if min(self.workers, len(targets)) > 1:
                templates = replace(templates, search=replace(templates.search, threads=1))
        valid = self.valid(targets, failures)
        if self.database is None or not any(self.family.is_searched(job) for _, job in valid):
            return (self._task(name, job, templates, None) for name, job in valid)
        return self._search(valid, templates, self.database.open(), failures)

    def _search(
        self,
        valid: Sequence[tuple[str, object]],
        templates: TemplateOptions | None,
        database: TargetDatabase,
        failures: Failures,
    ) -> Iterator[JobTask]:
        """Yield the task of each job whose proteins have alignments, once they are found."""
        with self.opened_search(database, self.store(database)) as search:
            for result in search.search_ahead(valid, lambda pair: self.family.chains_to_search(pair[1])):
                if result.error is not None:
                    failures.add(result.target[0], result.error)
                else:
                    yield self._task(*result.target, templates, search.store)

    def inspect(self, name: str, item: object, store: CacheStore | None) -> Inspection:
        """Return the size of a job, and whether the cache has its inputs; see `CacheRun`."""
        size = self.family.size(item)
        if store is None and self.family.is_searched(item):
            return size, TO_DO  # the database does not exist yet
        task = self._task(name, item, self.templates, None if store is None else ChainStore(store))
        return size, DONE if task.is_prepared() else TO_DO

    def _task(
        self, name: str, job: object, templates: TemplateOptions | None, chain_store: ChainStore | None
    ) -> JobTask:
        seeds = tuple(self.seeds.seeds(self.family.seeds(job)))
        return JobTask(name, job, self.params, self.settings, templates, chain_store, seeds)
