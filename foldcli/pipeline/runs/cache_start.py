"""The run that `foldcli cache-features` starts, of features or of jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from features.cache.cleanup import remove_abandoned
from foldcli.families.registry import find_family
from foldcli.families.settings import JobSettings
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import find_feature_targets
from foldcli.paths import check_writable_folder
from foldcli.pipeline.runs.cache_run import CacheRun
from foldcli.pipeline.runs.job_cache_run import JobCacheRun
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.search.searcher import DatabaseSource
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.settings import FeatureSettings, TemplateOptions

# options of jobs, by parameter name
_JOB_OPTIONS = (
    "templates", "no_templates", "max_template_date", "exclude_self", "custom_template_path", "pdb_hit_file",
    "local_pdb_path", "num_seeds", "random_seed", "rna_db",
)  # fmt: skip


def run_cache_features(
    context: click.Context, inputs: Sequence[str], cache: Path, shard: Shard, dry_run: bool, as_json: bool
) -> None:
    """Fill a cache, or print what would be done.

    Args:
        context: of `foldcli cache-features`, whose values of options are the settings.
        inputs: the inputs.
        cache: the cache.
        shard: the share of the targets.
        dry_run: only print.
        as_json: print JSON.
    """
    values = context.params
    databases = values["databases"]
    settings = _Settings(
        FeatureSettings(cache, values["overwrite"], values["verify"]),
        AlignmentSettings.from_options(values, values["threads"]),
        DatabaseSource(databases[0], values["device"], databases[1:]) if databases else None,
        values["workers"],
    )
    failures = Failures(cache, shard)
    make_run = _run_of_features if values["params"] is None else _run_of_jobs
    run, targets = make_run(context, inputs, settings, failures)
    if dry_run:
        run.print_plan(targets, shard, failures, as_json)
        return
    check_writable_folder(cache)
    remove_abandoned(cache)
    run.run(shard.select(targets), failures)
    failures.finish()


class _Settings(NamedTuple):
    """The settings that runs of both kinds have; see `CacheRun`."""

    features: FeatureSettings
    alignment: AlignmentSettings
    database: DatabaseSource | None
    workers: int


def _run_of_features(
    context: click.Context, inputs: Sequence[str], settings: _Settings, failures: Failures
) -> tuple[CacheRun, list[tuple[str, Any]]]:
    """Return a run that stores AlphaFold2's features, and its targets."""
    for name in _JOB_OPTIONS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for jobs of molecules (--params openfold3)")
    targets = find_feature_targets(inputs, settings.database is not None, failures)
    return CacheRun(*settings), [*targets]


def _run_of_jobs(
    context: click.Context, inputs: Sequence[str], settings: _Settings, failures: Failures
) -> tuple[JobCacheRun, list[tuple[str, Any]]]:
    """Return a run that prepares jobs, and the jobs."""
    values = context.params
    family = find_family(values["params"])
    if not family.prepares_jobs:
        raise click.UsageError("--params: only all-atom networks have jobs of molecules; leave it out")
    family.check_options(values, ())
    templates = TemplateOptions.from_options(values, values["threads"])
    seeds = JobSettings(**JobSettings.seed_values(values))
    run = JobCacheRun(*settings, params=values["params"], templates=templates, seeds=seeds)
    search = settings.alignment.search
    targets = family.read_queries(QuerySources(inputs, search.comp_bias_corr, search.matrix), failures)
    if values["rna_db"] is not None:
        rna = RnaSearch(values["rna_db"], settings.alignment, settings.features.cache)
        targets = rna.add_alignments(targets, failures, values["dry_run"])
    run.check_database(targets)
    return run, targets
