"""Random predictions of chains and complexes."""

import dataclasses

import numpy as np

from model import residue_constants
from model.prediction import InterfaceContacts, Prediction
from tests.complex_scores import made_up_scores
from tests.predictions import protein_prediction


def prediction_of(aatype: list[int], seed: int = 0, **chains: np.ndarray) -> Prediction:
    """Return a random prediction with the atoms of each residue type."""
    rng = np.random.default_rng(seed)
    length = len(aatype)
    mask = residue_constants.atom37_mask()[aatype].astype(np.float32)
    return protein_prediction(
        aatype=np.array(aatype),
        atom_positions=rng.uniform(-80, 80, (length, 37, 3)).astype(np.float32) * mask[..., None],
        atom_mask=mask,
        plddt=rng.uniform(0, 100, length),
        ptm=0.5,
        pae=rng.uniform(0.25, 31.5, (length, length)).astype(np.float32),
        num_recycles=3,
        tolerances=(3.0, 2.0, 1.0),
        **chains,
    )


def complex_of(lengths: tuple[int, ...], aatype: list[int] | None = None) -> Prediction:
    """Return a random prediction of several chains with scores and two contacts."""
    count, total = len(lengths), sum(lengths)
    rng = np.random.default_rng(1)
    pairs = rng.uniform(0, 1, (count, count))
    contacts = InterfaceContacts(
        np.array([0, 1]), np.array([lengths[0], total - 1]), np.array([3.456, 7.9], np.float32),
        np.array([[1.234, 2.0], [30.0, 4.0]], np.float32), total=2,
    )  # fmt: skip
    scores = made_up_scores(pairs, contacts, iptm=0.456, actifptm=0.1234)
    prediction = prediction_of(
        aatype or [i % 20 for i in range(total)],
        asym_id=np.repeat(np.arange(1, count + 1), lengths),
        residue_index=np.concatenate([np.arange(length) for length in lengths]),
    )
    return dataclasses.replace(prediction, scores=scores)
