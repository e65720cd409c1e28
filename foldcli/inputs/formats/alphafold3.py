"""Jobs in JSON for AlphaFold 3 (versions 1 to 4) and for AlphaFold Server."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from features.alphafold3.found_alignments import pair_given_rows
from features.assembly.job import Bond, Entity, JobTemplate, Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.glycans import attach_glycans, parse_glycan
from foldcli.inputs.formats.job_fields import (
    OtherContent,
    Refuse,
    check_query,
    free_chain_names,
    other_content_of_protein,
    query_alignment,
    raise_error,
    read_bond,
    read_chains,
    read_codes,
    read_each,
    read_entities,
    read_modifications,
    read_named_alignment,
    read_seeds,
    read_sequence,
    text_or_file,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, as_mapping
from foldcli.logs import logger
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError

_VERSIONS = {"alphafold3": (1, 2, 3, 4), "alphafoldserver": (1,)}
JOB_KEYS = (
    "name", "modelSeeds", "sequences", "bondedAtomPairs", "userCCD", "userCCDPath", "dialect", "version",
)  # fmt: skip
_POLYMERS = {
    "protein": MoleculeKind.PROTEIN, "proteinChain": MoleculeKind.PROTEIN,
    "rna": MoleculeKind.RNA, "rnaSequence": MoleculeKind.RNA,
    "dna": MoleculeKind.DNA, "dnaSequence": MoleculeKind.DNA,
}  # fmt: skip
POLYMER_KEYS = (
    "id", "count", "sequence", "modifications", "description", "unpairedMsa", "unpairedMsaPath", "pairedMsa",
    "pairedMsaPath", "templates", "glycans", "useStructureTemplate", "maxTemplateDate",
)  # fmt: skip
LIGAND_KEYS = ("id", "count", "ccdCodes", "smiles", "ligand", "ion", "description")
# what only proteins have
_OF_PROTEINS = {
    "templates": "templates of nucleic acids",
    "pairedMsa": "paired alignments of nucleic acids",
    "pairedMsaPath": "paired alignments of nucleic acids",
    "glycans": "glycans of nucleic acids",
}
_OTHER_KINDS = {
    "rna": "RNA", "rnaSequence": "RNA", "dna": "DNA", "dnaSequence": "DNA",
    "ligand": "a ligand", "ion": "an ion",
}  # fmt: skip
_TEMPLATE_KEYS = ("mmcif", "mmcifPath", "queryIndices", "templateIndices")
_MAX_COPIES = 10_000


def alphafold3_jobs(content: Any, path: str, refuse: Refuse = raise_error) -> list[MoleculeJob]:
    """Return the jobs of a JSON file.

    Args:
        content: result of `parse_json_with_lines`.
        path: file name for errors, to whose folder the names of other files in it are relative.
        refuse: called with the error of each job that cannot be read, which names its line.

    Raises:
        InputError: the list has no job.
    """
    return read_each(list_jobs(content, path), lambda job: read_job(as_mapping(job, "a job", path)), refuse)


def list_jobs(content: Any, path: str) -> list[Any]:
    """Return the jobs of a JSON file: one job, or a list of jobs; raise InputError for an empty list."""
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise InputError("no job in the list", path, 1)
    return jobs


def read_job(content: MappingWithLines, only_proteins: bool = False) -> MoleculeJob:
    """Return a job.

    Args:
        content: the job.
        only_proteins: refuse all that networks of proteins do not take.

    Raises:
        InputError: an invalid job; names the line.
        OtherContent: the job has other content than proteins, and `only_proteins` is set.
    """
    content.check_keys(JOB_KEYS)
    _check_version(content)
    name, seeds = content.text("name"), read_seeds(content, "modelSeeds")
    items = read_entities(content)
    if only_proteins:
        OtherContent.check(_other_content(content, items), content)
    free_names = free_chain_names(items)
    entities = [_entity(kind, entity, free_names) for kind, entity in items]
    pairs = content.elements("bondedAtomPairs")
    bonds = [read_bond(content, "bondedAtomPairs", pair) for pair in pairs]
    for (_, entity), polymer in zip(items, tuple(entities), strict=True):
        if isinstance(polymer, Polymer) and entity.get("glycans"):
            ligands, links = _glycans(entity, polymer, free_names)
            entities += ligands
            bonds += links
    if not only_proteins:
        entities = _with_paired_rows(items, entities)
    components = "" if only_proteins else _components(content)
    return MoleculeJob(name, tuple(entities), tuple(bonds), seeds, components, content.path, content.line)


def _check_version(content: MappingWithLines) -> None:
    """Raise InputError for an unknown dialect of the format, or an unknown version of it."""
    dialect = content.get("dialect", "alphafold3")
    if not isinstance(dialect, str) or dialect not in _VERSIONS:
        raise content.error(f"unknown dialect {dialect!r:.40}: expected {' or '.join(_VERSIONS)}", "dialect")
    version = content.get("version", 1)
    if version not in _VERSIONS[dialect]:
        known = ", ".join(map(str, _VERSIONS[dialect]))
        raise content.error(f"version {version!r:.20} of {dialect}: versions {known} are known", "version")


def _other_content(content: MappingWithLines, items: list[tuple[str, MappingWithLines]]) -> Iterator[str]:
    """Yield descriptions of what networks of proteins do not take; see `OtherContent`."""
    if all(kind in _OTHER_KINDS for kind, _ in items):
        yield "no protein chain"
    for kind, entity in items:
        if kind in _OTHER_KINDS:
            yield _OTHER_KINDS[kind]
        elif kind in _POLYMERS:
            yield from other_content_of_protein(entity)
            for key in ("unpairedMsa", "unpairedMsaPath"):
                if isinstance(entity.get(key), str) and not entity[key].strip():
                    yield f"an empty {key}, which means no alignment (use `foldcli predict`)"
    if content.get("bondedAtomPairs"):
        yield "bonds (bondedAtomPairs)"


def _entity(kind: str, entity: MappingWithLines, free_names: Iterator[str]) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        return _polymer(_POLYMERS[kind], entity, free_names)
    if kind in ("ligand", "ion"):
        return _ligand(kind, entity, free_names)
    raise entity.error(f"unknown kind of chain {kind!r}")


def _chains(entity: MappingWithLines, free_names: Iterator[str]) -> tuple[str, ...]:
    """Return the chain ids: those in the file, or with AlphaFold Server's count the next free ones."""
    count = entity.get("count", 1)
    if entity.get("id") is not None:
        chains = read_chains(entity, "id")
        if entity.get("count", len(chains)) != len(chains):
            raise entity.error(f"count is {count!r:.40}, and 'id' has {len(chains)}", "count")
        return chains
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_COPIES:
        raise entity.error(f"count is {count!r:.40}: expected a number from 1 to {_MAX_COPIES:,}", "count")
    return tuple(next(free_names) for _ in range(count))


