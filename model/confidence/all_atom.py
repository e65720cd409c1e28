"""Scores of pairs of the protein chains of an all-atom prediction."""

from functools import lru_cache

import numpy as np
import torch

from model.confidence.pair_scores import ALL_ATOM_IPSAE_MAX_PAE, Chains, Residues, pair_scores
from model.prediction import PairScores, Prediction
from model.structure import EntityKind


# the files of a model and its result need them
@lru_cache(maxsize=1)
def protein_pair_scores(prediction: Prediction) -> tuple[tuple[str, ...], PairScores] | None:
    """Return the names of the protein chains, and the scores of their pairs; None with fewer than two.

    A residue of several tokens is represented by that of its CA, and pLDDT is that of CB, or of CA without
    one, as in Dunbrack's script.
    """
    structure = prediction.structure
    assert prediction.pae is not None
    proteins = [
        number for number in range(prediction.num_chains) if structure.kind(number) == EntityKind.PROTEIN
    ]
    ca = np.flatnonzero((structure.atom_name == "CA") & np.isin(structure.atom_chain, proteins))
    present = np.unique(structure.atom_chain[ca])
    if len(present) < 2:
        return None
    cb = ca.copy()
    index_of_residue = np.full(len(structure.residue_code), -1)
    index_of_residue[structure.atom_residue[ca]] = np.arange(len(ca))
    named_cb = np.flatnonzero(structure.atom_name == "CB")
    owners = index_of_residue[structure.atom_residue[named_cb]]
    cb[owners[owners >= 0]] = named_cb[owners >= 0]
    token = structure.atom_token[ca]
    positions = torch.from_numpy(prediction.positions).double()
    residues = Residues(positions[ca], positions[cb], torch.from_numpy(prediction.b_factors[cb]).double())
    chains = Chains.from_numbers(structure.atom_chain[ca], residues.ca.device)
    pae = torch.from_numpy(prediction.pae[np.ix_(token, token)])
    names = tuple(structure.chain_names[number] for number in present)
    return names, pair_scores(pae, residues, chains, ALL_ATOM_IPSAE_MAX_PAE)
