"""Finished targets of proteins, DNA, ligands and ions with made-up structures, for tests of their pages."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from foldcli.outputs.all_atom.restraints import build_restraints
from foldcli.outputs.layout import TargetFiles
from model.output.files import format_all_atom_files
from model.output.provenance import Provenance
from model.structure import Structure
from tests.molecules import molecules, random_prediction

# aspirin is drawn
JOB = (
    ">A|protein\nMKVSGWHCLLKDAEELARRLGH\n>B|ccd\nHEM\n>C|smiles\nCC(=O)Oc1ccccc1C(=O)O\n"
    ">D|dna\nACGTACGT\n>E|ccd\nZN\n"
)
TAG = "openfold3_p2_seed_000_sample_{}"


def write_molecules(folder: Path, name: str = "complex", models: int = 2) -> TargetFiles:
    """Write the files of a target's models and return them."""
    files = TargetFiles(name, folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    atoms, structure = molecules(JOB)
    restraints = build_restraints(atoms, structure)
    for rank in range(1, models + 1):
        prediction = random_prediction(JOB, seed=rank)
        positions = _arrange(structure, prediction.positions.astype(np.float64))
        noise = np.random.default_rng(rank).normal(0, 0.02 * rank, positions.shape)
        prediction = replace(prediction, positions=(positions + noise).astype(np.float32))
        tag = TAG.format(rank)
        texts = format_all_atom_files(prediction, Provenance(name, "foldcli 0.0", tag), restraints).texts
        for kind in ("cif", "pdb", "scores", "contacts", "summary_confidences"):
            files.model_path(kind, rank, tag).write_text(texts[kind])
    return files


def _arrange(structure: Structure, positions: np.ndarray) -> np.ndarray:
    """Lay the protein out as a helix, the DNA as one strand, and the ligands beside them."""
    arranged = positions.copy()
    # N, Cα and C of an ideal helix: radius, angle and height
    cylinder = ((1.55, -28.1, -0.87), (2.29, 0.0, 0.0), (1.65, 26.9, 1.1))
    for residue in range(len(structure.residue_code)):
        rows = np.flatnonzero(structure.atom_residue == residue)
        chain = int(structure.residue_chain[residue])
        names = structure.atom_name[rows].tolist()
        if chain == 0:
            own = positions[rows][[names.index(name) for name in ("N", "CA", "C")]]
            step = int(structure.residue_number[residue])
            target = [
                [r * np.cos(a), r * np.sin(a), z + 1.5 * step]
                for r, degrees, z in cylinder
                for a in (np.radians(degrees + 100 * step),)
            ]
            arranged[rows] = _superpose(positions[rows], own, np.array(target))
        elif chain == 3:
            angle = 0.6 * structure.residue_number[residue]
            turn = np.array(
                [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
            )
            centred = positions[rows] - positions[rows].mean(axis=0) + [5, 0, 0]
            arranged[rows] = centred @ turn.T + [28, 0, 3.4 * structure.residue_number[residue]]
        else:
            place = {1: [15, 3, 12], 2: [0, 12, 14], 4: [-4, -9, 24]}[chain]
            arranged[rows] = positions[rows] - positions[rows].mean(axis=0) + place
    return arranged


def _superpose(positions: np.ndarray, own: np.ndarray, target: np.ndarray) -> np.ndarray:
    u, _, vt = np.linalg.svd((own - own.mean(axis=0)).T @ (target - target.mean(axis=0)))
    rotation = u @ np.diag([1, 1, np.sign(np.linalg.det(u @ vt))]) @ vt
    return (positions - own.mean(axis=0)) @ rotation + target.mean(axis=0)
