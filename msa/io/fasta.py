"""The strict FASTA reader, for queries: anything unusual is an error that names its line and column.

Target databases use `msa.io.fasta_blocks`, which is more tolerant and much faster.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from msa.alphabet import NUCLEOTIDE_CODES, TO_NUCLEOTIDES
from msa.base.errors import InputError
from msa.io.compression import open_input
from msa.io.molecules import PROTEIN, declared_molecule, describe_non_protein, is_annotation

SUPPORTED = (
    "only protein chains are supported, without ligands, nucleic acids or modifications; "
    "`fold --params openfold3` predicts those too"
)
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NUCLEOTIDES = frozenset(NUCLEOTIDE_CODES.encode())
_CHAIN_BREAK = b":"
_STOP, _UNKNOWN = b"*", b"X"
_CHAIN_LETTERS = _LETTERS | frozenset(_CHAIN_BREAK + _STOP)
_WHITESPACE = b" \t\r\n\v\f"
# characters that some program takes as the end of a line, and all other control characters but the tab
_LINE_END = re.compile("[\n\v\f\r\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class FastaRecord:
    """One sequence of a FASTA file.

    Attributes:
        header: header line without `>` and surrounding whitespace.
        sequence: residues, upper-case letters A-Z.
        stop_codons: number of X in the sequence that were a stop codon (`*`) in the file.
        seeds: seeds that a job file requests; empty without a request.
        cyclic: ("A",) if a job file says that the chain is cyclic, else empty.
        templates: templates that a job file gives to the chain (`features.assembly.job.JobTemplate`), in a
            tuple of one; None to search for some, and empty if the file does not say.
        location: file and 1-based line, for errors; the line is None if the record is a whole file.
    """

    header: str
    sequence: str
    stop_codons: int = field(default=0, kw_only=True, compare=False)
    seeds: tuple[int, ...] = field(default=(), kw_only=True, compare=False)
    cyclic: tuple[str, ...] = field(default=(), kw_only=True, compare=False)
    templates: tuple[tuple[Any, ...] | None, ...] = field(default=(), kw_only=True, compare=False)
    location: tuple[str | None, int | None] = field(default=(None, None), kw_only=True, compare=False)

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
        supported: what can be used instead.
    """

    content: str
    path: str
    line: int | None
    supported: str = field(default=SUPPORTED, kw_only=True)

    def error(self) -> InputError:
        """Return an error that explains why the record cannot be a query."""
        return InputError(f"{self.id!r} has {self.content}: {self.supported}", self.path, self.line)


@dataclass(frozen=True)
class JoinedRecord(UnsupportedRecord):
    """A record of several chains, joined by `:` in its sequence; none of them is empty."""