def _polymer(kind: MoleculeKind, entity: MappingWithLines, free_names: Iterator[str]) -> Polymer:
    entity.check_keys(POLYMER_KEYS)
    sequence = read_sequence(entity, kind)
    is_protein = kind == MoleculeKind.PROTEIN
    if not is_protein:
        entity.refuse(_OF_PROTEINS)
    code_key, position_key = (
        ("ptmType", "ptmPosition") if is_protein else ("modificationType", "basePosition")
    )
    return Polymer(
        kind,
        sequence,
        _chains(entity, free_names),
        read_modifications(entity, code_key, position_key),
        _alignment(entity, "unpairedMsa", sequence),
        _alignment(entity, "pairedMsa", sequence),
        _templates(entity, sequence),
        line=entity.line,
    )


def _with_paired_rows(items: list[tuple[str, MappingWithLines]], entities: list[Entity]) -> list[Entity]:
    """Return the molecules with the rows of `pairedMsa` paired by species, as AlphaFold 3 does.

    Empty text next to an `unpairedMsa` means no paired rows, which is the query alone.
    """
    proteins = {
        index: entity
        for index, entity in enumerate(entities)
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.PROTEIN
    }
    if len({protein.sequence for protein in proteins.values()}) < 2:
        return entities
    for index, protein in proteins.items():
        item = items[index][1]
        if item.get("pairedMsa") is None or protein.paired is not None:
            continue
        if protein.alignment is not None:
            proteins[index] = replace(protein, paired=query_alignment(protein.sequence))
        else:
            line = item.line_of("pairedMsa")
            logger.warning("%s:%d: an empty pairedMsa without unpairedMsa is ignored", item.path, line)
    paired = dict(zip(proteins, pair_given_rows(list(proteins.values())), strict=True))
    if _has_pairs(proteins.values()) and not _has_pairs(paired.values()):
        job = items[0][1]
        logger.warning("%s:%d: pairedMsa: no species has rows of several chains", job.path, job.line)
    return [paired.get(index, entity) for index, entity in enumerate(entities)]


def _has_pairs(polymers: Iterable[Polymer]) -> bool:
    return any(polymer.paired is not None and len(polymer.paired) > 1 for polymer in polymers)


