"""Work of `foldcli createdb`: build, describe and verify databases, and build structure libraries."""

import json
import time
from pathlib import Path

from features.templates.library.build import build_library
from features.templates.library.library import LibraryManifest
from features.templates.library.settings import LibrarySettings
from foldcli.logs import logger, warn_unusable_files
from foldcli.progress import progress_bar
from msa.database.build import BuildSettings, build_database, build_from_mmseqs
from msa.database.database import TargetDatabase
from msa.database.manifest import (
    ClusterSummary,
    DatabaseManifest,
    InputFile,
    WholeDatabase,
    split_folders,
)


def build(source: str | tuple[str, ...], output: Path, settings: BuildSettings) -> None:
    """Build a database from an MMseqs2 database (str) or from FASTA files (tuple)."""
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


def build_structure_library(paths: tuple[str, ...], output: Path, settings: LibrarySettings) -> None:
    """Build a structure library, and name the files that could not be used."""
    start = time.perf_counter()
    with progress_bar("createdb", "files") as progress:
        manifest = build_library(paths, output, settings, progress)
    describe_library(manifest, output, f", {time.perf_counter() - start:.1f} s")


def describe_library(manifest: LibraryManifest, output: Path, remark: str = "") -> None:
    """Log the size of a structure library, and the files that could not be used."""
    warn_unusable_files(manifest.unreadable, str(output), manifest.remarks)
    logger.info(
        "%s: %s chains, %s residues from %s of %s files%s",
        output,
        f"{manifest.chains:,}",
        f"{manifest.residues:,}",
        f"{manifest.files - len(manifest.unreadable):,}",
        f"{manifest.files:,}",
        remark,
    )


def verify(path: Path) -> None:
    """Check a database, or all parts of a split one, against their checksums."""
    for folder in split_folders(path) or [path]:
        database = TargetDatabase.open(folder)
        with progress_bar("verify", "B") as progress:
            database.verify(progress)
        logger.info("%s: all checksums match; %s", folder, _summary(database.manifest))


def print_info(path: Path, as_json: bool) -> None:
    """Print the manifest of a database, as a table or as JSON; of a split database, those of all parts."""
    folders = split_folders(path)
    manifests = [TargetDatabase.open(folder).manifest for folder in folders or [path]]
    if as_json:
        contents = [manifest.as_json() for manifest in manifests]
        print(json.dumps(contents if folders else contents[0], indent=2))
        return
    for folder, manifest in zip(folders or [path], manifests, strict=True):
        _print_table(folder, manifest)


def _print_table(path: Path, manifest: DatabaseManifest) -> None:
    quantiles = ", ".join(f"{float(q):.0%} {length:,}" for q, length in manifest.length_quantiles.items())
    masking = "none"
    if manifest.masking is not None:
        share = manifest.masked_residues / manifest.residues
        parameters = ", ".join(f"{key} {value}" for key, value in manifest.masking.items() if key != "method")
        method = manifest.masking["method"]
        masking = f"{method} ({parameters}): {manifest.masked_residues:,} residues, {share:.2%}"
    rows = [
        ("database", str(path)),
        ("format version", str(manifest.format_version)),
        ("molecule", manifest.molecule),
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
        print(f"{key:15} {value}")


def _describe_input(source: InputFile) -> str:
    """Describe one of the manifest's inputs."""
    kind = f" ({source['format']})" if "format" in source else ""
    return f"{source['name']}{kind}, {source['bytes']:,} bytes of FASTA"


def _describe_clusters(clusters: ClusterSummary) -> str:
    return (
        f"{clusters.representatives:,} representatives, {clusters.residues:,} residues; the largest cluster "
        f"has {clusters.largest:,} sequences; from {clusters.table}"
    )


def _describe_part(whole: WholeDatabase) -> str:
    size = f"{whole.sequences:,} sequences, {whole.residues:,} residues"
    return f"{whole.part} of {whole.parts} of a database of {size}"


def _summary(manifest: DatabaseManifest) -> str:
    """Return size and masking of a database in one line."""
    masked = manifest.masked_residues / manifest.residues
    masking = "unmasked" if manifest.masking is None else f"{masked:.1%} masked"
    clusters = "" if manifest.clusters is None else f" in {manifest.clusters.representatives:,} clusters"
    return f"{manifest.sequences:,} sequences{clusters}, {manifest.residues:,} residues ({masking})"
