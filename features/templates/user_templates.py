"""Templates that a user selects: a folder of structure files, or the hits of another program.

Structure files are read only then, so the modules for them are imported where they are used.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from features.templates.library.chains import TemplateChain
from features.templates.library.library import (
    FORMAT_VERSION,
    READER_VERSION,
    StructureLibrary,
    is_library,
    normalized_id,
)
from features.templates.library.settings import LibrarySettings
from msa.base.atomic import writing_cache
from msa.base.errors import InputError, MissingError
from msa.base.progress import Progress
from msa.io.compression import read_bytes
from msa.io.fasta import clean_header

MAX_HITS = 20
"""Hits of a hit file that are read, as in ColabFold."""
# all digits of structure files, so that features are exactly those of the files
_SETTINGS = LibrarySettings(units_per_angstrom=1000)
# paths of an entry in a PDB mirror; `divided` and `obsolete` are folders of ColabFold's mirrors
_MIRROR_FOLDERS = ("{entry}", "{middle}/{entry}", "divided/{middle}/{entry}", "obsolete/{middle}/{entry}")
_MIRROR_SUFFIXES = (".cif", ".cif.gz", ".pdb", ".pdb.gz", ".ent", ".ent.gz")


@dataclass(frozen=True, eq=False)
class SelectedTemplates:
    """Templates that a user selected, as a library.

    Args:
        library: the chains; None if none could be read.
        unusable: names of files or chains that could not be used, with the reason.
    """

    library: StructureLibrary | None
    unusable: Sequence[tuple[str, str]] = field(default=())


def open_or_build_library(
    path: str | os.PathLike[str], cache_dir: Path, threads: int = 1, progress: Progress | None = None
) -> StructureLibrary:
    """Open a structure library; build it first from a folder of structure files, or from one file.

    A built library is kept in `cache_dir/templates/KEY` and reused while the files keep their names, sizes
    and times.

    Args:
        path: a library, a folder that is searched for structure files, or one structure file of any name.
        cache_dir: folder for built libraries.
        threads: worker processes.
        progress: called with (files read, all files).

    Raises:
        InputError: there is no usable chain, or the library is damaged.
    """
    if is_library(path):
        return StructureLibrary.open(path)
    return library_of_files([path], cache_dir, threads, progress)


def library_of_files(
    paths: Sequence[str | os.PathLike[str]],
    cache_dir: Path,
    threads: int = 1,
    progress: Progress | None = None,
) -> StructureLibrary:
    """Return the library of structure files; build it unless `cache_dir` has it.

    Args:
        paths: structure files of any name, and folders that are searched for them.
        cache_dir: see `open_or_build_library`.
        threads: worker processes.
        progress: called with (files read, all files).

    Raises:
        InputError: there is no usable chain, or a path does not exist.
    """
    from features.templates.library import build, structure_files  # imports gemmi and numba

    files = structure_files.find_structure_files(paths)
    status = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(json.dumps([FORMAT_VERSION, READER_VERSION, status]).encode()).hexdigest()
    folder = Path(cache_dir) / "templates" / key
    # asked first, because another process may finish the library after it was not found here
    existed = is_library(folder)
    try:
        return StructureLibrary.open(folder)
    except (InputError, MissingError):
        settings = replace(_SETTINGS, threads=threads, overwrite=existed)
    with writing_cache(cache_dir):
        try:
            build.build_library(files, folder, settings, progress)
        except (InputError, OSError):
            # another process may have finished the same library, and removed its batches
            if existed or not is_library(folder):
                raise
    return StructureLibrary.open(folder)


def read_hit_file(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read a table of template hits, such as ColabFold's pdb70.m8: query, tab, PDB id and chain, and more.

    Returns:
        For each query its hits, such as 1abc_A, best first, each once.

    Raises:
        InputError: a line has no two columns, or there are no hits.
    """
    hits: dict[str, list[str]] = {}
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [clean_header(column) for column in line.split("\t")]
        if len(columns) < 2 or "_" not in columns[1]:
            raise InputError("expected a query, a tab, and a template such as 1abc_A", path, number)
        query_hits = hits.setdefault(columns[0], [])
        if columns[1] not in query_hits:
            query_hits.append(columns[1])
    if not hits:
        raise InputError("no template hits", path)
    return hits


def hits_of_query(hits: dict[str, list[str]], query: str, number: int = 0) -> list[str]:
    """Return the hits of one query in a hit file.

    Args:
        hits: result of `read_hit_file`.
        query: name of the query.
        number: index of the query in the run; ColabFold's search calls the first query 101.

    Returns:
        The hits; if the file has a single query, its hits, whatever its name is. Empty if there are none.
    """
    for name in (query, str(101 + number)):
        if name in hits:
            return hits[name]
    return next(iter(hits.values())) if len(hits) == 1 else []


def find_entry(mirror: Path, entry: str) -> Path | None:
    """Return the file of a PDB entry in a mirror, flat or with two-letter folders, or None."""
    lower = entry.lower()
    for pattern in _MIRROR_FOLDERS:
        for name in (lower, entry, f"pdb{lower}"):
            location = pattern.format(middle=lower[1:3], entry=name)
            for suffix in _MIRROR_SUFFIXES:
                path = mirror / (location + suffix)
                if path.is_file():
                    return path
    return None


def select_from_mirror(names: Sequence[str], mirror: Path, folder: Path) -> SelectedTemplates:
    """Make a library of chains of a PDB mirror.

    Args:
        names: chains such as 1abc_A, best first; at most `MAX_HITS` are read.
        mirror: folder with structure files; see `find_entry`.
        folder: folder to create for the library.

    Raises:
        InputError: the mirror does not exist.
    """
    from features.templates.library.build import write_library  # imports gemmi and numba

    if not mirror.is_dir():
        raise InputError("no such folder", mirror)
    chains: list[TemplateChain] = []
    unusable: list[tuple[str, str]] = []
    for name in names[:MAX_HITS]:
        try:
            chains.append(_read_from_mirror(name, mirror))
        except InputError as error:
            unusable.append((name, str(error)))
        except OSError as error:
            unusable.append((name, f"{error.filename}: {error.strerror}"))
    unusable += [(name, f"not among the first {MAX_HITS} hits") for name in names[MAX_HITS:]]
    if not chains:
        return SelectedTemplates(None, unusable)
    write_library(chains, folder, _SETTINGS)
    return SelectedTemplates(StructureLibrary.open(folder), unusable)


def _read_from_mirror(name: str, mirror: Path) -> TemplateChain:
    from features.templates.library.structure_files import read_chains  # imports gemmi

    entry, _, chain_name = name.rpartition("_")
    path = find_entry(mirror, entry)
    if path is None:
        raise InputError(f"no structure file of entry {entry}", mirror)
    chains = read_chains(path)
    for chain in chains:
        if chain.id.rpartition("_")[2] == chain_name:
            return replace(chain, id=normalized_id(name))
    present = ", ".join(chain.id.rpartition("_")[2] for chain in chains)
    raise InputError(f"no protein chain {chain_name}, only {present}", path)
