"""Ligands of a screen: tables of SMILES strings and SDF files, and their jobs with each protein."""

import csv
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from rdkit import Chem, rdBase

from features.assembly.job import Ligand, MoleculeJob
from features.chemistry.components import read_component
from features.chemistry.molecules import parse_smiles
from foldcli.inputs.failures import Failures
from foldcli.inputs.formats.job_fields import Refuse
from foldcli.inputs.formats.json_with_lines import decode_utf8
from foldcli.inputs.formats.tables import make_identifier
from foldcli.inputs.molecules.read import name_jobs
from foldcli.inputs.queries import warn_queries
from model.chains import iterate_chain_names
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import clean_header, unique_names

_ID_COLUMNS = ("id", "name", "title", "ligand", "compound", "compound_id", "zinc_id", "chembl_id", "molecule")
_MOLECULE_COLUMNS = ("smiles", "canonical_smiles", "isosmiles", "ccd")
_SDF_END = re.compile(r"^\$\$\$\$", re.MULTILINE)
_SDF_COUNTS = re.compile(r"V[23]000\s*$", re.MULTILINE)
_SDF_PROPERTY = re.compile(r"^>.*<([^>\n]+)>.*\n(.*)$", re.MULTILINE)


def is_ligand_file(path: str) -> bool:
    """Return True for the names of files of ligands: SDF, and tables of SMILES strings, also compressed."""
    name = PurePath(path).name.lower()
    return any(f".{ending}" in name for ending in ("sdf", "smi", "smiles", "csv", "tsv"))


def read_ligands(path: str | os.PathLike[str], failures: Failures) -> list[tuple[str, Ligand]]:
    """Read the ligands of a screen, and return pairs of id and ligand.

    Args:
        path: a table with a column `smiles` or `ccd` and a column `id` or `name`, separated by tabs, commas,
            semicolons or blanks; a list of SMILES strings, each followed by an id (`.smi`); or an SDF file,
            whose ids are the title lines, else a property such as ID. Ligands without id are called
            ligand_N by their number. `-` is standard input.
        failures: receives one error for each row or record that is no ligand.

    Returns:
        The ligands in the order of the file, with distinct ids, the chain id A, and their file and line.

    Raises:
        InputError: the file is not text, or has no rows.
    """
    name = os.fspath(path)
    text = decode_utf8(read_bytes(path), name).replace("\r\n", "\n")
    refuse = partial(failures.add, name)
    is_sdf = _SDF_END.search(text) or _SDF_COUNTS.search(text[:100_000])
    found = list(_sdf_ligands(text, name, refuse) if is_sdf else _table_ligands(text, name, refuse))
    given = [identifier for identifier, _ in found]
    ids = unique_names(given)
    renamings = [f"{old} → {new}" for old, new in zip(given, ids, strict=True) if new != old]
    warn_queries("renamed, because an earlier ligand has the same id", renamings, "ligand")
    return [(identifier, ligand) for identifier, (_, ligand) in zip(ids, found, strict=True)]


def screen_jobs(
    proteins: Sequence[tuple[str, MoleculeJob]], ligands: Sequence[tuple[str, Ligand]]
) -> list[tuple[str, MoleculeJob]]:
    """Return the jobs of each protein with each ligand, named protein_and_ligand.

    Args:
        proteins: names and jobs; a job may have several molecules.
        ligands: result of `read_ligands`.
    """
    jobs = []
    for protein, job in proteins:
        used = {name for entity in job.entities for name in entity.chains}
        free = next(name for name in iterate_chain_names() if name not in used)
        for identifier, ligand in ligands:
            entities = (*job.entities, replace(ligand, chains=(free,)))
            jobs.append(replace(job, name=f"{protein}_and_{identifier}", entities=entities))
    return name_jobs(jobs)


