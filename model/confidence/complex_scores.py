"""Confidence scores of complexes, of their chains and pairs of chains, from the network's logits.

Matrices [N, N] and logits [N, N, bins] are processed a few rows at a time.

Sources: ipTM: Evans et al., bioRxiv 2021.10.04.463034. actifpTM, with binary contacts as in ColabFold: Varga
et al., Bioinformatics 41, btaf107 (2025). Scores of PAE and contacts are in `pair_scores`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.alphafold2.modules.heads import bin_centers
from model.confidence.pair_scores import (
    IPSAE_MAX_PAE,
    Chains,
    Residues,
    pair_scores,
    pairs_of_chains,
    tm_d0,
    tm_term,
)
from model.prediction import CONTACT_DISTANCE, ComplexScores
from msa.base.residues import ATOM_ORDER

# computes the logits [n, N, bins] of n rows
LogitRows = Callable[[slice], torch.Tensor]

# probability of a distance below CONTACT_DISTANCE from which actifpTM counts residues as an interface
_CONTACT_PROBABILITY = 0.6


def complex_scores(
    pae_logits: torch.Tensor | LogitRows,
    pae_edges: torch.Tensor,
    distogram_logits: torch.Tensor | LogitRows,
    distogram_edges: torch.Tensor,
    asym_id: np.ndarray,
    atom_positions: torch.Tensor,
    atom_mask: torch.Tensor,
    plddt: np.ndarray,
) -> tuple[ComplexScores, torch.Tensor]:
    """Compute the confidence scores of a complex, and the PAE [N, N] float32, Å; rows are aligned on.

    Logits of the aligned error and of distances are [N, N, bins], or functions that compute rows of them; the
    inner edges of their bins [bins - 1] are in Å. `asym_id` [N] numbers the chains, whose residues are
    consecutive; positions are [N, 37, 3], Å, their mask [N, 37], and pLDDT [N] is 0 to 100.
    """
    chains = Chains.from_numbers(asym_id, atom_positions.device)
    interface = _interface_residues(_row_function(distogram_logits), distogram_edges, chains)
    terms = _sum_tm_terms(_row_function(pae_logits), pae_edges, interface, chains)
    residues = _residues(atom_positions, atom_mask, plddt)
    pairs = pair_scores(terms.pae, residues, chains, IPSAE_MAX_PAE)
    other_chains = 1.0 - chains.membership
    by_chain = chains.maximum(terms.total / chains.size)
    active = terms.active_total / (1e-8 + terms.active_weight)
    active_all = (terms.active_total * other_chains).sum(1) / (
        1e-8 + (terms.active_weight * other_chains).sum(1)
    )
    scores = ComplexScores(
        ptm=float((terms.total.sum(1) / len(chains.index)).max()),
        iptm=float(((terms.total * other_chains).sum(1) / (other_chains @ chains.size).clamp_min(1)).max()),
        per_chain_ptm=chains.maximum(terms.own_chain).cpu().numpy(),
        pairwise_iptm=pairs_of_chains(torch.maximum(by_chain, by_chain.T)),
        actifptm=float(active_all.max()),
        pairwise_actifptm=pairs_of_chains(torch.maximum(chains.maximum(active), chains.maximum(active).T)),
        **vars(pairs),
    )
    return scores, terms.pae


def _row_function(logits: torch.Tensor | LogitRows) -> LogitRows:
    """Return a function that returns rows of the logits."""
    return logits.__getitem__ if isinstance(logits, torch.Tensor) else logits


def _interface_residues(rows_of_logits: LogitRows, edges: torch.Tensor, chains: Chains) -> torch.Tensor:
    """Return 1 where a residue has a confident contact with a chain, else 0: [N, C] float64.

    Bins count as contacts if their lower edge is below CONTACT_DISTANCE, as in ColabFold.
    """
    lower = torch.cat([edges.new_zeros(1), edges])
    close = (lower < CONTACT_DISTANCE).double()
    interface = torch.zeros_like(chains.membership)
    for rows in row_slices(chains.membership, 8 * len(chains.index) * len(close)):
        probability = torch.softmax(rows_of_logits(rows).double(), dim=-1) @ close  # [n, N]
        interface[rows] = ((probability >= _CONTACT_PROBABILITY).double() @ chains.membership).clamp_max(1)
    return interface


@dataclass(frozen=True)
class _TmTerms:
    """Expected TM-score terms of the pairs of residues, summed over chains, and the PAE.

    Args:
        total: [N, C] float64, sums over the residues of each chain, with d0 of the whole complex.
        own_chain: [N] float64, mean over the residue's own chain, with d0 of that chain.
        active_total: [N, C] float64, like `total`, but only over the pairs of residues that actifpTM counts.
        active_weight: [N, C] float64, number of these pairs.
        pae: [N, N] float32, Å; rows are the residues that are aligned on.
    """

    total: torch.Tensor
    own_chain: torch.Tensor
    active_total: torch.Tensor
    active_weight: torch.Tensor
    pae: torch.Tensor


def _sum_tm_terms(
    rows_of_logits: LogitRows, edges: torch.Tensor, interface: torch.Tensor, chains: Chains
) -> _TmTerms:
    length = len(chains.index)
    centers = bin_centers(edges)
    complex_terms = tm_term(centers, tm_d0(torch.full_like(centers[:1], length), 19.0))  # [bins]
    chain_terms = tm_term(centers, tm_d0(chains.size, 19.0)[:, None])  # [C, bins]
    total, active_total, active_weight = (torch.zeros_like(chains.membership) for _ in range(3))
    own_chain = total.new_zeros(length)
    pae = torch.empty(length, length, device=total.device)
    # factor 16: as for the PAE alone, see `model.alphafold2.modules.heads.expected_errors`
    for rows in row_slices(chains.membership, 16 * length * len(centers)):
        probabilities = torch.softmax(rows_of_logits(rows).double(), dim=-1)  # [n, N, bins]
        pae[rows] = (probabilities @ centers).float()
        terms = probabilities @ complex_terms  # [n, N]
        total[rows] = terms @ chains.membership
        chain = chains.index[rows]
        same_chain = (chain[:, None] == chains.index).double()
        own_chain_terms = (probabilities @ chain_terms[chain][:, :, None])[..., 0]
        own_chain[rows] = (own_chain_terms * same_chain).sum(1) / chains.size[chain]
        weight = interface[rows][:, chains.index] * interface[:, chain].T * (1.0 - same_chain)
        active_total[rows] = (terms * weight) @ chains.membership
        active_weight[rows] = weight @ chains.membership
    return _TmTerms(total, own_chain, active_total, active_weight, pae)


def _residues(atom_positions: torch.Tensor, atom_mask: torch.Tensor, plddt: np.ndarray) -> Residues:
    ca, cb = atom_positions[:, ATOM_ORDER["CA"]], atom_positions[:, ATOM_ORDER["CB"]]
    has_ca, has_cb = (atom_mask[:, ATOM_ORDER[name], None] > 0.5 for name in ("CA", "CB"))
    return Residues(
        ca=torch.where(has_ca, ca, torch.nan).double(),
        cb=torch.where(has_ca, torch.where(has_cb, cb, ca), torch.nan).double(),
        plddt=torch.from_numpy(np.asarray(plddt, np.float64)).to(atom_positions.device),
    )
