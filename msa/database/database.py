"""The target database: a folder of flat, memory-mapped files; docs/databases.md describes the format."""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from msa import alphabet
from msa.base.atomic import errors_name
from msa.base.errors import DamagedDatabase, InputError, MissingError
from msa.base.progress import Progress
from msa.database.integrity import (
    check_clusters,
    check_file,
    check_headers,
    check_part_files,
    check_sequences,
    check_small_files,
)
from msa.database.manifest import (
    CLUSTERS,
    HEADER_INDEX,
    HEADERS,
    LENGTHS,
    MEMBERS,
    OFFSETS,
    RESIDUES,
    SAMPLE,
    SAMPLE_LENGTHS,
    WHOLE_INDEX,
    DatabaseManifest,
    read_manifest,
)
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import first_word

_DTYPES: dict[str, np.dtype[Any]] = {
    RESIDUES: np.dtype(np.uint8),
    OFFSETS: np.dtype("<i8"),
    LENGTHS: np.dtype("<i4"),
    HEADERS: np.dtype(np.uint8),
    HEADER_INDEX: np.dtype("<i8"),
    CLUSTERS: np.dtype("<i8"),
    MEMBERS: np.dtype("<i8"),
    WHOLE_INDEX: np.dtype("<i8"),
    SAMPLE: np.dtype(np.uint8),
    SAMPLE_LENGTHS: np.dtype("<i4"),
}


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
        companions: the other databases of a search of several, to which E-values refer as well.
    """

    path: Path
    manifest: DatabaseManifest
    arrays: SequenceArrays = field(repr=False)
    _files: dict[str, np.ndarray] = field(repr=False)
    companions: tuple["TargetDatabase", ...] = field(default=(), repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "TargetDatabase":
        """Map a database into memory, and check its structure and the checksums of its small files.

        All offsets, lengths and clusters are checked, so that a damaged or malicious database cannot make a
        search read outside of them. `verify` detects damage inside large residue and header files.

        Raises:
            MissingError: there is no such folder.
            InputError: not a database, one of a newer version, or a file is missing, has the wrong size,
                differs from its checksum or contradicts another; names the file.
        """
        folder = Path(path)
        if not folder.exists():
            raise MissingError(
                f"{folder}: no such database", "Build one: foldcli createdb sequences.fasta -o DB"
            )
        if not folder.is_dir():
            raise InputError("not a target database (those are folders)", folder)
        manifest = read_manifest(folder)
        files = {name: _map(folder, name, manifest) for name in manifest.files}
        arrays = SequenceArrays(files[RESIDUES], files[OFFSETS], files[LENGTHS])
        database = cls(folder, manifest, arrays, files)
        check_sequences(arrays, manifest, folder)
        check_headers(files[HEADER_INDEX], len(files[HEADERS]), folder)
        if manifest.clusters is not None:
            check_clusters(files[CLUSTERS], files[MEMBERS], manifest, folder)
        if manifest.whole is not None:
            check_part_files(files, manifest, folder)
        check_small_files(files, manifest, folder)
        return database

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def total_residues(self) -> int:
        """Residues of all sequences, without padding, also of other parts and of companions."""
        own = self.manifest.whole or self.manifest
        return own.residues + sum(each.total_residues for each in self.companions)

    @property
    def total_sequences(self) -> int:
        """The number of sequences, also of other parts and of companions."""
        own = self.manifest.whole or self.manifest
        return own.sequences + sum(each.total_sequences for each in self.companions)

    @property
    def total_representatives(self) -> int:
        """The number of representatives, also of other parts and of companions."""
        own = self.manifest.whole or self
        return own.representatives + sum(each.total_representatives for each in self.companions)

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file; together they identify the content, with that of companions."""
        own = self.manifest.checksums
        for number, companion in enumerate(self.companions, 2):
            own |= {f"{number}/{name}": digest for name, digest in companion.checksums.items()}
        return own

    def with_companions(self, companions: "Sequence[TargetDatabase]") -> "TargetDatabase":
        """Return this database as one of several that are searched together."""
        return replace(self, companions=tuple(companions))

    @property
    def can_reopen(self) -> bool:
        """True if another process that opens the folder has the same sequences and E-values."""
        return not self.companions

    def are_reversed(self, indices: np.ndarray) -> np.ndarray:
        """Return which sequences are reverse complements of those in the folder, bool [n]."""
        return np.zeros(len(indices), bool)

    @property
    def representatives(self) -> int:
        """The number of representatives, the only sequences that a search scans; all without clusters."""
        clusters = self.manifest.clusters
        return len(self) if clusters is None else clusters.representatives

    @property
    def representative_arrays(self) -> SequenceArrays:
        """Residues, offsets and lengths of the representatives."""
        arrays, count = self.arrays, self.representatives
        _, end = arrays.byte_range(0, count)
        return SequenceArrays(arrays.residues[:end], arrays.offsets[:count], arrays.lengths[:count])

    @property
    def length_sample(self) -> SequenceArrays:
        """Representatives of various lengths, for statistics; in a part of a split database, of all parts."""
        if self.manifest.whole is None:
            return self.arrays.sample_by_length(self.representatives)
        return SequenceArrays.contiguous(self._files[SAMPLE], self._files[SAMPLE_LENGTHS])

    def whole_indices(self, indices: np.ndarray) -> np.ndarray:
        """Return the indices, int64 [n], that sequences have in the whole database; see `WholeDatabase`."""
        return indices if self.manifest.whole is None else self._files[WHOLE_INDEX][indices]

    def cluster_representatives(self, indices: np.ndarray) -> np.ndarray:
        """Return the index of the representative of each sequence's cluster, int64 [n]."""
        if self.manifest.clusters is None:
            return indices
        return self._representative_of[indices]

    @cached_property
    def _representative_of(self) -> np.ndarray:
        """The representative of every sequence, int64."""
        clusters, members = self._files[CLUSTERS], self._files[MEMBERS]
        found = np.arange(len(self))
        found[members] = np.repeat(np.arange(self.representatives), np.diff(clusters))
        return found

    def members(self, representatives: np.ndarray) -> np.ndarray:
        """Return the members of clusters, without their representatives: int64, cluster after cluster."""
        if self.manifest.clusters is None:
            return np.empty(0, np.int64)
        clusters, members = self._files[CLUSTERS], self._files[MEMBERS]
        starts, ends = clusters[representatives], clusters[representatives + 1]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return np.concatenate([np.empty(0, np.int64), *(members[a:b] for a, b in spans)])

    def sequence(self, index: int) -> str:
        """Return a sequence as upper-case letters, ignoring the mask."""
        return alphabet.decode(self.arrays.codes(index))

    def header(self, index: int) -> str:
        """Return the header line of a sequence, without `>`."""
        start, end = self._files[HEADER_INDEX][index : index + 2]
        return self._files[HEADERS][start:end].tobytes().decode("utf-8", "replace")

    def headers(self, indices: np.ndarray) -> list[str]:
        """Return the header lines of sequences, without `>`.

        Args:
            indices: int64 [n].
        """
        return [line.decode("utf-8", "replace") for line in self.raw_headers(indices)]

    def raw_headers(self, indices: np.ndarray) -> list[bytes]:
        """Return the bytes of header lines, which need not be valid UTF-8; int64 [n]."""
        index, text = self._files[HEADER_INDEX], self._files[HEADERS].data
        spans = zip(index[indices].tolist(), index[indices + 1].tolist(), strict=True)
        return [text[start:end].tobytes() for start, end in spans]

    def id(self, index: int) -> str:
        """Return the first word of a sequence's header."""
        return first_word(self.header(index))

    def verify(self, progress: Progress | None = None) -> None:
        """Read every byte and compare checksums.

        Args:
            progress: called with (bytes read, total bytes).

        Raises:
            InputError: a file has changed since it was written; names it.
        """
        done, total = 0, sum(file.bytes for file in self.manifest.files.values())
        for name, array in self._files.items():
            for count in check_file(array, self.manifest.files[name].sha256, self.path / name):
                done += count
                if progress is not None:
                    progress(done, total)

    def check_sizes(self) -> None:
        """Check that no file has become shorter or longer since the database was opened.

        Reading past the end of a mapped file returns zeros, or ends the process with a signal (SIGBUS). The
        files of a database that `createdb --overwrite` has replaced remain available while it is open.

        Raises:
            InputError: a file has changed; names it.
        """
        for name, array in self._files.items():
            base = array.base
            if isinstance(base, np.memmap) and isinstance(base.base, mmap.mmap):
                _check_size(base.base.size(), self.manifest, self.path, name)


