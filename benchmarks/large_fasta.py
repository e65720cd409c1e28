"""A stream of many different sequences, made from a small file: repeated, mutated, with ids of their own.

In each copy of the file, every tenth residue or so is replaced by a random one, and every fourth sequence is
cut in two. A copy depends on its number only, so the stream does not depend on the number of processes.

`write_database` writes mutated copies of a small database as a database, without FASTA, spool and sorting.
"""

import hashlib
import mmap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from msa.alphabet import MASK_BIT, STANDARD
from msa.base.jit import kernel
from msa.database.database import TargetDatabase
from msa.database.integrity import SMALL_FILE_BYTES
from msa.database.manifest import (
    FILES,
    HEADER_INDEX,
    HEADERS,
    LENGTHS,
    OFFSETS,
    RESIDUES,
    DatabaseFile,
    DatabaseManifest,
    write_manifest,
)
from msa.io.compression import read_bytes

_DIGITS = 6
_CUT_EVERY = 4


@dataclass(frozen=True)
class Template:
    """The text of one copy.

    Args:
        text: uint8, FASTA with a line for each sequence.
        residues: int64, positions of the residues in `text`.
        numbers: int64 [sequences], positions of the copy's number in each header.
    """

    text: np.ndarray
    residues: np.ndarray
    numbers: np.ndarray


