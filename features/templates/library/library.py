"""The structure library: chains of known structure that can be searched; docs/templates.md has the format."""

import os
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from features.templates.library.chains import TemplateChain, complete_atoms
from features.templates.library.coordinate_codec import decode_coordinates
from msa.base.digests import file_sha256
from msa.base.errors import InputError, MissingError, check_intact
from msa.base.json_files import Count, read_json, to_record
from msa.base.progress import Progress
from msa.database.database import TargetDatabase
from msa.database.manifest import MANIFEST, DatabaseFile, select_files

FORMAT = "foldcli structure library"
FORMAT_VERSION = 1
READER_VERSION = 4
"""Version of the reader of structure files; libraries in the cache are built again when it changes."""
SEQUENCES = "sequences"
"""Folder of the target database with the chains' sequences; chains have the order of its sequences."""
COORDINATES, COORDINATE_INDEX = "coordinates.bin", "coordinates.idx"
SEQUENCES_MANIFEST = f"{SEQUENCES}/{MANIFEST}"
PARTS = (COORDINATES, COORDINATE_INDEX, SEQUENCES_MANIFEST)
STATES = "states.u8"
"""States of the residues at the offsets of the sequences; libraries of old versions lack this part."""
EMBEDDED = Path(__file__).parents[1] / "embedded"
"""The library that comes with the package."""
UNKNOWN = "-"
"""Placeholder of an unknown release date in the header of a chain."""

_require = partial(check_intact, "structure library")


@dataclass(frozen=True)
class LibraryManifest:
    """The content of a library's manifest.json.

    Attributes:
        residues: residues of all chains, those without coordinates included.
        units_per_angstrom: grid points per Å of the stored coordinates.
        backbone_only: side chains beyond CB are left out.
        files: number of structure files or archives that were read.
        unreadable: reason for each structure file that could not be used, by its path.
        parts: size and checksum of each file; the sequences have a manifest of their own.
        remarks: by the path of a structure file, what was renamed, divided or left out.
    """

    chains: Count
    residues: Count
    units_per_angstrom: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    backbone_only: bool
    dated_chains: int
    files: int
    unreadable: dict[str, str]
    parts: dict[str, DatabaseFile]
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file as a JSON object."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION} | asdict(self)


