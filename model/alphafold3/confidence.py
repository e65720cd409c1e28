"""Confidence scores of a structure from the heads' logits, and the exposed share of its protein residues.

Equation numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024), section 5.9; where
OpenFold3's scores differ from them, they are OpenFold3's. For exposure see `model.confidence.surface`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from model.alphafold3.heads import ErrorRows, by_residue_type
from model.alphafold3.inputs import AlphaFold3Inputs
from model.confidence.flags import clash
from model.confidence.surface import exposed_share, largest_area, van_der_waals_radius
from msa.base.residues import RESTYPES

LARGEST_ERROR = 32.0
DISTOGRAM_RANGE = (2.0, 22.0)
CONTACT_DISTANCE = 8.0
# frames by residue type: N, CA, C of amino acids; C3', C1', C4' of ribonucleotides and deoxyribonucleotides
_FRAMES = (*[(0, 1, 2)] * 21, *[(7, 11, 5)] * 5, *[(7, 10, 5)] * 5, (0, 0, 0))
SMALLEST_ANGLE = math.radians(25)
FRAME_EPSILON = 1e-8


@dataclass(frozen=True)
class Confidence:
    """The scores of one structure. C is the number of chains, ordered by `chains`.

    Args:
        plddt: [A], 0 to 100.
        pae: [N, N], Å, expected error of the second token in the frame of the first.
        pde: [N, N], Å, expected error of the distance.
        gpde: mean of pde weighted by the probability of a contact, Å.
        ptm: predicted TM score.
        iptm: predicted TM score of the interfaces.
        disorder: share of exposed protein residues.
        has_clash: 1 if two polymer chains clash, otherwise 0.
        ranking_score: 0.8 iptm + 0.2 ptm + 0.5 disorder − 100 has_clash.
        chains: numbers of the chains (`asym_id`), ascending.
        chain_ptm: [C], pTM of each chain.
        chain_pair_iptm: [C, C], symmetric, ipTM of each pair of chains; 0 on the diagonal.
        bespoke_iptm: [C, C], symmetric, mean ipTM of the pair's ligand, or of both chains, with all others.
    """

    plddt: torch.Tensor
    pae: torch.Tensor
    pde: torch.Tensor
    gpde: torch.Tensor
    ptm: torch.Tensor
    iptm: torch.Tensor
    disorder: torch.Tensor
    has_clash: torch.Tensor
    ranking_score: torch.Tensor
    chains: tuple[int, ...]
    chain_ptm: torch.Tensor
    chain_pair_iptm: torch.Tensor
    bespoke_iptm: torch.Tensor


class TargetScorer:
    """The scores of the structures of one target.

    What all structures share is computed once, and nothing waits for a GPU after that.
    """

    def __init__(self, inputs: AlphaFold3Inputs) -> None:
        self._inputs, self.surface = inputs, Surface(inputs)
        mask = inputs.token_mask.bool()
        self.chains = tuple(inputs.asym_id[mask].unique().tolist())
        self._members = [mask & (inputs.asym_id == chain) for chain in self.chains]
        pairs = list(combinations(range(len(self.chains)), 2))
        self._pairs = torch.tensor(pairs, dtype=torch.int64, device=mask.device).reshape(-1, 2).T
        unions = [self._members[i] | self._members[j] for i, j in pairs]
        self._sets = torch.stack([mask, *self._members]), torch.stack([mask, *unions])
        sizes = [sets.sum(dim=-1) for sets in self._sets]
        self._scales = [[_tm_scale(count) for count in size.tolist()] for size in sizes]
        # tokens that each token's sum is over: those of its set, and those of them in other chains
        own = (self._sets[0][1:] * sizes[0][1:, None]).sum(dim=0)
        self._counts = [x.clamp(min=1).float() for x in (sizes[0][:, None], sizes[1][:, None] - own)]
        self._atomized = inputs.is_atomized.nonzero()[:, 0]
        self._polymers = _polymer_atoms(inputs)

    @torch.no_grad()
    def __call__(
        self,
        positions: torch.Tensor,
        plddt: torch.Tensor,
        errors: ErrorRows,
        contacts: torch.Tensor,
        whole: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    ) -> Confidence:
        """Compute all scores of a structure, without its disorder; see `with_disorder`.

        Args:
            positions: [A, 3], Å.
            plddt: [A, 50], logits.
            errors: logits of the aligned and distance errors by rows.
            contacts: [N, N], probability of a contact; see `contact_map`.
            whole: returns a tensor [N, ...] with the rows of all errors, given one with those of `errors`.
        """
        inputs = self._inputs
        pae, pde = torch.empty_like(contacts), torch.empty_like(contacts)
        sums = [pae.new_empty(len(pae), len(sets)) for sets in self._sets]
        for rows, aligned, distance in errors:
            probabilities = aligned.softmax(dim=-1)
            pae[rows] = probabilities @ _centers(probabilities, LARGEST_ERROR)
            pde[rows] = _expectation(distance, LARGEST_ERROR)
            self._add_rows(sums, rows, probabilities)
        pae, pde, *sums = (whole(x) for x in (pae, pde, *sums))
        framed = token_frames(inputs, positions, atomized=self._atomized).valid
        ptm, iptm = (self._best(sums[kind].T, kind, framed) for kind in (0, 1))
        pairs = pae.new_zeros(len(self.chains), len(self.chains))
        first, second = self._pairs
        pairs[first, second] = pairs[second, first] = iptm[1:]
        clash = _has_clash(positions, self._polymers)
        return Confidence(
            plddt=100 * _expectation(plddt, 1.0),
            pae=pae,
            pde=pde,
            gpde=(contacts * pde).sum() / (contacts.sum() + 1e-8),
            ptm=ptm[0],
            iptm=iptm[0],
            disorder=torch.zeros_like(clash),
            has_clash=clash,
            ranking_score=0.8 * iptm[0] + 0.2 * ptm[0] - 100 * clash,
            chains=self.chains,
            chain_ptm=ptm[1:],
            chain_pair_iptm=pairs,
            bespoke_iptm=_bespoke_iptm(pairs, self._members, framed, inputs.is_ligand),
        )

    def _add_rows(self, sums: list[torch.Tensor], rows: slice, probabilities: torch.Tensor) -> None:
        """Write the sums [N, sets] of the expected TM scores of some rows, for each set of tokens.

        The first sums are over the pairs within a set, the second ones over those of different chains
        (equations 17 and 18).
        """
        asym_id = self._inputs.asym_id
        different = asym_id[rows, None] != asym_id
        expected: dict[float, torch.Tensor] = {}
        for kind, (sets, scales) in enumerate(zip(self._sets, self._scales, strict=True)):
            for index, (tokens, scale) in enumerate(zip(sets, scales, strict=True)):
                if scale not in expected:
                    weights = 1 / (1 + (_centers(probabilities, LARGEST_ERROR) / scale) ** 2)
                    expected[scale] = probabilities @ weights
                counted = different & tokens if kind else tokens
                sums[kind][rows, index] = (expected[scale] * counted).sum(dim=-1)

    def _best(self, sums: torch.Tensor, kind: int, framed: torch.Tensor) -> torch.Tensor:
        """Return the score of each set [n]: the largest mean of a token that has a frame."""
        means = sums / self._counts[kind]
        return means.masked_fill(~(framed & self._sets[kind]), 0).amax(dim=-1)


def with_disorder(confidence: Confidence, share: torch.Tensor | float) -> Confidence:
    """Return the scores of a structure with the share of exposed residues, which the ranking counts."""
    disorder = confidence.disorder + share
    return replace(confidence, disorder=disorder, ranking_score=confidence.ranking_score + 0.5 * disorder)


def _tm_scale(count: int) -> float:
    """Return TM-score's normalisation for a number of tokens; its length is at least 19."""
    return float(1.24 * (max(count, 19) - 15) ** (1 / 3) - 1.8)


