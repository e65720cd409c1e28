"""Writing sequences in order of length when neither they nor their index fit in memory.

A counting sort in two passes. The first spools sequences as they come and counts, per length, sequences and
header bytes. From these counts the place of every sequence in the sorted files is known before it is
written, so the second pass reads the spool from front to back and lays each record down at the next free
place of its length. Only as many pages are being written to at a time as there are different lengths, some
thousands, whatever the size of the database.
"""

import hashlib
import mmap
import os
from pathlib import Path

import numpy as np

from msa import alphabet
from msa.jit import kernel
from msa.manifest import HEADER_INDEX, HEADERS, LENGTHS, OFFSETS, RESIDUES
from msa.records import Records

_SPOOLS = ("residues.spool", "lengths.spool", "headers.spool", "header_lengths.spool", "id_hashes.spool")
# pages written through a mapping count as this process's memory until they are let go
_LET_GO_EVERY = 64 << 20
_IDS_AT_ONCE = 1 << 24


class LengthSorter:
    """Collects records in their input order, then writes the five parts of a database.

    Args:
        folder: where spool files and parts go.
        ids_at_once: id hashes (8 bytes each) to sort in memory when counting duplicates.
    """

    def __init__(self, folder: Path, ids_at_once: int = _IDS_AT_ONCE) -> None:
        self._folder, self._ids_at_once = folder, ids_at_once
        self._files = [_Spool(folder / name) for name in _SPOOLS]
        self._blocks: list[tuple[int, int, int]] = []  # sequences, residues, header bytes
        self._counts = np.zeros(1, np.int64)  # sequences, by length
        self._header_bytes = np.zeros(1, np.int64)

    @property
    def sequences(self) -> int:
        """How many have been added."""
        return int(self._counts.sum())

    @property
    def residues(self) -> int:
        """How many have been added."""
        return int(self._counts @ np.arange(len(self._counts)))

    def add(self, records: Records) -> None:
        """Spool the next records.

        Raises:
            OSError: the disk is full; the error names the spool file.
        """
        if len(records.lengths) == 0:
            return
        size = max(len(self._counts), int(records.lengths.max()) + 1)
        self._counts = _grown(self._counts, size)
        self._header_bytes = _grown(self._header_bytes, size)
        self._counts += np.bincount(records.lengths, minlength=size)
        per_length = np.bincount(records.lengths, weights=records.header_lengths, minlength=size)
        self._header_bytes += per_length.astype(np.int64)
        parts = (
            records.residues,
            records.lengths,
            records.headers,
            records.header_lengths,
            records.id_hashes,
        )
        for file, part in zip(self._files, parts, strict=True):
            file.write(part)
        self._blocks.append((len(records.lengths), len(records.residues), len(records.headers)))

    def quantile(self, fraction: float) -> int:
        """The smallest length that at least `fraction` of the sequences do not exceed."""
        cumulated = np.cumsum(self._counts)
        return int(np.searchsorted(cumulated, max(1, np.ceil(fraction * cumulated[-1]))))

    def duplicate_ids(self) -> int:
        """How many sequences have an id that an earlier one has (told by 64-bit hashes)."""
        file = self._files[4]
        rounds = -(-self.sequences // self._ids_at_once)
        duplicates = 0
        for number in range(rounds):
            file.rewind()
            mine = []
            for sequences, _, _ in self._blocks:
                hashes = np.frombuffer(file.read(8 * sequences), np.uint64)
                mine.append(hashes[hashes % np.uint64(rounds) == number] if rounds > 1 else hashes)
            together = np.sort(np.concatenate(mine))
            duplicates += int(np.count_nonzero(together[1:] == together[:-1]))
        return duplicates

    def write(self) -> None:
        """Write residues, offsets, lengths, headers and header index in order of length, and drop the spool.

        Raises:
            OSError: the disk is full; the error names the part.
        """
        lengths = np.flatnonzero(self._counts)
        counts = self._counts[lengths]
        padded = (lengths + 3) // 4 * 4
        slot_of_length = np.zeros(len(self._counts), np.int32)
        slot_of_length[lengths] = np.arange(len(lengths))
        rank = np.append(0, np.cumsum(counts))
        residue_at = np.append(0, np.cumsum(counts * padded))
        header_at = np.append(0, np.cumsum(self._header_bytes[lengths]))
        sequences = int(rank[-1])
        sizes = {
            RESIDUES: int(residue_at[-1]),
            OFFSETS: 8 * sequences,
            LENGTHS: 4 * sequences,
            HEADERS: int(header_at[-1]),
            HEADER_INDEX: 8 * (sequences + 1),
        }
        parts = {name: _Mapped(self._folder / name, size) for name, size in sizes.items()}
        header_index = parts[HEADER_INDEX].array.view(np.int64)
        header_index[-1] = header_at[-1]
        cursors = rank[:-1].copy(), residue_at[:-1].copy(), header_at[:-1].copy()
        for file in self._files:
            file.rewind()
        written = 0
        for in_block, residues_in_block, header_bytes in self._blocks:
            _lay_down(
                np.frombuffer(self._files[0].read(residues_in_block), np.uint8),
                np.frombuffer(self._files[1].read(4 * in_block), np.int32),
                np.frombuffer(self._files[2].read(header_bytes), np.uint8),
                np.frombuffer(self._files[3].read(4 * in_block), np.int32),
                slot_of_length,
                *cursors,
                parts[RESIDUES].array,
                parts[OFFSETS].array.view(np.int64),
                parts[LENGTHS].array.view(np.int32),
                parts[HEADERS].array,
                header_index,
            )
            written += residues_in_block + header_bytes
            if written >= _LET_GO_EVERY:
                for part in parts.values():
                    part.let_go()
                written = 0
        for part in parts.values():
            part.close()
        for file in self._files:
            file.drop()


class _Spool:
    """A temporary file written once and read from front to back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("wb+", buffering=0)

    def write(self, array: np.ndarray) -> None:
        left = np.ascontiguousarray(array).view(np.uint8).data
        try:
            while left:
                left = left[self._stream.write(left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise

    def rewind(self) -> None:
        self._stream.seek(0)

    def read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left and (got := self._stream.readinto(left)):
            left = left[got:]
        return data

    def drop(self) -> None:
        self._stream.close()
        self._path.unlink(missing_ok=True)


class _Mapped:
    """A new file of known size, mapped for writing, its space on the disk taken beforehand.

    Without that a full disk would show as a signal in the middle of a store, which kills the process.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.array = np.empty(0, np.uint8)
        self._map: mmap.mmap | None = None
        with path.open("wb+") as stream:
            if size == 0:
                return
            try:
                os.posix_fallocate(stream.fileno(), 0, size)
            except OSError as error:
                error.filename = str(path)
                raise
            self._map = mmap.mmap(stream.fileno(), size)
        self.array = np.frombuffer(self._map, np.uint8)

    def let_go(self) -> None:
        """Give the pages back to the kernel, which writes them to the file in its own time."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file; the mapping itself ends when the last array on it does."""
        self.let_go()
        self.array = np.empty(0, np.uint8)
        self._map = None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _grown(counts: np.ndarray, size: int) -> np.ndarray:
    return counts if len(counts) == size else np.append(counts, np.zeros(size - len(counts), np.int64))


@kernel
def _lay_down(  # type: ignore[no-untyped-def]
    residues,
    lengths,
    headers,
    header_lengths,
    slot_of_length,
    next_rank,
    next_residue,
    next_header,
    out_residues,
    out_offsets,
    out_lengths,
    out_headers,
    out_header_index,
):
    """Copy each record of a block to the next free place of its length."""
    residue = header = 0
    for sequence in range(len(lengths)):
        length = lengths[sequence]
        slot = slot_of_length[length]
        rank = next_rank[slot]
        next_rank[slot] += 1

        start = next_residue[slot]
        padded = (length + 3) // 4 * 4
        next_residue[slot] += padded
        out_residues[start : start + length] = residues[residue : residue + length]
        out_residues[start + length : start + padded] = alphabet.PAD
        residue += length
        out_offsets[rank] = start
        out_lengths[rank] = length

        size = header_lengths[sequence]
        start = next_header[slot]
        next_header[slot] += size
        out_headers[start : start + size] = headers[header : header + size]
        header += size
        out_header_index[rank] = start
