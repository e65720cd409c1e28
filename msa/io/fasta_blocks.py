"""The fast FASTA reader, for target databases: large blocks of whole records, parsed by a compiled kernel.

It tolerates more than `msa.io.fasta`, and counts everything that it changes or drops; docs/databases.md
lists the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from msa import alphabet
from msa.base.cpu_kernels.jit import kernel
from msa.base.errors import InputError
from msa.io.fasta import invalid_residue_reason, missing_header_reason

# a hundred times the length of the longest known proteins (titins, about 40,000 residues)
MAX_RECORD_BYTES = 4 << 20

_LOWER, _WHITESPACE, _GAP, _STOP, _INVALID = 32, 64, 65, 66, 255
_CLASS = np.full(256, _INVALID, np.uint8)
for _code, _letter in enumerate(alphabet.LETTERS):
    _CLASS[ord(_letter)] = _code
    _CLASS[ord(_letter.lower())] = _code | _LOWER
_CLASS[list(b" \t\r\n\v\f")] = _WHITESPACE
_CLASS[list(b"-.")] = _GAP
_CLASS[ord("*")] = _STOP
# of nucleic acids: other letters are invalid
_NUCLEOTIDE_CLASS = np.where(_CLASS < _WHITESPACE, np.uint8(_INVALID), _CLASS)
for _letter in alphabet.LETTERS:
    _base = _letter.translate(alphabet.TO_NUCLEOTIDES)
    if _base in alphabet.NUCLEOTIDES + alphabet.UNKNOWN_NUCLEOTIDE:
        _NUCLEOTIDE_CLASS[ord(_letter)] = _CLASS[ord(_base)]
        _NUCLEOTIDE_CLASS[ord(_letter.lower())] = _CLASS[ord(_base)] | _LOWER

# counters of the kernel, in the order of its array
ODDITIES = ("empty_sequences", "lower_case_letters", "gap_characters", "end_stops", "inner_stops")
_EMPTY, _LOWER_CASE, _GAPS, _END_STOPS, _INNER_STOPS = range(len(ODDITIES))


@dataclass(frozen=True)
class FastaBlock:
    """A block of consecutive whole records of one file, as raw bytes.

    Attributes:
        name: the file; `-` is standard input.
        first_line: 1-based line of the first byte.
        data: the bytes; the first is `>`.
    """

    name: str
    first_line: int
    data: bytes


@dataclass(frozen=True)
class ParsedBlock:
    """The non-empty sequences of a block.

    Attributes:
        residues: uint8, the codes of all sequences, concatenated.
        lengths: int32 [sequences].
        headers: uint8, all headers, concatenated, without `>`, surrounding whitespace and control characters.
        header_lengths: int32 [sequences].
        id_hashes: uint64 [sequences], a hash of each header's first word.
        oddities: int64 [len(ODDITIES)], number of occurrences of each.
    """

    residues: np.ndarray
    lengths: np.ndarray
    headers: np.ndarray
    header_lengths: np.ndarray
    id_hashes: np.ndarray
    oddities: np.ndarray


def read_blocks(stream: BinaryIO, name: str, size: int) -> Iterator[FastaBlock]:
    """Cut a FASTA stream into blocks of whole records.

    Args:
        stream: decompressed content.
        name: file name for errors.
        size: bytes to read at a time; a block has about this size, unless its only record is larger.

    Raises:
        InputError: an empty file, text before the first header, or a record larger than MAX_RECORD_BYTES.
    """
    line, rest = _first_header(stream, name)
    while data := stream.read(size):
        joined = rest + data
        # the only header in `rest` is at its start; the next one may begin at its last byte
        cut = joined.rfind(b"\n>", len(rest) - 1) + 1
        if cut == 0 and len(joined) > MAX_RECORD_BYTES:
            reason = f"a record of more than {MAX_RECORD_BYTES >> 20} MiB is not a protein"
            raise InputError(reason, name, line)
        if cut:
            yield FastaBlock(name, line, joined[:cut])
            line += joined.count(b"\n", 0, cut)
        rest = joined[cut:]
    yield FastaBlock(name, line, rest)


def _first_header(stream: BinaryIO, name: str) -> tuple[int, bytes]:
    """Return the number and the bytes of the first non-blank line, which must be a header."""
    number = 0
    while line := stream.readline(MAX_RECORD_BYTES):
        number += 1
        if line.startswith(b">"):
            return number, line
        if line.strip():
            raise InputError(missing_header_reason(line.strip()), name, number)
    raise InputError("empty file", name)


def parse_block(block: FastaBlock, nucleotides: bool = False) -> ParsedBlock:
    """Parse the records of a block.

    Args:
        block: the block.
        nucleotides: accept only letters of nucleic acids; see `msa.alphabet.TO_NUCLEOTIDES`.

    Raises:
        InputError: a character that is not a letter, or a NUL byte in a header; names line and column.
    """
    data = np.frombuffer(block.data, np.uint8)
    max_records = block.data.count(b"\n>") + 1
    residues, headers = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
    lengths, header_lengths = np.empty(max_records, np.int32), np.empty(max_records, np.int32)
    id_hashes = np.empty(max_records, np.uint64)
    oddities = np.zeros(len(ODDITIES), np.int64)
    classes = _NUCLEOTIDE_CLASS if nucleotides else _CLASS
    sequences, residue_end, header_end, invalid = _parse(
        data, classes, residues, lengths, headers, header_lengths, id_hashes, oddities
    )
    if invalid >= 0:
        raise _error_at(block, invalid, nucleotides)
    return ParsedBlock(
        residues[:residue_end],
        lengths[:sequences],
        headers[:header_end],
        header_lengths[:sequences],
        id_hashes[:sequences],
        oddities,
    )


def _error_at(block: FastaBlock, offset: int, nucleotides: bool) -> InputError:
    """Return the error for the byte at `offset`."""
    start = block.data.rfind(b"\n", 0, offset) + 1
    line = block.first_line + block.data.count(b"\n", 0, offset)
    in_header = block.data[start : start + 1] == b">"
    reason = invalid_residue_reason(block.data[offset], nucleotides)
    reason = "not a FASTA file: binary data" if in_header else reason
    return InputError(reason, block.name, line, offset - start + 1)


@kernel
def is_whitespace(byte):  # type: ignore[no-untyped-def]
    """Return whether a byte is ASCII whitespace."""
    return byte == 32 or 9 <= byte <= 13


@kernel
def clean_byte(byte):  # type: ignore[no-untyped-def]
    """Return a byte of a header, or the replacement of a control character; see `msa.io.fasta.clean_header`.

    NCBI separates merged headers by the byte 1.
    """
    if byte == 1 or 10 <= byte <= 13:
        return np.uint8(32)
    return np.uint8(95) if byte != 9 and (byte < 32 or byte == 127) else np.uint8(byte)


@kernel
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    """Return the 64-bit FNV-1a hash of data[start:end], finalised as in MurmurHash3 to mix the low bits."""
    value = np.uint64(0xCBF29CE484222325)
    for offset in range(start, end):
        value = (value ^ np.uint64(data[offset])) * np.uint64(0x100000001B3)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@kernel
def _find_header(data, offset):  # type: ignore[no-untyped-def]
    """Return the start and end of a header, and the offset of its line end, or of a NUL byte in it."""
    size = len(data)
    while offset < size and data[offset] != 10 and is_whitespace(data[offset]):
        offset += 1
    start = offset
    while offset < size and data[offset] != 10 and data[offset] != 0:
        offset += 1
    stop = offset
    while stop > start and is_whitespace(data[stop - 1]):
        stop -= 1
    return start, stop, offset


@kernel
def _parse(  # type: ignore[no-untyped-def]
    data, classes, residues, lengths, headers, header_lengths, id_hashes, oddities
):
    """Fill the output arrays from `data`, which starts with a header.

    Returns:
        (sequences, residues, header bytes, offset of the first invalid byte or -1).
    """
    size = len(data)
    sequences = residue_end = header_end = offset = 0
    while offset < size:
        # data[offset] is a '>' at the start of a line
        header_start, header_stop, offset = _find_header(data, offset + 1)
        if offset < size and data[offset] == 0:
            return sequences, residue_end, header_end, offset
        offset += 1
        first = residue_end
        stops = 0
        line_start = True
        while offset < size:
            byte = data[offset]
            kind = classes[byte]
            if kind < 64:
                oddities[_INNER_STOPS] += stops
                while stops > 0:
                    residues[residue_end] = alphabet.X
                    residue_end += 1
                    stops -= 1
                residues[residue_end] = kind & 31
                residue_end += 1
                oddities[_LOWER_CASE] += kind >> 5
            elif kind == _GAP:
                oddities[_GAPS] += 1
            elif kind == _STOP:
                stops += 1
            elif kind == _INVALID:
                if line_start and byte == 62:
                    break
                return sequences, residue_end, header_end, offset
            line_start = byte == 10
            offset += 1
        oddities[_END_STOPS] += stops

        if residue_end == first:
            oddities[_EMPTY] += 1
            continue
        header_lengths[sequences] = header_stop - header_start
        word_start = header_end
        for i in range(header_start, header_stop):
            headers[header_end] = clean_byte(data[i])
            header_end += 1
        word_stop = word_start
        while word_stop < header_end and not is_whitespace(headers[word_stop]):
            word_stop += 1
        id_hashes[sequences] = hash_bytes(headers, word_start, word_stop)
        lengths[sequences] = residue_end - first
        sequences += 1
    return sequences, residue_end, header_end, -1
