"""Jobs in YAML for Boltz."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from features.assembly.job import Bond, Entity, Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.boltz_jobs import boltz_templates, check_boltz_version
from foldcli.inputs.formats.job_fields import (
    as_mapping,
    check_keys,
    find_named_file,
    find_unsupported,
    read_chains,
    read_entities,
    read_flag,
    read_named_alignment,
    required_text,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, decode_utf8, parse_yaml_with_lines
from foldcli.inputs.molecules.fields import (
    check_query,
    clean_polymer,
    query_alignment,
    read_bond,
    read_modifications,
)
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.io.compression import read_bytes

JOB_KEYS = ("version", "sequences", "constraints", "templates", "properties")
_UNSUPPORTED = {"properties": "properties such as affinity"}
_POLYMERS = {"protein": MoleculeKind.PROTEIN, "rna": MoleculeKind.RNA, "dna": MoleculeKind.DNA}
POLYMER_KEYS = ("id", "sequence", "msa", "modifications", "cyclic")
LIGAND_KEYS = ("id", "ccd", "smiles")


def parse_boltz_job(data: bytes, path: str, name: str) -> MoleculeJob:
    """Parse a YAML file, which has one job.

    Args:
        data: decompressed YAML.
        path: file name for errors, to whose folder the names of alignments are relative.
        name: name of the job, because the file has none.

    Raises:
        InputError: invalid YAML, an invalid job, or content that is not supported; names the line.
    """
    content = as_mapping(parse_yaml_with_lines(data, path), "the file", path, 1)
    check_keys(content, JOB_KEYS, path)
    check_boltz_version(content, path)
    find_unsupported(content, _UNSUPPORTED, path)
    entities = tuple(_entity(kind, entity, path) for kind, entity in read_entities(content, path))
    entities = _add_templates(entities, content, path)
    return MoleculeJob(name, entities, _bonds(content, path), path=path, line=content.line)


def _add_templates(entities: tuple[Entity, ...], content: MappingWithLines, path: str) -> tuple[Entity, ...]:
    """Return the molecules with the templates that the file gives to their chains."""
    proteins = {
        name: (entity.chains[0], entity.sequence)
        for entity in entities
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.PROTEIN
        for name in entity.chains
    }
    templates = boltz_templates(content, proteins, path)
    return tuple(
        replace(entity, templates=templates[entity.chains[0]])
        if isinstance(entity, Polymer) and entity.chains[0] in templates
        else entity
        for entity in entities
    )


def _entity(kind: str, entity: MappingWithLines, path: str) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        return _polymer(_POLYMERS[kind], entity, path)
    if kind != "ligand":
        raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    check_keys(entity, LIGAND_KEYS, path)
    if ("ccd" in entity) == ("smiles" in entity):
        reason = "both 'ccd' and 'smiles' are given" if "ccd" in entity else "no 'ccd' or 'smiles'"
        raise InputError(reason, path, entity.line)
    chains = read_chains(entity, "id", path)
    if "smiles" in entity:
        return Ligand(chains, smiles=required_text(entity, "smiles", path).strip(), line=entity.line)
    codes = entity["ccd"] if isinstance(entity["ccd"], list) else [required_text(entity, "ccd", path)]
    return Ligand(chains, tuple(map(str, codes)), line=entity.line)


def _polymer(kind: MoleculeKind, entity: MappingWithLines, path: str) -> Polymer:
    check_keys(entity, POLYMER_KEYS, path)
    line = entity.line_of("sequence")
    sequence = clean_polymer(required_text(entity, "sequence", path), kind, path, line)
    return Polymer(
        kind,
        sequence,
        read_chains(entity, "id", path),
        read_modifications(entity, "ccd", "position", path),
        check_query(_alignment(entity, sequence, path), sequence, path, line),
        is_cyclic=read_flag(entity, "cyclic", path),
        line=entity.line,
    )


def _alignment(entity: MappingWithLines, sequence: str, path: str) -> Alignment | None:
    """Return a chain's alignment: the query alone for `empty`, None if the file names none."""
    if "msa" not in entity:
        return None
    name, line = required_text(entity, "msa", path), entity.line_of("msa")
    if name in ("empty", "0"):
        return query_alignment(sequence)
    if name.lower().endswith(".csv"):
        return _table_alignment(find_named_file(path, name, "alignment file", line))
    return read_named_alignment(path, name, line)


def _table_alignment(file: Path) -> Alignment:
    """Return the alignment in Boltz's table of the columns `key` and `sequence`.

    Rows of different chains with the same key are of one species, and can be paired.
    """
    name = str(file)
    text = decode_utf8(read_bytes(file), name)
    rows = csv.reader(io.StringIO(text, newline=""))
    records = []
    try:
        columns = [column.strip().lower() for column in next(rows, [])]
        if not {"key", "sequence"} <= set(columns):
            raise InputError("expected the columns key and sequence", name, 1)
        for number, row in enumerate(rows):
            if not row:
                continue
            if len(row) != len(columns):
                reason = f"{len(row)} fields instead of {len(columns)}"
                raise InputError(reason, name, rows.line_num)
            fields = dict(zip(columns, row, strict=True))
            key = fields["key"].strip()
            species = "" if key in ("", "-1", "nan") else f" TaxID={'_'.join(key.split())}"
            records.append(f">{number}{species}\n{''.join(fields['sequence'].split())}\n")
    except csv.Error as error:
        raise InputError(f"not a table: {error}", name, max(1, rows.line_num)) from None
    return parse_alignment("".join(records).encode(), name)


def _bonds(content: MappingWithLines, path: str) -> tuple[Bond, ...]:
    """Return the covalent bonds; raise InputError for constraints of other kinds."""
    items: Any = content.get("constraints") or []
    line = content.line_of("constraints")
    if not isinstance(items, list):
        raise InputError("'constraints' is not a list", path, line)
    bonds = []
    for item in items:
        mapping = as_mapping(item, "a constraint", path, line)
        for kind in mapping:
            if kind != "bond":
                reason = f"constraints of kind {kind!r} are not supported, only bonds"
                raise InputError(reason, path, mapping.line_of(kind))
            bond = as_mapping(mapping[kind], "a bond", path, mapping.line_of(kind))
            check_keys(bond, ("atom1", "atom2"), path)
            bonds.append(read_bond([bond.get("atom1"), bond.get("atom2")], "bond", path, bond.line))
    return tuple(bonds)