def _centers(x: torch.Tensor, upper: float) -> torch.Tensor:
    """Return the centres of the bins between 0 and `upper` of x [..., B]."""
    edges = torch.linspace(0, upper, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    return edges[:-1] + upper / x.shape[-1] / 2


def _expectation(logits: torch.Tensor, upper: float) -> torch.Tensor:
    """Return the expected value [...] of bins between 0 and `upper` from logits [..., B]."""
    return logits.softmax(dim=-1) @ _centers(logits, upper)


def contact_map(logits: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the probability [N, N] that tokens are within 8 Å, from logits by rows [n, N, B]."""
    return torch.cat([_contact_probability(rows) for rows in logits])


def _contact_probability(distogram: torch.Tensor) -> torch.Tensor:
    ends = torch.linspace(*DISTOGRAM_RANGE, distogram.shape[-1] + 1)[1:]
    bins = int((ends <= CONTACT_DISTANCE).sum())
    return distogram.softmax(dim=-1)[..., :bins].sum(dim=-1)


def _bespoke_iptm(
    pairs: torch.Tensor, members: list[torch.Tensor], framed: torch.Tensor, is_ligand: torch.Tensor
) -> torch.Tensor:
    """Return the mean ipTM of the chains of each pair with all others, [C, C] (section 5.9.3, item 3).

    Pairs have an ipTM [C, C], chains their tokens, bool [N]; tokens, bool [N], may have a frame or be
    ligands.
    """
    usable = torch.stack([(member & framed).any() for member in members]).to(pairs)
    ligand = torch.stack([2 * (member & is_ligand).sum() >= member.sum() for member in members])
    others = 1 - torch.eye(len(members)).to(pairs)
    # an ipTM counts once for each of its chains that has frames
    weights = others * (usable[:, None] + usable[None])
    mean = (pairs * weights).sum(dim=-1) / weights.sum(dim=-1).clamp(min=1)
    first, second = mean[:, None].expand_as(pairs), mean[None].expand_as(pairs)
    of_pair = torch.where(ligand[None], second, (first + second) / 2)
    return torch.where(ligand[:, None], first, of_pair) * others


def _polymer_atoms(inputs: AlphaFold3Inputs) -> list[torch.Tensor]:
    """Return the indices of the real atoms of each chain that is a polymer."""
    token = inputs.atom_to_token_index
    polymer = (inputs.is_protein | inputs.is_rna | inputs.is_dna)[token]
    chain, real = inputs.asym_id[token], inputs.atom_mask.bool()
    members = [chain == number for number in chain[real].unique()]
    return [(member & real).nonzero()[:, 0] for member in members if bool(polymer[member].all())]


def _has_clash(positions: torch.Tensor, polymers: list[torch.Tensor]) -> torch.Tensor:
    """Return 1 if two polymer chains clash, otherwise 0."""
    found = positions.new_zeros((), dtype=torch.bool)
    for first, second in combinations(polymers, 2):
        found = found | clash(positions[first], positions[second])
    return found.to(positions)


class TokenFrames(NamedTuple):
    """The frames of tokens (section 4.3.2 of the supplement).

    Args:
        atoms: int64 [N, 3], the atoms of each frame; its origin is the second one.
        valid: bool [N], tokens that have a frame; the atoms of the others mean nothing.
    """

    atoms: torch.Tensor
    valid: torch.Tensor


def token_frames(
    inputs: AlphaFold3Inputs,
    positions: torch.Tensor,
    mask: torch.Tensor | None = None,
    atomized: torch.Tensor | None = None,
) -> TokenFrames:
    """Return the frames of a structure [A, 3], Å.

    An atomized token and the two closest atoms of its chain form a frame if their angle is not within 25° of
    a straight line. The mask [A] is 1 for atoms whose position is known; None for all real atoms. The indices
    of the atomized tokens are computed unless they are known.
    """
    known = (inputs.atom_mask if mask is None else mask).bool()
    last = len(inputs.atom_mask) - 1
    atoms = inputs.start_atom_index[:, None] + by_residue_type(inputs, _FRAMES)  # [N, 3]
    atoms = atoms.clamp(max=last)
    valid = inputs.token_mask.bool() & ~inputs.is_ligand & known[atoms].all(dim=-1)
    atomized = inputs.is_atomized.nonzero()[:, 0] if atomized is None else atomized
    if len(atomized):
        frames = _neighbour_frames(inputs, positions, known, atomized)
        atoms[atomized], valid[atomized] = frames.atoms, frames.valid
    return TokenFrames(atoms, valid)


def _neighbour_frames(
    inputs: AlphaFold3Inputs, positions: torch.Tensor, known: torch.Tensor, tokens: torch.Tensor
) -> TokenFrames:
    """Return the frames of n tokens of one atom; known is bool [A]."""
    chain = inputs.asym_id[inputs.atom_to_token_index]
    atom = inputs.start_atom_index[tokens]
    offsets = positions[None] - positions[atom][:, None]
    distances = (offsets.square() + FRAME_EPSILON).sum(dim=-1).sqrt()  # [n, A]
    usable = (chain[None] == chain[atom][:, None]) & known & known[atom][:, None]
    distances = distances.masked_fill(~usable, torch.inf)
    closest = torch.topk(distances, min(3, len(chain)), largest=False)
    if closest.indices.shape[1] < 3:
        return TokenFrames(atom[:, None].expand(-1, 3), torch.zeros_like(atom, dtype=torch.bool))
    # the closest atom is the token's own
    neighbours = closest.indices[:, 1], closest.indices[:, 2]
    first, second = (positions[index] - positions[atom] for index in neighbours)
    norms = [(offset.square().sum(dim=-1) + FRAME_EPSILON).sqrt() for offset in (first, second)]
    cosine = (first * second).sum(dim=-1) / (norms[0] * norms[1])
    bent = (cosine < math.cos(SMALLEST_ANGLE)) & (cosine > -math.cos(SMALLEST_ANGLE))
    valid = bent & closest.values[:, 2].isfinite() & inputs.token_mask[tokens].bool()
    return TokenFrames(torch.stack([neighbours[0], atom, neighbours[1]], dim=-1), valid)


class Surface:
    """The protein residues of a target whose surface may be exposed; each chain is taken alone.

    Radii are those of standard residues by name; atoms of other residues have the radius of their element.
    """

    def __init__(self, inputs: AlphaFold3Inputs) -> None:
        token = inputs.atom_to_token_index.cpu().numpy()
        protein = (inputs.is_protein & inputs.token_mask.bool()).cpu().numpy()
        self._atoms = np.flatnonzero(protein[token] & inputs.atom_mask.bool().cpu().numpy())
        self._radii = atom_radii(inputs).numpy()[self._atoms]
        token = token[self._atoms]
        self._chain, self._residue = (x.cpu().numpy()[token] for x in (inputs.asym_id, inputs.residue_index))
        self._areas = largest_area(_residue_types(inputs))[token]

    def disorder(self, positions: torch.Tensor) -> float:
        """Return the share of residues with a smoothed relative surface above 0.581; 0 without protein."""
        points = positions.float().cpu().numpy()[self._atoms]
        return exposed_share(points, self._radii, self._chain, self._residue, self._areas)


def atom_radii(inputs: AlphaFold3Inputs) -> torch.Tensor:
    """Return the van der Waals radius of each atom, Å, float32 [A] on the CPU; see `Surface`."""
    codes = inputs.ref_atom_name_chars.argmax(dim=-1).cpu().numpy()  # [A, 4]
    elements = inputs.ref_element.argmax(dim=-1).cpu().numpy() + 1
    types = _residue_types(inputs)[inputs.atom_to_token_index.cpu().numpy()]
    # atoms of the same kind have the same radius
    kinds = np.ravel_multi_index((*codes.T, elements, types + 1), (64, 64, 64, 64, 128, 32))
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    return torch.tensor([_radius(codes[i], int(elements[i]), int(types[i])) for i in first])[kind]


def _radius(codes: np.ndarray, element: int, residue_type: int) -> float:
    """Return the radius of an atom from its name, code − 32, its element and its amino acid, or −1."""
    name = "".join(map(chr, codes + 32)).strip()
    return van_der_waals_radius(element, name, RESTYPES[residue_type] if residue_type >= 0 else "")


def _residue_types(inputs: AlphaFold3Inputs) -> np.ndarray:
    """Return the amino acid of each token, [N], −1 for all that are not one of the 20."""
    types = inputs.restype.argmax(dim=-1)
    standard = inputs.is_protein & ~inputs.is_atomized & (types < len(RESTYPES))
    return torch.where(standard, types, -1).cpu().numpy()
