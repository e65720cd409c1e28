"""The run that `foldcli cache-features` starts, of features or of jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from features.cache.cleanup import remove_abandoned
from foldcli.families.registry import find_family
from foldcli.families.settings import JobSettings
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import find_feature_targets
from foldcli.paths import check_writable_folder
from foldcli.pipeline.runs.cache_run import FeatureCacheRun
from foldcli.pipeline.runs.job_cache_run import JobCacheRun
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.targets.settings import TemplateOptions

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
    failures = Failures(cache, shard)
    make_run = _run_of_features if context.params["params"] is None else _run_of_jobs
    run, targets = make_run(context, inputs, cache, failures)
    if dry_run:
        run.print_plan(targets, shard, failures, as_json)
        return
    check_writable_folder(cache)
    remove_abandoned(cache)
    run.run(shard.select(targets), failures)
    failures.finish()


def _run_of_features(
    context: click.Context, inputs: Sequence[str], cache: Path, failures: Failures
) -> tuple[FeatureCacheRun, list[tuple[str, Any]]]:
    """Return a run that stores AlphaFold2's features, and its targets."""
    for name in _JOB_OPTIONS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for jobs of molecules (--params openfold3)")
    run = FeatureCacheRun.from_options(context.params, cache)
    targets = find_feature_targets(inputs, run.database is not None, failures)
    return run, [*targets]


def _run_of_jobs(
    context: click.Context, inputs: Sequence[str], cache: Path, failures: Failures
) -> tuple[JobCacheRun, list[tuple[str, Any]]]:
    """Return a run that prepares jobs, and the jobs."""
    values = context.params
    family = find_family(values["params"])
    if not family.prepares_jobs:
        raise click.UsageError("--params: only all-atom networks have jobs of molecules; leave it out")
    family.check_options(values, ())
    templates = TemplateOptions.from_options(values, values["threads"])
    seeds = JobSettings(**JobSettings.seed_values(values))
    run = JobCacheRun.from_options(values, cache, params=values["params"], templates=templates, seeds=seeds)
    search = run.alignment.search
    targets = family.read_queries(QuerySources(inputs, search.comp_bias_corr, search.matrix), failures)
    if values["rna_db"] is not None:
        rna = RnaSearch(values["rna_db"], run.alignment, cache)
        targets = rna.add_alignments(targets, failures, values["dry_run"])
    run.check_database(targets)
    return run, targets
