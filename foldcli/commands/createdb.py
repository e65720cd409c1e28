"""`foldcli createdb`: build, describe and verify target databases; build structure libraries."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.logs import logger, warn_unusable_files
from foldcli.options import common as options
from foldcli.progress import progress_bar

if TYPE_CHECKING:
    from features.templates.library.settings import LibrarySettings
    from msa.database.build import BuildSettings
    from msa.database.manifest import ClusterSummary, DatabaseManifest, InputFile, WholeDatabase


@click.command("createdb")
@click.argument(
    "fasta", nargs=-1, type=options.InputType("nothing to build; --info describes it"), metavar="[FASTA...]"
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
@click.option("--no-mask", is_flag=True, help="Do not mask low-complexity regions and short tandem repeats.")
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
@click.option(
    "--structures",
    is_flag=True,
    help="Build a structure library, for templates, from mmCIF and PDB files or folders of them.",
)
@click.option(
    "--grid",
    type=click.Choice(["0.001", "0.01", "0.02", "0.04"]),
    default="0.01",
    show_default=True,
    help="With --structures: precision of the stored coordinates, Å.",
)
@click.option("--backbone", is_flag=True, help="With --structures: leave out side chains beyond CB.")
@click.option("--info", type=click.Path(path_type=Path), metavar="DB", help="Describe a database.")
@click.option("--json", "as_json", is_flag=True, help="With --info: print JSON.")
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

    FASTA files may be compressed; - is standard input. Unusual content that is changed or left out is
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
    if info is not None:
        _print_info(info, as_json)
    elif verify is not None:
        _verify(verify)
    elif not fasta and from_mmseqs is None:
        raise click.UsageError(f"no {'structure' if structures else 'FASTA'} file given")
    elif output is None:
        raise click.UsageError("no output given: name the database with -o DB")
    elif structures:
        from features.templates.library.settings import LibrarySettings

        library = LibrarySettings(round(1 / float(grid)), backbone, threads, overwrite)
        _build_structure_library(fasta, output, library)
    else:
        from msa.database.build import BuildSettings

        settings = BuildSettings(
            mask=not no_mask, clusters=clusters, parts=parts, threads=threads, overwrite=overwrite
        )
        _build(from_mmseqs or fasta, output, settings)


def _check_options(values: Mapping[str, Any]) -> None:
    """Check that exactly one task is requested, with options that it has.

    Raises:
        click.UsageError: names the problem.
    """
    of_mmseqs, splits = values["from_mmseqs"] is not None, values["parts"] is not None
    has_fasta, has_clusters = bool(values["fasta"]), values["clusters"] is not None
    structures, info = values["structures"], values["info"] is not None
    builds = has_fasta or of_mmseqs or values["output"] is not None
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
    }
    if problem := next((text for text, found in problems.items() if found), None):
        raise click.UsageError(problem)


def _build(source: str | tuple[str, ...], output: Path, settings: "BuildSettings") -> None:
    """Build a database from an MMseqs2 database (str) or from FASTA files (tuple)."""
    from msa.database.build import build_database, build_from_mmseqs

    start = time.perf_counter()
    with progress_bar("createdb", "B") as progress:
        if isinstance(source, str):
            manifest = build_from_mmseqs(source, output, settings, progress)
        else:
            manifest = build_database(source, output, settings, progress)
    for remark in manifest.remarks():
        logger.warning("%s: %s", output, remark)
    parts = "" if settings.parts is None else f" in {settings.parts} parts"
    logger.info("%s: %s%s, %.1f s", output, _summary(manifest), parts, time.perf_counter() - start)


def _build_structure_library(paths: tuple[str, ...], output: Path, settings: "LibrarySettings") -> None:
    """Build a structure library, and name the files that could not be used."""
    from features.templates.library.build import build_library

    start = time.perf_counter()
    with progress_bar("createdb", "files") as progress:
        manifest = build_library(paths, output, settings, progress)
    warn_unusable_files(manifest.unreadable, str(output), manifest.remarks)
    logger.info(
        "%s: %s chains, %s residues from %s of %s files, %.1f s",
        output,
        f"{manifest.chains:,}",
        f"{manifest.residues:,}",
        f"{manifest.files - len(manifest.unreadable):,}",
        f"{manifest.files:,}",
        time.perf_counter() - start,
    )


def _verify(path: Path) -> None:
    """Check a database, or all parts of a split one, against their checksums."""
    from msa.database.database import TargetDatabase
    from msa.database.manifest import split_folders

    for folder in split_folders(path) or [path]:
        database = TargetDatabase.open(folder)
        with progress_bar("verify", "B") as progress:
            database.verify(progress)
        logger.info("%s: all checksums match; %s", folder, _summary(database.manifest))


def _print_info(path: Path, as_json: bool) -> None:
    """Print the manifest of a database, as a table or as JSON."""
    from msa.database.database import TargetDatabase

    manifest = TargetDatabase.open(path).manifest
    content = manifest.as_json()
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    quantiles = ", ".join(f"{float(q):.0%} {length:,}" for q, length in manifest.length_quantiles.items())
    masking = "none"
    if manifest.masking is not None:
        share = manifest.masked_residues / manifest.residues
        parameters = ", ".join(f"{key} {value}" for key, value in manifest.masking.items() if key != "method")
        method = manifest.masking["method"]
        masking = f"{method} ({parameters}): {manifest.masked_residues:,} residues, {share:.2%}"
    rows = [
        ("database", str(path)),
        ("format version", str(content["format_version"])),
        ("sequences", f"{manifest.sequences:,}"),
        ("residues", f"{manifest.residues:,}"),
        ("length", f"mean {manifest.residues / manifest.sequences:.1f}; quantiles: {quantiles}"),
        ("masking", masking),
        *([("clusters", _describe_clusters(manifest.clusters))] if manifest.clusters else []),
        *([("part", _describe_part(manifest.whole))] if manifest.whole else []),
        ("bytes on disk", f"{sum(file.bytes for file in manifest.files.values()):,}"),
        *(("input", _describe_input(source)) for source in manifest.inputs),
        ("built by", ", ".join(f"{name} {version}" for name, version in manifest.built_by.items())),
        *(("remark", remark) for remark in manifest.remarks()),
        *(("sha256", f"{file.sha256}  {name}") for name, file in manifest.files.items()),
    ]
    for key, value in rows:
        click.echo(f"{key:15} {value}")


def _describe_input(source: "InputFile") -> str:
    """Describe one of the manifest's inputs."""
    kind = f" ({source['format']})" if "format" in source else ""
    return f"{source['name']}{kind}, {source['bytes']:,} bytes of FASTA"


def _describe_clusters(clusters: "ClusterSummary") -> str:
    """Return number and sizes of the clusters in one line."""
    return (
        f"{clusters.representatives:,} representatives, {clusters.residues:,} residues; the largest cluster "
        f"has {clusters.largest:,} sequences; from {clusters.table}"
    )


def _describe_part(whole: "WholeDatabase") -> str:
    """Return the number of a part and the size of the whole database in one line."""
    size = f"{whole.sequences:,} sequences, {whole.residues:,} residues"
    return f"{whole.part} of {whole.parts} of a database of {size}"


def _summary(manifest: "DatabaseManifest") -> str:
    """Return size and masking of a database in one line."""
    masked = manifest.masked_residues / manifest.residues
    masking = "unmasked" if manifest.masking is None else f"{masked:.1%} masked"
    clusters = "" if manifest.clusters is None else f" in {manifest.clusters.representatives:,} clusters"
    return f"{manifest.sequences:,} sequences{clusters}, {manifest.residues:,} residues ({masking})"