def first_word(header: str) -> str:
    """Return the id in a header: everything before the first whitespace."""
    return header.split(maxsplit=1)[0] if header else ""


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names; a repeated one gets the first of _2, _3 and so on that no other name has."""
    given, last = set(names), dict.fromkeys(names, 0)
    result = []
    for name in names:
        candidate = name
        while last[name] and (candidate := f"{name}_{last[name] + 1}") in given:
            last[name] += 1
        last[name] += 1
        given.add(candidate)
        result.append(candidate)
    return result


def clean_header(header: str) -> str:
    """Return a header without control characters, which would break tables and reach terminals.

    Line ends become spaces, and all others but tabs `_`.
    """
    return _CONTROL.sub("_", _LINE_END.sub(" ", header)).strip()


def invalid_residue_reason(byte: int, nucleotides: bool = False) -> str:
    """Return the error text for a byte that is not allowed in a sequence, of proteins or of nucleic acids."""
    character = chr(byte)
    if character in "-.":
        return f"{character!r} is a gap: a query must not be aligned"
    shown = repr(character) if 32 < byte < 127 else f"byte {byte:#04x}"
    if nucleotides:
        return f"{shown} is not a letter of a nucleic acid (A, C, G, U, T, N and IUPAC's others)"
    return f"{shown} is not a residue letter"


def missing_header_reason(line: bytes) -> str:
    """Return the error text for a file whose first non-blank line, `line`, is not a header."""
    if b"\0" in line or not line.decode("utf-8", "replace").isprintable():
        return "not a FASTA file: binary data"
    return "not a FASTA file: text before the first header line ('>')"


def read_nucleotides(stream: BinaryIO, name: str) -> Iterator[FastaRecord]:
    """Read records of nucleic acids from decompressed content, called `name` in errors.

    Their sequences have the letters of RNA; see `msa.alphabet.TO_NUCLEOTIDES`. A header may declare RNA as
    those of Boltz and Chai do.

    Raises:
        InputError: see `read_fasta`; also a letter that no nucleic acid has, or another declared molecule.
    """

    def letters_of(header: str, number: int) -> frozenset[int]:
        declared = declared_molecule(header)
        if declared is not None and declared.kind not in ("RNA", "a nucleic acid"):
            raise InputError(f"{first_word(header)!r} is {declared.kind}, not RNA", name, number)
        return _NUCLEOTIDES

    for header, line, letters in _read_lines(stream, name, letters_of):
        if not letters:
            raise _no_sequence(header, name, line)
        yield FastaRecord(header, letters.decode().translate(TO_NUCLEOTIDES), location=(name, line))


def read_fasta(path: str | os.PathLike[str]) -> Iterator[FastaRecord]:
    """Read the records of a FASTA file, or of standard input (`-`), one by one.

    Lower case becomes upper case; whitespace, blank lines and stop codons (`*`) at the end of a sequence are
    dropped; other stop codons become X; compression is recognised by content. Rows of annotations
    (`msa.io.molecules.is_annotation`) are skipped.

    Yields:
        the records; a JoinedRecord for a complex, whose chains ColabFold joins with `:`; an
            UnsupportedRecord if one of them is empty, or for anything but proteins.

    Raises:
        InputError: an empty file, text before the first header, binary data, a character that is not a
            letter, or a record without a sequence; names file, line and column.
        OSError: the file cannot be read.
    """
    with open_input(path) as stream:
        yield from read_records(stream, os.fspath(path))


def read_records(stream: BinaryIO, name: str) -> Iterator[FastaRecord]:
    """Read records from decompressed content, called `name` in errors; see `read_fasta`."""
    for header, line, letters in _read_lines(stream, name, _letters_of):
        yield from _records(header, letters, name, line)


def _read_lines(
    stream: BinaryIO, name: str, letters_of: Callable[[str, int], frozenset[int] | None]
) -> Iterator[tuple[str, int, bytes]]:
    """Yield the header of each record, its line, and the upper-case letters of the other lines.

    Args:
        stream: decompressed content.
        name: its name in errors.
        letters_of: returns the letters that a record may have, given its header and line; None for any.
    """
    header: str | None = None
    header_line, allowed = 0, None
    pieces: list[bytes] = []
    for number, line in enumerate(stream, start=1):
        if line.startswith(b">"):
            if header is not None:
                yield header, header_line, b"".join(pieces)
            header, header_line, pieces = _header(line, name, number), number, []
            allowed = letters_of(header, number)
            continue
        residues = line.translate(None, _WHITESPACE).upper()
        if not residues:
            continue
        if header is None:
            raise InputError(missing_header_reason(line.strip()), name, number)
        if allowed is not None and not allowed.issuperset(residues):
            raise _invalid_line(line, name, number, allowed)
        pieces.append(residues)
    if header is None:
        raise InputError("empty file", name)
    yield header, header_line, b"".join(pieces)


def _header(line: bytes, name: str, number: int) -> str:
    if b"\0" in line:
        raise InputError("not a FASTA file: binary data", name, number, line.index(b"\0") + 1)
    return clean_header(line[1:].decode("utf-8", "replace"))


def _invalid_line(line: bytes, name: str, number: int, letters: frozenset[int]) -> InputError:
    """Return the error for the first character of a line that is not a residue."""
    allowed = letters | frozenset(_WHITESPACE)
    for position, byte in enumerate(line):
        if bytes([byte]).upper()[0] not in allowed:
            reason = invalid_residue_reason(byte, letters is _NUCLEOTIDES)
            return InputError(reason, name, number, position + 1)
    raise AssertionError("called for a line without an invalid character")


def _no_sequence(header: str, name: str, line: int) -> InputError:
    return InputError(f"no sequence after the header {('>' + header)[:60]!r}", name, line)


def _letters_of(header: str, number: int) -> frozenset[int] | None:
    """Return None if a record's header says that its lines need not be residue letters."""
    declared = declared_molecule(header)
    is_protein = not is_annotation(header) and (declared is None or declared.kind == PROTEIN)
    return _CHAIN_LETTERS if is_protein else None


def _records(header: str, content: bytes, name: str, line: int) -> Iterator[FastaRecord]:
    """Yield the record of a header and its letters, unless these are annotations."""
    if is_annotation(header):
        return
    letters, stop_codons = _replace_stop_codons(content)
    if not letters:
        raise _no_sequence(header, name, line)
    yield make_record(header, letters.decode("ascii", "replace"), stop_codons, name, line)


def _replace_stop_codons(letters: bytes) -> tuple[bytes, int]:
    """Drop the stop codons at the end of chains, replace the others by X, and count these."""
    inner = _CHAIN_BREAK.join(chain.rstrip(_STOP) for chain in letters.split(_CHAIN_BREAK))
    return inner.replace(_STOP, _UNKNOWN), inner.count(_STOP)


def make_record(header: str, sequence: str, stop_codons: int, name: str, line: int) -> FastaRecord:
    """Return the record of a cleaned sequence: a JoinedRecord if `:` joins several chains.

    If a chain is empty or a nucleic acid, or the header declares another molecule, it is an
    UnsupportedRecord. The name in a header such as `A|protein` becomes the id, before the whole header.
    """
    if (molecule := describe_non_protein(header, sequence)) is not None:
        return UnsupportedRecord(header, "", molecule, name, line)
    if (declared := declared_molecule(header)) is not None:
        header = f"{'_'.join(declared.name.split())} {header}"
    chains = sequence.split(":")
    if len(chains) == 1:
        return FastaRecord(header, sequence, stop_codons=stop_codons, location=(name, line))
    if all(chains):
        content = f"{len(chains)} protein chains"
        return JoinedRecord(header, sequence, content, name, line, stop_codons=stop_codons)
    content = "an empty chain (a ':' without residues on both sides)"
    return UnsupportedRecord(header, sequence, content, name, line, stop_codons=stop_codons)


def clean_sequence(text: str, name: str, line: int) -> tuple[str, int]:
    """Clean the residues in a table field or job value as in FASTA; `:` is kept.

    Returns:
        The residues, and the number of stop codons that became X.

    Raises:
        InputError: there are no residues, or a character is not a residue letter.
    """
    # letters of other alphabets would become several bytes, none of them a residue letter
    raw = "".join(text.split()).encode("utf-8", "replace").upper()
    for byte in raw:
        if byte not in _CHAIN_LETTERS:
            raise InputError(invalid_residue_reason(byte), name, line)
    letters, stop_codons = _replace_stop_codons(raw)
    if not letters:
        raise InputError("no sequence", name, line)
    return letters.decode("ascii"), stop_codons
