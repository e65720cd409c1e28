"""The heavy atoms of a predicted structure, read from a PDB file, or from mmCIF if it has too many chains."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path

import gemmi
import numpy as np

from msa.base.errors import InputError
from msa.base.residues import LETTERS

_BACKBONE = (b"N", b"CA", b"C", b"O")
# columns of the fields of an ATOM line, from 0: start and end
_NAME, _ALTERNATIVE, _COMPONENT, _RESIDUE, _NUMBER = (12, 16), (16, 17), (17, 20), (21, 27), (22, 26)
_CHAIN = (21, 22)
# the same of a SEQRES line: the chain, and its number of residues
_SEQRES_CHAIN, _SEQRES_COUNT = (11, 12), (13, 17)
_XYZ = ((30, 38), (38, 46), (46, 54))
# number of columns of an ATOM line that are read
_WIDTH = 54


@dataclass(frozen=True, eq=False)
class ModelAtoms:
    """The M heavy atoms of a model of N residues, in the order of the residues.

    Args:
        positions: float64 [M, 3], Å.
        names: bytes [M], such as b"CA".
        residues: int64 [M], index of each atom's residue.
        components: residue names such as "MET", N of them; "" for residues without coordinates.
        chains: name and number of residues of each chain, in order.
    """

    positions: np.ndarray
    names: np.ndarray
    residues: np.ndarray
    components: tuple[str, ...]
    chains: tuple[tuple[str, int], ...]

    def atom(self, name: str) -> np.ndarray:
        """Return the positions of one atom of each residue, float64 [N, 3]; NaN where it is missing."""
        matches = self.names == name.encode()
        positions = np.full((len(self.components), 3), np.nan)
        positions[self.residues[matches]] = self.positions[matches]
        return positions

    def backbone(self) -> "ModelAtoms":
        """Return the model without its side chains."""
        in_backbone = np.isin(self.names, _BACKBONE)
        return replace(
            self,
            positions=self.positions[in_backbone],
            names=self.names[in_backbone],
            residues=self.residues[in_backbone],
        )

    @property
    def chain_starts(self) -> list[int]:
        """Index of the first residue of each chain."""
        return _starts(self.chains)

    @property
    def sequence(self) -> str:
        """One-letter codes; X for unknown residues and for those without coordinates."""
        return "".join(LETTERS.get(component, "X") for component in self.components)


def read_model_atoms(path: Path, length: int) -> ModelAtoms:
    """Read the first model of a PDB file.

    Hydrogens, alternative positions and residues without Cα are left out.

    Args:
        path: PDB file.
        length: number of residues N of the target. If the file has fewer, residue numbers, from 1, determine
            which are missing; if it also has several chains, SEQRES lines must give their lengths.

    Raises:
        InputError: the file has more residues than the target, it lacks residues and does not give the
            lengths of its chains, or a line is invalid; the error names the line.
    """
    lines, line_numbers, declared_lengths = _atom_lines(path)
    if not lines:
        return ModelAtoms(
            np.zeros((0, 3)), np.zeros(0, "S4"), np.zeros(0, np.int64), ("",) * length, (("A", length),)
        )
    table = np.array(lines, f"S{_WIDTH}").view("S1").reshape(len(lines), _WIDTH)
    names = np.char.strip(_field(table, _NAME))
    # of the standard residues, only hydrogens have names such as HA, 1HB or HG21
    is_hydrogen = np.char.startswith(np.char.lstrip(names, b"0123456789"), b"H")
    is_used = ~is_hydrogen & np.isin(_field(table, _ALTERNATIVE), (b"", b" ", b"A"))
    table, names, line_numbers = table[is_used], names[is_used], line_numbers[is_used]
    try:
        positions = np.stack([_field(table, columns).astype(np.float64) for columns in _XYZ], 1)
        residue_numbers = _field(table, _NUMBER).astype(np.int64)
        if not np.isfinite(positions).all():
            raise ValueError
    except ValueError as error:
        raise InputError(
            "an atom without number or coordinates", path, _invalid_line(table, line_numbers)
        ) from error
    keys = _field(table, _RESIDUE)
    # for each atom, the number of its residue in the file, from 0
    file_residues = np.cumsum(np.append(True, keys[1:] != keys[:-1])) - 1
    # the first Cα of each residue that has one
    ca = np.flatnonzero(names == b"CA")
    ca = ca[np.unique(file_residues[ca], return_index=True)[1]]
    if len(ca) > length:
        raise InputError(f"{len(ca)} residues, but its scores have {length}", path)
    chain_by_residue = [name.decode("ascii", "replace").strip() or "A" for name in _field(table, _CHAIN)[ca]]
    chains = _chains(chain_by_residue, declared_lengths, length)
    if chains is None:
        raise InputError(f"{len(ca)} residues of several chains, but its scores have {length}", path)
    indices = np.arange(length)
    if len(ca) != length:
        offsets = dict(zip((name for name, _ in chains), _starts(chains), strict=True))
        indices = residue_numbers[ca] - 1 + np.array([offsets[name] for name in chain_by_residue], np.int64)
    if (out_of_range := np.flatnonzero((indices < 0) | (indices >= length))).size:
        raise InputError(f"residue {residue_numbers[ca][out_of_range[0]]} of {length}", path)
    # -1 for residues without Cα, whose atoms are left out
    index_of_file_residue = np.full(int(file_residues[-1]) + 1, -1)
    index_of_file_residue[file_residues[ca]] = indices
    residues = index_of_file_residue[file_residues]
    ordered = np.argsort(residues, kind="stable")[np.count_nonzero(residues < 0) :]
    components = [""] * length
    for index, component in zip(indices, _field(table, _COMPONENT)[ca], strict=True):
        components[index] = component.decode("ascii", "replace").strip()
    return ModelAtoms(positions[ordered], names[ordered], residues[ordered], tuple(components), chains)


def read_mmcif_atoms(path: Path, length: int) -> ModelAtoms:
    """Read the first model of an mmCIF file whose entities have the sequences of all chains.

    Raises:
        InputError: the file is damaged, or its chains have another length.
    """
    try:
        structure = gemmi.read_structure(os.fspath(path))
        structure.remove_hydrogens()
        structure.remove_alternative_conformations()
        model = structure[0]
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError("not an mmCIF file of a structure", path) from error
    positions: list[list[float]] = []
    names: list[str] = []
    residues: list[int] = []
    components: list[str] = []
    chains: list[tuple[str, int]] = []
    for chain in model:
        start = len(components)
        entity = structure.get_entity_of(chain.get_polymer())
        count = 0 if entity is None else len(entity.full_sequence)
        chains.append((chain.name, count))
        components += [""] * count
        for residue in chain:
            if residue.find_atom("CA", "*") is None:
                continue
            if not residue.label_seq or not 1 <= residue.label_seq <= count:
                raise InputError(f"residue {residue} of chain {chain.name} is not in its sequence", path)
            index = start + residue.label_seq - 1
            components[index] = residue.name
            for atom in residue:
                positions.append(atom.pos.tolist())
                names.append(atom.name)
                residues.append(index)
    if len(components) != length:
        raise InputError(f"{len(components)} residues, but its scores have {length}", path)
    if not np.isfinite(positions).all():
        raise InputError("an atom without coordinates", path)
    return ModelAtoms(
        np.array(positions).reshape(-1, 3), np.array(names, "S4"), np.array(residues, np.int64),
        tuple(components), tuple(chains),
    )  # fmt: skip


def _chains(
    chain_by_residue: Sequence[str], declared_lengths: Mapping[str, int], length: int
) -> tuple[tuple[str, int], ...] | None:
    """Return name and length of each chain; None if the file does not determine them."""
    counts = tuple((name, len(list(group))) for name, group in groupby(chain_by_residue))
    if len(chain_by_residue) == length:
        return counts
    if sum(declared_lengths.values()) == length and declared_lengths.keys() >= set(chain_by_residue):
        return tuple(declared_lengths.items())
    return ((counts[0][0] if counts else "A", length),) if len(counts) <= 1 else None


def _starts(chains: Sequence[tuple[str, int]]) -> list[int]:
    """Return the index of the first residue of each chain."""
    return [0, *accumulate(count for _, count in chains)][:-1]


def _atom_lines(path: Path) -> tuple[list[bytes], np.ndarray, dict[str, int]]:
    """Return the ATOM lines of the first model, their numbers, and the chains' lengths in SEQRES lines."""
    lines, numbers = [], []
    lengths: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.startswith(b"ATOM  "):
            lines.append(line)
            numbers.append(number)
        elif line.startswith(b"SEQRES"):
            count = line[slice(*_SEQRES_COUNT)].strip()
            if count.isdigit():
                lengths[line[slice(*_SEQRES_CHAIN)].decode("ascii", "replace")] = int(count)
        elif line.startswith(b"ENDMDL"):
            break
    return lines, np.array(numbers), lengths


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
