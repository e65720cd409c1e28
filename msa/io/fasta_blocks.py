"""FASTA in big blocks of whole records, parsed by a compiled kernel: the way into a target database.

More forgiving than msa/io/fasta.py, because databases hold what their makers put there, but nothing is
changed or dropped without being counted; docs/databases.md lists what happens to each oddity.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from msa import alphabet
from msa.errors import InputError
from msa.io.fasta import UTF8_MARK, bad_character, text_before_header
from msa.jit import kernel

# the longest known proteins (titins, some 40,000 residues) are a hundred times shorter
LONGEST_RECORD = 4 << 20

_LOWER, _BLANK, _GAP, _STOP, _INVALID = 32, 64, 65, 66, 255
_CLASS = np.full(256, _INVALID, np.uint8)
for _code, _letter in enumerate(alphabet.LETTERS):
    _CLASS[ord(_letter)] = _code
    _CLASS[ord(_letter.lower())] = _code | _LOWER
_CLASS[list(b" \t\r\n\v\f")] = _BLANK
_CLASS[list(b"-.")] = _GAP
_CLASS[ord("*")] = _STOP

# what the kernel counts, in the order of its array of counts
ODDITIES = ("empty_sequences", "lower_case_letters", "gap_characters", "end_stops", "inner_stops")
_EMPTY, _LOWER_CASE, _GAPS, _END_STOPS, _INNER_STOPS = range(len(ODDITIES))


@dataclass(frozen=True)
class Block:
    """Some whole records of one file, as they stand there.

    Attributes:
        name: the file; `-` is standard input.
        first_line: 1-based line of the first byte.
        data: the bytes; the first is `>`.
    """

    name: str
    first_line: int
    data: bytes


@dataclass(frozen=True)
class Records:
    """What a block holds, without its empty sequences.

    Attributes:
        residues: uint8, the codes of all sequences one after another.
        lengths: int32 [sequences].
        headers: uint8, the headers one after another, without `>` and surrounding blanks.
        header_lengths: int32 [sequences].
        id_hashes: uint64 [sequences], a hash of each header's first word.
        oddities: int64 [len(ODDITIES)], how often each occurred.
    """

    residues: np.ndarray
    lengths: np.ndarray
    headers: np.ndarray
    header_lengths: np.ndarray
    id_hashes: np.ndarray
    oddities: np.ndarray


def read_blocks(stream: BinaryIO, name: str, size: int) -> Iterator[Block]:
    """Cut a FASTA stream into blocks of whole records.

    Args:
        stream: decompressed content.
        name: what errors call it.
        size: bytes to read at a time; blocks are about as large, or as large as their only record.

    Raises:
        InputError: an empty file, text before the first header, a record of more than LONGEST_RECORD bytes.
    """
    line, rest = _first_header(stream, name)
    while piece := stream.read(size):
        joined = rest + piece
        # `rest` has no header but at its start; one more may begin where the two meet
        cut = joined.rfind(b"\n>", len(rest) - 1) + 1
        if cut == 0 and len(joined) > LONGEST_RECORD:
            raise InputError(f"a record of more than {LONGEST_RECORD >> 20} MiB is no protein", name, line)
        if cut:
            yield Block(name, line, joined[:cut])
            line += joined.count(b"\n", 0, cut)
        rest = joined[cut:]
    yield Block(name, line, rest)


def _first_header(stream: BinaryIO, name: str) -> tuple[int, bytes]:
    """Number and bytes of the first line that is not blank, which must be a header."""
    number = 0
    while line := stream.readline(LONGEST_RECORD):
        number += 1
        if number == 1:
            line = line.removeprefix(UTF8_MARK)
        if line.startswith(b">"):
            return number, line
        if line.strip():
            raise InputError(text_before_header(line.strip()), name, number)
    raise InputError("empty file", name)


def parse_block(block: Block) -> Records:
    """Parse whole records.

    Raises:
        InputError: a character that is no letter, or a NUL byte in a header; names line and column.
    """
    data = np.frombuffer(block.data, np.uint8)
    most = block.data.count(b"\n>") + 1
    residues, headers = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
    lengths, header_lengths = np.empty(most, np.int32), np.empty(most, np.int32)
    id_hashes = np.empty(most, np.uint64)
    oddities = np.zeros(len(ODDITIES), np.int64)
    sequences, residue_end, header_end, bad = _parse(
        data, _CLASS, residues, lengths, headers, header_lengths, id_hashes, oddities
    )
    if bad >= 0:
        raise _error_at(block, bad)
    return Records(
        residues[:residue_end],
        lengths[:sequences],
        headers[:header_end],
        header_lengths[:sequences],
        id_hashes[:sequences],
        oddities,
    )


def _error_at(block: Block, position: int) -> InputError:
    """The error of the byte at `position`."""
    start = block.data.rfind(b"\n", 0, position) + 1
    line = block.first_line + block.data.count(b"\n", 0, position)
    in_header = block.data[start : start + 1] == b">"
    reason = "not a FASTA file: binary data" if in_header else bad_character(block.data[position])
    return InputError(reason, block.name, line, position - start + 1)


@kernel
def is_blank(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is a blank, a tab or the end of a line."""
    return byte == 32 or 9 <= byte <= 13


@kernel
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    """64-bit FNV-1a with the finalizer of MurmurHash3, whose low bits FNV lacks."""
    value = np.uint64(0xCBF29CE484222325)
    for position in range(start, end):
        value = (value ^ np.uint64(data[position])) * np.uint64(0x100000001B3)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@kernel
def _parse(  # type: ignore[no-untyped-def]
    data, classes, residues, lengths, headers, header_lengths, id_hashes, oddities
):
    """Fill the output arrays from `data`, which starts with a header.

    Returns:
        (sequences, residues, header bytes, position of the first bad byte or -1).
    """
    size = len(data)
    sequences = residue_end = header_end = position = 0
    while position < size:
        # here stands a '>' at the start of a line
        position += 1
        while position < size and data[position] != 10 and is_blank(data[position]):
            position += 1
        header_start = position
        while position < size and data[position] != 10:
            if data[position] == 0:
                return sequences, residue_end, header_end, position
            position += 1
        header_stop = position
        while header_stop > header_start and is_blank(data[header_stop - 1]):
            header_stop -= 1
        position += 1

        first = residue_end
        stops = 0
        line_start = True
        while position < size:
            byte = data[position]
            found = classes[byte]
            if found < 64:
                oddities[_INNER_STOPS] += stops
                while stops > 0:
                    residues[residue_end] = alphabet.X
                    residue_end += 1
                    stops -= 1
                residues[residue_end] = found & 31
                residue_end += 1
                oddities[_LOWER_CASE] += found >> 5
            elif found == _GAP:
                oddities[_GAPS] += 1
            elif found == _STOP:
                stops += 1
            elif found == _INVALID:
                if line_start and byte == 62:
                    break
                return sequences, residue_end, header_end, position
            line_start = byte == 10
            position += 1
        oddities[_END_STOPS] += stops

        if residue_end == first:
            oddities[_EMPTY] += 1
            continue
        word_stop = header_start
        while word_stop < header_stop and not is_blank(data[word_stop]):
            word_stop += 1
        id_hashes[sequences] = hash_bytes(data, header_start, word_stop)
        source, target = data[header_start:header_stop], headers[header_end:]
        for place in range(len(source)):
            target[place] = source[place]
        header_end += len(source)
        header_lengths[sequences] = header_stop - header_start
        lengths[sequences] = residue_end - first
        sequences += 1
    return sequences, residue_end, header_end, -1
