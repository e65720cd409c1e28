"""Pairs of a model and its reference, made from experimental structures."""

from collections.abc import Iterator
from pathlib import Path

import gemmi
import numpy as np

SOURCES = Path(__file__).parents[2] / "features" / "templates" / "data"
KINDS = ("noisy", "bent", "cut")


def write_cases(folder: Path, names: list[str] | None = None) -> Iterator[str]:
    """Write NAME_ref.pdb and NAME_mod.pdb, and yield each NAME, of an entry and what is changed."""
    for path in sorted(SOURCES.glob("*.cif.gz")):
        for kind in KINDS:
            name = f"{path.name[:4]}_{kind}"
            if names is None or name in names:
                reference = _read(path)
                reference.write_pdb(str(folder / f"{name}_ref.pdb"))
                _change(reference[0], kind)
                reference.write_pdb(str(folder / f"{name}_mod.pdb"))
                yield name


def _read(path: Path) -> gemmi.Structure:
    structure = gemmi.read_structure(str(path))
    structure.setup_entities()
    structure.remove_alternative_conformations()
    structure.remove_hydrogens()
    structure.remove_ligands_and_waters()
    while len(structure) > 1:
        del structure[1]
    for chain in structure[0]:
        if chain[-1].name == "NH2":
            del chain[-1]
        for number, residue in enumerate(chain, 1):
            residue.seqid = gemmi.SeqId(str(number))
    return structure


def _change(model: gemmi.Model, kind: str) -> None:
    """Move all atoms at random, and chains; bend each chain in its middle; or remove every ninth residue."""
    rng = np.random.default_rng(0)
    size = 0.7 if kind == "noisy" else 0.3
    for chain in model:
        shift = rng.normal(0, 1.2, 3)
        if kind == "cut":
            for index in reversed(range(4, len(chain), 9)):
                del chain[index]
        hinge = chain[len(chain) // 2][0].pos.tolist()
        cos, sin = np.cos(0.35), np.sin(0.35)
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        for number, residue in enumerate(chain):
            for atom in residue:
                position = np.array(atom.pos.tolist())
                if kind == "bent" and number > len(chain) // 2:
                    position = (position - hinge) @ turn + hinge
                atom.pos = gemmi.Position(*(position + rng.normal(0, size, 3) + shift))
