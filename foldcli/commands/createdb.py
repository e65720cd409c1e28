"""`foldcli createdb`: build, describe and verify target databases; build structure libraries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click

from foldcli.options import common as options
from foldcli.options import types


@click.command("createdb")
@click.argument(
    "fasta", nargs=-1, type=types.InputType("nothing to build; --info describes it"), metavar="[FASTA...]"
)
@click.option(
    "-o",
    "--out",
    "output",
    type=click.Path(path_type=Path),
    metavar="DB",
    help="Database to create: a folder, which appears once it is complete.",
)
@click.option(
    "--from-mmseqs", metavar="MMSEQSDB", help="Convert an MMseqs2 sequence database, plain or padded."
)
@options.molecule_option
@options.flag("--no-mask", help="Do not mask low-complexity regions and short tandem repeats.")
@click.option(
    "--clusters",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TSV",
    help="Clusters of the sequences, as `mmseqs createtsv` writes them: representative, tab, member, one "
    "member per line. A search scans the representatives, then aligns all members of matching clusters.",
)
@click.option(
    "--split",
    "parts",
    type=click.IntRange(1),
    metavar="N",
    help="Split the database into the folders DB/1-of-N to DB/N-of-N, each a database for another machine; "
    "see docs/databases.md.",
)
@options.flag(
    "--structures",
    help="Build a structure library, for templates, from mmCIF and PDB files or folders of them.",
)
@click.option(
    "--grid",
    type=click.Choice(["0.001", "0.01", "0.02", "0.04"]),
    default="0.01",
    show_default=True,
    help="With --structures: precision of the stored coordinates, Å.",
)
@options.flag("--backbone", help="With --structures: leave out side chains beyond CB.")
@click.option("--info", type=click.Path(path_type=Path), metavar="DB", help="Describe a database.")
@options.flag("--json", "as_json", help="With --info: print JSON.")
@click.option(
    "--verify", type=click.Path(path_type=Path), metavar="DB", help="Check a database against its checksums."
)
@options.threads_option
@options.overwrite_option
@options.logging_options
def command(
    fasta: tuple[str, ...],
    output: Path | None,
    from_mmseqs: str | None,
    molecule: Literal["protein", "rna"],
    no_mask: bool,
    clusters: Path | None,
    parts: int | None,
    structures: bool,
    grid: str,
    backbone: bool,
    info: Path | None,
    as_json: bool,
    verify: Path | None,
    threads: int,
    overwrite: bool,
) -> None:
    """Build a target database from FASTA files, or a structure library.

    FASTA files may be compressed; - is standard input. With --molecule rna they have the letters of nucleic
    acids, T counts as U, and IUPAC's other letters as N. Unusual content that is changed or left out is
    counted, reported, and recorded in the database (--info).

    \b
      foldcli createdb uniref50.fasta.gz -o uniref50
      foldcli createdb --from-mmseqs uniref30_2302_db_seq -o uniref30
      foldcli createdb members.fasta --clusters clusters.tsv -o clustered
      foldcli createdb uniref50.fasta.gz --split 4 -o in_four_parts
      foldcli createdb --structures my_models/ 1abc.cif.gz -o library
      foldcli createdb --info uniref50
      foldcli createdb --verify uniref50
    """
    _check_options(click.get_current_context().params)
    from foldcli.databases import build

    if info is not None:
        build.print_info(info, as_json)
    elif verify is not None:
        build.verify(verify)
    elif not fasta and from_mmseqs is None:
        raise click.UsageError(f"no {'structure' if structures else 'FASTA'} file given")
    elif output is None:
        raise click.UsageError("no output given: name the database with -o DB")
    elif structures:
        library = build.LibrarySettings(round(1 / float(grid)), backbone, threads, overwrite)
        build.build_structure_library(fasta, output, library)
    else:
        settings = build.BuildSettings(
            mask=not no_mask,
            clusters=clusters,
            parts=parts,
            molecule=molecule,
            threads=threads,
            overwrite=overwrite,
        )
        build.build(from_mmseqs or fasta, output, settings)


def _check_options(values: Mapping[str, Any]) -> None:
    """Check that exactly one task is requested, with options that it has."""
    of_mmseqs, splits = values["from_mmseqs"] is not None, values["parts"] is not None
    has_fasta, has_clusters = bool(values["fasta"]), values["clusters"] is not None
    structures, info = values["structures"], values["info"] is not None
    builds = has_fasta or of_mmseqs or values["output"] is not None
    builds |= structures or values["no_mask"] or values["overwrite"] or values["molecule"] == "rna"
    refines = values["backbone"] or values["grid"] != "0.01"
    no_structures = of_mmseqs or has_clusters or values["no_mask"] or splits
    problems = {
        "give either FASTA files with -o DB, or --info DB, or --verify DB": (
            builds + info + (values["verify"] is not None) != 1
        ),
        "give FASTA files or --from-mmseqs, not both": has_fasta and of_mmseqs,
        "--json needs --info": values["as_json"] and not info,
        "--clusters needs FASTA files to build a database from": has_clusters and not has_fasta,
        "--split needs FASTA files or --from-mmseqs to build a database from": (
            splits and not (has_fasta or of_mmseqs)
        ),
        "--structures cannot be combined with --from-mmseqs, --clusters, --split or --no-mask": (
            structures and no_structures
        ),
        "--grid and --backbone need --structures": refines and not structures,
        "--molecule rna needs FASTA files": values["molecule"] == "rna" and (structures or of_mmseqs),
    }
    if problem := next((text for text, found in problems.items() if found), None):
        raise click.UsageError(problem)
