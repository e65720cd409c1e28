"""Reading FASTA strictly, as a query needs it: whatever is odd is an error that names its line and column.

Target databases are more forgiving and much faster: msa/io/fasta_blocks.py.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from msa.errors import InputError
from msa.io.compression import open_input

UTF8_MARK = b"\xef\xbb\xbf"
SUPPORTED = "supported is one protein chain, without ligands, nucleic acids or modifications"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CHAIN_BREAK = b":"
_BLANKS = b" \t\r\n\v\f"


@dataclass(frozen=True)
class FastaRecord:
    """One sequence of a FASTA file.

    Attributes:
        header: its header line without `>` and surrounding blanks.
        sequence: its residues, upper-case letters A-Z.
    """

    header: str
    sequence: str

    @property
    def id(self) -> str:
        """The header's first word; empty if the header is."""
        return first_word(self.header)


@dataclass(frozen=True)
class UnsupportedRecord(FastaRecord):
    """A well-formed record of what is neither searched with nor folded; the others of its file can be.

    Attributes:
        holds: what it has, such as "2 protein chains".
        path, line: where it stands.
    """

    holds: str
    path: str
    line: int | None

    def error(self) -> InputError:
        """Why it cannot be a query."""
        return InputError(f"{self.id!r} has {self.holds}: {SUPPORTED}", self.path, self.line)


def first_word(header: str) -> str:
    """The id in a header: what stands before its first blank."""
    return header.split(maxsplit=1)[0] if header else ""


def bad_character(byte: int) -> str:
    """What is wrong with a byte that stands where a residue belongs."""
    character = chr(byte)
    if character in "-.":
        return f"{character!r} is a gap: a query must not be aligned"
    if character == "*":
        return "'*' inside a sequence: a stop codon may only end it"
    return (
        f"{character!r} is no residue letter" if 32 < byte < 127 else f"byte {byte:#04x} is no residue letter"
    )


def text_before_header(line: bytes) -> str:
    """What is wrong with a file whose first line that is not blank, `line`, is no header."""
    if b"\0" in line or not line.decode("utf-8", "replace").isprintable():
        return "not a FASTA file: binary data"
    return "not a FASTA file: text before the first header line ('>')"


def read_fasta(path: str | os.PathLike[str]) -> Iterator[FastaRecord]:
    """Read the records of a FASTA file one by one.

    Lower case is taken as upper case; blanks, blank lines, Windows line ends, a UTF-8 mark and one `*` at the
    end of a sequence are dropped; compression is recognised by content.

    Args:
        path: the file; `-` is standard input.

    Raises:
        InputError: an empty file, text before the first header, binary data, a character that is no letter,
            a record without a sequence; names file, line and column. A complex, which ColabFold writes with
            `:` between its chains, is an UnsupportedRecord.
        OSError: the file cannot be read.
    """
    with open_input(path) as stream:
        yield from read_records(stream, os.fspath(path))


def read_records(stream: BinaryIO, name: str) -> Iterator[FastaRecord]:
    """Like `read_fasta`, from decompressed content, which errors call `name`."""
    header: str | None = None
    header_line = 0
    pieces: list[bytes] = []
    stop: tuple[int, int] | None = None  # where a '*' stood that nothing has followed yet
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(UTF8_MARK)
        if line.startswith(b">"):
            if header is not None:
                yield _finished(header, pieces, name, header_line)
            header, header_line, pieces, stop = _header(line, name, number), number, [], None
            continue
        residues = line.translate(None, _BLANKS).upper()
        if not residues:
            continue
        if header is None:
            raise InputError(text_before_header(line.strip()), name, number)
        if stop is not None:
            raise InputError(bad_character(ord("*")), name, *stop)
        if residues.endswith(b"*"):
            residues = residues[:-1]
            stop = number, line.rindex(b"*") + 1
        if not _LETTERS.issuperset(residues.replace(_CHAIN_BREAK, b"")):
            raise _bad_line(line, name, number)
        pieces.append(residues)
    if header is None:
        raise InputError("empty file", name)
    yield _finished(header, pieces, name, header_line)


def _header(line: bytes, name: str, number: int) -> str:
    if b"\0" in line:
        raise InputError("not a FASTA file: binary data", name, number, line.index(b"\0") + 1)
    return line[1:].decode("utf-8", "replace").strip()


def _bad_line(line: bytes, name: str, number: int) -> InputError:
    """The error of the first character of a line that is no residue; its last `*` has been looked at."""
    last_stop = len(line.rstrip(_BLANKS)) - 1 if line.rstrip(_BLANKS).endswith(b"*") else -1
    for position, byte in enumerate(line):
        letter = bytes([byte]).upper()
        known = letter[0] in _LETTERS or letter == _CHAIN_BREAK or byte in _BLANKS
        if not known and position != last_stop:
            return InputError(bad_character(byte), name, number, position + 1)
    raise AssertionError("called for a line with a bad character")


def _finished(header: str, pieces: list[bytes], name: str, line: int) -> FastaRecord:
    sequence = b"".join(pieces).decode("ascii")
    if not sequence:
        raise InputError(f"no sequence after the header {('>' + header)[:60]!r}", name, line)
    if ":" in sequence:
        return complex_record(header, sequence, name, line)
    return FastaRecord(header, sequence)


def complex_record(header: str, sequence: str, name: str, line: int) -> UnsupportedRecord:
    """The record of chains joined by `:`."""
    return UnsupportedRecord(header, sequence, f"{sequence.count(':') + 1} chains (':')", name, line)


def plain_sequence(text: str, name: str, line: int) -> str:
    """The residues in a field of a table or a value of a job, cleaned as those of FASTA; `:` is left in.

    Raises:
        InputError: there are none, or a character that is no residue.
    """
    letters = "".join(text.split()).upper().removesuffix("*")
    if not letters:
        raise InputError("no sequence", name, line)
    for letter in letters:
        byte = letter.encode()[0]
        if byte not in _LETTERS and letter != ":":
            raise InputError(bad_character(byte), name, line)
    return letters
