"""Sorting of sequences by length when neither they nor their index fit in memory.

A counting sort in two passes. The first pass writes sequences to temporary files (the spool) as they arrive
and counts, for each length, sequences and header bytes. These counts give the offset of every sequence in the
sorted files. The second pass reads the spool from start to end and writes each record at the next free offset
of its length. At any time it therefore writes to one page per length, a few thousand in all, whatever the
size of the database.
"""

import hashlib
import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from msa import alphabet
from msa.base.atomic import errors_name
from msa.base.cpu_kernels.jit import kernel
from msa.database.manifest import HEADER_INDEX, HEADERS, LENGTHS, OFFSETS, RESIDUES
from msa.io.fasta_blocks import ParsedBlock

# pages written through a mapping count as this process's memory until they are released
_RELEASE_PAGES_EVERY = 64 << 20
_MAX_IDS_IN_MEMORY = 1 << 24
_HASH_CHUNK_BYTES = 1 << 22
_ALIGNMENT = 4


class LengthSorter:
    """A collector of sequences in input order that writes the five files of a database.

    Args:
        folder: folder for the temporary files and the files of the database.
        max_ids_in_memory: id hashes (8 bytes each) to sort at a time when counting duplicates.
    """

    def __init__(self, folder: Path, max_ids_in_memory: int = _MAX_IDS_IN_MEMORY) -> None:
        self._folder, self._max_ids_in_memory = folder, max_ids_in_memory
        self._residues = _Spool(folder / "residues.spool")
        self._lengths = _Spool(folder / "lengths.spool")
        self._headers = _Spool(folder / "headers.spool")
        self._header_lengths = _Spool(folder / "header_lengths.spool")
        self._id_hashes = _Spool(folder / "id_hashes.spool")
        self._blocks: list[tuple[int, int, int]] = []  # sequences, residues, header bytes
        self._counts = np.zeros(1, np.int64)  # sequences of each length
        self._header_bytes = np.zeros(1, np.int64)  # header bytes of each length
        # the same for each sort key; see _keys
        self._key_counts, self._key_header_bytes = self._counts, self._header_bytes
        self._is_member: np.ndarray | None = None
        self._stopped = threading.Event()

    @property
    def sequences(self) -> int:
        """The number of sequences added."""
        return int(self._counts.sum())

    @property
    def residues(self) -> int:
        """The number of residues added."""
        return int(self._counts @ np.arange(len(self._counts)))

    def add(self, block: ParsedBlock) -> None:
        """Write the next sequences to the spool.

        Raises:
            OSError: the disk is full; the error names the spool file.
        """
        if len(block.lengths) == 0:
            return
        size = max(len(self._counts), int(block.lengths.max()) + 1)
        self._counts = _extend(self._counts, size)
        self._header_bytes = _extend(self._header_bytes, size)
        self._counts += np.bincount(block.lengths, minlength=size)
        header_bytes = np.bincount(block.lengths, weights=block.header_lengths, minlength=size)
        self._header_bytes += header_bytes.astype(np.int64)
        self._residues.append(block.residues)
        self._lengths.append(block.lengths)
        self._headers.append(block.headers)
        self._header_lengths.append(block.header_lengths)
        self._id_hashes.append(block.id_hashes)
        self._blocks.append((len(block.lengths), len(block.residues), len(block.headers)))

    def quantile(self, fraction: float) -> int:
        """Return the smallest length that at least `fraction` of the sequences do not exceed."""
        cumulative = np.cumsum(self._counts)
        return int(np.searchsorted(cumulative, max(1, np.ceil(fraction * cumulative[-1]))))

    def duplicate_ids(self) -> int:
        """Return the number of sequences with the id of an earlier one, compared by 64-bit hashes."""
        rounds = -(-self.sequences // self._max_ids_in_memory)
        duplicates = 0
        for number in range(rounds):
            selected, first = [], 0
            for sequences, _, _ in self._blocks:
                hashes = self._id_hashes.read(first, sequences, np.uint64)
                selected.append(hashes[hashes % np.uint64(rounds) == number] if rounds > 1 else hashes)
                first += sequences
            hashes = np.sort(np.concatenate(selected))
            duplicates += int(np.count_nonzero(hashes[1:] == hashes[:-1]))
        return duplicates

    def header(self, sequence: int) -> str:
        """Return the header of a sequence, given its index in input order."""
        first = start = 0
        for sequences, _, header_bytes in self._blocks:
            if sequence < first + sequences:
                break
            first, start = first + sequences, start + header_bytes
        lengths = self._header_lengths.read(first, sequence - first + 1, np.int32)
        start += int(lengths[:-1].sum())
        return self._headers.read(start, int(lengths[-1]), np.uint8).tobytes().decode("utf-8", "replace")

    def ranks(self, is_member: np.ndarray) -> np.ndarray:
        """Return the index in the sorted database of each sequence in input order, int64 [sequences]."""
        lengths = self._lengths.read(0, self.sequences, np.int32)
        ranks = np.empty(len(lengths), np.int64)
        ranks[np.lexsort((lengths, is_member))] = np.arange(len(lengths))
        return ranks

    def residues_of(self, selected: np.ndarray) -> int:
        """Return the total residues of the selected sequences; bool [sequences] in input order."""
        return int(self._lengths.read(0, self.sequences, np.int32)[selected].sum(dtype=np.int64))

    def write(self, threads: int, is_member: np.ndarray | None = None) -> dict[str, str]:
        """Write residues, offsets, lengths, headers and header index, sorted by length, and delete the spool.

        Args:
            threads: with more than one, sequences and headers are written at the same time.
            is_member: bool [sequences] in input order: members of clusters that are not representatives. They
                follow all other sequences and are sorted by length as well.

        Returns:
            SHA-256 of each file, in hexadecimal.

        Raises:
            OSError: the disk is full; the error names the file.
        """
        self._key_counts, self._key_header_bytes = self._counts, self._header_bytes
        if is_member is not None:
            self._count_members(is_member)
        with ThreadPoolExecutor(min(threads, 2)) as pool:
            try:
                futures = [pool.submit(self._write_sequences), pool.submit(self._write_headers)]
                checksums = futures[0].result() | futures[1].result()
            except BaseException:
                self._stopped.set()
                raise
        for spool in (self._residues, self._lengths, self._headers, self._header_lengths, self._id_hashes):
            spool.delete()
        return checksums

    def _count_members(self, is_member: np.ndarray) -> None:
        """Count sequences and header bytes by key, with separate keys for members."""
        self._is_member, size = is_member, 2 * len(self._counts)
        self._key_counts, self._key_header_bytes = np.zeros(size, np.int64), np.zeros(size, np.int64)
        first = 0
        for sequences, _, _ in self._blocks:
            keys = self._keys(first, sequences)
            self._key_counts += np.bincount(keys, minlength=size)
            weights = self._header_lengths.read(first, sequences, np.int32)
            self._key_header_bytes += np.bincount(keys, weights, size).astype(np.int64)
            first += sequences

    def _keys(self, first: int, count: int) -> np.ndarray:
        """Return the sort keys of sequences [first, first + count): length, plus len(_counts) for members."""
        lengths = self._lengths.read(first, count, np.int32)
        if self._is_member is None:
            return lengths
        return lengths + len(self._counts) * self._is_member[first : first + count]

    def _write_sequences(self) -> dict[str, str]:
        keys = np.flatnonzero(self._key_counts)
        counts, lengths = self._key_counts[keys], keys % len(self._counts)
        with _MappedFile(self._folder / LENGTHS, 4 * self.sequences) as output:
            out, first = output.array.view(np.int32), 0
            for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
                out[first : first + count] = length
                first += count
                output.count_written(4 * count)
        bytes_per_key = counts * (-(-lengths // _ALIGNMENT) * _ALIGNMENT)
        with (
            _MappedFile(self._folder / RESIDUES, int(bytes_per_key.sum())) as output,
            _MappedFile(self._folder / OFFSETS, 8 * self.sequences) as offsets,
        ):
            sizes = [residues for _, residues, _ in self._blocks]
            self._distribute(self._residues, sizes, self._lengths, bytes_per_key, _ALIGNMENT, output, offsets)
        return {name: self._checksum(name) for name in (LENGTHS, RESIDUES, OFFSETS)}

    def _write_headers(self) -> dict[str, str]:
        bytes_per_key = self._key_header_bytes[np.flatnonzero(self._key_counts)]
        total = int(bytes_per_key.sum())
        with (
            _MappedFile(self._folder / HEADERS, total) as output,
            _MappedFile(self._folder / HEADER_INDEX, 8 * (self.sequences + 1)) as offsets,
        ):
            sizes = [header_bytes for _, _, header_bytes in self._blocks]
            self._distribute(self._headers, sizes, self._header_lengths, bytes_per_key, 1, output, offsets)
            offsets.array.view(np.int64)[-1] = total
        return {name: self._checksum(name) for name in (HEADERS, HEADER_INDEX)}

    def _distribute(
        self,
        items: "_Spool",
        block_bytes: list[int],
        item_sizes: "_Spool",
        bytes_per_key: np.ndarray,
        alignment: int,
        output: "_MappedFile",
        offsets: "_MappedFile",
    ) -> None:
        """Copy spooled items to `output`, sorted by key; write the offset of each item to `offsets`."""
        keys = np.flatnonzero(self._key_counts)
        slot_of_key = np.zeros(len(self._key_counts), np.int32)
        slot_of_key[keys] = np.arange(len(keys))
        next_rank = np.cumsum(self._key_counts[keys]) - self._key_counts[keys]
        next_offset = np.cumsum(bytes_per_key) - bytes_per_key
        sequence = position = 0
        for (sequences, _, _), size in zip(self._blocks, block_bytes, strict=True):
            if self._stopped.is_set():
                return
            _copy_items(
                items.read(position, size, np.uint8),
                item_sizes.read(sequence, sequences, np.int32),
                slot_of_key[self._keys(sequence, sequences)],
                next_rank,
                next_offset,
                alignment,
                output.array,
                offsets.array.view(np.int64),
            )
            position += size
            sequence += sequences
            output.count_written(size)
            offsets.count_written(8 * sequences)

    def _checksum(self, name: str) -> str:
        digest = hashlib.sha256()
        with (self._folder / name).open("rb") as stream:
            while (chunk := stream.read(_HASH_CHUNK_BYTES)) and not self._stopped.is_set():
                digest.update(chunk)
        return digest.hexdigest()


class _Spool:
    """A temporary file, first appended to, then read at any offset by several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("wb+", buffering=0)

    def append(self, array: np.ndarray) -> None:
        remaining = np.ascontiguousarray(array).view(np.uint8).data
        with errors_name(self._path):
            while remaining:
                remaining = remaining[self._stream.write(remaining) :]

    def read(self, first: int, count: int, dtype: type) -> np.ndarray:
        """Read `count` items, starting with item `first`."""
        data: np.ndarray = np.empty(count, dtype)
        remaining, offset = data.view(np.uint8).data, first * data.itemsize
        while remaining and (size := os.preadv(self._stream.fileno(), [remaining], offset)):
            remaining, offset = remaining[size:], offset + size
        return data

    def delete(self) -> None:
        self._stream.close()
        self._path.unlink(missing_ok=True)


class _MappedFile:
    """A new file of known size, mapped for writing, with its disk space allocated in advance.

    Without the allocation a full disk would raise a signal (SIGBUS) that kills the process.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.array = np.empty(0, np.uint8)
        self._map: mmap.mmap | None = None
        self._written = 0
        with errors_name(path), path.open("wb+") as stream:
            if size:
                os.posix_fallocate(stream.fileno(), 0, size)
                self._map = mmap.mmap(stream.fileno(), size)
                self.array = np.frombuffer(self._map, np.uint8)

    def __enter__(self) -> "_MappedFile":
        return self

    def __exit__(self, *exception: object) -> None:
        # the file is unmapped when the last array that refers to the mapping is freed
        self._release_pages()
        self.array = np.empty(0, np.uint8)
        self._map = None

    def count_written(self, count: int) -> None:
        """Count bytes written; release their pages to the system, which saves them, every 64 MiB."""
        self._written += count
        if self._written >= _RELEASE_PAGES_EVERY:
            self._release_pages()

    def _release_pages(self) -> None:
        self._written = 0
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


def _extend(counts: np.ndarray, size: int) -> np.ndarray:
    """Return the counts with zeros appended up to `size`."""
    return counts if len(counts) == size else np.append(counts, np.zeros(size - len(counts), np.int64))


@kernel
def _copy_items(  # type: ignore[no-untyped-def]
    items, sizes, slots, next_rank, next_offset, alignment, out, out_offsets
):
    """Copy each item of a block to the next free offset of its slot, padded to the alignment."""
    position = np.int64(0)
    for item in range(len(sizes)):
        slot, size = slots[item], np.int64(sizes[item])
        start = next_offset[slot]
        padded = (size + alignment - 1) // alignment * alignment
        next_offset[slot] += padded
        # indices into slices cannot be negative, so the compiler can vectorise the loops
        source, target = items[position : position + size], out[start : start + padded]
        for i in range(size):
            target[i] = source[i]
        for i in range(size, padded):
            target[i] = alphabet.PAD
        position += size
        out_offsets[next_rank[slot]] = start
        next_rank[slot] += 1
