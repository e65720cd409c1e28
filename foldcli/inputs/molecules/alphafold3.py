"""Jobs in JSON for AlphaFold 3 (versions 1 to 4) and for AlphaFold Server."""

from collections.abc import Iterator
from typing import Any

from features.assembly.job import Bond, Entity, Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.alphafold3_jobs import alphafold3_templates, check_alphafold3_version, check_count
from foldcli.inputs.formats.job_fields import (
    as_mapping,
    check_keys,
    find_unsupported,
    read_chains,
    read_entities,
    read_named_alignment,
    read_number,
    read_seeds,
    required_text,
    text_or_file,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines
from foldcli.inputs.molecules.fields import (
    Refuse,
    check_query,
    clean_polymer,
    query_alignment,
    raise_error,
    read_bond,
    read_each,
    read_modifications,
)
from foldcli.inputs.molecules.glycans import attach_glycans, parse_glycan
from model.chains import iterate_chain_names
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError

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
_MAX_COPIES = 10_000


def alphafold3_jobs(content: Any, path: str, refuse: Refuse = raise_error) -> list[MoleculeJob]:
    """Return the jobs of a JSON file: one job, or a list of jobs.

    Args:
        content: result of `parse_json_with_lines`.
        path: file name for errors, to whose folder the names of other files in it are relative.
        refuse: called with the error of each job that cannot be read, which names its line.

    Raises:
        InputError: the list has no job.
    """
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise InputError("no job in the list", path, 1)
    return read_each(jobs, lambda job: _job(as_mapping(job, "a job", path, 1), path), refuse)


def _job(content: MappingWithLines, path: str) -> MoleculeJob:
    check_keys(content, JOB_KEYS, path)
    check_alphafold3_version(content, path)
    items = read_entities(content, path)
    used = {name for _, entity in items if "id" in entity for name in read_chains(entity, "id", path)}
    free_names = (name for name in iterate_chain_names() if name not in used)
    entities = [_entity(kind, entity, free_names, path) for kind, entity in items]
    glycan_bonds: list[Bond] = []
    for (_, entity), polymer in zip(items, tuple(entities), strict=True):
        if isinstance(polymer, Polymer) and entity.get("glycans"):
            ligands, bonds = _glycans(entity, polymer, free_names, path)
            entities += ligands
            glycan_bonds += bonds
    return MoleculeJob(
        required_text(content, "name", path),
        tuple(entities),
        (*_bonds(content, path), *glycan_bonds),
        read_seeds(content, "modelSeeds", path),
        _components(content, path),
        path,
        content.line,
    )


def _entity(kind: str, entity: MappingWithLines, free_names: Iterator[str], path: str) -> Entity:
    """Return a polymer or a ligand."""
    if kind in _POLYMERS:
        return _polymer(_POLYMERS[kind], entity, free_names, path)
    if kind in ("ligand", "ion"):
        return _ligand(kind, entity, free_names, path)
    raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)


def _chains(entity: MappingWithLines, free_names: Iterator[str], path: str) -> tuple[str, ...]:
    """Return the chain ids: those in the file, or with AlphaFold Server's count the next free ones."""
    if "id" in entity:
        chains = read_chains(entity, "id", path)
        check_count(entity, chains, path)
        return chains
    copies = read_number(entity.get("count", 1), "count", path, entity.line_of("count"))
    if not 1 <= copies <= _MAX_COPIES:
        reason = f"count is {copies}: expected a number from 1 to {_MAX_COPIES:,}"
        raise InputError(reason, path, entity.line_of("count"))
    return tuple(next(free_names) for _ in range(copies))


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
        alphafold3_templates(entity, sequence, path),
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


def _bonds(content: MappingWithLines, path: str) -> tuple[Bond, ...]:
    """Return the covalent bonds of a job."""
    pairs: Any = content.get("bondedAtomPairs") or []
    line = content.line_of("bondedAtomPairs")
    if not isinstance(pairs, list):
        raise InputError("'bondedAtomPairs' is not a list", path, line)
    return tuple(read_bond(pair, "bondedAtomPairs", path, line) for pair in pairs)


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
