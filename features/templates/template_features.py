"""Template features: empty, or made from template chains."""

from collections.abc import Mapping, Sequence

import numpy as np

from features.chemistry.residues import CA, CB, GLYCINE, encode_msa
from features.templates.library.chains import BACKBONE_ATOMS, TemplateChain
from msa.base.residues import ATOM37, GAP


def no_templates(length: int) -> dict[str, np.ndarray]:
    """Return the template features of a target of `length` residues without templates."""
    return {
        "template_aatype": np.zeros((0, length), np.int32),
        "template_all_atom_positions": np.zeros((0, length, 37, 3), np.float32),
        "template_all_atom_masks": np.zeros((0, length, 37), np.float32),
        "template_sum_probs": np.zeros((0, 1), np.float32),
        "template_pseudo_beta": np.zeros((0, length, 3), np.float32),
        "template_pseudo_beta_mask": np.zeros((0, length), np.float32),
    }


def make_template_features(
    length: int, templates: Sequence[tuple[TemplateChain, np.ndarray, float]]
) -> dict[str, np.ndarray]:
    """Make the template features of a target.

    Args:
        length: residues of the query, R.
        templates: for each template, the chain, the aligned residues of query and chain from 0 (int [n, 2]),
            and the expected number of correctly aligned pairs.

    Returns:
        The features that `no_templates` returns, for T templates. Residues of the query without an aligned
        residue have the type gap and no atoms.
    """
    shape = len(templates), length
    aatype = np.full(shape, GAP, np.int32)
    positions = np.zeros((*shape, len(ATOM37), 3), np.float32)
    masks = np.zeros((*shape, len(ATOM37)), np.float32)
    sum_probs = np.zeros((len(templates), 1), np.float32)
    for k, (chain, pairs, expected_pairs) in enumerate(templates):
        query, template = pairs[:, 0], pairs[:, 1]
        letters = np.frombuffer(chain.sequence.encode("ascii"), np.uint8)
        aatype[k, query] = encode_msa(letters[template])
        positions[k, query] = chain.positions[template]
        masks[k, query] = chain.mask[template]
        sum_probs[k] = expected_pairs
    return with_pseudo_beta(aatype, positions, masks, sum_probs)


def without_side_chains(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return template features without the atoms of side chains beyond CB."""
    mask = features["template_all_atom_masks"] * BACKBONE_ATOMS
    positions = features["template_all_atom_positions"] * mask[..., None]
    return {**features, "template_all_atom_masks": mask, "template_all_atom_positions": positions}


def with_pseudo_beta(
    aatype: np.ndarray, positions: np.ndarray, masks: np.ndarray, sum_probs: np.ndarray
) -> dict[str, np.ndarray]:
    """Return all features, with the positions and mask of CB, or CA for glycine."""
    is_glycine = aatype == GLYCINE
    return {
        "template_aatype": aatype,
        "template_all_atom_positions": positions,
        "template_all_atom_masks": masks,
        "template_sum_probs": sum_probs,
        "template_pseudo_beta": np.where(is_glycine[..., None], positions[..., CA, :], positions[..., CB, :]),
        "template_pseudo_beta_mask": np.where(is_glycine, masks[..., CA], masks[..., CB]),
    }
