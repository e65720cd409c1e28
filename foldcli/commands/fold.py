"""`foldcli fold`: search, cache-features and predict, chained per target."""

from pathlib import Path
from typing import Any

import click

from foldcli import options
from foldcli.shard import Shard


@click.command("fold")
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@options.database_option
@options.params_option
@options.out_option
@options.search_options
@options.alignment_options
@options.predict_options
@options.device_option("the search and the network run")
@options.cache_option
@options.threads_option
@options.shard_option
@options.report_options
@options.overwrite_option
@options.logging_options
def command(
    queries: tuple[str, ...],
    db: str,
    out: Path,
    cache: Path | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Take protein sequences to predicted structures: search, cache-features, predict.

    QUERY is a FASTA file (each record is a target), an alignment, profiles or an MMseqs2 database (as for
    `search`), a folder of files, or - for standard input.

    \b
    Each target gets a folder OUT/NAME with
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
    from dataclasses import asdict

    from foldcli import done
    from foldcli.failures import Failures
    from foldcli.fingerprint import fingerprint
    from foldcli.logs import logger
    from foldcli.parameters import check_parameters
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline import SearchStep, TargetRun, cached_features, predict_target
    from foldcli.report.make import ReportSettings, try_index
    from foldcli.runtime import prepare, search_engine
    from foldcli.searcher import open_database
    from foldcli.targets import QuerySources, read_targets
    from msa.alignments import read_alignment
    from msa.fasta import FastaRecord

    chosen, rows = options.search_settings(settings, threads), options.alignment_filter(settings)
    make_writable_folder(out)
    report = ReportSettings.of(settings)
    failures = Failures(out, shard)
    sources = QuerySources(queries, chosen.comp_bias_corr, chosen.matrix)
    selected = shard.select(read_targets(sources, failures))
    if not selected:
        failures.finish()
        return
    predictor = prepare(settings, threads)
    step = SearchStep(open_database(db), chosen, search_engine(settings["device"], share=0.5), rows)
    parameters = check_parameters(predictor.sources)

    def fold(name: str, query: FastaRecord) -> None:
        identity = step.identity(query) | {"parameters": parameters, "predict": asdict(predictor.settings)}
        key = fingerprint(identity)
        target = TargetRun.begin(name, out)
        if not overwrite and done.is_done(target.folder, name, key):
            logger.info("%s: already done", name)
            return
        if overwrite:
            target.clear()
        a3m = step.run(target, query)
        features = cached_features(target, [read_alignment(a3m)], cache or cache_dir() / "features")
        predict_target(target, features, predictor, key, identity, report)

    failures.run(selected, fold)
    try:
        failures.finish()
    finally:
        try_index(out, report)
