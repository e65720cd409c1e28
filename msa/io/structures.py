"""The reader of structure files, mmCIF and PDB, that all commands share.

It names the chains, ends them where a molecule ends, and gives residues the names of the twenty amino acids
where they are one of these under another name. What it changes is listed in `StructureFile.remarks`.
"""

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import gemmi
from Bio.Data.PDBData import protein_letters_3to1_extended

from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.structure_chains import (
    FORCE_FIELD_NAMES,
    divide_molecules,
    is_amino_acid,
    name_molecules,
    name_molecules_of_block,
    name_polymers,
)

# residues of the PDB with such a name, which have an atom that the amino acid has not
_OTHER_RESIDUES = {"HSE": "OD", "HIP": "P"}
_CIF_START = re.compile(rb"\s*(#[^\n]*\s*)*data_", re.IGNORECASE)
_PDB_RECORD = re.compile(rb"^(ATOM  |HETATM|HEADER|MODEL )", re.MULTILINE)
# gemmi reports the position of an error in a string as "string:LINE:COLUMN(OFFSET): reason"
GEMMI_LOCATION = re.compile(r"string:(\d+):\d+(?:\(\d+\))?: (.*)", re.DOTALL)
# columns that every mmCIF file with atoms must have
_ATOM_TAGS = ("_atom_site.group_PDB", *(f"_atom_site.label_{part}_id" for part in ("atom", "comp", "asym")))
# columns of coordinates in a PDB file, from 0
_COORDINATES = (30, 38, 46)
_ATOM_RECORDS = ("ATOM", "HETATM")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_AMINO_ACIDS = {
    letter: gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA) for letter in "ACDEFGHIKLMNPQRSTVWY"
}


@dataclass(frozen=True, eq=False)
class StructureFile:
    """The content of a structure file.

    Args:
        structure: the structure, with entities; of a PDB file, residues of proteins are polymers.
        release_date: first release of the entry, YYYY-MM-DD; None if unknown.
        remarks: lines about what was renamed, divided or left out.
    """

    structure: gemmi.Structure
    release_date: str | None = None
    remarks: list[str] = field(default_factory=list)


def read_structure(path: str | os.PathLike[str], keep_modified: bool = False) -> StructureFile:
    """Read an mmCIF or PDB file, compressed or not, recognised by its content.

    Args:
        path: the file.
        keep_modified: keep the names and atoms of modified amino acids, instead of those of the amino acids
            that they derive from.

    Raises:
        InputError: the file is not a structure, or is damaged.
        OSError: the file cannot be read.
    """
    content = read_bytes(path).removeprefix(_BYTE_ORDER_MARK)
    remarks: list[str] = []
    release_date = None
    try:
        if _CIF_START.match(content):
            block = gemmi.cif.read_string(content.decode("utf-8", "replace"))[0]
            columns = set(block.find_mmcif_category("_atom_site.").tags)
            missing = [tag for tag in _ATOM_TAGS if tag not in columns]
            if columns and missing:
                raise InputError(f"its atoms lack {', '.join(missing)}", path)
            if block.find_values("_entity.type"):
                remarks += name_polymers(block)
                structure = gemmi.make_structure_from_block(block)
            else:
                names = name_molecules_of_block(block)
                structure = gemmi.make_structure_from_block(block)
                remarks += divide_molecules(structure, names)
            release_date = _release_date(block)
        elif _PDB_RECORD.search(content):
            # other characters would take two of the bytes by which gemmi counts columns
            text = content.decode("latin-1").encode("ascii", "replace").decode()
            text, after_end = _atoms_before_end(text, path)
            remarks += after_end
            text, names = name_molecules(text)
            structure = gemmi.read_pdb_string(text)
            remarks += divide_molecules(structure, names)
        else:
            raise InputError("neither an mmCIF nor a PDB file", path)
    except InputError:
        raise
    except (ValueError, RuntimeError, IndexError) as error:
        line, reason = None, " ".join(str(error).split())
        if match := GEMMI_LOCATION.match(reason):
            line, reason = int(match[1]), match[2]
        raise InputError(f"cannot be read: {reason}", path, line) from None
    structure.setup_entities()
    # before residues get other names than in the sequence
    if any(residue.label_seq is None for model in structure for c in model for residue in c.get_polymer()):
        structure.assign_label_seq_id()
    remarks += _rename_residues(structure, keep_modified)
    structure.setup_entities()
    return StructureFile(structure, release_date, remarks)


def polymer_sequence(entity: gemmi.Entity, residues: Iterable[gemmi.Residue]) -> tuple[list[str], list[int]]:
    """Return the residue names of a polymer's sequence, and the index in it of each residue.

    Where residues differ between molecules, the first name counts. If the file has no sequence, or a residue
    has no place in it, the residues with coordinates are the sequence.
    """
    residues = list(residues)
    names = [gemmi.Entity.first_mon(item) for item in entity.full_sequence]
    numbers = [residue.label_seq or 0 for residue in residues]
    if names and all(1 <= number <= len(names) for number in numbers):
        return names, [number - 1 for number in numbers]
    positions: dict[str, tuple[int, str]] = {}
    indices = []
    for residue in residues:
        index, _ = positions.setdefault(str(residue.seqid), (len(positions), residue.name))
        indices.append(index)
    return [name for _, name in positions.values()], indices


