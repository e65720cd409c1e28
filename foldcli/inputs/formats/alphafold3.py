"""Jobs in JSON for AlphaFold 3 (versions 1 to 4) and for AlphaFold Server."""

from collections.abc import Iterator
from typing import Any

from features.assembly.job import Bond, Entity, Ligand, MoleculeJob, OwnTemplate, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.glycans import attach_glycans, parse_glycan
from foldcli.inputs.formats.job_fields import (
    OtherContent,
    Refuse,
    as_mapping,
    check_keys,
    check_query,
    clean_polymer,
    find_unsupported,
    free_chain_names,
    other_content_of_protein,
    query_alignment,
    raise_error,
    read_bond,
    read_chains,
    read_each,
    read_entities,
    read_flag,
    read_modifications,
    read_named_alignment,
    read_number,
    read_seeds,
    required_text,
    text_or_file,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines
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
    return read_each(
        list_jobs(content, path), lambda job: read_job(as_mapping(job, "a job", path, 1), path), refuse
    )


def list_jobs(content: Any, path: str) -> list[Any]:
    """Return the jobs of a JSON file: one job, or a list of jobs; raise InputError for an empty list."""
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise InputError("no job in the list", path, 1)
    return jobs


def read_job(content: MappingWithLines, path: str, only_proteins: bool = False) -> MoleculeJob:
    """Return a job.

    Args:
        content: the job.
        path: see `alphafold3_jobs`.
        only_proteins: refuse all that networks of proteins do not take.

    Raises:
        InputError: an invalid job; names the line.
        OtherContent: the job has other content than proteins, and `only_proteins` is set.
    """
    check_keys(content, JOB_KEYS, path)
    _check_version(content, path)
    name, seeds = required_text(content, "name", path), read_seeds(content, "modelSeeds", path)
    items = read_entities(content, path)
    if only_proteins:
        OtherContent.check(_other_content(content, items), path, content.line)
    free_names = free_chain_names(items)
    entities = [_entity(kind, entity, free_names, path) for kind, entity in items]
    bonds = _bonds(content, path)
    for (_, entity), polymer in zip(items, tuple(entities), strict=True):
        if isinstance(polymer, Polymer) and entity.get("glycans"):
            ligands, links = _glycans(entity, polymer, free_names, path)
            entities += ligands
            bonds += links
    components = "" if only_proteins else _components(content, path)
    return MoleculeJob(name, tuple(entities), tuple(bonds), seeds, components, path, content.line)


def _check_version(content: MappingWithLines, path: str) -> None:
    """Raise InputError for an unknown dialect of the format, or an unknown version of it."""
    dialect = content.get("dialect", "alphafold3")
    if not isinstance(dialect, str) or dialect not in _VERSIONS:
        reason = f"unknown dialect {dialect!r:.40}: expected {' or '.join(_VERSIONS)}"
        raise InputError(reason, path, content.line_of("dialect"))
    version = content.get("version", 1)
    if version not in _VERSIONS[dialect]:
        known = ", ".join(map(str, _VERSIONS[dialect]))
        reason = f"version {version!r:.20} of {dialect}: versions {known} are known"
        raise InputError(reason, path, content.line_of("version"))


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


def _entity(kind: str, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        return _polymer(_POLYMERS[kind], entity, free_names, path)
    if kind in ("ligand", "ion"):
        return _ligand(kind, entity, free_names, path)
    raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)


def _chains(entity: MappingWithLines, free_names: Iterator[str], path: str) -> tuple[str, ...]:
    """Return the chain ids: those in the file, or with AlphaFold Server's count the next free ones."""
    count = entity.get("count", 1)
    if entity.get("id") is not None:
        chains = read_chains(entity, "id", path)
        if entity.get("count", len(chains)) != len(chains):
            reason = f"count is {count!r:.40}, and 'id' has {len(chains)}"
            raise InputError(reason, path, entity.line_of("count"))
        return chains
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_COPIES:
        reason = f"count is {count!r:.40}: expected a number from 1 to {_MAX_COPIES:,}"
        raise InputError(reason, path, entity.line_of("count"))
    return tuple(next(free_names) for _ in range(count))


def _polymer(kind: MoleculeKind, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Polymer:
    check_keys(entity, POLYMER_KEYS, path)
    line = entity.line_of("sequence")
    sequence = clean_polymer(required_text(entity, "sequence", path), kind, path, line)
    is_protein = kind == MoleculeKind.PROTEIN
    if not is_protein:
        find_unsupported(entity, _OF_PROTEINS, path)
    code_key, position_key = (
        ("ptmType", "ptmPosition") if is_protein else ("modificationType", "basePosition")
    )
    return Polymer(
        kind,
        sequence,
        _chains(entity, free_names, path),
        read_modifications(entity, code_key, position_key, path),
        check_query(_alignment(entity, "unpairedMsa", sequence, path), sequence, path, line),
        check_query(_alignment(entity, "pairedMsa", "", path), sequence, path, line),
        _templates(entity, sequence, path),
        line=entity.line,
    )


def _glycans(
    entity: MappingWithLines, polymer: Polymer, free_names: Iterator[str], path: str
) -> tuple[list[Ligand], list[Bond]]:
    line = entity.line_of("glycans")
    if not isinstance(entity["glycans"], list):
        raise InputError("'glycans' is not a list", path, line)
    glycans = []
    modified = {modification.position for modification in polymer.modifications}
    for item in entity["glycans"]:
        mapping = as_mapping(item, "a glycan", path, line)
        check_keys(mapping, ("residues", "position"), path)
        position = read_number(mapping.get("position"), "position", path, mapping.line_of("position"))
        if position in modified:
            raise InputError(f"glycan: residue {position:,} is modified", path, mapping.line_of("position"))
        modified.add(position)
        text = required_text(mapping, "residues", path)
        glycans.append(parse_glycan(text, position, path, mapping.line_of("residues")))
    return attach_glycans(polymer.sequence, polymer.chains, glycans, free_names, path, line)


def _alignment(entity: MappingWithLines, key: str, query: str, path: str) -> Alignment | None:
    """Return an alignment given as text or by its file.

    Empty text means no alignment: the query alone, or None without a query.
    """
    if entity.get(f"{key}Path") is not None:
        if entity.get(key):
            reason = f"both {key!r} and '{key}Path' are given"
            raise InputError(reason, path, entity.line_of(f"{key}Path"))
        return read_named_alignment(
            path, required_text(entity, f"{key}Path", path), entity.line_of(f"{key}Path")
        )
    text = entity.get(key)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{key!r} is not text", path, entity.line_of(key))
    if not text.strip():
        return query_alignment(query) if query else None
    try:
        return parse_alignment(text.encode())
    except InputError as error:
        raise InputError(f"{key}: {error.reason}", path, entity.line_of(key)) from None


def _templates(entity: MappingWithLines, sequence: str, path: str) -> tuple[OwnTemplate, ...] | None:
    """Return the templates of a chain; None if the file leaves the search to the program."""
    items = entity.get("templates")
    line = entity.line_of("templates")
    if entity.get("maxTemplateDate") is not None:
        logger.warning("%s:%d: maxTemplateDate is ignored", path, entity.line_of("maxTemplateDate"))
    if items is None:
        return None if read_flag(entity, "useStructureTemplate", path, default=True) else ()
    if not isinstance(items, list):
        raise InputError("'templates' is not a list", path, line)
    result = []
    for item in items:
        mapping = as_mapping(item, "a template", path, line)
        check_keys(mapping, _TEMPLATE_KEYS, path)
        text = text_or_file(mapping, "mmcif", "mmcifPath", path)
        query = _positions(mapping, "queryIndices", path)
        template = _positions(mapping, "templateIndices", path)
        if len(query) != len(template):
            reason = f"{len(query):,} queryIndices and {len(template):,} templateIndices"
            raise InputError(reason, path, mapping.line_of("templateIndices"))
        if any(position >= len(sequence) for position in query):
            reason = f"queryIndices go up to {max(query):,}: the last residue is {len(sequence) - 1:,}"
            raise InputError(reason, path, mapping.line_of("queryIndices"))
        result.append(OwnTemplate(text, query, template, path=path, line=mapping.line))
    return tuple(result)


def _positions(mapping: MappingWithLines, key: str, path: str) -> tuple[int, ...]:
    """Return a list of 0-based positions; raise InputError for anything else."""
    values = mapping.get(key)
    line = mapping.line_of(key)
    if not isinstance(values, list):
        raise InputError(f"{key!r} is not a list of positions", path, line)
    positions = tuple(read_number(value, key, path, line) for value in values)
    if any(position < 0 for position in positions):
        raise InputError(f"{key!r} has a negative position", path, line)
    return positions


def _ligand(kind: str, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Ligand:
    check_keys(entity, LIGAND_KEYS, path)
    given = [key for key in ("ccdCodes", "smiles", "ligand", "ion") if entity.get(key)]
    if len(given) != 1:
        expected = "'ion'" if kind == "ion" else "'ccdCodes' or 'smiles'"
        reason = f"no {expected}" if not given else f"both {given[0]!r} and {given[1]!r} are given"
        raise InputError(reason, path, entity.line)
    chains = _chains(entity, free_names, path)
    if given == ["smiles"]:
        return Ligand(chains, smiles=required_text(entity, "smiles", path).strip(), line=entity.line)
    value = entity[given[0]]
    codes = value if isinstance(value, list) else [value]
    if any(not isinstance(code, str) or not code.strip() for code in codes):
        raise InputError(f"{given[0]!r} is not a component code", path, entity.line_of(given[0]))
    return Ligand(chains, tuple(code.removeprefix("CCD_") for code in codes), line=entity.line)


def _bonds(content: MappingWithLines, path: str) -> list[Bond]:
    """Return the covalent bonds of a job."""
    pairs: Any = content.get("bondedAtomPairs") or []
    line = content.line_of("bondedAtomPairs")
    if not isinstance(pairs, list):
        raise InputError("'bondedAtomPairs' is not a list", path, line)
    return [read_bond(pair, "bondedAtomPairs", path, line) for pair in pairs]


def _components(content: MappingWithLines, path: str) -> str:
    """Return the mmCIF text of the components that the user defines; empty without."""
    if not content.get("userCCD") and not content.get("userCCDPath"):
        return ""
    # imports biotite, which takes a second and is not needed by other jobs
    from features.chemistry.components import parse_components

    text = text_or_file(content, "userCCD", "userCCDPath", path)
    line = content.line_of("userCCDPath" if content.get("userCCDPath") else "userCCD")
    file = content["userCCDPath"] if content.get("userCCDPath") else None
    try:
        parse_components(text, file)
    except InputError as error:
        raise InputError(f"userCCD: {error}", path, line) from None
    return text
