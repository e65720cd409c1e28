"""Predictions of an all-atom network as arrays with the structure that they belong to."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import torch

from model.alphafold3.confidence import Confidence
from model.alphafold3.network import Samples
from model.layers.host_copies import HostCopies
from model.prediction import AllAtomScores, Extra, Prediction
from model.structure import Structure

_TENSORS = tuple(field.name for field in fields(Confidence) if field.name != "chains")


def copy_samples(samples: Samples) -> Callable[[], Samples]:
    """Begin to copy samples from a GPU; return a function that waits for the copies and returns them."""
    tensors = {"positions": samples.positions, "contacts": samples.contacts}
    for index, confidence in enumerate(samples.confidences):
        tensors |= {f"{index}.{name}": getattr(confidence, name) for name in _TENSORS}
    copies, chains = HostCopies(tensors), [confidence.chains for confidence in samples.confidences]

    def wait() -> Samples:
        copied = {name: torch.from_numpy(array) for name, array in copies.wait().items()}
        confidences = [
            Confidence(chains=each, **{name: copied[f"{index}.{name}"] for name in _TENSORS})
            for index, each in enumerate(chains)
        ]
        return Samples(copied["positions"], tuple(confidences), copied["contacts"])

    return wait


def build_predictions(
    structure: Structure,
    chain_numbers: Sequence[int] | np.ndarray,
    samples: Samples,
    num_recycles: int = 0,
    extras: tuple[Extra, ...] = (),
) -> list[Prediction]:
    """Return a prediction for each sample, in the order in which they were drawn.

    Args:
        structure: the molecules; see `foldcli.outputs.all_atom.structure.build_structure`.
        chain_numbers: the network's number (`asym_id`) of each token, such as `Tokens.chain`.
        samples: what the network returned.
        num_recycles: number of cycles after the first.
        extras: additional results to save.
    """
    contacts = _array(samples.contacts)
    firsts = np.unique(structure.token_chain, return_index=True)[1]
    numbers = [int(chain_numbers[first]) for first in firsts]
    return [
        replace(
            _build(structure, numbers, positions, confidence, contacts),
            num_recycles=num_recycles,
            extras=extras,
        )
        for positions, confidence in zip(samples.positions, samples.confidences, strict=True)
    ]


def _build(
    structure: Structure,
    numbers: Sequence[int],
    positions: torch.Tensor,
    confidence: Confidence,
    contacts: np.ndarray,
) -> Prediction:
    # the network orders chains by their numbers
    order = [confidence.chains.index(number) for number in numbers]
    pairs = _array(confidence.chain_pair_iptm)[np.ix_(order, order)].astype(np.float64)
    np.fill_diagonal(pairs, np.nan)
    atom_plddt = _array(confidence.plddt).astype(np.float64)
    scores = AllAtomScores(
        iptm=float(confidence.iptm) if len(numbers) > 1 else None,
        chain_ptm=_array(confidence.chain_ptm)[order].astype(np.float64),
        chain_pair_iptm=pairs,
        pde=_array(confidence.pde),
        has_clash=bool(confidence.has_clash),
        fraction_disordered=float(confidence.disorder),
        contact_probs=contacts,
        gpde=float(confidence.gpde),
    )
    return Prediction(
        structure=structure,
        positions=_array(positions),
        plddt=structure.token_means(atom_plddt),
        atom_plddt=atom_plddt,
        ptm=float(confidence.ptm),
        pae=_array(confidence.pae),
        ranking_score=float(confidence.ranking_score),
        all_atom=scores,
    )


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
