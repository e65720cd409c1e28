"""Jobs in FASTA: headers `>A|protein` of Boltz, `>protein|name=A` of Chai, and ColabFold's `SEQ:ccd|ATP`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from features.assembly.job import Entity, Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.job_fields import (
    POLYMERS,
    Refuse,
    check_query,
    clean_polymer,
    query_alignment,
    raise_error,
    read_each,
    read_named_alignment,
)
from foldcli.inputs.formats.json_with_lines import decode_utf8
from foldcli.inputs.formats.tables import row_name
from model.chains import iterate_chain_names
from msa.base.errors import InputError
from msa.io.fasta import clean_header, first_word

_KINDS = (*POLYMERS, "ccd", "smiles")
_NAMES = rf"(?:{'|'.join(_KINDS)})"
_BOLTZ_HEADER = re.compile(rf"[ \t]*([^|\s]+)[ \t]*\|[ \t]*({_NAMES})[ \t]*(?:\|([^\r\n]*))?", re.IGNORECASE)
_CHAI_HEADER = re.compile(
    r"[ \t]*(protein|rna|dna|ligand|ion|glycan)[ \t]*\|[ \t]*(?:name=)?[ \t]*([^\s|][^|\r\n]*)", re.IGNORECASE
)
# a header that names a kind, or a sequence line such as `rna|ACGU` or `SEQUENCE:ccd|ATP`
_MOLECULES = re.compile(
    "|".join(
        (
            rf"^>{_BOLTZ_HEADER.pattern}\r?$",
            rf"^>{_CHAI_HEADER.pattern}",
            rf"^(?:[^>#|\n]*:)?[ \t]*{_NAMES}[ \t]*\|",
        )
    ).encode(),
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class TextRecord:
    """A record: its header, its text without line breaks, and the line of the header."""

    header: str
    text: str
    path: str
    line: int

    def error(self, reason: str) -> InputError:
        """Return an error that names the file and the line."""
        return InputError(reason, self.path, self.line)


def names_molecules(text: bytes) -> bool:
    """Return whether FASTA names kinds of molecules, in a header or in a sequence line."""
    return text.startswith(b">") and _MOLECULES.search(text) is not None


def parse_fasta_jobs(data: bytes, path: str, name: str, refuse: Refuse = raise_error) -> list[MoleculeJob]:
    """Parse FASTA: one job if the headers name kinds of chains, else one job per record.

    Args:
        data: decompressed FASTA.
        path: file name for errors, to whose folder the names of alignments are relative.
        name: name of the job if the headers name chains.
        refuse: called with the error of each record that is no job: an unknown kind, or an invalid sequence.

    Raises:
        InputError: text before the first header, or an error in a file of one job; names the line.
    """
    records = read_records(decode_utf8(data, path), path)
    if any(_typed_header(record.header) is not None for record in records):
        entities = tuple(_typed_entity(record) for record in records)
        return [MoleculeJob(name, entities, path=path, line=records[0].line)]
    return read_each(records, _joined_job, refuse)


def parse_table_jobs(
    rows: Sequence[tuple[int, dict[str, str]]], path: str, refuse: Refuse
) -> list[MoleculeJob]:
    """Return one job for each row of a ColabFold table whose sequences name kinds of molecules.

    Args:
        rows: see `foldcli.inputs.formats.tables.table_rows`.
        path: file name for errors.
        refuse: called with the error of each row that is no job.
    """

    def read(item: tuple[int, dict[str, str]]) -> MoleculeJob:
        line, row = item
        return _joined_job(TextRecord(row_name(row, path, line), row["sequence"].strip(), path, line))

    return read_each(rows, read, refuse)


def _typed_header(header: str) -> tuple[str, str, str] | None:
    """Return the chain, the kind and the alignment that a header names; None if it names no kind."""
    header = clean_header(header)
    if (boltz := _BOLTZ_HEADER.fullmatch(header)) is not None:
        return boltz[1], boltz[2].lower(), (boltz[3] or "").strip()
    if (chai := _CHAI_HEADER.match(header)) is not None:
        kind = {"ligand": "smiles", "ion": "ccd"}.get(chai[1].lower(), chai[1].lower())
        return "_".join(chai[2].split()), kind, ""
    return None


def read_records(text: str, path: str) -> list[TextRecord]:
    """Return the records of a file; raise InputError if it has none."""
    records: list[tuple[str, list[str], int]] = []
    for line, content in enumerate(text.splitlines(), 1):
        if content.startswith(">"):
            records.append((content[1:].strip(), [], line))
        elif content.strip():
            if not records:
                raise InputError("text before the first header", path, line)
            records[-1][1].append(content.strip())
    if not records:
        raise InputError("no record", path)
    return [TextRecord(header, "".join(lines), path, line) for header, lines, line in records]


def _typed_entity(record: TextRecord) -> Entity:
    """Return the chain of a record whose header names its kind, and for Boltz may name an alignment."""
    if (declared := _typed_header(record.header)) is None:
        kinds = ", ".join(_KINDS)
        raise record.error(f"header {record.header!r:.60} names no kind of chain ({kinds}), as others do")
    chain, kind, name = declared
    if "," in chain and _BOLTZ_HEADER.fullmatch(clean_header(record.header)):
        raise record.error(f"chain id {chain!r:.40} has a comma: give each chain a record")
    if kind not in _KINDS:
        raise record.error(f"a {kind} in FASTA is not supported: give ccd or smiles")
    entity = _entity(kind, record.text, (chain,), record)
    if not isinstance(entity, Polymer) or not name:
        return entity
    if entity.kind != MoleculeKind.PROTEIN:
        raise record.error(f"an alignment of {kind} in a header is not supported")
    if name == "empty":
        alignment = query_alignment(entity.sequence)
    else:
        alignment = read_named_alignment(record.path, name, record.line)
    return replace(entity, alignment=check_query(alignment, entity.sequence, record.path, record.line))


def _joined_job(record: TextRecord) -> MoleculeJob:
    """Return the job of a record whose chains are separated by `:`; equal chains are copies."""
    if not record.text:
        raise record.error("no sequence")
    copies: dict[tuple[str, str], list[str]] = {}
    names = iterate_chain_names()
    for part in record.text.split(":"):
        kind, separator, content = part.partition("|")
        key = (kind.strip().lower(), content) if separator else ("protein", part)
        if key[0] not in _KINDS:
            raise record.error(f"unknown kind of chain {kind!r:.40}: expected one of {', '.join(_KINDS)}")
        copies.setdefault(key, []).append(next(names))
    entities = tuple(
        # `;` stands for `:` in SMILES strings, because `:` separates chains
        _entity(kind, text.replace(";", ":") if kind == "smiles" else text, tuple(chains), record)
        for (kind, text), chains in copies.items()
    )
    name = first_word(clean_header(record.header))
    return MoleculeJob(name or f"line{record.line}", entities, path=record.path, line=record.line)


def _entity(kind: str, text: str, chains: tuple[str, ...], record: TextRecord) -> Entity:
    """Return a polymer or a ligand."""
    if kind in POLYMERS:
        sequence = clean_polymer(text, POLYMERS[kind], record.path, record.line)
        return Polymer(POLYMERS[kind], sequence, chains, line=record.line)
    content = text.strip()
    if not content:
        raise record.error(f"no {kind}")
    if kind == "smiles":
        return Ligand(chains, smiles=content, line=record.line)
    return Ligand(chains, (content.upper(),), line=record.line)
