"""`foldcli library`: describe, list and verify structure libraries."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.progress import progress_bar

if TYPE_CHECKING:
    from features.templates.library.library import StructureLibrary

_library_argument = click.argument(
    "path", required=False, type=click.Path(path_type=Path), metavar="[LIBRARY]"
)


@click.group("library")
def command() -> None:
    """Describe, list and verify structure libraries.

    A structure library holds chains of known structure, which are searched for templates. Without LIBRARY,
    the commands use the library that comes with foldcli. Build your own with foldcli createdb --structures.
    """


@command.command("info")
@_library_argument
@options.json_option
@options.logging_options
def info(path: Path | None, as_json: bool) -> None:
    """Describe a library."""
    library = _open(path)
    manifest = library.manifest
    if as_json:
        click.echo(json.dumps(manifest.as_json(), indent=2))
        return
    atoms = "backbone and CB" if manifest.backbone_only else "all heavy atoms"
    size = sum(file.stat().st_size for file in library.path.rglob("*") if file.is_file())
    rows = [
        ("library", str(library.path)),
        ("chains", f"{manifest.chains:,}"),
        ("residues", f"{manifest.residues:,}"),
        ("atoms", f"{atoms}, on a grid of {1 / manifest.units_per_angstrom:g} Å"),
        ("release dates", f"{manifest.dated_chains:,} chains"),
        ("bytes on disk", f"{size:,}"),
        ("files read", f"{manifest.files:,}"),
        *(("not used", f"{name}: {reason}") for name, reason in manifest.unreadable.items()),
        *(("sha256", f"{part.sha256}  {name}") for name, part in manifest.parts.items()),
    ]
    for key, value in rows:
        click.echo(f"{key:15} {value}")


@command.command("ls")
@_library_argument
@options.logging_options
def ls(path: Path | None) -> None:
    """List the chains of a library: id, residues, release date, source."""
    library = _open(path)
    for index in range(len(library)):
        fields = [
            library.database.id(index),
            str(library.database.arrays.lengths[index]),
            library.release_date(index) or "-",
            library.source(index),
        ]
        click.echo("\t".join(fields))


@command.command("verify")
@_library_argument
@options.logging_options
def verify(path: Path | None) -> None:
    """Check a library against its checksums."""
    library = _open(path)
    with progress_bar("verify", "B") as progress:
        library.verify(progress)
    logger.info("%s: all checksums match; %s chains", library.path, f"{len(library):,}")


def _open(path: Path | None) -> "StructureLibrary":
    """Open a library, by default the one that comes with foldcli."""
    from features.templates.library.library import EMBEDDED, StructureLibrary

    return StructureLibrary.open(path or EMBEDDED)