@dataclass(frozen=True, eq=False)
class StructureLibrary:
    """An open structure library; its files are memory-mapped.

    Attributes:
        database: the chains' sequences, which can be searched.
    """

    path: Path
    manifest: LibraryManifest
    database: TargetDatabase
    _coordinates: np.ndarray = field(repr=False)
    _index: np.ndarray = field(repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "StructureLibrary":
        """Map a library into memory.

        Raises:
            MissingError: there is no such folder.
            InputError: not a library, one of a newer version, or a part is missing, has the wrong size or
                contradicts another. `verify` detects damage inside a part.
        """
        folder = Path(path)
        manifest = read_library_manifest(folder)
        for name, part in manifest.parts.items():
            try:
                size = (folder / name).stat().st_size
            except FileNotFoundError:
                raise InputError("damaged structure library: this part is missing", folder / name) from None
            _require(size == part.bytes, f"{size} bytes instead of {part.bytes}", folder / name)
        database = TargetDatabase.open(folder / SEQUENCES)
        index = np.memmap(folder / COORDINATE_INDEX, "<i8", mode="r").view(np.ndarray)
        coordinates = np.memmap(folder / COORDINATES, np.uint8, mode="r").view(np.ndarray)
        counts = f"{len(database)} sequences and {len(index) - 1} sets of coordinates"
        agree = len(database) == manifest.chains and len(index) == manifest.chains + 1
        _require(agree, f"{counts} for {manifest.chains} chains", folder)
        ascending = index[0] == 0 and index[-1] == len(coordinates) and bool(np.all(np.diff(index) >= 0))
        _require(ascending, "its offsets are wrong", folder / COORDINATE_INDEX)
        return cls(folder, manifest, database, coordinates, index)

    def __len__(self) -> int:
        return self.manifest.chains

    def chain(self, index: int) -> TemplateChain:
        """Return a chain with its coordinates; 0 ≤ index < len(self).

        Raises:
            InputError: its coordinates are damaged.
        """
        data = self._coordinates[self._index[index] : self._index[index + 1]].tobytes()
        sequence = self.database.sequence(index)
        complete = complete_atoms(sequence, self.manifest.backbone_only)
        try:
            positions, mask = decode_coordinates(data, complete, self.manifest.units_per_angstrom)
        except ValueError as error:
            raise InputError(f"chain {self.database.id(index)}: {error}", self.path / COORDINATES) from None
        name, release_date, source = parse_header(self.database.header(index))
        return TemplateChain(name, sequence, positions, mask, release_date, source)

    def release_date(self, index: int) -> str | None:
        """Return the release date of a chain, YYYY-MM-DD, or None if it is unknown."""
        return parse_header(self.database.header(index))[1]

    def source(self, index: int) -> str:
        """Return the file or collection that a chain was read from."""
        return parse_header(self.database.header(index))[2]

    def find(self, chain_id: str) -> int | None:
        """Return the index of a chain by its id, or None; the case of the entry's id is ignored."""
        return self._index_by_id.get(normalized_id(chain_id))

    @cached_property
    def _index_by_id(self) -> dict[str, int]:
        return {normalized_id(self.database.id(index)): index for index in reversed(range(len(self)))}

    @cached_property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each part that is not made from others; together they identify the library's content."""
        return {name: self.manifest.parts[name].sha256 for name in PARTS}

    def verify(self, progress: Progress | None = None) -> None:
        """Read every byte and compare checksums.

        Args:
            progress: called with (bytes read, total bytes).

        Raises:
            InputError: a part has changed since it was written; names it.
        """
        parts = self.manifest.parts
        sequence_bytes = sum(file.bytes for file in self.database.manifest.files.values())
        done, total = 0, sum(part.bytes for part in parts.values()) + sequence_bytes
        for name, part in parts.items():
            if file_sha256(self.path / name) != part.sha256:
                raise InputError("damaged: its SHA-256 differs from the manifest's", self.path / name)
            done += part.bytes
            if progress is not None:
                progress(done, total)
        self.database.verify(None if progress is None else lambda read, _: progress(done + read, total))


def parse_header(header: str) -> tuple[str, str | None, str]:
    """Return the id, the release date (None if unknown) and the source of a chain from its header."""
    name, date, source = header.split(" ", 2)
    return name, None if date == UNKNOWN else date, source


def normalized_id(chain_id: str) -> str:
    """Return a chain's id with its entry in lower case; the case of chain names has a meaning in the PDB."""
    entry, separator, chain = chain_id.rpartition("_")
    return f"{entry.lower()}{separator}{chain}"


def read_library_manifest(folder: Path) -> LibraryManifest:
    """Read and check the manifest of a library.

    Raises:
        MissingError: there is no such folder.
        InputError: not a library, written by a newer version, or damaged.
    """
    path = folder / MANIFEST
    if not folder.exists():
        raise MissingError(
            f"{folder}: no such structure library",
            "Build one from mmCIF or PDB files: foldcli createdb --structures FOLDER -o LIBRARY",
        )
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"not a structure library: no {MANIFEST} in it", folder) from None
    except ValueError as error:
        raise InputError(f"damaged manifest: {error}", path) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError("not the manifest of a structure library", path)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise InputError(f"format version {version!r}: this foldcli reads {FORMAT_VERSION}", path)
    try:
        manifest = to_record(content, LibraryManifest)
        names = [*PARTS, *(name for name in (STATES,) if name in manifest.parts)]
        return replace(manifest, parts=select_files(manifest.parts, names))
    except ValueError as error:
        raise InputError(f"damaged manifest: {error}", path) from error


def is_library(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is a structure library, by its manifest."""
    try:
        content = read_json(Path(path) / MANIFEST)
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT
