"""Confidence scores of a structure from the heads' logits.

Equation numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024), section 5.9; where
OpenFold3's scores differ from them, they are OpenFold3's.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch

from model.alphafold3.heads import ConfidenceLogits, by_residue_type
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.surface import disorder
from model.confidence.flags import chains_clash

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


@torch.no_grad()
def score_sample(
    inputs: AlphaFold3Inputs,
    positions: torch.Tensor,
    logits: ConfidenceLogits,
    distogram: torch.Tensor,
    radii: torch.Tensor | None = None,
) -> Confidence:
    """Compute all scores of a structure.

    Args:
        inputs: the target.
        positions: [A, 3], Å.
        logits: the heads' logits.
        distogram: [N, N, 64], logits.
        radii: see `model.alphafold3.surface.disorder`.
    """
    pde = _expectation(logits.pde, LARGEST_ERROR)
    probabilities = logits.pae.softmax(dim=-1)
    contacts = contact_probability(distogram)
    framed = token_frames(inputs, positions).valid
    score = _TmScore(probabilities, framed, inputs.asym_id)
    mask = inputs.token_mask.bool()
    ptm, iptm = score(mask), score(mask, interface=True)
    exposed = disorder(inputs, positions, radii)
    clash = _has_clash(inputs, positions)
    chains = tuple(int(chain) for chain in inputs.asym_id[mask].unique())
    members = [mask & (inputs.asym_id == chain) for chain in chains]
    pairs = _chain_pair_iptm(score, members)
    return Confidence(
        plddt=100 * _expectation(logits.plddt, 1.0),
        pae=probabilities @ _centers(probabilities, LARGEST_ERROR),
        pde=pde,
        gpde=(contacts * pde).sum() / (contacts.sum() + 1e-8),
        ptm=ptm,
        iptm=iptm,
        disorder=exposed,
        has_clash=clash,
        ranking_score=0.8 * iptm + 0.2 * ptm + 0.5 * exposed - 100 * clash,
        chains=chains,
        chain_ptm=torch.stack([score(member) for member in members]),
        chain_pair_iptm=pairs,
        bespoke_iptm=_bespoke_iptm(pairs, members, framed, inputs.is_ligand),
    )


def _centers(x: torch.Tensor, upper: float) -> torch.Tensor:
    """Return the centres of the bins between 0 and `upper` of x [..., B]."""
    edges = torch.linspace(0, upper, x.shape[-1] + 1).to(x)
    return edges[:-1] + upper / x.shape[-1] / 2


def _expectation(logits: torch.Tensor, upper: float) -> torch.Tensor:
    """Return the expected value [...] of bins between 0 and `upper` from logits [..., B]."""
    return logits.softmax(dim=-1) @ _centers(logits, upper)


def contact_probability(distogram: torch.Tensor) -> torch.Tensor:
    """Return the probability [N, N] that tokens are within 8 Å, from logits [N, N, B]."""
    ends = torch.linspace(*DISTOGRAM_RANGE, distogram.shape[-1] + 1)[1:]
    bins = int((ends <= CONTACT_DISTANCE).sum())
    return distogram.softmax(dim=-1)[..., :bins].sum(dim=-1)


class _TmScore:
    """Predicted TM scores (equations 17 and 18) of sets of tokens.

    Args:
        probabilities: [N, N, B], of the bins of the aligned error.
        framed: bool [N], tokens with a frame.
        asym_id: [N], numbers of the chains.
    """

    def __init__(self, probabilities: torch.Tensor, framed: torch.Tensor, asym_id: torch.Tensor) -> None:
        self._probabilities, self._framed, self._asym_id = probabilities, framed, asym_id

    def __call__(self, tokens: torch.Tensor, *, interface: bool = False) -> torch.Tensor:
        """Return the score of tokens bool [N]; in an interface, only pairs of different chains count."""
        index = tokens.nonzero()[:, 0]
        count = max(len(index), 1)
        if not len(index):
            return self._probabilities.new_zeros(())
        # TM-score's normalisation; its length is at least 19
        scale = 1.24 * (max(count, 19) - 15) ** (1 / 3) - 1.8
        weights = 1 / (1 + (_centers(self._probabilities, LARGEST_ERROR) / scale) ** 2)
        expected = self._probabilities[index[:, None], index] @ weights  # [n, n]
        if interface:
            chains = self._asym_id[index]
            different = (chains[:, None] != chains).to(expected)
            by_frame = (expected * different).sum(dim=-1) / different.sum(dim=-1).clamp(min=1e-8)
        else:
            by_frame = expected.sum(dim=-1) / count
        return by_frame.masked_fill(~self._framed[index], 0).max()


def _chain_pair_iptm(score: _TmScore, members: list[torch.Tensor]) -> torch.Tensor:
    """Return the ipTM of each pair of chains, [C, C], given the tokens of each chain."""
    pairs = score(members[0]).new_zeros(len(members), len(members))
    for i, j in combinations(range(len(members)), 2):
        pairs[i, j] = pairs[j, i] = score(members[i] | members[j], interface=True)
    return pairs


def _bespoke_iptm(
    pairs: torch.Tensor, members: list[torch.Tensor], framed: torch.Tensor, is_ligand: torch.Tensor
) -> torch.Tensor:
    """Return the mean ipTM of the chains of each pair with all others, [C, C] (section 5.9.3, item 3).

    Args:
        pairs: [C, C], ipTM of each pair.
        members: tokens of each chain, bool [N].
        framed: bool [N], tokens with a frame.
        is_ligand: bool [N].
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


def _has_clash(inputs: AlphaFold3Inputs, positions: torch.Tensor) -> torch.Tensor:
    """Return 1 if two polymer chains have many atoms within 1.1 Å, otherwise 0 (section 5.9.2)."""
    token = inputs.atom_to_token_index
    polymer = (inputs.is_protein | inputs.is_rna | inputs.is_dna)[token]
    chain, real = inputs.asym_id[token], inputs.atom_mask.bool()
    members = [(chain == number) for number in chain[real].unique()]
    atoms = [positions[member & real] for member in members if bool(polymer[member].all())]
    return positions.new_tensor(float(chains_clash(atoms)))


class TokenFrames(NamedTuple):
    """The frames of tokens (section 4.3.2 of the supplement).

    Args:
        atoms: int64 [N, 3], the atoms of each frame; its origin is the second one.
        valid: bool [N], tokens that have a frame; the atoms of the others mean nothing.
    """

    atoms: torch.Tensor
    valid: torch.Tensor


def token_frames(
    inputs: AlphaFold3Inputs, positions: torch.Tensor, mask: torch.Tensor | None = None
) -> TokenFrames:
    """Return the frames of a structure.

    An atomized token and the two closest atoms of its chain form a frame if their angle is not within 25° of
    a straight line.

    Args:
        inputs: the target.
        positions: [A, 3], Å.
        mask: [A], 1 for atoms whose position is known; None for all real atoms.
    """
    known = (inputs.atom_mask if mask is None else mask).bool()
    last = len(inputs.atom_mask) - 1
    atoms = inputs.start_atom_index[:, None] + by_residue_type(inputs, _FRAMES)  # [N, 3]
    atoms = atoms.clamp(max=last)
    valid = inputs.token_mask.bool() & ~inputs.is_ligand & known[atoms].all(dim=-1)
    atomized = inputs.is_atomized.nonzero()[:, 0]
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
