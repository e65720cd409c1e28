"""Confidence scores of complexes, of their chains and pairs of chains, and contacts between chains.

Matrices [N, N] and logits [N, N, bins] are processed a few rows at a time.

Sources: ipTM: Evans et al., bioRxiv 2021.10.04.463034. actifpTM, with binary contacts as in ColabFold: Varga
et al., Bioinformatics 41, btaf107 (2025). ipSAE, d0 by aligned residue: Dunbrack, bioRxiv 2025.02.10.637595.
pDockQ: Bryant et al., Nat. Commun. 13, 1265 (2022). pDockQ2: Zhu et al., Bioinformatics 39, btad424 (2023).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.alphafold2.modules.heads import bin_centers
from model.prediction import CONTACT_DISTANCE, ComplexScores, InterfaceContacts
from msa.base.residues import ATOM_ORDER

# computes the logits [n, N, bins] of n rows
LogitRows = Callable[[slice], torch.Tensor]

# probability of a distance below CONTACT_DISTANCE from which actifpTM counts residues as an interface
_CONTACT_PROBABILITY = 0.6
# Å; ipSAE ignores pairs of residues with a larger PAE
_IPSAE_MAX_PAE = 15.0
# Å; d0 of pDockQ2
_PDOCKQ2_D0 = 10.0
# largest number of contacts to return; structures without clashes have far fewer
MAX_CONTACTS = 100_000


@dataclass(frozen=True)
class _Chains:
    """The chains of N residues.

    Args:
        index: [N] int64, 0-based chain of each residue.
        membership: [N, C] float64, 1 for the chain of each residue.
        size: [C] float64, number of residues.
    """

    index: torch.Tensor
    membership: torch.Tensor
    size: torch.Tensor

    @classmethod
    def from_asym_id(cls, asym_id: np.ndarray, device: torch.device) -> "_Chains":
        index = torch.from_numpy(np.unique(asym_id, return_inverse=True)[1]).to(device)
        membership = torch.nn.functional.one_hot(index).double()
        return cls(index, membership, membership.sum(0))

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the maximum of values [N, ...] over the residues of each chain, [C, ...]."""
        return torch.stack([values[self.index == chain].amax(0) for chain in range(len(self.size))])


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
    """Compute the confidence scores and the PAE of a complex.

    Args:
        pae_logits: logits of the aligned error, [N, N, bins], or a function that computes rows of them.
        pae_edges: [bins - 1] inner edges of their bins, Å.
        distogram_logits: logits of distances, [N, N, bins], or a function that computes rows of them.
        distogram_edges: [bins - 1] inner edges of their bins, Å.
        asym_id: [N] numbers of the chains; residues of a chain are consecutive.
        atom_positions: [N, 37, 3], Å.
        atom_mask: [N, 37].
        plddt: [N], 0 to 100.

    Returns:
        The scores, and the PAE, [N, N] float32, Å; rows are the residues that are aligned on.
    """
    chains = _Chains.from_asym_id(asym_id, atom_positions.device)
    interface = _interface_residues(_row_function(distogram_logits), distogram_edges, chains)
    terms = _sum_tm_terms(_row_function(pae_logits), pae_edges, interface, chains)
    contact_scores = _contact_scores(terms.pae, atom_positions, atom_mask, plddt, chains)
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
        pairwise_iptm=_pairs(torch.maximum(by_chain, by_chain.T)),
        actifptm=float(active_all.max()),
        pairwise_actifptm=_pairs(torch.maximum(chains.maximum(active), chains.maximum(active).T)),
        ipsae=_pairs(chains.maximum(_ipsae(terms.pae, chains))),
        pdockq=_pairs(contact_scores.pdockq),
        pdockq2=_pairs(contact_scores.pdockq2),
        contacts=contact_scores.contacts,
    )
    return scores, terms.pae


def _row_function(logits: torch.Tensor | LogitRows) -> LogitRows:
    """Return a function that returns rows of the logits."""
    return logits.__getitem__ if isinstance(logits, torch.Tensor) else logits


def _pairs(scores: torch.Tensor) -> np.ndarray:
    """Return scores of pairs of chains, [C, C] float64, with NaN on the diagonal."""
    return scores.clone().fill_diagonal_(torch.nan).cpu().numpy()


def _interface_residues(rows_of_logits: LogitRows, edges: torch.Tensor, chains: _Chains) -> torch.Tensor:
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
    rows_of_logits: LogitRows,
    edges: torch.Tensor,
    interface: torch.Tensor,
    chains: _Chains,
) -> _TmTerms:
    length = len(chains.index)
    centers = bin_centers(edges)
    complex_terms = _tm_term(centers, _d0(torch.full_like(centers[:1], length), 19.0))  # [bins]
    chain_terms = _tm_term(centers, _d0(chains.size, 19.0)[:, None])  # [C, bins]
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


