"""`foldcli training-data`: make packed training data from structures and a database."""

from pathlib import Path

import click

from foldcli.options import common as options


@click.command("training-data")
@click.argument("structures", nargs=-1, required=True, type=options.PathType(), metavar="STRUCTURES...")
@click.option(
    "-o",
    "--out",
    "output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder to create, for --data of `foldcli train`; it appears once it is complete.",
)
@options.database_option
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="FRACTION",
    default=0.05,
    show_default=True,
    help="Fraction of the homology groups to hold out for validation; 0 trains on all chains.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of the choice of held-out chains.",
)
@options.device_option("the searches")
@options.threads_option
@options.overwrite_option
@options.logging_options
def command(
    structures: tuple[str, ...],
    output: Path,
    db: str | None,
    held_out: float,
    seed: int,
    device: str,
    threads: int,
    overwrite: bool,
) -> None:
    """Make training data from structures of your own.

    STRUCTURES are mmCIF and PDB files, folders of them, or structure libraries with all atoms from
    `foldcli createdb --structures`. Chains of 40 to 512 residues are used; files that cannot be read are
    named and skipped. Each chain is searched against DB for its alignment, and all chains against each other
    for templates, homology groups and clusters. FOLDER/heldout.tsv lists the chains held out for validation.

    The same command continues an interrupted run. docs/training.md describes the files.

    \b
    Examples:
      foldcli training-data structures/ --db uniref50 -o data
      foldcli train examples/train/compact.yaml -o run --data data
    """
    from foldcli.pipeline.search.searcher import DatabaseSource
    from foldcli.pipeline.targets.defaults import library_database
    from foldcli.training_data.build import TrainingDataRun, TrainingDataSettings

    database = DatabaseSource(db or str(library_database()), device)
    settings = TrainingDataSettings(held_out, seed, threads, overwrite)
    TrainingDataRun(structures, database, output, settings).run()
