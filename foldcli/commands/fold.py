"""`foldcli fold`: search, cache-features and predict in one command."""

from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import ranks as rank_options
from foldcli.options import search as search_options
from foldcli.options import templates as template_options
from foldcli.options import types
from foldcli.options.command import (
    COMMON_OPTIONS,
    PREDICTION_REPLACEMENTS,
    SEARCH_REPLACEMENTS,
    GroupedCommand,
    grouped,
)

FOLD_OPTIONS = (
    grouped("Input and results", options.databases_option, predict_options.result_options),
    grouped("Search", search_options.fold_search_options),
    grouped("Rows of the alignment", search_options.alignment_options),
    grouped("Complexes", search_options.pairing_options),
    grouped("Templates", template_options.template_options),
    grouped("Prediction", predict_options.params_option, predict_options.prediction_options),
    grouped(
        "Device",
        options.device_option("the search and the network"),
        options.threads_option,
        predict_options.network_device_options,
        rank_options.rank_options,
    ),
    grouped("Relaxation", predict_options.relax_options),
    grouped("Run", predict_options.run_options),
)
FOLD_REPLACEMENTS = PREDICTION_REPLACEMENTS | SEARCH_REPLACEMENTS


# what `foldcli fold` and `foldcli screen` share
fold_options = options.combine(*FOLD_OPTIONS)


@click.command("fold", cls=GroupedCommand, replacements=FOLD_REPLACEMENTS, common=COMMON_OPTIONS)
@click.argument("queries", nargs=-1, type=types.InputType(), required=True, metavar="QUERY...")
@options.combine(*FOLD_OPTIONS[:2], grouped("Search", options.rna_db_option), *FOLD_OPTIONS[2:])
def command(queries: tuple[str, ...], rna_db: str | None, **option_values: Any) -> int | None:
    """Predict structures of proteins and other molecules: search, cache-features, predict.

    QUERY is a FASTA file (each record is a target), a ColabFold table, an AlphaFold 3 JSON or Boltz YAML
    file, an alignment, profiles or an MMseqs2 database (as for `search`), a folder of such files, or - for
    standard input; see docs/inputs.md. It can also be the name of a target in the feature cache, for which
    nothing is searched.

    Chains of a complex are joined by ":" in FASTA; AlphaFold-Multimer predicts it (docs/complexes.md). With
    --params openfold3, targets may contain nucleic acids, ligands and modified residues (docs/all-atom.md).

    \b
    Each target gets a folder OUT/NAME (see docs/outputs.md) with
      NAME.a3m, NAME.m8                the alignment and the hits
      NAME_templates.tsv               template candidates, used and rejected
      NAME_unrelaxed_rank_*.pdb, .cif  structures, best first; B-factor: pLDDT
      NAME_relaxed_rank_*.pdb          relaxed structures, with --num-relax
      NAME_scores_rank_*.json          pLDDT, PAE, pTM; for complexes ipTM
      NAME.html                        the report, for a browser
      NAME_coverage, _plddt, _pae.png  plots
      NAME_comparison.json             scores of the models, with --reference
      NAME_similar.tsv                 similar structures, with --find-similar
      NAME.done.json                   settings, versions, time, memory

    OUT/summary.tsv has one line per model, and OUT/index.html lists the targets. Finished targets are
    skipped, further models are added to them, and an interrupted run continues where it stopped. Results of
    other settings are replaced only with --overwrite. One target's failure does not stop the others: the exit
    code is 5, and OUT/failures.jsonl lists the failures.

    The search has three iterations; --fast searches once. NAME.m8 lists all hits. NAME.a3m has no duplicate
    rows, and the options for rows of the alignment remove further ones.

    --gpus-per-target N divides each prediction among N GPUs, as `predict` does.

    \b
    Examples:
      foldcli fold proteins.fasta --db uniref50 -o out
      foldcli fold proteins.fasta --db uniref50 -o out --num-models 1 --dry-run
      foldcli fold job.json --params openfold3 --db uniref50 -o out
    """
    from foldcli.pipeline.runs.prediction import fold_targets, run_predictions
    from foldcli.pipeline.runs.request import PredictionRequest

    request = PredictionRequest.from_options(option_values, options.given_options())
    return run_predictions(request, fold_targets(request, queries, rna_db))
