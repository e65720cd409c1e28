"""Queries in JSON for OpenFold3."""

import contextlib
from pathlib import Path
from typing import Any

from features.assembly.job import Entity, Ligand, Modification, MoleculeJob, OwnTemplate, Polymer
from features.chemistry.residue_classes import MoleculeKind
from features.templates.own_templates import template_of_file
from foldcli.inputs.formats.job_fields import (
    Refuse,
    as_mapping,
    check_keys,
    check_query,
    clean_polymer,
    find_named_file,
    find_unsupported,
    join_alignments,
    query_alignment,
    raise_error,
    read_bond,
    read_chains,
    read_each,
    read_flag,
    read_named_alignment,
    read_number,
    read_seeds,
    required_text,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines
from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.io.compression import list_folder

QUERY_KEYS = (
    "query_name", "chains", "use_msas", "use_paired_msas", "use_main_msas", "covalent_bonds",
    "pocket_constraint",
)  # fmt: skip
CHAIN_KEYS = (
    "molecule_type", "chain_ids", "description", "sequence", "non_canonical_residues", "smiles", "ccd_codes",
    "paired_msa_file_paths", "main_msa_file_paths", "template_alignment_file_path",
    "template_entry_chain_ids",
    "template_cif_paths", "template_cif_chain_ids", "sdf_file_path", "cyclic",
)  # fmt: skip
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
    content = as_mapping(content, "the file", path, 1)
    check_keys(content, ("seeds", "queries"), path)
    queries = as_mapping(content.get("queries"), "'queries'", path, content.line_of("queries"))
    if not queries:
        raise InputError("no query", path, content.line_of("queries"))
    seeds = read_seeds(content, "seeds", path)

    def read(name: str) -> MoleculeJob:
        return _job(name, as_mapping(queries[name], "a query", path, queries.line_of(name)), seeds, path)

    return read_each(queries, read, refuse)


def _job(name: str, query: MappingWithLines, seeds: tuple[int, ...], path: str) -> MoleculeJob:
    check_keys(query, QUERY_KEYS, path)
    find_unsupported(query, {"pocket_constraint": "pocket constraints"}, path)
    chains, line = query.get("chains"), query.line_of("chains")
    if not isinstance(chains, list) or not chains:
        raise InputError("no list 'chains'", path, line)
    bonds: Any = query.get("covalent_bonds") or []
    if not isinstance(bonds, list):
        raise InputError("'covalent_bonds' is not a list", path, query.line_of("covalent_bonds"))
    return MoleculeJob(
        name,
        tuple(_entity(as_mapping(chain, "a chain", path, line), query, path) for chain in chains),
        tuple(read_bond(bond, "covalent_bonds", path, query.line_of("covalent_bonds")) for bond in bonds),
        seeds,
        path=path,
        line=query.line,
    )


def _entity(chain: MappingWithLines, query: MappingWithLines, path: str) -> Entity:
    """Return a polymer or a ligand."""
    check_keys(chain, CHAIN_KEYS, path)
    find_unsupported(chain, _UNSUPPORTED, path)
    text = required_text(chain, "molecule_type", path).upper()
    if text not in MoleculeKind.__members__:
        raise InputError(f"unknown molecule_type {text!r:.40}", path, chain.line_of("molecule_type"))
    kind = MoleculeKind[text]
    names = read_chains(chain, "chain_ids", path)
    if kind == MoleculeKind.LIGAND:
        if chain.get("smiles") and chain.get("ccd_codes"):
            raise InputError("both 'smiles' and 'ccd_codes' are given", path, chain.line_of("ccd_codes"))
        if chain.get("smiles"):
            return Ligand(names, smiles=required_text(chain, "smiles", path).strip(), line=chain.line)
        return Ligand(names, read_chains(chain, "ccd_codes", path), line=chain.line)
    line = chain.line_of("sequence")
    sequence = clean_polymer(required_text(chain, "sequence", path), kind, path, line)
    main, paired = (
        check_query(_alignment(chain, query, key, path), sequence, path, line) for key in ("main", "paired")
    )
    if main is None and kind != MoleculeKind.DNA and not _uses(query, "main", path):
        main = query_alignment(sequence)  # and no search
    cyclic = read_flag(chain, "cyclic", path)
    modifications = _modifications(chain, path)
    templates = _templates(chain, sequence, path)
    return Polymer(kind, sequence, names, modifications, main, paired, templates, cyclic, chain.line)


def _templates(chain: MappingWithLines, sequence: str, path: str) -> tuple[OwnTemplate, ...] | None:
    """Return the templates of a chain from the structure files that it names; None if it names none."""
    key, chain_key = "template_cif_paths", "template_cif_chain_ids"
    if not chain.get(key):
        find_unsupported(chain, {chain_key: "chains of templates without template_cif_paths"}, path)
        return None
    files, line = chain[key], chain.line_of(key)
    files = files if isinstance(files, list) else [files]
    names = chain.get(chain_key) or [None] * len(files)
    names = names if isinstance(names, list) else [names]
    if any(not isinstance(name, str) for name in files):
        raise InputError(f"{key!r} is not a list of files", path, line)
    if len(names) != len(files) or any(name is not None and not isinstance(name, str) for name in names):
        raise InputError(
            f"{chain_key!r} is not a list of a chain id per file", path, chain.line_of(chain_key)
        )
    return tuple(
        template_of_file(find_named_file(path, file, "template file", line), name, sequence, path, line)
        for file, name in zip(files, names, strict=True)
    )


def _modifications(chain: MappingWithLines, path: str) -> tuple[Modification, ...]:
    key = "non_canonical_residues"
    if not chain.get(key):
        return ()
    residues = as_mapping(chain[key], repr(key), path, chain.line_of(key))
    return tuple(
        Modification(
            read_number(position, key, path, residues.line_of(position)),
            required_text(residues, position, path),
        )
        for position in residues
    )


def _alignment(chain: MappingWithLines, query: MappingWithLines, kind: str, path: str) -> Alignment | None:
    """Return the alignment of a chain from its files; None without, or if the query uses none."""
    key = f"{kind}_msa_file_paths"
    names = chain.get(key) or []
    if not names or not _uses(query, kind, path):
        return None
    line = chain.line_of(key)
    names = names if isinstance(names, list) else [names]
    if any(not isinstance(name, str) for name in names):
        raise InputError(f"{key!r} is not a list of files", path, line)
    files = [file for name in sorted(names) for file in _files_of(path, name)]
    return join_alignments([read_named_alignment(path, file, line) for file in files])


def _uses(query: MappingWithLines, kind: str, path: str) -> bool:
    """Return whether a query uses main or paired alignments."""
    return all(read_flag(query, key, path, default=True) for key in ("use_msas", f"use_{kind}_msas"))


def _files_of(path: str, name: str) -> list[str]:
    """Return the alignment files of a folder that a chain names, or the name itself."""
    for folder in (Path(path).parent / name, Path(name)) if path != "-" else (Path(name),):
        with contextlib.suppress(OSError, ValueError):  # such as a name that is too long
            if folder.is_dir():
                return sorted(str(file.absolute()) for file in list_folder(folder)) or [name]
    return [name]
