"""The share of a network's protein residues that are exposed; see `model.confidence.surface`."""

import numpy as np
import torch

from model.alphafold3.inputs import AlphaFold3Inputs
from model.confidence.surface import exposed_share, largest_area, van_der_waals_radius
from msa.base.residues import RESTYPES


def disorder(
    inputs: AlphaFold3Inputs, positions: torch.Tensor, radii: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the share of protein residues whose smoothed relative surface exceeds 0.581, a scalar.

    It is 0 without protein. Each chain is taken alone.

    Args:
        inputs: the target.
        positions: [A, 3], Å.
        radii: [A], Å, van der Waals radii. By default, those of standard residues by name; atoms of other
            residues have the radius of their element.
    """
    token = inputs.atom_to_token_index.cpu().numpy()
    protein = (inputs.is_protein & inputs.token_mask.bool()).cpu().numpy()
    selected = protein[token] & inputs.atom_mask.bool().cpu().numpy()
    coordinates = positions.float().cpu().numpy()
    all_radii = (atom_radii(inputs) if radii is None else radii).float().cpu().numpy()
    chain, residue = (x.cpu().numpy()[token] for x in (inputs.asym_id, inputs.residue_index))
    areas = largest_area(_residue_types(inputs))[token]
    atoms = np.flatnonzero(selected)
    share = exposed_share(coordinates[atoms], all_radii[atoms], chain[atoms], residue[atoms], areas[atoms])
    return positions.new_tensor(share)


def atom_radii(inputs: AlphaFold3Inputs) -> torch.Tensor:
    """Return the van der Waals radius of each atom, Å, float32 [A] on the CPU; see `disorder`."""
    elements = inputs.ref_element.argmax(dim=-1).cpu().numpy() + 1
    codes = inputs.ref_atom_name_chars.argmax(dim=-1).cpu().numpy() + 32
    names = ["".join(map(chr, row)).strip() for row in codes]
    types = _residue_types(inputs)[inputs.atom_to_token_index.cpu().numpy()]
    letters = [RESTYPES[kind] if kind >= 0 else "" for kind in types.tolist()]
    return torch.tensor(list(map(van_der_waals_radius, elements.tolist(), names, letters)))


def _residue_types(inputs: AlphaFold3Inputs) -> np.ndarray:
    """Return the amino acid of each token, [N], −1 for all that are not one of the 20."""
    types = inputs.restype.argmax(dim=-1)
    standard = inputs.is_protein & ~inputs.is_atomized & (types < len(RESTYPES))
    return torch.where(standard, types, -1).cpu().numpy()
