"""`foldcli training-data`: make packed training data from structures and a database."""

from datetime import datetime
from pathlib import Path

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import types
from foldcli.options.command import GroupedCommand

# options of chains with alignments, and of whole complexes
_OF_CHAINS = ("db", "held_out", "seed", "device", "threads", "overwrite")
_OF_MOLECULES = ("max_tokens", "max_release_date", "clusters", "shard")


@click.command("training-data", cls=GroupedCommand)
@click.argument("structures", nargs=-1, required=True, type=types.PathType(), metavar="STRUCTURES...")
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
@options.number_option(
    "--held-out",
    numbers=click.FloatRange(0, 1, max_open=True),
    default=0.05,
    metavar="FRACTION",
    help="Fraction of the homology groups to hold out for validation; 0 trains on all chains.",
)
@options.number_option(
    "--seed", numbers=click.IntRange(0), default=0, help="Seed of the choice of held-out chains."
)
@options.device_option("the searches")
@options.threads_option
@options.overwrite_option
@options.flag(
    "--molecules",
    help="Make training data of all-atom networks: whole complexes with nucleic acids and ligands.",
)
@options.number_option(
    "--max-tokens",
    numbers=click.IntRange(1),
    default=2048,
    help="With --molecules: leave out complexes with more tokens (residues, and atoms of other molecules).",
)
@click.option(
    "--max-release-date",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="With --molecules: leave out entries released later, or at an unknown date.",
)
@click.option(
    "--clusters",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TSV",
    help="With --molecules: clusters of proteins for the weights of samples, such as from `mmseqs "
    "createtsv`: a representative's name in FOLDER/proteins.fasta, tab, and a member's. Other molecules, and "
    "proteins that it lacks, are clustered by exact sequence.",
)
@options.shard_option
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
    molecules: bool,
    max_tokens: int,
    max_release_date: datetime | None,
    clusters: Path | None,
    shard: Shard,
) -> None:
    """Make training data from structures of your own.

    STRUCTURES are mmCIF and PDB files, folders of them, or structure libraries with all atoms from
    `foldcli createdb --structures`. Chains of 40 to 512 residues are used; files that cannot be read are
    named and skipped. Each chain is searched against DB for its alignment, and all chains against each other
    for templates, homology groups and clusters. FOLDER/heldout.tsv lists the chains held out for validation.

    The same command continues an interrupted run. docs/training.md describes the files.

    With --molecules, STRUCTURES are structure files and folders of them. The first biological assembly is
    used, without water, hydrogens, polymers of other types, and chains with components that the dictionary
    lacks; at most 300 chains. Files that cannot be used are named (exit code 5). Existing complexes are kept.

    \b
    Examples:
      foldcli training-data structures/ --db uniref50 -o data
      foldcli train examples/train/compact.yaml -o run --data data
      foldcli training-data entries/ --molecules -o complexes
    """
    _check_options(molecules)
    if molecules:
        from foldcli.training_data.complexes import ComplexesRun

        date = None if max_release_date is None else f"{max_release_date:%Y-%m-%d}"
        ComplexesRun(structures, output, shard, max_tokens, date, clusters).run()
        return
    from foldcli.training_data.build import TrainingDataRun

    TrainingDataRun(structures, db, device, output, held_out, seed, threads, overwrite).run()


def _check_options(molecules: bool) -> None:
    """Raise click.UsageError for an option that was given but has no effect."""
    given = options.given_options()
    if name := next((name for name in (_OF_CHAINS if molecules else _OF_MOLECULES) if name in given), None):
        problem = "does not apply with" if molecules else "needs"
        raise click.UsageError(f"--{name.replace('_', '-')} {problem} --molecules.")
