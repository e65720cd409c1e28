"""`foldcli compare`: compare models of proteins with a structure."""

from typing import Any

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
@click.option("--json", "as_json", is_flag=True, help="Write JSON, with DockQ of each interface.")
@options.overwrite_option
@options.logging_options
def command(models: tuple[str, ...], reference: str, out: str, as_json: bool, overwrite: bool) -> None:
    """Compare models of proteins with a structure.

    Residues are paired by sequence and chains by superposition. The table has lDDT, TM-score, GDT, RMSD and
    the mean DockQ of interfaces for each MODEL, a PDB or mmCIF file. Ligands and nucleic acids are not
    compared.

    \b
    Example:
      foldcli compare out/*/*.cif --reference 1abc.cif
    """
    import json
    import math
    import sys
    from pathlib import Path

    from foldcli.comparison.chains import read_chains
    from foldcli.errors import SomeTargetsFailed
    from foldcli.logs import logger
    from model.comparison.compare import compare
    from msa.base.atomic import atomic_write
    from msa.base.errors import InputError

    if out != "-" and Path(out).exists() and not overwrite:
        raise click.UsageError(f"{out} exists; --overwrite replaces it.")
    expected = read_chains(reference)
    rows: list[dict[str, Any]] = []
    failed = 0
    for path in models:
        try:
            result = compare(read_chains(path), expected)
            if result is None:
                raise InputError("no chain has the sequence of a chain of the reference", path)
        except (InputError, OSError) as error:
            if len(models) == 1:
                raise
            logger.error("%s", error)
            failed += 1
            continue
        for remark in result.remarks:
            logger.warning("%s: %s", path, remark)
        scores = {name: None if math.isnan(v) else round(v, 4) for name, v in result.scores.items()}
        rows.append({"model": str(path), **scores, "chains": result.chains, "interfaces": result.interfaces})
    if as_json:
        content = json.dumps(rows, indent=1) + "\n"
    else:
        columns = [name for name in (rows[0] if rows else {}) if name not in ("chains", "interfaces")]
        lines = ["\t".join([*columns, "chains"])] if rows else []
        for row in rows:
            mapped = ",".join(f"{a}:{b}" for a, b in row["chains"].items())
            lines.append(
                "\t".join(
                    ["" if row[c] is None else f"{row[c]:g}" if c != "model" else row[c] for c in columns]
                    + [mapped]
                )
            )
        content = "".join(f"{line}\n" for line in lines)
    if out == "-":
        sys.stdout.write(content)
    else:
        with atomic_write(out) as stream:
            stream.write(content)
    if failed:
        raise SomeTargetsFailed(f"{failed} of {len(models)} models could not be compared")
