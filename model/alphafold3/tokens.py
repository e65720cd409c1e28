"""Atoms that stand for tokens: representative atoms, and the three atoms of a token's frame.

Standard residues and nucleotides have their atoms in a fixed order, without hydrogens: N, CA, C, O, CB, … and
P, OP1, OP2, O5', C5', C4', O4', C3', O3', C2', [O2',] C1', then the base.
"""

import math

import torch

from model.alphafold3.inputs import AlphaFold3Inputs

# index of the representative atom by residue type: CB (CA of glycine), C4 of purines, C2 of pyrimidines; −1:
# none
_REPRESENTATIVE = (*[1 if name == "G" else 4 for name in "ARNDCQEGHILKMFPSTWYVX"], 21, 22, 13, 13, -1)
_REPRESENTATIVE = (*_REPRESENTATIVE, 20, 21, 12, 12, -1, -1)
# frames: N, CA, C of amino acids; C3', C1', C4' of ribonucleotides and of deoxyribonucleotides
_FRAMES = (*[(0, 1, 2)] * 21, *[(7, 11, 5)] * 5, *[(7, 10, 5)] * 5, (0, 0, 0))
_SMALLEST_ANGLE = math.radians(25)
_EPSILON = 1e-8


def representative_atoms(inputs: AlphaFold3Inputs) -> torch.Tensor:
    """Return the index of the atom that stands for each token, int64 [N].

    It is the only atom of an atomized token. A token whose residue type has none gets the first atom of all.
    """
    offset = _of_type(inputs, _REPRESENTATIVE)
    standard = torch.where(offset < 0, 0, inputs.start_atom_index + offset)
    return torch.where(inputs.is_atomized, inputs.start_atom_index, standard)


def has_frame(inputs: AlphaFold3Inputs, positions: torch.Tensor) -> torch.Tensor:
    """Return the tokens that have a frame in a structure (section 4.3.2 of the supplement).

    Args:
        inputs: the target.
        positions: [A, 3], Å.

    Returns:
        bool [N]. An atomized token has one if the two closest atoms of its chain form no angle with it that
        is within 25° of a straight line.
    """
    atomized = inputs.is_atomized.nonzero()[:, 0]
    result = inputs.token_mask.bool() & ~inputs.is_ligand
    known = _of_type(inputs, _FRAMES)  # [N, 3]
    atoms = inputs.start_atom_index[:, None] + known
    last = len(inputs.atom_mask) - 1
    result &= inputs.atom_mask[atoms.clamp(max=last)].bool().all(dim=-1)
    if len(atomized):
        result[atomized] = _has_neighbour_frame(inputs, positions, atomized)
    return result


def _of_type(inputs: AlphaFold3Inputs, table: tuple) -> torch.Tensor:
    """Look up a table of residue types for each token."""
    return torch.tensor(table, device=inputs.restype.device)[inputs.restype.argmax(dim=-1)]


def _has_neighbour_frame(
    inputs: AlphaFold3Inputs, positions: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Return bool [n] for n tokens of one atom."""
    chain = inputs.asym_id[inputs.atom_to_token_index]
    atom = inputs.start_atom_index[tokens]
    real = inputs.atom_mask.bool()
    offsets = positions[None] - positions[atom][:, None]
    distances = (offsets.square() + _EPSILON).sum(dim=-1).sqrt()  # [n, A]
    usable = (chain[None] == chain[atom][:, None]) & real & real[atom][:, None]
    distances = distances.masked_fill(~usable, torch.inf)
    closest = torch.topk(distances, min(3, len(chain)), largest=False)
    if closest.indices.shape[1] < 3:
        return torch.zeros_like(atom, dtype=torch.bool)
    # the closest atom is the token's own
    first, second = (positions[closest.indices[:, i]] - positions[atom] for i in (1, 2))
    norms = [(offset.square().sum(dim=-1) + _EPSILON).sqrt() for offset in (first, second)]
    cosine = (first * second).sum(dim=-1) / (norms[0] * norms[1])
    bent = (cosine < math.cos(_SMALLEST_ANGLE)) & (cosine > -math.cos(_SMALLEST_ANGLE))
    return bent & closest.values[:, 2].isfinite() & inputs.token_mask[tokens].bool()