def keep_one_conformer(structure: gemmi.Structure) -> None:
    """Keep one of several locations of each atom, and one of several residue types at one position.

    The location with the highest occupancy counts, the first of equals, and the first residue type. Molecules
    that happen to have the number of another residue are kept.
    """
    for model in structure:
        for chain in model:
            positions: set[str] = set()
            repeated = []
            for k, residue in enumerate(chain):
                if any(atom.has_altloc() for atom in residue):
                    repeated += [k] if str(residue.seqid) in positions else []
                    positions.add(str(residue.seqid))
                _keep_one_location(residue)
            for k in reversed(repeated):
                del chain[k]


def _keep_one_location(residue: gemmi.Residue) -> None:
    best: dict[str, int] = {}
    for k, atom in enumerate(residue):
        if atom.name not in best or atom.occ > residue[best[atom.name]].occ:
            best[atom.name] = k
        atom.altloc = "\0"
    for k in reversed(range(len(residue))):
        if best[residue[k].name] != k:
            del residue[k]


def parent_letter(name: str) -> str:
    """Return the letter of an amino acid, of the parent of a modified one; X without one."""
    code = protein_letters_3to1_extended.get(name.ljust(3))
    if code is None:
        known = gemmi.find_tabulated_residue(name)
        code = known.one_letter_code.upper() if known.is_amino_acid() else "X"
    return code if len(code) == 1 and code.isalpha() else "X"


def listed(names: list[str], count: int = 5) -> str:
    """Return the first names, and the number of others."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def _atoms_before_end(text: str, path: str | os.PathLike[str]) -> tuple[str, list[str]]:
    """Return the text of a PDB file before END, where gemmi ends, and a line about the atoms after it.

    Raises:
        InputError: an atom has no coordinates, which gemmi would read as zeros.
    """
    lines = text.splitlines(keepends=True)
    end = next((k for k, line in enumerate(lines) if line[:4].rstrip() == "END"), len(lines))
    for number, line in enumerate(lines[:end], 1):
        if not line.startswith(_ATOM_RECORDS):
            continue
        try:
            is_placed = all(math.isfinite(float(line[k : k + 8])) for k in _COORDINATES)
        except ValueError:
            is_placed = False
        if not is_placed:
            raise InputError("an atom without numbers in columns 31 to 54", path, number)
    num_after = sum(line.startswith(_ATOM_RECORDS) for line in lines[end:])
    remarks = [f"left out: {num_after} atoms after END in line {end + 1}"] if num_after else []
    return "".join(lines[:end]), remarks


def _release_date(block: gemmi.cif.Block) -> str | None:
    """Return the oldest revision date of an entry."""
    dates = [value.strip("'\"") for value in block.find_values("_pdbx_audit_revision_history.revision_date")]
    return min((date for date in dates if re.fullmatch(r"\d{4}-\d\d-\d\d", date)), default=None)


def _rename_residues(structure: gemmi.Structure, keep_modified: bool) -> list[str]:
    """Give residues with names of force fields, and modified ones unless kept, those of amino acids.

    Returns:
        Lines about the replaced and the unknown residues of the first model.
    """
    replaced: dict[str, str] = {}
    unknown: list[str] = []
    others: set[str] = set()
    for number, model in enumerate(structure):
        for chain in model:
            for residue in chain:
                if not is_amino_acid(residue) or residue.entity_type == gemmi.EntityType.NonPolymer:
                    continue
                name, where = residue.name, f"{residue.name} {chain.name}{residue.seqid}"
                new = _amino_acid(residue)
                if name in FORCE_FIELD_NAMES and new != FORCE_FIELD_NAMES[name]:
                    others.add(name)
                if new is None:
                    unknown += [where] if number == 0 else []
                elif new != name and (name in FORCE_FIELD_NAMES or not keep_modified):
                    _rename(residue, new)
                    if number == 0:
                        replaced[where] = new
    for entity in structure.entities:
        entity.full_sequence = [_force_field_sequence(item, others) for item in entity.full_sequence]
    remarks = []
    if replaced:
        remarks.append("replaced " + listed([f"{where} by {new}" for where, new in replaced.items()]))
    if unknown:
        remarks.append(f"of unknown type: {listed(unknown)}")
    return remarks


def _force_field_sequence(item: str, others: set[str]) -> str:
    """Return a position of a sequence without names of force fields, but for those that `others` use."""
    names = item.split(",")
    return ",".join(name if name in others else FORCE_FIELD_NAMES.get(name, name) for name in names)


def _amino_acid(residue: gemmi.Residue) -> str | None:
    """Return the name of the amino acid that a residue is or derives from; None without one."""
    name = residue.name
    if name in FORCE_FIELD_NAMES:
        other = _OTHER_RESIDUES.get(name)
        if other is None or residue.find_atom(other, "*") is None:
            return FORCE_FIELD_NAMES[name]
    return _AMINO_ACIDS.get(parent_letter(name))


def _rename(residue: gemmi.Residue, name: str) -> None:
    """Rename a residue; the selenium of MSE and SEC becomes sulfur."""
    residue.name = name
    residue.het_flag = "A"
    for atom in residue:
        if name in ("MET", "CYS") and "SE" in (atom.name.upper(), atom.element.name.upper()):
            atom.name, atom.element = ("SD" if name == "MET" else "SG"), gemmi.Element("S")
