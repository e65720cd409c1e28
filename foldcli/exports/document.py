"""A job file to be exported: its chains, and the text that is edited."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gemmi

from features.chemistry.residue_classes import MoleculeKind
from features.chemistry.residues import check_foldable
from features.templates.candidates import TemplateHits
from foldcli.inputs.formats.job_fields import clean_polymer
from foldcli.inputs.formats.json_with_lines import MappingWithLines
from foldcli.inputs.names import file_safe_name
from foldcli.logs import logger
from msa.alignments.complex_a3m import A3mRow
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.search.database_search import check_query

_LETTERS = frozenset("ACDEFGHIKLMNPQRSTVWY")


@dataclass(frozen=True)
class DocumentPolymer:
    """A protein or RNA of a job.

    Attributes:
        sequence: upper-case letters.
        chain: id of its first chain.
        place: where it stands in the document; its meaning is the format's.
        line: 1-based line of its sequence.
        own_alignment: the key of the alignment that the file gives it, which is kept; None without.
        kept: keys of its own that are not filled in.
    """

    sequence: str
    chain: str
    place: int
    line: int
    own_alignment: str | None = None
    kept: frozenset[str] = frozenset()
    molecule: MoleculeKind = MoleculeKind.PROTEIN


@dataclass(frozen=True)
class ExportJob:
    """A job of a document.

    Attributes:
        polymers: its proteins, and the RNA chains that can be searched if the format has a place for their
            alignments.
        line: 1-based line where it begins.
    """

    name: str
    polymers: tuple[DocumentPolymer, ...]
    line: int

    def unaligned(self, molecule: MoleculeKind) -> list[DocumentPolymer]:
        """Return the proteins, or the RNA chains, without an alignment of their own."""
        return [each for each in self.polymers if each.molecule == molecule and each.own_alignment is None]

    def sequences(self, molecule: MoleculeKind) -> dict[str, str]:
        """Return the distinct sequences to search with, and for their files the name of the first chain."""
        first: dict[str, str] = {}
        for polymer in self.unaligned(molecule):
            first.setdefault(polymer.sequence, polymer.chain)
        prefix = "rna_" if molecule == MoleculeKind.RNA else ""
        names = (prefix + name for name in distinct_names(first.values()))
        return dict(zip(first, names, strict=True))


@dataclass(frozen=True)
class ChainRows:
    """The alignment of one distinct sequence of a job.

    Attributes:
        unpaired: its rows, the query first.
        paired: its part of the paired rows after the query: row k belongs to row k of the job's other
            sequences, and is None for a sequence without a partner. Empty if the job has a single sequence.
        templates: its templates; None if none are searched.
    """

    unpaired: Sequence[A3mRow] = field(repr=False)
    paired: Sequence[A3mRow | None] = field(repr=False)
    templates: TemplateHits | None = None

    @property
    def query(self) -> A3mRow:
        """The row of the query."""
        return self.unpaired[0]

    def pairs(self) -> Iterable[tuple[int, A3mRow]]:
        """Yield the number of each paired row that this sequence has, from 1, and the row."""
        return ((number, row) for number, row in enumerate(self.paired, 1) if row is not None)


class AlignmentFiles:
    """The files written next to a job file, in a folder of their own.

    Args:
        folder: the folder; created with its first file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.base = self._folder.parent
        self.written: list[Path] = []

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file, and return its absolute path."""
        path = self._folder / name
        with atomic_write(path, "wb") as stream:
            stream.write(content if isinstance(content, bytes) else content.encode())
        self.written.append(path)
        return path


def own_alignment(entity: MappingWithLines, keys: Sequence[str]) -> str | None:
    """Return the first of the keys of alignments that has a value."""
    return next((key for key in keys if entity.get(key) is not None), None)


def read_rna(entity: MappingWithLines, keys: Sequence[str], chain: str) -> DocumentPolymer | None:
    """Return an RNA chain of a job; None if it has an alignment (one of `keys`) or cannot be searched."""
    sequence, line = str(entity.get("sequence", "")).upper(), entity.line_of("sequence")
    if own := own_alignment(entity, keys):
        logger.info("%s:%d: chain %s keeps its alignment (%s)", entity.path, line, chain, own)
    elif len(sequence) < 2 or not set(sequence) <= set("ACGUN"):
        logger.info("%s:%d: chain %s is not searched: expected A, C, G, U and N", entity.path, line, chain)
    else:
        return DocumentPolymer(sequence, chain, entity.start, line, molecule=MoleculeKind.RNA)
    return None


def read_protein(
    text: str, chain: str, place: int, path: str, line: int, own_alignment: str | None = None
) -> DocumentPolymer:
    """Return a protein; one without an alignment must be fit for a search.

    Raises:
        InputError: its sequence is not that of a protein, or cannot be searched with; names the line.
    """
    sequence = clean_polymer(text, MoleculeKind.PROTEIN, path, line)
    if own_alignment is not None:
        logger.info("%s:%d: chain %s keeps its alignment (%s)", path, line, chain, own_alignment)
        return DocumentPolymer(sequence, chain, place, line, own_alignment)
    try:
        check_query(FastaRecord(chain, sequence))
        check_foldable(sequence)
    except InputError as error:
        raise InputError(error.reason, path, line) from None
    return DocumentPolymer(sequence, chain, place, line)


def parent_letter(code: str) -> str:
    """Return the letter of the standard residue that a component is made from; empty if it is not known."""
    letter = gemmi.find_tabulated_residue(code).one_letter_code.upper()
    return letter if letter in _LETTERS else ""


def log_unknown_keys(mapping: MappingWithLines, known: Iterable[str]) -> None:
    """Log the keys of a mapping that are not known, which are passed through."""
    for key in mapping:
        if key not in known:
            logger.info("%s:%d: passed through: unknown key %r", mapping.path, mapping.line_of(key), key)


def log_unknown_entities(
    entities: Iterable[tuple[str, MappingWithLines]], known: Mapping[str, Iterable[str]]
) -> None:
    """Log entities of unknown kinds and unknown keys, which are passed through."""
    for kind, entity in entities:
        if kind not in known:
            logger.info("%s:%d: passed through: unknown entity %r", entity.path, entity.line, kind)
        else:
            log_unknown_keys(entity, known[kind])


def distinct_names(ids: Iterable[str]) -> list[str]:
    """Return a file-safe name for each id; names that occurred before get a number."""
    names: list[str] = []
    for number, each in enumerate(ids, 1):
        name = file_safe_name(each).replace(".", "_")
        names.append(f"{name}_{number}" if name.lower() in map(str.lower, names) else name)
    return names


def a3m_text(rows: Iterable[A3mRow]) -> str:
    """Return the text of an A3M file."""
    return "".join(f">{row.header}\n{row.text}\n" for row in rows)
