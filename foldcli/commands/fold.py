"""`foldcli fold`: search, cache-features and predict, chained per target."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import search as search_options
from foldcli.outputs.layout import LayoutName

if TYPE_CHECKING:
    from concurrent.futures import Future


@click.command("fold")
@click.argument("queries", nargs=-1, type=options.PathType(), required=True, metavar="QUERY...")
@options.database_option
@options.params_option
@options.out_option
@search_options.search_options
@search_options.alignment_options
@predict_options.predict_options
@predict_options.layout_option
@options.device_option("the search and the network run")
@options.cache_option
@options.threads_option
@options.shard_option
@options.report_options
@options.overwrite_option
@options.no_verify_option
@options.dry_run_option
@options.logging_options
def command(
    queries: tuple[str, ...],
    db: str,
    out: Path,
    cache: Path | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    verify: bool,
    dry_run: bool,
    layout: LayoutName,
    **settings: Any,
) -> None:
    """Predict structures from protein sequences: search, cache-features, predict.

    QUERY is a FASTA file (each record is a target), ColabFold's table, AlphaFold 3's JSON, Boltz's YAML, an
    alignment, profiles or an MMseqs2 database (as for `search`), a folder of files, or - for standard input;
    see docs/inputs.md. The name of a target in the feature cache will do, too: its search has been done.

    \b
    Each target gets a folder OUT/NAME (see docs/outputs.md) with
      NAME.a3m, NAME.m8                  the alignment and the hits
      NAME_unrelaxed_rank_*.pdb, .cif    structures, best first, pLDDT as B-factor
      NAME_scores_rank_*.json            pLDDT, PAE, pTM
      NAME.html                          the report, for a browser; OUT/index.html lists several targets
      NAME_coverage, _plddt, _pae.png    plots
      NAME.done.json                     settings, versions, seconds and memory per stage

    The alignment has each row once; --max-seq-id to --diff thin it out, and NAME.m8 keeps all hits.

    Finished targets are skipped; an interrupted run continues where it was. One target's failure does not
    stop the others: exit code 5, and OUT/failures.jsonl names them.
    """
    from foldcli.inputs.cached_targets import CachedTarget, split_cached_names
    from foldcli.inputs.names import check_unique_names
    from foldcli.inputs.queries import QuerySources, read_query_targets
    from foldcli.logs import logger
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline.alignment_request import AlignmentRequest
    from foldcli.pipeline.dry_run import database_fact, plan_run
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.identity import Identities
    from foldcli.pipeline.loading import TargetLoader
    from foldcli.pipeline.output_location import Place
    from foldcli.pipeline.prediction import predict_target
    from foldcli.pipeline.prediction_run import predict_all
    from foldcli.pipeline.runtime import prepare, search_engine
    from foldcli.pipeline.search_stage import SearchStep
    from foldcli.pipeline.searcher import find_database, open_database
    from foldcli.report.make import ReportSettings
    from msa.io.fasta import FastaRecord

    chosen, rows = (
        search_options.search_settings(settings, threads),
        search_options.alignment_filter(settings),
    )
    if not dry_run:
        make_writable_folder(out)
    place = Place(out, layout, shard, overwrite)
    failures = Failures(out, shard)
    report = ReportSettings.of(settings)
    cache = cache or cache_dir() / "features"
    files, cached = split_cached_names(queries, cache, failures)
    sources = QuerySources(files, chosen.comp_bias_corr, chosen.matrix)
    named: list[tuple[str, FastaRecord | CachedTarget]] = [*read_query_targets(sources, failures)]
    check_unique_names([(name, "the queries") for name, _ in named] + [(t.name, str(t.path)) for t in cached])
    named += [(target.name, target) for target in cached]
    selected = shard.select(named)
    if not selected and not dry_run:
        failures.finish()
        return
    predictor = prepare(settings, threads, soon=not dry_run)
    # imports torch, which `prepare` does in its own way
    from foldcli.params.verify import check_parameters

    parameters = check_parameters(predictor.sources)

    if dry_run:
        found = find_database(db)
        asked = None if found is None else AlignmentRequest.of(found, chosen, rows)
        identities = Identities(parameters, predictor.settings, asked)
        plan_run(named, identities.look, [database_fact(db, found)], place, predictor, failures)
        return
    database = open_database(db)
    request = AlignmentRequest.of(database, chosen, rows)
    step = SearchStep(database, search_engine(settings["device"], share=0.5), request)
    identities = Identities(parameters, predictor.settings, request)
    loader = TargetLoader(place, cache, predictor, identities, verify, step)

    def fold(name: str, query: FastaRecord | CachedTarget) -> "Future[None] | None":
        loaded = loader.load((name, query))
        if loaded is None:
            logger.info("%s: already done", name)
            return None
        return predict_target(loaded, predictor, report)

    predict_all(selected, fold, predictor, place, failures, report)
