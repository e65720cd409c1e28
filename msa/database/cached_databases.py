"""Databases in the cache, built from FASTA files or MMseqs2 databases at their first use."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from msa.base.digests import file_sha256
from msa.base.errors import InputError, MissingError
from msa.base.progress import Progress
from msa.database.build import BuildSettings, build_database, build_from_mmseqs
from msa.database.database import TargetDatabase
from msa.database.manifest import PLAIN_VERSION
from msa.database.masking import MaskSettings
from msa.io.molecules import PROTEIN
from msa.mmseqs.database import open_mmseqs
from msa.mmseqs.files import is_mmseqs, list_files


def open_or_build_database(
    path: str | os.PathLike[str],
    cache_dir: Path,
    progress: Progress | None = None,
    notify: Callable[[str], None] = lambda line: None,
    molecule: Literal["protein", "rna"] = PROTEIN,
) -> TargetDatabase:
    """Open a target database; build it first from a FASTA file or an MMseqs2 database.

    A built database is kept in `cache_dir/databases/KEY` and reused. KEY is a hash of the files' bytes, the
    settings and the format version, so an edited file gives a new database. Several processes may build at
    the same time: one database is kept, the others are discarded.

    Args:
        path: database folder, FASTA file, compressed or not, or name of an MMseqs2 database.
        cache_dir: folder for built databases.
        progress: see `build_database`; not called if nothing is built.
        notify: called with one line before an MMseqs2 database is converted.
        molecule: see BuildSettings.

    Raises:
        MissingError: there is no such path.
        InputError: the path is none of these, or is damaged, or is `-`, which cannot be read twice.
        OSError: the file cannot be read, or the cache cannot be written.
    """
    database = database_path(path, cache_dir, molecule)
    # asked first, because another process may finish the database after it was not found here
    source, existed = Path(path), database.exists()
    try:
        return TargetDatabase.open(database)
    except (InputError, MissingError):
        if database == source:
            raise
    settings = BuildSettings(molecule=molecule, overwrite=existed)
    try:
        if is_mmseqs(source):
            notify(f"{source}: converting this MMseqs2 database once, to {database}")
            build_from_mmseqs(source, database, settings, progress)
        else:
            build_database([source], database, settings, progress)
    except InputError:
        if existed or not database.exists():
            raise
    return TargetDatabase.open(database)


def database_path(
    path: str | os.PathLike[str], cache_dir: Path, molecule: Literal["protein", "rna"] = PROTEIN
) -> Path:
    """Return the folder that `open_or_build_database` opens, given the same arguments.

    A folder in the cache may not exist yet.

    Raises:
        MissingError: there is no such path.
        InputError: the file cannot be converted, or the path is `-`.
        OSError: the file cannot be read.
    """
    if str(path) == "-":
        raise InputError("cannot be used as a database; build one with `foldcli createdb -`", "-")
    source = Path(path)
    if source.is_dir():
        return source
    from_mmseqs = is_mmseqs(source)
    if not from_mmseqs and not source.exists():
        raise MissingError(
            f"{source}: no such database or FASTA file",
            "Build a database: foldcli createdb sequences.fasta -o DB",
        )
    if from_mmseqs:
        # report an unusable database before all of it is read for the key
        open_mmseqs(source)
    files = list_files(source) if from_mmseqs else [source]
    return Path(cache_dir) / "databases" / _cache_key(files, BuildSettings(molecule=molecule))


def _cache_key(files: Sequence[Path], settings: BuildSettings) -> str:
    masking = asdict(MaskSettings()) if settings.mask else None
    kind = [] if settings.molecule == PROTEIN else [settings.molecule]
    identity = [PLAIN_VERSION, masking, *kind, *map(file_sha256, files)]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
