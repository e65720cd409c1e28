"""`foldcli screen`: predict many complexes of the same chains, and rank them."""

from typing import Any

import click

from foldcli.commands.fold import FOLD_REPLACEMENTS, fold_options
from foldcli.options import common as options
from foldcli.options import types
from foldcli.options.command import COMMON_OPTIONS, GroupedCommand


@click.command(
    "screen", cls=GroupedCommand, replacements=FOLD_REPLACEMENTS, common=("--pairs", *COMMON_OPTIONS)
)
@click.argument("files", nargs=-1, type=types.InputType(), required=True, metavar="CHAINS...")
@click.option(
    "--pairs",
    type=types.PathType(),
    metavar="TABLE",
    help="Predict the complexes in this table. A line has the ids of two or more chains, separated by tabs "
    "or commas; a repeated id is a copy.",
)
@click.option(
    "--background",
    type=click.IntRange(1),
    metavar="N",
    help="Also predict N pairs of these chains that are not part of the screen, drawn at random with "
    "--random-seed, and write OUT/screen.tsv with the p-value of each score of the requested complexes.",
)
@fold_options
def command(
    files: tuple[str, ...], pairs: str | None, background: int | None, **option_values: Any
) -> int | None:
    """Predict many complexes of the same chains, and rank them.

    CHAINS are files of sequences, as for `fold`. With two files, each chain of the first is predicted with
    each chain of the second. With one file, all pairs of its chains are predicted. With --pairs, the
    complexes of a table are predicted, and their chains may be in any number of files.

    With an all-atom network (--params openfold3), the second file may hold ligands: an SDF file, or a table
    of SMILES strings and ids (.smi, .csv, .tsv). Each job of the first file is predicted with each ligand.

    The database is searched once for each chain, even if it is part of several complexes. The
    results are those of `fold`, with targets named A_and_B. OUT/summary.tsv is sorted by 0.8 ipTM + 0.2 pTM,
    highest first.

    \b
    Examples:
      foldcli screen baits.fasta preys.fasta --db uniref50 -o out
      foldcli screen proteins.fasta --pairs pairs.tsv --db uniref50 -o out
      foldcli screen protein.fasta ligands.smi --params openfold3 --db uniref50 -o out
    """
    if pairs is None and len(files) > 2:
        raise click.UsageError("expected one or two files; --pairs takes chains of any number of files")
    from foldcli.inputs.screen import Background
    from foldcli.pipeline.runs.prediction import run_predictions, screen_targets
    from foldcli.pipeline.runs.request import PredictionRequest

    request = PredictionRequest.from_options(option_values, options.given_options())
    drawn = None if background is None else Background(background, option_values["random_seed"] or 0)
    return run_predictions(request, screen_targets(request, files, pairs, drawn))
