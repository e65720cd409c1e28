"""The share of a network's protein residues that are exposed; see `model.confidence.surface`."""

import numpy as np
import torch

from model.alphafold3.inputs import AlphaFold3Inputs
from model.confidence.surface import exposed_share, largest_area, van_der_waals_radius
from msa.base.residues import RESTYPES


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
