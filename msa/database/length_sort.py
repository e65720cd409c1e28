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
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from msa import alphabet
from msa.database.manifest import HEADER_INDEX, HEADERS, LENGTHS, OFFSETS, RESIDUES
from msa.io.fasta_blocks import Records
from msa.jit import kernel

# pages written through a mapping count as this process's memory until they are let go
_LET_GO_EVERY = 64 << 20
_IDS_AT_ONCE = 1 << 24
_HASH_PIECE = 1 << 22
_ALIGNMENT = 4


class LengthSorter:
    """Collects records in their input order, then writes the five parts of a database.

    Args:
        folder: where spool files and parts go.
        ids_at_once: id hashes (8 bytes each) to sort in memory when counting duplicates.
    """

    def __init__(self, folder: Path, ids_at_once: int = _IDS_AT_ONCE) -> None:
        self._folder, self._ids_at_once = folder, ids_at_once
        self._residues = _Spool(folder / "residues.spool")
        self._lengths = _Spool(folder / "lengths.spool")
        self._headers = _Spool(folder / "headers.spool")
        self._header_lengths = _Spool(folder / "header_lengths.spool")
        self._id_hashes = _Spool(folder / "id_hashes.spool")
        self._blocks: list[tuple[int, int, int]] = []  # sequences, residues, header bytes
        self._counts = np.zeros(1, np.int64)  # sequences, by length
        self._header_bytes = np.zeros(1, np.int64)
        # of what is sorted by, once it is known: sequences and header bytes
        self._slots, self._slot_headers = self._counts, self._header_bytes
        self._later: np.ndarray | None = None
        self._stopped = threading.Event()

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
        self._residues.append(records.residues)
        self._lengths.append(records.lengths)
        self._headers.append(records.headers)
        self._header_lengths.append(records.header_lengths)
        self._id_hashes.append(records.id_hashes)
        self._blocks.append((len(records.lengths), len(records.residues), len(records.headers)))

    def quantile(self, fraction: float) -> int:
        """The smallest length that at least `fraction` of the sequences do not exceed."""
        cumulated = np.cumsum(self._counts)
        return int(np.searchsorted(cumulated, max(1, np.ceil(fraction * cumulated[-1]))))

    def duplicate_ids(self) -> int:
        """How many sequences have an id that an earlier one has (told by 64-bit hashes)."""
        rounds = -(-self.sequences // self._ids_at_once)
        duplicates = 0
        for number in range(rounds):
            mine, first = [], 0
            for sequences, _, _ in self._blocks:
                hashes = self._id_hashes.read(first, sequences, np.uint64)
                mine.append(hashes[hashes % np.uint64(rounds) == number] if rounds > 1 else hashes)
                first += sequences
            together = np.sort(np.concatenate(mine))
            duplicates += int(np.count_nonzero(together[1:] == together[:-1]))
        return duplicates

    def header(self, sequence: int) -> str:
        """The header of a sequence by its place in the input."""
        first = start = 0
        for sequences, _, header_bytes in self._blocks:
            if sequence < first + sequences:
                break
            first, start = first + sequences, start + header_bytes
        lengths = self._header_lengths.read(first, sequence - first + 1, np.int32)
        start += int(lengths[:-1].sum())
        return self._headers.read(start, int(lengths[-1]), np.uint8).tobytes().decode("utf-8", "replace")

    def places(self, later: np.ndarray) -> np.ndarray:
        """Where `write` lays each sequence down, by its place in the input: int64 [sequences]."""
        lengths = self._lengths.read(0, self.sequences, np.int32)
        places = np.empty(len(lengths), np.int64)
        places[np.lexsort((lengths, later))] = np.arange(len(lengths))
        return places

    def residues_of(self, chosen: np.ndarray) -> int:
        """Residues of some sequences: bool [sequences], in the order of the input."""
        return int(self._lengths.read(0, self.sequences, np.int32)[chosen].sum(dtype=np.int64))

    def write(self, threads: int, later: np.ndarray | None = None) -> dict[str, str]:
        """Write residues, offsets, lengths, headers and header index in order of length, and drop the spool.

        Args:
            threads: with more than one, sequences and headers are written at the same time.
            later: bool [sequences] in the order of the input: those that come behind all others, in order of
                length as well.

        Returns:
            SHA-256 of each part, in hexadecimal.

        Raises:
            OSError: the disk is full; the error names the part.
        """
        self._slots, self._slot_headers = self._counts, self._header_bytes
        if later is not None:
            self._part(later)
        with ThreadPoolExecutor(min(threads, 2)) as pool:
            try:
                futures = [pool.submit(self._write_sequences), pool.submit(self._write_headers)]
                checksums = futures[0].result() | futures[1].result()
            except BaseException:
                self._stopped.set()
                raise
        for spool in (self._residues, self._lengths, self._headers, self._header_lengths, self._id_hashes):
            spool.drop()
        return checksums

    def _part(self, later: np.ndarray) -> None:
        """Count sequences and header bytes of the two parts apart: those of the later ones behind the others.

        From then on the key of a later sequence is not its length but that and the number of lengths.
        """
        self._later, size = later, 2 * len(self._counts)
        self._slots, self._slot_headers = np.zeros(size, np.int64), np.zeros(size, np.int64)
        first = 0
        for sequences, _, _ in self._blocks:
            keys = self._keys(first, sequences)
            self._slots += np.bincount(keys, minlength=size)
            weights = self._header_lengths.read(first, sequences, np.int32)
            self._slot_headers += np.bincount(keys, weights, size).astype(np.int64)
            first += sequences

    def _keys(self, first: int, count: int) -> np.ndarray:
        """What sequences are sorted by: their lengths, and behind all lengths those of later ones."""
        lengths = self._lengths.read(first, count, np.int32)
        if self._later is None:
            return lengths
        return lengths + len(self._counts) * self._later[first : first + count]

    def _write_sequences(self) -> dict[str, str]:
        keys = np.flatnonzero(self._slots)
        counts, lengths = self._slots[keys], keys % len(self._counts)
        with _Mapped(self._folder / LENGTHS, 4 * self.sequences) as part:
            out, first = part.array.view(np.int32), 0
            for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
                out[first : first + count] = length
                first += count
                part.wrote(4 * count)
        per_length = counts * (-(-lengths // _ALIGNMENT) * _ALIGNMENT)
        with (
            _Mapped(self._folder / RESIDUES, int(per_length.sum())) as part,
            _Mapped(self._folder / OFFSETS, 8 * self.sequences) as places,
        ):
            sizes = [residues for _, residues, _ in self._blocks]
            self._lay_down(self._residues, sizes, self._lengths, per_length, _ALIGNMENT, part, places)
        return {name: self._checksum(name) for name in (LENGTHS, RESIDUES, OFFSETS)}

    def _write_headers(self) -> dict[str, str]:
        per_length = self._slot_headers[np.flatnonzero(self._slots)]
        total = int(per_length.sum())
        with (
            _Mapped(self._folder / HEADERS, total) as part,
            _Mapped(self._folder / HEADER_INDEX, 8 * (self.sequences + 1)) as places,
        ):
            sizes = [header_bytes for _, _, header_bytes in self._blocks]
            self._lay_down(self._headers, sizes, self._header_lengths, per_length, 1, part, places)
            places.array.view(np.int64)[-1] = total
        return {name: self._checksum(name) for name in (HEADERS, HEADER_INDEX)}

    def _lay_down(
        self,
        items: "_Spool",
        block_bytes: list[int],
        item_sizes: "_Spool",
        bytes_per_length: np.ndarray,
        alignment: int,
        part: "_Mapped",
        places: "_Mapped",
    ) -> None:
        """Copy spooled items to `part` by their sequences' lengths, and where they begin to `places`."""
        keys = np.flatnonzero(self._slots)
        slot_of_key = np.zeros(len(self._slots), np.int32)
        slot_of_key[keys] = np.arange(len(keys))
        next_rank = np.cumsum(self._slots[keys]) - self._slots[keys]
        next_place = np.cumsum(bytes_per_length) - bytes_per_length
        sequence = position = 0
        for (in_block, _, _), size in zip(self._blocks, block_bytes, strict=True):
            if self._stopped.is_set():
                return
            _copy_items(
                items.read(position, size, np.uint8),
                item_sizes.read(sequence, in_block, np.int32),
                slot_of_key[self._keys(sequence, in_block)],
                next_rank,
                next_place,
                alignment,
                part.array,
                places.array.view(np.int64),
            )
            position += size
            sequence += in_block
            part.wrote(size)
            places.wrote(8 * in_block)

    def _checksum(self, name: str) -> str:
        digest = hashlib.sha256()
        with (self._folder / name).open("rb") as stream:
            while (piece := stream.read(_HASH_PIECE)) and not self._stopped.is_set():
                digest.update(piece)
        return digest.hexdigest()


class _Spool:
    """A temporary file, written from front to back and read from anywhere, by several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("wb+", buffering=0)

    def append(self, array: np.ndarray) -> None:
        left = np.ascontiguousarray(array).view(np.uint8).data
        try:
            while left:
                left = left[self._stream.write(left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise

    def read(self, first: int, count: int, dtype: type) -> np.ndarray:
        """`count` items from item `first` on."""
        data: np.ndarray = np.empty(count, dtype)
        left, position = data.view(np.uint8).data, first * data.itemsize
        while left and (got := os.preadv(self._stream.fileno(), [left], position)):
            left, position = left[got:], position + got
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
        self._written = 0
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

    def __enter__(self) -> "_Mapped":
        return self

    def __exit__(self, *exception: object) -> None:
        # the mapping itself ends when the last array on it does
        self._let_go()
        self.array = np.empty(0, np.uint8)
        self._map = None

    def wrote(self, count: int) -> None:
        """Take note of bytes written; now and then their pages go back to the system, which stores them."""
        self._written += count
        if self._written >= _LET_GO_EVERY:
            self._let_go()

    def _let_go(self) -> None:
        self._written = 0
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


def _grown(counts: np.ndarray, size: int) -> np.ndarray:
    return counts if len(counts) == size else np.append(counts, np.zeros(size - len(counts), np.int64))


@kernel
def _copy_items(  # type: ignore[no-untyped-def]
    items, sizes, slots, next_rank, next_place, alignment, out, out_places
):
    """Copy each item of a block to the next free place of its slot, padded to the alignment."""
    position = np.int64(0)
    for item in range(len(sizes)):
        slot, size = slots[item], np.int64(sizes[item])
        start = next_place[slot]
        padded = (size + alignment - 1) // alignment * alignment
        next_place[slot] += padded
        # indices into slices of their own cannot be negative, which lets the loop be vectorised
        source, target = items[position : position + size], out[start : start + padded]
        for place in range(size):
            target[place] = source[place]
        for place in range(size, padded):
            target[place] = alphabet.PAD
        position += size
        out_places[next_rank[slot]] = start
        next_rank[slot] += 1