def _table_ligands(text: str, path: str, refuse: Refuse) -> Iterator[tuple[str, Ligand]]:
    """Yield the ligands of a table or of a list of SMILES strings."""
    rows = [(line, row) for line, row in enumerate(text.split("\n"), 1) if row.strip() and row[0] != "#"]
    if not rows:
        raise InputError("no row with a ligand", path)
    separator = next((each for each in "\t,;" if _columns(rows[0][1], each) is not None), None)
    columns = _columns(rows[0][1], separator)
    if columns is None:
        separator = "\t" if "\t" in rows[0][1] else None
    else:
        rows = rows[1:]
        if not rows:
            raise InputError("no row with a ligand", path)
    for number, (line, row) in enumerate(rows, 1):
        try:
            yield _row_ligand(row, separator, columns, path, line, number)
        except InputError as error:
            refuse(InputError(error.reason, path, line))


def _columns(row: str, separator: str | None) -> tuple[int, int | None, bool] | None:
    """Return the columns of molecule and id, and whether the molecule is a code; None without a header."""
    names = [name.strip().strip('"').lower() for name in row.split(separator)]
    molecule = next((names.index(name) for name in _MOLECULE_COLUMNS if name in names), None)
    if molecule is None:
        return None
    identifier = next((names.index(name) for name in _ID_COLUMNS if name in names), None)
    return molecule, identifier, names[molecule] == "ccd"


def _row_ligand(
    row: str,
    separator: str | None,
    columns: tuple[int, int | None, bool] | None,
    path: str,
    line: int,
    number: int,
) -> tuple[str, Ligand]:
    """Return the id and the ligand of a row; raise InputError if it is none."""
    try:
        fields = next(csv.reader([row], delimiter=separator)) if separator else row.split(maxsplit=1)
    except csv.Error as error:
        raise InputError(f"not a row of a table: {error}") from None
    molecule, identifier, is_code = columns or (0, 1 if len(fields) > 1 else None, False)
    if len(fields) <= max(molecule, identifier or 0):
        raise InputError(f"{len(fields)} fields, fewer than the first line has")
    text = fields[molecule].strip()
    if not text:
        raise InputError("no SMILES string" if not is_code else "no component code")
    name = _identifier(fields[identifier] if identifier is not None else "", number)
    if is_code:
        read_component(text)
        return name, Ligand(("A",), (text.upper(),), line=line, path=path)
    parse_smiles(text)
    return name, Ligand(("A",), smiles=text, line=line, path=path)


def _identifier(text: str, number: int) -> str:
    """Return an id as one word, or one made of the number if there is none."""
    return make_identifier(clean_header(text)) if text.strip() else f"ligand_{number}"


def _sdf_ligands(text: str, path: str, refuse: Refuse) -> Iterator[tuple[str, Ligand]]:
    start, line = 0, 1
    ends = [match.start() for match in _SDF_END.finditer(text)]
    for number, end in enumerate([*ends, len(text)], 1):
        record, first = text[start:end], line
        following = text.find("\n", end)
        start = len(text) if following < 0 else following + 1
        line += text.count("\n", end - len(record), start)
        if not record.strip():
            continue
        try:
            yield _record_ligand(record, path, first, number)
        except InputError as error:
            refuse(InputError(error.reason, path, first))


def _record_ligand(record: str, path: str, line: int, number: int) -> tuple[str, Ligand]:
    """Return the id and the ligand of an SDF record; raise InputError if RDKit cannot read it."""
    with rdBase.BlockLogs():
        try:
            molecule = Chem.MolFromMolBlock(record, removeHs=False)
            if molecule is None or molecule.GetNumAtoms() == 0:
                raise InputError("RDKit cannot read the molecule of this record")
            if molecule.GetNumConformers() and molecule.GetConformer().Is3D():
                Chem.AssignStereochemistryFrom3D(molecule)
            smiles = Chem.MolToSmiles(Chem.RemoveHs(molecule))
        except (ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"RDKit cannot read the molecule of this record: {error}") from None
    parse_smiles(smiles)
    properties = {match[1].strip().lower(): match[2].strip() for match in _SDF_PROPERTY.finditer(record)}
    given = [record.split("\n", 1)[0].strip(), *(properties.get(name, "") for name in _ID_COLUMNS)]
    name = _identifier(next(filter(None, given), ""), number)
    return name, Ligand(("A",), smiles=smiles, line=line, path=path)
