"""The features of jobs are the inputs of the network: from molecules to scored structures."""

import numpy as np
import pytest
import torch

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from features.alphafold3.inputs import InputSettings, build_sample
from foldcli.inputs.formats.fasta import parse_fasta_jobs
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.sampling import SeededDraws
from tests.model.alphafold3.parity_networks import network

JOB = b">A|protein\nMKVSG\n>B|ccd\nGOL\n>C|smiles\nCCO\n>D|dna\nACG\n"


def test_a_protein_with_ligands_and_dna_becomes_scored_structures() -> None:
    (job,) = parse_fasta_jobs(JOB, "job.fasta", "job")
    sample = build_sample(job, InputSettings(seed=1))
    inputs = AlphaFold3Inputs.from_arrays(sample.features)
    small = network("openbind")
    prediction = small.predict(inputs, SeededDraws(0), cycles=1, steps=2, samples=2)
    atoms = len(sample.features["atom_mask"])
    assert prediction.positions.shape == (2, atoms, 3) and torch.isfinite(prediction.positions).all()
    assert len(prediction.confidences) == 2
    assert all(np.isfinite(float(each.ranking_score)) for each in prediction.confidences)
