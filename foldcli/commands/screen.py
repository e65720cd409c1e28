"""`foldcli screen`: predict many complexes of the same chains, and rank them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.commands.fold import FOLD_REPLACEMENTS, fold_options
from foldcli.options import common as options
from foldcli.options.command import GroupedCommand

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures
    from foldcli.inputs.targets import FoldInput


@click.command("screen", cls=GroupedCommand, replacements=FOLD_REPLACEMENTS)
@click.argument("files", nargs=-1, type=options.InputType(), required=True, metavar="CHAINS...")
@click.option(
    "--pairs",
    type=options.PathType(),
    metavar="TABLE",
    help="Predict the complexes in this table. A line has the ids of two or more chains, separated by tabs "
    "or commas; a repeated id is a copy.",
)
@fold_options
def command(files: tuple[str, ...], pairs: str | None, **option_values: Any) -> int | None:
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
    from foldcli.families.registry import find_family
    from foldcli.inputs.queries import QuerySources
    from foldcli.pipeline.runs.prediction import SearchOptions, run_predictions

    search = SearchOptions.from_options(option_values)

    def find_targets(cache: Path, failures: "Failures") -> "list[tuple[str, FoldInput]]":
        settings = search.alignment.search
        sources = QuerySources(files, settings.comp_bias_corr, settings.matrix)
        return find_family(option_values["params"]).read_screen(files, pairs, sources, failures)

    return run_predictions(find_targets, search, **option_values)
