"""The run that `foldcli cache-features` starts, of features or of jobs."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from features.cache.cleanup import remove_abandoned
from foldcli.errors import OptionError
from foldcli.families.registry import find_family
from foldcli.families.settings import JobSettings
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.targets import find_feature_targets
from foldcli.paths import check_writable_folder, default_feature_cache
from foldcli.pipeline.runs.cache_run import FeatureCacheRun
from foldcli.pipeline.runs.job_cache_run import JobCacheRun
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.targets.alignment_settings import SEARCH_OPTIONS, option_of
from foldcli.pipeline.targets.settings import TemplateOptions

# options of jobs, by parameter name
_JOB_OPTIONS = (
    "templates", "no_templates", "max_template_date", "exclude_self", "custom_template_path", "pdb_hit_file",
    "local_pdb_path", "num_seeds", "random_seed", "rna_db",
)  # fmt: skip


def run_cache_features(inputs: Sequence[str], values: dict[str, Any], given: Collection[str]) -> None:
    """Fill a cache, or print what would be done.

    Args:
        inputs: the inputs.
        values: values of the options of `foldcli cache-features`.
        given: names of those on the command line.

    Raises:
        OptionError: options exclude each other, or an input needs one.
    """
    cache, shard = values["cache"] or default_feature_cache(), values["shard"]
    failures = Failures(cache, shard)
    run: FeatureCacheRun | JobCacheRun
    searches = values["databases"] or values["rna_db"] is not None
    if not searches and (without_effect := SEARCH_OPTIONS.intersection(given)):
        option = option_of(min(without_effect))
        raise OptionError(f"{option} is for searches, which need a database: give one with --db")
    if values["params"] is None:
        if name := next((name for name in _JOB_OPTIONS if name in given), None):
            raise OptionError(f"{option_of(name)} is for jobs of molecules (--params openfold3)")
        run = FeatureCacheRun.from_options(values, cache)
        targets = [*find_feature_targets(inputs, run.database is not None, failures)]
    else:
        run, targets = _run_of_jobs(inputs, values, cache, failures)
    if values["dry_run"]:
        run.print_plan(targets, shard, failures, values["as_json"])
        return
    check_writable_folder(cache)
    remove_abandoned(cache)
    run.run(shard.select(targets), failures)
    failures.finish()


def _run_of_jobs(
    inputs: Sequence[str], values: dict[str, Any], cache: Path, failures: Failures
) -> tuple[JobCacheRun, list[tuple[str, Any]]]:
    """Return a run that prepares jobs, and the jobs."""
    family = find_family(values["params"])
    if not family.prepares_jobs:
        raise OptionError("--params: only all-atom networks have jobs of molecules; leave it out")
    family.check_options(values)
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
