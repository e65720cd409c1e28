"""The experimental structure that losses compare with."""

from dataclasses import dataclass

import torch

from model.alphafold3.heads import by_residue_type
from model.alphafold3.inputs import AlphaFold3Inputs

# The atom at the centre of a token by residue type: CA of amino acids, C1' of ribonucleotides and
# deoxyribonucleotides; −1: none.
_CENTRES = (*[1] * 21, *[11] * 5, *[10] * 5, -1)


@dataclass(frozen=True)
class AtomTargets:
    """The experimental structure of a crop, in the order of the inputs' atoms.

    Args:
        positions: [A, 3], Å; of atoms that are not resolved, any finite values.
        resolved: [A], 1 for atoms with a known position, 0 for others and for padding.
    """

    positions: torch.Tensor
    resolved: torch.Tensor


def centre_atoms(inputs: AlphaFold3Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of the atom at each token's centre, int64 [N], and the tokens that have one, bool [N].

    It is CA, C1' or the only atom of an atomized token.
    """
    offset = by_residue_type(inputs, _CENTRES)
    standard = (inputs.is_protein | inputs.is_rna | inputs.is_dna) & ~inputs.is_atomized & (offset >= 0)
    exists = (standard | inputs.is_atomized) & inputs.token_mask.bool()
    return inputs.start_atom_index + torch.where(standard, offset, 0), exists


def of_atoms(inputs: AlphaFold3Inputs, tokens: torch.Tensor) -> torch.Tensor:
    """Return the values [A, ...] of each atom's token, given those of tokens [N, ...]."""
    return tokens[inputs.atom_to_token_index]
