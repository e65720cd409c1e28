"""The heavy atoms of a predicted structure, read from a PDB file, or from mmCIF if it has too many chains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import gemmi
import numpy as np

from msa.base.errors import InputError
from msa.base.residues import LETTERS

_BACKBONE = (b"N", b"CA", b"C", b"O")
# columns of the numbers of an ATOM line, from 0: residue number and coordinates
_NUMBER, _XYZ = slice(22, 26), (slice(30, 38), slice(38, 46), slice(46, 54))


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
        return [0, *accumulate(count for _, count in self.chains)][:-1]

    @property
    def sequence(self) -> str:
        """One-letter codes; X for unknown residues and for those without coordinates."""
        return "".join(LETTERS.get(component, "X") for component in self.components)


def read_model_atoms(path: Path, length: int) -> ModelAtoms:
    """Read the first model of a PDB or mmCIF file.

    Hydrogens, alternative positions and residues without Cα are left out.

    Args:
        path: the file.
        length: number of residues N of the target. If the file has fewer, residue numbers, from 1, determine
            which are missing; if it also has several chains, it must give their sequences (SEQRES in PDB).

    Raises:
        InputError: the file has more residues than the target, it lacks residues and does not give the
            lengths of its chains, or it is damaged; of a PDB file, the error names the line.
    """
    chains = _read_chains(path)
    found = [
        [residue for residue in chain if residue.het_flag != "H" and residue.find_atom("CA", "*")]
        for _, chain, _ in chains
    ]
    count = sum(map(len, found))
    if count > length:
        raise InputError(f"{count} residues, but its scores have {length}", path)
    if count == length:
        lengths = [len(residues) for residues in found]
    elif sum(declared for *_, declared in chains) == length:
        lengths = [declared for *_, declared in chains]
    elif len(chains) <= 1:
        lengths, chains, found = [length], chains or [("A", gemmi.Chain("A"), 0)], found or [[]]
    else:
        raise InputError(f"{count} residues of several chains, but its scores have {length}", path)
    components = [""] * length
    atoms: list[tuple[list[float], str, int]] = []
    start = 0
    for residues, chain_length in zip(found, lengths, strict=True):
        for order, residue in enumerate(residues):
            number = order + 1 if count == length else residue.label_seq or residue.seqid.num or 0
            if not 1 <= number <= chain_length:
                raise InputError(f"residue {number} of {chain_length}", path)
            index = start + number - 1
            components[index] = residue.name
            atoms += [(atom.pos.tolist(), atom.name, index) for atom in residue]
        start += chain_length
    positions = np.array([position for position, *_ in atoms]).reshape(-1, 3)
    if not np.isfinite(positions).all():
        raise InputError("an atom without coordinates", path)
    return ModelAtoms(
        positions,
        np.array([name for _, name, _ in atoms], "S4"),
        np.array([index for *_, index in atoms], np.int64),
        tuple(components),
        tuple((name, chain_length) for (name, *_), chain_length in zip(chains, lengths, strict=True)),
    )


def _read_chains(path: Path) -> Sequence[tuple[str, gemmi.Chain, int]]:
    """Return name, residues and number of residues of the sequence of each chain; 0 if it is not given."""
    if path.suffix != ".cif":
        _check_lines(path)
    try:
        structure = gemmi.read_structure(str(path))
        structure.remove_hydrogens()
        structure.remove_alternative_conformations()
        structure.setup_entities()
        chains = [(chain, structure.get_entity_of(chain.get_polymer())) for chain in structure[0]]
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError("not a file of a structure", path) from error
    return [
        (chain.name or "A", chain, 0 if entity is None else len(entity.full_sequence))
        for chain, entity in chains
    ]


def _check_lines(path: Path) -> None:
    """Raise InputError for an atom of a PDB file without numbers, which gemmi reads as zeros."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.startswith(b"ENDMDL"):
            break
        if line.startswith(b"ATOM  "):
            try:
                is_valid = math.isfinite(int(line[_NUMBER]) + sum(float(line[columns]) for columns in _XYZ))
            except ValueError:
                is_valid = False
            if not is_valid:
                raise InputError("an atom without number or coordinates", path, number)
