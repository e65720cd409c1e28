"""Proteins in Boltz's YAML. A job with anything else becomes an UnsupportedRecord."""

from collections.abc import Mapping

from features.assembly.job import OwnTemplate
from foldcli.inputs.complexes import Complex
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
from foldcli.inputs.formats.json_with_lines import MappingWithLines, parse_yaml_with_lines
from foldcli.inputs.protein_jobs import ProteinJob
from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

_BOLTZ_UNSUPPORTED_KINDS = {"rna": "RNA", "dna": "DNA", "ligand": "a ligand"}
# sections of a job that are not supported unless empty
_BOLTZ_UNSUPPORTED_SECTIONS = {"constraints": "constraints", "properties": "properties"}
_BOLTZ_TEMPLATE_KEYS = ("cif", "pdb", "chain_id", "template_id", "force", "threshold")
_BOLTZ_PROTEIN_KEYS = ("id", "sequence", "msa", "modifications", "cyclic")


def parse_boltz(data: bytes, path: str, name: str) -> list[FastaRecord | Complex]:
    """Parse a YAML file for Boltz, which has one job.

    Args:
        data: decompressed YAML.
        path: file name for errors.
        name: name of the query, because the file has none.

    Returns:
        One query: an AlignedRecord for a chain with an alignment, a Complex for several chains, an
        UnsupportedRecord if the job contains anything else.

    Raises:
        InputError: invalid YAML, an invalid job, or an unreadable alignment; names the line.
    """
    content = as_mapping(parse_yaml_with_lines(data, path), "the file", path, 1)
    check_keys(content, ("version", "sequences", "templates", *_BOLTZ_UNSUPPORTED_SECTIONS), path)
    check_boltz_version(content, path)
    job = ProteinJob(name, path, content.line)
    for kind, entity in read_entities(content, path):
        job.add_ids(entity)
        if kind == "protein":
            _add_boltz_protein(job, entity)
        elif kind in _BOLTZ_UNSUPPORTED_KINDS:
            job.add_unsupported(_BOLTZ_UNSUPPORTED_KINDS[kind])
        else:
            raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    for key, description in _BOLTZ_UNSUPPORTED_SECTIONS.items():
        if items := content.get(key):
            kinds = dict.fromkeys(kind for item in items if isinstance(item, dict) for kind in item)
            job.add_unsupported(f"{description} ({', '.join(kinds)})" if kinds else description)
    for first, templates in boltz_templates(content, job.proteins, path).items():
        for number, name in enumerate(job.first_chains):
            if name == first:
                job.templates[number] = templates
    return [job.build_query()]


def check_boltz_version(content: MappingWithLines, path: str) -> None:
    """Raise InputError for another version of Boltz's format than 1, which a file need not name."""
    if content.get("version") not in (None, "1"):
        reason = f"version {content['version']!r:.20}: only version 1 is known"
        raise InputError(reason, path, content.line_of("version"))


def _add_boltz_protein(job: "ProteinJob", entity: MappingWithLines) -> None:
    check_keys(entity, _BOLTZ_PROTEIN_KEYS, job.path)
    identifiers = entity.get("id")
    if entity.get("modifications"):
        job.add_unsupported("modified residues")
    copies = len(identifiers) if isinstance(identifiers, list) else 1
    if read_flag(entity, "cyclic", job.path):
        first = len(job.chains)
        job.cyclic.update(range(first, first + copies))
    job.add_chain(entity, copies, _boltz_alignment(job, entity))


def _boltz_alignment(job: "ProteinJob", entity: MappingWithLines) -> Alignment | None:
    """Return the chain's alignment, or None; formats other than A3M are recorded as unsupported content."""
    if entity.get("msa") is None:
        return None
    file, line = required_text(entity, "msa", job.path), entity.line_of("msa")
    if file in ("empty", "0"):
        job.add_unsupported(f"msa: {file}, which means no alignment (use `foldcli predict`)")
    elif file.lower().endswith(".csv"):
        job.add_unsupported("an alignment as a table (.csv) instead of A3M")
    else:
        return read_named_alignment(job.path, file, line)
    return None


def boltz_templates(
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
    check_keys(mapping, _BOLTZ_TEMPLATE_KEYS, path)
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

    The template's chain is None for any; see `boltz_templates`.
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
