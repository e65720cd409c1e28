"""Protein chains of mmCIF and PDB files, read by the rules of AlphaFold2's mmCIF parser."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import gemmi
import numpy as np

from features.templates.library.chains import MIN_RESIDUES, TemplateChain
from features.templates.library.coordinate_codec import MAX_COORDINATE
from msa.base.errors import InputError
from msa.base.residues import ATOM37
from msa.database.file_names import MANIFEST
from msa.io.compression import SUFFIXES as COMPRESSED_SUFFIXES
from msa.io.fasta import clean_header
from msa.io.structures import parent_letter, polymer_sequence, read_structure

STRUCTURE_SUFFIXES = (".cif", ".mmcif", ".pdb", ".ent")
_ATOM_INDEX = {name: index for index, name in enumerate(ATOM37)}
_CD, _NH1, _NH2 = (ATOM37.index(name) for name in ("CD", "NH1", "NH2"))


def find_structure_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the structure files among paths: files of any name, and files in folders by their suffix.

    Folders are searched recursively, in the order of names.

    Raises:
        InputError: a path does not exist, or a folder holds no structure file.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_file():
            found.append(path)
            continue
        if not path.is_dir():
            raise InputError("no such file or folder", path)
        inside = sorted(file for file in path.rglob("*") if is_structure_file(file.name) and file.is_file())
        if not inside:
            if (path / MANIFEST).is_file():
                raise InputError("a database of `foldcli createdb`, not a folder of structure files", path)
            raise InputError(f"no structure files ({', '.join(STRUCTURE_SUFFIXES)}) in this folder", path)
        found += inside
    return found


def is_structure_file(name: str) -> bool:
    """Return whether a file is a structure by its name, such as 1abc.cif.gz."""
    return not name.startswith(".") and _without_compression(name).endswith(STRUCTURE_SUFFIXES)


def entry_id(path: str | os.PathLike[str]) -> str:
    """Return the entry that a file name stands for: 1abc of 1abc.cif.gz and of pdb1abc.ent.gz."""
    name = Path(path).name
    stem = name[: len(_without_compression(name))]
    for suffix in STRUCTURE_SUFFIXES:
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    if match := re.fullmatch(r"pdb([0-9][0-9a-z]{3})", stem):
        stem = match[1]
    return stem


def _without_compression(name: str) -> str:
    lower = name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        lower = lower.removesuffix(suffix)
    return lower


def entry_ids(paths: Sequence[Path]) -> list[str]:
    """Return a distinct entry for each file; files of one name have their folders' or whole name in it."""
    ids = [entry_id(path) for path in paths]
    for distinguish in (_with_folders, _with_suffix):
        groups: dict[str, list[int]] = {}
        for k, name in enumerate(ids):
            groups.setdefault(name, []).append(k)
        for group in groups.values():
            if len(group) > 1:
                common = os.path.commonpath([paths[k].absolute().parent for k in group])
                for k in group:
                    ids[k] = distinguish(ids[k], paths[k], common)
    return ids


def _with_folders(name: str, path: Path, common: str) -> str:
    return "_".join([*path.absolute().parent.relative_to(common).parts, name])


def _with_suffix(name: str, path: Path, common: str) -> str:
    return name.removesuffix(entry_id(path)) + path.name


def read_chains(
    path: str | os.PathLike[str],
    entry: str | None = None,
    remarks: list[str] | None = None,
    min_residues: int = MIN_RESIDUES,
) -> list[TemplateChain]:
    """Read the protein chains of the first model of an mmCIF or PDB file, compressed or not.

    As in AlphaFold2's parser, the sequence is that of the polymer (SEQRES), residues without coordinates
    included; of alternative locations the one with the highest occupancy counts, the first of equals;
    modified residues have the letter of their parent; the selenium of MSE becomes SD; NH1 of arginine is the
    one closer to CD. Without a polymer sequence, the residues with coordinates are the sequence.

    Args:
        path: the file.
        entry: first part of the chains' names; None for that of the file name.
        remarks: list to which lines about what was renamed, divided or left out are added.
        min_residues: number of residues with coordinates that a chain needs.

    Returns:
        The chains with enough residues with coordinates, in the file's order, without duplicate names.

    Raises:
        InputError: the file is not a structure, is damaged, or has no such chain.
    """
    file = read_structure(path)
    structure = file.structure
    if len(structure) == 0:
        raise InputError("no coordinates", path)
    entry, source = entry or entry_id(path), Path(path).name
    remarks = [] if remarks is None else remarks
    remarks += file.remarks
    chains: dict[str, TemplateChain] = {}
    for chain in structure[0]:
        polymer = chain.get_polymer()
        entity = structure.get_entity_of(polymer) if len(polymer) else None
        if entity is None or not _is_protein(entity, polymer):
            continue
        name = re.sub(r"\s", "_", clean_header(f"{entry}_{chain.name}"))
        template = _read_chain(name, polymer, entity, file.release_date, source)
        # negated, so that NaN counts too
        if not np.all(np.abs(template.positions) < MAX_COORDINATE):
            raise InputError(f"chain {chain.name}: coordinates that are missing or too large", path)
        if template.resolved >= min_residues:
            chains.setdefault(name, template)
        else:
            remarks.append(f"chain {chain.name} left out: {template.resolved} residues of {min_residues}")
    if not chains:
        raise InputError(f"no protein chain with at least {min_residues} residues", path)
    return list(chains.values())


def _is_protein(entity: gemmi.Entity, polymer: gemmi.ResidueSpan) -> bool:
    kind = entity.polymer_type
    if kind == gemmi.PolymerType.Unknown:
        kind = polymer.check_polymer_type()
    return kind in (gemmi.PolymerType.PeptideL, gemmi.PolymerType.PeptideD)


def _read_chain(
    name: str, polymer: gemmi.ResidueSpan, entity: gemmi.Entity, release_date: str | None, source: str
) -> TemplateChain:
    residues = list(polymer.first_conformer())
    names, indices = polymer_sequence(entity, residues)
    positions = np.zeros((len(names), len(ATOM37), 3), np.float32)
    mask = np.zeros((len(names), len(ATOM37)), bool)
    for index, residue in zip(indices, residues, strict=True):
        _read_atoms(residue, positions[index], mask[index])
    letters = "".join(parent_letter(name) for name in names)
    return TemplateChain(name, letters, positions, mask, release_date, source)


def _read_atoms(residue: gemmi.Residue, positions: np.ndarray, mask: np.ndarray) -> None:
    """Fill the positions [37, 3] and the mask [37] of one residue."""
    occupancy: dict[int, float] = {}
    for atom in residue:
        index = _ATOM_INDEX.get(atom.name)
        if index is not None and atom.occ > occupancy.get(index, -1.0):
            occupancy[index] = atom.occ
            positions[index] = atom.pos.tolist()
            mask[index] = True
    if residue.name == "ARG" and mask[[_CD, _NH1, _NH2]].all():
        distances = np.linalg.norm(positions[[_NH1, _NH2]] - positions[_CD], axis=1)
        if distances[0] > distances[1]:
            positions[[_NH1, _NH2]] = positions[[_NH2, _NH1]]
