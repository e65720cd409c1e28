"""Queries in JSON for OpenFold3."""

import contextlib
from typing import Any

from features.assembly.job import Entity, JobTemplate, Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from features.templates.job_templates import read_template_file
from foldcli.inputs.formats.job_fields import (
    Refuse,
    check_chains,
    check_query,
    clean_code,
    find_named_file,
    named_paths,
    query_alignment,
    raise_error,
    read_bond,
    read_chains,
    read_codes,
    read_each,
    read_named_alignment,
    read_seeds,
    read_sequence,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, as_mapping
from msa.alignments.files import Alignment, join_alignments
from msa.base.errors import InputError
from msa.io.compression import list_folder

QUERY_KEYS = (
    "query_name", "chains", "use_msas", "use_paired_msas", "use_main_msas", "covalent_bonds",
    "pocket_constraint",
)  # fmt: skip
_POLYMER_KEYS = (
    "sequence", "non_canonical_residues", "paired_msa_file_paths", "main_msa_file_paths",
    "template_alignment_file_path", "template_entry_chain_ids", "template_cif_paths",
    "template_cif_chain_ids", "cyclic",
)  # fmt: skip
_LIGAND_KEYS = ("smiles", "ccd_codes", "sdf_file_path")
CHAIN_KEYS = ("molecule_type", "chain_ids", "description", *_POLYMER_KEYS, *_LIGAND_KEYS)
_UNSUPPORTED = {
    "template_alignment_file_path": "template alignments (give template_cif_paths)",
    "sdf_file_path": "ligands in SDF files (give smiles)",
}  # fmt: skip


def openfold3_jobs(content: Any, path: str, refuse: Refuse = raise_error) -> list[MoleculeJob]:
    """Return the jobs of a JSON file: one job per query.

    Args:
        content: result of `parse_json_with_lines`.
        path: file name for errors, to whose folder the names of other files are relative.
        refuse: called with the error of each query that cannot be read, which names its line.

    Raises:
        InputError: the file has no queries.
    """
    content = as_mapping(content, "the file", path)
    content.check_keys(("seeds", "queries"))
    queries = content.mapping("queries")
    if not queries:
        raise content.error("no query", "queries")
    seeds = read_seeds(content, "seeds")
    return read_each(queries, lambda name: _job(name, queries.mapping(name, "a query"), seeds), refuse)


def _job(name: str, query: MappingWithLines, seeds: tuple[int, ...]) -> MoleculeJob:
    query.check_keys(QUERY_KEYS)
    query.refuse({"pocket_constraint": "pocket constraints"})
    entities = tuple(_entity(chain, query) for chain in query_chains(query))
    key = "covalent_bonds"
    bonds = tuple(read_bond(query, key, bond) for bond in query.elements(key))
    return MoleculeJob(name, entities, bonds, seeds, path=query.path, line=query.line)


def query_chains(query: MappingWithLines) -> list[MappingWithLines]:
    """Return the chains of a query.

    Raises:
        InputError: there are none, one is not a mapping, or two have one id.
    """
    if not isinstance(query.get("chains"), list) or not query["chains"]:
        raise query.error("no list 'chains'", "chains")
    chains = list(query.mappings("chains", "a chain"))
    check_chains(chains, "chain_ids")
    return chains


def _entity(chain: MappingWithLines, query: MappingWithLines) -> Entity:
    """Return a polymer or a ligand."""
    chain.check_keys(CHAIN_KEYS)
    chain.refuse(_UNSUPPORTED)
    text = chain.text("molecule_type").upper()
    if text not in MoleculeKind.__members__:
        raise chain.error(f"unknown molecule_type {text!r:.40}", "molecule_type")
    kind = MoleculeKind[text]
    others = _POLYMER_KEYS if kind == MoleculeKind.LIGAND else _LIGAND_KEYS
    if other := next((key for key in others if chain.get(key) not in (None, [], {}, "", False)), None):
        raise chain.error(f"a chain of molecule_type {text.lower()} has no {other!r}", other)
    names = read_chains(chain, "chain_ids")
    if kind == MoleculeKind.LIGAND:
        if chain.get("smiles") and chain.get("ccd_codes"):
            raise chain.error("both 'smiles' and 'ccd_codes' are given", "ccd_codes")
        if chain.get("smiles"):
            return Ligand(names, smiles=chain.text("smiles").strip(), line=chain.line)
        return Ligand(names, read_codes(chain, "ccd_codes"), line=chain.line)
    sequence = read_sequence(chain, kind)
    main, paired = (_alignment(chain, query, key, sequence) for key in ("main", "paired"))
    if main is None and kind != MoleculeKind.DNA and not _uses(query, "main"):
        main = query_alignment(sequence)  # and no search
    cyclic = chain.flag("cyclic")
    modifications = _modifications(chain)
    templates = _templates(chain, sequence)
    return Polymer(kind, sequence, names, modifications, main, paired, templates, cyclic, chain.line)


def _templates(chain: MappingWithLines, sequence: str) -> tuple[JobTemplate, ...] | None:
    """Return the templates of a chain from the structure files that it names; None if it names none."""
    key, chain_key = "template_cif_paths", "template_cif_chain_ids"
    files, line = _file_names(chain, key), chain.line_of(key)
    if not files:
        chain.refuse({chain_key: "chains of templates without template_cif_paths"})
        return None
    names = chain.get(chain_key) or [None] * len(files)
    names = names if isinstance(names, list) else [names]
    if len(names) != len(files) or any(name is not None and not isinstance(name, str) for name in names):
        raise chain.error(f"{chain_key!r} is not a list of a chain id per file", chain_key)
    found = [find_named_file(chain.path, file, "template file", line) for file in files]
    return tuple(
        read_template_file(file, name, sequence, chain.path, line)
        for file, name in zip(found, names, strict=True)
    )


def _modifications(chain: MappingWithLines) -> tuple[Modification, ...]:
    key = "non_canonical_residues"
    if not chain.get(key):
        return ()
    residues = chain.mapping(key)
    return tuple(
        Modification(residues.number(x, x, repr(key)), clean_code(residues.text(x))) for x in residues
    )


def _alignment(
    chain: MappingWithLines, query: MappingWithLines, kind: str, sequence: str
) -> Alignment | None:
    """Return the alignment of a chain from its files; None without, or if the query uses none."""
    key = f"{kind}_msa_file_paths"
    if not chain.get(key) or not _uses(query, kind):
        return None
    files = [file for name in sorted(_file_names(chain, key)) for file in _files_of(chain.path, name)]
    line = chain.line_of(key)
    alignments = [read_named_alignment(chain.path, file, line) for file in files]
    for each in alignments[1:]:
        if each.query != alignments[0].query:
            raise InputError("the first row differs from that of the chain's other alignment", each.source)
    return check_query(join_alignments(alignments), sequence, chain.path, chain.line_of("sequence"))


def _file_names(chain: MappingWithLines, key: str) -> list[str]:
    """Return the files that a chain names: a list, or a single one."""
    names = chain.get(key) or []
    names = names if isinstance(names, list) else [names]
    if any(not isinstance(name, str) for name in names):
        raise chain.error(f"{key!r} is not a list of files", key)
    return names


def _uses(query: MappingWithLines, kind: str) -> bool:
    """Return whether a query uses main or paired alignments."""
    return all(query.flag(key, default=True) for key in ("use_msas", f"use_{kind}_msas"))


def _files_of(path: str, name: str) -> list[str]:
    """Return the alignment files of a folder that a chain names, or the name itself."""
    for folder in named_paths(path, name):
        with contextlib.suppress(OSError, ValueError):  # such as a name that is too long
            if folder.is_dir():
                return sorted(str(file.absolute()) for file in list_folder(folder)) or [name]
    return [name]
