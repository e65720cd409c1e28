"""Jobs in FASTA: Boltz's headers `>A|protein`, and ColabFold's `SEQUENCE:ccd|ATP`."""

import re
from dataclasses import dataclass

from features.assembly.job import Entity, Job, Ligand, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.json_with_lines import decode_utf8
from foldcli.inputs.molecules.fields import (
    chain_names,
    check_query,
    clean_polymer,
    query_alignment,
    read_named_alignment,
)
from msa.base.errors import InputError

_POLYMERS = {"protein": MoleculeKind.PROTEIN, "rna": MoleculeKind.RNA, "dna": MoleculeKind.DNA}
_KINDS = (*_POLYMERS, "ccd", "smiles")
_TYPED_HEADER = re.compile(rf"^\s*([^|\s]+)\s*\|\s*({'|'.join(_KINDS)})\s*(?:\||$)", re.IGNORECASE)


@dataclass(frozen=True)
class _Record:
    """A record: its header, its text without line breaks, and the line of the header."""

    header: str
    text: str
    line: int


def parse_fasta_jobs(data: bytes, path: str, name: str) -> list[Job]:
    """Parse FASTA: one job if the headers name kinds of chains, else one job per record.

    Args:
        data: decompressed FASTA.
        path: file name for errors, to whose folder the names of alignments are relative.
        name: name of the job if the headers name chains.

    Raises:
        InputError: text before the first header, an unknown kind, or an invalid sequence; names the line.
    """
    records = _records(decode_utf8(data, path), path)
    if _TYPED_HEADER.match(records[0].header):
        entities = tuple(_typed_entity(record, path) for record in records)
        return [Job(name, entities, path=path, line=records[0].line)]
    return [_joined_job(record, path) for record in records]


def _records(text: str, path: str) -> list[_Record]:
    """Return the records of a file; raise InputError if it has none."""
    records: list[_Record] = []
    for line, content in enumerate(text.splitlines(), 1):
        if content.startswith(">"):
            records.append(_Record(content[1:].strip(), "", line))
        elif content.strip():
            if not records:
                raise InputError("text before the first header", path, line)
            last = records[-1]
            records[-1] = _Record(last.header, last.text + content.strip(), last.line)
    if not records:
        raise InputError("no record", path)
    return records


def _typed_entity(record: _Record, path: str) -> Entity:
    """Return the chain of a record whose header is `chain|kind` or `chain|protein|alignment`."""
    if not _TYPED_HEADER.match(record.header):
        reason = f"header {record.header!r:.60} is not chain|kind, with a kind of {', '.join(_KINDS)}"
        raise InputError(reason, path, record.line)
    chain, kind, *rest = (part.strip() for part in record.header.split("|"))
    entity = _entity(kind.lower(), record.text, (chain,), path, record.line)
    if kind.lower() != "protein" or not rest or not rest[0]:
        return entity
    assert isinstance(entity, Polymer)
    if rest[0] == "empty":
        alignment = query_alignment(entity.sequence)
    else:
        alignment = read_named_alignment(path, rest[0], record.line)
    checked = check_query(alignment, entity.sequence, path, record.line)
    return Polymer(entity.kind, entity.sequence, entity.chains, alignment=checked, line=record.line)


def _joined_job(record: _Record, path: str) -> Job:
    """Return the job of a record whose chains are separated by `:`; equal chains are copies."""
    if not record.text:
        raise InputError("no sequence", path, record.line)
    copies: dict[tuple[str, str], list[str]] = {}
    names = chain_names()
    for part in record.text.split(":"):
        kind, separator, content = part.partition("|")
        key = (kind.strip().lower(), content) if separator else ("protein", part)
        if key[0] not in _KINDS:
            reason = f"unknown kind of chain {kind!r:.40}: expected one of {', '.join(_KINDS)}"
            raise InputError(reason, path, record.line)
        copies.setdefault(key, []).append(next(names))
    entities = tuple(
        # `;` stands for `:` in SMILES strings, because `:` separates chains
        _entity(kind, text.replace(";", ":") if kind == "smiles" else text, tuple(chains), path, record.line)
        for (kind, text), chains in copies.items()
    )
    words = record.header.split()
    return Job(words[0] if words else f"line{record.line}", entities, path=path, line=record.line)


def _entity(kind: str, text: str, chains: tuple[str, ...], path: str, line: int) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        sequence = clean_polymer(text, _POLYMERS[kind], path, line)
        return Polymer(_POLYMERS[kind], sequence, chains, line=line)
    content = "".join(text.split())
    if not content:
        raise InputError(f"no {kind}", path, line)
    if kind == "smiles":
        return Ligand(chains, smiles=content, line=line)
    return Ligand(chains, (content.upper(),), line=line)
