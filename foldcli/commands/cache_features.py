"""`foldcli cache-features`: compute features of alignments or sequences and store them in a feature cache."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import search as search_options
from foldcli.options import templates as template_options
from foldcli.options.command import CACHE_REPLACEMENTS, GroupedCommand, grouped
from foldcli.paths import check_writable_folder, default_feature_cache

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures
    from foldcli.pipeline.runs.cache_run import CacheRun
    from foldcli.pipeline.runs.job_cache_run import JobCacheRun
    from foldcli.pipeline.search.searcher import DatabaseSource
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from foldcli.pipeline.targets.settings import FeatureSettings

# options of jobs, by parameter name
_JOB_OPTIONS = (
    "templates", "no_templates", "max_template_date", "exclude_self", "custom_template_path", "pdb_hit_file",
    "local_pdb_path", "num_seeds", "random_seed", "rna_db",
)  # fmt: skip


@click.command("cache-features", cls=GroupedCommand, replacements=CACHE_REPLACEMENTS)
@click.argument("inputs", nargs=-1, type=options.InputType(), required=True, metavar="INPUT...")
@grouped(
    "Input and results",
    click.option(
        "--db",
        "databases",
        type=options.PathType(),
        multiple=True,
        help="Target database for input sequences, or several, as for `fold`; alignments need none.",
    ),
    options.cache_option,
    options.no_verify_option,
    options.overwrite_option,
)
@grouped("Search", search_options.search_options_without_c)
@grouped("Rows of the alignment", search_options.alignment_options)
@grouped("Complexes", search_options.pairing_options)
@grouped(
    "Jobs of molecules", predict_options.jobs_option, predict_options.seed_options, options.rna_db_option
)
@grouped("Templates, for jobs of molecules", template_options.template_options)
@grouped(
    "Device",
    options.device_option("the search"),
    options.threads_option,
    click.option(
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        default=options.available_cores,
        show_default="the cores this process may use",
        help="Processes that compute features, each for one target at a time.",
    ),
)
@grouped(
    "Run",
    options.dry_run_option,
    click.option(
        "--json", "as_json", is_flag=True, help="With --dry-run: print the plan as one JSON object."
    ),
    options.shard_option,
    options.logging_options,
)
@click.pass_context
def command(
    context: click.Context,
    inputs: tuple[str, ...],
    cache: Path | None,
    shard: Shard,
    dry_run: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Turn alignments into cached model features.

    \b
    INPUT is one of these, compressed or not:
      an alignment      A3M, Stockholm or aligned FASTA, the query first;
                        A3M of a complex, from `foldcli search` or ColabFold
      a FASTA file      sequences to search for first, with --db
      a folder          of such files, or of target folders (next line)
      a target folder   uniref90_hits, bfd_*_hits and mgnify_hits (.a3m, .sto),
                        as AlphaFold and OpenFold write them, joined in order
      -                 standard input: an alignment or FASTA

    Complexes in FASTA are searched and paired as by `fold`.

    A file that begins like FASTA is an alignment if its name ends in .a3m or .afa, or if it has several
    records with gaps or insertions. Otherwise, its records are queries.

    With --params openfold3, INPUT are jobs of proteins, nucleic acids and ligands, as for `fold`. Alignments,
    templates and conformers of each seed are stored; `foldcli predict --params openfold3` then needs no
    database and no internet.

    Entries are named by a hash of their content; existing ones are checked and kept. One target's failure
    does not stop the others: the exit code is 5, and CACHE/failures.jsonl lists the failures. The alignments
    that searches find are kept in CACHE/alignments.

    \b
    Examples:
      foldcli cache-features alignments/ --cache features
      foldcli cache-features proteins.fasta --db uniref50 --cache features
      foldcli cache-features jobs/ --params openfold3 --db uniref50
    """
    from features.cache.cleanup import remove_abandoned
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from foldcli.pipeline.targets.settings import FeatureSettings

    cache = cache or default_feature_cache()
    if as_json and not dry_run:
        raise click.UsageError("--json needs --dry-run.")
    database, databases = None, values["databases"]
    if databases:
        from foldcli.pipeline.search.searcher import DatabaseSource  # alignments need no search

        database = DatabaseSource(databases[0], values["device"], databases[1:])
    settings = _Settings(
        FeatureSettings(cache, values["overwrite"], values["verify"]),
        AlignmentSettings.from_options(values, values["threads"]),
        database,
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

    features: "FeatureSettings"
    alignment: "AlignmentSettings"
    database: "DatabaseSource | None"
    workers: int


def _run_of_features(
    context: click.Context, inputs: Sequence[str], settings: _Settings, failures: "Failures"
) -> "tuple[CacheRun, list[tuple[str, Any]]]":
    """Return a run that stores AlphaFold2's features, and its targets.

    Raises:
        click.UsageError: an option is given that only jobs of molecules have, or see `find_feature_targets`.
        InputError: see `find_feature_targets`.
    """
    from foldcli.inputs.targets import find_feature_targets
    from foldcli.pipeline.runs.cache_run import CacheRun

    for name in _JOB_OPTIONS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for jobs of molecules (--params openfold3)")
    targets = find_feature_targets(inputs, settings.database is not None, failures)
    return CacheRun(*settings), [*targets]


def _run_of_jobs(
    context: click.Context, inputs: Sequence[str], settings: _Settings, failures: "Failures"
) -> "tuple[JobCacheRun, list[tuple[str, Any]]]":
    """Return a run that prepares jobs, and the jobs.

    Raises:
        click.UsageError: the network takes no jobs of molecules, or a job needs a database.
        InputError, MissingError: a folder has no jobs, or the libraries of chemistry are not installed.
    """
    from foldcli.families.registry import find_family
    from foldcli.families.settings import JobSettings
    from foldcli.inputs.queries import QuerySources
    from foldcli.pipeline.runs.job_cache_run import JobCacheRun
    from foldcli.pipeline.targets.settings import TemplateOptions

    values = context.params
    family = find_family(values["params"])
    if not family.prepares_jobs:
        raise click.UsageError("--params: only all-atom networks have jobs of molecules; leave it out")
    family.check_options(values, ())
    templates = TemplateOptions.from_options(values, values["threads"])
    seeds = JobSettings(num_seeds=values["num_seeds"], random_seed=values["random_seed"])
    run = JobCacheRun(*settings, params=values["params"], templates=templates, seeds=seeds)
    search = settings.alignment.search
    targets = family.read_queries(QuerySources(inputs, search.comp_bias_corr, search.matrix), failures)
    if values["rna_db"] is not None:
        from foldcli.pipeline.search.rna import RnaSearch

        rna = RnaSearch(values["rna_db"], settings.alignment, settings.features.cache)
        targets = rna.add_alignments(targets, failures, values["dry_run"])
    run.check_database(targets)
    return run, targets
