"""The strict FASTA reader, for queries: anything unusual is an error that names its line and column.

Target databases use `msa.io.fasta_blocks`, which is more tolerant and much faster.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from msa.errors import InputError
from msa.io.compression import open_input

UTF8_BOM = b"\xef\xbb\xbf"
SUPPORTED = "only one protein chain is supported, without ligands, nucleic acids or modifications"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CHAIN_BREAK = b":"
_WHITESPACE = b" \t\r\n\v\f"


@dataclass(frozen=True)
class FastaRecord:
    """One sequence of a FASTA file.

    Attributes:
        header: header line without `>` and surrounding whitespace.
        sequence: residues, upper-case letters A-Z.
    """

    header: str
    sequence: str

    @property
    def id(self) -> str:
        """The first word of the header; empty if the header is."""
        return first_word(self.header)


@dataclass(frozen=True)
class UnsupportedRecord(FastaRecord):
    """A well-formed record that cannot be searched with or folded; other records of its file may be usable.

    Attributes:
        content: description of the content, such as "2 protein chains".
        path, line: location in the input.
    """

    content: str
    path: str
    line: int | None

    def error(self) -> InputError:
        """Return an error that explains why the record cannot be a query."""
        return InputError(f"{self.id!r} has {self.content}: {SUPPORTED}", self.path, self.line)


def first_word(header: str) -> str:
    """Return the id in a header: everything before the first whitespace."""
    return header.split(maxsplit=1)[0] if header else ""


def invalid_residue_reason(byte: int) -> str:
    """Return the error text for a byte that is not allowed in a sequence."""
    character = chr(byte)
    if character in "-.":
        return f"{character!r} is a gap: a query must not be aligned"
    if character == "*":
        return "'*' inside a sequence: a stop codon is allowed only at the end"
    shown = repr(character) if 32 < byte < 127 else f"byte {byte:#04x}"
    return f"{shown} is not a residue letter"


def missing_header_reason(line: bytes) -> str:
    """Return the error text for a file whose first non-blank line, `line`, is not a header."""
    if b"\0" in line or not line.decode("utf-8", "replace").isprintable():
        return "not a FASTA file: binary data"
    return "not a FASTA file: text before the first header line ('>')"


def read_fasta(path: str | os.PathLike[str]) -> Iterator[FastaRecord]:
    """Read the records of a FASTA file one by one.

    Lower case becomes upper case; whitespace, blank lines, a byte order mark and one `*` at the end of a
    sequence are dropped; compression is recognised by content.

    Args:
        path: the file; `-` is standard input.

    Yields:
        the records; an UnsupportedRecord for a complex, whose chains ColabFold joins with `:`.

    Raises:
        InputError: an empty file, text before the first header, binary data, a character that is not a
            letter, or a record without a sequence; names file, line and column.
        OSError: the file cannot be read.
    """
    with open_input(path) as stream:
        yield from read_records(stream, os.fspath(path))


def read_records(stream: BinaryIO, name: str) -> Iterator[FastaRecord]:
    """Read records from decompressed content, called `name` in errors; see `read_fasta`."""
    header: str | None = None
    header_line = 0
    pieces: list[bytes] = []
    stop: tuple[int, int] | None = None  # line and column of a '*' that may only end the sequence
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(UTF8_BOM)
        if line.startswith(b">"):
            if header is not None:
                yield _record(header, pieces, name, header_line)
            header, header_line, pieces, stop = _header(line, name, number), number, [], None
            continue
        residues = line.translate(None, _WHITESPACE).upper()
        if not residues:
            continue
        if header is None:
            raise InputError(missing_header_reason(line.strip()), name, number)
        if stop is not None:
            raise InputError(invalid_residue_reason(ord("*")), name, *stop)
        if residues.endswith(b"*"):
            residues = residues[:-1]
            stop = number, line.rindex(b"*") + 1
        if not _LETTERS.issuperset(residues.replace(_CHAIN_BREAK, b"")):
            raise _invalid_line(line, name, number)
        pieces.append(residues)
    if header is None:
        raise InputError("empty file", name)
    yield _record(header, pieces, name, header_line)


def _header(line: bytes, name: str, number: int) -> str:
    if b"\0" in line:
        raise InputError("not a FASTA file: binary data", name, number, line.index(b"\0") + 1)
    return line[1:].decode("utf-8", "replace").strip()


def _invalid_line(line: bytes, name: str, number: int) -> InputError:
    """Return the error for the first character of a line that is not a residue, ignoring a final `*`."""
    last_stop = len(line.rstrip(_WHITESPACE)) - 1 if line.rstrip(_WHITESPACE).endswith(b"*") else -1
    for position, byte in enumerate(line):
        letter = bytes([byte]).upper()
        valid = letter[0] in _LETTERS or letter == _CHAIN_BREAK or byte in _WHITESPACE
        if not valid and position != last_stop:
            return InputError(invalid_residue_reason(byte), name, number, position + 1)
    raise AssertionError("called for a line without an invalid character")


def _record(header: str, pieces: list[bytes], name: str, line: int) -> FastaRecord:
    sequence = b"".join(pieces).decode("ascii")
    if not sequence:
        raise InputError(f"no sequence after the header {('>' + header)[:60]!r}", name, line)
    return make_record(header, sequence, name, line)


def make_record(header: str, sequence: str, name: str, line: int) -> FastaRecord:
    """Return the record of a cleaned sequence: an UnsupportedRecord if `:` joins several chains."""
    if ":" in sequence:
        return UnsupportedRecord(header, sequence, f"{sequence.count(':') + 1} chains (':')", name, line)
    return FastaRecord(header, sequence)


def clean_sequence(text: str, name: str, line: int) -> str:
    """Return the residues in a table field or job value, cleaned as in FASTA; `:` is kept.

    Raises:
        InputError: there are no residues, or a character is not a residue letter.
    """
    letters = "".join(text.split()).upper().removesuffix("*")
    if not letters:
        raise InputError("no sequence", name, line)
    for letter in letters:
        byte = letter.encode()[0]
        if byte not in _LETTERS and letter != ":":
            raise InputError(invalid_residue_reason(byte), name, line)
    return letters
