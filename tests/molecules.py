"""Jobs of molecules with made-up structures: reference coordinates, one molecule beside the other."""

from functools import cache

import numpy as np

from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import Bond, BondedAtom, Ligand, MoleculeJob, Polymer
from features.assembly.tokens import build_tokens
from features.chemistry.conformers import ConformerGenerator
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.fasta import parse_fasta_jobs
from foldcli.outputs.all_atom.structure import build_structure
from model.prediction import AllAtomScores, Prediction
from model.structure import Structure

# a protein, a ligand of the dictionary, one drawn, DNA, RNA and an ion
MIXTURE = ">A|protein\nMKWC\n>B|ccd\nGOL\n>C|smiles\nC[C@H](O)c1ccccc1\n>D|dna\nAC\n>E|rna\nGU\n>F|ccd\nZN\n"


# a glycan of two sugars on asparagine
GLYCAN = MoleculeJob(
    "glycan",
    (Polymer(MoleculeKind.PROTEIN, "ANG", ("A",)), Ligand(("B",), ("NAG", "NAG"))),
    (
        Bond(BondedAtom("A", 2, "ND2"), BondedAtom("B", 1, "C1")),
        Bond(BondedAtom("B", 1, "O4"), BondedAtom("B", 2, "C1")),
    ),
)


@cache
def molecules(job: str | MoleculeJob) -> tuple[Atoms, Structure]:
    """Return the atoms of a job, or of one in FASTA, and its tables."""
    if isinstance(job, str):
        (job,) = parse_fasta_jobs(job.encode(), "job.fasta", "job")
    atoms = build_atoms(job)
    return atoms, build_structure(atoms, build_tokens(atoms))


def reference_positions(atoms: Atoms, distance: float = 25.0) -> np.ndarray:
    """Return the dictionary's coordinates of each molecule, or RDKit's, with their centres on a line.

    Args:
        atoms: the atoms.
        distance: distance between the centres, Å.
    """
    generator = ConformerGenerator(0)
    positions = []
    for index, molecule in enumerate(atoms.molecules):
        coordinates = molecule.component.ideal
        if np.isnan(coordinates).any():
            (conformer,) = generator.generate_all([(molecule.component, False)])
            coordinates = conformer.positions.astype(np.float64)
        kept = coordinates[molecule.kept]
        positions.append(kept - kept.mean(axis=0) + [distance * index, 0.0, 0.0])
    return np.concatenate(positions)


def random_prediction(job: str | MoleculeJob = MIXTURE, seed: int = 0) -> Prediction:
    """Return reference coordinates of a job's molecules with random scores."""
    atoms, structure = molecules(job)
    rng = np.random.default_rng(seed)
    tokens, chains = len(structure.token_start), len(structure.chains)
    iptm = rng.uniform(0, 1, (chains, chains))
    iptm = (iptm + iptm.T) / 2
    np.fill_diagonal(iptm, np.nan)
    atom_plddt = rng.uniform(30, 95, len(structure.atom_name))
    pae, pde = (rng.uniform(0.3, 31, (tokens, tokens)).astype(np.float32) for _ in range(2))
    scores = AllAtomScores(
        iptm=0.42 if chains > 1 else None,
        chain_ptm=rng.uniform(0, 1, chains),
        chain_pair_iptm=iptm,
        pde=pde,
        has_clash=False,
        fraction_disordered=0.07,
        contact_probs=rng.uniform(0, 1, (tokens, tokens)).astype(np.float32),
        gpde=1.25,
    )
    return Prediction(
        structure=structure,
        positions=reference_positions(atoms).astype(np.float32),
        plddt=structure.token_means(atom_plddt),
        atom_plddt=atom_plddt,
        ptm=0.53,
        pae=pae,
        ranking_score=0.512,
        all_atom=scores,
    )
