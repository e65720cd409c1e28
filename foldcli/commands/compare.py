"""`foldcli compare`: compare models with an experimental structure."""

import click

from foldcli.options import common as options


@click.command("compare")
@click.argument("models", nargs=-1, required=True, type=options.InputType(), metavar="MODEL...")
@click.option(
    "--reference", required=True, type=options.InputType(), metavar="STRUCTURE", help="PDB or mmCIF file."
)
@click.option(
    "-o",
    "--out",
    default="-",
    type=options.PathType(),
    metavar="OUT",
    help="File; - (default) is standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, with scores of interfaces and residues.")
@options.overwrite_option
@options.logging_options
def command(models: tuple[str, ...], reference: str, out: str, as_json: bool, overwrite: bool) -> None:
    """Compare models with an experimental structure.

    Residues are paired by sequence and chains by superposition. The table has lDDT, TM-score, GDT, RMSD and
    the mean DockQ of interfaces for each MODEL, a PDB or mmCIF file.

    \b
    Example:
      foldcli compare out/*/*.cif --reference 1abc.cif
    """
    import sys
    from pathlib import Path

    from foldcli.comparison.read import read_molecules
    from foldcli.comparison.table import compare_file, format_rows
    from foldcli.errors import SomeTargetsFailed
    from foldcli.logs import logger
    from msa.base.atomic import atomic_write
    from msa.base.errors import InputError

    if out != "-" and Path(out).exists() and not overwrite:
        raise click.UsageError(f"{out} exists; --overwrite replaces it.")
    expected = read_molecules(reference)
    rows = []
    for path in models:
        try:
            rows.append(compare_file(path, expected))
        except (InputError, OSError) as error:
            if len(models) == 1:
                raise
            logger.error("%s", error)
    content = format_rows(rows, as_json)
    if out == "-":
        sys.stdout.write(content)
    else:
        with atomic_write(out) as stream:
            stream.write(content)
    if len(rows) < len(models):
        raise SomeTargetsFailed(f"{len(models) - len(rows)} of {len(models)} models could not be compared")
