"""Scores of pairs of chains from aligned errors, pLDDT and contacts, and the contacts between chains.

Matrices [N, N] are processed a few rows at a time.

Sources: ipSAE, d0 by aligned residue: Dunbrack, bioRxiv 2025.02.10.637595. pDockQ: Bryant et al., Nat.
Commun. 13, 1265 (2022). pDockQ2: Zhu et al., Bioinformatics 39, btad424 (2023); that of pairs as Dunbrack's
script defines it. LIS: Kim et al., bioRxiv 2024.02.19.580970; iLIS as in the script `lis.py` of its authors.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from cuda.fused.chunking import row_slices
from model.prediction import CONTACT_DISTANCE, InterfaceContacts, PairScores, Prediction
from model.structure import EntityKind

# Å; ipSAE ignores pairs of residues with a larger PAE: its authors' values for AlphaFold2 and AlphaFold 3
IPSAE_MAX_PAE, ALL_ATOM_IPSAE_MAX_PAE = 15.0, 10.0
# Å; LIS ignores pairs of residues with this PAE or a larger one
_LIS_MAX_PAE = 12.0
# Å; d0 of pDockQ2
_PDOCKQ2_D0 = 10.0
# largest number of contacts to return; structures without clashes have far fewer
MAX_CONTACTS = 100_000


@dataclass(frozen=True)
class Chains:
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
    def from_numbers(cls, numbers: np.ndarray, device: torch.device) -> "Chains":
        """Return the chains, given a number of the chain of each residue, [N]."""
        index = torch.from_numpy(np.unique(numbers, return_inverse=True)[1]).to(device)
        membership = torch.nn.functional.one_hot(index).double()
        return cls(index, membership, membership.sum(0))

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the maximum of values [N, ...] over the residues of each chain, [C, ...]."""
        return torch.stack([values[self.index == chain].amax(0) for chain in range(len(self.size))])


@dataclass(frozen=True)
class Residues:
    """The residues that scores of pairs compare.

    Args:
        ca: [N, 3] float64, Å, position of CA; NaN without coordinates.
        cb: [N, 3] float64, Å, position of CB, of CA without one.
        plddt: [N] float64, 0 to 100.
    """

    ca: torch.Tensor
    cb: torch.Tensor
    plddt: torch.Tensor


def tm_term(error: torch.Tensor, d0: torch.Tensor) -> torch.Tensor:
    """Return the TM-score's term of errors, Å."""
    return 1.0 / (1.0 + (error / d0).square())


def tm_d0(length: torch.Tensor, shortest: float) -> torch.Tensor:
    """Return d0 of Zhang and Skolnick (Proteins 57, 702, 2004), Å, for at least `shortest` residues."""
    return 1.24 * (length.double().clamp_min(shortest) - 15.0) ** (1.0 / 3.0) - 1.8


def pairs_of_chains(scores: torch.Tensor) -> np.ndarray:
    """Return scores of pairs of chains, [C, C] float64, with NaN on the diagonal."""
    return scores.clone().fill_diagonal_(torch.nan).cpu().numpy()


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


def pair_scores(pae: torch.Tensor, residues: Residues, chains: Chains, max_pae: float) -> PairScores:
    """Compute the scores of pairs of chains.

    Rows of the PAE [N, N], Å, are the residues that are aligned on; ipSAE ignores a pair from `max_pae` on,
    Å.
    """
    sums, contacts = _sum_pairs(pae, residues, chains, max_pae)
    totals = {name: chains.membership.T @ values for name, values in sums.items()}  # [C, C]
    count = totals["contacts"]
    touching = sums["contacts"].clamp_max(1)
    plddt_sums, touching_sums = (
        chains.membership.T @ x for x in (residues.plddt[:, None] * touching, touching)
    )
    plddt = (plddt_sums + plddt_sums.T) / (touching_sums + touching_sums.T).clamp_min(1)
    pdockq = 0.724 * torch.sigmoid(0.052 * (plddt * count.clamp_min(1).log10() - 152.611)) + 0.018
    mean_term = totals["terms"] / count.clamp_min(1)
    pdockq2 = 1.31 * torch.sigmoid(0.075 * (plddt * mean_term - 84.733)) + 0.005
    lis, contact_lis = (
        totals[name] / totals[f"{name}_count"].clamp_min(1) for name in ("lis", "contact_lis")
    )
    lis, contact_lis = (lis + lis.T) / 2, (contact_lis + contact_lis.T) / 2
    return PairScores(
        ipsae=pairs_of_chains(chains.maximum(sums["ipsae"])),
        pdockq=pairs_of_chains(pdockq * (count > 0)),
        pdockq2=pairs_of_chains(pdockq2 * (count > 0)),
        lis=pairs_of_chains(lis),
        ilis=pairs_of_chains((lis * contact_lis).sqrt()),
        pae_min=pairs_of_chains(-chains.maximum(-sums["pae_min"])),
        per_chain_pdockq2=_chain_pdockq2(sums, residues, chains),
        contacts=contacts,
    )