@dataclass(frozen=True, eq=False)
class BothStrands(TargetDatabase):
    """A database of RNA with the reverse complement of each sequence after it, in memory."""

    @classmethod
    def of(cls, database: TargetDatabase) -> "BothStrands":
        """Add the reverse complements to an opened database.

        Raises:
            InputError: it has clusters, or is a part of another one.
        """
        manifest, arrays = database.manifest, database.arrays
        if manifest.clusters is not None or manifest.whole is not None:
            raise InputError("databases with clusters or parts have one strand only", database.path)
        starts = np.flatnonzero(np.diff(arrays.lengths, prepend=-1))
        blocks = [np.empty(0, np.uint8)]
        for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(arrays)], strict=True):
            # sequences of the same length, which follow each other
            length, (begin, stop) = int(arrays.lengths[first]), arrays.byte_range(first, end)
            forward = arrays.residues[begin:stop].reshape(end - first, -1)
            pairs = np.stack([forward, forward], axis=1)
            pairs[:, 1, :length] = alphabet.COMPLEMENT[forward[:, :length][:, ::-1]]
            blocks.append(pairs.ravel())
        lengths = np.repeat(arrays.lengths, 2)
        padded = (lengths.astype(np.int64) + 3) & ~3
        both = SequenceArrays(np.concatenate(blocks), np.cumsum(padded) - padded, lengths)
        sizes = {name: 2 * getattr(manifest, name) for name in ("sequences", "residues", "masked_residues")}
        manifest = msgspec.structs.replace(manifest, **sizes)
        return cls(database.path, manifest, both, database._files, database.companions)

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file, and the strands."""
        return super().checksums | {"strand": "both"}

    @property
    def can_reopen(self) -> bool:
        """False: the folder has one strand."""
        return False

    def are_reversed(self, indices: np.ndarray) -> np.ndarray:
        """Return which sequences are reverse complements, bool [n]."""
        return indices % 2 == 1

    def header(self, index: int) -> str:
        """Return the header line of a sequence, which both strands have."""
        return super().header(index // 2)

    def raw_headers(self, indices: np.ndarray) -> list[bytes]:
        """Return the bytes of header lines, int64 [n]."""
        return super().raw_headers(indices // 2)


def _check_size(size: int, manifest: DatabaseManifest, folder: Path, name: str) -> None:
    expected = manifest.files[name].bytes
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise DamagedDatabase(
            f"damaged database: {problem}, {size} bytes instead of {expected}", folder / name
        )


def _map(folder: Path, name: str, manifest: DatabaseManifest) -> np.ndarray:
    """Map one file into memory after checking its size."""
    path, dtype = folder / name, _DTYPES[name]
    # the system's error may not name the file, as with too many open files
    with errors_name(path):
        if not path.exists():
            raise InputError("damaged database: this part is missing", path)
        size = path.stat().st_size
        _check_size(size, manifest, folder, name)
        if size % dtype.itemsize:
            raise InputError(f"damaged database: {size} bytes, which are not whole numbers", path)
        if size == 0:  # all headers may be empty, and an empty file cannot be mapped
            return np.empty(0, dtype)
        # a plain array, because slicing an np.memmap takes ten times as long
        return np.memmap(path, dtype, mode="r").view(np.ndarray)