@cache
def template(path: Path) -> Template:
    """Read a FASTA file, and cut every fourth sequence in two; ids begin with the number of the copy."""
    lines: list[bytes] = []
    for number, record in enumerate(read_bytes(path).removeprefix(b">").split(b"\n>")):
        header, _, rest = record.partition(b"\n")
        sequence = rest.replace(b"\n", b"")
        half = len(sequence) // 2 if number % _CUT_EVERY == 0 and len(sequence) > 1 else 0
        for part in filter(None, (sequence[:half], sequence[half:])):
            lines += [b">%s.%d %s" % (b"0" * _DIGITS, len(lines) // 2, header), part]
    text = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    ends = np.cumsum([len(line) + 1 for line in lines])
    starts = np.append(0, ends[:-1])
    in_sequence = np.repeat(np.arange(len(lines)) % 2, np.diff(np.append(starts, ends[-1]))).astype(bool)
    in_sequence[ends - 1] = False
    return Template(text, np.flatnonzero(in_sequence), starts[::2] + 1)


def copy_of(path: Path, number: int, mutated: float) -> bytes:
    """Return one copy as FASTA; see the module's documentation."""
    source = template(path)
    rng = np.random.default_rng(number)
    text = source.text.copy()
    letters = np.frombuffer(STANDARD.encode(), np.uint8)
    step = max(1, round(1 / mutated))
    changed = source.residues[rng.integers(step) :: step]
    text[changed] = letters[rng.integers(0, len(letters), len(changed), np.uint8)]
    for k, digit in enumerate(b"%0*d" % (_DIGITS, number)):
        text[source.numbers + k] = digit
    return text.tobytes()


def number_of_copies(path: Path, residues: float) -> int:
    """Return the number of copies that have about the given number of residues together, at least one."""
    return max(1, round(residues / len(template(path).residues)))


def copies(path: Path, residues: float, mutated: float, processes: int) -> Iterator[bytes]:
    """Yield the copies, in the order of their numbers."""
    count = number_of_copies(path, residues)
    with ProcessPoolExecutor(processes) as pool:
        numbers = iter(range(count))
        pending = [pool.submit(copy_of, path, number, mutated) for number in islice(numbers, 2 * processes)]
        while pending:
            yield pending.pop(0).result()
            pending += [pool.submit(copy_of, path, number, mutated) for number in islice(numbers, 1)]


LEAST_MUTATED, MOST_MUTATED = 0.1, 0.75
"""Shares of residues that are replaced in the first and in the last copy of a sequence."""
MAX_LENGTH = 700
"""Residues of the longest sequence that is copied, so that the mean length is near UniRef50's."""
_HEADER = 16


def write_database(source: TargetDatabase, sequences: int, folder: Path, threads: int) -> TargetDatabase:
    """Write a database of mutated copies of the sequences of another one, and open it.

    `createdb --verify` refuses it, because large files have no checksums.

    Copies of a sequence follow each other, so the lengths stay sorted; masks are those of the original.

    Args:
        source: the other database; its longest sequences are left out.
        sequences: about how many to write.
        folder: the new database.
        threads: that write.
    """
    arrays = source.arrays
    originals = int(np.searchsorted(arrays.lengths, MAX_LENGTH, "right"))
    number = max(1, round(sequences / originals))
    lengths = arrays.lengths[:originals].astype(np.int64)
    padded = (lengths + 3) & ~3
    starts = np.append(0, np.cumsum(padded * number))
    total = number * originals
    folder.mkdir(parents=True)
    files = {
        RESIDUES: int(starts[-1]), OFFSETS: 8 * total, LENGTHS: 4 * total, HEADERS: _HEADER * total,
        HEADER_INDEX: 8 * (total + 1),
    }  # fmt: skip
    out = {name: _new_file(folder / name, size) for name, size in files.items()}
    out[LENGTHS].view(np.int32)[:] = np.repeat(arrays.lengths[:originals], number)
    offsets = out[OFFSETS].view(np.int64)
    offsets[0], offsets[1:] = 0, np.cumsum(np.repeat(padded, number)[:-1])
    out[HEADER_INDEX].view(np.int64)[:] = np.arange(total + 1) * _HEADER
    out[HEADERS][:] = ord("0")
    bounds = np.searchsorted(starts, np.linspace(0, starts[-1], 8 * threads + 1))
    with ThreadPoolExecutor(threads) as pool:
        spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        arguments = arrays.residues, arrays.offsets, lengths, starts, number, out[RESIDUES], out[HEADERS]
        masked = sum(pool.map(lambda span: _write_copies(*span, *arguments), spans))
        # opening compares those of small files only; others are named by how they were made
        made = f"{source.manifest.checksums} {sequences}".encode()
        unchecked = {name for name in (RESIDUES, HEADERS) if files[name] > SMALL_FILE_BYTES}
        content = {name: made if name in unchecked else out[name] for name in files}
        digests = dict(
            zip(files, pool.map(lambda name: hashlib.sha256(content[name]).hexdigest(), files), strict=True)
        )
    manifest = DatabaseManifest(
        sequences=total, residues=int(lengths.sum()) * number, masked_residues=masked,
        length_quantiles={}, duplicate_ids=0, oddities={}, masking=source.manifest.masking, inputs=[],
        built_by={"benchmark": "large_fasta.write_database"},
        files={name: DatabaseFile(files[name], digests[name]) for name in FILES},
    )  # fmt: skip
    write_manifest(folder, manifest)
    return TargetDatabase.open(folder)


def _new_file(path: Path, size: int) -> np.ndarray:
    """Return a new file of a size, mapped for writing."""
    with path.open("wb+") as stream:
        stream.truncate(size)
        return np.frombuffer(mmap.mmap(stream.fileno(), size), np.uint8)


@kernel
def _write_copies(first, end, residues, offsets, lengths, starts, number, out, headers):  # type: ignore[no-untyped-def]
    """Write the copies of sequences [first, end) and their headers; return the number of masked residues."""
    masked = 0
    state = np.uint64(first + 1) * np.uint64(0x9E3779B97F4A7C15)
    for i in range(first, end):
        length, padded = lengths[i], (lengths[i] + 3) & ~3
        for copy in range(number):
            share = LEAST_MUTATED + (MOST_MUTATED - LEAST_MUTATED) * copy / number
            limit = np.uint64(share * 65536)
            target = starts[i] + copy * padded
            for k in range(padded):
                code = residues[offsets[i] + k]
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                if k < length:
                    if (state & np.uint64(0xFFFF)) < limit:
                        code = np.uint8(
                            (code & MASK_BIT)
                            | np.uint8(
                                ((state >> np.uint64(16)) & np.uint64(0xFFFF)) * np.uint64(20)
                                >> np.uint64(16)
                            )
                        )
                    masked += (code & MASK_BIT) != 0
                out[target + k] = code
            rank, header = i * number + copy, (i * number + copy) * _HEADER
            headers[header] = ord("s")
            for k in range(_HEADER - 1, 0, -1):
                headers[header + k] = ord("0") + rank % 10
                rank //= 10
    return masked