def _sum_pairs(
    pae: torch.Tensor, residues: Residues, chains: Chains, max_pae: float
) -> tuple[dict[str, torch.Tensor], InterfaceContacts]:
    """Return sums over the residues of each chain, for each residue that is aligned on, and the contacts.

    The sums, [N, C] float64, are counts of pairs of residues of different chains, and sums of terms over
    them: of contacts ("contacts", "terms"), of CA close to each other ("ca", "ca_terms"), of pairs that LIS
    counts and contacts among them ("lis_count", "lis", "contact_lis_count", "contact_lis"). "ipsae" is ipSAE,
    and "pae_min" the smallest PAE.
    """
    names = ("contacts", "terms", "ca", "ca_terms", "lis_count", "lis", "contact_lis_count", "contact_lis")
    sums = {name: torch.zeros_like(chains.membership) for name in (*names, "ipsae", "pae_min")}
    first, second = (torch.zeros(0, dtype=torch.int64, device=pae.device) for _ in range(2))
    distance = pae.new_zeros(0)
    for rows in row_slices(pae, 32 * len(pae)):
        errors, chain = pae[rows].double(), chains.index[rows][:, None]
        between = chain != chains.index  # [n, N]
        distances = _distances(residues.cb, rows)  # NaN is not close
        close = between & (distances <= CONTACT_DISTANCE)
        close_ca = between & (_distances(residues.ca, rows) <= CONTACT_DISTANCE)
        reliable = between & (errors < _LIS_MAX_PAE)
        # the authors of LIS leave out a distance of exactly 8 Å
        reliable_contacts = reliable & (distances < CONTACT_DISTANCE)
        terms, lis = tm_term(errors, errors.new_tensor(_PDOCKQ2_D0)), 1.0 - errors / _LIS_MAX_PAE
        parts = (close, close * terms, close_ca, close_ca * terms, reliable, reliable * lis,
                 reliable_contacts, reliable_contacts * lis)  # fmt: skip
        for name, values in zip(names, parts, strict=True):
            sums[name][rows] = values.double() @ chains.membership
        sums["ipsae"][rows] = _ipsae(errors, between & (errors < max_pae), chains)
        for number in range(len(chains.size)):
            sums["pae_min"][rows, number] = errors[:, chains.index == number].amin(1)
        i, j = torch.nonzero(close & (chain < chains.index), as_tuple=True)
        first, second = torch.cat([first, i + rows.start]), torch.cat([second, j])
        distance = torch.cat([distance, distances[i, j].float()])
        if len(distance) > MAX_CONTACTS:
            closest = distance.argsort(stable=True)[:MAX_CONTACTS].sort().values
            first, second, distance = first[closest], second[closest], distance[closest]
    contacts = InterfaceContacts(
        first=first.cpu().numpy(),
        second=second.cpu().numpy(),
        distance=distance.cpu().numpy(),
        pae=torch.stack([pae[first, second], pae[second, first]], dim=1).cpu().numpy(),
        total=int(sums["contacts"].sum()) // 2,
    )
    return sums, contacts


def _distances(points: torch.Tensor, rows: slice) -> torch.Tensor:
    # the fast method, by matrix products, loses digits at short distances
    return torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist")


def _ipsae(errors: torch.Tensor, valid: torch.Tensor, chains: Chains) -> torch.Tensor:
    """Return ipSAE of each chain for n aligned residues, [n, C]; `valid` [n, N] are the pairs that count."""
    count = valid.double() @ chains.membership  # [n, C]
    d0 = tm_d0(count, 26.0).clamp_min(1.0)
    return ((valid * tm_term(errors, d0[:, chains.index])) @ chains.membership) / count.clamp_min(1)


def _chain_pdockq2(sums: dict[str, torch.Tensor], residues: Residues, chains: Chains) -> np.ndarray:
    """Return pDockQ2 of each chain with all others, [C]; its authors' script counts pairs of CA."""
    by_residue = sums["ca"].sum(1)
    count = (chains.membership.T @ by_residue).clamp_min(1)
    plddt = (chains.membership.T @ (by_residue * residues.plddt)) / count
    term = (chains.membership.T @ sums["ca_terms"].sum(1)) / count
    x = 7.47157696e-02 * (plddt * term - 8.47326239e01)
    return (1.31034849 * torch.sigmoid(x) + 5.01886443e-03).cpu().numpy()
