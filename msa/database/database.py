"""The target database: a folder of flat, memory-mapped files; docs/databases.md describes the format."""

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from msa import alphabet
from msa.database.manifest import (
    CLUSTER_PARTS,
    CLUSTERS,
    HEADER_INDEX,
    HEADERS,
    LENGTHS,
    MEMBERS,
    OFFSETS,
    PARTS,
    RESIDUES,
    DatabaseManifest,
    read_manifest,
)
from msa.database.sequence_arrays import SequenceArrays
from msa.errors import InputError
from msa.io.fasta import first_word
from msa.progress import Progress

_DTYPES: dict[str, np.dtype[Any]] = {
    RESIDUES: np.dtype(np.uint8),
    OFFSETS: np.dtype("<i8"),
    LENGTHS: np.dtype("<i4"),
    HEADERS: np.dtype(np.uint8),
    HEADER_INDEX: np.dtype("<i8"),
    CLUSTERS: np.dtype("<i8"),
    MEMBERS: np.dtype("<i8"),
}
_HASH_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, eq=False)
class TargetDatabase:
    """An open target database, with its sequences sorted by length, shortest first.

    In a database with clusters the representatives come first, sorted by length, then all other members, also
    sorted by length.

    Attributes:
        path: folder of the database.
        manifest: content of its manifest.
        arrays: residues, offsets and lengths of all sequences. Each sequence is padded with `alphabet.PAD` to
            a multiple of four bytes.
    """

    path: Path
    manifest: DatabaseManifest
    arrays: SequenceArrays = field(repr=False)
    _headers: np.ndarray = field(repr=False)
    _header_index: np.ndarray = field(repr=False)
    _clusters: np.ndarray | None = field(repr=False, default=None)
    _members: np.ndarray | None = field(repr=False, default=None)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "TargetDatabase":
        """Map a database into memory; only its manifest and the ends of its indices are read.

        Raises:
            InputError: not a database, one of a newer version, or a part is missing, has the wrong size or
                contradicts another; names the file. `verify` detects damage inside a part.
        """
        folder = Path(path)
        if not folder.exists():
            raise InputError("no such database", folder)
        if not folder.is_dir():
            raise InputError("not a target database (those are folders)", folder)
        manifest = read_manifest(folder)
        residues, offsets, lengths, headers, header_index = (_map(folder, name, manifest) for name in PARTS)
        end = int(offsets[-1]) + (int(lengths[-1]) + 3) // 4 * 4
        if offsets[0] != 0 or end != len(residues):
            raise InputError(
                f"the last sequence ends at byte {end} of {len(residues)} of {RESIDUES}", folder / OFFSETS
            )
        if header_index[0] != 0 or header_index[-1] != len(headers):
            raise InputError(
                f"the last header ends at byte {header_index[-1]} of {len(headers)} of {HEADERS}",
                folder / HEADER_INDEX,
            )
        database = cls(folder, manifest, SequenceArrays(residues, offsets, lengths), headers, header_index)
        if manifest.clusters is not None:
            clusters, members = (_map(folder, name, manifest) for name in CLUSTER_PARTS)
            if clusters[0] != 0 or clusters[-1] != len(members):
                raise InputError(
                    f"the last cluster ends at {clusters[-1]} of {len(members)} members", folder / CLUSTERS
                )
            return replace(database, _clusters=clusters, _members=members)
        return database

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def total_residues(self) -> int:
        """Residues of all sequences, without padding."""
        return self.manifest.residues

    @property
    def representatives(self) -> int:
        """The number of representatives, the only sequences that a search scans; all without clusters."""
        clusters = self.manifest.clusters
        return len(self) if clusters is None else clusters.representatives

    def members(self, representatives: np.ndarray) -> np.ndarray:
        """Return the members of clusters, without their representatives: int64, cluster after cluster."""
        if self._clusters is None or self._members is None:
            return np.empty(0, np.int64)
        starts, ends = self._clusters[representatives], self._clusters[representatives + 1]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return np.concatenate([np.empty(0, np.int64), *(self._members[a:b] for a, b in spans)])

    def codes(self, index: int) -> np.ndarray:
        """Return a view of a sequence, uint8 [length], with mask bits; 0 ≤ index < len(self)."""
        return self.arrays.codes(index)

    def sequence(self, index: int) -> str:
        """Return a sequence as upper-case letters, ignoring the mask."""
        return alphabet.decode(self.codes(index))

    def header(self, index: int) -> str:
        """Return the header line of a sequence, without `>`."""
        start, end = self._header_index[index], self._header_index[index + 1]
        return self._headers[start:end].tobytes().decode("utf-8", "replace")

    def headers(self, indices: np.ndarray) -> list[str]:
        """Return the header lines of sequences, without `>`.

        Args:
            indices: int64 [n].
        """
        spans = zip(
            self._header_index[indices].tolist(), self._header_index[indices + 1].tolist(), strict=True
        )
        text = self._headers.data
        return [str(text[start:end], "utf-8", "replace") for start, end in spans]

    def id(self, index: int) -> str:
        """Return the first word of a sequence's header."""
        return first_word(self.header(index))

    def verify(self, progress: Progress | None = None) -> None:
        """Read every byte and compare checksums.

        Args:
            progress: called with (bytes read, total bytes).

        Raises:
            InputError: a part has changed since it was written; names it.
        """
        done, total = 0, sum(part.bytes for part in self.manifest.parts.values())
        for name in self.manifest.parts:
            digest = hashlib.sha256()
            with (self.path / name).open("rb") as stream:
                while chunk := stream.read(_HASH_CHUNK_BYTES):
                    digest.update(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
            if digest.hexdigest() != self.manifest.parts[name].sha256:
                raise InputError("damaged: its SHA-256 differs from the manifest's", self.path / name)


def _map(folder: Path, name: str, manifest: DatabaseManifest) -> np.ndarray:
    """Map one part into memory after checking its size."""
    path, expected, dtype = folder / name, manifest.parts[name].bytes, _DTYPES[name]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError("damaged database: this part is missing", path) from None
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise InputError(f"damaged database: {problem}, {size} bytes instead of {expected}", path)
    if size == 0:  # all headers may be empty, and an empty file cannot be mapped
        return np.empty(0, dtype)
    # a plain array, because slicing an np.memmap takes ten times as long
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
