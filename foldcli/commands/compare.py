"""`foldcli compare`: compare models with an experimental structure."""

import sys

import click

from foldcli.errors import SomeTargetsFailed, describe
from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options import types
from msa.base.atomic import atomic_write
from msa.base.errors import InputError


@click.command("compare")
@click.argument("models", nargs=-1, required=True, type=types.InputType(), metavar="MODEL...")
@click.option(
    "--reference", required=True, type=types.InputType(), metavar="STRUCTURE", help="PDB or mmCIF file."
)
@click.option(
    "-o",
    "--out",
    default="-",
    type=types.PathType(),
    metavar="OUT",
    help="File; - (default) is standard output.",
)
@options.flag("--json", "as_json", help="Write JSON, with each interface, ligand and residue.")
@options.overwrite_option
@options.logging_options
def command(models: tuple[str, ...], reference: str, out: str, as_json: bool, overwrite: bool) -> None:
    """Compare models with an experimental structure.

    Proteins, nucleic acids and ligands of each MODEL, a PDB or mmCIF file, are compared with those of the
    reference. Residues are paired by sequence, chains by superposition, and ligands by atoms and bonds.

    \b
    lddt            of heavy atoms, 15 Å, without checks of stereochemistry
    lddt_ca, tm_score, gdt_ts, gdt_ha    of CA and C3' atoms
    rmsd_ca, rmsd   of CA and C3' atoms, and of heavy atoms, superposed
    dockq           mean over the interfaces of the reference
    ligand_rmsd     mean over ligands of BiSyRMSD: binding sites (4 Å) superposed
    lddt_pli        mean over ligands; 6 Å, with contacts that only the model has

    Definitions are those of OpenStructure and DockQ 2. Chains, residues and atoms that the model lacks count
    as wrong, except in RMSDs; ligands without a partner do not count. Warnings name both.

    \b
    Example:
      foldcli compare out/*/*.cif --reference 1abc.cif
    """
    from foldcli.comparison import read, table
    from foldcli.outputs.resumable_table import refuse_existing

    refuse_existing(out, overwrite)
    expected = read.read_molecules(reference)
    rows = []
    for path in models:
        try:
            rows.append(table.compare_file(path, expected))
        except (InputError, OSError) as error:
            if len(models) == 1:
                raise
            logger.error("%s", describe(error))
    content = table.format_rows(rows, as_json)
    if out == "-":
        sys.stdout.write(content)
    else:
        with atomic_write(out) as stream:
            stream.write(content)
    if len(rows) < len(models):
        raise SomeTargetsFailed(f"{len(models) - len(rows)} of {len(models)} models could not be compared")
