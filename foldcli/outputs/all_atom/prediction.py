"""Predictions of an all-atom network as arrays with the structure that they belong to."""

from collections.abc import Sequence

import numpy as np
import torch

from model.alphafold3.confidence import Confidence
from model.alphafold3.network import Prediction
from model.structure import AllAtomPrediction, Structure


def build_predictions(
    structure: Structure, chain_numbers: Sequence[int], prediction: Prediction
) -> list[AllAtomPrediction]:
    """Return the samples of a prediction, in the order in which they were drawn.

    Args:
        structure: the molecules; see `foldcli.outputs.all_atom.structure.build_structure`.
        chain_numbers: the network's number (`asym_id`) of each token, such as `Tokens.chain`.
        prediction: what the network returned.
    """
    contacts = _array(prediction.contacts)
    firsts = np.unique(structure.token_chain, return_index=True)[1]
    numbers = [int(chain_numbers[first]) for first in firsts]
    return [
        _build(structure, numbers, positions, confidence, contacts)
        for positions, confidence in zip(prediction.positions, prediction.confidences, strict=True)
    ]


def _build(
    structure: Structure,
    numbers: Sequence[int],
    positions: torch.Tensor,
    confidence: Confidence,
    contacts: np.ndarray,
) -> AllAtomPrediction:
    # the network orders chains by their numbers
    order = [confidence.chains.index(number) for number in numbers]
    pairs = _array(confidence.chain_pair_iptm)[np.ix_(order, order)].astype(np.float64)
    np.fill_diagonal(pairs, np.nan)
    return AllAtomPrediction(
        structure=structure,
        positions=_array(positions),
        plddt=_array(confidence.plddt).astype(np.float64),
        pae=_array(confidence.pae),
        pde=_array(confidence.pde),
        ptm=float(confidence.ptm),
        iptm=float(confidence.iptm) if len(numbers) > 1 else None,
        chain_ptm=_array(confidence.chain_ptm)[order].astype(np.float64),
        chain_pair_iptm=pairs,
        ranking_score=float(confidence.ranking_score),
        has_clash=bool(confidence.has_clash),
        fraction_disordered=float(confidence.disorder),
        contact_probs=contacts,
        gpde=float(confidence.gpde),
    )


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
