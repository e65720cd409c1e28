"""Jobs in YAML for Boltz."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from features.assembly.job import Bond, Entity, Ligand, MoleculeJob, OwnTemplate, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.job_fields import (
    OtherContent,
    as_mapping,
    check_keys,
    check_query,
    clean_polymer,
    find_named_file,
    find_unsupported,
    free_chain_names,
    other_content_of_protein,
    query_alignment,
    read_bond,
    read_chains,
    read_entities,
    read_flag,
    read_modifications,
    read_named_alignment,
    required_text,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, decode_utf8, parse_yaml_with_lines
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.io.compression import read_bytes

JOB_KEYS = ("version", "sequences", "constraints", "templates", "properties")
_UNSUPPORTED = {"properties": "properties such as affinity"}
_POLYMERS = {"protein": MoleculeKind.PROTEIN, "rna": MoleculeKind.RNA, "dna": MoleculeKind.DNA}
POLYMER_KEYS = ("id", "sequence", "msa", "modifications", "cyclic")
LIGAND_KEYS = ("id", "ccd", "smiles")
_TEMPLATE_KEYS = ("cif", "pdb", "chain_id", "template_id", "force", "threshold")
_OTHER_KINDS = {"rna": "RNA", "dna": "DNA", "ligand": "a ligand"}


def parse_boltz_job(data: bytes, path: str, name: str, only_proteins: bool = False) -> MoleculeJob:
    """Parse a YAML file, which has one job.

    Args:
        data: decompressed YAML.
        path: file name for errors, to whose folder the names of alignments are relative.
        name: name of the job, because the file has none.
        only_proteins: refuse all that networks of proteins do not take.

    Raises:
        InputError: invalid YAML, an invalid job, or content that is not supported; names the line.
        OtherContent: the job has other content than proteins, and `only_proteins` is set.
    """
    content = as_mapping(parse_yaml_with_lines(data, path), "the file", path, 1)
    check_keys(content, JOB_KEYS, path)
    if content.get("version") not in (None, "1"):
        reason = f"version {content['version']!r:.20}: only version 1 is known"
        raise InputError(reason, path, content.line_of("version"))
    items = read_entities(content, path)
    if only_proteins:
        OtherContent.check(_other_content(content, items), path, content.line)
    find_unsupported(content, _UNSUPPORTED, path)
    free_names = free_chain_names(items)
    entities = tuple(_entity(kind, entity, free_names, path) for kind, entity in items)
    entities = _add_templates(entities, content, path)
    return MoleculeJob(name, entities, _bonds(content, path), path=path, line=content.line)


def _other_content(content: MappingWithLines, items: list[tuple[str, MappingWithLines]]) -> Iterator[str]:
    """Yield descriptions of what networks of proteins do not take; see `OtherContent`."""
    if all(kind in _OTHER_KINDS for kind, _ in items):
        yield "no protein chain"
    for kind, entity in items:
        if kind in _OTHER_KINDS:
            yield _OTHER_KINDS[kind]
        elif kind in _POLYMERS:
            yield from other_content_of_protein(entity)
            file = str(entity.get("msa"))
            if file in ("empty", "0"):
                yield f"msa: {file}, which means no alignment (use `foldcli predict`)"
            elif file.lower().endswith(".csv"):
                yield "an alignment as a table (.csv) instead of A3M"
    for key in ("constraints", "properties"):
        if sections := content.get(key):
            kinds = dict.fromkeys(kind for each in sections if isinstance(each, dict) for kind in each)
            yield f"{key} ({', '.join(kinds)})" if kinds else key


def _add_templates(entities: tuple[Entity, ...], content: MappingWithLines, path: str) -> tuple[Entity, ...]:
    """Return the molecules with the templates that the file gives to their chains."""
    proteins = {
        name: (entity.chains[0], entity.sequence)
        for entity in entities
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.PROTEIN
        for name in entity.chains
    }
    templates = _templates(content, proteins, path)
    return tuple(
        replace(entity, templates=templates[entity.chains[0]])
        if isinstance(entity, Polymer) and entity.chains[0] in templates
        else entity
        for entity in entities
    )


def _templates(
    content: MappingWithLines, proteins: Mapping[str, tuple[str, str]], path: str
) -> dict[str, tuple[OwnTemplate, ...]]:
    """Return the templates that a file for Boltz gives to its proteins, by the first chain of each.

    A template without `chain_id` is given to every protein, as by Boltz; without `template_id`, the chain of
    the file is used whose alignment scores best.
    """
    items, line = content.get("templates") or [], content.line_of("templates")
    if not isinstance(items, list):
        raise InputError("'templates' is not a list", path, line)
    if items:
        # imports gemmi, which other jobs do not need
        from features.templates.own_templates import template_of_file
    templates: dict[str, tuple[OwnTemplate, ...]] = {}
    for item in items:
        mapping = as_mapping(item, "a template", path, line)
        name = required_text(_checked_template(mapping, path), "pdb" if "pdb" in mapping else "cif", path)
        file = find_named_file(path, name, "template file", mapping.line)
        for first, sequence, chain in _templated_chains(mapping, proteins, path):
            template = template_of_file(file, chain, sequence, path, mapping.line)
            templates[first] = (*templates.get(first, ()), template)
    return templates


def _checked_template(mapping: MappingWithLines, path: str) -> MappingWithLines:
    """Return a template, after checking that it asks for nothing that is not supported."""
    check_keys(mapping, _TEMPLATE_KEYS, path)
    if "pdb" in mapping and "cif" in mapping:
        raise InputError("both 'cif' and 'pdb' are given", path, mapping.line_of("pdb"))
    find_unsupported(mapping, {"threshold": "templates enforced by a potential"}, path)
    if read_flag(mapping, "force", path):
        raise InputError("templates enforced by a potential (force) are not supported", path, mapping.line)
    return mapping


def _templated_chains(
    mapping: MappingWithLines, proteins: Mapping[str, tuple[str, str]], path: str
) -> list[tuple[str, str, str | None]]:
    """Return first chain and sequence of each protein that a template is given to, and the template's chain.

    The template's chain is None for any; see `_templates`.
    """
    requested = read_chains(mapping, "chain_id", path) if mapping.get("chain_id") else ()
    ids = read_chains(mapping, "template_id", path) if mapping.get("template_id") else ()
    if unknown := [name for name in requested if name not in proteins]:
        raise InputError(f"template of {unknown[0]!r}: no such protein", path, mapping.line)
    if ids and len(ids) != len(requested):
        reason = f"{len(requested)} chain_id and {len(ids)} template_id"
        raise InputError(reason, path, mapping.line_of("template_id"))
    if not requested:
        return [(*protein, None) for protein in dict.fromkeys(proteins.values())]
    chains = dict(zip((proteins[name] for name in requested), ids or [None] * len(requested), strict=True))
    return [(*protein, chain) for protein, chain in chains.items()]


def _entity(kind: str, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        return _polymer(_POLYMERS[kind], entity, free_names, path)
    if kind != "ligand":
        raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    check_keys(entity, LIGAND_KEYS, path)
    if ("ccd" in entity) == ("smiles" in entity):
        reason = "both 'ccd' and 'smiles' are given" if "ccd" in entity else "no 'ccd' or 'smiles'"
        raise InputError(reason, path, entity.line)
    chains = _chains(entity, free_names, path)
    if "smiles" in entity:
        return Ligand(chains, smiles=required_text(entity, "smiles", path).strip(), line=entity.line)
    codes = entity["ccd"] if isinstance(entity["ccd"], list) else [required_text(entity, "ccd", path)]
    return Ligand(chains, tuple(map(str, codes)), line=entity.line)


def _chains(entity: MappingWithLines, free_names: Iterator[str], path: str) -> tuple[str, ...]:
    """Return the chain ids in the file; without any, the next free one."""
    return (next(free_names),) if entity.get("id") is None else read_chains(entity, "id", path)


def _polymer(kind: MoleculeKind, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Polymer:
    check_keys(entity, POLYMER_KEYS, path)
    line = entity.line_of("sequence")
    sequence = clean_polymer(required_text(entity, "sequence", path), kind, path, line)
    return Polymer(
        kind,
        sequence,
        _chains(entity, free_names, path),
        read_modifications(entity, "ccd", "position", path),
        check_query(_alignment(entity, sequence, path), sequence, path, line),
        is_cyclic=read_flag(entity, "cyclic", path),
        line=entity.line,
    )


def _alignment(entity: MappingWithLines, sequence: str, path: str) -> Alignment | None:
    """Return a chain's alignment: the query alone for `empty`, None if the file names none."""
    if entity.get("msa") is None:
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