def _glycans(
    entity: MappingWithLines, polymer: Polymer, free_names: Iterator[str]
) -> tuple[list[Ligand], list[Bond]]:
    glycans = []
    modified = {modification.position for modification in polymer.modifications}
    for item in entity.mappings("glycans", "a glycan", ("residues", "position")):
        position = item.number("position")
        if position in modified:
            raise item.error(f"glycan: residue {position:,} is modified", "position")
        modified.add(position)
        text = item.text("residues")
        glycans.append(parse_glycan(text, position, item.path, item.line_of("residues")))
    line = entity.line_of("glycans")
    return attach_glycans(polymer.sequence, polymer.chains, glycans, free_names, entity.path, line)


def _alignment(entity: MappingWithLines, key: str, sequence: str) -> Alignment | None:
    """Return an alignment given as text or by its file.

    Empty text means no alignment: the query alone, or None for a paired alignment.
    """
    text, path_key = entity.get(key), f"{key}Path"
    if entity.get(path_key) is not None:
        if text:
            raise entity.error(f"both {key!r} and {path_key!r} are given", path_key)
        name = entity.text(path_key)
        alignment = read_named_alignment(entity.path, name, entity.line_of(path_key))
    elif text is None:
        return None
    elif not isinstance(text, str):
        raise entity.error(f"{key!r} is not text", key)
    elif not text.strip():
        return query_alignment(sequence) if key == "unpairedMsa" else None
    else:
        try:
            alignment = parse_alignment(text.encode())
        except InputError as error:
            raise entity.error(f"{key}: {error.reason}", key) from None
    return check_query(alignment, sequence, entity.path, entity.line_of("sequence"))


def _templates(entity: MappingWithLines, sequence: str) -> tuple[JobTemplate, ...] | None:
    """Return the templates of a chain; None if the file leaves the search to the program."""
    if entity.get("maxTemplateDate") is not None:
        line = entity.line_of("maxTemplateDate")
        logger.warning("%s:%d: maxTemplateDate is ignored", entity.path, line)
    if entity.get("templates") is None:
        return None if entity.flag("useStructureTemplate", default=True) else ()
    result = []
    for item in entity.mappings("templates", "a template", _TEMPLATE_KEYS):
        text = text_or_file(item, "mmcif", "mmcifPath")
        query, template = _positions(item, "queryIndices"), _positions(item, "templateIndices")
        if len(query) != len(template):
            reason = f"{len(query):,} queryIndices and {len(template):,} templateIndices"
            raise item.error(reason, "templateIndices")
        if any(position >= len(sequence) for position in query):
            reason = f"queryIndices go up to {max(query):,}: the last residue is {len(sequence) - 1:,}"
            raise item.error(reason, "queryIndices")
        result.append(JobTemplate(text, query, template, path=item.path, line=item.line))
    return tuple(result)


def _positions(mapping: MappingWithLines, key: str) -> tuple[int, ...]:
    """Return a list of 0-based positions; raise InputError for anything else."""
    if not isinstance(values := mapping.get(key), list):
        raise mapping.error(f"{key!r} is not a list of positions", key)
    positions = tuple(mapping.number(key, value) for value in values)
    if any(position < 0 for position in positions):
        raise mapping.error(f"{key!r} has a negative position", key)
    return positions


def _ligand(kind: str, entity: MappingWithLines, free_names: Iterator[str]) -> Ligand:
    entity.check_keys(LIGAND_KEYS)
    given = [key for key in ("ccdCodes", "smiles", "ligand", "ion") if entity.get(key)]
    if len(given) != 1:
        expected = "'ion'" if kind == "ion" else "'ccdCodes' or 'smiles'"
        raise entity.error(f"no {expected}" if not given else f"both {given[0]!r} and {given[1]!r} are given")
    chains = _chains(entity, free_names)
    if given == ["smiles"]:
        return Ligand(chains, smiles=entity.text("smiles").strip(), line=entity.line)
    return Ligand(chains, read_codes(entity, given[0]), line=entity.line)


def _components(content: MappingWithLines) -> str:
    """Return the mmCIF text of the components that the user defines; empty without."""
    if not content.get("userCCD") and not content.get("userCCDPath"):
        return ""
    # imports biotite, which takes a second and is not needed by other jobs
    from features.chemistry.components import parse_components

    text, key = text_or_file(content, "userCCD", "userCCDPath"), "userCCDPath"
    try:
        parse_components(text, content.get(key) or None)
    except InputError as error:
        raise content.error(f"userCCD: {error}", key if content.get(key) else "userCCD") from None
    return text