def _tm_term(error: torch.Tensor, d0: torch.Tensor) -> torch.Tensor:
    return 1.0 / (1.0 + (error / d0).square())


def _d0(length: torch.Tensor, shortest: float) -> torch.Tensor:
    """Return d0 of Zhang and Skolnick (Proteins 57, 702, 2004), Å, for at least `shortest` residues."""
    return 1.24 * (length.double().clamp_min(shortest) - 15.0) ** (1.0 / 3.0) - 1.8


def _ipsae(pae: torch.Tensor, chains: _Chains) -> torch.Tensor:
    """Return ipSAE of each chain when aligned on each residue, [N, C] float64."""
    result = torch.zeros_like(chains.membership)
    for rows in row_slices(pae, 16 * len(pae)):
        errors = pae[rows].double()
        valid = ((errors < _IPSAE_MAX_PAE) & (chains.index[rows][:, None] != chains.index)).double()
        count = valid @ chains.membership  # [n, C]
        d0 = _d0(count, 26.0).clamp_min(1.0)
        terms = valid * _tm_term(errors, d0[:, chains.index])
        result[rows] = (terms @ chains.membership) / count.clamp_min(1)
    return result


@dataclass(frozen=True)
class _ContactScores:
    """Scores of pairs of chains, [C, C] float64, that depend on their contacts, and the contacts."""

    pdockq: torch.Tensor
    pdockq2: torch.Tensor
    contacts: InterfaceContacts


def _contact_scores(
    pae: torch.Tensor,
    atom_positions: torch.Tensor,
    atom_mask: torch.Tensor,
    plddt: np.ndarray,
    chains: _Chains,
) -> _ContactScores:
    """Find the contacts between chains, and compute the scores that depend on them."""
    points = _contact_points(atom_positions, atom_mask)
    has_contact, count, tm_terms = (torch.zeros_like(chains.membership) for _ in range(3))
    first, second = (torch.zeros(0, dtype=torch.int64, device=pae.device) for _ in range(2))
    distance = pae.new_zeros(0)
    for rows in row_slices(pae, 16 * len(pae)):
        # the fast method, by matrix products, loses digits at short distances
        distances = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist")
        chain = chains.index[rows][:, None]
        close = (distances <= CONTACT_DISTANCE) & (chain != chains.index)  # [n, N]; False for NaN
        count[rows] = close.double() @ chains.membership
        has_contact[rows] = count[rows].clamp_max(1)
        tm_terms[rows] = (
            close * _tm_term(pae[rows].double(), pae.new_tensor(_PDOCKQ2_D0))
        ) @ chains.membership
        i, j = torch.nonzero(close & (chain < chains.index), as_tuple=True)
        first, second = torch.cat([first, i + rows.start]), torch.cat([second, j])
        distance = torch.cat([distance, distances[i, j].float()])
        if len(distance) > MAX_CONTACTS:
            closest = distance.argsort(stable=True)[:MAX_CONTACTS].sort().values
            first, second, distance = first[closest], second[closest], distance[closest]
    num_contacts = chains.membership.T @ count  # [C, C]
    confidence = torch.from_numpy(np.asarray(plddt, np.float64)).to(pae.device)
    plddt_sums = chains.membership.T @ (confidence[:, None] * has_contact)
    num_residues = chains.membership.T @ has_contact
    mean_plddt = (plddt_sums + plddt_sums.T) / (num_residues + num_residues.T).clamp_min(1)
    mean_term = (chains.membership.T @ tm_terms) / num_contacts.clamp_min(1)
    pdockq = 0.724 * torch.sigmoid(0.052 * (mean_plddt * num_contacts.clamp_min(1).log10() - 152.611)) + 0.018
    pdockq2 = 1.31 * torch.sigmoid(0.075 * (mean_plddt * mean_term - 84.733)) + 0.005
    errors = torch.stack([pae[first, second], pae[second, first]], dim=1)
    contacts = InterfaceContacts(
        first=first.cpu().numpy(),
        second=second.cpu().numpy(),
        distance=distance.cpu().numpy(),
        pae=errors.cpu().numpy(),
        total=int(num_contacts.sum()) // 2,
    )
    return _ContactScores(pdockq * (num_contacts > 0), pdockq2 * (num_contacts > 0), contacts)


def _contact_points(atom_positions: torch.Tensor, atom_mask: torch.Tensor) -> torch.Tensor:
    """Return CB, or CA where there is no CB, [N, 3] float64; NaN for residues without coordinates."""
    ca, cb = ATOM_ORDER["CA"], ATOM_ORDER["CB"]
    points = torch.where(atom_mask[:, cb, None] > 0.5, atom_positions[:, cb], atom_positions[:, ca])
    return torch.where(atom_mask[:, ca, None] > 0.5, points, torch.nan).double()
