"""`foldcli predict`: alignments or cached features in, ranked structures out."""

from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import ranks as rank_options
from foldcli.options import templates as template_options
from foldcli.options import types
from foldcli.options.command import (
    COMMON_OPTIONS,
    PAIRING_REPLACEMENTS,
    PREDICTION_REPLACEMENTS,
    GroupedCommand,
    grouped,
)


@click.command(
    "predict",
    cls=GroupedCommand,
    replacements=PREDICTION_REPLACEMENTS | PAIRING_REPLACEMENTS,
    common=("--all", *COMMON_OPTIONS),
)
@click.argument(
    "targets",
    nargs=-1,
    type=types.InputType("nothing is searched here; use foldcli fold QUERY --db {path}"),
    metavar="TARGET...",
)
@grouped(
    "Input and results",
    options.flag("--all", "all_cached", help="Predict all targets of the feature cache."),
    predict_options.result_options,
)
@grouped("Templates", template_options.template_options)
@grouped("Prediction", predict_options.params_option, predict_options.prediction_options)
@grouped(
    "Device",
    options.device_option("the network"),
    options.threads_option,
    predict_options.network_device_options,
    rank_options.rank_options,
)
@grouped("Relaxation", predict_options.relax_options)
@grouped("Run", predict_options.run_options)
def command(targets: tuple[str, ...], all_cached: bool, **option_values: Any) -> int | None:
    """Predict structures from alignments or cached features.

    TARGET is an alignment, a folder of alignments, a target folder as AlphaFold and OpenFold write it, the
    name of a target in the feature cache, or a file of the cache (.safetensors). An alignment is A3M,
    Stockholm, aligned FASTA or the A3M of a complex, and may have a single row. The outputs are those of
    `foldcli fold`, without the files of the search.

    With --params openfold3, TARGET is a job as for `fold`, or the name of one, which `cache-features` has
    prepared with the same options of templates; jobs that need no search need no preparation.

    While the network works on one target, the features of the next targets are loaded and sampled, and the
    results of earlier targets are written.

    --gpus-per-target N divides each prediction among N GPUs of one host; to use several hosts, start
    torchrun --nproc-per-node N -m foldcli predict ... on each.

    \b
    Examples:
      foldcli predict alignments/*.a3m -o out
      foldcli predict --all --num-models 2 --stop-at-score 90 -o out
      foldcli predict jobs/ --params openfold3 --cache cache -o out
    """
    if all_cached == bool(targets):
        problem = (
            "TARGET... and --all are mutually exclusive." if targets else "Missing argument 'TARGET...'."
        )
        raise click.UsageError(problem)
    from foldcli.pipeline.runs.prediction import predict_targets, run_predictions
    from foldcli.pipeline.runs.request import PredictionRequest

    request = PredictionRequest.from_options(option_values, options.given_options(), searches=False)
    return run_predictions(request, predict_targets(request, targets, all_cached))
