"""Jobs in YAML for Boltz."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from features.assembly.job import Bond, Entity, JobTemplate, Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.job_fields import (
    POLYMERS,
    OtherContent,
    check_query,
    find_named_file,
    free_chain_names,
    other_content_of_protein,
    query_alignment,
    read_bond,
    read_chains,
    read_codes,
    read_entities,
    read_modifications,
    read_named_alignment,
    read_sequence,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, as_mapping, parse_yaml_with_lines
from foldcli.inputs.formats.tables import table_rows
from msa.alignments.files import Alignment, parse_alignment
from msa.io.compression import read_bytes

JOB_KEYS = ("version", "sequences", "constraints", "templates", "properties")
_UNSUPPORTED = {"properties": "properties such as affinity"}
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
    content = as_mapping(parse_yaml_with_lines(data, path), "the file", path)
    content.check_keys(JOB_KEYS)
    if content.get("version") not in (None, "1"):
        raise content.error(f"version {content['version']!r:.20}: only version 1 is known", "version")
    items = [(kind.lower(), entity) for kind, entity in read_entities(content)]
    if only_proteins:
        OtherContent.check(_other_content(content, items), content)
    content.refuse(_UNSUPPORTED)
    free_names = free_chain_names(items)
    entities = _add_templates([_entity(kind, entity, free_names) for kind, entity in items], content)
    return MoleculeJob(name, entities, tuple(_bonds(content)), path=path, line=content.line)


def _other_content(content: MappingWithLines, items: list[tuple[str, MappingWithLines]]) -> Iterator[str]:
    """Yield descriptions of what networks of proteins do not take; see `OtherContent`."""
    if all(kind in _OTHER_KINDS for kind, _ in items):
        yield "no protein chain"
    for kind, entity in items:
        if kind in _OTHER_KINDS:
            yield _OTHER_KINDS[kind]
        elif kind in POLYMERS:
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


def _add_templates(entities: Sequence[Entity], content: MappingWithLines) -> tuple[Entity, ...]:
    """Return the molecules with the templates that the file gives to their chains.

    A template without `chain_id` is given to every protein, as by Boltz; without `template_id`, the chain of
    the file is used whose alignment scores best.
    """
    proteins = {
        name: entity
        for entity in entities
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.PROTEIN
        for name in entity.chains
    }
    if content.get("templates"):
        # imports gemmi, which other jobs do not need
        from features.templates.job_templates import read_template_file
    templates: dict[str, list[JobTemplate]] = {}
    for item in content.mappings("templates", "a template", _TEMPLATE_KEYS):
        has_pdb = item.get("pdb") is not None
        if has_pdb and item.get("cif") is not None:
            raise item.error("both 'cif' and 'pdb' are given", "pdb")
        item.refuse({"threshold": "templates enforced by a potential"})
        if item.flag("force"):
            raise item.error("templates enforced by a potential (force) are not supported")
        name = item.text("pdb" if has_pdb else "cif")
        file = find_named_file(item.path, name, "template file", item.line)
        for first, chain in _templated_chains(item, proteins).items():
            template = read_template_file(file, chain, proteins[first].sequence, item.path, item.line)
            templates.setdefault(first, []).append(template)
    return tuple(
        replace(entity, templates=tuple(templates[entity.chains[0]]))
        if isinstance(entity, Polymer) and entity.chains[0] in templates
        else entity
        for entity in entities
    )


def _templated_chains(template: MappingWithLines, proteins: Mapping[str, Polymer]) -> dict[str, str | None]:
    """Return the chain of the template, None for any, by the first chain of each protein that it is for."""
    requested = read_chains(template, "chain_id") if template.get("chain_id") else ()
    ids = read_chains(template, "template_id") if template.get("template_id") else ()
    if unknown := [name for name in requested if name not in proteins]:
        raise template.error(f"template of {unknown[0]!r}: no such protein")
    if ids and len(ids) != len(requested):
        raise template.error(f"{len(requested)} chain_id and {len(ids)} template_id", "template_id")
    first = [proteins[name].chains[0] for name in requested or proteins]
    return dict(zip(first, ids or [None] * len(first), strict=True))


def _entity(kind: str, entity: MappingWithLines, free_names: Iterator[str]) -> Entity:
    """Return a polymer or a ligand."""
    if kind in POLYMERS:
        return _polymer(POLYMERS[kind], entity, free_names)
    if kind != "ligand":
        raise entity.error(f"unknown kind of chain {kind!r}")
    entity.check_keys(LIGAND_KEYS)
    given = [key for key in ("ccd", "smiles") if entity.get(key) is not None]
    if len(given) != 1:
        raise entity.error("both 'ccd' and 'smiles' are given" if given else "no 'ccd' or 'smiles'")
    chains = _chains(entity, free_names)
    if given == ["smiles"]:
        return Ligand(chains, smiles=entity.text("smiles").strip(), line=entity.line)
    return Ligand(chains, read_codes(entity, "ccd"), line=entity.line)


def _chains(entity: MappingWithLines, free_names: Iterator[str]) -> tuple[str, ...]:
    """Return the chain ids in the file; without any, the next free one."""
    return (next(free_names),) if entity.get("id") is None else read_chains(entity, "id")


def _polymer(kind: MoleculeKind, entity: MappingWithLines, free_names: Iterator[str]) -> Polymer:
    entity.check_keys(POLYMER_KEYS)
    sequence = read_sequence(entity, kind)
    return Polymer(
        kind,
        sequence,
        _chains(entity, free_names),
        read_modifications(entity, "ccd", "position"),
        _alignment(entity, sequence),
        is_cyclic=entity.flag("cyclic"),
        line=entity.line,
    )


def _alignment(entity: MappingWithLines, sequence: str) -> Alignment | None:
    """Return a chain's alignment: the query alone for `empty`, None if the file names none."""
    if entity.get("msa") is None:
        return None
    name, line = entity.text("msa"), entity.line_of("msa")
    if name in ("empty", "0"):
        return query_alignment(sequence)
    if name.lower().endswith(".csv"):
        alignment = _table_alignment(str(find_named_file(entity.path, name, "alignment file", line)))
    else:
        alignment = read_named_alignment(entity.path, name, line)
    return check_query(alignment, sequence, entity.path, entity.line_of("sequence"))


def _table_alignment(path: str) -> Alignment:
    """Return the alignment in Boltz's table of the columns `key` and `sequence`.

    Rows of different chains with the same key are of one species, and can be paired. Programs that write
    empty keys as NaN write all numbers with a decimal point, such as 7.0 for 7.
    """
    records = []
    for number, (_, row) in enumerate(table_rows(read_bytes(path), path, ("key", "sequence"))):
        key = row["key"].strip().removesuffix(".0")
        species = "" if key.lower() in ("", "-1", "nan") else f" TaxID={'_'.join(key.split())}"
        records.append(f">{number}{species}\n{''.join(row['sequence'].split())}\n")
    return parse_alignment("".join(records).encode(), path)


def _bonds(content: MappingWithLines) -> Iterator[Bond]:
    """Yield the covalent bonds; raise InputError for constraints of other kinds."""
    for item in content.mappings("constraints", "a constraint"):
        for kind in item:
            if kind != "bond":
                raise item.error(f"constraints of kind {kind!r} are not supported, only bonds", kind)
            bond = item.mapping(kind, "a bond")
            bond.check_keys(("atom1", "atom2"))
            yield read_bond(bond, "bond", [bond.get("atom1"), bond.get("atom2")])
