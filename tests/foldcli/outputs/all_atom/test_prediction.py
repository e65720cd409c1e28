"""From a job to the files of scored structures, with a small network of random parameters."""

import json
from dataclasses import replace

import gemmi
import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from features.alphafold3.inputs import InputSettings, build_sample
from features.assembly.atoms import build_atoms
from features.assembly.job import Bond, BondedAtom, Ligand, MoleculeJob
from features.assembly.tokens import build_tokens
from features.chemistry.components import read_component
from foldcli.inputs.formats.fasta import parse_fasta_jobs
from foldcli.outputs.all_atom.prediction import build_predictions, copy_samples
from foldcli.outputs.all_atom.restraints import build_restraints
from foldcli.outputs.all_atom.structure import build_structure, describe
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.sampling import SeededDraws
from model.output.files import format_all_atom_files
from model.output.provenance import Provenance
from tests.model.alphafold3.parity_networks import network

# chain ids out of order, so that the network's order of chains is another one
JOB = b">D|protein\nMKV\n>B|ccd\nGOL\n>A|smiles\nCCO\n>C|dna\nAC\n"


def test_a_job_becomes_the_files_of_scored_structures() -> None:
    (job,) = parse_fasta_jobs(JOB, "job.fasta", "job")
    sample = build_sample(job, InputSettings(seed=1))
    drawn = network("openbind").predict(
        AlphaFold3Inputs.from_arrays(sample.features), SeededDraws(0), cycles=1, steps=2, samples=2
    )
    structure = build_structure(sample.atoms, sample.tokens)
    restraints = build_restraints(sample.atoms, structure)
    predictions = build_predictions(structure, sample.tokens.chain, copy_samples(drawn)())
    assert len(predictions) == 2 and predictions[0].positions.shape == (len(sample.atoms), 3)
    confidence = drawn.confidences[0]
    # chain D is the network's fourth, and A its first
    assert confidence.chains == (1, 2, 3, 4)
    scores = predictions[0].all_atom
    assert scores is not None and scores.chain_ptm[0] == pytest.approx(float(confidence.chain_ptm[3]))
    assert scores.chain_pair_iptm[0, 2] == pytest.approx(float(confidence.chain_pair_iptm[3, 0]))
    assert np.isnan(np.diag(scores.chain_pair_iptm)).all()
    provenance = Provenance("job", "foldcli 0.0", "openfold3, seed 1, sample 1")
    # a random network's coordinates are too large for the PDB format
    near = replace(
        predictions[0],
        positions=predictions[0].positions / np.abs(predictions[0].positions).max(),
        extras=("all",),
    )
    files = format_all_atom_files(near, provenance, restraints)
    assert set(files.texts) == {
        "cif", "pdb", "scores", "contacts", "summary_confidences", "confidences",
    }  # fmt: skip
    assert files.pdb_missing is None
    # a large file that is not written by default
    assert "confidences" not in format_all_atom_files(replace(near, extras=()), provenance, restraints).texts
    written = json.loads(files.texts["scores"])
    # random coordinates do not pass, and nobody hides it
    assert written["checks"]["summary"] == files.checks.summary != "passed"
    assert written["checks"]["failed"]["bond_lengths"] > 0
    block = gemmi.cif.read_string(files.texts["cif"]).sole_block()
    assert len(gemmi.make_structure_from_block(block)[0]) == 4


def test_charges_and_elements_come_from_the_tables() -> None:
    (job,) = parse_fasta_jobs(
        b">A|ccd\nZN\n>B|smiles\nC[N+](C)(C)CC(=O)[O-]\n>C|ccd\nCA\n", "job.fasta", "job"
    )
    sample = build_sample(job, InputSettings(seed=1))
    structure = build_structure(sample.atoms, sample.tokens)
    assert structure.atom_element.tolist()[0] == "Zn" and structure.atom_element.tolist()[-1] == "Ca"
    charges = dict(zip(structure.atom_name.tolist(), structure.atom_charge.tolist(), strict=True))
    assert charges["N1"] == 1 and charges["O2"] == -1 and charges["ZN"] == 2 and charges["CA"] == 2
    assert [str(structure.kind(index)) for index in range(3)] == ["ion", "ligand", "ion"]


OWN = """data_LIG
_chem_comp.id LIG
_chem_comp.name 'my own'
_chem_comp.type non-polymer
loop_
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
CX C
"""


def test_components_of_the_user_have_the_name_that_their_file_gives() -> None:
    atoms = build_atoms(MoleculeJob("x", (Ligand(("B",), ("LIG",)),), components=OWN))
    (component,) = build_structure(atoms, build_tokens(atoms)).components.values()
    assert (component.name, component.formula, component.in_dictionary) == ("my own", "", False)
    named = describe(read_component("LIG"))
    assert named.name.startswith("3-PYRIDIN-4-YL") and named.in_dictionary


def test_glycans_of_other_linkages_are_other_entities() -> None:
    links = {"A": "O4", "B": "O6", "C": "O4"}
    bonds = tuple(Bond(BondedAtom(x, 1, atom), BondedAtom(x, 2, "C1")) for x, atom in links.items())
    atoms = build_atoms(MoleculeJob("x", tuple(Ligand((name,), ("NAG", "NAG")) for name in links), bonds))
    structure = build_structure(atoms, build_tokens(atoms))
    assert [chain.entity for chain in structure.chains] == [0, 1, 0] and len(structure.entities) == 2
