"""The heavy atoms of a predicted structure, read from a PDB file."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from msa.errors import InputError

_ONE_LETTER = {
    "ALA": "A", "ARG": "R", "ASN": "N", "ASP": "D", "CYS": "C", "GLN": "Q", "GLU": "E", "GLY": "G",
    "HIS": "H", "ILE": "I", "LEU": "L", "LYS": "K", "MET": "M", "PHE": "F", "PRO": "P", "SER": "S",
    "THR": "T", "TRP": "W", "TYR": "Y", "VAL": "V",
}  # fmt: skip
_BACKBONE = (b"N", b"CA", b"C", b"O")
# first and last column of each field of an ATOM line, from 0
_NAME, _ALTERNATIVE, _COMPONENT, _RESIDUE, _NUMBER = (12, 16), (16, 17), (17, 20), (21, 27), (22, 26)
_XYZ = ((30, 38), (38, 46), (46, 54))
_WIDTH = 54  # columns that are read


@dataclass(frozen=True, eq=False)
class ModelAtoms:
    """The M heavy atoms of a model of N residues, in the order of the residues.

    Args:
        positions: float64 [M, 3], Å.
        names: bytes [M], such as b"CA".
        residues: int64 [M], index of each atom's residue.
        components: residue names such as "MET", N of them; "" for residues without coordinates.
    """

    positions: np.ndarray
    names: np.ndarray
    residues: np.ndarray
    components: tuple[str, ...]

    def atom(self, name: str) -> np.ndarray:
        """Return the positions of one atom of each residue, float64 [N, 3]; NaN where it is missing."""
        found = self.names == name.encode()
        positions = np.full((len(self.components), 3), np.nan)
        positions[self.residues[found]] = self.positions[found]
        return positions

    @cached_property
    def ca(self) -> np.ndarray:
        """Cα positions, float64 [N, 3]; NaN where they are missing."""
        return self.atom("CA")

    def backbone(self) -> "ModelAtoms":
        """Return the model without its side chains."""
        kept = np.isin(self.names, _BACKBONE)
        return ModelAtoms(self.positions[kept], self.names[kept], self.residues[kept], self.components)

    @property
    def sequence(self) -> str:
        """One-letter codes; X for unknown residues and for those without coordinates."""
        return "".join(_ONE_LETTER.get(component, "X") for component in self.components)


def read_model_atoms(path: Path, length: int) -> ModelAtoms:
    """Read the first model of a PDB file.

    Hydrogens, alternative positions and residues without Cα are left out.

    Args:
        path: PDB file.
        length: number of residues N of the target. A file with fewer residues is read by residue number,
            from 1.

    Raises:
        InputError: the file has more residues than the target, or an invalid line; names the line.
    """
    lines, numbers = _atom_lines(path)
    if not lines:
        return ModelAtoms(np.zeros((0, 3)), np.zeros(0, "S4"), np.zeros(0, np.int64), ("",) * length)
    table = np.array(lines, f"S{_WIDTH}").view("S1").reshape(len(lines), _WIDTH)
    names = np.char.strip(_field(table, _NAME))
    # of the standard residues, only hydrogens have names such as HA, 1HB or HG21
    is_hydrogen = np.char.startswith(np.char.lstrip(names, b"0123456789"), b"H")
    kept = ~is_hydrogen & np.isin(_field(table, _ALTERNATIVE), (b"", b" ", b"A"))
    table, names, numbers = table[kept], names[kept], numbers[kept]
    try:
        positions = np.stack([_field(table, columns).astype(np.float64) for columns in _XYZ], 1)
        residue_numbers = _field(table, _NUMBER).astype(np.int64)
        if not np.isfinite(positions).all():
            raise ValueError
    except ValueError as error:
        raise InputError(
            "an atom without number or coordinates", path, _invalid_line(table, numbers)
        ) from error
    keys = _field(table, _RESIDUE)
    order = np.cumsum(np.append(True, keys[1:] != keys[:-1])) - 1
    # residues with a Cα, counted from 0
    ca = np.flatnonzero(names == b"CA")
    ca = ca[np.unique(order[ca], return_index=True)[1]]
    if len(ca) > length:
        raise InputError(f"{len(ca)} residues, but its scores have {length}", path)
    indices = np.arange(length) if len(ca) == length else residue_numbers[ca] - 1
    if (wrong := np.flatnonzero((indices < 0) | (indices >= length))).size:
        raise InputError(f"residue {residue_numbers[ca][wrong[0]]} of {length}", path)
    index_by_order = np.full(int(order[-1]) + 1, -1)
    index_by_order[order[ca]] = indices
    residues = index_by_order[order]
    ordered = np.argsort(residues, kind="stable")[np.count_nonzero(residues < 0) :]
    components = [""] * length
    for index, component in zip(indices, _field(table, _COMPONENT)[ca], strict=True):
        components[index] = component.decode("ascii", "replace").strip()
    return ModelAtoms(positions[ordered], names[ordered], residues[ordered], tuple(components))


def _atom_lines(path: Path) -> tuple[list[bytes], np.ndarray]:
    """Return the ATOM lines of the first model and their numbers, from 1."""
    lines, numbers = [], []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.startswith(b"ATOM  "):
            lines.append(line)
            numbers.append(number)
        elif line.startswith(b"ENDMDL"):
            break
    return lines, np.array(numbers)


def _field(table: np.ndarray, columns: tuple[int, int]) -> np.ndarray:
    """Return a field of all lines, bytes [lines]."""
    start, end = columns
    return np.ascontiguousarray(table[:, start:end]).view(f"S{end - start}")[:, 0]


def _invalid_line(table: np.ndarray, numbers: np.ndarray) -> int:
    """Return the number of the first line without a residue number or coordinates."""
    for row, number in zip(table, numbers, strict=True):
        try:
            int(row[slice(*_NUMBER)].tobytes())
            if not np.isfinite([float(row[slice(*columns)].tobytes()) for columns in _XYZ]).all():
                return int(number)
        except ValueError:
            return int(number)
    raise AssertionError("every line is valid")
